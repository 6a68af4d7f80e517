package coll

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/gorun-mpi/gorun/internal/arch"
	"github.com/gorun-mpi/gorun/internal/kernel"
)

// A Short is a call that [Team.Run] has made, with its checked arguments and its looked-up
// plan, which needs only messages. [Team.RunShort] repeats it with other operands, at a fourth
// of the cost that Run has before it waits. It belongs to the team, which makes each once.
//
// RunShort takes the steps of the plan on the channels of the machine. If a step is
// blocked for longer than a short spin, or finds an error, the machine continues at
// this step: only the machine handles long waits, contexts, faults and other traffic.
type Short struct {
	team      *Team
	plan      *plan
	moves     []move // one for each step of the plan
	mark      uint32 // the messages' fingerprint, but for their lengths
	reduction kernel.Reduction
	in, out   int  // lengths of the operands
	shares    bool // they overlap, out shift bytes behind in: no part of an Exchange does
	shift     uint64
	runs      uint64 // that are not counted yet
	next      *Short // of the plan
}

// A move is a step with what it concerns looked up.
type move struct {
	verb    verb
	release bool
	n       int
	mark    uint32   // of the message that is sent or awaited, its fingerprint
	channel *channel // of the message that is sent, awaited or given back
	to      int      // the channel's peer
	peer    *peer
	lane    int // where the peer's ring in our region begins
	dst     loc
	a, b    loc
}

// Short is the short form of the last call of Run, with reduction r; nil if it has none.
func (t *Team) Short(r *kernel.Reduction) *Short {
	v := &t.own
	if t.state != nil || v.call.Kind == 0 || v.call.Kind == farewell || operations[v.call.Kind].parts != nil || v.aliased {
		return nil
	}
	p := t.cache.plan(&v.call, t.tuning)
	for s := p.shorts; s != nil; s = s.next {
		if s.reduction.ID == r.ID {
			return s
		}
	}
	if p.long {
		return nil
	}
	if !t.messagesOnly(p) {
		p.long = true
		return nil
	}
	s := &Short{team: t, plan: p, mark: p.fingerprint ^ marked(r.ID), reduction: *r, in: v.lengths[0], out: v.lengths[1]}
	s.compile()
	s.next, p.shorts = p.shorts, s
	t.cache.shorts = append(t.cache.shorts, s)
	return s
}

// HasShort tells whether the last call of Run, an [Exchange], has a short form.
func (t *Team) HasShort() bool {
	v := &t.own
	return t.state == nil && v.call.Kind == Exchange && len(v.parts.steps) <= cacheSteps/16 && t.messagesOnly(&v.parts)
}

// ShortExchange is the short form of the last call of Run, an [Exchange]; nil if it has none. No cache keeps the
// plan of an Exchange, so the form has one of its own, in the memory of old if that is not nil: another form
// that ShortExchange has made for this team, which is not used any more. RunShort repeats the call with the same
// parts of other memory. Its peers get the messages that Run would send them, so they need not do the same again.
func (t *Team) ShortExchange(old *Short) *Short {
	v, c := &t.own, &t.cache
	p := &v.parts
	if !t.HasShort() {
		return nil
	}
	s := old
	if s != nil && s.team == t {
		c.count()
		c.steps -= len(s.plan.steps)
	} else {
		s = &Short{team: t, plan: new(plan)}
		c.shorts = append(c.shorts, s)
	}
	steps := append(s.plan.steps[:0], p.steps...)
	*s.plan = *p
	s.plan.steps = steps
	s.mark, s.in, s.out, s.shares, s.shift = p.fingerprint, v.lengths[0], v.lengths[1], v.shares, v.shift
	if c.steps += len(steps); c.steps > cacheSteps {
		c.forget()
		return nil
	}
	s.compile()
	return s
}

// messagesOnly tells whether a plan needs only messages, to members that can be reached.
func (t *Team) messagesOnly(p *plan) bool {
	for i := range p.steps {
		s := &p.steps[i]
		switch s.verb {
		case vSend, vAwait, vTake, vRelease, vCopy, vReduce:
		default:
			return false
		}
		if max(s.dst.operand, s.a.operand, s.b.operand) >= exposed0 {
			return false
		}
		if at := s.changes(); at == t.rank || at >= 0 && t.peers[at].maps && !t.reach(at) {
			return false
		}
	}
	return true
}

