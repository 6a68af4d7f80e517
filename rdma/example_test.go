package rdma_test

import (
	"fmt"
	"io"
	"log"
	"runtime"
	"time"

	"github.com/gorun-mpi/gorun/rdma"
	"github.com/gorun-mpi/gorun/rdma/soft"
)

// The examples run on the software device, which is on every machine:
//
//	go test -run Example -v ./rdma
//
// There is one for each feature, named for it, and all stand on the few functions
// below. Both ends are of one process here; between processes they would tell each
// other the GID, the queue pair's number, and of memory the address and the key.

// lab is an open device, with what most examples begin with.
type lab struct {
	ctx    rdma.Context
	pd     rdma.PD
	cq     rdma.CQ
	gid    rdma.GID
	closes []io.Closer // in the order of making
}

func open() *lab {
	l := &lab{}
	provider := own(l, must(soft.New(soft.Config{})))
	devices := must(provider.Devices())
	l.ctx = own(l, must(devices[0].Open()))
	l.pd = own(l, must(l.ctx.AllocPD()))
	l.cq = own(l, must(l.ctx.CreateCQ(64)))
	l.gid = must(l.ctx.QueryGID(1, 0))
	return l
}

// close closes what the example has made, in reverse: objects that others stand on
// cannot be closed before those.
func (l *lab) close() {
	for len(l.closes) > 0 {
		last := len(l.closes) - 1
		check(l.closes[last].Close())
		l.closes = l.closes[:last]
	}
}

// own has close close the object.
func own[T io.Closer](l *lab, object T) T {
	l.closes = append(l.closes, object)
	return object
}

func check(err error) {
	if err != nil {
		log.Panic(err)
	}
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

const (
	everything = rdma.AccessLocalWrite | rdma.AccessRemoteWrite | rdma.AccessRemoteRead | rdma.AccessRemoteAtomic
	signaled   = rdma.SendSignaled
	qkey       = 0x1234 // of datagrams
)

// memory is n registered bytes with all rights, which begin with text.
func (l *lab) memory(n int, text string) rdma.MR {
	mr := own(l, must(l.pd.AllocMR(n, everything)))
	copy(mr.Bytes(), text)
	return mr
}

// piece is a part of a region, as requests name it.
func piece(mr rdma.MR, offset, length int) rdma.SGE {
	return rdma.SGE{Addr: mr.Addr() + uint64(offset), Length: uint32(length), LKey: mr.LKey()}
}

// text is the region's memory up to the first zero.
func text(mr rdma.MR) string { return cstring(mr.Bytes()) }

func cstring(b []byte) string {
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}

// queuePair makes a queue pair of the type; changes are to what it is made with.
func (l *lab) queuePair(t rdma.QPType, changes ...func(*rdma.QPInitAttr)) rdma.QP {
	init := rdma.QPInitAttr{Type: t, SendCQ: l.cq, RecvCQ: l.cq,
		Cap: rdma.QPCap{MaxSendWR: 16, MaxRecvWR: 16, MaxSendSGE: 4, MaxRecvSGE: 4, MaxInlineData: 64}}
	for _, change := range changes {
		change(&init)
	}
	return own(l, must(l.pd.CreateQP(init)))
}

// pair makes two queue pairs and connects them.
func (l *lab) pair(t rdma.QPType, changes ...func(*rdma.QPInitAttr)) (a, b rdma.QP) {
	a, b = l.queuePair(t, changes...), l.queuePair(t, changes...)
	l.connect(a, b.Num())
	l.connect(b, a.Num())
	return a, b
}

// connect brings a queue pair to RTS. Each step has the attributes that the transport
// asks for there, and no others.
func (l *lab) connect(qp rdma.QP, peer uint32) {
	_, init := qp.Query()
	attr := rdma.QPAttr{
		PortNum: 1, AccessFlags: everything, QKey: qkey,
		AV: rdma.AV{DGID: l.gid, PortNum: 1, HopLimit: 1}, PathMTU: rdma.MTU1024, DestQPNum: peer, MaxDestRdAtomic: 4, MinRNRTimer: 12,
		Timeout: 14, RetryCnt: 6, RNRRetry: 6, MaxRdAtomic: 4,
	}
	last := rdma.StateRTS
	if init.Type == rdma.DCT {
		last = rdma.StateRTR // a target is ready there
	}
	for attr.State = rdma.StateInit; attr.State <= last; attr.State++ {
		check(qp.Modify(attr, rdma.Required(init.Type, attr.State-1, attr.State)))
	}
}

// post posts requests.
func post(qp rdma.QP, wrs ...rdma.SendWR) { must(qp.PostSend(wrs)) }

// receive posts receives.
func receive(q interface {
	PostRecv([]rdma.RecvWR) (int, error)
}, wrs ...rdma.RecvWR) {
	must(q.PostRecv(wrs))
}

// write is an RDMA write of a piece to the place at offset of a region.
func write(from rdma.SGE, to rdma.MR, offset int) rdma.SendWR {
	return rdma.SendWR{Opcode: rdma.WRRDMAWrite, Flags: signaled, SGL: []rdma.SGE{from}, RemoteAddr: to.Addr() + uint64(offset), RKey: to.RKey()}
}

// next waits for the next completion of a queue.
func next(cq rdma.CQ) rdma.WC {
	var wc [1]rdma.WC
	for deadline := time.Now().Add(10 * time.Second); must(cq.Poll(wc[:])) == 0; runtime.Gosched() {
		if time.Now().After(deadline) {
			log.Panic("no completion within 10 s")
		}
	}
	return wc[0]
}

// finish waits for n completions and prints those that are no success.
func finish(cq rdma.CQ, n int) {
	for range n {
		if wc := next(cq); wc.Status != rdma.WCSuccess {
			fmt.Println("request", wc.WRID, "failed:", wc.Status)
		}
	}
}
