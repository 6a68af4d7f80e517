package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"

	"github.com/gorun-mpi/gorun/rank"
	"github.com/gorun-mpi/gorun/rdma"
)

// An end is one side's objects: memory, a completion queue, and what the
// transport needs to send and to receive.
//
//	RC, UC  one queue pair that does both
//	UD      one queue pair, an address handle for the peer
//	XRC     an initiator, and a target with an SRQ in an XRC domain
//	DC      an initiator with an address handle, and a target with an SRQ
type end struct {
	device, provider string
	params           *params
	serves           bool

	ctx  rdma.Context
	pd   rdma.PD
	mr   rdma.MR
	cq   rdma.CQ
	qp   rdma.QP // sends
	recv rdma.QP // receives: qp itself, or the target
	srq  rdma.SRQ
	ah   rdma.AH

	gid    rdma.GID
	psn    uint32
	mtu    rdma.MTU
	inline bool // messages are short enough
	peer   card

	owned []io.Closer // in the order of their making
	wr    [1]rdma.SendWR
	sge   [1]rdma.SGE
	rr    [1]rdma.RecvWR
	rsge  [1]rdma.SGE
	wcs   [16]rdma.WC

	sent, received uint64 // requests that are complete
	failure        error  // of the first that failed
}

// A card is what the peer must know of an end.
type card struct {
	GID      rdma.GID `json:"gid"`
	LID      uint16   `json:"lid"`
	Endpoint []byte   `json:"endpoint,omitempty"` // of providers that need one
	QPN      uint32   `json:"qpn"`
	Target   uint32   `json:"target"` // the number of the queue pair that receives
	PSN      uint32   `json:"psn"`
	SRQ      uint32   `json:"srq,omitempty"`
	MTU      rdma.MTU `json:"mtu"`
	RdAtom   uint8    `json:"rd_atom"` // reads and atomics answered at a time
	Addr     uint64   `json:"addr"`    // of the memory
	RKey     uint32   `json:"rkey"`
	Length   uint64   `json:"length"`
}

// The keys that datagrams and dynamically connected requests carry. They are no
// secrets: they keep strays out.
const (
	qkey  = 0x11111111
	dcKey = 0x60727570
)

// The memory of an end: what it sends, then room for a GRH, then what it gets.
func (p *params) span() int { return (p.size + 63) &^ 63 }

const grhRoom = 64 // GRHLen, and the payload on a line of its own

func (e *end) out() []byte { return e.mr.Bytes()[:e.params.size] }

// inbox is where messages and writes of the peer land.
func (e *end) inbox() []byte {
	at := e.params.span() + grhRoom
	return e.mr.Bytes()[at : at+e.params.size]
}

// newEnd opens the device and makes the objects.
func newEnd(env *rank.Environment, p *params, serves bool, secret []byte) (*end, error) {
	e := &end{params: p, serves: serves, psn: rand.Uint32() & 0xffffff}
	if err := e.make(env, secret); err != nil {
		return nil, errors.Join(err, e.close())
	}
	return e, nil
}

func (e *end) own(c io.Closer) { e.owned = append(e.owned, c) }

// close closes everything, the last first.
func (e *end) close() error {
	var errs []error
	for i := len(e.owned) - 1; i >= 0; i-- {
		errs = append(errs, e.owned[i].Close())
	}
	e.owned = nil
	return errors.Join(errs...)
}

func (e *end) make(env *rank.Environment, secret []byte) error {
	p := e.params
	opened, err := openDevice(env, p.deviceName, secret)
	if err != nil {
		return err
	}
	e.own(opened)
	e.ctx, e.device, e.provider = opened.Context, opened.Context.Device().Name(), opened.provider
	if err := e.supports(); err != nil {
		return err
	}
	port, err := e.ctx.QueryPort(1)
	if err != nil {
		return err
	}
	if port.State != rdma.PortActive {
		return fmt.Errorf("port 1 of %s is not active; gorun-info devices shows what there is", e.device)
	}
	e.mtu = port.ActiveMTU
	for m := rdma.MTU256; m <= rdma.MTU4096; m++ {
		if m.Bytes() == p.mtu {
			e.mtu = m
		}
	}
	if e.mtu > port.ActiveMTU {
		return fmt.Errorf("-m: found %d, but port 1 of %s has %d at most", p.mtu, e.device, port.ActiveMTU.Bytes())
	}
	if p.transport == rdma.UD && p.size > e.mtu.Bytes() {
		return fmt.Errorf("-s: found %d, but a datagram holds one MTU, %d bytes", p.size, e.mtu.Bytes())
	}
	if e.gid, err = e.chooseGID(port.GIDTblLen); err != nil {
		return err
	}
	if e.pd, err = e.ctx.AllocPD(); err != nil {
		return err
	}
	e.own(e.pd)
	rights := rdma.AccessLocalWrite | rdma.AccessRemoteWrite | rdma.AccessRemoteRead
	if p.op == opAtomic {
		rights |= rdma.AccessRemoteAtomic
	}
	if e.mr, err = e.pd.AllocMR(2*p.span()+grhRoom, rights); err != nil {
		return err
	}
	e.own(e.mr)
	if e.cq, err = e.ctx.CreateCQ(4 * p.depth); err != nil {
		return err
	}
	e.own(e.cq)
	return e.makeQueues()
}

