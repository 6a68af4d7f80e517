package coll

// Binomial broadcast: ranks count from the root. A rank receives from the one
// whose number lacks its lowest set bit and passes on to those that add one bit
// below that, the largest subtree first. Long vectors are passed on in chunks
// as they come.
//
// Steps: ceil(log2 n), and one a further chunk. Bytes: the vector once a rank,
// of which the root sends ceil(log2 n) times the vector.
func bcastBinomial(b *builder) {
	me, low := b.inTree()
	var children []int
	for bit := low / 2; bit > 0; bit /= 2 {
		if me+bit < b.call.Size {
			children = append(children, b.ofTree(me+bit))
		}
	}
	b.passOn(b.ofTree(me-low+b.call.Size), children)
}

// Chain broadcast, the pipelined one: each rank passes the vector on to the next,
// in chunks as they come, so that all links are busy at once.
//
// Steps: n-1, and one a further chunk. Bytes: the vector once a rank.
func bcastChain(b *builder) {
	me, _ := b.inTree()
	var next []int
	if me+1 < b.call.Size {
		next = []int{b.ofTree(me + 1)}
	}
	b.passOn(b.ofTree(me-1+b.call.Size), next)
}

// passOn has the vector come from the parent, unless this is the root, and go to the
// children, chunk by chunk.
func (b *builder) passOn(parent int, children []int) {
	bytes, vector, root := b.call.Bytes, b.dest(), b.call.Rank == b.call.Root
	if bytes == 0 || b.call.Size == 1 {
		return
	}
	if b.eager(bytes) {
		from := vector
		if !root {
			b.await(parent)
			from = at(parent)
		}
		for _, child := range children {
			b.send(child, from, bytes)
		}
		b.copy(vector, from, bytes, !root)
		return
	}
	if !root {
		b.expose(parent, 0, vector, bytes)
	}
	size := b.chunkSize()
	for k := range pieces(bytes, size) {
		p := part(bytes, size, k)
		if !root {
			b.take(parent)
		}
		for _, child := range children {
			if k == 0 {
				b.learn(child, 0)
			}
			b.put(child, 0, p.off, vector.plus(p.off), p.n)
		}
	}
}

// Direct broadcast: the root sends every rank the vector.
//
// Steps: 1 (2 by descriptor). Bytes: n-1 vectors from the root.
func bcastDirect(b *builder) {
	n, me, root, bytes := b.call.Size, b.call.Rank, b.call.Root, b.call.Bytes
	if bytes == 0 {
		return
	}
	if me != root {
		b.open(root, b.dest(), bytes)
		b.get(root, b.dest(), bytes)
		return
	}
	for i := 1; i < n; i++ {
		b.give((me+i)%n, b.dest(), bytes)
	}
}

// Scatter and all-gather broadcast (van de Geijn 1994), for long vectors: each
// rank but the root gets a portion, and sends it on to the other ones, chunk by
// chunk. In turn k a rank gets and passes on chunk k of its portion, and then collects
// chunk k of the others' portions.
//
// Steps: 2, and one a further chunk. Bytes: the vector from the root, and almost
// as much from each of the others.
func bcastScatter(b *builder) {
	n, root, bytes := b.call.Size, b.call.Root, b.call.Bytes
	if bytes == 0 || n == 1 {
		return
	}
	me, vector := (b.call.Rank-root+n)%n, b.dest()
	// Shares are whole cache lines.
	lines := pieces(bytes, line)
	portionOf := func(v int) portion {
		first, next := lines*(v-1)/(n-1)*line, lines*v/(n-1)*line
		return portion{off: first, n: min(next, bytes) - first}
	}
	size, turns := b.chunkSize(), 0
	for v := 1; v < n; v++ {
		turns = max(turns, pieces(portionOf(v).n, size))
	}
	others := func(f func(v int)) {
		for i := 1; i < n; i++ {
			if v := (me + i) % n; v != 0 {
				f(v)
			}
		}
	}
	if me != 0 {
		if portionOf(me).n > 0 {
			b.expose(root, 0, vector, bytes)
		}
		others(func(v int) {
			if portionOf(v).n > 0 {
				b.expose(b.ofTree(v), 0, vector, bytes)
			}
		})
	}
	if me == 0 || portionOf(me).n > 0 {
		others(func(v int) {
			if me != 0 || portionOf(v).n > 0 {
				b.learn(b.ofTree(v), 0)
			}
		})
	}
	for k := range turns {
		if mine := portionOf(max(me, 1)); me != 0 && k < pieces(mine.n, size) {
			b.take(root)
			p := part(mine.n, size, k)
			others(func(v int) { b.put(b.ofTree(v), 0, mine.off+p.off, vector.plus(mine.off+p.off), p.n) })
		}
		others(func(v int) {
			theirs := portionOf(v)
			if k >= pieces(theirs.n, size) {
				return
			}
			if me == 0 {
				p := part(theirs.n, size, k)
				b.put(b.ofTree(v), 0, theirs.off+p.off, vector.plus(theirs.off+p.off), p.n)
			} else {
				b.take(b.ofTree(v))
			}
		})
	}
}
