package coll

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorun-mpi/gorun/internal/arch"
	"github.com/gorun-mpi/gorun/internal/kernel"
	"github.com/gorun-mpi/gorun/internal/shm"
)

// What is here hands started calls to a daemon of the host, which steps them while the
// program computes ([Daemon]); how the two talk is said at desk.
//
// An executor is data: the daemon gets a call's arguments, the keys of its operands, and the
// counters of the team's channels, and compiles the same plan. While it has calls of a team
// (lent), the team takes no step of its own; started calls end in their order, so whatever
// is started behind calls that the daemon does not take waits for them here.
//
//	           lend                    the daemon has ended it
//	queued ------------> with daemon ---------------------------> over
//	   ^                      |
//	   +----- given back -----+   it met memory that it cannot reach: the team goes on
//	   |                      |   at the very step, with all that was lent behind it
//	   +----- taken over -----+   its process has ended: the same, by its journal
//	   +------- recalled -----+   it has not begun in time, since others have its CPU, and the
//	                              rank is in a call: the team goes on, with all that was lent behind it
//
// There is never more than one executor of a call. A daemon that is only stopped, or slow, may
// go on at any time, so no rank takes a call from it that it has begun: the launcher kills one that shows no life.
//
// Blocking calls stay with the caller: they have nothing to overlap with.

// OffloadFrom is the usual Offload.From. Beside work on two CPUs a started all-reduce of 64 KiB took
// 2.4 times as long with the daemon as without, which needs 2 us for it (make results).
const OffloadFrom = 256 << 10

// OffloadRecall is the usual Offload.Recall. A daemon whose CPU is free begins within some 10 us.
const OffloadRecall = 20 * time.Microsecond

// An Offload is a rank's way to the daemon of its host. Its teams share it.
type Offload struct {
	segment *shm.Segment
	daemon  int // its number in the segment
	local   int // ours
	bell    *shm.Bell
	// From is the length in bytes of a call that is long enough to be lent. To ring the daemon
	// and to hear from it takes a shorter one longer than to do the work.
	From int
	// Recall is how long the daemon has for the first step of a call; a rank that is in a call of its own then
	// does the work itself. 0: it waits for the daemon.
	Recall time.Duration
	// Declined, if set, is told why a call that is long enough stays with the rank. It is
	// called within Start, and must not call the team.
	Declined func(reason string)

	mu     sync.Mutex // guards the door
	door   door
	teams  uint64 // ever made
	posted uint64
}

// OpenOffload finds the daemon, which has the number daemon in the segment, for the rank that
// has the number local. The segment stays the caller's.
func OpenOffload(segment *shm.Segment, local, daemon int) (*Offload, error) {
	o := &Offload{segment: segment, daemon: daemon, local: local, From: OffloadFrom}
	if daemon < 0 || daemon >= segment.Ranks() || local < 0 || local >= segment.Ranks() {
		return nil, fmt.Errorf("offload: found rank %d and daemon %d, expected numbers below %d", local, daemon, segment.Ranks())
	}
	arena, err := segment.Arena(daemon)
	if err == nil {
		o.door, err = doorOf(arena, local)
	}
	if err != nil {
		return nil, fmt.Errorf("offload: %w", err)
	}
	o.posted = atomic.LoadUint64(&o.door[doorPosted])
	o.bell = segment.Bell(daemon)
	return o, nil
}

// dead tells whether the daemon's process has ended.
func (o *Offload) dead() bool { return o.segment.Dead(o.daemon) }

// decline notes why a call stays.
func (o *Offload) decline(reason string) {
	if o.Declined != nil {
		o.Declined(reason)
	}
}

// post puts a note into the rank's door and rings; false if the door is full.
func (o *Offload) post(n note) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.posted-atomic.LoadUint64(&o.door[doorTaken]) >= doorNotes {
		return false
	}
	n.put(o.door.note(o.posted))
	o.posted++
	arch.StoreRelease64(&o.door[doorPosted], o.posted)
	o.bell.Ring()
	return true
}

// An offloading is what a team keeps of what it has lent.
type offloading struct {
	team   *Team
	to     *Offload // nil: nothing is lent
	opened bool     // desk and note are made
	desk   desk
	note   note // of this team
	shown  bool // the daemon knows the team

	lent     int       // calls that the daemon has
	next     int       // the record of the next one
	number   uint64    // calls ever lent
	returned uint64    // how often a call was given back
	ended    time.Time // when the daemon ended a call that had others behind it
	recalled int       // of lent, those behind one that was given back or taken over: they come back too
}

// notMapped is why a team's calls are never the daemon's.
const notMapped = "its communicator has ranks whose memory is not mapped: they are on several hosts, or a device is named (-d)"

