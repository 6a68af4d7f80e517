package coll

// Binomial reduction: ranks count from the root, or from rank 0 where the order
// matters, which then hands the result to the root. A rank combines what it has
// with what the ranks 1, 2, 4 ... above it have gathered, as long as its own number
// has a 0 there, and then sends it to the rank that lacks its lowest set bit. The
// order of combination is that of the numbers.
//
// Steps: ceil(log2 n), and 1 where the order matters. Bytes: the vector once a rank
// but the root.
func reduceBinomial(b *builder) {
	bytes, root, top := b.call.Bytes, b.call.Root, b.call.Root
	if bytes == 0 {
		return
	}
	if b.call.Ordered {
		top = 0
	}
	var sum loc
	if b.call.Rank == top && root == top {
		sum = b.dest()
	}
	have := reduceTree(b, top, sum, bytes)
	switch {
	case root == top:
		if b.call.Rank == root {
			b.copy(b.dest(), have, bytes, false) // of a world of one
		}
	case b.call.Rank == top:
		b.give(root, have, bytes)
	case b.call.Rank == root:
		b.flushAll() // in place the output is what was sent
		b.open(top, b.dest(), bytes)
		b.get(top, b.dest(), bytes)
	}
}

// reduceTree combines the vectors of all ranks, of so many bytes, at the top of a
// binomial tree, and says where what this rank has combined is: in sum, where it is
// given, else in scratch or the source.
func reduceTree(b *builder, top int, sum loc, bytes int) (have loc) {
	n, have := b.call.Size, b.source()
	me := (b.call.Rank - top + n) % n
	rank := func(v int) int { return (v + top) % n }
	var incoming loc
	if me&1 == 0 && me+1 < n {
		if sum.operand == none {
			sum = b.alloc(bytes)
		}
		if !b.eager(bytes) {
			incoming = b.alloc(bytes)
		}
	}
	for bit := 1; bit < n; bit *= 2 {
		if me&bit != 0 {
			b.give(rank(me-bit), have, bytes)
			break
		}
		if me+bit >= n {
			continue
		}
		child := rank(me + bit)
		b.open(child, incoming, bytes)
		theirs, held := b.receive(child, incoming, bytes)
		b.reduce(sum, have, theirs, bytes, held)
		have = sum
	}
	return have
}

// Direct reduction: every rank sends its vector to the root, which combines them
// in the order of the ranks.
//
// Steps: 1 (2 by descriptor). Bytes: the vector once a rank but the root; n-1
// reductions at the root.
func reduceDirect(b *builder) {
	if b.call.Bytes == 0 {
		return
	}
	if b.call.Rank != b.call.Root {
		b.give(b.call.Root, b.source(), b.call.Bytes)
		return
	}
	b.expect()
	b.combine()
}

// expect opens scratch for the vectors of all other ranks.
func (b *builder) expect() {
	n, me, bytes := b.call.Size, b.call.Rank, b.call.Bytes
	for i := 1; i < n; i++ {
		from := (me + i) % n
		b.landing[from] = loc{}
		if !b.eager(bytes) {
			b.landing[from] = b.alloc(bytes)
		}
		b.open(from, b.landing[from], bytes)
	}
}

// combine has the vectors of all ranks combined in the output.
func (b *builder) combine() {
	n, me, bytes := b.call.Size, b.call.Rank, b.call.Bytes
	own, out := b.source(), b.dest()
	if n == 1 {
		b.copy(out, own, bytes, false)
		return
	}
	held := false
	for r := range n {
		if r != me {
			b.landing[r], held = b.receive(r, b.landing[r], bytes)
		}
	}
	var spare loc
	if b.call.InPlace && me > 1 {
		spare = b.alloc(bytes)
	}
	b.fold(out, own, spare, func(rank int) loc { return b.landing[rank] }, bytes)
	for r := range n {
		if held && r != me {
			b.release(r)
		}
	}
}
