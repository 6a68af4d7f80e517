// Package agree is how the members of a communicator agree on a [Value] although some of them die on the way. It
// is data and rules: messages and news of deaths go in, messages come out, and nothing waits.
//
// A coordinator, which is the first member that lives, asks all:
//
//	member --Report: own value, what it has accepted--> coordinator
//	coordinator, when all that live have reported: --Propose: the value--> all
//	member --Accept--> coordinator
//	coordinator, when all that live have accepted: --Decide--> all
//
// It takes four messages one after the other and 4(n-1) in all. When the coordinator dies, members report anew to the
// next one, which also asks (Query) those that have left the agreement. It must propose what any of them has
// accepted: of several values the one of the latest coordinator. A decision was accepted by all that lived, so
// whoever coordinates next proposes the same, also where only the dead have returned with it (uniform agreement).
// Members promise a coordinator, by their report, to accept nothing of an earlier one any more.
//
// A member may be one agreement ahead of another: its messages carry the decision before, which that one takes.
//
// Members that are down are out for ever: a member believes another one's word that a third is down, so that
// all name the same coordinator. One that lives nevertheless, but is out of reach for someone, is told (Outcast), and
// tells all that it has left.
package agree

import (
	"errors"
	"fmt"

	"github.com/gorun-mpi/gorun/internal/pack"
	"github.com/gorun-mpi/gorun/rank/internal/group"
)

// A Value is what members contribute, and agree on: the combination of what those that live have contributed.
type Value struct {
	And    uint64     // bit by bit
	Max    uint64     // the largest
	Failed group.Bits // by index, the members that have failed: what any knows
	Acked  group.Bits // of them, those that all have acknowledged
}

// combine takes another member's contribution into v.
func (v *Value) combine(o *Value, size int) {
	v.And &= o.And
	v.Max = max(v.Max, o.Max)
	v.Failed = union(v.Failed, o.Failed, size)
	acked := make(group.Bits, (size+7)/8)
	for i := range acked {
		if i < len(v.Acked) && i < len(o.Acked) {
			acked[i] = v.Acked[i] & o.Acked[i]
		}
	}
	v.Acked = acked
}

// union is a set with what both have, in its own memory.
func union(a, b group.Bits, size int) group.Bits {
	u := make(group.Bits, (size+7)/8)
	copy(u, a)
	for i := range min(len(b), len(u)) {
		u[i] |= b[i]
	}
	return u
}

type kind uint8

const (
	report kind = iota + 1
	query
	propose
	accept
	decide
	outcast
	left
	kinds
)

// A message of one member to another. Ballot is the coordinator's index.
type message struct {
	kind     kind
	number   uint64 // of the agreement, from 1
	ballot   int
	down     group.Bits
	value    Value // report: the own; propose, decide: the common one
	accepted int   // report: the ballot whose value was accepted, -1: none
	old      Value // report: what was accepted
	before   Value // of the agreement before
}

// A Machine is a member's part in the agreements of one communicator.
type Machine struct {
	size, self int
	send       func(to int, message []byte)

	down    group.Bits
	outcast bool

	number uint64 // of the agreement under way, or the next one
	last   Value  // the one before's
	state
}

// state is that of one agreement.
type state struct {
	entered  bool
	own      Value
	reported int // to which coordinator, and 1
	promised int // accepts nothing of coordinators before this one
	accepted int // whose value was accepted, and 1
	value    Value

	// Of the coordinator.
	reports  []*message // by member
	asked    bool
	proposed bool
	accepts  group.Bits
}

// New makes a member's machine. send must not call it.
func New(size, self int, send func(to int, message []byte)) *Machine {
	return &Machine{size: size, self: self, send: send, number: 1}
}

// Begin contributes to the next agreement, and gives its number; Decided tells how it ends: with ErrOutcast for a
// member that was out before. The one before is over.
func (m *Machine) Begin(own Value) uint64 {
	switch {
	case m.outcast:
		return m.number
	case m.entered:
		panic("agree: Begin before the agreement before is over")
	}
	m.entered, m.own = true, own
	number := m.number
	m.advance()
	return number
}

// ErrOutcast is what a member ends with that the others have taken for dead, and gone on without.
var ErrOutcast = errors.New("the others took this rank for dead, as one of them could not reach it, and have gone on without it")

