package coll

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/gorun-mpi/gorun/internal/kernel"
	"github.com/gorun-mpi/gorun/rdma"
)

// A Buffer is an operand of a call.
type Buffer struct {
	Mem []byte
	// MR is a region that contains Mem, of the mesh's PD and with remote read and write
	// access. nil is ordinary memory. A region without these rights is treated as nil.
	MR rdma.MR
}

// An invocation is a call while it runs.
type invocation struct {
	call      Call
	reduction kernel.Reduction
	in, out   Buffer // kept here so that they live, and on the heap
	sends     []Part // of the kinds that have parts
	recvs     []Part
	parts     plan   // compiled for this call, where the kind has parts
	lengths   [2]int // of in and out
	shares    bool   // they overlap, out shift bytes behind in (Exchange)
	shift     uint64
	aliased   bool // it is in place because both are the same memory
	keys      [operands]key
	own       [operands]rdma.MR // registered for this call

	registered bool // own has some
	outcome    outcome
	misses     uint
	clock      time.Time // when the wait looked at the clock last
	slow       bool      // and that it had not for long
	looked     time.Time // when it looked at the peers last
	stuck      int       // how often it did since the last step
	still      time.Time // when it did so first
	err        *Error

	helped bool      // the caller, or a daemon, has made a step of it
	lent   bool      // the daemon has it
	record int       // on the desk
	since  time.Time // it was lent
}

// A key is how peers and the device name an operand.
type key struct {
	addr       uint64
	lkey, rkey uint32
	access     rdma.Access // for peers that map it, 0: they cannot
}

// enter begins a call; execute, or leave, ends it.
func (t *Team) enter(kind Kind) error {
	if !t.occupy(busyCall) {
		return &Error{Op: kind.String(), Rank: t.rank, Peer: -1, Err: ErrBusy}
	}
	if t.state == nil {
		return nil
	}
	err := t.state
	t.vacate()
	if err == ErrClosed {
		return &Error{Op: kind.String(), Rank: t.rank, Peer: -1, Err: ErrClosed}
	}
	return err
}

// refuse ends a call before it has begun: the team stays as it is.
func (t *Team) refuse(kind Kind, err error) error {
	t.vacate()
	return &Error{Op: kind.String(), Rank: t.rank, Peer: -1, Err: err}
}

// Run makes a collective call. It returns when this member's part is complete and its buffers may be
// reused. Calls that were started before are complete then too. It allocates nothing in steady state.
func (t *Team) Run(ctx context.Context, a *Args) error {
	if err := t.enter(a.Kind); err != nil {
		return err
	}
	if err := t.prepare(a, &t.own); err != nil {
		return t.refuse(a.Kind, err)
	}
	v := &t.own
	v.lengths[0], v.lengths[1] = len(v.in.Mem), len(v.out.Mem)
	v.aliased = v.call.InPlace && a.Send.Mem != nil && a.Recv.Mem != nil
	err := t.drain(ctx)
	if err == nil {
		t.call = &t.own
		err = t.execute(ctx)
	} else {
		t.own.in, t.own.out = Buffer{}, Buffer{}
	}
	t.vacate()
	return err
}

// Barrier returns when all members have called it.
func (t *Team) Barrier(ctx context.Context) error { return t.Run(ctx, &Args{Kind: Barrier}) }

// execute runs t.call, whose arguments are checked, to its end. The busy flag stays set.
func (t *Team) execute(ctx context.Context) error {
	if err := t.begin(); err != nil {
		return err
	}
	return t.complete(ctx)
}

// begin binds t.call to the machine. An error other than ErrArgument has broken
// the team.
func (t *Team) begin() error {
	c := t.call
	p := t.planOf(c)
	if err := t.bind(p); err != nil {
		if errors.Is(err, ErrArgument) {
			return errors.Join(&Error{Op: c.call.Kind.String(), Rank: t.rank, Peer: -1, Err: err}, t.giveBack())
		}
		return t.breakUp(-1, faultLocal, err)
	}
	t.watch()
	return nil
}

// watch has t.call be waited for.
func (t *Team) watch() {
	t.call.misses, t.call.outcome, t.call.err, t.call.helped = 0, blocked, nil, false
}

// complete drives the machine to the end of t.call, waiting.
func (t *Team) complete(ctx context.Context) error {
	for {
		if err := t.waiter.Wait(ctx, &t.waiting); err != nil {
			return t.breakUp(t.waitsOn(), faultContext, err)
		}
		if err, over := t.outcome(); over {
			return err
		}
	}
}

// waitsOn is the member that t.call waits for, -1 if that is not known.
func (t *Team) waitsOn() int {
	if t.call.lent {
		return -1
	}
	return t.machine.waitsFor()
}

