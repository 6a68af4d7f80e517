package rdmatest

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/gorun-mpi/gorun/rdma"
)

// A churn is traffic without end on one queue pair: writes and reads of all
// sizes, atomics, and messages of equal words that count up from 1. It runs
// until a request fails.
type churn struct {
	QP, CQ, Mem handle // at an agent
	Base        uint64 // the peer's memory: a flag, a word for atomics, then data
	RKey        uint32
	Seed        uint64
	Depth       int
	Sends       bool // messages too: the peer has posted receives of churnMessage bytes
}

const (
	churnFlag    = 0         // set to 1 by the first write
	churnWord    = 8         // atomics
	churnData    = 64        // the rest
	churnMemory  = 160 << 10 // at both ends
	churnMessage = 1024
)

// churn starts the traffic on a goroutine that the process's end stops.
func (a *agent) churn(c *call) error {
	var qp rdma.QP
	var cq rdma.CQ
	var mem Region
	if err := errors.Join(find(a, c.Load.Churn.QP, &qp), find(a, c.Load.Churn.CQ, &cq), find(a, c.Load.Churn.Mem, &mem)); err != nil {
		return err
	}
	go c.Load.Churn.run(qp, cq, mem, func() bool { return false })
	return nil
}

// run drives the traffic until a completion fails or stop says so, and gives
// the failure's status. Local memory: a cell for each request's atomics and
// messages, then data.
func (c churn) run(qp rdma.QP, cq rdma.CQ, mem Region, stop func() bool) (rdma.WCStatus, error) {
	rng := rand.New(rand.NewPCG(c.Seed, 1))
	mem.store64(0, 1)
	cell := func(k int) int { return churnMessage * (1 + k%c.Depth) }
	data := churnMessage * (1 + c.Depth)
	wc := make([]rdma.WC, c.Depth)
	var posted, done int
	var message uint64
	for !stop() {
		for posted-done < c.Depth {
			wr := rdma.SendWR{WRID: uint64(posted), Flags: rdma.SendSignaled, RKey: c.RKey}
			n := 1 + rng.IntN(1<<(1+rng.IntN(16)))
			off := uint64(rng.IntN(churnMemory - churnData - n))
			switch op := rng.IntN(5); {
			case posted == 0:
				wr.Opcode, wr.RemoteAddr, wr.SGL = rdma.WRRDMAWrite, c.Base+churnFlag, []rdma.SGE{mem.sge(0, 8)}
			case op == 0 && c.Sends:
				message++
				for i := 0; i < churnMessage; i += 8 {
					mem.store64(cell(posted)+i, message)
				}
				wr.Opcode, wr.SGL = rdma.WRSend, []rdma.SGE{mem.sge(cell(posted), churnMessage)}
			case op == 1:
				wr.Opcode, wr.RemoteAddr, wr.CompareAdd, wr.SGL = rdma.WRAtomicFetchAndAdd, c.Base+churnWord, 1, []rdma.SGE{mem.sge(cell(posted), 8)}
			case op == 2:
				wr.Opcode, wr.RemoteAddr, wr.SGL = rdma.WRRDMARead, c.Base+churnData+off, []rdma.SGE{mem.sge(data, n)}
			default:
				wr.Opcode, wr.RemoteAddr, wr.SGL = rdma.WRRDMAWrite, c.Base+churnData+off, []rdma.SGE{mem.sge(data, n)}
			}
			if took, err := qp.PostSend([]rdma.SendWR{wr}); took != 1 || err != nil {
				return 0, fmt.Errorf("post %d: %d, %w", posted, took, err)
			}
			posted++
		}
		n, err := cq.Poll(wc)
		if err != nil {
			return 0, err
		}
		for _, w := range wc[:n] {
			if w.WRID != uint64(done) {
				return 0, fmt.Errorf("completion of request %d, want %d", w.WRID, done)
			}
			done++
			if w.Status != rdma.WCSuccess {
				return w.Status, nil
			}
		}
	}
	return rdma.WCSuccess, nil
}