// Decided is the outcome of an agreement that Begin has given the number of, the latest; false: it is not known yet.
func (m *Machine) Decided(number uint64) (Value, bool, error) {
	switch {
	case number < m.number:
		return m.last, true, nil
	case m.outcast:
		return Value{}, true, ErrOutcast
	}
	return Value{}, false, nil
}

// Running tells whether the member has entered an agreement that is not decided.
func (m *Machine) Running() bool { return m.entered && !m.outcast }

// Awaits calls f for the members whose death the machine must be told of now.
func (m *Machine) Awaits(f func(member int)) {
	if !m.Running() {
		return
	}
	first := m.first()
	if first != m.self {
		f(first)
		return
	}
	for i := range m.size {
		if i != m.self && !m.down.Has(i) && !m.has(i) {
			f(i)
		}
	}
}

// has tells whether the coordinator has a member's report, or its acceptance.
func (m *Machine) has(member int) bool {
	if m.proposed {
		return m.accepts.Has(member)
	}
	return m.reports != nil && m.reports[member] != nil
}

// Down says that a member is down.
func (m *Machine) Down(member int) {
	if member != m.self && !m.down.Has(member) {
		m.down = m.down.With(member, m.size)
		m.advance()
	}
}

// IsDown tells whether a member is known to be down.
func (m *Machine) IsDown(member int) bool { return m.down.Has(member) }

// first is the coordinator.
func (m *Machine) first() int {
	for i := range m.size {
		if i == m.self || !m.down.Has(i) {
			return i
		}
	}
	return m.self
}

// advance does what can be done.
func (m *Machine) advance() {
	if !m.Running() {
		return
	}
	first := m.first()
	m.promised = max(m.promised, first)
	if first != m.self {
		if m.reported != first+1 {
			m.reported = first + 1
			m.report(first)
		}
		return
	}
	if m.self > 0 && !m.asked {
		// Some may have left the agreement with a decision of the one before.
		m.asked = true
		m.tell(&message{kind: query}, func(i int) bool { return !m.has(i) })
	}
	for i := range m.size {
		if i != m.self && !m.down.Has(i) && !m.has(i) {
			return
		}
	}
	if !m.proposed {
		m.propose()
		for i := range m.size {
			if i != m.self && !m.down.Has(i) {
				return
			}
		}
	}
	m.decided(m.value)
}

// propose chooses the value.
func (m *Machine) propose() {
	latest := m.accepted
	v := m.value
	if latest == 0 {
		v = m.own
		v.Failed = union(v.Failed, m.down, m.size)
	}
	for i, r := range m.reports {
		switch {
		case r == nil || m.down.Has(i) && r.accepted < 0:
		case r.accepted >= latest:
			latest, v = r.accepted+1, r.old
		case latest == 0:
			v.combine(&r.value, m.size)
		}
	}
	m.proposed, m.accepted, m.value = true, m.self+1, v
	m.tell(&message{kind: propose, value: v}, nil)
}

// decided ends the agreement, also for those that have reported here and wait. Those that report later are answered.
func (m *Machine) decided(v Value) {
	for i, r := range m.reports {
		if r != nil && !m.down.Has(i) {
			m.tellOne(i, &message{kind: decide, ballot: m.self, value: v})
		}
	}
	m.last = v
	m.number++
	m.state = state{}
}

func (m *Machine) report(to int) {
	r := &message{kind: report, ballot: to, value: m.own, accepted: m.accepted - 1, old: m.value}
	r.value.Failed = union(r.value.Failed, m.down, m.size)
	m.tellOne(to, r)
}

// leave takes the member out, and tells all: some may have reported to it, and not know that others hold it for dead.
func (m *Machine) leave() {
	if m.outcast {
		return
	}
	m.outcast = true
	for i := range m.size {
		if i != m.self {
			m.tellOne(i, &message{kind: left})
		}
	}
}

func (m *Machine) tell(msg *message, which func(int) bool) {
	msg.ballot = m.self
	for i := range m.size {
		if i != m.self && !m.down.Has(i) && (which == nil || which(i)) {
			m.tellOne(i, msg)
		}
	}
}

func (m *Machine) tellOne(to int, msg *message) {
	msg.number, msg.down, msg.before = m.number, m.down, m.last
	m.send(to, msg.pack())
}

