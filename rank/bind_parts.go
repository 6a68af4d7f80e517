package rank

func (k *call) gatherv(send, recv Buffer, counts, displs []int, root int) *call {
	r, peer := k.rooted(root)
	if k.err != nil {
		return k
	}
	c := k.comm
	k.exchange()
	switch r {
	case giver:
		n, _ := k.input(&send)
		k.notHere(send.in)
		k.to(peer, 0, n)
	case isRoot:
		if !k.counted("receive", counts, displs, c.others()) {
			return k
		}
		n, here := 0, true
		if !c.inter {
			n, here = k.input(&send)
		}
		k.items(k.ragged(&k.recv, &recv, toWrite), counts, displs, here, k.from, func(own int) {
			k.same("send", n, own)
			k.to(c.localMember(c.rank), 0, n)
		})
	}
	return k
}

// items names the item of each member in the root's buffer. The root's own is there already, or
// follow gets its length.
func (k *call) items(r ragged, counts, displs []int, here bool, item func(member, off, n int), follow func(own int)) {
	c, next := k.comm, 0
	for i := range c.others() {
		own := !c.inter && i == c.rank
		if own && here {
			next += counts[i]
			continue
		}
		off, n := k.item(r, counts, displs, i, &next)
		if item(c.remoteMember(i), off, n); own {
			follow(n)
		}
	}
}

func (k *call) scatterv(send Buffer, counts, displs []int, recv Buffer, root int) *call {
	r, peer := k.rooted(root)
	if k.err != nil {
		return k
	}
	c := k.comm
	k.exchange()
	switch r {
	case giver:
		k.from(peer, 0, k.output(&recv, false))
	case isRoot:
		if !k.counted("send", counts, displs, c.others()) {
			return k
		}
		n, here := 0, true
		if !c.inter && !recv.here() {
			n, here = k.output(&recv, false), false
		}
		k.items(k.ragged(&k.send, &send, toRead), counts, displs, here, k.to, func(own int) {
			k.same("recv", n, own)
			k.from(c.localMember(c.rank), 0, own)
		})
	}
	return k
}

func (k *call) allgatherv(send, recv Buffer, counts, displs []int) *call {
	c := k.comm
	if k.err != nil || !k.counted("receive", counts, displs, c.others()) {
		return k
	}
	k.exchange()
	n, here := k.input(&send)
	out := k.ragged(&k.recv, &recv, toWrite)
	from := 0 // where the own block is in the send side
	if c.inter {
		k.notHere(here)
	} else if here {
		at := 0
		for _, count := range counts[:c.rank] {
			at += count
		}
		from, n = k.item(ragged{&k.send, &recv}, counts, displs, c.rank, &at)
	}
	next := 0
	for i := range c.others() {
		own := !c.inter && i == c.rank
		if own && here {
			next += counts[i]
			continue
		}
		off, length := k.item(out, counts, displs, i, &next)
		if own {
			k.same("send", n, length)
		}
		k.from(c.remoteMember(i), off, length)
		k.to(c.remoteMember(i), from, n)
	}
	return k
}

// alltoallv in place sends the blocks of recv, which are packed for that.
func (k *call) alltoallv(send Buffer, sendCounts, sendDispls []int, recv Buffer, recvCounts, recvDispls []int) *call {
	if k.err != nil {
		return k
	}
	c := k.comm
	here := send.here()
	if here {
		k.notHere(c.inter)
		sendCounts, sendDispls = recvCounts, recvDispls
	}
	if !k.counted("send", sendCounts, sendDispls, c.others()) || !k.counted("receive", recvCounts, recvDispls, c.others()) {
		return k
	}
	k.exchange()
	out := k.ragged(&k.recv, &recv, toWrite)
	var in ragged
	if !here {
		in = k.ragged(&k.send, &send, toRead)
	}
	nextIn, nextOut := 0, 0
	for i := range c.others() {
		var off, n int
		if here {
			off, n = k.saved(&recv, sendCounts, sendDispls, i, &nextIn)
		} else {
			off, n = k.item(in, sendCounts, sendDispls, i, &nextIn)
		}
		k.to(c.remoteMember(i), off, n)
		off, n = k.item(out, recvCounts, recvDispls, i, &nextOut)
		k.from(c.remoteMember(i), off, n)
	}
	return k
}

// saved is a block of the receive buffer in the send side, packed even without
// gaps: what arrives overwrites it.
func (k *call) saved(b *Buffer, counts, displs []int, rank int, next *int) (off, n int) {
	displ := *next
	if displs != nil {
		displ = displs[rank]
	}
	*next += counts[rank]
	if k.err != nil {
		return 0, 0
	}
	if counts[rank] < 0 || displ < 0 || counts[rank] > b.count-displ {
		k.fault(badClass(ClassCount, "a block of %d items at displacement %d does not fit into a buffer of %d items", counts[rank], displ, b.count))
		return 0, 0
	}
	if counts[rank] == 0 {
		return 0, 0
	}
	_, extent := b.core().Extent()
	return k.send.stage(b.core(), b.mem[displ*extent:], counts[rank]), counts[rank] * b.core().Size()
}

