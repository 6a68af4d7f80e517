package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"

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
//
// Each of -q has a lane: its queue pairs and its share of the traffic.
type end struct {
	device, provider string
	params           *params
	serves           bool

	ctx  rdma.Context
	pd   rdma.PD
	mr   rdma.MR
	cq   rdma.CQ
	ah   rdma.AH
	xrcd rdma.XRCD

	lanes []lane

	gid    rdma.GID
	psn    uint32
	mtu    rdma.MTU
	size   int // of the messages at present
	inline int // most bytes that are sent inline
	peer   card

	owned []io.Closer // in the order of their making
	wr    [1]rdma.SendWR
	sge   [1]rdma.SGE
	rr    [1]rdma.RecvWR
	rsge  [1]rdma.SGE
	wcs   [16]rdma.WC

	failure error // of the first request that failed
}

// A lane is a queue pair, or an initiator and a target, and how far its traffic is.
type lane struct {
	index uint64
	qp    rdma.QP // sends
	recv  rdma.QP // receives: qp itself, or the target
	srq   rdma.SRQ
	traffic
}

// A traffic counts messages, and the credits by which the end that takes messages says that there is room
// for more.
type traffic struct {
	sent, credited    uint64 // own messages and credits that are complete
	received, credits uint64 // that have come from the peer
	posted, given     uint64 // own messages and credits that were posted
	taken, used       uint64 // of the peer's, how many had their receive posted again
}

// rewind begins to count anew.
func (e *end) rewind() {
	for i := range e.lanes {
		e.lanes[i].traffic = traffic{}
	}
}

// A card is what the peer must know of an end.
type card struct {
	GID      rdma.GID `json:"gid"`
	LID      uint16   `json:"lid"`
	Endpoint []byte   `json:"endpoint,omitempty"` // of providers that need one
	Pairs    []pair   `json:"pairs"`
	PSN      uint32   `json:"psn"`
	MTU      rdma.MTU `json:"mtu"`
	RdAtom   uint8    `json:"rd_atom"` // reads and atomics answered at a time
	Addr     uint64   `json:"addr"`    // of the memory
	RKey     uint32   `json:"rkey"`
	Length   uint64   `json:"length"`
}