// supports refuses a transport that the device does not have, with its reason.
func (e *end) supports() error {
	feature := map[rdma.QPType]rdma.Feature{
		rdma.RC: rdma.FeatureRC, rdma.UC: rdma.FeatureUC, rdma.UD: rdma.FeatureUD,
		rdma.XRCSend: rdma.FeatureXRC, rdma.DCI: rdma.FeatureDC,
	}[e.params.transport]
	if err := e.ctx.Supports(feature); err != nil {
		return fmt.Errorf("%s has no --qp %s: %w", e.device, e.params.qp, err)
	}
	return nil
}

func (e *end) chooseGID(n int) (rdma.GID, error) {
	if e.params.gidIndex >= 0 {
		return e.ctx.QueryGID(1, e.params.gidIndex)
	}
	for i := range n {
		if gid, err := e.ctx.QueryGID(1, i); err == nil && gid != (rdma.GID{}) {
			e.params.gidIndex = i
			return gid, nil
		}
	}
	return rdma.GID{}, fmt.Errorf("port 1 of %s has no GID: its network interface needs an address", e.device)
}

// makeQueues creates the queue pairs and brings them to INIT, with receives.
func (e *end) makeQueues() error {
	p := e.params
	limits := e.ctx.QueryDevice()
	size := rdma.QPCap{MaxSendWR: p.depth + 1, MaxRecvWR: 2 * p.depth, MaxSendSGE: 1, MaxRecvSGE: 1}
	if inline := min(limits.MaxInlineData, 220); p.size <= inline && p.op != opRead && p.op != opAtomic {
		size.MaxInlineData, e.inline = p.size, true
	}
	init := rdma.QPInitAttr{SendCQ: e.cq, RecvCQ: e.cq, Cap: size, Type: p.transport}
	var target *rdma.QPInitAttr
	switch p.transport {
	case rdma.XRCSend:
		xrcd, err := e.ctx.OpenXRCD(rdma.XRCDInitAttr{})
		if err != nil {
			return err
		}
		e.own(xrcd)
		if err := e.makeSRQ(rdma.SRQInitAttr{Attr: rdma.SRQAttr{MaxWR: size.MaxRecvWR, MaxSGE: 1}, Type: rdma.SRQXRC, XRCD: xrcd, CQ: e.cq}); err != nil {
			return err
		}
		target = &rdma.QPInitAttr{Type: rdma.XRCRecv, XRCD: xrcd}
	case rdma.DCI:
		if err := e.makeSRQ(rdma.SRQInitAttr{Attr: rdma.SRQAttr{MaxWR: size.MaxRecvWR, MaxSGE: 1}}); err != nil {
			return err
		}
		target = &rdma.QPInitAttr{Type: rdma.DCT, SendCQ: e.cq, RecvCQ: e.cq, SRQ: e.srq, DCAccessKey: dcKey}
	}
	var err error
	if target != nil {
		init.Cap.MaxRecvWR, init.Cap.MaxRecvSGE = 0, 0
		if e.recv, err = e.makeQP(*target); err != nil {
			return err
		}
	}
	if e.qp, err = e.makeQP(init); err != nil {
		return err
	}
	if e.recv == nil {
		e.recv = e.qp
	}
	for range size.MaxRecvWR {
		if err := e.postRecv(); err != nil {
			return err
		}
	}
	return nil
}

func (e *end) makeSRQ(attr rdma.SRQInitAttr) (err error) {
	if e.srq, err = e.pd.CreateSRQ(attr); err == nil {
		e.own(e.srq)
	}
	return err
}