// compile makes the moves.
func (s *Short) compile() {
	t := s.team
	s.moves = slices.Grow(s.moves[:0], len(s.plan.steps))[:len(s.plan.steps)]
	for i := range s.plan.steps {
		x, v := &s.plan.steps[i], &s.moves[i]
		*v = move{verb: x.verb, release: x.release, n: x.n, mark: s.mark ^ x.mark, dst: x.dst, a: x.a, b: x.b}
		if peer := x.changes(); peer >= 0 {
			v.channel, v.to, v.peer, v.lane = &t.machine.channels[peer], peer, &t.peers[peer], t.layout.header(peer, 0)
		}
	}
}

// shortSpin is how many times RunShort looks for a message before it hands over, about
// a microsecond.
const shortSpin = 64

// shortPolls is how many times it polls for one that comes no other way, each of which takes a
// microsecond or less.
const shortPolls = 16

// pollFor polls until word has the message next, but not for long, and gives what it read last. Ranks that share their
// CPUs leave it to the machine, which yields.
func (t *Team) pollFor(word *uint64, next uint16) (h uint64) {
	if t.waiter.Crowded() || t.waiter.Scheduled() {
		return 0
	}
	for range shortPolls {
		t.mesh.poll()
		if h = atomic.LoadUint64(word); sequenceOf(h) == next {
			break
		}
	}
	return h
}

// RunShort repeats the call of s, with the function of the reduction. If done is false
// nothing was done, and the caller must call Run: the team is in use or broken, or the
// operands overlap as they did not before. No other goroutine may use the team meanwhile, not even for Progress.
func (t *Team) RunShort(ctx context.Context, s *Short, send, recv []byte, combine kernel.Func) (done bool, err error) {
	if s.team != t || atomic.LoadUint32(&t.busy) != busyNot || t.state != nil || !t.backlog.empty() || t.mesh.hurt.Load() || len(send) < s.in || len(recv) < s.out {
		return false, nil
	}
	var mem [scratch + 1][]byte
	if s.in > 0 {
		mem[input] = send[:s.in]
	}
	if s.out > 0 {
		mem[output] = recv[:s.out]
		if shared, _ := overlap(mem[input], mem[output]); shared && (!s.shares || addressOf(mem[output])-addressOf(mem[input]) != s.shift) {
			return false, nil
		}
	}
	if s.plan.scratch > 0 {
		if t.scratch == nil || t.scratch.Len() < uint64(s.plan.scratch) {
			return false, nil
		}
		mem[scratch] = t.scratch.Bytes()
	}
	m := t.machine
	stride, mask := t.layout.stride, uint16(m.slots-1) // message n is in slot n-1, as slotOf has it
	for pc := range s.moves {
		v := &s.moves[pc]
		c := v.channel
		switch v.verb {
		case vSend:
			if int(c.sent-c.credited) >= m.slots {
				return true, t.handOver(ctx, s, pc, false, &mem, combine)
			}
			p := v.peer
			if p.words == nil {
				var payload []byte
				if v.n > 0 {
					payload = t.short(&mem, &v.a, v.n)
				}
				if !(*wire)(t).post(v.to, int(c.sent&mask), payload, c.header(v.mark)) {
					return true, t.handOver(ctx, s, pc, false, &mem, combine)
				}
				c.posted()
				continue
			}
			at := ringOffset + int(c.sent&mask)*stride
			if v.n > 0 {
				store(p.bytes[at+headerLen:], t.short(&mem, &v.a, v.n))
			}
			arch.StoreRelease64(&p.words[at/8], c.header(v.mark))
			p.memory.Notify()
			c.posted()
		case vAwait, vTake:
			next := c.awaited + 1
			word := &t.words[(v.lane+int(c.awaited&mask)*stride)/8]
			h := atomic.LoadUint64(word)
			if sequenceOf(h) != next {
				if v.peer.polled {
					h = t.pollFor(word, next)
				} else {
					h = t.waiter.Spin(word, sequenceBits, sequenced(next), shortSpin)
				}
				if sequenceOf(h) != next {
					return true, t.handOver(ctx, s, pc, false, &mem, combine)
				}
			}
			if fingerprintOf(h) != v.mark {
				return true, t.handOver(ctx, s, pc, false, &mem, combine)
			}
			c.awaited = next
			c.credit(creditOf(h))
			if v.verb == vTake && !m.giveBack(v) {
				return true, t.handOver(ctx, s, pc, true, &mem, combine)
			}
		case vCopy:
			copy(t.short(&mem, &v.dst, v.n), t.short(&mem, &v.a, v.n))
			if v.release && !m.giveBack(v) {
				return true, t.handOver(ctx, s, pc, true, &mem, combine)
			}
		case vReduce:
			combine(t.short(&mem, &v.dst, v.n), t.short(&mem, &v.a, v.n), t.short(&mem, &v.b, v.n))
			if v.release && !m.giveBack(v) {
				return true, t.handOver(ctx, s, pc, true, &mem, combine)
			}
		case vRelease:
			if !m.giveBack(v) {
				return true, t.handOver(ctx, s, pc, false, &mem, combine)
			}
		}
	}
	if s.runs++; s.runs%pollCalls == 0 && t.mesh.used.Load() {
		t.mesh.poll()
	}
	return true, nil
}

