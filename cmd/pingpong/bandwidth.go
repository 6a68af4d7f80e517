package main

import (
	"time"

	"github.com/gorun-mpi/gorun/rdma"
)

// A rate is what perftest prints of a bandwidth.
type rate struct {
	MBps float64 `json:"mb_per_s"` // 2^20 bytes
	Mpps float64 `json:"million_messages_per_s"`
}

// creditRoom is how many entries of a send queue are kept for credits.
const creditRoom = 4

// bandwidth has the client post the operation as fast as depth allows, and, with
// --bidirectional, the server too. Each end times its own part; the client's rate is the sum.
//
// Messages that take a receive need one at the other end, which tells by a credit on the
// same lane, for every half depth of them, that it has posted that many again: so none is
// sent in vain.
func bandwidth(w *clock, e *end, ctl control, p *params, r *figures) error {
	e.rewind()
	if err := ctl.barrier(w.ctx); err != nil {
		return err
	}
	f := flow{e: e, op: opcodes[p.op], depth: uint64(p.depth), half: uint64(p.depth / 2)}
	f.credit = p.op == opSend || p.op == opWriteImm
	if !e.serves || p.both {
		f.send = uint64(p.iterations)
	}
	if f.credit && (e.serves || p.both) {
		f.take = uint64(p.iterations)
	}
	start := time.Now()
	if err := f.run(w); err != nil {
		return err
	}
	mine := time.Since(start)
	theirs, err := swap(w.ctx, ctl, mine)
	if err != nil || e.serves {
		return err
	}
	perSecond := float64(p.iterations) / mine.Seconds()
	if p.both {
		perSecond += float64(p.iterations) / theirs.Seconds()
	}
	r.Bandwidth = &rate{perSecond * float64(e.size) / (1 << 20), perSecond / 1e6}
	return nil
}

var opcodes = map[string]rdma.WROpcode{opWrite: rdma.WRRDMAWrite, opWriteImm: rdma.WRRDMAWriteWithImm, opRead: rdma.WRRDMARead,
	opSend: rdma.WRSend, opAtomic: rdma.WRAtomicFetchAndAdd}

// A flow is one end's part of a bandwidth.
type flow struct {
	e           *end
	op          rdma.WROpcode
	credit      bool   // messages take receives
	send, take  uint64 // messages of all lanes
	depth, half uint64
}

// share is a lane's part of n messages.
func (f *flow) share(l *lane, n uint64) uint64 {
	lanes := uint64(len(f.e.lanes))
	each := n / lanes
	if l.index < n%lanes {
		each++
	}
	return each
}

// room says whether a lane may post its next message.
func (f *flow) room(l *lane) bool {
	return l.posted < f.share(l, f.send) && l.posted-l.sent < f.depth && (!f.credit || l.posted < (l.used+2)*f.half)
}

// owes says whether a lane may give a credit. The peer needs none for the last two halves, and may have used
// one before its acknowledgement is here.
func (f *flow) owes(l *lane) bool {
	halves := (f.share(l, f.take) + f.half - 1) / f.half
	due := min(l.taken/f.half, max(halves, 2)-2)
	return f.credit && l.given < due && l.given-l.credited < creditRoom
}

// through says whether nothing of a lane is left to come.
func (f *flow) through(l *lane) bool {
	return l.sent == f.share(l, f.send) && l.taken == f.share(l, f.take) && l.credited == l.given && !f.owes(l)
}

// run moves all messages.
func (f *flow) run(w *clock) error {
	e := f.e
	through := func() bool {
		for i := range e.lanes {
			if !f.through(&e.lanes[i]) {
				return false
			}
		}
		return true
	}
	ready := condition(func() bool {
		for i := range e.lanes {
			if l := &e.lanes[i]; l.received > l.taken || l.credits > l.used || f.owes(l) || f.room(l) {
				return true
			}
		}
		return through()
	})
	for !through() {
		if err := e.until(w, ready); err != nil {
			return err
		}
		for i := range e.lanes {
			if err := f.step(&e.lanes[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// step does for a lane what it can at once.
func (f *flow) step(l *lane) error {
	for ; l.credits > l.used; l.used++ {
		if err := f.e.postRecv(l); err != nil {
			return err
		}
	}
	for ; l.received > l.taken; l.taken++ {
		if err := f.e.postRecv(l); err != nil {
			return err
		}
	}
	for ; f.owes(l); l.given++ {
		if err := f.e.give(l); err != nil {
			return err
		}
	}
	for ; f.room(l); l.posted++ {
		if err := f.e.post(l, f.op); err != nil {
			return err
		}
	}
	return nil
}
