package coll

import (
	"math"

	"github.com/gorun-mpi/gorun/internal/arch"
	"github.com/gorun-mpi/gorun/internal/kernel"
	"github.com/gorun-mpi/gorun/rdma"
)

// A port is what a machine reaches its peers by. None of its methods waits: one
// that returns false has done nothing, and the machine tries again later. Slots
// count from 0 within a channel's ring.
type port interface {
	// header loads the header word of a slot that peer writes. What peer
	// wrote before it is visible.
	header(peer, slot int) uint64
	// payload is the payload of that slot.
	payload(peer, slot int) []byte
	// credit loads the credit word that peer writes.
	credit(peer int) uint16
	// giveCredit writes the credit word at peer.
	giveCredit(peer int, taken uint16) bool
	// send writes payload and then header into our slot at peer. The
	// payload's memory is free when it returns.
	send(peer, slot int, payload []byte, header uint64) bool
	// put writes n bytes of an operand to the peer's memory, and then, if header
	// is not 0, header into our slot. The operand's memory is free once
	// flushed says so.
	put(peer int, to far, from loc, n, slot int, header uint64) bool
	// get reads n bytes of the peer's memory into an operand, where they are once
	// flushed says so.
	get(peer int, from far, to loc, n int) bool
	// flushed tells whether the memory of all puts to peer is free, and what
	// was got from it is there.
	flushed(peer int) bool
	// expose names n bytes of an operand for peers to write to and read from.
	expose(at loc, n int) descriptor
	// view is the memory that peer has exposed, nil where it is reached by
	// put only.
	view(peer int, d *descriptor) []byte
}

// An outcome is what became of an attempt to make a step.
type outcome uint8

const (
	moved   outcome = iota // the step is done
	blocked                // not yet: try again later
	paused                 // the run has moved as much as it may
	ended                  // the plan is done
	failed                 // the machine's mistake field says why
)

// A machine steps through plans. It holds one member's side of all its channels
// and never blocks. Its owner binds a call, and steps or runs it to the end
// before the next; peers are driven by machines of their own.
type machine struct {
	port     port
	slots    int
	channels []channel // by member
	count    Counters

	plan        *plan
	pc          int
	done        bool // the step at pc is done but for giving slots back
	part        int  // of the step at pc: how many bytes are moved
	left        int  // bytes that the run under way may still move
	fingerprint uint32
	combine     kernel.Func
	operands    [operands][]byte
	mistake     mismatch
	message     [pairLen]byte
}

// A mismatch says what a peer sent that this plan does not expect.
type mismatch struct {
	peer        int
	fingerprint uint32 // what came
	descriptor  uint64 // or the length of memory too short for a put or a get
	deadlock    bool   // or that we wait for it in a circle
	lost        bool   // or that its memory cannot be mapped any more
}

func newMachine(p port, size, slots int) *machine {
	return &machine{port: p, slots: slots, channels: make([]channel, size)}
}

// bind prepares a call.
func (m *machine) bind(p *plan, fingerprint uint32, in, out, tmp []byte, combine kernel.Func) {
	m.plan, m.pc, m.done, m.part = p, 0, false, 0
	m.fingerprint, m.combine = fingerprint, combine
	m.operands[input], m.operands[output], m.operands[scratch] = in, out, tmp
}

// unbind forgets the operands.
func (m *machine) unbind() {
	m.combine = nil
	m.operands[input], m.operands[output], m.operands[scratch] = nil, nil, nil
}

// anyNumber of bytes is how much a run may move that need not end soon.
const anyNumber = math.MaxInt

// run makes steps until one is blocked, or until most bytes are moved.
func (m *machine) run(most int) outcome {
	for m.left = most; m.left > 0; {
		if o := m.step(); o != moved {
			return o
		}
	}
	return paused
}

// next is which of the n bytes of the step at pc are moved now: all that are left, or as many as the
// run may still move, in whole units. did, after that, tells whether it was the last of them.
func (m *machine) next(n, unit int) (from, to int) {
	if n-m.part > m.left {
		n = min(n, m.part+max(m.left/unit, 1)*unit)
	}
	return m.part, n
}

func (m *machine) did(from, to, n int) (last bool) {
	m.left -= to - from
	if m.part = to; to < n {
		return false
	}
	m.part = 0
	return true
}

