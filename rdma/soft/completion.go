package soft

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/gorun-mpi/gorun/internal/arch"
	"github.com/gorun-mpi/gorun/rdma"
)

// completionQueue is a completion queue: a ring in the owner's heap. Send
// completions enter it when they happen. Receive completions lie in the slots
// of the receive queues until a poll harvests them; its owner learns that there
// are some from attention and the ready words in the arena:
//
//	initiator                      owner's poll
//	slot = DONE                    attention = 0 (exchange)
//	ready[queue pair] = 1          for each attached: ready = 0 (exchange), take DONE slots
//	attention = 1
//
// Each goes in the opposite order of the other, so nothing stays unseen.
type completionQueue struct {
	rdma.UnsupportedCQ
	ctx   *context
	p     *Provider
	index uint32
	head  *queueHeader
	size  int
	count uint32 // len of the ring: stored with mu held, loaded by an empty poll
	over  atomic.Bool

	queues atomic.Pointer[[]*queuePair] // attached; replaced under mu

	mu     sync.Mutex // guards the ring and what follows
	ring   []entry    // a power of two long, grows up to size
	first  uint32
	closed bool
	uses   int
}

// An entry is a completion in the ring.
type entry struct {
	wc   rdma.WC
	q    *queuePair
	free uint32 // what q.freed or q.rfreed becomes when it is polled
	recv bool
}

func (c *context) CreateCQ(cqe int) (rdma.CQ, error) {
	if cqe < 1 || cqe > maxCQE {
		return nil, &rdma.OpError{Op: "create_cq", Detail: fmt.Sprintf("%d entries: want 1 to %d", cqe, maxCQE), Err: rdma.ErrInvalid}
	}
	if err := c.adopt("create_cq"); err != nil {
		return nil, err
	}
	p := c.p
	p.mu.Lock()
	i, ok := p.freeCQs.take()
	if ok {
		p.head.touched.completions = max(p.head.touched.completions, uint32(i)+1)
	}
	p.mu.Unlock()
	if !ok {
		c.disown()
		return nil, &rdma.OpError{Op: "create_cq", Detail: fmt.Sprintf("all %d are in use", p.layout.completions), Err: rdma.ErrNoMemory}
	}
	cq := &completionQueue{ctx: c, p: p, index: uint32(i), head: &p.cqs[i], size: cqe}
	cq.queues.Store(new([]*queuePair))
	atomic.StoreUint32(&cq.head.attention, 0)
	return cq, nil
}

func (c *completionQueue) Cap() int { return c.size }

func (c *completionQueue) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	if c.uses > 0 {
		return &rdma.OpError{Op: "destroy_cq", Detail: "queue pairs are attached", Err: rdma.ErrBusy}
	}
	c.closed = true
	c.p.mu.Lock()
	c.p.freeCQs.give(int(c.index))
	c.p.mu.Unlock()
	c.ctx.disown()
	return nil
}

// attach adds one of a queue pair's two uses of the queue.
func (c *completionQueue) attach(q *queuePair) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return &rdma.OpError{Op: "create_qp", Detail: "the completion queue is closed", Err: rdma.ErrInvalid}
	}
	c.uses++
	old := *c.queues.Load()
	for _, have := range old {
		if have == q {
			return nil
		}
	}
	list := append(append(make([]*queuePair, 0, len(old)+1), old...), q)
	c.queues.Store(&list)
	return nil
}

func (c *completionQueue) detach(q *queuePair) {
	c.purge(q)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.uses--
	old := *c.queues.Load()
	list := make([]*queuePair, 0, len(old))
	for _, have := range old {
		if have != q {
			list = append(list, have)
		}
	}
	c.queues.Store(&list)
}

// purge takes a queue pair's completions out.
func (c *completionQueue) purge(q *queuePair) {
	c.mu.Lock()
	defer c.mu.Unlock()
	kept := uint32(0)
	mask := uint32(len(c.ring) - 1)
	for i := range c.count {
		e := c.ring[(c.first+i)&mask]
		if e.q != q {
			c.ring[(c.first+kept)&mask] = e
			kept++
		}
	}
	for i := kept; i < c.count; i++ {
		c.ring[(c.first+i)&mask].q = nil
	}
	arch.StoreRelease32(&c.count, kept)
}

