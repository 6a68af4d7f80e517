package coll

import (
	"cmp"
	"fmt"
	"reflect"
)

// A Planner compiles the plans that a team of so many members would run, for any of
// them and without the team: coll/sim runs those of many thousand ranks so. Selection,
// sizes and plans are the team's own. It is not safe for concurrent use.
type Planner struct {
	size      int
	tuning    tuning
	selection *selection
	builder   builder
	plan      plan
}

// NewPlanner returns the planner of a team of size members. host gives the number of each
// member's host; if all are on one, they map each other's memory. A nil table is the built-in one.
func NewPlanner(size int, host func(member int) int, table *Table) (*Planner, error) {
	table = cmp.Or(table, &builtIn)
	if err := table.validate(); err != nil {
		return nil, err
	}
	if size < 1 {
		return nil, fmt.Errorf("a team of %d members", size)
	}
	names := make([]uint64, size)
	for i := range names {
		names[i] = uint64(host(i))
	}
	p := &Planner{size: size, tuning: tuningFor(table, size, 0), selection: table.selection(size)}
	hosts := placementOf(names)
	p.tuning.mapped = len(hosts.hosts) == 1
	p.selection.mapped = p.tuning.mapped
	if !p.tuning.mapped {
		p.tuning.hosts, p.selection.hosts = hosts, hosts
		p.tuning.sent(table, size)
	}
	return p, nil
}

// Slots is how many messages a member may be ahead of a peer.
func (p *Planner) Slots() int { return p.tuning.slots }

// A Footprint is what a team costs each member in memory, before its first call.
type Footprint struct {
	Region int // the control region, where peers write; only what they have written to is in RAM
	Tables int // what the member itself knows of its peers
}

// Footprint is that of the planner's team.
func (p *Planner) Footprint() Footprint {
	l := newLayout(p.size, p.tuning.slots, p.tuning.eager, false)
	return Footprint{Region: l.size(), Tables: p.size * int(reflect.TypeFor[channel]().Size()+reflect.TypeFor[peer]().Size())}
}

// Select fills in what the selection decides of a call: the algorithm, if it is Auto.
func (p *Planner) Select(c Call) (Call, error) {
	if c.Kind == 0 || c.Kind >= farewell || operations[c.Kind].parts != nil || !fits(c.Kind, c.Algorithm) {
		return c, badf("no plan of %v by %v without its parts", c.Kind, c.Algorithm)
	}
	if c.Elem < 1 || c.Bytes < 0 || c.Bytes%c.Elem != 0 || c.Root < 0 || c.Root >= p.size {
		return c, badf("%d bytes of elements of %d with root %d, in a team of %d", c.Bytes, c.Elem, c.Root, p.size)
	}
	c.Size = p.size
	p.selection.settle(&c)
	return c, nil
}

// Steps are those of the plan of member rank for a selected call, and the bytes of scratch
// that it needs. They are valid until the planner's next call.
func (p *Planner) Steps(c Call, rank int) (steps func(yield func(int, Step) bool), scratch int) {
	c.Rank = rank
	p.builder.compile(&p.plan, &c, nil, nil, p.tuning)
	return func(yield func(int, Step) bool) {
		for i := range p.plan.steps {
			if !yield(i, p.plan.steps[i].shown()) {
				return
			}
		}
	}, p.plan.scratch
}

// A Verb is what a Step does.
type Verb uint8

// The verbs, as plan.go explains them.
const (
	VerbSend    = Verb(vSend)
	VerbExpose  = Verb(vExpose)
	VerbPut     = Verb(vPut)
	VerbGet     = Verb(vGet)
	VerbAwait   = Verb(vAwait)
	VerbTake    = Verb(vTake)
	VerbLearn   = Verb(vLearn)
	VerbRelease = Verb(vRelease)
	VerbCopy    = Verb(vCopy)
	VerbReduce  = Verb(vReduce)
	VerbFlush   = Verb(vFlush)
	VerbFork    = Verb(vFork)
	VerbEnd     = Verb(vEnd)
)

// DescriptorBytes is the length of a message that exposes memory once.
const DescriptorBytes = descriptorLen

// HeaderBytes is what each message has besides its payload.
const HeaderBytes = headerLen

// An Operand is what a Place lies in.
type Operand uint8

// The operands of plans for memory that is not mapped.
const (
	OperandNone    = Operand(none)
	OperandInput   = Operand(input)
	OperandOutput  = Operand(output)
	OperandScratch = Operand(scratch)
	OperandSlot    = Operand(slot) // the message awaited of Peer
)

// A Place is an offset in an operand.
type Place struct {
	Operand Operand
	Peer    int32
	Off     int
}

// A Step is one instruction of a plan, to be read; plan.go explains the fields.
type Step struct {
	Verb                  Verb
	Index                 uint8
	Signal, Pair, Release bool
	Peer                  int32
	To                    int // of a fork whose memory is not mapped
	N                     int
	Dst, A, B             Place
}

func (s *step) shown() Step {
	place := func(l loc) Place { return Place{Operand(l.operand), l.peer, l.off} }
	return Step{Verb: Verb(s.verb), Index: s.index, Signal: s.signal, Pair: s.pair, Release: s.release,
		Peer: s.peer, To: int(s.to), N: s.n, Dst: place(s.dst), A: place(s.a), B: place(s.b)}
}
