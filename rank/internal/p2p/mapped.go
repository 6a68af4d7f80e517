package p2p

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/gorun-mpi/gorun/internal/arch"
	"github.com/gorun-mpi/gorun/rank/internal/match"
	"github.com/gorun-mpi/gorun/rdma"
)

// This is the transport between ranks that map each other's engine regions. A
// region's mapped part:
//
//	hint | inbox lines | rings, each of lines | tickets | slot states | slots
//	     \_ written by all peers    \_ by one    \_ written by their owner; a
//	        (inbox.go)                 peer         receiver claims or frees them
//
// A message of at most lineData bytes is one line. A longer one goes on in the
// lines behind that one, where there is a ring and at most longest lines are
// needed; else it is in a slot of its sender, from where the receiver copies it.
// Beyond mappedEager the line announces it, and the receiver copies it straight out
// of the sender's memory when that is mapped too, or reads it over the queue pair.
//
// Lines of messages are limited by credit and those of answers by rendezvous
// numbers, so that a ring never overflows; an inbox can be full. Lines are taken
// out whenever the rank makes progress, whatever waits for a receive.
const (
	inboxLines = 256
	ticketMax  = 64 // announced messages of a rank to all mapped peers
	slotBytes  = 4096
	slotMax    = 16
	// mappedEager is the longest message that is copied twice. A ping-pong of two
	// processes on two CPUs takes so many us:
	//
	//	                    registered memory    ordinary memory
	//	                    twice  announced     twice  announced
	//	sent unchanged
	//	    512 bytes        0.7      0.7         0.8      1.8
	//	    1 KiB            0.9      0.7         0.9      1.7
	//	    2 KiB            1.2      0.7         1.2      1.8
	//	    4 KiB            1.8      0.7         1.9      1.8
	//	written before each send
	//	    512 bytes        0.7      1.0         0.7      2.2
	//	    1 KiB            0.9      1.0         0.9      2.3
	//	    2 KiB            1.2      1.2         1.1      2.6
	//	    4 KiB            1.8      1.6         1.7      2.9
	//
	// What is sent unchanged is in the receiver's cache from the time before: that
	// is no reason to announce it. Ordinary memory is read over the queue pair.
	mappedEager = slotBytes
	// hotAfter is how many messages go through a peer's inbox before a ring is
	// asked for.
	hotAfter = 8
	// controlLines is room in a ring for what is neither message nor answer.
	controlLines = 8
	// lookMost is how many lines of one ring are taken in a row.
	lookMost = 64
	// fetchAhead is how many messages ahead of a short one a sender asks for its line, and
	// readAhead how many lines a receiver that has found readAfter in a row.
	fetchAhead           = 8
	readAhead, readAfter = 4, 2
)

// A geometry is the layout of the mapped part, the same in all ranks of a job. All
// that can be touched stays below 384 KiB.
type geometry struct {
	rings, ringLines           int
	answers                    int  // rendezvous of a peer
	longest                    int  // lines of a message
	splits                     bool // there is room for splitOut
	inbox, ring, ticket, state int  // offsets in the region
	slot, end                  int
}

func newGeometry(size int) geometry {
	g := geometry{rings: 16, ringLines: 64, answers: 16, longest: 8}
	if size <= 9 {
		g.rings, g.ringLines, g.answers, g.longest, g.splits = 8, 512, 64, linesFor(mappedEager), true
	}
	at := (8*size + lineSize - 1) &^ (lineSize - 1)
	at += lineSize // hint
	g.inbox = at
	g.ring = g.inbox + inboxLines*lineSize
	g.ticket = g.ring + g.rings*g.ringLines*lineSize
	g.state = g.ticket + ticketMax*lineSize
	g.slot = (g.state + slotMax*8 + lineSize - 1) &^ (lineSize - 1)
	g.end = g.slot + slotMax*slotBytes
	return g
}

// depth is the credit of a peer. An announcement is answered by two lines at most:
// splitOut, and the answer proper.
func (g *geometry) depth() int {
	if g.splits {
		return g.ringLines - 2*g.answers - controlLines
	}
	return g.ringLines - g.answers - controlLines
}

// Kinds of lines beside those of header.go. free and claimed are an inbox's.
const (
	free        kind = 0
	slotted     kind = iota + 32 // eager, in a slot
	slottedSync                  // eagerSync, in a slot
	lined                        // eager, over several lines
	linedSync                    // eagerSync, over several lines
	wantRing                     // asks for a ring
	grantRing                    // id: the ring
	useRing                      // all further messages come in the ring
	splitOut                     // id: of the announcement that the receiver reads in pieces
	offer                        // route: use of a queue pair, id: its number, whether it is ready
	claimed     kind = 255
)

