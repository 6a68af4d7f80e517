package coll

// fold combines n bytes of all ranks in the order of the ranks: own is the
// caller's, in gives another one's. Where dst is own, what comes before it is
// gathered in spare, which may be the place of rank 0's.
func (b *builder) fold(dst, own, spare loc, in func(rank int) loc, n int) {
	have := own
	if b.call.Rank != 0 {
		have = in(0)
	}
	for r := 1; r < b.call.Size; r++ {
		next, to := own, dst
		if r != b.call.Rank {
			next = in(r)
		}
		if r < b.call.Rank && dst == own {
			to = spare
		}
		b.reduce(to, have, next, n, false)
		have = to
	}
}

// Direct reduce-scatter: every rank sends each peer that one's block and combines
// the n blocks that are its own, in the order of the ranks. Long blocks go by
// descriptor and in pieces, see pipeline.
//
// Steps: 1. Bytes: n-1 blocks a rank; n-1 reductions of a block.
func reduceScatterDirect(b *builder) {
	block := b.call.Bytes
	reduceScatter(b, block, func(rank int) portion { return portion{rank * block, block} })
}

// Binomial reduce-scatter: a reduction of all blocks to rank 0, then a scatter, on the
// same tree.
//
// Steps: 2 ceil(log2 n). Bytes: all blocks once a rank, and a block for each rank below.
func reduceScatterBinomial(b *builder) {
	n, block := b.call.Size, b.call.Bytes
	if block == 0 {
		return
	}
	have := reduceTree(b, 0, loc{}, n*block)
	b.flushAll() // in place the output is what was sent
	scatterTree(b, have)
	if b.call.Rank == 0 {
		b.copy(b.dest(), have, block, false)
	}
}

// The same with blocks of different lengths, or none. If one is long all go in
// pieces.
func reduceScatterParts(b *builder) {
	longest := 0
	for _, p := range b.recvs {
		longest = max(longest, p.N)
	}
	reduceScatter(b, longest, func(rank int) portion { return portion{b.recvs[rank].Off, b.recvs[rank].N} })
}

func reduceScatter(b *builder, longest int, portionOf func(rank int) portion) {
	n, me := b.call.Size, b.call.Rank
	own := portionOf(me)
	mine, out := b.source().plus(own.off), b.dest()
	if n == 1 {
		b.copy(out, mine, own.n, false)
		return
	}
	// In place, out is also blocks that are sent, and perhaps a part of the own.
	result := out
	if b.call.InPlace && (!b.eager(longest) || 0 < own.off && own.off < own.n) {
		result = b.alloc(own.n)
	}
	if !b.eager(longest) {
		if b.tuning.mapped {
			reduceMappedBlocks(b, portionOf, result)
			return
		}
		p := pipeline{b: b, own: own, result: result, portionOf: portionOf}
		p.run()
		if result != out {
			b.flushAll()
			b.copy(out, result, own.n, false)
		}
		return
	}
	for i := 1; i < n; i++ {
		if to := (me + i) % n; portionOf(to).n > 0 {
			b.send(to, b.source().plus(portionOf(to).off), portionOf(to).n)
		}
	}
	if own.n == 0 {
		return
	}
	for r := range n {
		if r != me {
			b.await(r)
		}
	}
	spare := loc{}
	if result == mine && me > 1 {
		spare = b.alloc(own.n)
	}
	b.fold(result, mine, spare, at, own.n)
	for r := range n {
		if r != me {
			b.release(r)
		}
	}
	b.copy(out, result, own.n, false)
}

