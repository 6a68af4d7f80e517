package coll

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/gorun-mpi/gorun/internal/arch"
	"github.com/gorun-mpi/gorun/internal/kernel"
	"github.com/gorun-mpi/gorun/internal/wait"
	"github.com/gorun-mpi/gorun/rdma"
)

// A fault is why a team broke, as the members tell each other: each writes it
// into the record that the other keeps for it, once in a team's life.
//
//	word 0   0 while there is none; written last
//	word 1   reason | peer
//	then     what the teller was calling: kind, algorithm, element, root, operation, bytes
type fault struct {
	reason reason
	peer   int32 // which it concerns, -1 if none
	call   summary
}

type reason uint32

const (
	faultMismatch reason = iota + 1 // the reader itself called something else
	faultOther                      // a third member called something else
	faultContext
	faultDead
	faultLink
	faultLocal
	faultDaemon
	faultPanic
	faultRevoked
)

var reasonText = [...]string{"", "calls do not match", "calls do not match", "its context ended", "peer has died", "its connection failed", "it could not go on", "the offload daemon that had its call could not end it", "the function of its reduction panicked", "it was asked to"}

func (r reason) String() string {
	if r > 0 && int(r) < len(reasonText) {
		return reasonText[r]
	}
	return "reason unknown"
}

// faultLen is the record without word 0.
const faultLen = leastInline - 8

func (f fault) bytes() []byte {
	b := make([]byte, 0, faultLen)
	b = binary.LittleEndian.AppendUint32(b, uint32(f.reason))
	b = binary.LittleEndian.AppendUint32(b, uint32(f.peer))
	b = append(b, byte(f.call.kind), byte(f.call.algorithm))
	b = binary.LittleEndian.AppendUint16(b, f.call.elem)
	b = binary.LittleEndian.AppendUint32(b, uint32(f.call.root))
	b = binary.LittleEndian.AppendUint32(b, uint32(f.call.operation))
	b = binary.LittleEndian.AppendUint64(b, f.call.bytes)
	return b[:faultLen]
}

func readFault(b []byte) fault {
	return fault{
		reason: reason(binary.LittleEndian.Uint32(b)),
		peer:   int32(binary.LittleEndian.Uint32(b[4:])),
		call: summary{kind: Kind(b[8]), algorithm: Algorithm(b[9]), elem: binary.LittleEndian.Uint16(b[10:]),
			root: int32(binary.LittleEndian.Uint32(b[12:])), operation: uint16(binary.LittleEndian.Uint32(b[16:])),
			bytes: binary.LittleEndian.Uint64(b[20:])},
	}
}

// faults are how a member tells the others what has broken the team, and hears it from them.
type faults struct {
	team     *Team
	waitsFor int    // the peer that was told so, see deadlocked
	chain    uint64 // and the length of the chain; 0 if it was not
	words    uint64 // waiting words that went by a write of the device, for tests
}

// answerTime bounds the wait for a member whose call does not match to say what
// it called: it may be busy outside of any call.
const answerTime = 250 * time.Millisecond

// hear looks whether a member has told that the team is broken, and breaks it
// here too.
func (fs *faults) hear(peer int) bool {
	t := fs.team
	f, told := fs.told(peer)
	if !told {
		return false
	}
	if f.reason == faultMismatch {
		t.call.err = fs.disagree(peer, f.call)
		return true
	}
	err := fmt.Errorf("%w by rank %d: %v", ErrRevoked, peer, f.reason)
	if f.reason == faultDead {
		err = fmt.Errorf("%w by rank %d: %w", ErrRevoked, peer, ErrPeerDead)
	}
	if f.peer >= 0 {
		err = fmt.Errorf("%w (rank %d)", err, f.peer)
	}
	t.call.err = t.broken(peer, err)
	return true
}

func (fs *faults) told(peer int) (fault, bool) {
	t := fs.team
	at := t.layout.fault(peer)
	if atomic.LoadUint64(&t.words[at/8]) == 0 {
		return fault{}, false
	}
	return readFault(t.bytes[at+8 : at+8+faultLen]), true
}

