package peers

import (
	"errors"
	"math"

	"github.com/gorun-mpi/gorun/rank/internal/peers/dc"
	"github.com/gorun-mpi/gorun/rdma"
)

const (
	// collectiveQueue is the depth of a collective queue pair's send queue.
	collectiveQueue = 64
	// collectiveInline is the longest inline write of a collective: a small
	// block and its header need no registered memory then.
	collectiveInline = 512
)

// Collective is the Set as collectives see it, with their queue pairs: a coll.Dialer.
type Collective struct {
	*Set
	CQ     rdma.CQ   // what comes of queue pairs and paths; nil in a world of one
	Queues []rdma.QP // by peer, nil for those that are not made

	cq rdma.CQ // of queue pairs
}

// Collective makes the completion queue of the collectives, whose queue pairs the Set makes from now on.
func (s *Set) Collective() (*Collective, error) {
	c := &Collective{Set: s, Queues: make([]rdma.QP, s.cfg.Size)}
	s.Make(Collectives, c.Open)
	if s.cfg.Size == 1 {
		return c, nil
	}
	most := max(s.cfg.Port.Attr.MaxCQE, 2*s.cfg.Size)
	cq, err := s.device().CreateCQ(min(collectiveQueue*(s.cfg.Size-1), most))
	if err != nil {
		return nil, err
	}
	c.cq, c.CQ = cq, s.CQ(cq)
	return c, nil
}

// CollectiveAttr is how a queue pair for collectives is made, but for its completion queues.
func CollectiveAttr(attr rdma.DeviceAttr) rdma.QPInitAttr {
	return rdma.QPInitAttr{Type: rdma.RC, Cap: rdma.QPCap{
		MaxSendWR: min(collectiveQueue, attr.MaxQPWR), MaxSendSGE: 1, MaxInlineData: min(collectiveInline, attr.MaxInlineData)}}
}

// Open makes the queue pair with a peer, in INIT, or the path to it.
func (c *Collective) Open(peer int) (rdma.QP, error) {
	attr := CollectiveAttr(c.cfg.Port.Attr)
	attr.SendCQ, attr.RecvCQ = c.cq, c.cq
	qp, _, err := c.Half(peer, attr, rdma.AccessRemoteRead|rdma.AccessRemoteWrite, c.CQ)
	if err == nil {
		c.Queues[peer] = qp
	}
	return qp, err
}

// Queue is the Set's, for collectives.
func (c *Collective) Queue(peer int) (rdma.QP, error) {
	if !c.OnDemand() {
		return c.Queues[peer], nil
	}
	return c.Set.Queue(peer, Collectives)
}

// Inline is the inline data of each queue pair, math.MaxInt where all peers are mapped.
func (c *Collective) Inline() int {
	if c.OnDemand() && c.mail == nil {
		return math.MaxInt
	}
	return min(collectiveInline, c.cfg.Port.Attr.MaxInlineData)
}

// Close destroys the queue pairs: nothing of them reaches a peer any more.
func (c *Collective) Close() error {
	errs := []error{dc.CloseQPs(c.Queues)}
	clear(c.Queues)
	if c.cq != nil {
		errs = append(errs, c.cq.Close())
		c.cq = nil
	}
	return errors.Join(errs...)
}