// step tries to make the step at pc.
func (m *machine) step() outcome {
	if m.pc >= len(m.plan.steps) {
		return ended
	}
	s := &m.plan.steps[m.pc]
	o := moved
	switch s.verb {
	case vSend:
		o = m.send(s)
	case vExpose:
		o = m.expose(s)
	case vPut:
		o = m.put(s)
	case vGet:
		o = m.get(s)
	case vAwait:
		o = m.await(s)
	case vTake:
		if !m.done {
			o = m.await(s)
		}
		if o == moved {
			o = m.release(int(s.peer))
			m.done = o == blocked
		}
	case vLearn:
		o = m.learn(s)
	case vRelease:
		o = m.release(int(s.peer))
	case vCopy:
		o = m.copy(s)
	case vReduce:
		o = m.reduce(s)
	case vFork:
		o = m.fork(s)
	case vEnd:
		m.pc = len(m.plan.steps)
		return ended
	case vFlush:
		if !m.port.flushed(int(s.peer)) {
			o = blocked
		}
	}
	if o == moved {
		m.pc++
	}
	return o
}

// changes is the peer whose channel a step changes, -1 if none.
func (s *step) changes() int {
	switch {
	case s.verb <= vRelease:
		return int(s.peer)
	case s.release && s.verb == vReduce:
		return int(s.heldOf())
	case s.release:
		return int(s.a.peer)
	}
	return -1
}

// heldOf is the peer whose message a reduction gives back.
func (s *step) heldOf() int32 {
	if s.b.operand == slot {
		return s.b.peer
	}
	return s.a.peer
}

// overwrites tells whether the step at pc writes to memory that it reads.
func (m *machine) overwrites(s *step) bool {
	if s.verb != vCopy && s.verb != vReduce {
		return false
	}
	to := m.at(s.dst, s.n)
	any, _ := overlap(to, m.at(s.a, s.n))
	if !any && s.verb == vReduce {
		any, _ = overlap(to, m.at(s.b, s.n))
	}
	return any
}

// waitsFor is the peer that the step at pc concerns, -1 if none.
func (m *machine) waitsFor() int {
	if m.plan == nil || m.pc >= len(m.plan.steps) {
		return -1
	}
	s := &m.plan.steps[m.pc]
	switch s.verb {
	case vCopy:
		return int(s.a.peer)
	case vReduce:
		if s.a.operand == slot {
			return int(s.a.peer)
		}
		return int(s.b.peer)
	}
	return int(s.peer)
}

// at is the memory of n bytes at l.
func (m *machine) at(l loc, n int) []byte {
	if l.operand == slot {
		held := m.slotOf(m.channels[l.peer].awaited)
		return m.port.payload(int(l.peer), held)[l.off : l.off+n]
	}
	if l.operand >= exposed0 {
		return m.channels[l.peer].known[l.operand-exposed0].view[l.off : l.off+n]
	}
	return m.operands[l.operand][l.off : l.off+n : l.off+n]
}

// slotOf is the slot of a message. The first one's shares a page with the words of its lane.
func (m *machine) slotOf(sequence uint16) int { return int(sequence-1) & (m.slots - 1) }

// room tells whether peer has a free slot for us, looking for news if not: in
// the credit word and in the headers that have arrived but not been waited for.
func (m *machine) room(peer int, c *channel) bool {
	if int(c.sent-c.credited) < m.slots {
		return true
	}
	c.credit(m.port.credit(peer))
	for next := c.awaited + 1; next-c.taken <= uint16(m.slots); next++ {
		h := m.port.header(peer, m.slotOf(next))
		if sequenceOf(h) != next {
			break
		}
		c.credit(creditOf(h))
	}
	return int(c.sent-c.credited) < m.slots
}

// posted counts a message out: its header told peer what we have taken.
func (c *channel) posted() {
	c.sent++
	c.told = c.taken
}

func (m *machine) send(s *step) outcome {
	c, peer := &m.channels[s.peer], int(s.peer)
	if !m.room(peer, c) {
		return blocked
	}
	var payload []byte
	if s.n > 0 {
		payload = m.at(s.a, s.n)
	}
	if !m.port.send(peer, m.slotOf(c.sent+1), payload, c.header(m.fingerprint^s.mark)) {
		return blocked
	}
	m.sent(s)
	return moved
}