// mismatched ends the call after a message that the plan does not expect.
func (fs *faults) mismatched() error {
	t := fs.team
	m := t.machine.mistake
	if m.deadlock {
		return fs.entangled(m.peer)
	}
	if m.lost {
		return fs.lost(m.peer)
	}
	if m.fingerprint == t.machine.fingerprint {
		return t.breakUp(m.peer, faultLocal, fmt.Errorf("%w: it exposed only %d bytes", ErrMismatch, m.descriptor))
	}
	fs.tell(m.peer, fault{reason: faultMismatch, peer: -1, call: fs.calling(m.peer)})
	if n, fits := lengthOf(m.fingerprint); kindOf(m.fingerprint) == Exchange && fits {
		// It need not be asked.
		return fs.disagree(m.peer, summary{kind: Exchange, algorithm: Direct, bytes: n, elem: 1})
	}
	fs.linger(&answer{t, m.peer}) // whether it answers or not, there is a mismatch to report
	// It may be further on by now, in a call that is not the one that its
	// message was of.
	if f, told := fs.told(m.peer); told && (f.call.mark() == m.fingerprint || f.call.mark()^shown == m.fingerprint) {
		return fs.disagree(m.peer, f.call)
	}
	return fs.disagree(m.peer, summary{kind: kindOf(m.fingerprint)})
}

// linger waits for c, for at most answerTime; false: it did not come. Where the team is only moved
// on, by another wait or a thread beside, the caller's turn is not its own to leave ([wait.Turns]).
func (fs *faults) linger(c wait.Condition) bool {
	t := fs.team
	if atomic.LoadUint32(&t.busy) == busyCall {
		ctx, cancel := context.WithTimeout(context.Background(), answerTime)
		defer cancel()
		return t.waiter.Wait(ctx, c) == nil
	}
	for deadline := time.Now().Add(answerTime); !c.Ready(); t.yield() {
		if time.Now().After(deadline) {
			return false
		}
	}
	return true
}

// yield lets others run, in a loop of the team's own.
func (t *Team) yield() {
	if t.waiter.Scheduled() {
		runtime.Gosched()
	} else {
		arch.YieldSafe()
	}
}

// errUnmapped: a member's memory was there when the team was made.
var errUnmapped = errors.New("its memory can no longer be mapped")

// lost ends the call after a peer's memory could not be mapped though it has shown it:
// most often it has gone, which is known soon if not yet.
func (fs *faults) lost(peer int) error {
	t := fs.team
	l := &leaving{team: t, peer: peer}
	if !fs.linger(l) {
		l.err = t.breakUp(peer, faultLink, errUnmapped)
	}
	return l.err
}

// leaving waits until a peer is known to have gone, or has told why it goes.
type leaving struct {
	team *Team
	peer int
	err  error // the call's
}

func (l *leaving) Ready() bool {
	t := l.team
	t.mesh.poll()
	switch err := t.peers[l.peer].queue.Err(); {
	case t.faults.hear(l.peer):
		l.err = t.call.err
	case t.dead != nil && t.dead(l.peer):
		l.err = t.breakUp(l.peer, faultDead, ErrPeerDead)
	case err != nil:
		l.err = t.breakUp(l.peer, faultLink, err)
	}
	return l.err != nil
}

const (
	// stuckAfter is after what time without a step a member suspects that it waits in vain. It does not
	// count its looks, which become rare as the wait becomes long.
	stuckAfter = 50 * time.Millisecond
	// tellEvery is how many looks there are to one that says so again.
	tellEvery = 10
)

// deadlocked tells whether this member waits in a circle of members that wait for
// each other. Members whose calls match never do. If one would send more bytes than
// another receives, the one may wait for a descriptor and the other for a message,
// or both for slots that nobody gives back.
//
// A member that is stuck tells the peer that it waits for, in the waiting word of
// its lane, what it needs of it and how many members wait in a chain up to it,
// itself counted. The word counts for the peer if it has not given that and is stuck
// too. Nobody gives anything before it has what it waits for, so while the last of a
// chain is stuck the whole chain is; a member takes its word back when it goes on. A
// chain longer than the team has a member twice: it is a circle, and since each
// member waits for one only, its last is on it.
func (fs *faults) deadlocked() bool {
	t := fs.team
	// In a farewell the peer may have freed its region.
	peer, need := t.machine.needs()
	if peer < 0 || t.call.call.Kind == farewell {
		return false
	}
	chain := uint64(1)
	for i := range t.peers {
		if i == t.rank {
			continue
		}
		if word, waits := fs.waitedFor(i); waits {
			chain = max(chain, word>>needBits+1)
		}
	}
	if chain > uint64(t.size) {
		t.machine.mistake = mismatch{peer: peer, deadlock: true}
		return true
	}
	// Again now and then, for it may not have been posted.
	if chain != fs.chain || t.call.stuck%tellEvery == 0 {
		fs.chain, fs.waitsFor = chain, peer
		fs.tellWaiting(peer, chain<<needBits|need)
	}
	return false
}

