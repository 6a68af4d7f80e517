package coll

// Reductions between members that map each other's memory. Nothing is sent: each
// member reads its portion of the vector out of all inputs, a piece at a time, and
// writes the result, which is hot in its cache then, into all outputs. Where every
// operand lies in memory that all can map, it reads them where they lie; otherwise
// it gets them into a piece of scratch, one after the other, so that what it
// combines is in its cache whichever rank wrote it.
//
//	show     the descriptors of the operands to all members, and learn theirs
//	fork     on to the way by gets and puts, unless everything shown can be mapped
//	reduce   each piece of the own portion, in the order of the ranks
//	signal   all members, and wait for theirs: the operands are free again
//
// All members see the same descriptors, so all take the same way.
//
// In place, an input is another rank's output too. It is safe because a portion is read
// and written by its owner alone: a rank that overwrites a piece has read all inputs
// of it before.
//
// Steps: 2. Bytes: each input is read once; each output written once.

// theirs is the memory that peer has exposed as #index.
func theirs(peer, index int) loc { return loc{operand: exposed0 + operand(index), peer: int32(peer)} }

// everyone and nobody stand for the members that have an output.
const (
	everyone = -1
	nobody   = -2
)

// shown is in the fingerprint of a plan that shows its operands: a member that does
// not, because it reaches less memory than others, must not take one descriptor for
// another.
const shown uint32 = 1

// show exchanges the descriptors of all operands: the inputs of n bytes, and the
// outputs of those that have one. What follows, up to the returned step's target,
// is for mapped memory; the target is to be set.
func (b *builder) show(n int, withOutput int) (fork int) {
	b.shows = true
	size, me := b.call.Size, b.call.Rank
	has := func(rank int) bool { return withOutput == everyone || withOutput == rank }
	for i := 1; i < size; i++ {
		peer := (me + i) % size
		b.exposeOperands(peer, true, has(me), n)
	}
	for i := 1; i < size; i++ {
		peer := (me - i + size) % size
		b.learnOperands(peer, true, has(peer))
	}
	s := step{verb: vFork, peer: int32(withOutput), a: b.source(), n: n}
	if has(me) {
		s.dst = b.dest()
	}
	b.add(s)
	return len(b.steps) - 1
}

// otherwise ends what show's fork leads to.
func (b *builder) otherwise(fork int) {
	b.add(step{verb: vEnd})
	b.steps[fork].to = int32(len(b.steps))
}

// meet signals all members and waits for their signals.
func (b *builder) meet() {
	n, me := b.call.Size, b.call.Rank
	for i := 1; i < n; i++ {
		b.signal((me + i) % n)
	}
	for i := 1; i < n; i++ {
		b.take((me - i + n) % n)
	}
}

// reduceMapped reduces portion own of all inputs, which were shown, a piece at a
// time: the piece at off into result(off), and then to each of copies at off. In
// place spare holds a piece.
func (b *builder) reduceMapped(own portion, result func(off int) loc, spare loc, copies []loc) {
	for k := range pieces(own.n, b.pieceSize()) {
		x := part(own.n, b.pieceSize(), k)
		off := own.off + x.off
		dst := result(off)
		b.fold(dst, b.source().plus(off), spare, func(rank int) loc { return theirs(rank, 0).plus(off) }, x.n)
		for _, to := range copies {
			b.copy(to.plus(off), dst, x.n, false)
		}
	}
}

// reducePulled is reduceMapped for operands that are not mapped: pieces are got,
// and the results put into outputs that the peers to have exposed as #1.
func (b *builder) reducePulled(own portion, result func(off int) loc, to []int) {
	size := b.pulledSize()
	landing, spare := b.alloc(size), loc{}
	if b.call.InPlace {
		spare = b.alloc(size)
	}
	for k := range pieces(own.n, size) {
		x := part(own.n, size, k)
		off := own.off + x.off
		dst := result(off)
		b.foldPulled(dst, b.source().plus(off), spare, landing, off, x.n)
		for _, peer := range to {
			b.write(peer, 1, off, dst, x.n)
		}
	}
	b.flushAll()
}

