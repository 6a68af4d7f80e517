package soft

import (
	"fmt"
	"sync/atomic"

	"github.com/gorun-mpi/gorun/rdma"
)

// An srq is a shared receive queue as programs have it.
type srq struct {
	rdma.UnsupportedSRQ
	*sharedQueue
	family // of queue pairs attached
	num    uint32
	within *xrcDomain // of XRC: the domain
}

// The number of a shared receive queue: its index, the rank whose arena it is
// in, and the life of its place, so that a stale number names none.
const srqIndexBits = 12

// srqRankBits are those of the rank, and of the whole number. With Config.Numbers numbers have the 24 bits of InfiniBand, which
// programs count on that send them as text.
func (p *Provider) srqRankBits() (rank, all int) {
	if p.cfg.Numbers.Blocks > 0 {
		return 10, 24
	}
	return 14, 32
}

// numberOf makes the number of a new life of a place.
func (p *Provider) numberOf(index uint32) uint32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.free.srqLives) <= int(index) {
		p.free.srqLives = append(p.free.srqLives, 0)
	}
	rank, all := p.srqRankBits()
	p.free.srqLives[index] = p.free.srqLives[index]%(1<<(all-srqIndexBits-rank)-1) + 1
	return uint32(p.free.srqLives[index])<<(srqIndexBits+rank) | uint32(p.cfg.Rank)<<srqIndexBits | index
}

func (d *domain) CreateSRQ(init rdma.SRQInitAttr) (rdma.SRQ, error) {
	bad := func(err error, f string, a ...any) (rdma.SRQ, error) { return nil, opError("create_srq", err, f, a...) }
	if init.Type > rdma.SRQTagMatching {
		return bad(rdma.ErrNotSupported, "found type %d, expected a basic shared receive queue, one of XRC or one with tags", init.Type)
	}
	if init.Striding != (rdma.StridingRQ{}) {
		if init.Type != rdma.SRQBasic {
			return bad(rdma.ErrNotSupported, "only basic shared receive queues have strides")
		}
		if wrong := shapeBad(init.Striding, init.Attr.MaxWR); wrong != "" {
			return bad(rdma.ErrInvalid, "%s", wrong)
		}
		if d.p.segment.Ranks() > maxStrideRanks {
			return bad(rdma.ErrNotSupported, "%d ranks: the claims of strides have room for %d", d.p.segment.Ranks(), maxStrideRanks)
		}
	}
	var within *xrcDomain
	var cq *completionQueue
	tags := 0
	switch init.Type {
	case rdma.SRQTagMatching:
		var ok bool
		if cq, ok = init.CQ.(*completionQueue); !ok || cq.ctx != d.ctx {
			return bad(rdma.ErrInvalid, "expected a completion queue of this context")
		}
		if init.MaxTags < 1 || init.MaxTags > maxTags || init.MaxOps < 1 || init.MaxOps > maxTagOps {
			return bad(rdma.ErrInvalid, "found %d tags and %d operations, expected 1 to %d and 1 to %d", init.MaxTags, init.MaxOps, maxTags, maxTagOps)
		}
		if d.p.segment.Ranks() > 1<<logRankBits {
			return bad(rdma.ErrNotSupported, "%d ranks: a list of tags has room for %d", d.p.segment.Ranks(), 1<<logRankBits)
		}
		tags = init.MaxTags
	case rdma.SRQXRC:
		var ok1, ok2 bool
		within, ok1 = init.XRCD.(*xrcDomain)
		cq, ok2 = init.CQ.(*completionQueue)
		if !ok1 || !ok2 || within.ctx != d.ctx || cq.ctx != d.ctx {
			return bad(rdma.ErrInvalid, "the XRC domain and the completion queue must be there and of this context")
		}
	}
	a := init.Attr
	if a.MaxWR < 1 || a.MaxWR > maxWR {
		return bad(rdma.ErrInvalid, "max_wr %d: want 1 to %d", a.MaxWR, maxWR)
	}
	if a.MaxSGE < 0 || a.MaxSGE > maxSGE {
		return bad(rdma.ErrInvalid, "max_sge %d: want 0 to %d", a.MaxSGE, maxSGE)
	}
	if err := d.adopt("create_srq"); err != nil {
		return nil, err
	}
	h, err := d.openShared("create_srq", a.MaxWR, a.MaxSGE, tags, init.Striding)
	if err != nil {
		d.disown()
		return nil, err
	}
	s := &srq{sharedQueue: h, family: family{name: "shared receive queue"}, num: h.p.numberOf(h.index)}
	h.api = s
	if init.Striding.Strides > 0 {
		h.openStrides(init.Striding)
	}
	if cq != nil {
		if err := s.enter(within, cq, init.MaxOps); err != nil {
			_ = h.shut(new(patience)) // no process has heard of it
			d.disown()
			return nil, err
		}
	}
	h.show()
	atomic.StoreUint32(&h.head.num, s.num)
	return s, nil
}

