package soft

import (
	"sync/atomic"

	"github.com/gorun-mpi/gorun/rdma"
)

// Some requests change keys of the requester's own side. They go out to no peer
// and have no sequence number, but stand in the order of the send queue: they
// are executed when all before them is complete, and nothing behind them has
// begun. Each closes what a key opened, waits until no process is in the middle of
// an operation on it, and opens the key anew, or not.
//
//	post -> begin -> DRAINING -> end -> complete
//	          '- no one is at it -^
//
// Nothing of it blocks: the request waits at the head of the backlog.

// checkOwn judges such a request as a post does.
func (c *context) checkOwn(wr *rdma.SendWR) (wrong string) {
	if wr.Flags&rdma.SendInline != 0 {
		return "an operation on a key has no payload to inline"
	}
	switch wr.Opcode.Operation().Needs {
	case rdma.NeedsWindow:
		return c.checkBind(wr)
	case rdma.NeedsLayout:
		return c.checkLayout(wr)
	case rdma.NeedsKey:
		return ""
	}
	return "this device has no such operation on a key"
}

// A keyChange is such a request that has begun. Guarded by the queue pair's mu.
type keyChange struct {
	drain   *drain        // that it waits for
	subject invalidatable // what it invalidates
}

// run executes such a request, or goes on with it. Called with mu held.
func (k *keyChange) run(q *queuePair, wr *rdma.SendWR) (rdma.WCStatus, answer) {
	if k.drain == nil {
		d, ok := k.begin(q, wr)
		if !ok {
			return rdma.WCMWBindErr, accepted
		}
		k.drain = d
	}
	if k.drain != nil && !k.drain.over(q.p) {
		return 0, draining
	}
	k.drain = nil
	if !k.end(q, wr) {
		return rdma.WCMWBindErr, accepted
	}
	return rdma.WCSuccess, accepted
}

// begin judges the request, whose fields checkOwn has seen, and closes the key. The
// drain is nil when no process can be at it.
func (k *keyChange) begin(q *queuePair, wr *rdma.SendWR) (*drain, bool) {
	switch wr.Opcode.Operation().Needs {
	case rdma.NeedsWindow:
		return wr.MW.(*window).begin(q, wr)
	case rdma.NeedsLayout:
		return wr.Mkey.(*mkey).begin(q, wr)
	case rdma.NeedsKey:
		if k.subject = q.pd.keyed(wr.InvalidateRKey); k.subject != nil {
			return k.subject.invalidate(q, wr.InvalidateRKey)
		}
	}
	return nil, false
}

// end opens it.
func (k *keyChange) end(q *queuePair, wr *rdma.SendWR) bool {
	switch wr.Opcode.Operation().Needs {
	case rdma.NeedsWindow:
		return wr.MW.(*window).end(q, wr)
	case rdma.NeedsLayout:
		return wr.Mkey.(*mkey).end(wr)
	case rdma.NeedsKey:
		k.subject.invalidated(wr.InvalidateRKey)
		k.subject = nil
		return true
	}
	return false
}

// An invalidatable is an object whose key requests can invalidate.
type invalidatable interface {
	// invalidate closes the key, if a request of q may do that.
	invalidate(q *queuePair, key uint32) (*drain, bool)
	// invalidated: no process is at what the key opened any more.
	invalidated(key uint32)
	// endBy closes the key for the peer of queue pair num, which asks for it with
	// a send, if it may.
	endBy(num, key uint32) bool
}

// keyed gives what has the key in the domain, if it can be invalidated.
func (d *domain) keyed(key uint32) invalidatable {
	r := d.p.byKey.get(key >> 8)
	if r == nil || r.key != key || r.pd != d {
		return nil
	}
	k, _ := r.object.(invalidatable)
	return k
}

// invalidate closes a key of the responder's for a send that asks for it. In
// another process the owner hears of it with the completion: domain.ended.
func (s *peer) invalidate(c *queueContext, key uint32) bool {
	if s.own {
		r := s.p.byKey.get(key >> 8)
		if r == nil || r.key != key || r.pd.id != c.pd {
			return false
		}
		k, ok := r.object.(invalidatable)
		return ok && k.endBy(c.num, key)
	}
	index := uint64(key >> 8)
	if index >= uint64(len(s.regions)) {
		return false
	}
	e := &s.regions[index]
	live := uint64(key) | regionLive
	if atomic.LoadUint64(&e.state) != live || e.pd != c.pd || e.kind&kindPrivate == 0 || e.queue != c.num {
		return false
	}
	return atomic.CompareAndSwapUint64(&e.state, live, 0)
}

// ended does the owner's part for a key that the peer of queue pair num says it has
// invalidated.
func (d *domain) ended(num, key uint32) {
	if k := d.keyed(key); k != nil {
		k.endBy(num, key)
	}
}
