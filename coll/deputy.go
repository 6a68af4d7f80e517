package coll

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/gorun-mpi/gorun/internal/arch"
	"github.com/gorun-mpi/gorun/internal/kernel"
	"github.com/gorun-mpi/gorun/rdma"
)

// A deputy acts for a member of a team. It is the port of its own machine.
type deputy struct {
	d      *Daemon
	serial uint64
	addr   uint64 // of the control region
	where  memberAt
	me     int // the member's rank in the team
	own    rdma.PeerMemory
	desk   desk
	words  []uint64 // the control region
	bytes  []byte
	layout layout
	tuning tuning
	peers  []deputyPeer

	machine  machine
	cache    cache
	keys     [operands]key
	queue    []int // records, the first is under way
	begun    bool
	number   uint64      // of the call that has begun
	returned uint64      // how often a call was given back
	stopped  bool        // the rank knows that nothing of it is touched any more
	apart    bool        // a step needs memory that is not mapped here
	busy     atomic.Bool // it has calls: whoever writes to its lanes need not wake the rank
}

// A deputyPeer is another member's lane for ours, and its memory.
type deputyPeer struct {
	number int
	rkey   uint32
	memory rdma.PeerMemory
	words  []uint64
	bytes  []byte
}

var _ port = (*deputy)(nil)

// newDeputy reads a desk. Everything there may be wrong.
func (d *Daemon) newDeputy(rank int, n note) (*deputy, error) {
	p := &deputy{d: d, serial: n.serial, addr: n.addr, where: memberAt{rank, n.rkey}}
	var err error
	if p.own, err = d.cfg.Memory(rank); err != nil {
		return nil, err
	}
	if p.bytes, err = p.own.Map(n.addr, n.rkey, int(n.length), rdma.AccessRemoteWrite); err != nil {
		return nil, err
	}
	if p.words, err = wordsOf(p.bytes); err != nil {
		return nil, err
	}
	if n.desk%8 != 0 || uint64(n.desk)+8*deskHead > uint64(len(p.bytes)) {
		return nil, fmt.Errorf("found a desk at %d of %d bytes", n.desk, len(p.bytes))
	}
	words := p.words[n.desk/8:]
	me, size := halves(words[headMember])
	slots, eager := halves(words[headSlots])
	chunk, piece := halves(words[headSizes])
	const most = 1 << 20
	if words[headMagic] != deskMagic || size < 2 || size > d.cfg.Ranks || me >= size ||
		slots < leastSlots || slots > mostSlots || slots&(slots-1) != 0 || eager < descriptorLen || eager > most || chunk < 1 || piece < 1 || len(words) < deskWords(size) {
		return nil, errors.New("found no desk where it said")
	}
	p.layout = newLayout(size, slots, eager, words[headStaging] != 0)
	if p.layout.desk() != int(n.desk) {
		return nil, fmt.Errorf("found a desk at %d, expected it behind the lanes at %d", n.desk, p.layout.desk())
	}
	p.tuning = tuning{slots: slots, eager: eager, chunk: chunk, piece: piece, cached: defaultCached, mapped: true}
	p.desk = desk{words: words[:deskWords(size)], size: size}
	p.me, p.peers = me, make([]deputyPeer, size)
	for i := range p.peers {
		if i != me {
			if err := p.meet(i); err != nil {
				return nil, fmt.Errorf("member %d: %w", i, err)
			}
		}
	}
	p.machine = machine{port: p, slots: slots, channels: make([]channel, size)}
	p.cache.total = &p.machine.count
	d.mu.Lock()
	d.members[p.where] = p
	d.mu.Unlock()
	return p, nil
}

// refuse has the rank hear that its call is not served, if as much of its desk can be found.
func (d *Daemon) refuse(rank int, n note) {
	own, err := d.cfg.Memory(rank)
	if err != nil {
		return
	}
	mem, err := own.Map(n.addr, n.rkey, int(n.length), rdma.AccessRemoteWrite)
	if err != nil {
		return
	}
	words, err := wordsOf(mem)
	if err != nil || n.desk%8 != 0 || uint64(n.desk)+8*deskHead > uint64(len(mem)) {
		return
	}
	words = words[n.desk/8:]
	_, size := halves(words[headMember])
	if size < 1 || size > d.cfg.Ranks || len(words) < deskWords(size) || n.record >= deskRecords {
		return
	}
	r := desk{words: words, size: size}.record(int(n.record))
	switch {
	case r.claim(recordBegun):
		r.setState(recordBroken)
		own.Notify()
	case r.state() == recordRecalled:
		r.setState(recordFree)
	}
}