// What a member needs of its peer, in the lower bits of a waiting word: the message
// of that number, or news that more than so many messages have been taken.
const (
	needMessage uint64 = 1 << 16
	needSlots   uint64 = 1 << 17
	needBits           = 18
)

// waitedFor is the waiting word of a peer, and whether it needs what this member has not given. A word of
// a peer that has it by now, and has had no time to go on, says nothing.
func (fs *faults) waitedFor(peer int) (word uint64, waits bool) {
	t := fs.team
	word = atomic.LoadUint64(&t.words[t.layout.waits(peer)/8])
	c := &t.machine.channels[peer]
	needs := word & (1<<needBits - 1)
	return word, needs == needMessage|uint64(c.sent+1) || needs == needSlots|uint64(c.told)
}

// needs is the peer that the machine waits for and what it needs; -1 if it is
// nothing that deadlocked knows of.
func (m *machine) needs() (peer int, need uint64) {
	s := &m.plan.steps[m.pc]
	if m.done {
		return -1, 0
	}
	switch s.verb {
	case vAwait, vTake, vLearn:
		return int(s.peer), needMessage | uint64(m.channels[s.peer].awaited+1)
	case vSend, vExpose, vPut:
		if c := &m.channels[s.peer]; int(c.sent-c.credited) >= m.slots {
			return int(s.peer), needSlots | uint64(c.credited)
		}
	}
	return -1, 0
}

// unstick is for a member that goes on.
func (fs *faults) unstick() {
	t := fs.team
	if fs.chain != 0 {
		fs.tellWaiting(fs.waitsFor, 0)
		fs.chain = 0
	}
	t.call.stuck = 0
}

