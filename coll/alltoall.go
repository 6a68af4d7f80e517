package coll

// blocks is the input of an all-to-all: in place, a copy of the output, which
// is about to be overwritten.
func (b *builder) blocks() loc {
	if !b.call.InPlace {
		return b.source()
	}
	total := b.call.Size * b.call.Bytes
	saved := b.alloc(total)
	b.copy(saved, b.source(), total, false)
	return saved
}

// Direct all-to-all: every rank sends each peer its block, first the one above
// it, then the next, so that no two ranks begin with the same peer. The own block
// is a copy.
//
// Steps: 1 (2 by descriptor). Bytes: n-1 blocks a rank, each sent once.
func allToAllDirect(b *builder) {
	n, me, block := b.call.Size, b.call.Rank, b.call.Bytes
	if block == 0 || n == 1 && b.call.InPlace {
		return
	}
	in, out := b.blocks(), b.dest()
	for i := 1; i < n; i++ {
		from := (me - i + n) % n
		b.open(from, out.plus(from*block), block)
	}
	if b.eager(block) {
		for i := 1; i < n; i++ {
			to := (me + i) % n
			b.give(to, in.plus(to*block), block)
		}
	}
	first := len(b.steps)
	b.copy(out.plus(me*block), in.plus(me*block), block, false)
	if !b.eager(block) {
		for i := 1; i < n; i++ {
			to := (me + i) % n
			b.give(to, in.plus(to*block), block)
		}
	}
	b.aside(first, n*n*block)
	for i := 1; i < n; i++ {
		from := (me - i + n) % n
		b.get(from, out.plus(from*block), block)
	}
}

// Bruck's all-to-all (Bruck et al. 1997), for many ranks and small blocks:
// blocks travel together and hop. The blocks are rotated so that block i is
// for the rank i above. In round k all blocks whose i has bit k hop to the rank
// 2^k above. Then block i has come from the rank i below, and they are rotated
// back.
//
// Steps: ceil(log2 n). Bytes: about n/2 blocks a round and rank, that is
// log2(n)/2 times those of the direct one.
func allToAllBruck(b *builder) {
	n, me, block := b.call.Size, b.call.Rank, b.call.Bytes
	if block == 0 {
		return
	}
	out := b.dest()
	turned := b.alloc(n * block)
	b.copy(turned, b.source().plus(me*block), (n-me)*block, false)
	b.copy(turned.plus((n-me)*block), b.source(), me*block, false)
	half := (n + 1) / 2 * block // no round moves more
	outgoing, incoming := b.alloc(half), b.alloc(half)
	for bit := 1; bit < n; bit *= 2 {
		to, from := (me+bit)%n, (me-bit+n)%n
		packed := 0
		for i := bit; i < n; i++ {
			if i&bit != 0 {
				b.copy(outgoing.plus(packed), turned.plus(i*block), block, false)
				packed += block
			}
		}
		b.open(from, incoming, packed)
		b.give(to, outgoing, packed)
		where, held := b.receive(from, incoming, packed)
		unpacked := 0
		for i := bit; i < n; i++ {
			if i&bit != 0 {
				b.copy(turned.plus(i*block), where.plus(unpacked), block, held && unpacked+block == packed)
				unpacked += block
			}
		}
		b.flush(to)
	}
	for i := range n {
		from := (me - i + n) % n
		b.copy(out.plus(from*block), turned.plus(i*block), block, false)
	}
}