func (e *end) makeQP(init rdma.QPInitAttr) (rdma.QP, error) {
	qp, err := e.pd.CreateQP(init)
	if err != nil {
		return nil, err
	}
	e.own(qp)
	attr := rdma.QPAttr{State: rdma.StateInit, PortNum: 1, QKey: qkey, AccessFlags: rdma.AccessRemoteWrite | rdma.AccessRemoteRead}
	if e.params.op == opAtomic {
		attr.AccessFlags |= rdma.AccessRemoteAtomic
	}
	mask := rdma.QPStateMask | rdma.QPPKeyIndexMask | rdma.QPPortMask
	switch init.Type {
	case rdma.UD:
		mask |= rdma.QPQKeyMask
	case rdma.DCI:
	default:
		mask |= rdma.QPAccessFlagsMask
	}
	return qp, qp.Modify(attr, mask)
}

// introduce exchanges cards and connects.
func (e *end) introduce(ctx context.Context, ctl control) error {
	mine := card{GID: e.gid, QPN: e.qp.Num(), Target: e.recv.Num(), PSN: e.psn, MTU: e.mtu, RdAtom: e.rdAtom(),
		Addr: e.mr.Addr(), RKey: e.mr.RKey(), Length: e.mr.Len()}
	if port, err := e.ctx.QueryPort(1); err == nil {
		mine.LID = port.LID
	}
	if e.srq != nil && e.params.transport == rdma.XRCSend {
		mine.SRQ = e.srq.Num()
	}
	ep, reached := e.ctx.(rdma.Endpointer)
	if reached {
		mine.Endpoint = ep.Endpoint()
	}
	theirs, err := swap(ctx, ctl, mine)
	if err != nil {
		return err
	}
	e.peer = theirs
	if need := uint64(2*e.params.span() + grhRoom); theirs.Length < need {
		return fmt.Errorf("the peer's memory has %d bytes, expected %d", theirs.Length, need)
	}
	if reached != (len(theirs.Endpoint) > 0) {
		return fmt.Errorf("%s (%s) cannot reach the peer's device: the ends need devices of one provider", e.device, e.provider)
	}
	if reached {
		if err := ep.AddEndpoint(theirs.GID, theirs.Endpoint); err != nil {
			return err
		}
	}
	e.mtu = min(e.mtu, theirs.MTU)
	if err := e.connect(); err != nil {
		return err
	}
	if err := ctl.barrier(ctx); err != nil { // the peer's queue pairs are ready too
		return fmt.Errorf("the peer could not connect: %w", err)
	}
	return nil
}

// rdAtom is how many reads and atomics are under way at a time, 16 at most.
func (e *end) rdAtom() uint8 {
	limits := e.ctx.QueryDevice()
	return uint8(min(limits.MaxQPRdAtom, limits.MaxQPInitRdAtom, 16))
}

// connect brings the queue pairs to RTR and RTS.
func (e *end) connect() error {
	av := rdma.AV{DGID: e.peer.GID, SGIDIdx: uint8(e.params.gidIndex), HopLimit: 64, PortNum: 1}
	if e.params.transport == rdma.UD || e.params.transport == rdma.DCI {
		var err error
		if e.ah, err = e.pd.CreateAH(av); err != nil {
			return err
		}
		e.own(e.ah)
	}
	attr := rdma.QPAttr{
		AV: av, PathMTU: e.mtu, RQPSN: e.peer.PSN, SQPSN: e.psn,
		MaxDestRdAtomic: e.rdAtom(), MaxRdAtomic: min(e.rdAtom(), e.peer.RdAtom), MinRNRTimer: 12, Timeout: 14, RetryCnt: 7, RNRRetry: 7,
	}
	if e.recv != e.qp {
		attr.DestQPNum = e.peer.QPN
		if err := advance(e.recv, attr); err != nil {
			return err
		}
	}
	attr.DestQPNum = e.peer.Target
	return advance(e.qp, attr)
}