// A pair is the numbers of a lane.
type pair struct {
	QPN    uint32 `json:"qpn"`
	Target uint32 `json:"target"` // the number of the queue pair that receives
	SRQ    uint32 `json:"srq,omitempty"`
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

func (e *end) out() []byte { return e.mr.Bytes()[:e.size] }

// inbox is where messages and writes of the peer land.
func (e *end) inbox() []byte {
	at := e.params.span() + grhRoom
	return e.mr.Bytes()[at : at+e.size]
}

// newEnd opens the device and makes the objects.
func newEnd(env *rank.Environment, p *params, serves bool, secret []byte) (*end, error) {
	e := &end{params: p, serves: serves, size: p.size, psn: rand.Uint32() & 0xffffff}
	if err := e.make(env, secret); err != nil {
		return nil, errors.Join(err, e.close())
	}
	return e, nil
}

func (e *end) own(c io.Closer) { e.owned = append(e.owned, c) }

// close closes everything, the last first.
func (e *end) close() error {
	var errs []error
	for _, c := range slices.Backward(e.owned) {
		errs = append(errs, c.Close())
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
	if p.transport == rdma.UD && !p.all && p.size > e.mtu.Bytes() {
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
	if e.cq, err = e.ctx.CreateCQ(p.pairs * (3*p.depth + creditRoom)); err != nil {
		return err
	}
	e.own(e.cq)
	if p.transport == rdma.XRCSend {
		if e.xrcd, err = e.ctx.OpenXRCD(rdma.XRCDInitAttr{}); err != nil {
			return err
		}
		e.own(e.xrcd)
	}
	if err := e.chooseInline(); err != nil {
		return err
	}
	e.lanes = make([]lane, p.pairs)
	for i := range e.lanes {
		e.lanes[i].index = uint64(i)
		if err := e.makeLane(&e.lanes[i]); err != nil {
			return err
		}
	}
	return nil
}

// inlineDefault is the longest message that is sent inline, as in perftest.
const inlineDefault = 220

// chooseInline settles which messages are sent inline.
func (e *end) chooseInline() error {
	p, most := e.params, e.ctx.QueryDevice().MaxInlineData
	switch {
	case p.op == opRead || p.op == opAtomic: // their data comes
	case p.inline > most:
		return fmt.Errorf("-I: found %d, but %s sends %d bytes inline at most", p.inline, e.device, most)
	case p.inline >= 0:
		e.inline = p.inline
	case p.all || p.size <= min(most, inlineDefault):
		e.inline = min(most, inlineDefault)
	}
	return nil
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

// makeLane creates the queue pairs of a lane and brings them to INIT, with receives.
func (e *end) makeLane(l *lane) error {
	p := e.params
	size := rdma.QPCap{MaxSendWR: p.depth + creditRoom, MaxRecvWR: 2 * p.depth, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInlineData: e.inline}
	init := rdma.QPInitAttr{SendCQ: e.cq, RecvCQ: e.cq, Cap: size, Type: p.transport}
	shared := rdma.SRQAttr{MaxWR: size.MaxRecvWR, MaxSGE: 1}
	var err error
	switch p.transport {
	case rdma.XRCSend:
		err = e.makeTarget(l, rdma.SRQInitAttr{Attr: shared, Type: rdma.SRQXRC, XRCD: e.xrcd, CQ: e.cq}, rdma.QPInitAttr{Type: rdma.XRCRecv, XRCD: e.xrcd})
	case rdma.DCI:
		err = e.makeTarget(l, rdma.SRQInitAttr{Attr: shared}, rdma.QPInitAttr{Type: rdma.DCT, SendCQ: e.cq, RecvCQ: e.cq, DCAccessKey: dcKey})
	}
	if err != nil {
		return err
	}
	if l.recv != nil {
		init.Cap.MaxRecvWR, init.Cap.MaxRecvSGE = 0, 0
	}
	if l.qp, err = e.makeQP(init); err != nil {
		return err
	}
	if l.recv == nil {
		l.recv = l.qp
	}
	for range size.MaxRecvWR {
		if err := e.postRecv(l); err != nil {
			return err
		}
	}
	return nil
}

// makeTarget creates the queue pair that receives for an initiator, and its receives.
func (e *end) makeTarget(l *lane, receives rdma.SRQInitAttr, target rdma.QPInitAttr) (err error) {
	if l.srq, err = e.pd.CreateSRQ(receives); err != nil {
		return err
	}
	e.own(l.srq)
	if target.Type == rdma.DCT {
		target.SRQ = l.srq
	}
	l.recv, err = e.makeQP(target)
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
	mine := card{GID: e.gid, PSN: e.psn, MTU: e.mtu, RdAtom: e.rdAtom(),
		Addr: e.mr.Addr(), RKey: e.mr.RKey(), Length: e.mr.Len()}
	if port, err := e.ctx.QueryPort(1); err == nil {
		mine.LID = port.LID
	}
	for i := range e.lanes {
		l := &e.lanes[i]
		numbers := pair{QPN: l.qp.Num(), Target: l.recv.Num()}
		if e.params.transport == rdma.XRCSend {
			numbers.SRQ = l.srq.Num()
		}
		mine.Pairs = append(mine.Pairs, numbers)
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
	if len(theirs.Pairs) != len(e.lanes) {
		return fmt.Errorf("the peer has %d queue pairs, expected %d", len(theirs.Pairs), len(e.lanes))
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
	for i := range e.lanes {
		l, theirs := &e.lanes[i], e.peer.Pairs[i]
		if l.recv != l.qp {
			attr.DestQPNum = theirs.QPN
			if err := advance(l.recv, attr); err != nil {
				return err
			}
		}
		attr.DestQPNum = theirs.Target
		if err := advance(l.qp, attr); err != nil {
			return err
		}
	}
	return nil
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
func (e *end) postRecv(l *lane) error {
	at, n := e.params.span()+grhRoom, e.params.size
	if e.params.transport == rdma.UD {
		at, n = at-rdma.GRHLen, n+rdma.GRHLen
	}
	e.rsge[0] = rdma.SGE{Addr: e.mr.Addr() + uint64(at), Length: uint32(n), LKey: e.mr.LKey()}
	e.rr[0] = rdma.RecvWR{WRID: l.index << 1, SGL: e.rsge[:]}
	var err error
	if l.srq != nil {
		_, err = l.srq.PostRecv(e.rr[:])
	} else {
		_, err = l.recv.PostRecv(e.rr[:])
	}
	return err
}

// post posts a signaled request of the whole out buffer; a read's or an
// atomic's bytes come to the inbox.
func (e *end) post(l *lane, op rdma.WROpcode) error {
	at := e.mr.Addr()
	remote := e.peer.Addr + uint64(e.params.span()+grhRoom) // the peer's inbox
	flags := rdma.SendSignaled
	if op.Operation().Fetches() {
		at += uint64(e.params.span() + grhRoom)
		remote = e.peer.Addr
	} else if e.size <= e.inline {
		flags |= rdma.SendInline
	}
	e.sge[0] = rdma.SGE{Addr: at, Length: uint32(e.size), LKey: e.mr.LKey()}
	e.wr[0] = rdma.SendWR{WRID: l.index << 1, Opcode: op, Flags: flags, SGL: e.sge[:], RemoteAddr: remote, RKey: e.peer.RKey, CompareAdd: 1}
	return e.send(l)
}

// give posts a credit: a send without data, which its immediate value tells from a message.
func (e *end) give(l *lane) error {
	e.wr[0] = rdma.SendWR{WRID: l.index<<1 | 1, Opcode: rdma.WRSendWithImm, Flags: rdma.SendSignaled}
	return e.send(l)
}

// send posts the request, to the peer's end of the lane.
func (e *end) send(l *lane) error {
	wr, theirs := &e.wr[0], &e.peer.Pairs[l.index]
	wr.SRQNum = theirs.SRQ
	switch e.params.transport {
	case rdma.UD:
		wr.AH, wr.RemoteQPN, wr.RemoteQKey = e.ah, theirs.QPN, qkey
	case rdma.DCI:
		wr.AH, wr.RemoteQPN, wr.DCAccessKey = e.ah, theirs.Target, dcKey
	}
	_, err := l.qp.PostSend(e.wr[:])
	return err
}

// poll counts what is complete. The first failure stays.
func (e *end) poll() {
	n, err := e.cq.Poll(e.wcs[:])
	if err != nil && e.failure == nil {
		e.failure = err
	}
	for i := range e.wcs[:n] {
		wc := &e.wcs[i]
		if wc.Status != rdma.WCSuccess {
			if e.failure == nil {
				e.failure = fmt.Errorf("a request of queue pair %#x failed: %w (vendor error %#x)", wc.QPNum, wc.Status, wc.VendorErr)
			}
			continue
		}
		l := &e.lanes[wc.WRID>>1]
		switch {
		case wc.Opcode == rdma.WCRecv && wc.Flags&rdma.WCFlagWithImm != 0:
			l.credits++
		case wc.Opcode >= rdma.WCRecv:
			l.received++
		case wc.WRID&1 != 0:
			l.credited++
		default:
			l.sent++
		}
	}
}

func (e *end) String() string {
	return fmt.Sprintf("%s (%s), %v, GID %d %v, MTU %d; local QPN %#06x PSN %#06x, remote QPN %#06x PSN %#06x GID %v",
		e.device, e.provider, e.params.transport, e.params.gidIndex, e.gid, e.mtu.Bytes(),
		e.lanes[0].qp.Num(), e.psn, e.peer.Pairs[0].Target, e.peer.PSN, e.peer.GID)
}