// Reduce-scatter and gather, for an all-reduce (all gather) or a reduction (the
// root gathers): rank r combines portion r of the vector and puts the result into
// the output of those that gather.
//
// Steps: 2, in pieces. Bytes: for an all-reduce 2(n-1)/n of the vector a rank,
// which is the least there can be.
func reduceScatterGather(b *builder) {
	n, me, bytes := b.call.Size, b.call.Rank, b.call.Bytes
	if bytes == 0 {
		return
	}
	if n == 1 {
		b.copy(b.dest(), b.source(), bytes, false)
		return
	}
	if b.tuning.mapped {
		reduceMappedPortions(b)
		return
	}
	p := pipeline{b: b, own: portionOf(&b.call, me)}
	p.portionOf = func(rank int) portion { return portionOf(&b.call, rank) }
	p.gathers = func(rank int) bool { return b.call.Kind == AllReduce || rank == b.call.Root }
	if p.gathers(me) {
		p.result = b.dest().plus(p.own.off)
	} else {
		p.result = b.alloc(p.own.n)
	}
	p.run()
}

// A pipeline is the reduce-scatter in pieces, small enough to be combined while
// they are in the cache. In turn s a rank
//
//	pushes    piece s of every peer's portion into that peer's scratch,
//	combines  piece s-1 of its own portion and passes the result on,
//	collects  the results of piece s-2 of the others' portions.
//
// A rank's scratch has a window of 3 pieces for each peer. Piece s goes where
// piece s-3 was, which its owner has combined by then: its result, or where the
// peer gathers none a bare signal, was collected in the turn before.
//
// Between two ranks messages are in this order at both ends, each left out at
// both ends where a portion has no such piece: descriptors of scratch and output;
// then turn by turn piece s, result s-1.
type pipeline struct {
	b         *builder
	own       portion
	result    loc // where the own portion's result goes
	portionOf func(rank int) portion
	gathers   func(rank int) bool // nil: nobody
}

const window = 3

func (p *pipeline) run() {
	b, n, me := p.b, p.b.call.Size, p.b.call.Rank
	in := b.source()
	size := b.pieceSize()
	gathers := func(rank int) bool { return p.gathers != nil && p.gathers(rank) }
	count := func(rank int) int { return pieces(p.portionOf(rank).n, size) }
	peers := func(f func(peer int)) {
		for i := 1; i < n; i++ {
			f((me + i) % n)
		}
	}

	landing := b.landing
	room := min(window*size, p.own.n)
	peers(func(peer int) {
		if p.own.n > 0 {
			landing[peer] = b.alloc(room)
			b.expose(peer, 0, landing[peer], room)
		}
		if theirs := p.portionOf(peer); gathers(me) && theirs.n > 0 {
			b.expose(peer, 1, b.dest().plus(theirs.off), theirs.n)
		}
	})
	peers(func(peer int) {
		if count(peer) > 0 {
			b.learn(peer, 0)
		}
		if gathers(peer) && p.own.n > 0 {
			b.learn(peer, 1)
		}
	})

	turns := 0
	for r := range n {
		turns = max(turns, count(r))
	}
	for s := range turns + 2 {
		peers(func(peer int) { // push
			if s < count(peer) {
				theirs := p.portionOf(peer)
				x := part(theirs.n, size, s)
				b.put(peer, 0, s%window*size, in.plus(theirs.off+x.off), x.n)
			}
		})
		if k := s - 1; k >= 0 && k < count(me) { // combine
			x := part(p.own.n, size, k)
			for r := range n {
				if r != me {
					b.take(r)
				}
			}
			from := func(rank int) loc { return landing[rank].plus(k % window * size) }
			own, dst := in.plus(p.own.off+x.off), p.result.plus(x.off)
			b.fold(dst, own, from(0), from, x.n)
			peers(func(peer int) {
				switch {
				case gathers(peer):
					b.put(peer, 1, x.off, dst, x.n)
				case k+window < count(me):
					b.signal(peer)
				}
			})
		}
		if k := s - 2; k >= 0 { // collect
			peers(func(peer int) {
				if k < count(peer) && (gathers(me) || k+window < count(peer)) {
					b.take(peer)
				}
			})
		}
	}
}