// open prepares the team for it. A team that has members elsewhere, or whose memory is
// not mapped, goes without.
func (off *offloading) open() {
	t := off.team
	o := off.to
	off.opened, off.to = true, nil
	at := t.layout.desk()
	if !t.tuning.mapped || len(t.bytes) < at+deskSize(t.size) {
		return
	}
	d := desk{words: t.words[at/8:], size: t.size}
	for i := range t.peers {
		number := o.local
		if i != t.rank {
			if !t.reach(i) {
				return
			}
			m, ok := t.peers[i].memory.(interface{ Number() int })
			if !ok {
				return
			}
			number = m.Number()
		}
		d.setMember(i, number, t.peers[i].lane, t.peers[i].rkey)
	}
	o.mu.Lock()
	o.teams++
	serial := o.teams
	o.mu.Unlock()
	d.begin(t)
	off.to, off.desk = o, d
	off.note = note{addr: t.region.Addr(), length: uint32(t.region.Len()), rkey: t.region.RKey(), desk: uint32(at), serial: serial}
}

// lend gives a call that was just prepared to the daemon, if that can run it. All calls before
// it are the daemon's then, so that it comes in its turn.
func (off *offloading) lend(p *Pending) bool {
	t := off.team
	o := off.to
	if o == nil || len(p.in.Mem) < o.From && len(p.out.Mem) < o.From {
		return false
	}
	switch {
	case t.mesh.self == nil:
		o.decline(notMapped)
	case operations[p.call.Kind].parts != nil:
		o.decline("its parts differ in length")
	case p.reduction.ID >= kernel.UserID:
		o.decline("its reduction is a function of the program")
	case o.dead():
		o.decline("the daemon has ended")
	case !t.lendable(p.in) || !t.lendable(p.out):
		o.decline("its memory is ordinary; rank.Alloc gives memory that the daemon reaches")
	case off.recalled > 0 || off.lent != len(t.backlog.queue)-t.backlog.first:
		o.decline("a call before it is the rank's own")
	case off.lent == deskRecords || off.opened && off.desk.record(off.next).state() != recordFree:
		o.decline("the daemon has as many of the communicator's calls as it takes at a time")
	default:
		if !off.opened {
			off.open()
		}
		if off.to == nil {
			o.decline(notMapped)
			return false
		}
		return off.handOut(p)
	}
	return false
}

// lendable tells whether the daemon reaches an operand: memory of the segment, or none.
func (t *Team) lendable(b Buffer) bool {
	return len(b.Mem) == 0 || b.MR != nil && b.MR.Access()&reachable == reachable && within(b) && t.mappable(addressOf(b.Mem), b.MR) == reachable
}

// handOut writes the call's record and has the daemon told of it.
func (off *offloading) handOut(p *Pending) bool {
	t := off.team
	plan := t.planOf(&p.invocation)
	if plan.scratch > 0 && (t.scratch == nil || t.scratch.Len() < uint64(plan.scratch)) {
		if off.lent > 0 || t.reserve(plan.scratch) != nil {
			off.to.decline("it needs more scratch memory than the calls have that the daemon is at")
			return false
		}
	}
	r := off.desk.record(off.next)
	r.setCall(&p.call, p.reduction.ID, off.returned, off.lent == 0)
	for o, b := range [...]Buffer{input: p.in, output: p.out} {
		if len(b.Mem) > 0 {
			at := b.MR.Addr() + addressOf(b.Mem) - addressOf(b.MR.Bytes())
			r.setOperand(operand(o), key{addr: at, rkey: b.MR.RKey(), access: reachable}, uint64(len(b.Mem)))
		}
	}
	if plan.scratch > 0 {
		r.setOperand(scratch, key{addr: t.scratch.Addr(), rkey: t.scratch.RKey(), access: reachable}, t.scratch.Len())
	}
	if off.lent == 0 {
		off.desk.putChannels(t.machine.channels)
	}
	off.number++
	r[recordNumber] = off.number
	r.setState(recordLent)
	n := off.note
	n.record = uint32(off.next)
	if !off.to.post(n) {
		r.setState(recordFree)
		off.to.decline("the daemon has not taken what the rank left it before")
		return false
	}
	off.shown = true
	p.lent, p.record, p.since = true, off.next, time.Now()
	off.next = (off.next + 1) % deskRecords
	off.lent++
	return true
}