// alltoallw has a buffer of its own type for each rank. They are packed, for the
// team moves parts of one memory.
func (k *call) alltoallw(send, recv []Buffer) *call {
	if k.err != nil {
		return k
	}
	c := k.comm
	here := send == nil
	if here {
		k.notHere(c.inter)
		send = recv
	}
	if k.err == nil && (len(send) != c.others() || len(recv) != c.others()) {
		k.fault(badClass(ClassCount, "%d send and %d receive buffers, expected %d of each", len(send), len(recv), c.others()))
	}
	if k.err != nil {
		return k
	}
	k.exchange()
	for i := range c.others() {
		off, n := k.staged(&k.send, send[i], toRead)
		k.to(c.remoteMember(i), off, n)
		off, n = k.staged(&k.recv, recv[i], toWrite)
		k.from(c.remoteMember(i), off, n)
	}
	return k
}

// staged is all of b, packed.
func (k *call) staged(s *side, b Buffer, u use) (off, n int) {
	if k.err == nil {
		if err := b.check(k.comm.world, u); err != nil {
			k.fault(err)
		}
	}
	if k.err != nil || b.size() == 0 {
		return 0, 0
	}
	return s.stage(b.core(), b.mem, b.count), b.size()
}

// The neighbour collectives. Block i of the send operand is for destination i, block
// i of the receive operand from source i.

// neighbours calls f for each block that goes, and then for each that comes, in the
// order in which those with one rank match.
func (k *call) neighbours(sources, destinations func(i int) (off, n int)) *call {
	if k.err != nil {
		return k
	}
	c := k.comm
	near, err := c.neighbours()
	if err != nil {
		k.fault(err)
		return k
	}
	k.exchange()
	for i, peer := range near.destinations {
		if off, n := destinations(i); peer != ProcNull {
			k.to(c.remoteMember(peer), off, n)
		}
	}
	for _, i := range near.arrival {
		peer := near.sources[i]
		if peer == ProcNull {
			k.recv.before = true // its block stays, also where it has gaps
			continue
		}
		off, n := sources(i)
		k.from(c.remoteMember(peer), off, n)
	}
	return k
}

// degrees are the numbers of sources and destinations.
func (k *call) degrees() (in, out int) {
	if k.err != nil {
		return 0, 0
	}
	near, err := k.comm.neighbours()
	if err != nil {
		k.fault(err)
		return 0, 0
	}
	return len(near.sources), len(near.destinations)
}

func (k *call) neighborAllgather(send, recv Buffer) *call {
	in, _ := k.degrees()
	n, total := k.whole(&k.send, &send, toRead), k.output(&recv, false)
	block := k.equal("recv", &recv, total, max(in, 1))
	return k.neighbours(
		func(i int) (int, int) { return i * block, block },
		func(int) (int, int) { return 0, n })
}

func (k *call) neighborAllgatherv(send, recv Buffer, counts, displs []int) *call {
	degree, _ := k.degrees()
	if !k.counted("receive", counts, displs, degree) {
		return k
	}
	n, out := k.whole(&k.send, &send, toRead), k.ragged(&k.recv, &recv, toWrite)
	in := spans{counts, displs}
	return k.neighbours(
		func(i int) (int, int) { return k.block(out, counts[i], in.at(i)) },
		func(int) (int, int) { return 0, n })
}

func (k *call) neighborAlltoall(send, recv Buffer) *call {
	in, out := k.degrees()
	sent, received := k.whole(&k.send, &send, toRead), k.output(&recv, false)
	give, take := k.equal("send", &send, sent, max(out, 1)), k.equal("recv", &recv, received, max(in, 1))
	return k.neighbours(
		func(i int) (int, int) { return i * take, take },
		func(i int) (int, int) { return i * give, give })
}

func (k *call) neighborAlltoallv(send Buffer, sendCounts, sendDispls []int, recv Buffer, recvCounts, recvDispls []int) *call {
	in, out := k.degrees()
	if !k.counted("send", sendCounts, sendDispls, out) || !k.counted("receive", recvCounts, recvDispls, in) {
		return k
	}
	from, to := k.ragged(&k.send, &send, toRead), k.ragged(&k.recv, &recv, toWrite)
	give, take := spans{sendCounts, sendDispls}, spans{recvCounts, recvDispls}
	return k.neighbours(
		func(i int) (int, int) { return k.block(to, recvCounts[i], take.at(i)) },
		func(i int) (int, int) { return k.block(from, sendCounts[i], give.at(i)) })
}

func (k *call) neighborAlltoallw(send, recv []Buffer) *call {
	in, out := k.degrees()
	if k.err == nil && (len(send) != out || len(recv) != in) {
		k.fault(badClass(ClassCount, "%d send and %d receive buffers, expected %d and %d", len(send), len(recv), out, in))
	}
	return k.neighbours(
		func(i int) (int, int) { return k.staged(&k.recv, recv[i], toWrite) },
		func(i int) (int, int) { return k.staged(&k.send, send[i], toRead) })
}

// spans are the blocks of a v form: at their displacements, or one behind the other.
type spans struct{ counts, displs []int }

func (s spans) at(i int) int {
	if s.displs != nil {
		return s.displs[i]
	}
	at := 0
	for _, n := range s.counts[:i] {
		at += n
	}
	return at
}