// meet maps the lane that a member keeps for ours.
func (p *deputy) meet(i int) error {
	w := p.desk.member(i)
	q := &p.peers[i]
	if w[0] >= uint64(p.d.cfg.Ranks) {
		return fmt.Errorf("found number %d in a segment of %d ranks", w[0], p.d.cfg.Ranks)
	}
	q.number, q.rkey = int(w[0]), uint32(w[2])
	var err error
	if q.memory, err = p.d.cfg.Memory(q.number); err != nil {
		return err
	}
	if q.bytes, err = q.memory.Map(w[1], q.rkey, p.layout.lane, rdma.AccessRemoteWrite); err != nil {
		return err
	}
	q.words, err = wordsOf(q.bytes)
	return err
}

// Step is a pass over the call under way, and tells whether there are no more calls.
func (p *deputy) Step() (moved, over bool) {
	if len(p.queue) > 0 { // its team may have ended since
		moved = p.pass()
	}
	if len(p.queue) > 0 {
		return moved, false
	}
	p.busy.Store(false)
	return moved, true
}

// pass steps the call under way as far as it goes, and tells whether it moved.
func (p *deputy) pass() (moved bool) {
	if p.desk.stops() {
		p.drop(true)
		return true
	}
	r := p.desk.record(p.queue[0])
	defer func() {
		// A rank may have written anything; what that breaks is its own call.
		if e := recover(); e != nil {
			p.d.log("a call of rank %d: %v", p.where.number, e)
			p.over(r, recordBroken)
			moved = true
		}
	}()
	if !p.begun {
		if !r.claim(recordBegun) {
			p.skip(r)
			return true
		}
		if !p.begin(r) {
			return true
		}
	}
	m := &p.machine
	before, start := m.pc, time.Now()
	o := p.run(p.d.most)
	moved = m.pc != before || o != blocked
	if moved {
		r[recordWork] += uint64(time.Since(start))
	}
	switch {
	case p.apart:
		p.giveBack(r)
		return true
	case o == ended:
		p.over(r, recordEnded)
	case o == failed:
		r.setMistake(m.mistake)
		p.over(r, recordFailed)
	}
	return moved
}

// run is the machine's, with the journal.
func (p *deputy) run(most int) outcome {
	m := &p.machine
	for m.left = most; m.left > 0; {
		peer := -1
		if m.pc < len(m.plan.steps) {
			s := &m.plan.steps[m.pc]
			if peer = s.changes(); !m.done && m.overwrites(s) {
				p.desk.tears()
			}
		}
		p.d.at("a step")
		o := m.step()
		if o != moved && o != paused {
			return o
		}
		p.d.at("an entry")
		p.note(peer, m.done)
		if o == paused {
			return o
		}
	}
	return paused
}

// note notes how far the call is.
func (p *deputy) note(peer int, done bool) {
	at := position{call: p.number, pc: p.machine.pc, part: p.machine.part, done: done}
	if peer < 0 {
		p.desk.note(at, peer, nil, &p.machine.count)
		return
	}
	c := &p.machine.channels[peer]
	p.desk.note(at, peer, c, &p.machine.count)
	p.d.at("a channel")
	p.desk.follow(peer, c)
}

// begin binds a record to the machine; false if it is over at once.
func (p *deputy) begin(r record) bool {
	c, operation, returned, fresh := r.call(p.me, p.desk.size)
	if returned != p.returned {
		// It was lent before the rank knew that the call before it is its own again.
		r.setPlace(0, false, false)
		p.end(r, recordReturned)
		return false
	}
	var combine kernel.Func
	var mem [operands][]byte
	if err := p.bindCall(&c, r, operation, &combine, &mem); err != nil {
		p.d.log("a call of rank %d: %v", p.where.number, err)
		p.over(r, recordBroken)
		return false
	}
	if fresh {
		p.desk.readChannels(p.machine.channels, false)
	}
	plan := p.cache.plan(&c, p.tuning)
	p.machine.bind(plan, plan.fingerprint^marked(operation), mem[input], mem[output], mem[scratch], combine)
	p.begun, p.number = true, r.number()
	p.note(-1, false)
	return true
}

// bindCall checks a call and maps its operands.
func (p *deputy) bindCall(c *Call, r record, operation uint16, combine *kernel.Func, mem *[operands][]byte) error {
	if c.Kind == 0 || c.Kind >= farewell || operations[c.Kind].parts != nil || c.Algorithm == Auto || !fits(c.Kind, c.Algorithm) {
		return fmt.Errorf("found kind %d by algorithm %d", c.Kind, c.Algorithm)
	}
	longest := 0
	for o := input; o <= scratch; o++ {
		k, n := r.operand(o)
		p.keys[o] = k
		if n == 0 {
			continue
		}
		if n > math.MaxInt {
			return fmt.Errorf("found an operand of %d bytes", n)
		}
		var err error
		if mem[o], err = p.own.Map(k.addr, k.rkey, int(n), rdma.AccessRemoteRead|rdma.AccessRemoteWrite); err != nil {
			return err
		}
		longest = max(longest, int(n))
	}
	if c.Bytes < 0 || c.Bytes > longest || c.Elem < 1 || c.Bytes%c.Elem != 0 || c.Root < 0 || c.Root >= c.Size || c.Rank >= c.Size {
		return fmt.Errorf("found %d bytes of elements of %d with root %d", c.Bytes, c.Elem, c.Root)
	}
	if operations[c.Kind].reduces {
		k, ok := reductionOf(operation)
		if !ok || k.Elem != c.Elem {
			return fmt.Errorf("found operation %d of elements of %d", operation, c.Elem)
		}
		*combine = k.Func
	}
	return nil
}