// collect takes a lent call back when the daemon is done with it, and tells whether it is. A
// call that was given back is bound here, at the step where the daemon left it.
func (off *offloading) collect() bool {
	t, c := off.team, off.team.call
	r := off.desk.record(c.record)
	switch r.state() {
	case recordEnded:
		r.addCounters(&t.machine.count)
		t.machine.count.Offloaded++
		c.outcome = ended
	case recordFailed:
		t.machine.mistake = r.mistake(t.size)
		t.machine.fingerprint = t.planOf(c).fingerprint ^ marked(c.reduction.ID)
		c.outcome = failed
	case recordReturned:
		return off.takeUp(r)
	case recordBroken:
		r.setState(recordFree)
		c.lent = false
		off.lent--
		c.err = t.breakUp(-1, faultDaemon, fmt.Errorf("%w: it could not run the call", ErrDaemon))
		return true
	default:
		if off.to.dead() && r.waits() {
			return off.takeOver(r)
		}
		if most := off.to.Recall; most > 0 && r.state() == recordLent && time.Since(c.since) > most && time.Since(off.ended) > most && r.claim(recordRecalled) {
			off.recall()
			return true
		}
		c.outcome = blocked
		return false
	}
	off.regain(r)
	return true
}

// regain is the end of a call's time with the daemon: with the last one the channels are ours again.
func (off *offloading) regain(r record) {
	t, c := off.team, off.team.call
	r.setState(recordFree)
	c.lent = false
	if off.lent--; off.lent == 0 {
		off.desk.readChannels(t.machine.channels, false)
	} else {
		off.ended = time.Now() // the next one cannot have begun before
	}
}

// takeUp goes on with a call that the daemon has given back.
func (off *offloading) takeUp(r record) bool {
	t := off.team
	pc, done, began := r.place()
	r.addCounters(&t.machine.count)
	off.takeBack(r)
	if !began {
		off.recalled--
		t.resume(nil)
		return true
	}
	off.returned++
	off.recalled = off.lent
	off.desk.readChannels(t.machine.channels, true)
	t.resume(&position{pc: pc, done: done})
	return true
}

// recall goes on with a call that the daemon has not begun, and now leaves alone. What is lent behind it comes back too,
// by the daemon or by this.
func (off *offloading) recall() {
	t := off.team
	t.call.lent = false
	off.lent--
	if off.recalled > 0 { // the channels are ours
		off.recalled--
	} else {
		off.returned++
		off.recalled = off.lent
		off.desk.readChannels(t.machine.channels, false)
	}
	t.resume(nil)
}

// takeOver goes on with a call that the daemon had when its process ended. Nobody else steps it:
// the kernel has ended all threads of the process before the launcher says that it is dead.
func (off *offloading) takeOver(r record) bool {
	t := off.team
	number := r.number()
	off.takeBack(r)
	if off.recalled > 0 { // the channels are ours, and it had not begun
		off.recalled--
		t.resume(nil)
		return true
	}
	off.recalled = off.lent
	at := off.desk.recover(t.machine.channels)
	if at.call != number { // it was at none, or at the call before, which had ended
		t.resume(nil)
		return true
	}
	at.count.OffloadNanoseconds = r[recordWork]
	t.machine.count.Add(at.count)
	if t.resume(&at) && !off.redo(at.torn) {
		t.call.err = t.breakUp(-1, faultDaemon, fmt.Errorf("%w: its process has ended within a reduction whose result replaces an operand, and a part is overwritten", ErrDaemon))
	}
	return true
}

// takeBack makes t.call the rank's own again.
func (off *offloading) takeBack(r record) {
	t := off.team
	r.setState(recordFree)
	t.call.lent = false
	off.lent--
}

// resume binds t.call, whose channels are ours, to the machine, at a step if at is not nil. It
// is false when the call is over, with an error.
func (t *Team) resume(at *position) bool {
	c, m := t.call, t.machine
	if err := t.begin(); err != nil {
		if t.state == nil { // the peers are in the midst of this call
			err = t.breakUp(-1, faultLocal, err)
		}
		c.err = err.(*Error)
		return false
	}
	if at == nil {
		return true
	}
	c.helped = true
	m.pc, m.part, m.done = min(at.pc, len(m.plan.steps)), at.part, at.done
	for i := range m.channels {
		if i == t.rank {
			continue
		}
		for j := range m.channels[i].known {
			if d := &m.channels[i].known[j]; d.n > 0 {
				d.view = m.port.view(i, d)
			}
		}
	}
	return true
}

// redo has the machine at a step that may be taken, though somebody who has ended may have
// taken it, or a part of it. torn: it overwrites its operands, and had begun. It is false if there is none.
func (off *offloading) redo(torn bool) bool {
	t := off.team
	m := t.machine
	if m.pc == len(m.plan.steps) {
		return true
	}
	s := &m.plan.steps[m.pc]
	switch {
	case torn:
		return m.retrace()
	case (s.verb <= vExpose || s.verb == vPut && s.signal) && off.delivered(int(s.peer)):
		m.sent(s)
		m.pc, m.part, m.done = m.pc+1, 0, false
	}
	return true
}

