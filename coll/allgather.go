package coll

// own has the caller's block at its place in the output.
func (b *builder) own() loc {
	block := b.call.Bytes
	at := b.dest().plus(b.call.Rank * block)
	if !b.call.InPlace {
		b.copy(at, b.source(), block, false)
	}
	return at
}

// block is the caller's block, wherever it is.
func (b *builder) block() loc {
	if b.call.InPlace {
		return b.dest().plus(b.call.Rank * b.call.Bytes)
	}
	return b.source()
}

// Direct all-gather: every rank sends its block to all.
//
// Steps: 1 (2 by descriptor). Bytes: n-1 blocks a rank.
func allGatherDirect(b *builder) {
	n, me, block := b.call.Size, b.call.Rank, b.call.Bytes
	if block == 0 {
		return
	}
	out := b.dest()
	for i := 1; i < n; i++ {
		from := (me - i + n) % n
		b.open(from, out.plus(from*block), block)
	}
	mine, first := b.block(), len(b.steps)
	for i := 1; i < n; i++ {
		b.give((me+i)%n, mine, block)
	}
	b.own()
	b.aside(first, n*n*block)
	for i := 1; i < n; i++ {
		from := (me - i + n) % n
		b.get(from, out.plus(from*block), block)
	}
}

// Bruck's all-gather: in round k every rank sends all the blocks it has (2^k,
// its own first) to the rank 2^k below and appends those of the rank 2^k above.
// At the end they are rotated into place.
//
// Steps: ceil(log2 n). Bytes: n-1 blocks a rank.
func allGatherBruck(b *builder) {
	n, me, block := b.call.Size, b.call.Rank, b.call.Bytes
	if block == 0 {
		return
	}
	out := b.dest()
	have := b.alloc(n * block)
	b.copy(have, b.block(), block, false)
	for dist := 1; dist < n; dist *= 2 {
		to, from := (me-dist+n)%n, (me+dist)%n
		bytes := min(dist, n-dist) * block
		b.open(from, have.plus(dist*block), bytes)
		b.give(to, have, bytes)
		b.get(from, have.plus(dist*block), bytes)
	}
	b.copy(out.plus(me*block), have, (n-me)*block, false)
	b.copy(out, have.plus((n-me)*block), me*block, false)
}

// Ring all-gather: in round k every rank passes the block that it got last on to
// the rank above. Only neighbours talk, and a block is passed on while it is hot.
//
// Steps: n-1. Bytes: n-1 blocks a rank.
func allGatherRing(b *builder) {
	n, block := b.call.Size, b.call.Bytes
	if block == 0 {
		return
	}
	if n > 1 && !b.eager(block) {
		b.expose((b.call.Rank+n-1)%n, 0, b.dest(), n*block)
	}
	b.own()
	gatherRing(b, 0, block, func(rank int) portion { return portion{rank * block, block} })
}