// pack makes the word of a line: which lap of its ring, what it carries, how many
// bytes are on it, and whose it is.
func pack(lap uint32, what kind, n int, source int) uint64 {
	return uint64(lap)<<32 | uint64(what)<<24 | uint64(n)<<16 | uint64(source)
}

func unpack(w uint64) (lap uint32, what kind, n, source int) {
	return uint32(w >> 32), kind(w >> 24), int(w >> 16 & 0xff), int(w & 0xffff)
}

// rings is the rank's own mapped part, and what it stores into those of others.
type rings struct {
	self     *ops
	alone    bool   // Config.Alone
	looks    uint32 // of Progress
	geometry geometry
	hint     *uint64
	inbox    []line
	head     uint64 // lines taken out of the inbox
	stuck    int    // looks at a claimed line at the head
	given    []ring // by index
	active   []int  // of them, those in use
	tickets  []ticket
	states   []uint64
	slots    []byte

	freeTickets []uint16
	freeSlots   []uint16
	slotOf      [slotMax]int32 // whose message is in a slot, -1: nobody's
	generation  uint32
}

// A ring is a peer's way in, once it is hot.
type ring struct {
	lines []line
	from  *peer
	head  uint64
}

// A far is a mapped peer, as this rank knows it.
type far struct {
	memory   rdma.PeerMemory
	whole    []byte  // its control words and mapped part
	credit   *uint64 // ours, in its region
	hint     *uint64
	inbox    []line
	next     uint64 // no line of the inbox before this one is ours to claim
	messages int    // through the inbox
	asked    bool   // for a ring
	granted  int    // the ring, -1: none
	ring     []line // in use, nil: the inbox is
	payload  []bool // by line of ring: all of it was payload when it was last written
	tail     uint64
	rings    []line // all of the peer's
	tickets  []ticket
	states   []uint64
	slots    []byte
	looks    uint32 // Engine.looks when the last message left
	using    int    // our slots that hold messages to this peer
}

func (s *rings) layOut(g geometry, mem []byte) {
	s.geometry = g
	s.hint = &words(mem[g.inbox-lineSize:][:8])[0]
	s.inbox = linesOf(mem[g.inbox:g.ring])
	s.tickets = ticketsOf(mem[g.ticket:g.state])
	s.states = words(mem[g.state:][:slotMax*8])
	s.slots = mem[g.slot:g.end]
	s.given = make([]ring, 0, g.rings) // it does not move: look holds on to one
	for i := range ticketMax {
		s.freeTickets = append(s.freeTickets, uint16(ticketMax-1-i))
	}
	for i := range slotMax {
		s.freeSlots = append(s.freeSlots, uint16(slotMax-1-i))
		s.slotOf[i] = -1
	}
}

// attach maps a peer's region.
func (s *rings) attach(p *peer, memory rdma.PeerMemory, address uint64, key uint32) error {
	g := &s.geometry
	mem, err := memory.Map(address, key, g.end, rdma.AccessRemoteRead|rdma.AccessRemoteWrite)
	if err != nil {
		return fmt.Errorf("map the messages of rank %d: %w", p.rank, err)
	}
	p.far = &far{
		memory: memory, whole: mem, granted: -1,
		credit:  &words(mem[8*s.self.rank:][:8])[0],
		hint:    &words(mem[g.inbox-lineSize:][:8])[0],
		inbox:   linesOf(mem[g.inbox:g.ring]),
		rings:   linesOf(mem[g.ring:g.ticket]),
		tickets: ticketsOf(mem[g.ticket:g.state]),
		states:  words(mem[g.state:][:slotMax*8]),
		slots:   mem[g.slot:g.end],
	}
	p.expect(g)
	p.mapped = true
	return nil
}

// expect gives a peer the credit and the limits of a mapped peer.
func (p *peer) expect(g *geometry) { p.depth, p.most, p.eager = g.depth(), g.answers, mappedEager }

