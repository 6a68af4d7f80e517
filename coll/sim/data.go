package sim

import "github.com/gorun-mpi/gorun/coll"

// Data. Where a run has inputs, bytes move as the plan's steps say and at the fabric's times: a
// message and a put take a copy along, a get reads its source when it lands.

// contents is what a channel has of its peer in such a run.
type contents struct {
	arrived []*load // messages that were not awaited yet
	held    []byte  // the message that was
	known   [2][]byte
}

// A load is what an event has besides its length.
type load struct {
	message    []byte
	shows      [2][]byte // of a message that exposes memory
	index      uint8
	to, source []byte // of a put or a get
}

// equip gives a member memory.
func (f *fabric) equip(m *member, rank int) {
	m.memory[coll.OperandInput] = f.cfg.Inputs[rank]
	m.memory[coll.OperandOutput] = make([]byte, f.cfg.Output)
	if f.cfg.Vectors && rank == f.call.Root {
		copy(m.memory[coll.OperandOutput], f.cfg.Inputs[rank])
	}
	m.memory[coll.OperandScratch] = make([]byte, m.scratch)
	for i := range m.channels {
		m.channels[i].data = new(contents)
	}
}

// place is n bytes of an operand.
func (m *member) place(p coll.Place, n int) []byte {
	if p.Operand == coll.OperandSlot {
		return m.channels[m.numbers[p.Peer]].data.held[p.Off : p.Off+n]
	}
	return m.memory[p.Operand][p.Off : p.Off+n]
}

// compute copies or combines.
func (f *fabric) compute(m *member, o *op) {
	if m.steps == nil {
		return
	}
	s := &m.steps[o.step]
	if s.Verb == coll.VerbCopy {
		copy(m.place(s.Dst, s.N), m.place(s.A, s.N))
		return
	}
	f.cfg.Combine(m.place(s.Dst, s.N), m.place(s.A, s.N), m.place(s.B, s.N))
}

// payload is what a message takes along.
func (f *fabric) payload(m *member, o *op) *load {
	if m.steps == nil {
		return nil
	}
	s := &m.steps[o.step]
	if s.Verb == coll.VerbExpose {
		l := &load{index: s.Index}
		l.shows[0] = m.place(s.Dst, s.N)
		if s.Pair {
			l.shows[1] = m.place(s.A, s.N)
		}
		return l
	}
	if s.N == 0 {
		return nil
	}
	return &load{message: append([]byte(nil), m.place(s.A, s.N)...)}
}

// written is what a put writes.
func (f *fabric) written(m *member, o *op, c *channel) *load {
	if m.steps == nil {
		return nil
	}
	s := &m.steps[o.step]
	return &load{to: c.data.known[s.Index][s.Dst.Off : s.Dst.Off+s.N], source: append([]byte(nil), m.place(s.A, s.N)...)}
}

// wanted is what a get reads.
func (f *fabric) wanted(m *member, o *op, c *channel) *load {
	if m.steps == nil {
		return nil
	}
	s := &m.steps[o.step]
	return &load{to: m.place(s.Dst, s.N), source: c.data.known[s.Index][s.A.Off : s.A.Off+s.N]}
}

// move is what a put or a get does when it lands.
func (l *load) move() {
	if l != nil {
		copy(l.to, l.source)
	}
}

// take is the await of a message.
func (f *fabric) take(m *member, o *op, c *channel) {
	if m.steps == nil {
		return
	}
	l := c.data.arrived[0]
	c.data.arrived = c.data.arrived[1:]
	c.data.held = nil
	if s := &m.steps[o.step]; s.Verb == coll.VerbLearn {
		c.data.known[s.Index] = l.shows[0]
		if s.Pair {
			c.data.known[1] = l.shows[1]
		}
	} else if l != nil {
		c.data.held = l.message
	}
}
