package verbs

/*
#include "mlx5.h"
*/
import "C"

import (
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gorun-mpi/gorun/rdma"
)

// A queuePair is a QP. Its locks are taken in the order they are listed, and
// before those of CQs.
type queuePair struct {
	c              *deviceContext
	d              *domain // nil of one that OpenQP gave
	h              handle
	num            atomic.Uint32 // 0 of a DCT that is not in RTR
	node           node
	init           rdma.QPInitAttr
	sendCQ, recvCQ *completionQueue
	srq            *sharedQueue
	xrcd           *xrcDomain

	ext *extension // how it was made, nil by libibverbs
	how C.gv_mlx5_qp

	peer       atomic.Uint32 // the connected queue pair's number
	drainAsked atomic.Bool   // of the present SQD
	failed     atomic.Bool   // a completion, or a Modify, has told that it is in ERR

	life sync.Mutex // guards attr, and h against its end
	gone bool
	attr rdma.QPAttr // what was set; the state may have moved on to ERR or SQE

	sendMu   sync.Mutex
	send     *workQueue // nil without a send queue
	sendOK   bool       // the state takes sends
	sends    batch[sendWR]
	plain    uint32 // operations, as bits, that layOutData lays out
	batches  atomic.Uint64
	layout   layoutBuffer
	target   rdma.DCTarget // of a DCI's last request
	connects atomic.Uint64

	recvMu sync.Mutex
	recv   *workQueue // nil without a receive queue of its own
	recvOK bool
	recvs  batch[recvWR]
}

var _ rdma.QP = (*queuePair)(nil)

func (d *domain) CreateQP(attr rdma.QPInitAttr) (rdma.QP, error) {
	const op = "create_qp"
	c := d.c
	q := &queuePair{c: c, d: d, init: attr}
	if err := q.judge(op); err != nil {
		return nil, err
	}
	request := C.gv_qp_init{pd: d.h, _type: C.int(attr.Type), sig_all: truth(attr.SigAll)}
	parents := []*node{&d.node}
	if q.sendCQ != nil {
		request.send_cq = q.sendCQ.h
		parents = append(parents, &q.sendCQ.node)
	}
	if q.recvCQ != nil {
		request.recv_cq = q.recvCQ.h
		parents = append(parents, &q.recvCQ.node)
	}
	if q.srq != nil {
		request.srq = q.srq.h
		parents = append(parents, &q.srq.node)
	}
	if q.xrcd != nil {
		request.xrcd = q.xrcd.h
		parents = append(parents, &q.xrcd.node)
	}
	cap := attr.Cap
	request.max_send_wr, request.max_recv_wr = C.uint32_t(cap.MaxSendWR), C.uint32_t(cap.MaxRecvWR)
	request.max_send_sge, request.max_recv_sge = C.uint32_t(cap.MaxSendSGE), C.uint32_t(cap.MaxRecvSGE)
	request.max_inline = C.uint32_t(cap.MaxInlineData)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := check(op, parents...); err != nil {
		return nil, err
	}
	if rc := q.create(&request); rc != 0 {
		return nil, failed(op, rc, fmt.Sprintf("%v with %+v", attr.Type, cap))
	}
	q.h = request.handle
	q.num.Store(uint32(request.num))
	q.init.Cap = rdma.QPCap{MaxSendWR: int(request.max_send_wr), MaxRecvWR: int(request.max_recv_wr),
		MaxSendSGE: int(request.max_send_sge), MaxRecvSGE: int(request.max_recv_sge), MaxInlineData: int(request.max_inline)}
	if err := q.addQueues(); err != nil {
		C.gv_destroy_qp(&c.lib.c, q.h)
		return nil, err
	}
	q.node.adopt(parents...)
	c.queues[q] = struct{}{}
	c.numbers.Store(q.num.Load(), q)
	c.name(q.h, q)
	return q, nil
}

