package coll

// Pulled scan: a rank combines its portion of the vector for all ranks. It gets that
// part of the inputs in the order of the ranks, a piece at a time, and puts what it
// has so far into the output of the rank that this is the result of.
//
// In place, a rank's output is its input too. It is safe because the rank that writes a part
// of it is the only one to read it, and has read it by then.
//
// Steps: 2. Bytes: each input is read once, each output written once.
func scanPull(b *builder) {
	n, me, bytes := b.call.Size, b.call.Rank, b.call.Bytes
	if bytes == 0 {
		return
	}
	exclusive := b.call.Kind == ExScan
	if n == 1 {
		if !exclusive {
			b.copy(b.dest(), b.source(), bytes, false)
		}
		return
	}
	reads := func(rank int) bool { return !exclusive || rank < n-1 }
	writes := func(rank int) bool { return !exclusive || rank > 0 }
	for i := 1; i < n; i++ {
		peer := (me + i) % n
		b.exposeOperands(peer, reads(me), writes(me), bytes)
	}
	for i := 1; i < n; i++ {
		peer := (me - i + n) % n
		b.learnOperands(peer, reads(peer), writes(peer))
	}
	mine, size := portionOf(&b.call, me), b.pulledSize()
	landing, sum := b.alloc(size), b.alloc(size)
	for k := range pieces(mine.n, size) {
		x := part(mine.n, size, k)
		scanPiece(b, portion{mine.off + x.off, x.n}, landing, sum)
	}
	b.flushAll()
	b.meet()
}

// scanPiece makes the results of all ranks of a part of the vector.
func scanPiece(b *builder, x portion, landing, sum loc) {
	n, me := b.call.Size, b.call.Rank
	own, out, exclusive := b.source().plus(x.off), b.dest().plus(x.off), b.call.Kind == ExScan
	// input is that of rank, in its place or in landing.
	input := func(rank int, landing loc) loc {
		switch {
		case rank != me:
			b.pull(rank, x.off, landing, x.n)
			b.flush(rank)
		case exclusive && b.call.InPlace && me > 0:
			b.copy(landing, own, x.n, false) // its place is about to be overwritten
		default:
			return own
		}
		return landing
	}
	deliver := func(rank int, from loc) {
		if rank == me {
			b.copy(out, from, x.n, false)
		} else {
			b.write(rank, 1, x.off, from, x.n)
		}
	}
	b.flushAll()
	have := input(0, sum)
	if !exclusive {
		deliver(0, have)
	}
	for r := 1; r < n; r++ {
		last := exclusive && r == n-1 // whose input nobody needs
		var next loc
		if !last {
			next = input(r, landing)
		}
		if exclusive {
			deliver(r, have)
		}
		if last {
			break
		}
		b.flushAll() // of what is about to be overwritten
		b.reduce(sum, have, next, x.n, false)
		have = sum
		if !exclusive {
			deliver(r, have)
		}
	}
}
