package coll

// Direct scatter: the root sends every rank its block.
//
// Steps: 1 (2 by descriptor). Bytes: a block a rank, n-1 from the root.
func scatterDirect(b *builder) {
	n, me, root, block := b.call.Size, b.call.Rank, b.call.Root, b.call.Bytes
	if block == 0 {
		return
	}
	if me != root {
		b.open(root, b.dest(), block)
		b.get(root, b.dest(), block)
		return
	}
	in := loc{operand: input}
	for i := 1; i < n; i++ {
		to := (me + i) % n
		b.give(to, in.plus(to*block), block)
	}
	if !b.call.InPlace {
		b.copy(b.dest(), in.plus(me*block), block, false)
	}
}

// Binomial scatter: ranks count from the root. A rank gets the blocks of its
// whole subtree from the rank that lacks its lowest set bit, and passes the halves
// on, the largest first.
//
// Steps: ceil(log2 n). Bytes: a block for each rank below, at most n/2 a message.
func scatterBinomial(b *builder) {
	block, in := b.call.Bytes, loc{operand: input}
	if block == 0 {
		return
	}
	scatterTree(b, in)
	if b.call.Rank == b.call.Root && !b.call.InPlace {
		b.copy(b.dest(), in.plus(b.call.Root*block), block, false)
	}
}

// scatterTree has every rank but the root get its block of those at in, the root's.
func scatterTree(b *builder, in loc) {
	n, block := b.call.Size, b.call.Bytes
	me, low := b.inTree()
	if me == 0 {
		for bit := low / 2; bit > 0; bit /= 2 {
			child, blocks := b.ofTree(bit), min(bit, n-bit)
			from := in.plus(child * block)
			if child+blocks > n {
				from = b.alloc(blocks * block) // it wraps
				b.copy(from, in.plus(child*block), (n-child)*block, false)
				b.copy(from.plus((n-child)*block), in, (blocks-n+child)*block, false)
			}
			b.give(child, from, blocks*block)
		}
		return
	}
	parent, subtree := b.ofTree(me-low), min(low, n-me)
	if subtree == 1 {
		b.open(parent, b.dest(), block)
		b.get(parent, b.dest(), block)
		return
	}
	have := loc{}
	if !b.eager(subtree * block) {
		have = b.alloc(subtree * block)
	}
	b.open(parent, have, subtree*block)
	where, held := b.receive(parent, have, subtree*block)
	for bit := low / 2; bit > 0; bit /= 2 {
		if me+bit < n {
			b.give(b.ofTree(me+bit), where.plus(bit*block), min(bit, n-me-bit)*block)
		}
	}
	b.copy(b.dest(), where, block, held)
}