// tellWaiting writes the waiting word at peer, if that can be done.
func (fs *faults) tellWaiting(peer int, word uint64) {
	t := fs.team
	p := &t.peers[peer]
	if t.reach(peer) {
		arch.StoreRelease64(&p.words[1], word)
		p.memory.Notify()
		return
	}
	q := p.queue
	if !t.mesh.connected(q) {
		return // it is told again
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.writeWord(0, p.lane+8, p.rkey, word)
	if _, ok := t.mesh.post(q, 1, false); ok {
		fs.words++
	}
}

// entangled ends the call of a member that waits in a circle for peer.
func (fs *faults) entangled(peer int) error {
	t := fs.team
	fs.tell(peer, fault{reason: faultMismatch, peer: -1, call: fs.calling(peer)})
	fs.linger(&answer{t, peer}) // it finds out too, or hears of it
	mine := fs.calling(peer)
	if f, told := fs.told(peer); told && f.reason == faultMismatch && f.call != mine {
		return fs.disagree(peer, f.call)
	}
	fs.tellOthers(peer, fault{reason: faultOther, peer: int32(peer), call: mine})
	return t.broken(peer, fmt.Errorf("%w: rank %d called %s and waits for rank %d, in a circle of ranks that wait for each other", ErrMismatch, t.rank, mine, peer))
}

// answer is the condition that a peer has told a fault.
type answer struct {
	team *Team
	peer int
}

func (a *answer) Ready() bool {
	a.team.mesh.poll()
	_, told := a.team.faults.told(a.peer)
	return told
}

// calling is the summary of this member's call, as far as it concerns peer: of a
// kind whose messages are sized, with the length of the part that the call is at,
// or of the first one with that peer.
func (fs *faults) calling(peer int) summary {
	t := fs.team
	s := t.call.call.summary(t.call.reduction.ID)
	if m := t.machine; sized(s.kind) && m.plan != nil {
		for i := len(m.plan.steps) - 1; i >= 0; i-- {
			if x := &m.plan.steps[i]; x.verb <= vLearn && int(x.peer) == peer {
				s.bytes = uint64(x.n)
				if i == m.pc {
					break
				}
			}
		}
	}
	return s
}

// disagree breaks the team because peer called something else.
func (fs *faults) disagree(peer int, theirs summary) *Error {
	t := fs.team
	mine := fs.calling(peer)
	fs.tell(peer, fault{reason: faultMismatch, peer: -1, call: mine})
	fs.tellOthers(peer, fault{reason: faultOther, peer: int32(peer), call: mine})
	what := theirs.String()
	switch {
	case theirs == mine:
		return t.broken(peer, fmt.Errorf("%w: ranks %d and %d are both in %s, but their earlier calls did not match", ErrMismatch, t.rank, peer, mine))
	case theirs.algorithm == Auto:
		what = theirs.kind.String() + " of unknown size" // it did not answer
	}
	return t.broken(peer, fmt.Errorf("%w: rank %d called %s, rank %d called %s", ErrMismatch, t.rank, mine, peer, what))
}

// breakUp ends the call and the team, and tells the other members.
func (t *Team) breakUp(peer int, why reason, cause error) *Error {
	t.faults.tellOthers(-1, fault{reason: why, peer: int32(peer), call: t.call.call.summary(t.call.reduction.ID)})
	return t.broken(peer, cause)
}

// Revoke breaks the team for an outside cause, and tells the other members, whose next
// call would otherwise wait for this one. A team that is broken or closed is unchanged. The call
// that runs, where this is called in its progress, ends with the cause at its next look at the peers.
func (t *Team) Revoke(op string, cause error) {
	if err := t.enter(0); err != nil {
		if errors.Is(err, ErrBusy) {
			t.revoked.Store(&cause)
		}
		return
	}
	t.call = &t.own
	t.call.call = Call{}
	t.breakUp(-1, revocation(cause), cause).Op = op
	t.abandon()
	t.vacate()
}

// revocation is the reason of a Revoke, as others are told.
func revocation(cause error) reason {
	if errors.Is(cause, ErrRevoked) {
		return faultRevoked
	}
	return faultLocal
}

func (fs *faults) tellOthers(but int, f fault) {
	t := fs.team
	for i := range t.peers {
		if i != t.rank && i != but {
			fs.tell(i, f)
		}
	}
}

// tell writes f into the record at peer. It does what can be done: the peer may
// be gone, or its queue full, and then finds out by itself. In a farewell the
// peer may have freed its region.
func (fs *faults) tell(peer int, f fault) {
	t := fs.team
	p := &t.peers[peer]
	if p.informed || t.call.call.Kind == farewell || p.queue == nil {
		return
	}
	if t.reach(peer) {
		p.informed = true
		copy(p.bytes[faultOffset+8:], f.bytes())
		arch.StoreRelease64(&p.words[faultOffset/8], 1)
		p.memory.Notify()
		return
	}
	if p.maps || p.queue.Err() != nil {
		return
	}
	p.informed = true // it may be reading the record from now on
	if t.mesh.connected(p.queue) {
		fs.write(peer, f)
	} else if p.queue.Err() == nil {
		t.mesh.debts = append(t.mesh.debts, debt{t, peer, f})
	}
}

// write writes f into the record at a peer that is connected.
func (fs *faults) write(peer int, f fault) {
	t := fs.team
	p := &t.peers[peer]
	far := p.lane + faultOffset
	q := p.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	q.wrs[0] = rdma.SendWR{Opcode: rdma.WRRDMAWrite, Flags: rdma.SendInline, RemoteAddr: far + 8, RKey: p.rkey, Inline: f.bytes()}
	q.writeWord(1, far, p.rkey, 1)
	t.mesh.post(q, 2, false)
	q.wrs[0].Inline = nil
}

// broken puts the team into that state. Peers may still write to what was
// exposed, and the device read what was put: the operands are left to the mesh.
func (t *Team) broken(peer int, cause error) *Error {
	t.offloading.stop()
	c := t.call
	for i, mr := range c.own {
		if mr != nil {
			c.own[i] = nil
			t.mesh.keep(mr)
		}
	}
	for _, b := range []Buffer{c.in, c.out} {
		if b.Mem != nil && b.MR == nil {
			t.mesh.pin(b.Mem)
		}
	}
	t.machine.unbind()
	c.in, c.out, c.reduction = Buffer{}, Buffer{}, kernel.Reduction{}
	c.registered = false
	err := &Error{Op: c.call.Kind.String(), Rank: t.rank, Peer: peer, Err: cause}
	t.state = err
	return err
}