// sent counts the message of a step out.
func (m *machine) sent(s *step) {
	m.channels[s.peer].posted()
	if s.verb == vExpose {
		m.count.Descriptors++
		return
	}
	if m.count.Signals++; s.n > 0 || s.verb == vPut {
		m.count.Puts++
		m.count.PutBytes += uint64(s.n)
	}
}

func (m *machine) expose(s *step) outcome {
	c, peer := &m.channels[s.peer], int(s.peer)
	if !m.room(peer, c) {
		return blocked
	}
	message := m.message[:descriptorLen]
	m.port.expose(s.dst, s.n).put(message)
	if s.pair {
		message = m.message[:]
		m.port.expose(s.a, s.n).put(message[descriptorLen:])
	}
	if !m.port.send(peer, m.slotOf(c.sent+1), message, c.header(m.fingerprint^s.mark)) {
		return blocked
	}
	m.sent(s)
	return moved
}

func (m *machine) put(s *step) outcome {
	c, peer := &m.channels[s.peer], int(s.peer)
	d := &c.known[s.index]
	if uint64(s.dst.off)+uint64(s.n) > d.n {
		m.mistake = mismatch{peer: peer, fingerprint: m.fingerprint, descriptor: d.n}
		return failed
	}
	var header uint64
	if s.signal {
		if !m.room(peer, c) {
			return blocked
		}
		header = c.header(m.fingerprint ^ s.mark)
	}
	if d.view != nil {
		return m.store(s, c, d.view[s.dst.off:s.dst.off+s.n])
	}
	from, to := m.next(s.n, arch.CacheLine)
	if to < s.n {
		header = 0
	}
	if !m.port.put(peer, d.at(s.dst.off+from), s.a.plus(from), to-from, m.slotOf(c.sent+1), header) {
		return blocked
	}
	if !m.did(from, to, s.n) {
		return paused
	}
	m.count.Puts++
	m.count.PutBytes += uint64(s.n)
	if s.signal {
		c.posted()
		m.count.Signals++
	}
	return moved
}

func (m *machine) get(s *step) outcome {
	d := &m.channels[s.peer].known[s.index]
	if uint64(s.a.off)+uint64(s.n) > d.n {
		m.mistake = mismatch{peer: int(s.peer), fingerprint: m.fingerprint, descriptor: d.n}
		return failed
	}
	from, to := m.next(s.n, arch.CacheLine)
	if d.view != nil && d.access&rdma.AccessRemoteRead != 0 {
		s.move(m.at(s.dst, s.n)[from:to], d.view[s.a.off+from:s.a.off+to])
	} else if !m.port.get(int(s.peer), d.at(s.a.off+from), s.dst.plus(from), to-from) {
		return blocked
	}
	if !m.did(from, to, s.n) {
		return paused
	}
	m.count.Gets++
	m.count.GetBytes += uint64(s.n)
	return moved
}

// move copies the bytes of a step.
func (s *step) move(to, from []byte) {
	if s.aside {
		arch.CopyAside(to, from)
	} else {
		arch.Copy(to, from)
	}
}

// move copies what the run may of a step's bytes, and tells whether all are copied now.
func (m *machine) move(s *step, to, from []byte) (all bool) {
	at, end := m.next(s.n, arch.CacheLine)
	s.move(to[at:end], from[at:end])
	return m.did(at, end, s.n)
}

// store is put into memory that is mapped here. There is room for its signal.
func (m *machine) store(s *step, c *channel, to []byte) outcome {
	if !m.done {
		if !m.move(s, to, m.at(s.a, s.n)) {
			return paused
		}
		m.count.Puts++
		m.count.PutBytes += uint64(s.n)
	}
	if s.signal {
		if m.done = !m.port.send(int(s.peer), m.slotOf(c.sent+1), nil, c.header(m.fingerprint^s.mark)); m.done {
			return blocked
		}
		c.posted()
		m.count.Signals++
	}
	return moved
}