// put sends a line; false: the way to the peer is full. Messages have paid credit
// for it.
func (s *rings) put(p *peer, what kind, route, id uint64, data []byte) bool {
	f := p.far
	if !s.toRing(p) {
		return s.putInbox(p, what, route, id, data)
	}
	ln := &f.ring[f.tail&uint64(len(f.ring)-1)]
	ln.route, ln.id = route, id
	copy(ln.data[:], data)
	f.blank(f.tail + 1)
	// The release makes the line's content visible with its word. That the
	// line is free follows from credit, which came back with a release after
	// the peer had read it, and from answers, each of which follows a message.
	arch.StoreRelease64(&ln.word, pack(uint32(f.tail/uint64(len(f.ring)))+1, what, len(data), s.self.rank))
	f.tail++
	f.memory.Notify()
	s.fetch(f, 1)
	return true
}

// putLong is put of a message over several lines of a ring. All lines but the first
// hold nothing but payload.
func (s *rings) putLong(p *peer, what kind, route, id uint64, data []byte) {
	f := p.far
	size := uint64(len(f.ring))
	first, at := f.tail&(size-1), (f.tail+1)&(size-1)
	rest := data[lineData:]
	prefetch(f.ring, at, linesFor(len(data))-1)
	n := copy(bytesOfLines(f.ring[at:]), rest)
	copy(bytesOfLines(f.ring), rest[n:])
	for range linesFor(len(data)) - 1 {
		f.payload[at] = true
		at = (at + 1) & (size - 1)
	}
	ln := &f.ring[first]
	ln.route, ln.id = route, id
	copy(ln.data[:], data)
	next := f.tail + uint64(linesFor(len(data)))
	f.blank(next)
	arch.StoreRelease64(&ln.word, pack(uint32(f.tail/size)+1, what, lineData, s.self.rank))
	f.tail = next
	f.memory.Notify()
	s.fetch(f, linesFor(len(data)))
}

// fetch has the lines come that the message after the one just stored will need, when
// the rank sends one behind the other. The peer has read them a lap before: stores to
// them wait for its copies to go, and more than two messages' stores do not fit the
// CPU's queue of them. A rank that looks for an answer in between has the time, and its
// message is faster alone.
func (s *rings) fetch(f *far, lines int) {
	if f.looks == s.looks {
		at := f.tail
		if lines == 1 {
			at += fetchAhead
		}
		prefetch(f.ring, at, lines)
	}
	f.looks = s.looks
}

// prefetch asks for lines of a ring to write, as far as they lie in one run.
func prefetch(ring []line, at uint64, lines int) {
	at &= uint64(len(ring) - 1)
	arch.PrefetchWrite(&ring[at].word, min(lines, len(ring)-int(at)))
}

// blank takes away what stands at the head of the line that will be looked at after
// the message that is being stored, when it is payload of an earlier one and might be
// taken for a word. It is called before the message is visible. There is always a
// line that is free: credit leaves some room.
func (f *far) blank(position uint64) {
	size := uint64(len(f.ring))
	if at := position & (size - 1); f.payload[at] {
		f.payload[at] = false
		f.ring[at].word = pack(uint32(position/size), free, 0, 0) // of the lap before
	}
}

// A remnant is what follows the first line of a message.
type remnant struct {
	lines []line // of the ring
	at    uint64
	bytes int
}

// copy copies as much as fits to dst.
func (r *remnant) copy(dst []byte) int {
	dst = dst[:min(len(dst), r.bytes)]
	n := copy(dst, bytesOfLines(r.lines[r.at&uint64(len(r.lines)-1):]))
	return n + copy(dst[n:], bytesOfLines(r.lines))
}

// credits is how many the message has cost: one for each line.
func (r *remnant) credits() int { return 1 + (r.bytes+lineSize-1)/lineSize }

// linesFor is how many lines a message of n bytes needs in a ring.
func linesFor(n int) int { return 1 + (max(n-lineData, 0)+lineSize-1)/lineSize }

// toRing moves the peer's messages from the inbox to a ring that was granted, and
// tells whether they go there. The line that says so is the last in the inbox, so
// nothing is overtaken.
func (s *rings) toRing(p *peer) bool {
	f := p.far
	if f.ring != nil {
		return true
	}
	if f.granted < 0 || !s.putInbox(p, useRing, 0, 0, nil) {
		return false
	}
	n := s.geometry.ringLines
	f.ring, f.payload = f.rings[f.granted*n:][:n], make([]bool, n)
	return true
}

