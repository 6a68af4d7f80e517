package verbs

/*
#include "mlx5.h"
*/
import "C"

import (
	"github.com/gorun-mpi/gorun/rdma"
)

// The dynamically connected transport of mlx5. An initiator is posted to by the
// functions of ibv_wr_start(3), each request with its target (mlx5dv_wr_post(3)). A
// target is made by the device when it goes to RTR: it has its number from there
// on, knows no other step (mlx5_ib_modify_dct of Linux), and cannot be asked for its
// state before.

func (q *queuePair) isDC() bool { return q.init.Type == rdma.DCI || q.init.Type == rdma.DCT }

// tryDC makes one of each half.
func (c *deviceContext) tryDC(ext *extension) error {
	return c.withQueue(func(pd, cq handle) error {
		if err := c.tryExtended(ext, pd, cq, 0, C.gv_mlx5_qp{kind: C.GV_QP_DCI}); err != nil {
			return err
		}
		srq := C.gv_srq_init{pd: pd, max_wr: 1, max_sge: 1}
		if rc := C.gv_create_srq(&c.lib.c, c.h, &srq); rc != 0 {
			return failed("create_srq", rc, "")
		}
		defer C.gv_destroy_srq(&c.lib.c, srq.handle)
		return c.tryExtended(ext, pd, cq, srq.handle, C.gv_mlx5_qp{kind: C.GV_QP_DCT})
	})
}

// judgeDC refuses halves that lack what they need, and takes from them what they
// do not have.
func (q *queuePair) judgeDC(op string) error {
	a := &q.init
	var ok bool
	if a.Type == rdma.DCI {
		if q.sendCQ, ok = a.SendCQ.(*completionQueue); !ok || q.sendCQ.c != q.c {
			return invalid(op, "the send CQ is missing, or of another context")
		}
		a.RecvCQ, a.SRQ, a.Cap.MaxRecvWR, a.Cap.MaxRecvSGE = a.SendCQ, nil, 0, 0
		return nil
	}
	if q.recvCQ, ok = a.RecvCQ.(*completionQueue); !ok || q.recvCQ.c != q.c {
		return invalid(op, "the receive CQ is missing, or of another context")
	}
	if a.SRQ == nil {
		return invalid(op, "a DC target needs a shared receive queue")
	}
	a.SendCQ, a.Cap = a.RecvCQ, rdma.QPCap{}
	return nil
}

// stateOfTarget is the state of a target that the device does not know yet.
func (q *queuePair) stateOfTarget() (rdma.QPState, bool) {
	return q.attr.State, q.init.Type == rdma.DCT && q.attr.State < rdma.StateRTR
}

// checkTargetStep refuses the steps that a target does not have on mlx5. The caller
// has asked rdma.CheckModify.
func (q *queuePair) checkTargetStep(attr rdma.QPAttr, mask rdma.QPAttrMask) error {
	if q.init.Type != rdma.DCT || mask&rdma.QPStateMask != 0 && (attr.State == rdma.StateInit && q.attr.State == rdma.StateReset || attr.State == rdma.StateRTR) {
		return nil
	}
	return notSupported("modify_qp", "mlx5 takes a target from RESET over INIT to RTR and no other way: close it")
}

// numberTarget learns the number of a target that went to RTR.
func (q *queuePair) numberTarget() {
	var num C.uint32_t
	C.gv_qp_num(q.h, &num)
	q.c.numbers.CompareAndDelete(q.num.Load(), q)
	q.num.Store(uint32(num))
	q.c.numbers.Store(uint32(num), q)
}

// layOutDC names the target in a request of an initiator.
func (q *queuePair) layOutDC(to *sendWR, wr *rdma.SendWR) error {
	const op = "post_send"
	if !wr.Opcode.Operation().GoesOut() {
		return notSupported(op, "opcode %d through an initiator", uint8(wr.Opcode))
	}
	ah, ok := wr.AH.(*address)
	if !ok || ah.d.c != q.c || wr.RemoteQPN >= 1<<24 {
		return invalid(op, "a request of a DC initiator needs an address handle of this context and a target number of 24 bits")
	}
	h := ah.open.Load()
	if h == 0 {
		return invalid(op, "the address handle is closed")
	}
	to.mw, to.mwRKey, to.bindAddr = h, wr.RemoteQPN, wr.DCAccessKey
	return nil
}

// countConnects counts the changes of target in requests that were posted. What
// the device does about them it does not tell. The caller holds q.sendMu.
func (q *queuePair) countConnects(wrs []rdma.SendWR) {
	for i := range wrs {
		to := rdma.DCTarget{AH: wrs[i].AH, Num: wrs[i].RemoteQPN, Key: wrs[i].DCAccessKey}
		if to != q.target {
			q.target = to
			q.connects.Add(1)
		}
	}
}