// short is the machine's at for a call that is not bound to it.
func (t *Team) short(mem *[scratch + 1][]byte, l *loc, n int) []byte {
	if l.operand == slot {
		at := t.layout.payload(int(l.peer), t.machine.slotOf(t.machine.channels[l.peer].awaited)) + l.off
		return t.bytes[at : at+n : at+n]
	}
	return mem[l.operand][l.off : l.off+n : l.off+n]
}

// giveBack is release; false: blocked.
func (m *machine) giveBack(v *move) bool {
	c := v.channel
	if owed := c.awaited - c.told; int(owed) >= m.slots/2 {
		return m.release(v.to) == moved
	}
	c.taken = c.awaited
	return true
}

// handOver has the machine go on with a short call at step pc, to its end. done: the step
// is done but for giving slots back.
func (t *Team) handOver(ctx context.Context, s *Short, pc int, done bool, mem *[scratch + 1][]byte, combine kernel.Func) error {
	if !t.occupy(busyCall) {
		return &Error{Op: s.plan.call.Kind.String(), Rank: t.rank, Peer: -1, Err: ErrBusy}
	}
	v, m := &t.own, t.machine
	t.call = v
	v.call = s.plan.call
	v.in, v.out = Buffer{Mem: mem[input]}, Buffer{Mem: mem[output]}
	v.reduction = s.reduction
	v.reduction.Func = combine
	v.misses, v.outcome, v.err = 0, blocked, nil
	m.bind(s.plan, s.mark, mem[input], mem[output], mem[scratch], combine)
	m.pc, m.done = pc, done
	m.count.add(s.plan.steps[:pc], 1)
	err := t.complete(ctx)
	t.vacate()
	return err
}

// count adds what the short calls did to the counters.
func (c *cache) count() {
	for _, s := range c.shorts {
		c.total.add(s.plan.steps, s.runs)
		c.total.Calls += s.runs
		s.runs = 0
	}
}

// add counts steps of a short call that were made so many times.
func (c *Counters) add(steps []step, times uint64) {
	for i := range steps {
		s := &steps[i]
		n := uint64(s.n) * times
		switch s.verb {
		case vSend:
			c.Signals += times
			if s.n > 0 {
				c.Puts += times
				c.PutBytes += n
			}
		case vCopy:
			if s.a.operand == slot {
				c.Unpacks += times
				c.UnpackBytes += n
			} else {
				c.Copies += times
				c.CopyBytes += n
			}
		case vReduce:
			c.Reductions += times
			c.ReduceBytes += n
		}
	}
}

// store puts a message's payload into its slot, the bytes on the header's line last:
// a rank that looks at the header takes the line away from the writer, which would have to get
// it back for the header behind the others.
func store(to, payload []byte) {
	const near = line - headerLen
	if len(payload) > near {
		copy(to[near:], payload[near:])
		payload = payload[:near]
	}
	copy(to, payload)
}