// over is the end of the call under way.
func (p *deputy) over(r record, state uint64) {
	p.machine.unbind()
	p.begun = false
	p.end(r, state)
}

// end gives a record back and wakes the rank.
func (p *deputy) end(r record, state uint64) {
	r.putCounters(&p.machine.count)
	p.d.at("an end")
	p.next()
	r.setState(state)
	p.own.Notify()
}

// skip passes over a call that the rank has taken back, with all that it had lent behind it.
func (p *deputy) skip(r record) {
	p.next()
	if r.state() != recordRecalled {
		return
	}
	if r[recordGivenUp] == p.returned { // else the call before it came back, too
		p.returned++
	}
	r.setState(recordFree)
	p.own.Notify() // its peers may have taken us for the one that steps its part
}

// next is the end of the first call's time here.
func (p *deputy) next() {
	if p.queue = slices.Delete(p.queue, 0, 1); len(p.queue) == 0 {
		p.busy.Store(false) // before the rank may go on: from here on its peers wake it
	}
}

// giveBack gives the call under way back at its step, for memory that only the rank reaches,
// and all behind it.
func (p *deputy) giveBack(r record) {
	p.apart, p.begun = false, false
	p.returned++
	r.setPlace(p.machine.pc, p.machine.done, true)
	p.machine.unbind()
	p.end(r, recordReturned)
}

// drop forgets everything that was lent, and answers the rank once.
func (p *deputy) drop(answer bool) {
	p.queue, p.begun = nil, false
	p.machine.unbind()
	if answer && !p.stopped {
		p.stopped = true
		p.desk.setStopped()
		p.own.Notify()
	}
}

func (p *deputy) header(peer, slot int) uint64 {
	return atomic.LoadUint64(&p.words[p.layout.header(peer, slot)/8])
}

func (p *deputy) payload(peer, slot int) []byte {
	at := p.layout.payload(peer, slot)
	return p.bytes[at : at+p.tuning.eager : at+p.tuning.eager]
}

func (p *deputy) credit(peer int) uint16 {
	return uint16(atomic.LoadUint64(&p.words[p.layout.credit(peer)/8]))
}

func (p *deputy) giveCredit(peer int, taken uint16) bool {
	p.note(peer, true) // before the peer may write to the slots
	p.d.at("a credit")
	arch.StoreRelease64(&p.peers[peer].words[0], uint64(taken))
	p.notify(peer)
	return true
}

func (p *deputy) send(peer, slot int, payload []byte, header uint64) bool {
	q := &p.peers[peer]
	at := ringOffset + slot*p.layout.stride
	store(q.bytes[at+headerLen:], payload)
	p.d.at("a header")
	arch.StoreRelease64(&q.words[at/8], header)
	p.d.at("a ring")
	p.notify(peer)
	return true
}

// notify wakes whoever steps the peer's part: its deputy, which this thread or another one
// looks after, or the rank.
func (p *deputy) notify(peer int) {
	q := &p.peers[peer]
	if other := p.d.deputyOf(memberAt{q.number, q.rkey}); other != nil && other.busy.Load() {
		if n := DaemonFor(q.number, p.d.cfg.Ranks, p.d.cfg.Threads); n != DaemonFor(p.where.number, p.d.cfg.Ranks, p.d.cfg.Threads) {
			p.d.cfg.Segment.Bell(n).Ring()
		}
		return
	}
	q.memory.Notify()
}

// put and get are for memory that is not mapped: the rank's own affair.
func (p *deputy) put(int, far, loc, int, int, uint64) bool {
	p.apart = true
	return false
}

func (p *deputy) get(int, far, loc, int) bool {
	p.apart = true
	return false
}

func (p *deputy) flushed(int) bool { return true }

func (p *deputy) expose(at loc, n int) descriptor {
	k := &p.keys[at.operand]
	return descriptor{addr: k.addr + uint64(at.off), n: uint64(n), rkey: k.rkey, access: k.access}
}

func (p *deputy) view(peer int, d *descriptor) []byte {
	if d.access == 0 || d.n > math.MaxInt {
		return nil
	}
	mem, err := p.peers[peer].memory.Map(d.addr, d.rkey, int(d.n), d.access)
	if err != nil {
		return nil
	}
	return mem
}
