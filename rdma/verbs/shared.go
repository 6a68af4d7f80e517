package verbs

/*
#include "tag.h"
*/
import "C"

import (
	"fmt"
	"sync"

	"github.com/gorun-mpi/gorun/rdma"
)

// A sharedQueue is an SRQ.
type sharedQueue struct {
	c         *deviceContext
	d         *domain
	h         handle
	num       uint32
	node      node
	init      rdma.SRQInitAttr
	xrcd      *xrcDomain
	cq        *completionQueue
	workQueue *workQueue // for its index
	tags      *tagList

	mu    sync.Mutex // guards what follows
	gone  bool
	sge   int
	wrids []uint64 // of the receives posted, by the number in their identity
	free  []uint32 // grow in wrids
	recvs batch[recvWR]
}

var _ rdma.SRQ = (*sharedQueue)(nil)

func (d *domain) CreateSRQ(attr rdma.SRQInitAttr) (rdma.SRQ, error) {
	const op = "create_srq"
	c := d.c
	s := &sharedQueue{c: c, d: d, init: attr}
	request := C.gv_srq_init{pd: d.h, max_wr: C.uint32_t(attr.Attr.MaxWR), max_sge: C.uint32_t(attr.Attr.MaxSGE), limit: C.uint32_t(attr.Attr.Limit)}
	parents := []*node{&d.node}
	feature := rdma.FeatureSRQ
	switch attr.Type {
	case rdma.SRQBasic:
	case rdma.SRQXRC:
		feature = rdma.FeatureXRC
	case rdma.SRQTagMatching:
		feature = rdma.FeatureTagMatching
	default:
		return nil, invalid(op, "unknown type %d", attr.Type)
	}
	if attr.Striding != (rdma.StridingRQ{}) {
		feature = rdma.FeatureStridingRQ
	}
	if err := c.Supports(feature); err != nil {
		return nil, err
	}
	if a, l := attr.Attr, c.attr; a.MaxWR < 1 || a.MaxWR > l.MaxSRQWR || a.MaxSGE < 0 || a.MaxSGE > l.MaxSRQSGE || a.Limit < 0 || a.Limit > a.MaxWR {
		return nil, invalid(op, "%+v: the device has %d requests of %d scatter entries, and the limit is at most MaxWR", a, l.MaxSRQWR, l.MaxSRQSGE)
	}
	if attr.Type == rdma.SRQXRC {
		var ok bool
		if s.xrcd, ok = attr.XRCD.(*xrcDomain); !ok || s.xrcd.c != c {
			return nil, invalid(op, "the XRC domain is missing, or of another context")
		}
		if s.cq, ok = attr.CQ.(*completionQueue); !ok || s.cq.c != c {
			return nil, invalid(op, "the CQ is missing, or of another context")
		}
		request.xrc, request.xrcd, request.cq = 1, s.xrcd.h, s.cq.h
		parents = append(parents, &s.xrcd.node, &s.cq.node)
	}
	if attr.Type == rdma.SRQTagMatching {
		if err := s.judgeTags(op); err != nil {
			return nil, err
		}
		request.cq = s.cq.h
		parents = append(parents, &s.cq.node)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := check(op, parents...); err != nil {
		return nil, err
	}
	if err := failed(op, s.create(&request), fmt.Sprintf("%+v", attr.Attr)); err != nil {
		return nil, err
	}
	s.h, s.num = request.handle, uint32(request.num)
	s.sge = int(request.max_sge)
	s.recvs.sge = max(1, s.sge)
	s.workQueue = &workQueue{shared: s}
	if err := s.addQueues(); err != nil {
		C.gv_destroy_srq(&c.lib.c, s.h)
		return nil, err
	}
	s.node.adopt(parents...)
	c.name(s.h, s)
	if attr.Attr.Limit > 0 { // which the verb of creation leaves out
		if err := s.arm(attr.Attr.Limit); err != nil {
			c.mu.Unlock()
			defer c.mu.Lock()
			_ = s.Close()
			return nil, err
		}
	}
	return s, nil
}

// create calls the verb that makes a queue of this type.
func (s *sharedQueue) create(request *C.gv_srq_init) C.int {
	if s.tags != nil {
		return C.gv_create_tm_srq(s.c.h, request, C.uint32_t(s.init.MaxTags), C.uint32_t(s.init.MaxOps))
	}
	return C.gv_create_srq(&s.c.lib.c, s.c.h, request)
}

func (s *sharedQueue) addQueues() error {
	if err := s.c.workQueues.add(s.workQueue); err != nil {
		return err
	}
	if s.tags != nil {
		if err := s.addOps(); err != nil {
			s.c.workQueues.remove(s.workQueue)
			return err
		}
	}
	return nil
}

func (s *sharedQueue) arm(limit int) error {
	return failed("modify_srq", C.gv_modify_srq(&s.c.lib.c, s.h, 0, C.uint32_t(limit), C.int(rdma.SRQLimitMask)), fmt.Sprintf("limit %d", limit))
}

func (s *sharedQueue) PD() rdma.PD { return s.d }
func (s *sharedQueue) Num() uint32 { return s.num }

// PostRecv posts receives. Their identities are indices of a table: a shared
// queue completes in any order.
func (s *sharedQueue) PostRecv(wrs []rdma.RecvWR) (int, error) {
	const op = "post_srq_recv"
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone {
		return 0, invalid(op, "the queue is closed")
	}
	taken := 0
	for taken < len(wrs) {
		b := &s.recvs
		limit := min(len(wrs)-taken, batchLimit)
		if !b.reserve(limit) {
			return taken, errFull(op)
		}
		s.grow(limit)
		var bad error
		n := 0
		for n < limit {
			wr := &wrs[taken+n]
			index := s.free[len(s.free)-1-n]
			if bad = receive(b, n, uint64(index)<<queueBits|uint64(s.workQueue.index), wr.SGL, s.sge); bad != nil {
				break
			}
			s.wrids[index] = wr.WRID
			n++
		}
		if n > 0 {
			done, rc := postSRQ(s.h, b, n)
			if rc != 0 {
				bad = failed(op, rc, "")
			}
			s.free = s.free[:len(s.free)-done]
			taken += done
		}
		if bad != nil {
			return taken, bad
		}
	}
	return taken, nil
}

// grow makes room for n receives more. How many there may be is the device's
// to say; what it drops with a queue pair leaves its index taken.
func (s *sharedQueue) grow(n int) {
	for len(s.free) < n {
		old := len(s.wrids)
		s.wrids = append(s.wrids, make([]uint64, max(16, old))...)
		for i := len(s.wrids) - 1; i >= old; i-- {
			s.free = append(s.free, uint32(i))
		}
	}
}

// take gives the program's identity for a completion's.
func (s *sharedQueue) take(id uint64) (uint64, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	index := id >> queueBits
	if index >= uint64(len(s.wrids)) {
		return 0, false
	}
	s.free = append(s.free, uint32(index))
	return s.wrids[index], true
}

func (s *sharedQueue) Modify(attr rdma.SRQAttr, mask rdma.SRQAttrMask) error {
	const op = "modify_srq"
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone {
		return invalid(op, "the queue is closed")
	}
	now, err := s.query()
	if err != nil {
		return err
	}
	if mask&rdma.SRQMaxWRMask != 0 {
		if !s.c.attr.SRQResize {
			return notSupported(op, "the device does not resize a shared receive queue")
		}
		if attr.MaxWR < 1 || attr.MaxWR > s.c.attr.MaxSRQWR {
			return invalid(op, "%d receives: the device has 1 to %d", attr.MaxWR, s.c.attr.MaxSRQWR)
		}
		now.MaxWR = attr.MaxWR
	}
	if mask&rdma.SRQLimitMask != 0 && (attr.Limit < 0 || attr.Limit > now.MaxWR) {
		return invalid(op, "limit %d: the queue has %d", attr.Limit, now.MaxWR)
	}
	return failed(op, C.gv_modify_srq(&s.c.lib.c, s.h, C.uint32_t(attr.MaxWR), C.uint32_t(attr.Limit), C.int(mask)), fmt.Sprintf("%+v", attr))
}

func (s *sharedQueue) Query() rdma.SRQAttr {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone {
		return rdma.SRQAttr{}
	}
	attr, err := s.query()
	if err != nil { // a device that cannot be asked holds nothing
		return rdma.SRQAttr{}
	}
	return attr
}

func (s *sharedQueue) query() (rdma.SRQAttr, error) {
	var wr, sge, limit C.uint32_t
	err := failed("query_srq", C.gv_query_srq(&s.c.lib.c, s.h, &wr, &sge, &limit), "")
	return rdma.SRQAttr{MaxWR: int(wr), MaxSGE: int(sge), Limit: int(limit)}, err
}

func (s *sharedQueue) Close() error {
	return s.c.shut("destroy_srq", &s.node, func() error {
		s.c.unname(s.h)
		s.mu.Lock()
		defer s.mu.Unlock()
		if err := failed("destroy_srq", C.gv_destroy_srq(&s.c.lib.c, s.h), ""); err != nil {
			s.c.name(s.h, s)
			return err
		}
		s.gone = true
		s.recvs.free()
		s.c.workQueues.remove(s.workQueue)
		if s.tags != nil {
			s.tags.batch.free()
			s.c.workQueues.remove(s.tags.ops)
		}
		return nil
	})
}
