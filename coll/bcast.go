package coll

// Binomial broadcast: ranks count from the root. A rank receives from the one
// whose number lacks its lowest set bit and passes on to those that add one bit
// below that, the largest subtree first. Long vectors are passed on in chunks
// as they come.
//
// Steps: ceil(log2 n), and one a further chunk. Bytes: the vector once a rank,
// of which the root sends ceil(log2 n) times the vector.
func (b *builder) bcastBinomial() {
	n, bytes := b.call.Size, b.call.Bytes
	me := (b.call.Rank - b.call.Root + n) % n
	if bytes == 0 || n == 1 {
		return
	}
	rank := func(v int) int { return (v + b.call.Root) % n }
	low := me & -me // the bit that the parent lacks
	if me == 0 {
		for low = 1; low < n; low *= 2 {
		}
	}
	vector := b.dest()
	if b.eager(bytes) {
		from := vector
		if me != 0 {
			b.await(rank(me - low))
			from = at(rank(me - low))
		}
		for bit := low / 2; bit > 0; bit /= 2 {
			if me+bit < n {
				b.send(rank(me+bit), from, bytes)
			}
		}
		b.copy(vector, from, bytes, me != 0)
		return
	}
	if me != 0 {
		b.expose(rank(me-low), 0, vector, bytes)
	}
	for k := range pieces(bytes, b.tuning.chunk) {
		p := part(bytes, b.tuning.chunk, k)
		if me != 0 {
			b.take(rank(me - low))
		}
		for bit := low / 2; bit > 0; bit /= 2 {
			if me+bit >= n {
				continue
			}
			if k == 0 {
				b.learn(rank(me+bit), 0)
			}
			b.put(rank(me+bit), 0, p.off, vector.plus(p.off), p.n)
		}
	}
}
