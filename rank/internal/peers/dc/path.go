package dc

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/gorun-mpi/gorun/rank/internal/peers/wireup"
	"github.com/gorun-mpi/gorun/rdma"
)

// A Path is the way to a peer: a queue pair to the code that posts. It is in RTS from the beginning.
// Of the state table it knows the step to ERR.
type Path struct {
	rdma.UnsupportedQP
	pool  *Pool
	cq    *CQ
	to    destination
	depth int

	head, tail *request // not complete, in order
	next       *request // of them, the first that is not posted
	initiator  *initiator
	queued     bool // in line, or parked
	failed     bool
	wait       time.Duration // of the last parking
	again      time.Time     // end of it
}

var _ rdma.QP = (*Path)(nil)

// Path makes a path to a peer, whose completions come to cq. No more than depth requests are
// outstanding on it.
func (p *Pool) Path(peer int, cq *CQ, depth int) (*Path, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	to, ok := p.destinations[peer]
	if !ok {
		av, target, err := p.cfg.Find(peer)
		if err != nil {
			return nil, err
		}
		if to.ah, err = p.cfg.PD.CreateAH(av); err != nil {
			return nil, err
		}
		to.target = target
		p.destinations[peer] = to
	}
	path := &Path{pool: p, cq: cq, to: to, depth: depth}
	p.paths[path] = struct{}{}
	return path, nil
}

// PD is that of the initiators.
func (q *Path) PD() rdma.PD { return q.pool.cfg.PD }

// Num is the number of the peer's target.
func (q *Path) Num() uint32 { return q.to.target.Number }

// State is RTS, or ERR.
func (q *Path) State() rdma.QPState {
	q.pool.mu.Lock()
	defer q.pool.mu.Unlock()
	if q.failed {
		return rdma.StateErr
	}
	return rdma.StateRTS
}

// Query gives the state, and what a path can take.
func (q *Path) Query() (rdma.QPAttr, rdma.QPInitAttr) {
	return rdma.QPAttr{State: q.State()}, rdma.QPInitAttr{SendCQ: q.cq, RecvCQ: q.cq, Type: rdma.DCI,
		Cap: rdma.QPCap{MaxSendWR: q.depth, MaxSendSGE: 1, MaxInlineData: q.pool.inline}}
}

// Modify takes the path to ERR: when it returns nothing of it is executed any more.
func (q *Path) Modify(attr rdma.QPAttr, mask rdma.QPAttrMask) error {
	if attr.State != rdma.StateErr || mask != rdma.QPStateMask {
		return &rdma.OpError{Op: "modify_qp", Detail: fmt.Sprintf("found state %v, expected ERR, the only one that a path over dynamic connections can be taken to", attr.State), Err: rdma.ErrInvalid}
	}
	q.pool.mu.Lock()
	defer q.pool.mu.Unlock()
	if !q.failed {
		q.pool.stop(q, rdma.WCWRFlushErr)
	}
	return nil
}

// PostSend takes requests of one SGE at most.
func (q *Path) PostSend(wrs []rdma.SendWR) (n int, err error) {
	p := q.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	for ; n < len(wrs); n++ {
		wr := &wrs[n]
		if len(wr.SGL) > 1 || len(wr.Inline) > p.inline {
			err = &rdma.OpError{Op: "post_send", Detail: fmt.Sprintf("found %d gather entries and %d bytes inline, expected at most 1 and %d", len(wr.SGL), len(wr.Inline), p.inline), Err: rdma.ErrInvalid}
			break
		}
		if q.failed {
			q.cq.push(rdma.WC{WRID: wr.WRID, Status: rdma.WCWRFlushErr, QPNum: q.Num()})
			continue
		}
		q.push(p.record(wr, q.to))
	}
	switch {
	case q.next == nil || q.queued:
	case q.initiator != nil:
		p.send(q)
	default:
		p.queue(q)
		if p.dispatch(); q.queued {
			p.advance()
		}
	}
	return n, err
}

// PostRecv is not for paths: what peers send comes to the target.
func (q *Path) PostRecv([]rdma.RecvWR) (int, error) {
	return 0, &rdma.OpError{Op: "post_recv", Detail: "a path over dynamic connections has no receives", Err: rdma.ErrInvalid}
}

// Close ends the path. Its requests get no completion.
func (q *Path) Close() error {
	p := q.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if !q.failed {
		before := q.cq.mark()
		p.stop(q, rdma.WCWRFlushErr)
		q.cq.cut(before)
	}
	delete(p.paths, q)
	return nil
}

func (q *Path) push(r *request) {
	if q.head == nil {
		q.head = r
	} else {
		q.tail.next = r
	}
	q.tail = r
	if q.next == nil {
		q.next = r
	}
}

func (q *Path) pop() *request {
	r := q.head
	if q.next == r {
		q.next = r.next
	}
	q.head = r.next
	return r
}

// CloseQPs is rdma.CloseQPs for lists that have paths in them.
func CloseQPs(qps []rdma.QP) error {
	var rest []rdma.QP
	for _, qp := range qps {
		if path, ok := qp.(*Path); ok {
			_ = path.Close() // it cannot fail
		} else {
			rest = append(rest, qp)
		}
	}
	return rdma.CloseQPs(rest)
}

// A CQ is a completion queue with the completions of paths among the others.
type CQ struct {
	rdma.CQ
	pool  *Pool
	count atomic.Int32 // in ring
	ring  []rdma.WC    // the pool's mu guards it
	first int
}

// CQ is a completion queue of the device that takes the completions of paths too.
func (p *Pool) CQ(cq rdma.CQ) *CQ { return &CQ{CQ: cq, pool: p} }

// Poll gives those of paths first.
func (c *CQ) Poll(wcs []rdma.WC) (n int, err error) {
	c.pool.Advance()
	if c.count.Load() > 0 {
		n = c.take(wcs)
	}
	if n < len(wcs) {
		var more int
		more, err = c.CQ.Poll(wcs[n:])
		n += more
	}
	return n, err
}

func (c *CQ) take(wcs []rdma.WC) int {
	c.pool.mu.Lock()
	defer c.pool.mu.Unlock()
	n := copy(wcs, c.ring[c.first:])
	if c.first += n; c.first == len(c.ring) {
		c.ring, c.first = c.ring[:0], 0
	}
	c.count.Add(int32(-n))
	return n
}

// push adds a completion. Called with the pool's mu held, as the next two are.
func (c *CQ) push(wc rdma.WC) {
	c.ring = append(c.ring, wc)
	c.count.Add(1)
}

// mark is how many there are, and cut takes back what came after.
func (c *CQ) mark() int { return len(c.ring) }

func (c *CQ) cut(at int) {
	c.count.Add(int32(at - len(c.ring)))
	c.ring = c.ring[:at]
}

// Target makes the target of a rank's peers, with its receives in srq, completing in cq.
func Target(pd rdma.PD, port wireup.Port, gid rdma.GID, srq rdma.SRQ, cq rdma.CQ, key uint64) (rdma.QP, error) {
	qp, err := pd.CreateQP(TargetAttr(srq, cq, key))
	if err != nil {
		return nil, err
	}
	return qp, wireup.Answer(qp, port, gid)
}

// TargetAttr is how a target is made.
func TargetAttr(srq rdma.SRQ, cq rdma.CQ, key uint64) rdma.QPInitAttr {
	return rdma.QPInitAttr{SendCQ: cq, RecvCQ: cq, Type: rdma.DCT, SRQ: srq, DCAccessKey: key}
}