// push adds a completion. Called with mu held. When the queue is full it is
// broken from now on, and so are the queue pairs attached.
func (c *completionQueue) push(e entry) {
	if int(c.count) >= c.size {
		c.overrun()
		return
	}
	if int(c.count) == len(c.ring) {
		c.grow()
	}
	c.ring[(c.first+c.count)&uint32(len(c.ring)-1)] = e
	arch.StoreRelease32(&c.count, c.count+1)
}

func (c *completionQueue) grow() {
	ring := make([]entry, max(16, 2*len(c.ring)))
	for i := range c.count {
		ring[i] = c.ring[(c.first+i)&uint32(len(c.ring)-1)]
	}
	c.ring, c.first = ring, 0
}

func (c *completionQueue) overrun() {
	if c.over.Swap(true) {
		return
	}
	for _, q := range *c.queues.Load() {
		q.p.self.fault(q.own)
	}
}

// complete adds a send completion.
func (c *completionQueue) complete(e entry) {
	c.mu.Lock()
	c.push(e)
	c.mu.Unlock()
}

func (c *completionQueue) Poll(wc []rdma.WC) (int, error) {
	if c.p.work.wanted() {
		c.p.work.poll()
	}
	if atomic.LoadUint32(&c.count) == 0 && atomic.LoadUint32(&c.head.attention) == 0 && !c.over.Load() {
		return 0, nil
	}
	return c.poll(wc)
}

func (c *completionQueue) poll(wc []rdma.WC) (int, error) {
	c.mu.Lock()
	if atomic.LoadUint32(&c.head.attention) != 0 {
		if failed := c.harvest(); failed != nil {
			// Flushing takes locks that come before this one.
			c.mu.Unlock()
			for _, q := range failed {
				q.flush()
			}
			c.mu.Lock()
		}
	}
	if c.over.Load() {
		c.mu.Unlock()
		return 0, &rdma.OpError{Op: "poll_cq", Detail: fmt.Sprintf("more than %d completions: the queue was overrun", c.size), Err: rdma.ErrNoMemory}
	}
	n := min(len(wc), int(c.count))
	mask := uint32(len(c.ring) - 1)
	for i := range n {
		e := &c.ring[(c.first+uint32(i))&mask]
		wc[i] = e.wc
		if e.recv {
			e.q.rfreed.Store(e.free)
		} else {
			e.q.freed.Store(e.free)
		}
	}
	c.first += uint32(n)
	arch.StoreRelease32(&c.count, c.count-uint32(n))
	c.mu.Unlock()
	return n, nil
}

// harvest moves what initiators completed into the ring and gives the queue
// pairs that are in ERR. Called with mu held.
func (c *completionQueue) harvest() (failed []*queuePair) {
	atomic.SwapUint32(&c.head.attention, 0)
	for _, q := range *c.queues.Load() {
		ready := &c.p.ready[q.index]
		if atomic.LoadUint32(ready) == 0 {
			continue
		}
		if q.recv == c {
			atomic.SwapUint32(ready, 0)
			q.take()
		}
		if q.state() == rdma.StateErr {
			failed = append(failed, q)
		}
	}
	return failed
}

// take moves the done receives of a queue pair into its completion queue, in
// order. Called with recv.mu held.
func (q *queuePair) take() {
	if q.slots == 0 {
		return
	}
	for q.rtaken != q.rposted.Load() {
		i := q.rtaken & (q.slots - 1)
		sl := q.slot(i)
		if sl == nil || atomic.LoadUint32(&sl.state) != slotDone {
			return
		}
		q.rtaken++
		e := entry{q: q, free: q.rtaken, recv: true, wc: rdma.WC{
			WRID: q.wrids[i], Status: rdma.WCStatus(sl.status), Opcode: rdma.WCOpcode(sl.opcode), ByteLen: sl.byteLen,
			ImmData: sl.imm, QPNum: q.num, SrcQP: sl.srcQP, Flags: rdma.WCFlags(sl.flags),
		}}
		if e.wc.Status != rdma.WCSuccess {
			e.wc = rdma.WC{WRID: e.wc.WRID, Status: e.wc.Status, QPNum: q.num}
		}
		atomic.StoreUint32(&sl.state, slotFree)
		q.recv.push(e)
	}
}