// foldPulled is fold of n bytes at off of what the peers have exposed as #0, got
// one after the other into landing.
func (b *builder) foldPulled(dst, own, spare, landing loc, off, n int) {
	me, have := b.call.Rank, own
	to := dst
	if dst == own {
		to = spare
	}
	fetch := func(from int, to loc) {
		b.pull(from, off, to, n)
		b.flush(from)
	}
	if me != 0 {
		b.flushAll() // of a result that is about to be overwritten
		fetch(0, to)
		have = to
	}
	for r := 1; r < b.call.Size; r++ {
		next := own
		if r == me {
			to = dst
		} else {
			fetch(r, landing)
			next = landing
		}
		if me == 0 {
			to = dst
			if r == 1 {
				b.flushAll()
			}
		}
		b.reduce(to, have, next, n, false)
		have = to
	}
}

// pulledPortion is the portion of the vector that a rank reduces where inputs are got:
// short vectors have few portions, for each takes a call of the kernel for every rank.
// The root of a reduction has its result in place already, while the others have to
// move theirs, which takes about as long as to get and combine 3/4 of an input.
func (b *builder) pulledPortion(rank int) portion {
	first, extra := 0, 0 // which rank has the first portion, and how much more
	if b.call.Kind == Reduce {
		first, extra = b.call.Root, 3
	}
	portions := max(min(b.call.Size, 2), min(b.call.Size, b.call.Bytes/leastPortion))
	v := (rank - first + b.call.Size) % b.call.Size
	if v >= portions {
		return portion{}
	}
	weight := 4 * (b.call.Size - 1)
	all := weight*portions + extra
	count := b.call.Bytes / b.call.Elem
	at := func(v int) int { // where portion v begins
		if v == 0 {
			return 0
		}
		w := weight*v + extra
		return (count/all*w + count%all*w/all) * b.call.Elem
	}
	return portion{off: at(v), n: at(v+1) - at(v)}
}

// leastPortion is the least that a rank gets of each input, if there are ranks enough.
const leastPortion = 32 << 10

// reduceMappedPortions is an all-reduce, or a reduction, whose members reduce a
// portion each.
func reduceMappedPortions(b *builder) {
	n, me, root := b.call.Size, b.call.Rank, b.call.Root
	if b.call.Kind == AllReduce {
		root = everyone
	}
	fork := b.show(b.call.Bytes, root)
	result := func(off int) loc { return b.dest().plus(off) }
	var spare loc
	var copies []loc
	var to []int
	switch {
	case root == everyone:
		for i := 1; i < n; i++ {
			copies, to = append(copies, theirs((me+i)%n, 1)), append(to, (me+i)%n)
		}
	case root != me:
		piece := b.alloc(b.pulledSize())
		result = func(int) loc { return piece }
		copies, to = []loc{theirs(root, 1)}, []int{root}
	}
	if b.call.InPlace {
		spare = b.alloc(b.pieceSize())
	}
	b.reduceMapped(portionOf(&b.call, me), result, spare, copies)
	b.meet()
	b.otherwise(fork)
	b.reducePulled(b.pulledPortion(me), result, to)
	b.meet()
}

// reduceMappedBlocks is a reduce-scatter whose members reduce their block each,
// into result. In place that is aside, until all have read what it replaces.
func reduceMappedBlocks(b *builder, portionOf func(rank int) portion, result loc) {
	own, total := portionOf(b.call.Rank), 0
	for r := range b.call.Size {
		if x := portionOf(r); x.n > 0 {
			total = max(total, x.off+x.n)
		}
	}
	fork := b.show(total, nobody)
	at := func(off int) loc { return result.plus(off - own.off) }
	b.reduceMapped(own, at, loc{}, nil)
	b.meet()
	b.copy(b.dest(), result, own.n, false)
	b.otherwise(fork)
	b.reducePulled(own, at, nil)
	b.meet()
	b.copy(b.dest(), result, own.n, false)
}