// delivered tells whether the next message to a peer is in its lane already. The slot held one that is
// older by a whole ring, so the sequence says it.
func (off *offloading) delivered(peer int) bool {
	t := off.team
	next := t.machine.channels[peer].sent + 1
	if !t.reach(peer) {
		return false // the peer has gone, and the call ends for that
	}
	at := ringOffset + t.machine.slotOf(next)*t.layout.stride
	return sequenceOf(atomic.LoadUint64(&t.peers[peer].words[at/8])) == next
}

// retrace goes back from a step that has perhaps overwritten what it reads, to the one that
// made that: over reductions into the same memory, up to one that reads nothing of it. Their
// other operands are as they were, because no slot was given back and no message sent since.
//
// It does not go back over a message, so that a chain scan (whose input from below lands in its output, so
// that a scan needs no vector of scratch), a doubling one and an in-place call are reported in such a step. To have
// the daemon keep what it is about to overwrite would be one more copy of each byte that it reduces.
func (m *machine) retrace() bool {
	last := &m.plan.steps[m.pc]
	for pc := m.pc; pc >= 0; pc-- {
		s := &m.plan.steps[pc]
		if s.verb != vCopy && s.verb != vReduce || s.dst != last.dst || s.n != last.n || s.release && pc != m.pc {
			return false
		}
		if !m.overwrites(s) {
			for i := pc; i < m.pc; i++ { // they are made, and counted, anew
				m.combined(&m.plan.steps[i], -1)
			}
			m.pc, m.part, m.done = pc, 0, false
			return true
		}
	}
	return false
}

// stopTime bounds how long a team that ends waits for the daemon to let go of its operands. One that
// runs does within the time of a pass, some 100 us; one that somebody has stopped may write into them
// when it goes on.
const stopTime = time.Second

// stop has the daemon let go of everything of this team, and forget it.
func (off *offloading) stop() {
	t := off.team
	if off.to == nil {
		return
	}
	o := off.to
	off.to = nil
	if !off.shown || o.dead() {
		return
	}
	n := off.note
	n.record = noteForget
	stopped := func() bool { return true }
	if off.lent > 0 || off.desk.recalls() {
		off.lent = 0
		off.desk.stop()
		n.record = noteStop
		stopped = off.desk.stopped
	}
	told := o.post(n)
	for deadline := time.Now().Add(stopTime); !(told && stopped()) && !o.dead() && time.Now().Before(deadline); t.yield() {
		told = told || o.post(n)
	}
}

// The door of a rank is where it leaves notes for the daemon: a ring that only the rank
// writes, in the daemon's arena. Words: how many were posted; how many were taken, which
// only the daemon writes; then the notes.
type door []uint64

const (
	doorPosted = 0
	doorTaken  = shareLine
	doorRing   = 2 * shareLine
	doorNotes  = 16
	doorWords  = doorRing + doorNotes*noteWords
	shareLine  = line / 8 // words of a cache line
)

// doorOf is the door of the rank with a number in the segment.
func doorOf(arena []byte, local int) (door, error) {
	words, err := wordsOf(arena)
	if err != nil {
		return nil, err
	}
	if local < 0 || (local+1)*doorWords > len(words) {
		return nil, fmt.Errorf("an arena of %d bytes has no door for rank %d", len(arena), local)
	}
	return words[local*doorWords : (local+1)*doorWords], nil
}

func (d door) note(i uint64) []uint64 {
	at := doorRing + int(i%doorNotes)*noteWords
	return d[at : at+noteWords]
}

// A note tells the daemon of a record on a team's desk, or that the team ends.
type note struct {
	addr   uint64 // of the team's control region
	length uint32
	rkey   uint32
	desk   uint32 // offset of the desk in it
	record uint32 // or noteForget, noteStop
	serial uint64 // of the team, in its rank
}

const (
	noteWords = 4
	// noteForget ends a team that has lent nothing: its desk may be gone already.
	noteForget = math.MaxUint32
	// noteStop ends one that has, and waits until the desk says that it has stopped.
	noteStop = noteForget - 1
)

func (n note) put(w []uint64) {
	w[0], w[1], w[2], w[3] = n.addr, uint64(n.length)|uint64(n.rkey)<<32, uint64(n.desk)|uint64(n.record)<<32, n.serial
}

func readNote(w []uint64) note {
	return note{addr: w[0], length: uint32(w[1]), rkey: uint32(w[1] >> 32), desk: uint32(w[2]), record: uint32(w[2] >> 32), serial: w[3]}
}