// outcome ends t.call if it is over.
func (t *Team) outcome() (err error, over bool) {
	c := t.call
	switch {
	case c.err != nil:
		return c.err, true
	case c.outcome == failed:
		return t.faults.mismatched(), true
	case c.outcome == ended:
		return t.finish(), true
	}
	return nil, false
}

// waiting is the condition of a team's waits: the machine could make a step.
type waiting struct{ team *Team }

// Ready drives the machine. It is true when there was progress, the call is
// over, or the team is broken.
func (w *waiting) Ready() bool { return w.poll(true) }

// poll is Ready. wide: the process's other traffic advances too.
func (w *waiting) poll(wide bool) bool {
	t := w.team
	if t.step() {
		return true
	}
	c := t.call
	c.misses++
	thorough := t.waiter.Thorough()
	polled := t.waitsForPolled()
	if c.misses%lookMisses != 0 && !c.slow && !thorough {
		if polled {
			t.mesh.poll()
			return t.step()
		}
		return false
	}
	// The look may have brought what the machine needs: a connection, completions. A
	// rank that sleeps now would not see it.
	return t.look(wide) || (thorough || polled) && t.step()
}

// waitsForPolled tells whether what t.call waits for gets here only as this process polls.
func (t *Team) waitsForPolled() bool {
	if !t.remote {
		return false
	}
	at := t.waitsOn()
	return at >= 0 && t.peers[at].polled
}

// step drives the machine and tells whether it could make a step.
func (t *Team) step() (moved bool) {
	c, m := t.call, t.machine
	if c.lent {
		c.helped = true
		return t.offloading.collect()
	}
	before := m.pc
	if c.reduction.ID >= kernel.UserID && c != &t.own {
		c.outcome = t.runProgram()
	} else {
		c.outcome = m.run(t.most)
	}
	if c.outcome == blocked && m.pc == before {
		return false
	}
	c.helped = c.helped || !t.beside
	if c.misses = 0; c.stuck != 0 {
		t.faults.unstick()
	}
	return true
}

// runProgram is the machine's run in a started call that combines by a function of the program. Any
// call of the rank may be the one that steps it, so that a panic there is the started call's own end.
func (t *Team) runProgram() (o outcome) {
	defer func() {
		if v := recover(); v != nil {
			t.call.err, o = t.breakUp(-1, faultPanic, &PanicError{Value: v, Stack: debug.Stack()}), failed
		}
	}()
	return t.machine.run(t.most)
}

const (
	// lookMisses is how many misses there are to one look beyond the word
	// that is waited for. A miss in a thorough poll of the Waiter has one always.
	lookMisses = 8
	// clockMisses are the misses of a wait, some 200 ns, that are too few to
	// look at the clock (30 ns).
	clockMisses = 16
	// lookEvery is how often a wait looks for dead peers and revocations.
	lookEvery = time.Millisecond
	// pollCalls is how many calls that need not wait there are to one look
	// for completions: that none of a call's messages failed may show later.
	pollCalls = 16
)

// look is what a wait does beside polling: completions, the process's other
// traffic, and from time to time whether the peers are well.
func (t *Team) look(wide bool) (broken bool) {
	c := t.call
	// Where all peers are mapped and nothing was posted, a peer's put may
	// still come by TCP: the kernel may forbid it the direct way.
	if t.remote || t.mesh.used.Load() || t.waiter.Thorough() {
		t.mesh.poll()
	}
	if wide && t.progress != nil {
		t.progress()
	}
	if !c.slow && (c.misses < clockMisses || c.misses%lookMisses != 0) {
		return false
	}
	// Where ranks share a CPU, or sleep, a miss may take 10 ms: then every
	// one is looked at, or a dead peer would be noticed after seconds.
	now := time.Now()
	c.slow = now.Sub(c.clock) >= lookEvery
	c.clock = now
	if now.Sub(c.looked) < lookEvery {
		return false
	}
	c.looked = now
	if t.size == 1 {
		return false
	}
	if cause := t.revoked.Load(); cause != nil {
		c.err = t.breakUp(-1, revocation(*cause), *cause)
		return true
	}
	for i := range t.peers {
		if i == t.rank {
			continue
		}
		// Its last words first: they say why.
		if t.faults.hear(i) {
			return true
		}
		if err := t.peers[i].queue.Err(); err != nil {
			c.err = t.breakUp(i, faultLink, err)
			return true
		}
		if t.dead != nil && t.dead(i) {
			c.err = t.breakUp(i, faultDead, ErrPeerDead)
			return true
		}
	}
	if c.stuck++; c.stuck == 1 {
		c.still = now
	}
	if !c.lent && now.Sub(c.still) >= stuckAfter && t.faults.deadlocked() {
		c.outcome = failed
		return true
	}
	return false
}