// advance brings a queue pair from INIT as far as its transport goes.
func advance(qp rdma.QP, attr rdma.QPAttr) error {
	_, init := qp.Query()
	const (
		path   = rdma.QPAVMask | rdma.QPPathMTUMask | rdma.QPDestQPNMask | rdma.QPRQPSNMask
		answer = rdma.QPMaxDestRdAtomicMask | rdma.QPMinRNRTimerMask
		retry  = rdma.QPTimeoutMask | rdma.QPRetryCntMask | rdma.QPRNRRetryMask | rdma.QPMaxRdAtomicMask
	)
	var rtr, rts rdma.QPAttrMask
	switch init.Type {
	case rdma.RC:
		rtr, rts = path|answer, retry|rdma.QPSQPSNMask
	case rdma.UC:
		rtr, rts = path, rdma.QPSQPSNMask
	case rdma.UD:
		rtr, rts = 0, rdma.QPSQPSNMask
	case rdma.XRCSend:
		rtr, rts = path, retry|rdma.QPSQPSNMask
	case rdma.XRCRecv:
		rtr, rts = path|answer, rdma.QPTimeoutMask|rdma.QPSQPSNMask
	case rdma.DCI:
		rtr, rts = rdma.QPPathMTUMask, retry|rdma.QPSQPSNMask
	case rdma.DCT:
		rtr = rdma.QPAVMask | rdma.QPPathMTUMask | rdma.QPMinRNRTimerMask
	}
	attr.State = rdma.StateRTR
	if err := qp.Modify(attr, rdma.QPStateMask|rtr); err != nil || init.Type == rdma.DCT {
		return err
	}
	attr.State = rdma.StateRTS
	return qp.Modify(attr, rdma.QPStateMask|rts)
}

// postRecv posts a receive into the inbox. All receives share it: what a
// message brings is looked at before the next one is asked for.
func (e *end) postRecv() error {
	at, n := e.params.span()+grhRoom, e.params.size
	if e.params.transport == rdma.UD {
		at, n = at-rdma.GRHLen, n+rdma.GRHLen
	}
	e.rsge[0] = rdma.SGE{Addr: e.mr.Addr() + uint64(at), Length: uint32(n), LKey: e.mr.LKey()}
	e.rr[0] = rdma.RecvWR{SGL: e.rsge[:]}
	var err error
	if e.srq != nil {
		_, err = e.srq.PostRecv(e.rr[:])
	} else {
		_, err = e.recv.PostRecv(e.rr[:])
	}
	return err
}

// post posts a signaled request of the whole out buffer; a read's or an
// atomic's bytes come to the inbox.
func (e *end) post(op rdma.WROpcode) error {
	at := e.mr.Addr()
	remote := e.peer.Addr + uint64(e.params.span()+grhRoom) // the peer's inbox
	flags := rdma.SendSignaled
	if op.Operation().Fetches() {
		at += uint64(e.params.span() + grhRoom)
		remote = e.peer.Addr
	} else if e.inline {
		flags |= rdma.SendInline
	}
	e.sge[0] = rdma.SGE{Addr: at, Length: uint32(e.params.size), LKey: e.mr.LKey()}
	wr := &e.wr[0]
	*wr = rdma.SendWR{Opcode: op, Flags: flags, SGL: e.sge[:], RemoteAddr: remote, RKey: e.peer.RKey, CompareAdd: 1, SRQNum: e.peer.SRQ}
	switch e.params.transport {
	case rdma.UD:
		wr.AH, wr.RemoteQPN, wr.RemoteQKey = e.ah, e.peer.QPN, qkey
	case rdma.DCI:
		wr.AH, wr.RemoteQPN, wr.DCAccessKey = e.ah, e.peer.Target, dcKey
	}
	_, err := e.qp.PostSend(e.wr[:])
	return err
}

// poll counts what is complete. The first failure stays.
func (e *end) poll() {
	n, err := e.cq.Poll(e.wcs[:])
	if err != nil && e.failure == nil {
		e.failure = err
	}
	for _, wc := range e.wcs[:n] {
		switch {
		case wc.Status != rdma.WCSuccess:
			if e.failure == nil {
				e.failure = fmt.Errorf("a request of queue pair %#x failed: %w (vendor error %#x)", wc.QPNum, wc.Status, wc.VendorErr)
			}
		case wc.Opcode >= rdma.WCRecv:
			e.received++
		default:
			e.sent++
		}
	}
}

func (e *end) String() string {
	return fmt.Sprintf("%s (%s), %v, GID %d %v, MTU %d; local QPN %#06x PSN %#06x, remote QPN %#06x PSN %#06x GID %v",
		e.device, e.provider, e.params.transport, e.params.gidIndex, e.gid, e.mtu.Bytes(),
		e.qp.Num(), e.psn, e.peer.Target, e.peer.PSN, e.peer.GID)
}
