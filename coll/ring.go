package coll

// Ring all-reduce (Patarasuk, Yuan 2009): a ring reduce-scatter of the vector's portions,
// then a ring all-gather. Only neighbours talk, and every link carries the least there
// can be.
//
// Steps: 2(n-1), and one a further piece. Bytes: 2(n-1)/n of the vector a rank.
func allReduceRing(b *builder) {
	n, bytes, out := b.call.Size, b.call.Bytes, b.dest()
	switch {
	case bytes == 0:
		return
	case n == 1:
		b.copy(out, b.source(), bytes, false)
		return
	case b.call.Ordered: // each portion is combined from another rank on
		reduceScatterGather(b)
		return
	}
	portions := func(rank int) portion { return portionOf(&b.call, rank) }
	longest := portions(0).n
	landing := out // each portion arrives there, and is combined there
	if b.call.InPlace && !b.eager(longest) {
		landing = b.alloc(bytes)
	}
	reduceRing(b, longest, bytes, landing, portions, func(rank int) loc { return out.plus(portions(rank).off) })
	if !b.eager(longest) {
		b.flushAll() // what was passed on is about to be overwritten
		b.expose((b.call.Rank+n-1)%n, 1, out, bytes)
	}
	gatherRing(b, 1, longest, portions)
}

// Ring reduce-scatter: a block begins at the rank above its owner and goes around the
// ring; each rank adds its own and passes it on.
//
// Steps: n-1, and one a further piece. Bytes: n-1 blocks a rank.
func reduceScatterRing(b *builder) {
	n, me, block, out := b.call.Size, b.call.Rank, b.call.Bytes, b.dest()
	if n == 1 || b.call.Ordered {
		reduceScatterDirect(b)
		return
	}
	if block == 0 {
		return
	}
	landing := b.alloc(n * block)
	result := out
	if b.call.InPlace && !b.eager(block) {
		result = landing.plus(me * block) // the output is a block that is sent
	}
	reduceRing(b, block, n*block, landing, func(rank int) portion { return portion{rank * block, block} }, func(rank int) loc {
		if rank == me {
			return result
		}
		return landing.plus(rank * block)
	})
	if result != out {
		b.flushAll()
		b.copy(out, result, block, false)
	}
}

// reduceRing has each rank combine its portion of the vector. Portions come in at landing,
// laid out as the vector is, and are combined at sum, this rank's own portion last.
func reduceRing(b *builder, longest, bytes int, landing loc, portionOf func(rank int) portion, sum func(rank int) loc) {
	n, me := b.call.Size, b.call.Rank
	right, left := (me+1)%n, (me+n-1)%n
	size := max(longest, 1)
	if !b.eager(longest) {
		size = b.pieceSize()
		b.expose(left, 0, landing, bytes)
		b.learn(right, 0)
	}
	have := b.source().plus(portionOf(left).off)
	for k := 1; k < n; k++ {
		from := (me + 2*n - k - 1) % n
		leaves, comes, to := portionOf((me+n-k)%n), portionOf(from), sum(from)
		for i := range max(pieces(leaves.n, size), pieces(comes.n, size)) {
			if x := part(leaves.n, size, i); x.n > 0 {
				b.hand(right, 0, leaves.off+x.off, have.plus(x.off), x.n, b.eager(longest))
			}
			if x := part(comes.n, size, i); x.n > 0 {
				at := comes.off + x.off
				theirs, held := b.handed(left, landing.plus(at), b.eager(longest))
				b.reduce(to.plus(x.off), theirs, b.source().plus(at), x.n, held)
			}
		}
		have = to
	}
}

// gatherRing passes the portions of the output around, beginning with this rank's own.
// Long ones go to what the rank above exposes at index.
func gatherRing(b *builder, index, longest int, portionOf func(rank int) portion) {
	n, me, out := b.call.Size, b.call.Rank, b.dest()
	right, left := (me+1)%n, (me+n-1)%n
	eager := b.eager(longest)
	if n > 1 && !eager {
		b.learn(right, index)
	}
	for k := range n - 1 {
		if x := portionOf((me + n - k) % n); x.n > 0 {
			b.hand(right, index, x.off, out.plus(x.off), x.n, eager)
		}
		if x := portionOf((me + n - k - 1) % n); x.n > 0 {
			theirs, held := b.handed(left, out.plus(x.off), eager)
			b.copy(out.plus(x.off), theirs, x.n, held)
		}
	}
}

// hand gives n bytes to a peer, in a message or at off in what it exposes at index;
// handed waits for them, and says where they are.
func (b *builder) hand(peer, index, off int, a loc, n int, eager bool) {
	if eager {
		b.send(peer, a, n)
		return
	}
	b.put(peer, index, off, a, n)
}

func (b *builder) handed(peer int, landing loc, eager bool) (where loc, held bool) {
	if eager {
		b.await(peer)
		return at(peer), true
	}
	b.take(peer)
	return landing, false
}
