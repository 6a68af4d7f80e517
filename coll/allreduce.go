package coll

// Recursive doubling all-reduce: in round k the partners whose numbers differ in
// bit k swap what they have and combine it, the lower one's first, so that both
// get the same bits. Where n is no power of two, the even ones of the first
// 2(n-p) ranks (p: the power of two below n) hand their vector to the rank above
// before and get the result from it after.
//
// Steps: log2 p, and 2 where n is no power of two. Bytes: the vector each step.
func allReduceDoubling(b *builder) {
	n, me, bytes := b.call.Size, b.call.Rank, b.call.Bytes
	have, out := b.source(), b.dest()
	if bytes == 0 {
		return
	}
	if n == 1 {
		b.copy(out, have, bytes, false)
		return
	}
	p := 1
	for 2*p <= n {
		p *= 2
	}
	extra := n - p
	var incoming loc
	if !b.eager(bytes) {
		incoming = b.alloc(bytes)
	}
	number := me - extra
	if me < 2*extra {
		if me%2 == 0 {
			b.give(me+1, have, bytes)
			b.open(me+1, out, bytes)
			b.get(me+1, out, bytes)
			return
		}
		number = me / 2
		b.open(me-1, incoming, bytes)
		theirs, held := b.receive(me-1, incoming, bytes)
		b.reduce(out, theirs, have, bytes, held)
		have = out
	}
	for bit := 1; bit < p; bit *= 2 {
		partner := number ^ bit
		rank := partner + extra
		if partner < extra {
			rank = 2*partner + 1
		}
		b.open(rank, incoming, bytes)
		b.give(rank, have, bytes)
		theirs, held := b.receive(rank, incoming, bytes)
		b.flush(rank) // have is about to be overwritten
		if partner < number {
			b.reduce(out, theirs, have, bytes, held)
		} else {
			b.reduce(out, have, theirs, bytes, held)
		}
		have = out
	}
	if me < 2*extra {
		b.give(me-1, out, bytes)
	}
}

// Direct all-reduce: every rank sends its vector to all and combines those of all
// in the order of the ranks.
//
// Steps: 1 (2 by descriptor). Bytes: n-1 vectors a rank; n-1 reductions.
func allReduceDirect(b *builder) {
	n, me, bytes := b.call.Size, b.call.Rank, b.call.Bytes
	if bytes == 0 {
		return
	}
	b.expect()
	for i := 1; i < n; i++ {
		b.give((me+i)%n, b.source(), bytes)
	}
	if b.call.InPlace {
		b.flushAll()
	}
	b.combine()
}

// Binomial all-reduce: a reduction to rank 0, then a broadcast, on the same tree.
//
// Steps: 2 ceil(log2 n), and one a further chunk. Bytes: the vector once a rank, of
// which rank 0 sends ceil(log2 n) times the vector.
func allReduceBinomial(b *builder) {
	if b.call.Bytes == 0 {
		return
	}
	have := reduceTree(b, 0, b.dest(), b.call.Bytes)
	if b.call.Rank == 0 {
		b.copy(b.dest(), have, b.call.Bytes, false) // of a world of one
	}
	b.flushAll() // the output is about to be overwritten
	bcastBinomial(b)
}
