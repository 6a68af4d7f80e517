package coll

import (
	"fmt"
	"strings"
)

// A plan is a compiled call: what this rank does, step by step. It is never
// changed once it is made, but that its team keeps its short forms with it.
type plan struct {
	call        Call // with the algorithm that was selected
	steps       []step
	scratch     int // bytes of the scratch operand
	fingerprint uint32
	remote      [operands]bool // operands that peers, or the device, write to or read from: they need keys

	shorts *Short // of calls by this plan, see Team.Short
	long   bool   // there can be none
}

// An operand is what a location lies in.
type operand uint8

const (
	none     operand = iota
	input            // the send buffer
	output           // the receive buffer
	scratch          // the team's own
	slot             // the payload of the message that was awaited from a peer
	exposed0         // the memory that a peer has exposed as #0, mapped
	exposed1         // and as #1
	operands
)

var operandNames = [operands]string{"", "in", "out", "tmp", "slot", "#0", "#1"}

// A loc is a place in an operand.
type loc struct {
	operand operand
	peer    int32 // slot, exposed
	off     int
}

func (l loc) plus(n int) loc {
	l.off += n
	return l
}

func (l loc) String() string {
	switch l.operand {
	case none:
		return "-"
	case slot, exposed0, exposed1:
		return fmt.Sprintf("%s(%d)+%d", operandNames[l.operand], l.peer, l.off)
	}
	return fmt.Sprintf("%s+%d", operandNames[l.operand], l.off)
}

// A verb is what a step does.
type verb uint8

// The verbs. Those that touch a peer's channel are blocked while it is not
// ready: no message there yet, no credit, no room in the send queue.
const (
	vSend    verb = iota + 1 // message to peer with the n bytes at a; none: a signal
	vExpose                  // message to peer with the descriptor of the n bytes at dst
	vPut                     // write the n bytes at a to peer's exposed memory at dst.off; signal: and a message
	vGet                     // read the n bytes at a.off of peer's exposed memory to dst
	vAwait                   // wait for peer's next message and hold it: its payload is slot(peer)
	vTake                    // wait for peer's next message and give it back
	vLearn                   // wait for peer's next message, a descriptor, and give it back
	vRelease                 // give the held message of peer back
	vCopy                    // dst = the n bytes at a; release: then give a's message back
	vReduce                  // dst = a op b, n bytes; release: then give back the messages of a and b
	vFlush                   // wait until the memory of all puts to peer is free again, and what was got from it is there
	vFork                    // go to step to, unless the n bytes at a, at dst if any, and those that peers have exposed are mapped; peer: the one that has exposed #1
	vEnd                     // the plan is done
)

var verbNames = [...]string{"", "send", "expose", "put", "get", "await", "take", "learn", "release", "copy", "reduce", "flush", "fork", "end"}

// A step is one instruction of a plan.
type step struct {
	verb    verb
	index   uint8 // vExpose, vLearn, vPut, vGet: which of the peer's descriptors
	signal  bool
	pair    bool // vExpose, vLearn: descriptor #1 too, of the n bytes at a
	release bool
	aside   bool // vCopy, vPut, vGet: dst is not read again in this call, nor would it stay in the cache
	peer    int32
	mark    uint32 // what the message's fingerprint has besides the call's: a sized kind's length
	to      int32  // vFork
	n       int
	dst     loc
	a, b    loc
}

// descriptors is how many descriptors a member may hold of a peer in one call.
const descriptors = 2

// String is the step in the words that the transcripts of the tests use.
func (s step) String() string {
	var b strings.Builder
	b.WriteString(verbNames[s.verb])
	switch s.verb {
	case vSend:
		if s.n == 0 {
			return fmt.Sprintf("signal %d", s.peer)
		}
		fmt.Fprintf(&b, " %d: %s %d", s.peer, s.a, s.n)
	case vExpose:
		fmt.Fprintf(&b, " %d: #%d = %s %d", s.peer, s.index, s.dst, s.n)
		if s.pair {
			fmt.Fprintf(&b, ", #1 = %s %d", s.a, s.n)
		}
	case vPut:
		fmt.Fprintf(&b, " %d: #%d+%d = %s %d", s.peer, s.index, s.dst.off, s.a, s.n)
		if s.signal {
			b.WriteString(", signal")
		}
	case vGet:
		fmt.Fprintf(&b, " %d: %s = #%d+%d %d", s.peer, s.dst, s.index, s.a.off, s.n)
	case vLearn:
		fmt.Fprintf(&b, " %d: #%d", s.peer, s.index)
		if s.pair {
			b.WriteString(", #1")
		}
	case vAwait, vTake, vRelease, vFlush:
		fmt.Fprintf(&b, " %d", s.peer)
	case vCopy:
		fmt.Fprintf(&b, " %s = %s %d", s.dst, s.a, s.n)
	case vFork:
		fmt.Fprintf(&b, " %s %s %d, else go to %d", s.a, s.dst, s.n, s.to)
	case vReduce:
		fmt.Fprintf(&b, " %s = %s op %s %d", s.dst, s.a, s.b, s.n)
	}
	if s.release {
		b.WriteString(", release")
	}
	if s.aside {
		b.WriteString(", aside")
	}
	return b.String()
}

// String lists the steps, one a line.
func (p *plan) String() string {
	var b strings.Builder
	for _, s := range p.steps {
		b.WriteString(s.String())
		b.WriteByte('\n')
	}
	return b.String()
}

// tuning holds the sizes that plans are made for. They are the same in all
// members of a team, which compare them when it is made.
type tuning struct {
	slots int // of a channel's ring, a power of two
	eager int // bytes of a slot's payload: longer blocks go by descriptor
	chunk int // bytes that a pipelined broadcast passes on at a time
	piece int // bytes that a pipelined reduction works on at a time, hot in the cache
	// cached is how many bytes of results stay in the caches that the ranks of a host share; 0: all.
	cached int
	// mapped: all members reach the memory of all others by loads and stores.
	mapped bool
	// hosts is which members share a host; nil: all.
	hosts *placement
}
