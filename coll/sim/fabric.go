package sim

import (
	"fmt"

	"github.com/gorun-mpi/gorun/coll"
)

// A Config is a fabric: Hosts with PerHost ranks each, rank r on host r / PerHost.
type Config struct {
	Hosts, PerHost int
	Params
	Table *coll.Table // nil: the built-in one
	// All has every rank simulated by itself, even where one host's could stand for all.
	All bool
	// Inputs are each rank's send buffer. With them data moves as the plans say, and
	// Combine is the reduction. nil: only time passes.
	Inputs  [][]byte
	Output  int  // bytes of each rank's receive buffer
	Vectors bool // which begins as the input, as a broadcast's does
	Combine func(dst, a, b []byte)
}

// A Result is what a call took.
type Result struct {
	Call    coll.Call // with the algorithm that was selected
	Time    Time      // until the last rank was through
	Ends    []Time    // of each simulated rank
	Outputs [][]byte  // where there were Inputs
	// Simulated is how many ranks were; if these are one host's and stand for all, Compared is
	// with how many others' plans theirs were compared.
	Simulated, Compared int
	Events              uint64
	Counters            coll.Counters // of all ranks, but for the numbers of copies
	Scratch             int           // the most that a rank needs
}

// A fabric is a run. What passes between two members is a channel at each of them.
type fabric struct {
	cfg     Config
	call    coll.Call
	plans   *coll.Planner
	size    int
	slots   uint16
	members []member // all, or those of the first host
	in, out []Time   // when each host's port is free again
	queue   queue
	result  Result

	compiled int // steps
}

// A member is one rank.
type member struct {
	program
	pc       int
	at       Time
	blocked  int32 // the channel that it waits at, -1: none
	numbers  map[int32]int32
	channels []channel
	memory   [5][]byte // by coll.Operand, where data moves
}

// A channel is a member's side of its two channels with a peer; coll's channel.go explains
// the counters.
type channel struct {
	sent, credited, arrived, awaited, taken, told uint16

	gets  int32 // under way
	until Time  // when the memory of all puts is free
	data  *contents
}

// Run makes a call on a fabric. Call.Algorithm may be Auto; Size and Rank are ignored.
func Run(cfg Config, call coll.Call) (Result, error) {
	if cfg.Hosts < 1 || cfg.PerHost < 1 || cfg.Hosts*cfg.PerHost > 1<<20 {
		return Result{}, fmt.Errorf("%d hosts of %d ranks, expected 1 to %d ranks", cfg.Hosts, cfg.PerHost, 1<<20)
	}
	if err := cfg.Params.validate(); err != nil {
		return Result{}, err
	}
	f := &fabric{cfg: cfg, size: cfg.Hosts * cfg.PerHost}
	if cfg.Inputs != nil && len(cfg.Inputs) != f.size {
		return Result{}, fmt.Errorf("%d inputs for %d ranks", len(cfg.Inputs), f.size)
	}
	var err error
	if f.plans, err = coll.NewPlanner(f.size, func(r int) int { return r / cfg.PerHost }, cfg.Table); err != nil {
		return Result{}, err
	}
	if f.call, err = f.plans.Select(call); err != nil {
		return Result{}, err
	}
	f.slots = uint16(f.plans.Slots())
	f.enlist()
	if err := f.run(); err != nil {
		return Result{}, err
	}
	return f.result, nil
}

// enlist makes the members.
func (f *fabric) enlist() {
	r := &f.result
	var programs []program
	ok := false
	if !f.cfg.All && f.cfg.Inputs == nil && f.cfg.Hosts > 1 {
		programs, r.Compared, ok = f.symmetric()
	}
	if !ok {
		programs = make([]program, f.size)
		for i := range programs {
			programs[i] = f.compile(i, f.cfg.Inputs != nil)
		}
	}
	r.Call, r.Simulated = f.call, len(programs)
	r.Call.Rank = 0
	f.members = make([]member, len(programs))
	f.in, f.out = make([]Time, len(programs)/f.cfg.PerHost), make([]Time, len(programs)/f.cfg.PerHost)
	for i := range f.members {
		m := &f.members[i]
		*m = member{program: programs[i], blocked: -1, channels: make([]channel, len(programs[i].peers)), numbers: make(map[int32]int32, len(programs[i].peers))}
		for c, peer := range m.peers {
			m.numbers[peer] = int32(c)
		}
		r.Scratch = max(r.Scratch, m.scratch)
		if f.cfg.Inputs != nil {
			f.equip(m, i)
		}
		f.queue.push(event{kind: resume, to: int32(i), tie: f.tie(resume, int32(i), int32(i))})
	}
}

// host is the port of a member; there is one host where its members stand for all.
func (f *fabric) host(member int32) int32 { return member / int32(f.cfg.PerHost) }

// meet says what member of those that are simulated stands for peer, and which peer from
// is to that one.
func (f *fabric) meet(from, peer int32) (to, seen int32) {
	to = peer % int32(len(f.members))
	return to, (from + to - peer + int32(f.size)) % int32(f.size)
}

// near tells whether a peer is on the member's host.
func (f *fabric) near(from, peer int32) bool { return f.host(from) == f.host(peer) }

// run lets events happen until all members are through.
func (f *fabric) run() error {
	for len(f.queue.heap) > 0 {
		e := f.queue.pop()
		f.result.Events++
		switch e.kind {
		case resume:
			f.step(e.to, e.at)
		case head:
			port := &f.in[f.host(e.to)]
			start := max(e.at, *port)
			end := start + Time(e.n)*f.cfg.Network.PerByte
			*port = max(end, start+f.cfg.Network.Gap)
			e.at, e.kind = end, land
			e.tie = f.tie(land, e.to, e.from)
			f.queue.push(e)
		case request:
			f.transmit(e.to, e.from, e.at, e.n, event{kind: head, what: answer, n: e.n, load: e.load})
		case land:
			f.land(&e)
		}
	}
	return f.finish()
}