// Receive takes a message of a member. An error says that it makes no sense; nothing has changed then.
func (m *Machine) Receive(from int, b []byte) error {
	var msg message
	if err := msg.unpack(b, m.size); err != nil {
		return err
	}
	switch {
	case from < 0 || from >= m.size || from == m.self:
		return fmt.Errorf("a message of member %d, expected one of the other %d members", from, m.size-1)
	case msg.kind == outcast:
		m.leave()
		return nil
	case msg.kind == left:
		m.Down(from)
		return nil
	case msg.number == 0 || msg.number > m.number+1:
		return fmt.Errorf("a message of member %d in agreement %d, expected %d or %d", from, msg.number, m.number, m.number+1)
	case m.down.Has(from) && msg.kind != decide || msg.down.Has(m.self):
		// Of one that is down, what it had accepted is in no report that counts. But what it had decided has been
		// accepted by all that were not down for it.
		if m.down.Has(from) && msg.kind != decide {
			m.tellOne(from, &message{kind: outcast})
		}
		if msg.down.Has(m.self) {
			m.leave()
		}
		return nil
	}
	if msg.number == m.number+1 {
		m.decided(msg.before)
	}
	if msg.number < m.number {
		if (msg.kind == query || msg.kind == report) && msg.number == m.number-1 {
			m.send(from, (&message{kind: decide, number: msg.number, down: m.down, value: m.last, ballot: m.self}).pack())
		}
		return nil
	}
	for i := range m.size {
		if msg.down.Has(i) && !m.down.Has(i) {
			m.down = m.down.With(i, m.size)
			m.tellOne(i, &message{kind: outcast}) // it may live, and wait
		}
	}
	switch msg.kind {
	case report:
		if msg.ballot == m.self {
			if m.reports == nil {
				m.reports = make([]*message, m.size)
			}
			m.reports[from] = &msg
		}
	case propose:
		if from >= m.promised {
			m.promised, m.accepted, m.value = from, from+1, msg.value
			m.tellOne(from, &message{kind: accept, ballot: from})
		}
	case accept:
		if msg.ballot == m.self && m.proposed {
			m.accepts = m.accepts.With(from, m.size)
		}
	case decide:
		m.decided(msg.value)
	}
	m.advance()
	return nil
}

// pack writes a message in msgpack, the values that its kind has not as nothing.
func (msg *message) pack() []byte {
	w := pack.NewWriter(64 + 7*len(msg.down))
	w.Array(8)
	w.Uint(uint64(msg.kind))
	w.Uint(msg.number)
	w.Uint(uint64(msg.ballot))
	w.Bin(msg.down)
	msg.value.pack(w)
	w.Uint(uint64(msg.accepted + 1))
	msg.old.pack(w)
	msg.before.pack(w)
	return w.Bytes()
}

func (v *Value) pack(w *pack.Writer) {
	w.Array(4)
	w.Uint(v.And)
	w.Uint(v.Max)
	w.Bin(v.Failed)
	w.Bin(v.Acked)
}

func (msg *message) unpack(b []byte, size int) error {
	r := pack.NewReader(b)
	if r.Array() != 8 {
		r.Fail()
	}
	msg.kind = kind(r.Below(uint64(kinds)))
	msg.number = r.Uint()
	msg.ballot = int(r.Below(uint64(size)))
	msg.down = bits(r, size)
	msg.value.unpack(r, size)
	msg.accepted = int(r.Below(uint64(size)+1)) - 1
	msg.old.unpack(r, size)
	msg.before.unpack(r, size)
	if msg.kind == 0 {
		r.Fail()
	}
	return r.End()
}

func (v *Value) unpack(r *pack.Reader, size int) {
	if r.Array() != 4 {
		r.Fail()
	}
	v.And, v.Max, v.Failed, v.Acked = r.Uint(), r.Uint(), bits(r, size), bits(r, size)
}

// bits reads a set of members.
func bits(r *pack.Reader, size int) group.Bits {
	b := r.Bin()
	if len(b) != 0 && len(b) != (size+7)/8 {
		r.Fail()
		return nil
	}
	if len(b) == 0 {
		return nil
	}
	return append(group.Bits(nil), b...)
}