// enter makes the queue one that completes in cq: of an XRC domain, or with a list
// of tags.
func (s *srq) enter(within *xrcDomain, cq *completionQueue, maxOps int) error {
	if within != nil {
		if err := within.adopt("create_srq"); err != nil {
			return err
		}
		atomic.StoreUint64(&s.head.scope, within.id)
	} else {
		s.openTags(maxOps)
	}
	if err := cq.attachShared(s.sharedQueue); err != nil {
		if within != nil {
			within.disown()
		}
		return err
	}
	s.within, s.recv = within, cq
	atomic.StoreUint32(&s.head.cq, cq.index)
	if s.tags != nil {
		s.p.watch.enter()
	}
	return nil
}

func (s *srq) PD() rdma.PD { return s.pd }
func (s *srq) Num() uint32 { return s.num }

func (s *srq) PostRecv(wrs []rdma.RecvWR) (int, error) {
	n, err := s.post("post_srq_recv", wrs)
	if n > 0 {
		s.feed()
	}
	return n, err
}

func (s *srq) Modify(attr rdma.SRQAttr, mask rdma.SRQAttrMask) error {
	bad := func(err error, format string, args ...any) error { return opError("modify_srq", err, format, args...) }
	switch {
	case mask&^(rdma.SRQLimitMask|rdma.SRQMaxWRMask) != 0:
		return bad(rdma.ErrInvalid, "found attribute mask %#x, expected limit and max_wr only", mask)
	case mask&rdma.SRQMaxWRMask != 0:
		return bad(rdma.ErrNotSupported, "this device cannot resize a shared receive queue")
	case mask&rdma.SRQLimitMask == 0:
		return nil
	case attr.Limit < 0 || attr.Limit > s.maxWR:
		return bad(rdma.ErrInvalid, "found limit %d, expected 0 to %d", attr.Limit, s.maxWR)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return bad(rdma.ErrInvalid, "the queue is closed")
	}
	s.limited() // of an earlier limit
	atomic.StoreUint32(&s.head.limit, uint32(attr.Limit))
	return nil
}

func (s *srq) Query() rdma.SRQAttr {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return rdma.SRQAttr{MaxWR: s.maxWR, MaxSGE: s.maxSGE}
	}
	return rdma.SRQAttr{MaxWR: s.maxWR, MaxSGE: s.maxSGE, Limit: int(min(atomic.LoadUint32(&s.head.limit), maxWR))}
}

// limited tells the program that the limit was reached, if it was.
func (s *srq) limited() {
	if atomic.LoadUint32(&s.head.fired) != 0 && atomic.SwapUint32(&s.head.fired, 0) != 0 {
		s.pd.ctx.events.add(rdma.AsyncEvent{Type: rdma.EventSRQLimitReached, SRQ: s})
	}
}

func (s *srq) Close() error {
	if before, err := s.end("destroy_srq", "queue pairs still use it"); before || err != nil {
		return err
	}
	atomic.StoreUint32(&s.head.num, 0)
	if s.tags != nil {
		s.p.watch.leave()
		s.harvest()
		s.tags.endFetches()
	}
	stuck := s.shut(new(patience))
	if s.within != nil {
		s.within.disown()
	}
	s.pd.ctx.events.forget(func(e rdma.AsyncEvent) bool { return e.SRQ == rdma.SRQ(s) })
	s.pd.disown()
	if stuck {
		return &rdma.OpError{Op: "destroy_srq", Detail: fmt.Sprintf("a peer has been in the middle of an operation for %v", drainLimit), Err: errStuck}
	}
	return nil
}