// bind gives the plan's operands memory and keys.
func (t *Team) bind(p *plan) error {
	c := t.call
	if p.scratch > 0 {
		if err := t.reserve(p.scratch); err != nil {
			return fmt.Errorf("scratch of %d bytes: %w", p.scratch, err)
		}
	}
	var tmp []byte
	if t.scratch != nil {
		tmp = t.scratch.Bytes()
		c.keys[scratch] = key{t.scratch.Addr(), t.scratch.LKey(), t.scratch.RKey(), t.mappable(addressOf(tmp), t.scratch)}
	}
	if p.remote[input] {
		if err := t.name(input, c.in); err != nil {
			return err
		}
	}
	if p.remote[output] {
		if err := t.name(output, c.out); err != nil {
			return err
		}
	}
	t.machine.bind(p, p.fingerprint^marked(c.reduction.ID), c.in.Mem, c.out.Mem, tmp, c.reduction.Func)
	return nil
}

// reserve has the scratch hold n bytes. Nothing is on its way into it between
// calls: what peers wrote there was awaited.
func (t *Team) reserve(n int) error {
	if t.scratch != nil && t.scratch.Len() >= uint64(n) {
		return nil
	}
	size := 64 << 10
	for size < n {
		size *= 2
	}
	mr, err := t.mesh.pd.AllocMR(size, rdma.AccessLocalWrite|reachable)
	if err != nil {
		return err
	}
	old := t.scratch
	t.scratch = mr
	if old != nil {
		return old.Close()
	}
	return nil
}

// reachable is what peers may do with the operands of a call.
const reachable = rdma.AccessRemoteWrite | rdma.AccessRemoteRead

// name finds the keys of an operand: those of its region, of the region of the
// whole address space, or of one made for this call.
func (t *Team) name(o operand, b Buffer) error {
	c := t.call
	mr := b.MR
	if mr != nil && mr.Access()&reachable != reachable {
		if !within(b) {
			return badf("%s buffer does not lie in its region", operandNames[o])
		}
		mr = nil
	}
	if mr == nil {
		mr = t.odp
	}
	if mr == nil || mr.Access()&reachable != reachable {
		var err error
		mr, err = t.mesh.pd.RegMR(b.Mem, rdma.AccessLocalWrite|reachable)
		if err != nil {
			return fmt.Errorf("register %d bytes: %w", len(b.Mem), err)
		}
		c.own[o], c.registered = mr, true
	}
	k := key{addr: addressOf(b.Mem), lkey: mr.LKey(), rkey: mr.RKey()}
	k.access = t.mappable(k.addr, mr)
	if whole := mr.Bytes(); whole != nil {
		off := k.addr - addressOf(whole)
		if !within(Buffer{b.Mem, mr}) {
			return badf("%s buffer does not lie in its region", operandNames[o])
		}
		k.addr = mr.Addr() + off
	}
	c.keys[o] = k
	return nil
}

// within tells whether a buffer lies in its region.
func within(b Buffer) bool {
	whole, at := b.MR.Bytes(), addressOf(b.Mem)
	off := at - addressOf(whole)
	return whole == nil || at >= addressOf(whole) && off+uint64(len(b.Mem)) <= uint64(len(whole))
}

// finish ends a call that succeeded.
func (t *Team) finish() error {
	if !t.call.helped {
		t.machine.count.Beside++
	}
	if t.machine.count.Calls++; t.machine.count.Calls%pollCalls == 0 && t.mesh.used.Load() {
		t.mesh.poll()
	}
	if t.mesh.hurt.Load() {
		for i := range t.peers {
			if i != t.rank && t.peers[i].queue.Err() != nil {
				return t.breakUp(i, faultLink, t.peers[i].queue.Err())
			}
		}
	}
	if err := t.giveBack(); err != nil {
		return t.breakUp(-1, faultLocal, err)
	}
	if t.size > crowd && t.offloading.lent == 0 && t.scratch != nil && t.scratch.Len() > keptScratch {
		old := t.scratch
		t.scratch = nil
		if err := old.Close(); err != nil {
			return t.breakUp(-1, faultLocal, err)
		}
	}
	return nil
}

// giveBack forgets the operands and closes what bind registered for them.
func (t *Team) giveBack() error {
	c := t.call
	t.machine.unbind()
	c.in.Mem, c.in.MR, c.out.Mem, c.out.MR = nil, nil, nil, nil
	// Calls without a reduction are marked by none.
	c.reduction.Func, c.reduction.ID = nil, 0
	if !c.registered {
		return nil
	}
	c.registered = false
	var errs []error
	for i, mr := range c.own {
		if mr != nil {
			c.own[i] = nil
			errs = append(errs, mr.Close())
		}
	}
	return errors.Join(errs...)
}