// fork finds out whether a reduction can go by mapped memory. It asks what the
// members have told each other, so that all come to the same result.
func (m *machine) fork(s *step) outcome {
	const read, write = rdma.AccessRemoteRead, rdma.AccessRemoteWrite
	all := m.port.expose(s.a, s.n).access&read != 0
	if s.dst.operand != none {
		all = all && m.port.expose(s.dst, s.n).access&write != 0
	}
	for i := range m.channels {
		if i == m.plan.call.Rank {
			continue
		}
		known := &m.channels[i].known
		all = all && known[0].access&read != 0
		if s.peer == everyone || int(s.peer) == i {
			all = all && known[1].access&write != 0
		}
	}
	if !all {
		m.pc = int(s.to) - 1
		return moved
	}
	for i := range m.channels {
		if i == m.plan.call.Rank {
			continue
		}
		known := m.channels[i].known[:1]
		if s.peer == everyone || int(s.peer) == i {
			known = m.channels[i].known[:2]
		}
		for _, d := range known {
			if len(d.view) < s.n {
				m.mistake = mismatch{peer: i, fingerprint: m.fingerprint, descriptor: d.n, lost: d.n >= uint64(s.n)}
				return failed
			}
		}
	}
	return moved
}

// await takes peer's next message in and holds it.
func (m *machine) await(s *step) outcome {
	c := &m.channels[s.peer]
	next := c.awaited + 1
	h := m.port.header(int(s.peer), m.slotOf(next))
	if sequenceOf(h) != next {
		return blocked
	}
	if fingerprintOf(h) != m.fingerprint^s.mark {
		m.mistake = mismatch{peer: int(s.peer), fingerprint: fingerprintOf(h)}
		return failed
	}
	c.awaited = next
	c.credit(creditOf(h))
	return moved
}

// release gives the held message of peer back. Peer learns of it from our next
// message, unless half a ring is owed.
func (m *machine) release(peer int) outcome {
	c := &m.channels[peer]
	if owed := c.awaited - c.told; int(owed) >= m.slots/2 {
		if !m.port.giveCredit(peer, c.awaited) {
			return blocked
		}
		c.told = c.awaited
		m.count.Credits++
	}
	c.taken = c.awaited
	return moved
}

func (m *machine) learn(s *step) outcome {
	c := &m.channels[s.peer]
	if !m.done {
		if o := m.await(s); o != moved {
			return o
		}
		message := m.port.payload(int(s.peer), m.slotOf(c.awaited))
		m.know(s.peer, s.index, message)
		if s.pair {
			m.know(s.peer, 1, message[descriptorLen:])
		}
	}
	o := m.release(int(s.peer))
	m.done = o == blocked
	return o
}

// know takes a descriptor of a peer in.
func (m *machine) know(peer int32, index uint8, message []byte) {
	d := &m.channels[peer].known[index]
	*d = readDescriptor(message)
	d.view = m.port.view(int(peer), d)
}

func (m *machine) copy(s *step) outcome {
	if !m.done {
		if !m.move(s, m.at(s.dst, s.n), m.at(s.a, s.n)) {
			return paused
		}
		m.combined(s, 1)
	}
	if !s.release {
		return moved
	}
	o := m.release(int(s.a.peer))
	m.done = o == blocked
	return o
}

// combined counts the copy or reduction of a step, or with -1 takes that back.
func (m *machine) combined(s *step, times int) {
	n, bytes := &m.count.Copies, &m.count.CopyBytes
	switch {
	case s.verb == vReduce:
		n, bytes = &m.count.Reductions, &m.count.ReduceBytes
	case s.dst.operand >= exposed0:
		n, bytes = &m.count.Puts, &m.count.PutBytes
	case s.a.operand == slot:
		n, bytes = &m.count.Unpacks, &m.count.UnpackBytes
	}
	*n += uint64(times)
	*bytes += uint64(times * s.n)
}

func (m *machine) reduce(s *step) outcome {
	if !m.done {
		at, end := m.next(s.n, m.plan.call.Elem)
		m.combine(m.at(s.dst, s.n)[at:end], m.at(s.a, s.n)[at:end], m.at(s.b, s.n)[at:end])
		if !m.did(at, end, s.n) {
			return paused
		}
		m.combined(s, 1)
	}
	if !s.release {
		return moved
	}
	o := m.release(int(s.heldOf()))
	m.done = o == blocked
	return o
}
