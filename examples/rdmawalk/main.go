// Command rdmawalk shows what an RDMA access goes through, from its key to a page and an
// offset in it, and at which step each bad access stops.
package main

import (
	"fmt"

	"github.com/gorun-mpi/gorun/rdma"
	"github.com/gorun-mpi/gorun/rdma/soft"
)

func main() {
	m := open()
	for _, a := range accesses {
		steps, status := m.try(a.change)
		fmt.Printf("\n%s; the real request completes with: %v\n", a.what, status)
		for _, s := range steps {
			fmt.Printf("  %-8s %-28v %s\n", s.Name, s.Status, s.Found)
		}
	}
}

// accesses differ from a good write of 16 bytes in one thing each.
var accesses = []struct {
	what, stops string // the step that ends it
	change      func(m *memory, wr *rdma.SendWR)
}{
	{"a good write", "page", func(*memory, *rdma.SendWR) {}},
	{"the queue pair grants no reads", "request", func(_ *memory, wr *rdma.SendWR) { wr.Opcode = rdma.WRRDMARead }},
	{"the key is beyond the table's end", "index", func(_ *memory, wr *rdma.SendWR) { wr.RKey |= 0xffffff00 }},
	{"the key is an old one of the line", "tag", func(_ *memory, wr *rdma.SendWR) { wr.RKey-- }},
	{"the key is of another domain", "domain", func(m *memory, wr *rdma.SendWR) { wr.RKey = m.apart.RKey() }},
	{"the address is before the region", "range", func(_ *memory, wr *rdma.SendWR) { wr.RemoteAddr -= 200 }},
	{"the bytes go beyond its end", "range", func(m *memory, wr *rdma.SendWR) { wr.RemoteAddr += m.good.Len() - 104 }},
	{"the region may only be read", "rights", func(m *memory, wr *rdma.SendWR) { wr.RKey, wr.RemoteAddr = m.fixed.RKey(), m.fixed.Addr() }},
	{"no memory is at the address", "page", func(m *memory, wr *rdma.SendWR) { wr.RKey, wr.RemoteAddr = m.space.RKey(), 1<<40 }},
}

// memory is a protection domain with regions, and a region apart, in another domain.
type memory struct {
	ctx                       rdma.Context
	pd                        rdma.PD
	cq                        rdma.CQ
	good, fixed, space, apart rdma.MR
}

func open() *memory {
	ctx := must(must(must(soft.New(soft.Config{})).Devices())[0].Open())
	m := &memory{ctx: ctx, pd: must(ctx.AllocPD()), cq: must(ctx.CreateCQ(16))}
	m.good = must(m.pd.AllocMR(8192, rdma.AccessLocalWrite|rdma.AccessRemoteWrite))
	m.fixed = must(m.pd.AllocMR(8192, rdma.AccessRemoteRead))
	m.space = must(m.pd.RegMR(nil, rdma.AccessLocalWrite|rdma.AccessRemoteWrite|rdma.AccessOnDemand))
	m.apart = must(must(ctx.AllocPD()).AllocMR(8192, rdma.AccessLocalWrite|rdma.AccessRemoteWrite))
	return m
}

// try gives the steps of a request, and posts it on a queue pair connected to itself.
func (m *memory) try(change func(*memory, *rdma.SendWR)) ([]soft.Step, rdma.WCStatus) {
	qp := must(m.pd.CreateQP(rdma.QPInitAttr{Type: rdma.RC, SendCQ: m.cq, RecvCQ: m.cq, Cap: rdma.QPCap{MaxSendWR: 1, MaxSendSGE: 1}}))
	attr := rdma.QPAttr{State: rdma.StateInit, PortNum: 1, AccessFlags: rdma.AccessRemoteWrite, DestQPNum: qp.Num(), PathMTU: rdma.MTU1024,
		AV: rdma.AV{DGID: must(m.ctx.QueryGID(1, 0)), PortNum: 1, HopLimit: 1}, MinRNRTimer: 12, Timeout: 14, RetryCnt: 6, RNRRetry: 6, MaxRdAtomic: 1}
	for ; attr.State <= rdma.StateRTS; attr.State++ { // INIT, RTR, RTS
		must(0, qp.Modify(attr, rdma.Required(rdma.RC, attr.State-1, attr.State)))
	}
	sgl := []rdma.SGE{{Addr: m.good.Addr(), Length: 16, LKey: m.good.LKey()}}
	wr := rdma.SendWR{Opcode: rdma.WRRDMAWrite, Flags: rdma.SendSignaled, RKey: m.good.RKey(), RemoteAddr: m.good.Addr() + 100, SGL: sgl}
	change(m, &wr)
	steps, wc := soft.Walk(qp, wr.Opcode, wr.RKey, wr.RemoteAddr, 16), make([]rdma.WC, 1)
	must(qp.PostSend([]rdma.SendWR{wr}))
	for must(m.cq.Poll(wc)) == 0 { // not yet complete
	}
	return steps, wc[0].Status
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
