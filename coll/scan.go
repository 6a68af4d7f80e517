package coll

// Direct scan: every rank sends its vector to all ranks above and combines what
// came from below with its own (Scan), or without (ExScan).
//
// Steps: 1 (2 by descriptor). Bytes: up to n-1 vectors a rank.
func scanDirect(b *builder) {
	n, me, bytes := b.call.Size, b.call.Rank, b.call.Bytes
	if bytes == 0 {
		return
	}
	own, out := b.source(), b.dest()
	for r := range me {
		b.landing[r] = loc{}
		if !b.eager(bytes) {
			b.landing[r] = b.alloc(bytes)
		}
		b.open(r, b.landing[r], bytes)
	}
	for r := me + 1; r < n; r++ {
		b.give(r, own, bytes)
	}
	held := false
	for r := range me {
		b.landing[r], held = b.receive(r, b.landing[r], bytes)
	}
	b.flushAll()
	last := me // of those to combine
	if b.call.Kind == ExScan {
		last = me - 1
	} else {
		b.landing[me] = own
	}
	if last < 0 {
		return
	}
	if last == 0 {
		b.copy(out, b.landing[0], bytes, false)
	}
	have, to := b.landing[0], out
	if b.call.InPlace && last == me && last > 1 {
		to = b.alloc(bytes) // out is the last one
	}
	for r := 1; r <= last; r++ {
		if r == last {
			to = out
		}
		b.reduce(to, have, b.landing[r], bytes, false)
		have = to
	}
	if held {
		for r := range me {
			b.release(r)
		}
	}
}

// Recursive doubling scan: in round k the ranks that differ in bit k swap the
// combination of all vectors of their group of 2^k ranks. Whose partner is below
// has that before its result so far. A group whose partners are not all there is
// the last one, and a rank in it has none above to which its combination would be
// of use.
//
// Steps: ceil(log2 n). Bytes: the vector each step.
func scanDoubling(b *builder) {
	n, me, bytes := b.call.Size, b.call.Rank, b.call.Bytes
	if bytes == 0 {
		return
	}
	own, out := b.source(), b.dest()
	group, sum := own, b.alloc(bytes) // group's combination, and where it goes once there is more
	if b.call.InPlace {
		b.copy(sum, own, bytes, false)
		group = sum
	}
	var result loc // so far: none, the own vector, or out
	if b.call.Kind == Scan {
		result = own
	}
	var incoming loc
	if !b.eager(bytes) {
		incoming = b.alloc(bytes)
	}
	for bit := 1; bit < n; bit *= 2 {
		partner := me ^ bit
		if partner >= n {
			continue
		}
		gets := partner < me || groupIsOfUse(me, bit, n)
		gives := partner > me || groupIsOfUse(partner, bit, n)
		if gets {
			b.open(partner, incoming, bytes)
		}
		if gives {
			b.give(partner, group, bytes)
		}
		if !gets {
			continue
		}
		theirs, held := b.receive(partner, incoming, bytes)
		b.flush(partner) // of the group that is about to be overwritten
		more := groupIsOfUse(me, bit, n)
		if partner > me {
			b.reduce(sum, group, theirs, bytes, held)
			group = sum
			continue
		}
		if result.operand != none {
			b.reduce(out, theirs, result, bytes, held && !more)
		} else {
			b.copy(out, theirs, bytes, held && !more)
		}
		result = out
		if more {
			b.reduce(sum, theirs, group, bytes, held)
			group = sum
		}
	}
	if result.operand != none {
		b.copy(out, result, bytes, false)
	}
}

// groupIsOfUse tells whether rank sends the combination of its group to anybody
// after the round of bit.
func groupIsOfUse(rank, bit, n int) bool {
	for b := 2 * bit; b < n; b *= 2 {
		partner := rank ^ b
		if partner < n && (partner > rank || groupIsOfUse(partner, b, n)) {
			return true
		}
	}
	return false
}

// Chain scan, for long vectors: every rank gets the combination of all below from
// the one below, in pieces, and passes it on with its own.
//
// Steps: n-1, and one a further piece. Bytes: the vector once a rank.
func scanChain(b *builder) {
	n, me, bytes := b.call.Size, b.call.Rank, b.call.Bytes
	if bytes == 0 {
		return
	}
	own, out := b.source(), b.dest()
	exclusive := b.call.Kind == ExScan
	// Where what comes from below lands, and what goes up is. In place the
	// own vector is in out until it has been combined.
	from, up := out, out
	if b.call.InPlace && me > 0 {
		from = b.alloc(bytes)
	}
	if me == 0 {
		up = own
	} else if exclusive {
		up = b.alloc(bytes)
	}
	size := b.pieceSize()
	eager := b.eager(min(size, bytes))
	if me > 0 && !eager {
		b.expose(me-1, 0, from, bytes)
	}
	for k := range pieces(bytes, size) {
		p := part(bytes, size, k)
		if me > 0 {
			theirs := from.plus(p.off)
			if eager {
				b.await(me - 1)
				theirs = at(me - 1)
			} else {
				b.take(me - 1)
			}
			if !exclusive {
				b.reduce(out.plus(p.off), theirs, own.plus(p.off), p.n, eager)
			} else {
				if me+1 < n {
					b.reduce(up.plus(p.off), theirs, own.plus(p.off), p.n, false)
				}
				b.copy(out.plus(p.off), theirs, p.n, eager)
			}
		} else if !exclusive {
			b.copy(out.plus(p.off), own.plus(p.off), p.n, false)
		}
		if me+1 == n {
			continue
		}
		if eager {
			b.send(me+1, up.plus(p.off), p.n)
			continue
		}
		if k == 0 {
			b.learn(me+1, 0)
		}
		b.put(me+1, 0, p.off, up.plus(p.off), p.n)
	}
}
