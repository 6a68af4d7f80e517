package coll

// Pulling: the rank that needs data reads it from its owner's memory, which is
// free again when all readers have said so.
//
//	expose   the memory, to the ranks that read it (the root, or all)
//	get      what is needed, and wait until it is there (flush)
//	signal   the rank that has exposed it: it is free
//	take     the signals of all readers
//
// Nobody reads before the descriptor of this very call has come, nor does the owner
// return before the last reader's signal. Where a root's data is written by the root
// alone, one after the other, the readers fetch it all at once; each reader's data
// is then in its own cache.
//
// Between two ranks one is idle in that. So both move a part: the one that has the
// data writes the beginning, the other one reads the rest.

// theFirst is the part that the root writes of n bytes of which the other one of
// two ranks reads the rest: whole words.
func theFirst(n, times, of int) int { return n / of * times &^ 7 }

// Pulled broadcast: all ranks read the vector out of the root's memory at once; of
// two ranks each moves a half.
//
// Steps: 2. Bytes: the vector once a rank, all from the root.
func bcastPull(b *builder) {
	n, me, root, bytes := b.call.Size, b.call.Rank, b.call.Root, b.call.Bytes
	if bytes == 0 || n == 1 {
		return
	}
	vector, first := b.dest(), 0
	if n == 2 {
		first = theFirst(bytes, 1, 2)
	}
	if me != root {
		b.fetch(root, vector, bytes, first)
		return
	}
	for i := 1; i < n; i++ {
		b.expose((me+i)%n, 0, vector, bytes)
	}
	b.pushFirst(vector, first)
	for i := 1; i < n; i++ {
		b.take((me + i) % n)
	}
}

// Pulled scatter: every rank reads its block out of the root's memory. The root
// copies its own meanwhile, and if there are two ranks writes what the other one
// would not have read by then.
//
// Steps: 2. Bytes: a block a rank, all from the root.
func scatterPull(b *builder) {
	n, me, root, block := b.call.Size, b.call.Rank, b.call.Root, b.call.Bytes
	if block == 0 {
		return
	}
	first := 0
	if n == 2 {
		first = theFirst(block, 1, 6)
	}
	if me != root {
		b.fetch(root, b.dest(), block, first)
		return
	}
	in := loc{operand: input}
	for i := 1; i < n; i++ {
		to := (me + i) % n
		b.expose(to, 0, in.plus(to*block), block)
	}
	if !b.call.InPlace {
		b.copy(b.dest(), in.plus(me*block), block, false)
	}
	b.pushFirst(in.plus((me+1)%n*block), first)
	for i := 1; i < n; i++ {
		b.take((me + i) % n)
	}
}

// fetch is a reader's part: it gets n bytes that root has exposed, but for the first
// ones, which root writes.
func (b *builder) fetch(root int, dst loc, n, first int) {
	if first > 0 {
		b.expose(root, 0, dst, first)
	}
	b.learn(root, 0)
	b.pull(root, first, dst.plus(first), n-first)
	b.flush(root)
	b.signal(root)
	if first > 0 {
		b.take(root)
	}
}

// pushFirst is the root's part of that, if there is one.
func (b *builder) pushFirst(from loc, first int) {
	if first > 0 {
		peer := 1 - b.call.Rank
		b.learn(peer, 0)
		b.put(peer, 0, 0, from, first)
	}
}

// Pulled all-gather: every rank reads the blocks of all.
//
// Steps: 2. Bytes: n-1 blocks a rank.
func allGatherPull(b *builder) {
	n, me, block := b.call.Size, b.call.Rank, b.call.Bytes
	if block == 0 {
		return
	}
	mine, out := b.block(), b.dest()
	for i := 1; i < n; i++ {
		b.expose((me+i)%n, 0, mine, block)
	}
	first := len(b.steps)
	b.own()
	b.collect(block, func(from int) loc { return out.plus(from * block) })
	b.aside(first, n*n*block)
}

// Pulled all-to-all: every rank reads its blocks out of the memory of all.
//
// Steps: 2. Bytes: n-1 blocks a rank.
func allToAllPull(b *builder) {
	n, me, block := b.call.Size, b.call.Rank, b.call.Bytes
	if block == 0 || n == 1 && b.call.InPlace {
		return
	}
	in, out := b.blocks(), b.dest()
	for i := 1; i < n; i++ {
		to := (me - i + n) % n
		b.expose(to, 0, in.plus(to*block), block)
	}
	first := len(b.steps)
	b.copy(out.plus(me*block), in.plus(me*block), block, false)
	b.collect(block, func(from int) loc { return out.plus(from * block) })
	b.aside(first, n*n*block)
}

// collect gets n bytes of each peer, which has exposed them, to at(peer), and meets
// the peers: what this rank has exposed is free again.
func (b *builder) collect(n int, at func(from int) loc) {
	size, me := b.call.Size, b.call.Rank
	for i := 1; i < size; i++ {
		from := (me + i) % size
		b.learn(from, 0)
		b.pull(from, 0, at(from), n)
		b.flush(from)
		b.signal(from)
	}
	for i := 1; i < size; i++ {
		b.take((me - i + size) % size)
	}
}