// judge refuses what the kernel might take or call by another name, and finds
// the objects that the attributes name.
func (q *queuePair) judge(op string) error {
	a, d := &q.init, q.c.attr
	if err := q.c.Supports(transport(a.Type)); err != nil {
		return err
	}
	var ok bool
	if q.isDC() {
		if err := q.judgeDC(op); err != nil {
			return err
		}
	} else if a.Type != rdma.XRCRecv {
		if q.sendCQ, ok = a.SendCQ.(*completionQueue); !ok || q.sendCQ.c != q.c {
			return invalid(op, "the send CQ is missing, or of another context")
		}
	}
	if a.Type != rdma.XRCRecv && a.Type != rdma.XRCSend && !q.isDC() {
		if q.recvCQ, ok = a.RecvCQ.(*completionQueue); !ok || q.recvCQ.c != q.c {
			return invalid(op, "the receive CQ is missing, or of another context")
		}
	}
	if a.SRQ != nil {
		if q.srq, ok = a.SRQ.(*sharedQueue); !ok || q.srq.c != q.c {
			return invalid(op, "the SRQ is of another context")
		}
		if q.srq.tags != nil && a.Type != rdma.RC {
			return invalid(op, "type %v with a tag-matching SRQ: expected RC", a.Type)
		}
	}
	if a.Type == rdma.XRCRecv {
		if q.xrcd, ok = a.XRCD.(*xrcDomain); !ok || q.xrcd.c != q.c {
			return invalid(op, "the XRC domain is missing, or of another context")
		}
	}
	if a.Striding != (rdma.StridingRQ{}) {
		return q.c.Supports(rdma.FeatureStridingRQ)
	}
	if a.Cap.MaxInlineRecv > 0 {
		return q.c.Supports(rdma.FeatureInlineRecv)
	}
	for _, limit := range []struct {
		name      string
		asked, is int
	}{
		{"MaxSendWR", a.Cap.MaxSendWR, d.MaxQPWR}, {"MaxRecvWR", a.Cap.MaxRecvWR, d.MaxQPWR},
		{"MaxSendSGE", a.Cap.MaxSendSGE, d.MaxSGE}, {"MaxRecvSGE", a.Cap.MaxRecvSGE, d.MaxSGE},
	} {
		if limit.asked < 0 || limit.asked > limit.is {
			return invalid(op, "%s %d: the device has 0 to %d", limit.name, limit.asked, limit.is)
		}
	}
	if a.Cap.MaxInlineData < 0 || a.Cap.MaxInlineData > 1<<20 {
		return invalid(op, "MaxInlineData %d: expected 0 to %d", a.Cap.MaxInlineData, 1<<20)
	}
	q.extend(op)
	return nil
}

// addQueues makes the rings of the work queues. The caller holds c.mu.
func (q *queuePair) addQueues() error {
	if q.sendCQ != nil {
		q.send = &workQueue{pair: q, send: true, room: uint64(q.init.Cap.MaxSendWR), ring: make([]entry, ringSize(q.init.Cap.MaxSendWR))}
		if err := q.c.workQueues.add(q.send); err != nil {
			return err
		}
		q.sends.sge = max(1, q.init.Cap.MaxSendSGE)
		switch {
		case q.init.Cap.MaxSendSGE == 0:
		case q.init.Type == rdma.RC, q.init.Type == rdma.UC:
			q.plain = plainOps(q.init.Type)
		}
		q.sends.inline = (q.init.Cap.MaxInlineData + 7) &^ 7
	}
	if q.recvCQ != nil && q.srq == nil {
		q.recv = &workQueue{pair: q, room: uint64(q.init.Cap.MaxRecvWR), ring: make([]entry, ringSize(q.init.Cap.MaxRecvWR))}
		if err := q.c.workQueues.add(q.recv); err != nil {
			q.c.workQueues.remove(q.send)
			return err
		}
		q.recvs.sge = max(1, q.init.Cap.MaxRecvSGE)
	}
	return nil
}

