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

// bandwidth has the client post the operation as fast as depth allows. Sends
// need receives at the server, which tells by a send of its own, for every half
// depth of them, that it has posted that many again: so none is sent in vain.
func bandwidth(w *clock, e *end, ctl control, p *params, r *report) error {
	e.sent, e.received = 0, 0
	if err := ctl.barrier(w.ctx); err != nil {
		return err
	}
	start := time.Now()
	var err error
	switch {
	case p.op == opSend && e.serves:
		err = drain(w, e, p)
	case !e.serves:
		err = flood(w, e, p)
	}
	took := time.Since(start)
	if err != nil {
		return err
	}
	if err := ctl.barrier(w.ctx); err != nil {
		return err
	}
	if !e.serves {
		n := float64(p.iterations)
		r.Bandwidth = &rate{n * float64(p.size) / (1 << 20) / took.Seconds(), n / took.Seconds() / 1e6}
	}
	return nil
}

// flood posts all messages, with at most depth outstanding, and sees the last of
// them complete.
func flood(w *clock, e *end, p *params) error {
	op := map[string]rdma.WROpcode{opWrite: rdma.WRRDMAWrite, opRead: rdma.WRRDMARead, opSend: rdma.WRSend, opAtomic: rdma.WRAtomicFetchAndAdd}[p.op]
	total, depth, half := uint64(p.iterations), uint64(p.depth), uint64(p.depth/2)
	var posted, credits uint64
	room := condition(func() bool {
		return posted-e.sent < depth && (op != rdma.WRSend || posted < (credits+2)*half)
	})
	more := condition(func() bool { return e.received > credits || room() })
	for posted < total {
		if err := e.until(w, more); err != nil {
			return err
		}
		for e.received > credits {
			credits++
			if err := e.postRecv(); err != nil {
				return err
			}
		}
		for posted < total && room() {
			if err := e.post(op); err != nil {
				return err
			}
			posted++
		}
	}
	return e.until(w, func() bool { return e.sent == total })
}

// drain takes all messages and gives credits for them.
func drain(w *clock, e *end, p *params) error {
	total, half := uint64(p.iterations), uint64(p.depth/2)
	var taken, credits uint64
	more := condition(func() bool { return e.received > taken })
	// The client may have used a credit before its device acknowledges it.
	room := condition(func() bool { return credits-e.sent <= uint64(p.depth) })
	for taken < total {
		if err := e.until(w, more); err != nil {
			return err
		}
		for e.received > taken {
			taken++
			if err := e.postRecv(); err != nil {
				return err
			}
			// The client counts on it only while it has messages left.
			if taken%half == 0 && taken+half < total {
				if err := e.until(w, room); err != nil {
					return err
				}
				if err := e.post(rdma.WRSend); err != nil {
					return err
				}
				credits++
			}
		}
	}
	return e.until(w, func() bool { return e.sent == credits })
}