// finish sums up.
func (f *fabric) finish() error {
	r := &f.result
	times := uint64(f.size / len(f.members))
	for i := range f.members {
		m := &f.members[i]
		if m.pc < len(m.ops) {
			o := m.ops[m.pc]
			return fmt.Errorf("%v: rank %d waits at op %d of %d for rank %d for ever (verb %d)", f.call, i, m.pc, len(m.ops), m.peers[o.channel], o.verb)
		}
		r.Ends = append(r.Ends, m.at)
		r.Time = max(r.Time, m.at)
		for range times {
			r.Counters.Add(m.count)
		}
		if f.cfg.Inputs != nil {
			r.Outputs = append(r.Outputs, m.memory[coll.OperandOutput])
		}
	}
	return nil
}

// step lets a member go on until it is blocked, or another event is due before its next op.
func (f *fabric) step(number int32, now Time) {
	m := &f.members[number]
	for m.pc < len(m.ops) {
		if m.at > now && f.queue.before(m.at) {
			f.queue.push(event{at: m.at, kind: resume, to: number, tie: f.tie(resume, number, number)})
			return
		}
		o := &m.ops[m.pc]
		if o.verb == local {
			m.at += Time(o.n)
			f.compute(m, o)
			m.pc++
			continue
		}
		c := &m.channels[o.channel]
		if !f.make(number, m, o, c) {
			m.blocked = o.channel
			return
		}
		m.pc++
	}
}

// make makes an op of a channel, if it can be made now.
func (f *fabric) make(number int32, m *member, o *op, c *channel) bool {
	peer := m.peers[o.channel]
	switch o.verb {
	case send:
		if c.sent-c.credited >= f.slots {
			return false
		}
		f.message(number, c, peer, message, o.n, f.payload(m, o))
	case put:
		if o.signal && c.sent-c.credited >= f.slots {
			return false
		}
		what := write
		if o.signal {
			what = message
		}
		done := f.message(number, c, peer, what, o.n, f.written(m, o, c))
		c.until = max(c.until, done)
	case get:
		f.get(number, m, c, peer, o)
	case await:
		if c.arrived == c.awaited {
			return false
		}
		c.awaited++
		m.at += f.link(number, peer).Overhead
		f.take(m, o, c)
	case release:
		if owed := c.awaited - c.told; owed >= f.slots/2 {
			c.taken = c.awaited
			f.message(number, c, peer, credit, 0, nil)
			m.count.Credits++
		}
		c.taken = c.awaited
	case flush:
		if c.gets > 0 {
			return false
		}
		m.at = max(m.at, c.until)
	}
	return true
}

func (f *fabric) link(member, peer int32) *Link {
	if f.near(member, peer) {
		return &f.cfg.Memory
	}
	return &f.cfg.Network
}

// message sends n bytes, and a header if the peer is to notice. It returns when the memory of
// the bytes is free again: copied, or acknowledged by a receiver whose port was free.
func (f *fabric) message(number int32, c *channel, peer int32, w what, n int, load *load) Time {
	m := &f.members[number]
	if w != write {
		n += coll.HeaderBytes
		c.told = c.taken
	}
	if w == message {
		c.sent++
	}
	l := f.link(number, peer)
	m.at += l.Overhead
	e := event{kind: head, what: w, credit: c.taken, n: n, load: load}
	if !f.near(number, peer) {
		return f.transmit(number, peer, m.at, n, e) + 2*l.Latency
	}
	m.at += max(Time(n)*l.PerByte, l.Gap-l.Overhead)
	e.kind = land
	f.schedule(number, peer, m.at+l.Latency, e)
	return m.at
}

// transmit has n bytes that are ready at a time leave by the port of a member's host, and an
// event happen where they begin to arrive. It returns when they have left.
func (f *fabric) transmit(from, peer int32, ready Time, n int, e event) Time {
	l := &f.cfg.Network
	port := &f.out[f.host(from)]
	start := max(ready, *port)
	end := start + Time(n)*l.PerByte
	*port = max(end, start+l.Gap)
	f.schedule(from, peer, start+l.Latency, e)
	return end
}

// get reads n bytes of a peer's memory: by the CPU, or by a request that the peer's port
// answers without its CPU.
func (f *fabric) get(number int32, m *member, c *channel, peer int32, o *op) {
	l := f.link(number, peer)
	m.at += l.Overhead
	load := f.wanted(m, o, c)
	if f.near(number, peer) {
		m.at += Time(o.n) * l.PerByte
		load.move()
		return
	}
	c.gets++
	f.transmit(number, peer, m.at, coll.HeaderBytes, event{kind: request, n: o.n, load: load})
}

// land is the arrival of all bytes of an event.
func (f *fabric) land(e *event) {
	m := &f.members[e.to]
	number, known := m.numbers[e.from]
	if !known {
		panic("sim: a rank hears of one that its plan does not know")
	}
	c := &m.channels[number]
	e.load.move()
	switch e.what {
	case message:
		c.arrived++
		c.credit(e.credit)
		if c.data != nil {
			c.data.arrived = append(c.data.arrived, e.load)
		}
	case credit:
		c.credit(e.credit)
	case answer:
		c.gets--
	}
	if m.blocked == number {
		m.blocked = -1
		m.at = max(m.at, e.at)
		f.step(e.to, e.at)
	}
}

// credit takes in what the peer says it has taken.
func (c *channel) credit(taken uint16) {
	if taken-c.credited <= c.sent-c.credited {
		c.credited = taken
	}
}
