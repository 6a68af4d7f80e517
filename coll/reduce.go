package coll

// Binomial reduction: ranks count from the root. A rank combines what it has
// with what the ranks 1, 2, 4 ... above it have gathered, as long as its own
// number has a 0 there, and then sends it to the rank that lacks its lowest set
// bit. The order of combination is that of the numbers.
//
// Steps: ceil(log2 n). Bytes: the vector once a rank but the root.
func (b *builder) reduceBinomial() {
	n, bytes := b.call.Size, b.call.Bytes
	me := (b.call.Rank - b.call.Root + n) % n
	if bytes == 0 {
		return
	}
	rank := func(v int) int { return (v + b.call.Root) % n }
	have, sum := b.source(), b.dest()
	if me == 0 && n == 1 {
		b.copy(sum, have, bytes, false)
		return
	}
	if me != 0 && me&1 == 0 && me+1 < n {
		sum = b.alloc(bytes) // an inner rank has no output
	}
	var incoming loc
	if me&1 == 0 && !b.eager(bytes) {
		incoming = b.alloc(bytes)
	}
	for bit := 1; bit < n; bit *= 2 {
		if me&bit != 0 {
			b.give(rank(me-bit), have, bytes)
			return
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
}