// sendMapped is sendShort to a mapped peer.
func (s *rings) sendMapped(p *peer, what kind, buf []byte, env match.Envelope, number uint32) bool {
	if s.self.credits(p) <= 0 {
		return false
	}
	route := uint64(uint32(env.Tag))<<32 | uint64(env.Context)
	if len(buf) <= lineData {
		if !s.put(p, what, route, uint64(number), buf) {
			return false
		}
		p.sent++
		return true
	}
	if n := linesFor(len(buf)); n <= s.geometry.longest && s.toRing(p) {
		if s.self.credits(p) < n {
			return false
		}
		if what == eager {
			what = lined
		} else {
			what = linedSync
		}
		s.putLong(p, what, route, uint64(number)|uint64(len(buf))<<32, buf)
		p.sent += uint64(n)
		return true
	}
	slot, ok := s.takeSlot(p)
	if !ok {
		return false
	}
	copy(s.slots[slot*slotBytes:], buf)
	if what == eager {
		what = slotted
	} else {
		what = slottedSync
	}
	if !s.put(p, what, route, uint64(number)|uint64(slot)<<32|uint64(len(buf))<<48, nil) {
		s.freeSlot(slot)
		return false
	}
	p.sent++
	return true
}

// takeSlot gives a slot for a message. A peer that takes none out leaves some to
// the others.
func (s *rings) takeSlot(p *peer) (int, bool) {
	if len(s.freeSlots) == 0 {
		for i := range s.slotOf {
			// The peer stored 0 with release after it had copied the bytes.
			if s.slotOf[i] >= 0 && atomic.LoadUint64(&s.states[i]) == 0 {
				s.freeSlot(i)
			}
		}
	}
	n := len(s.freeSlots)
	if n == 0 || s.self.size > 2 && p.far.using >= slotMax*3/4 {
		if n == 0 || !s.reclaim(p) {
			return 0, false
		}
		n = len(s.freeSlots)
	}
	i := s.freeSlots[n-1]
	s.freeSlots = s.freeSlots[:n-1]
	s.slotOf[i] = p.rank
	p.far.using++
	arch.StoreRelease64(&s.states[i], 1) // before the line that names the slot
	return int(i), true
}

// reclaim takes a peer's slots back that it is through with.
func (s *rings) reclaim(p *peer) (some bool) {
	for i := range s.slotOf {
		if s.slotOf[i] == p.rank && atomic.LoadUint64(&s.states[i]) == 0 {
			s.freeSlot(i)
			some = true
		}
	}
	return some
}

func (s *rings) freeSlot(i int) {
	s.self.peers[s.slotOf[i]].far.using--
	s.slotOf[i] = -1
	s.freeSlots = append(s.freeSlots, uint16(i))
}

// abandonFar ends what a mapped peer that has failed holds here.
func (s *rings) abandonFar(p *peer) {
	for i := range s.slotOf {
		if s.slotOf[i] == p.rank {
			s.freeSlot(i)
		}
	}
	for at, i := range s.active {
		if s.given[i].from == p {
			s.active = append(s.active[:at], s.active[at+1:]...)
			break
		}
	}
}

// freeTicket gives back the ticket of a send that was answered. Those with a stage are taken first.
func (s *rings) freeTicket(o *Op) {
	if o.ticket > 0 {
		if t := uint16(o.ticket - 1); t < stagesMost {
			s.freeTickets = append(s.freeTickets, t)
		} else {
			s.freeTickets = slices.Insert(s.freeTickets, 0, t)
		}
		o.ticket = 0
	}
}

// claimTicket makes sure that an announced message stays where it is while it is
// read; false: its sender has taken it back.
func (s *rings) claimTicket(p *peer, h *header) bool {
	if p.far == nil || p.Err() != nil {
		return true
	}
	return atomic.CompareAndSwapUint64(&p.far.tickets[h.word].state, ticketWord(h.generation, ticketOpen), ticketWord(h.generation, ticketRead))
}

// splitOut has the sender help with a message that is about to be read, where that
// can be.
func (s *rings) splitOut(o *Op, p *peer, h *header, key uint32) {
	if p.far == nil || !s.alone || !s.geometry.splits {
		return
	}
	mine := newSplit(&p.far.tickets[h.word], h.generation, o.length)
	var data [32]byte
	binary.NativeEndian.PutUint64(data[0:], uint64(o.length))
	binary.NativeEndian.PutUint64(data[8:], address(o.buf))
	binary.NativeEndian.PutUint32(data[16:], key)
	binary.NativeEndian.PutUint32(data[20:], h.generation)
	arch.StoreRelease64(&mine.of.claim, claimWord(mine.generation, 0, mine.pieces))
	if s.put(p, splitOut, 0, uint64(h.id), data[:]) {
		o.split = mine
	}
}