// OpenQP shares an XRC target.
func (c *deviceContext) OpenQP(num uint32, xrcd rdma.XRCD) (rdma.QP, error) {
	const op = "open_qp"
	x, ok := xrcd.(*xrcDomain)
	if !ok || x.c != c {
		return nil, invalid(op, "the XRC domain is missing, or of another context")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := check(op, &x.node); err != nil {
		return nil, err
	}
	q := &queuePair{c: c, xrcd: x, init: rdma.QPInitAttr{Type: rdma.XRCRecv, XRCD: x}}
	q.num.Store(num)
	if rc := C.gv_open_qp(c.h, C.uint32_t(num), x.h, &q.h); rc != 0 {
		return nil, failed(op, rc, fmt.Sprintf("queue pair %#x", num))
	}
	var state C.int
	if rc := C.gv_query_qp_state(&c.lib.c, q.h, &state); rc != 0 {
		C.gv_destroy_qp(&c.lib.c, q.h)
		return nil, failed(op, rc, "its state")
	}
	q.attr.State = rdma.QPState(state)
	q.node.adopt(&x.node)
	c.queues[q] = struct{}{}
	c.numbers.Store(num, q)
	c.name(q.h, q)
	return q, nil
}

func (q *queuePair) PD() rdma.PD {
	if q.d == nil {
		return nil
	}
	return q.d
}

func (q *queuePair) Num() uint32 { return q.num.Load() }

// State asks the device: it may have moved the queue pair to ERR by itself.
func (q *queuePair) State() rdma.QPState {
	q.life.Lock()
	defer q.life.Unlock()
	return q.state()
}

func (q *queuePair) state() rdma.QPState {
	if q.gone || q.attr.State == rdma.StateReset {
		return q.attr.State
	}
	if state, early := q.stateOfTarget(); early {
		return state
	}
	var state C.int
	if C.gv_query_qp_state(&q.c.lib.c, q.h, &state) != 0 {
		return rdma.StateErr // a device that cannot be asked does no work either
	}
	return rdma.QPState(state)
}

func (q *queuePair) Query() (rdma.QPAttr, rdma.QPInitAttr) {
	q.life.Lock()
	defer q.life.Unlock()
	attr := q.attr
	attr.State = q.state()
	return attr, q.init
}

func (q *queuePair) Modify(attr rdma.QPAttr, mask rdma.QPAttrMask) error {
	q.life.Lock()
	defer q.life.Unlock()
	if q.gone {
		return invalid("modify_qp", "the queue pair is closed")
	}
	now := q.state()
	if err := rdma.CheckModify(q.init.Type, now, attr, mask); err != nil {
		return err
	}
	if err := q.checkValues(attr, mask); err != nil {
		return err
	}
	if err := q.checkTargetStep(attr, mask); err != nil {
		return err
	}
	if mask&rdma.QPStateMask == 0 { // not all drivers take it for the present one
		attr.State, mask = now, mask|rdma.QPStateMask
	}
	return q.modify(attr, mask)
}

// rxeVendor is the vendor of Soft-RoCE, which takes 7 retries for as many as it
// needs (rxe_comp.c, Linux 6.1): a request to a peer that is gone would wait for
// ever. It gets 6.
const rxeVendor = 0xffffff

// rxeDrain is how long Soft-RoCE may refuse to leave SQD (EINVAL), which it does
// until a task of its own has seen that nothing is under way.
const rxeDrain = time.Second

func (q *queuePair) modify(attr rdma.QPAttr, mask rdma.QPAttrMask) error {
	request := C.gv_qp_attr{
		state: C.int(attr.State), mtu: C.int(attr.PathMTU), sqd_notify: truth(attr.SQDAsyncNotify),
		access: C.uint32_t(attr.AccessFlags), dest_qpn: C.uint32_t(attr.DestQPNum), rq_psn: C.uint32_t(attr.RQPSN),
		sq_psn: C.uint32_t(attr.SQPSN), qkey: C.uint32_t(attr.QKey), pkey_index: C.uint16_t(attr.PKeyIndex), port: C.uint8_t(attr.PortNum),
		max_dest_rd_atomic: C.uint8_t(attr.MaxDestRdAtomic), max_rd_atomic: C.uint8_t(attr.MaxRdAtomic),
		min_rnr_timer: C.uint8_t(attr.MinRNRTimer), timeout: C.uint8_t(attr.Timeout), retry_cnt: C.uint8_t(attr.RetryCnt),
		rnr_retry: C.uint8_t(attr.RNRRetry), av: ahAttr(attr.AV),
	}
	if attr.RetryCnt == 7 && q.c.attr.VendorID == rxeVendor {
		request.retry_cnt = 6
	}
	reset := attr.State == rdma.StateReset
	// Nothing may be posted while the queues are emptied.
	q.sendMu.Lock()
	defer q.sendMu.Unlock()
	q.recvMu.Lock()
	defer q.recvMu.Unlock()
	q.drainAsked.Store(attr.SQDAsyncNotify && mask&rdma.QPSQDAsyncNotifyMask != 0)
	rc := C.gv_modify_qp(&q.c.lib.c, q.h, &request, C.int(mask))
	if q.attr.State == rdma.StateSQD && q.c.attr.VendorID == rxeVendor {
		for try := time.Now(); syscall.Errno(rc) == syscall.EINVAL && time.Since(try) < rxeDrain; time.Sleep(time.Millisecond) {
			rc = C.gv_modify_qp(&q.c.lib.c, q.h, &request, C.int(mask))
		}
	}
	if rc != 0 {
		if syscall.Errno(rc) == syscall.ENODATA { // an index of an empty entry
			rc = C.int(syscall.EINVAL)
		}
		return failed("modify_qp", rc, fmt.Sprintf("%v %v to %v with %v", q.init.Type, q.attr.State, attr.State, mask))
	}
	if reset {
		q.attr = rdma.QPAttr{}
		q.each(func(l *workQueue, cq *completionQueue) {
			cq.mu.Lock()
			l.forget()
			cq.mu.Unlock()
		})
	} else {
		q.attr.Apply(attr, mask)
	}
	if q.init.Type == rdma.DCT && q.attr.State == rdma.StateRTR {
		q.numberTarget()
	}
	if reset || attr.State == rdma.StateErr {
		q.target = rdma.DCTarget{}
	}
	q.peer.Store(q.attr.DestQPNum)
	q.failed.Store(attr.State == rdma.StateErr)
	q.sendOK = attr.State >= rdma.StateRTS
	q.recvOK = !reset
	return nil
}

// checkValues refuses what names something that is not there, or more than the
// device can: not all drivers look.
func (q *queuePair) checkValues(attr rdma.QPAttr, mask rdma.QPAttrMask) error {
	const op = "modify_qp"
	d := q.c.attr
	if mask&rdma.QPPortMask != 0 {
		p, err := q.c.port(op, attr.PortNum)
		if err != nil {
			return err
		}
		if mask&rdma.QPPKeyIndexMask != 0 && int(attr.PKeyIndex) >= int(p.pkey_tbl_len) {
			return invalid(op, "P_Key index %d of a table of %d", attr.PKeyIndex, int(p.pkey_tbl_len))
		}
	}
	if mask&rdma.QPAVMask != 0 {
		if err := q.c.checkAV(op, attr.AV); err != nil {
			return err
		}
	}
	if mask&rdma.QPMaxDestRdAtomicMask != 0 && int(attr.MaxDestRdAtomic) > d.MaxQPRdAtom {
		return invalid(op, "max_dest_rd_atomic %d: the device has %d", attr.MaxDestRdAtomic, d.MaxQPRdAtom)
	}
	if mask&rdma.QPMaxRdAtomicMask != 0 && int(attr.MaxRdAtomic) > d.MaxQPInitRdAtom {
		return invalid(op, "max_rd_atomic %d: the device has %d", attr.MaxRdAtomic, d.MaxQPInitRdAtom)
	}
	return nil
}

// flush has the receives of a queue pair in ERR completed that were posted since.
// rxe (6.1) does that only when it is told of ERR once more: it learns nothing of a
// receive that is posted. For others it is a step that changes nothing.
func (q *queuePair) flush() error {
	request := C.gv_qp_attr{state: C.int(rdma.StateErr)}
	return failed("modify_qp", C.gv_modify_qp(&q.c.lib.c, q.h, &request, C.int(rdma.QPStateMask)), "flush receives")
}

// kill moves the queue pair to ERR if it is not there.
func (q *queuePair) kill() {
	q.life.Lock()
	defer q.life.Unlock()
	if q.gone || q.attr.State == rdma.StateReset || q.init.Type == rdma.DCT {
		return
	}
	_ = q.modify(rdma.QPAttr{State: rdma.StateErr}, rdma.QPStateMask) // what cannot be killed is dead
}

// each calls f for the queue pair's work queues and where they complete.
func (q *queuePair) each(f func(*workQueue, *completionQueue)) {
	if q.send != nil {
		f(q.send, q.sendCQ)
	}
	if q.recv != nil {
		f(q.recv, q.recvCQ)
	}
}

// counters adds what the queue pair did. The caller holds countMu.
func (q *queuePair) counters(sum *rdma.Counters) {
	if q.send == nil {
		return
	}
	sum.Batches += q.batches.Load()
	sum.DCConnects += q.connects.Load()
	q.sendCQ.mu.Lock()
	q.send.count.report(sum)
	q.sendCQ.mu.Unlock()
}

// Close destroys the queue pair.
func (q *queuePair) Close() error { return q.c.shut("destroy_qp", &q.node, q.destroy) }

func (q *queuePair) destroy() error {
	q.life.Lock()
	defer q.life.Unlock()
	q.sendMu.Lock()
	q.recvMu.Lock()
	defer q.sendMu.Unlock()
	defer q.recvMu.Unlock()
	if err := q.c.freeWindows(q); err != nil {
		return err
	}
	q.c.unname(q.h)
	q.c.numbers.CompareAndDelete(q.num.Load(), q)
	if err := failed("destroy_qp", C.gv_destroy_qp(&q.c.lib.c, q.h), ""); err != nil {
		q.c.numbers.Store(q.num.Load(), q)
		q.c.name(q.h, q)
		return err
	}
	q.gone, q.sendOK, q.recvOK = true, false, false
	q.sends.free()
	q.recvs.free()
	q.layout.free()
	c := q.c
	c.countMu.Lock()
	q.counters(&c.past)
	c.mu.Lock()
	delete(c.queues, q)
	c.mu.Unlock()
	c.countMu.Unlock()
	q.each(func(l *workQueue, cq *completionQueue) {
		cq.mu.Lock() // a poller may be at the work queue
		c.workQueues.remove(l)
		cq.mu.Unlock()
	})
	return nil
}

// errFull is the error of a post to a full queue.
func errFull(op string) error {
	return &rdma.OpError{Op: op, Detail: "the queue is full", Err: syscall.ENOMEM}
}

// bindMW calls the verb; r is nil when the window is unbound.
func bindMW(qp handle, w *window, id uint64, flags rdma.SendFlags, r *region, bind *rdma.MWBind) (rkey uint32, err error) {
	b := C.gv_bind{wr_id: C.uint64_t(id), addr: C.uint64_t(bind.Addr), length: C.uint64_t(bind.Length),
		send_flags: C.uint32_t(flags), access: C.uint32_t(bind.Access), stand_in: truth(w.d.c.attr.VendorID == rxeVendor)}
	if r != nil {
		b.mr = r.h
	}
	key := C.uint32_t(0)
	err = failed("bind_mw", C.gv_bind_mw(qp, w.h, &b, &key), "")
	return uint32(key), err
}
