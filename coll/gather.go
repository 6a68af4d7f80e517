package coll

// Direct gather: every rank sends its block to the root.
//
// Steps: 1 (2 by descriptor). Bytes: a block a rank, n-1 at the root.
func gatherDirect(b *builder) {
	n, me, root, block := b.call.Size, b.call.Rank, b.call.Root, b.call.Bytes
	if block == 0 {
		return
	}
	if me != root {
		b.give(root, b.source(), block)
		b.aside(0, n*block)
		return
	}
	out := b.dest()
	for i := 1; i < n; i++ {
		from := (me + i) % n
		b.open(from, out.plus(from*block), block)
	}
	b.own()
	b.aside(0, n*block)
	for i := 1; i < n; i++ {
		from := (me + i) % n
		b.get(from, out.plus(from*block), block)
	}
}

// Binomial gather: ranks count from the root. A rank gathers the blocks of the
// ranks 1, 2-3, 4-7 ... above it, as long as its own number has a 0 there, behind
// its own, and sends all to the rank that lacks its lowest set bit. The root puts
// them where they belong.
//
// Steps: ceil(log2 n). Bytes: a block for each rank below, at most n/2 a message.
func gatherBinomial(b *builder) {
	n, block := b.call.Size, b.call.Bytes
	if block == 0 {
		return
	}
	me, low := b.inTree()
	subtree := min(low, n-me)
	if me == 0 {
		b.own()
	}
	var have loc
	if me != 0 {
		have = b.source()
	}
	if me != 0 && subtree > 1 {
		have = b.alloc(subtree * block)
		b.copy(have, b.source(), block, false)
	}
	for bit := 1; bit < low && me+bit < n; bit *= 2 {
		child, blocks := b.ofTree(me+bit), min(bit, n-me-bit)
		if me != 0 {
			b.open(child, have.plus(bit*block), blocks*block)
			continue
		}
		if child+blocks <= n {
			b.open(child, b.dest().plus(child*block), blocks*block)
		} else if !b.eager(blocks * block) {
			have = b.alloc(blocks * block) // for the one that wraps
			b.open(child, have, blocks*block)
		}
	}
	for bit := 1; bit < low && me+bit < n; bit *= 2 {
		child, blocks := b.ofTree(me+bit), min(bit, n-me-bit)
		switch {
		case me != 0:
			b.get(child, have.plus(bit*block), blocks*block)
		case child+blocks <= n:
			b.get(child, b.dest().plus(child*block), blocks*block)
		default:
			where, held := b.receive(child, have, blocks*block)
			b.copy(b.dest().plus(child*block), where, (n-child)*block, false)
			b.copy(b.dest(), where.plus((n-child)*block), (blocks-n+child)*block, held)
		}
	}
	if me != 0 {
		b.give(b.ofTree(me-low), have, subtree*block)
	}
}

// inTree is the caller's number in a binomial tree, counted from the root, and
// the bit that its parent lacks: for the root one that no rank has. The subtree of
// a rank are the numbers from its own up to low behind it.
func (b *builder) inTree() (me, low int) {
	n := b.call.Size
	me = (b.call.Rank - b.call.Root + n) % n
	return me, lowest(me, n)
}

// lowest is the bit that the parent of a number lacks in a binomial tree of n.
func lowest(v, n int) int {
	low := v & -v
	if v == 0 {
		for low = 1; low < n; low *= 2 {
		}
	}
	return low
}

// ofTree is the rank that has a number in the tree.
func (b *builder) ofTree(v int) int { return (v + b.call.Root) % b.call.Size }
