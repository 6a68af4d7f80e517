package coll

import (
	"sync/atomic"

	"github.com/gorun-mpi/gorun/internal/arch"
	"github.com/gorun-mpi/gorun/rdma"
)

// A journal is where a deputy writes down, after each step, how far it is, so that the rank can
// go on when the daemon's process has ended. It is part of the desk, and the daemon's as the
// channels are. Words: how many entries were ever written; the entry that a step which
// overwrites its own operands leads to, written before it; then two entries, used in turn.
//
//	step -> entry n%2 -> count = n -> channels of the desk
//
// A process that is killed has done what its program says up to some instruction, and
// whoever hears of its end from the kernel sees all of that. So the order of the program is
// all that is needed here, and whatever the instruction was, the entry that count names is
// whole, all older ones are in the channels, and at most one step was begun behind it.
//
// To take that step again is to take it late, if nobody has noticed that it was taken: a
// peer notices by a message or by slots that it gets back. Of a message the peer's lane says
// whether it was sent ([Team.delivered]). Slots are given back behind an entry that says so. What
// is left are steps that overwrite their operands, see [Team.retrace].
type journal []uint64

const (
	journalCount = 0
	journalOver  = 1
	journalRing  = shareLine
	entryWords   = 4 * shareLine
	journalWords = journalRing + 2*entryWords
)

// The words of an entry. Behind the place are those of the channel that the step has changed.
const (
	entryCall  = iota // the number of the call
	entryPlace        // step, and whether it is done but for giving slots back
	entryPart         // bytes of the step that are moved
	entryPeer         // whose channel; beyond all members: none
	entryChannel
	entryCounters = entryChannel + channelWords // of the call's steps up to here
)

// A position is how far a call is.
type position struct {
	call     uint64 // its number; 0: of none
	pc, part int
	done     bool     // the step at pc is done but for giving slots back
	torn     bool     // the step at pc has perhaps overwritten some of its operands
	count    Counters // of the steps up to here
}

// note writes an entry. peer: whose channel has changed, -1: none; follow has the desk's follow it then.
func (d desk) note(at position, peer int, c *channel, count *Counters) {
	j := d.journal()
	n := j[journalCount] + 1
	e := j.entry(n)
	e[entryCall], e[entryPlace], e[entryPart], e[entryPeer] = at.call, uint64(at.pc)<<1, uint64(at.part), uint64(peer)
	if at.done {
		e[entryPlace] |= 1
	}
	if peer >= 0 {
		c.write(e[entryChannel:], true)
	}
	for i, v := range count.steps() {
		e[entryCounters+i] = *v
	}
	arch.StoreRelease64(&j[journalCount], n)
}

func (d desk) follow(peer int, c *channel) { c.write(d.channel(peer), true) }

// tears notes that the next step overwrites its operands.
func (d desk) tears() {
	j := d.journal()
	arch.StoreRelease64(&j[journalOver], j[journalCount]+1)
}

// clearJournal forgets all entries, for a rank that writes the channels itself.
func (d desk) clearJournal() { clear(d.journal()) }

// recover reads what a daemon that has ended has left: the channels, and how far it was.
func (d desk) recover(channels []channel) (at position) {
	d.readChannels(channels, true)
	j := d.journal()
	n := atomic.LoadUint64(&j[journalCount])
	if n == 0 {
		return at
	}
	e := j.entry(n)
	if peer := e[entryPeer]; peer < uint64(len(channels)) {
		channels[peer].read(e[entryChannel:], true)
	}
	for i, v := range at.count.steps() {
		*v = e[entryCounters+i]
	}
	return position{count: at.count, call: e[entryCall], pc: int(e[entryPlace] >> 1), done: e[entryPlace]&1 != 0, part: int(e[entryPart]), torn: j[journalOver] == n+1}
}

func (j journal) entry(n uint64) []uint64 { return j[journalRing+int(n%2)*entryWords:][:entryWords] }

// write writes a channel down, with the descriptors of the call under way if known; read is the
// reverse, but for the views.
func (c *channel) write(w []uint64, known bool) {
	w[0] = uint64(c.sent) | uint64(c.credited)<<16 | uint64(c.awaited)<<32 | uint64(c.taken)<<48
	w[1] = uint64(c.told)
	if !known {
		return
	}
	for j := range c.known {
		k := &c.known[j]
		w[2+3*j], w[3+3*j], w[4+3*j] = k.addr, k.n, uint64(k.rkey)|uint64(uint32(k.access))<<32
	}
}

func (c *channel) read(w []uint64, known bool) {
	c.sent, c.credited, c.awaited, c.taken = uint16(w[0]), uint16(w[0]>>16), uint16(w[0]>>32), uint16(w[0]>>48)
	c.told = uint16(w[1])
	if !known {
		return
	}
	for j := range c.known {
		c.known[j] = descriptor{addr: w[2+3*j], n: w[3+3*j], rkey: uint32(w[4+3*j]), access: rdma.Access(w[4+3*j] >> 32)}
	}
}
