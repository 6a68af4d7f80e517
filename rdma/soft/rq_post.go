package soft

import (
	"fmt"
	"sync/atomic"

	"github.com/gorun-mpi/gorun/internal/arch"
	"github.com/gorun-mpi/gorun/rdma"
)

func (q *queuePair) PostRecv(wrs []rdma.RecvWR) (int, error) {
	if q.shared != nil && q.shared.inbox != nil {
		return q.postInbox(wrs)
	}
	switch q.init.Type {
	case rdma.XRCSend, rdma.XRCRecv, rdma.DCI:
		return 0, &rdma.OpError{Op: "post_recv", Detail: fmt.Sprintf("a queue pair of type %v has no receive queue", q.init.Type), Err: rdma.ErrInvalid}
	}
	if q.shared != nil {
		return 0, &rdma.OpError{Op: "post_recv", Detail: "receives of this queue pair are posted to its shared receive queue", Err: rdma.ErrInvalid}
	}
	q.rq.mu.Lock()
	n, err := q.rq.post(wrs)
	q.rq.mu.Unlock()
	if n > 0 {
		if q.state() == rdma.StateErr {
			q.flush()
		} else if atomic.LoadUint32(&q.own.starved) != 0 {
			atomic.StoreUint32(&q.own.starved, 0)
			if t := q.target.Load(); t != nil {
				t.peer.bell.Ring()
			}
		}
	}
	return n, err
}

func (r *receiveRing) post(wrs []rdma.RecvWR) (int, error) {
	q := r.q
	for i := range wrs {
		wr := &wrs[i]
		// Judged anew for each: a flush between two posts is done with what
		// it saw, and the post after it calls the next one.
		if q.ending.gone.Load() || q.state() == rdma.StateReset {
			return i, &rdma.OpError{Op: "post_recv", Detail: "found the queue pair in RESET, expected INIT or later", Err: rdma.ErrInvalid}
		}
		if len(wr.SGL) > q.init.Cap.MaxRecvSGE {
			return i, &rdma.OpError{Op: "post_recv", Detail: fmt.Sprintf("found %d scatter entries, expected at most %d", len(wr.SGL), q.init.Cap.MaxRecvSGE), Err: rdma.ErrInvalid}
		}
		if want, room := uint64(q.init.Striding.Strides)*uint64(q.init.Striding.StrideBytes), sglLength(wr.SGL); room < want {
			return i, &rdma.OpError{Op: "post_recv", Detail: fmt.Sprintf("found a buffer of %d bytes for %d strides of %d bytes, expected %d", room, q.init.Striding.Strides, q.init.Striding.StrideBytes, want), Err: rdma.ErrInvalid}
		}
		posted := atomic.LoadUint32(&r.posted)
		n := r.strides
		if posted+n-atomic.LoadUint32(&r.freed) > uint32(q.init.Cap.MaxRecvWR)*n {
			return i, &rdma.OpError{Op: "post_recv", Detail: fmt.Sprintf("the queue is full with %d requests", q.init.Cap.MaxRecvWR), Err: rdma.ErrNoMemory}
		}
		if r.slot(posted) == nil {
			return i, &rdma.OpError{Op: "post_recv", Detail: "the receive queue is not in the arena", Err: rdma.ErrInvalid}
		}
		list := tableAt[slotSGE](q.p.arena, r.slotAt(posted)+slotHeader, len(wr.SGL))
		for k, s := range wr.SGL {
			list[k] = slotSGE{s.Addr, s.Length, s.LKey}
		}
		r.wrids[posted&(r.slots-1)] = wr.WRID
		arch.StoreRelease32(&r.posted, posted+n)
		r.open(posted, uint8(len(wr.SGL)))
	}
	return len(wrs), nil
}

// postInbox posts to the receive queue of a datagram queue pair.
func (q *queuePair) postInbox(wrs []rdma.RecvWR) (int, error) {
	if q.state() == rdma.StateReset {
		return 0, &rdma.OpError{Op: "post_recv", Detail: "found the queue pair in RESET, expected INIT or later", Err: rdma.ErrInvalid}
	}
	n, err := q.shared.post("post_recv", wrs)
	if n > 0 && q.state() == rdma.StateErr {
		q.flush()
	}
	return n, err
}
