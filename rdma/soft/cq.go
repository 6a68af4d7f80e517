package soft

import (
	"fmt"
	"slices"
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
// Each goes in the opposite order of the other, so nothing stays unseen. Of a
// batch the initiator sets the words once for several messages: see qp_batch.go.
type completionQueue struct {
	rdma.UnsupportedCQ
	ctx   *context
	p     *Provider
	index uint32
	head  *queueHeader
	count uint32 // len of the ring: stored with mu held, loaded by an empty poll
	over  atomic.Bool

	shared atomic.Pointer[[]*sharedQueue] // that queue pairs attached take from; replaced under mu

	channel       *compChannel // nil without one
	ignoreOverrun bool

	mu     sync.Mutex // guards the ring and what follows
	size   int
	ring   []entry // a power of two long, grows up to size
	stamps []uint64
	notes  []tagNote // as ring, when a shared queue with tags completes here
	first  uint32
	armed  uint32 // as head.armed
	closed bool
	uses   int
	queues []*queuePair   // attached
	own    []*sharedQueue // that complete here, of whatever queue pairs
}

// An entry is a completion in the ring.
type entry struct {
	wc   rdma.WC
	q    *queuePair
	free uint32 // what q.freed or q.rq.freed becomes when it is polled, or the index of the shared queue
	kind entryKind

	offset uint32 // of a striding receive
}

// A tagNote is what a completion says of a message's header.
type tagNote struct {
	tag    uint64
	appCtx uint32
}

// An entryKind says what becomes free when a completion is polled.
type entryKind uint8

const (
	entrySend   entryKind = iota // a place in the send queue
	entryRecv                    // one in the receive queue
	entryShared                  // one in a shared queue
	entryTag                     // one in a list of tags
	entryOp                      // places of operations on it, offset of them
	entryNote                    // nothing
)

// freed gives the place of a completed request back. The poster may see it late:
// then it finds the queue full a moment longer.
func (p *Provider) freed(e *entry) {
	switch e.kind {
	case entrySend:
		arch.StoreRelease32(&e.q.sq.freed, e.free)
	case entryRecv:
		arch.StoreRelease32(&e.q.rq.freed, e.free)
	case entryShared:
		if h := p.byShared.get(e.free); h != nil {
			h.outstanding.Add(-1)
		}
	case entryTag:
		if h := p.byShared.get(e.free); h != nil && h.tags != nil {
			h.tags.inUse.Add(-1)
		}
	case entryOp:
		if h := p.byShared.get(e.free); h != nil && h.tags != nil {
			h.tags.ops.Add(-int32(e.offset))
		}
	}
}

func (c *context) CreateCQ(cqe int) (rdma.CQ, error) {
	return c.createCQ("create_cq", rdma.CQInitAttr{CQE: cqe})
}

func (c *context) createCQ(op string, attr rdma.CQInitAttr) (rdma.CQ, error) {
	cqe := attr.CQE
	if cqe < 1 || cqe > maxCQE {
		return nil, &rdma.OpError{Op: op, Detail: fmt.Sprintf("found %d entries, expected 1 to %d", cqe, maxCQE), Err: rdma.ErrInvalid}
	}
	if err := c.adopt(op); err != nil {
		return nil, err
	}
	cq, err := c.newCQ(op, attr)
	if err != nil {
		c.disown()
		return nil, err
	}
	return cq, nil
}

// newCQ is createCQ for one that the context does not count.
func (c *context) newCQ(op string, attr rdma.CQInitAttr) (*completionQueue, error) {
	p, cqe := c.p, attr.CQE
	p.mu.Lock()
	i, ok := p.free.cqs.take()
	if ok {
		p.head.touched.completions = max(p.head.touched.completions, uint32(i)+1)
	}
	p.mu.Unlock()
	if !ok {
		return nil, &rdma.OpError{Op: op, Detail: fmt.Sprintf("all %d completion queues are in use: close one first", p.layout.completions), Err: rdma.ErrNoMemory}
	}
	cq := &completionQueue{ctx: c, p: p, index: uint32(i), head: &p.cqs[i], size: cqe}
	cq.shared.Store(new([]*sharedQueue))
	atomic.StoreUint32(&cq.head.attention, 0)
	atomic.StoreUint32(&cq.head.armed, 0)
	atomic.StoreUint32(&cq.head.stamps, 0)
	p.byCQ.set(cq.index, cq)
	return cq, nil
}

func (c *completionQueue) Cap() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.size
}

func (c *completionQueue) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	if c.uses > 0 {
		return &rdma.OpError{Op: "destroy_cq", Detail: "queue pairs still use it: close them first", Err: rdma.ErrBusy}
	}
	c.closed = true
	c.over.Store(true) // for a poll to look closer
	c.retire()
	c.ctx.disown()
	return nil
}

// retire gives the queue's place back.
func (c *completionQueue) retire() {
	if c.channel != nil {
		c.channel.leave(c)
	}
	c.ctx.events.forget(func(e rdma.AsyncEvent) bool { return e.CQ == rdma.CQ(c) })
	c.p.byCQ.set(c.index, nil)
	c.p.mu.Lock()
	c.p.free.cqs.give(int(c.index))
	c.p.mu.Unlock()
}

func errClosedCQ(op string) error {
	return &rdma.OpError{Op: op, Detail: "the completion queue is closed", Err: rdma.ErrInvalid}
}

// hold adds one of a queue pair's two uses of the queue, which cannot be closed then.
func (c *completionQueue) hold() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return errClosedCQ("create_qp")
	}
	c.uses++
	return nil
}

// attach has the queue look at a queue pair that it is held for, which has its context: a poll may do so at once.
func (c *completionQueue) attach(q *queuePair) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if slices.Contains(c.queues, q) {
		return
	}
	if len(c.queues) == cap(c.queues) { // by a quarter, so that it takes little more than QPBytes has
		c.queues = append(make([]*queuePair, 0, len(c.queues)+len(c.queues)/4+1), c.queues...)
	}
	c.queues = append(c.queues, q)
	if q.shared != nil {
		c.listShared()
	}
}

func (c *completionQueue) detach(q *queuePair) {
	c.purge(q)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.uses--
	if i := slices.Index(c.queues, q); i >= 0 {
		c.queues = slices.Delete(c.queues, i, i+1)
	}
	if q.shared != nil {
		c.listShared()
	}
}

// listShared replaces the list of shared queues. Called with mu held.
func (c *completionQueue) listShared() {
	shared := slices.Clone(c.own)
	for _, q := range c.queues {
		if q.shared != nil && q.recv == c && !slices.Contains(shared, q.shared) {
			shared = append(shared, q.shared)
		}
	}
	c.shared.Store(&shared)
}

// attachShared adds a shared queue that completes here.
func (c *completionQueue) attachShared(h *sharedQueue) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return errClosedCQ("create_srq")
	}
	c.uses++
	c.own = append(c.own, h)
	if h.tags != nil && c.notes == nil {
		c.notes = make([]tagNote, len(c.ring))
	}
	c.listShared()
	return nil
}

func (c *completionQueue) detachShared(h *sharedQueue) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.uses--
	c.own = slices.DeleteFunc(c.own, func(have *sharedQueue) bool { return have == h })
	c.listShared()
	c.remove(func(e *entry) bool { return e.q == nil && e.free == h.index })
}

// purge takes a queue pair's completions out.
func (c *completionQueue) purge(q *queuePair) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(func(e *entry) bool { return e.q == q })
}

// remove takes completions out. Called with mu held.
func (c *completionQueue) remove(which func(*entry) bool) {
	kept := uint32(0)
	mask := uint32(len(c.ring) - 1)
	for i := range c.count {
		e := c.ring[(c.first+i)&mask]
		if which(&e) {
			if e.kind >= entryShared {
				c.p.freed(&e)
			}
			continue
		}
		c.ring[(c.first+kept)&mask] = e
		if c.stamps != nil {
			c.stamps[(c.first+kept)&mask] = c.stamps[(c.first+i)&mask]
		}
		if c.notes != nil {
			c.notes[(c.first+kept)&mask] = c.notes[(c.first+i)&mask]
		}
		kept++
	}
	for i := kept; i < c.count; i++ {
		c.ring[(c.first+i)&mask].q = nil
	}
	arch.StoreRelease32(&c.count, kept)
}

// push adds a completion. Called with mu held. When the queue is full it is
// broken from now on, and so are the queue pairs attached.
func (c *completionQueue) push(e *entry, stamp uint64, solicited bool) {
	if int(c.count) >= c.size && !c.ignoreOverrun {
		c.overrun()
		return
	}
	if int(c.count) == len(c.ring) {
		c.grow()
	}
	i := (c.first + c.count) & uint32(len(c.ring)-1)
	c.ring[i] = *e
	if c.stamps != nil {
		if stamp == 0 {
			stamp = deviceTime()
		}
		c.stamps[i] = stamp
	}
	if c.notes != nil {
		c.notes[i] = tagNote{}
	}
	arch.StoreRelease32(&c.count, c.count+1)
	if c.armed != 0 && (c.armed == armedAny || solicited || e.wc.Status != rdma.WCSuccess) {
		c.notify()
	}
}

func (c *completionQueue) grow() {
	n := max(16, 2*len(c.ring))
	if c.stamps != nil {
		c.stamps = unrolled(c.stamps, c.first, n)
	}
	if c.notes != nil {
		c.notes = unrolled(c.notes, c.first, n)
	}
	c.ring, c.first = unrolled(c.ring, c.first, n), 0
}

// unrolled is a full ring from its first entry on, with room for n.
func unrolled[T any](ring []T, first uint32, n int) []T {
	at := first & uint32(len(ring)-1) // 0 of an empty one, for which first is
	return slices.Concat(ring[at:], ring[:at], make([]T, n-len(ring)))
}

// overrun breaks the queue. Called with mu held.
func (c *completionQueue) overrun() {
	if c.over.Swap(true) {
		return
	}
	c.ctx.events.add(rdma.AsyncEvent{Type: rdma.EventCQErr, CQ: c})
	for _, q := range c.queues {
		q.p.self.fault(q.own, faultFatal)
	}
}

// complete adds a completion.
func (c *completionQueue) complete(e *entry, stamp uint64, solicited bool) {
	c.mu.Lock()
	c.push(e, stamp, solicited)
	c.mu.Unlock()
}

// completeTagged is complete for a message with a tag.
func (c *completionQueue) completeTagged(e *entry, stamp uint64, solicited bool, note tagNote) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.count
	c.push(e, stamp, solicited)
	if c.count != n {
		c.notes[(c.first+n)&uint32(len(c.ring)-1)] = note
	}
}

func (c *completionQueue) Poll(wc []rdma.WC) (int, error) {
	if c.p.work.wanted() {
		c.p.work.poll()
	}
	if c.idle() {
		return 0, nil
	}
	return c.poll(wc)
}

// idle tells whether a poll would find nothing.
func (c *completionQueue) idle() bool {
	return atomic.LoadUint32(&c.count) == 0 && atomic.LoadUint32(&c.head.attention) == 0 && !c.over.Load()
}

// look takes in what initiators have completed, and flushes queue pairs that
// are in ERR.
func (c *completionQueue) look() {
	c.mu.Lock()
	c.lookLocked()
	c.mu.Unlock()
}

// lookLocked is look with mu held, which it may let go of in between: shared
// queues, and flushing, take locks that come before it.
func (c *completionQueue) lookLocked() {
	if c.closed || atomic.LoadUint32(&c.head.attention) == 0 {
		return // the place of a closed queue is another's
	}
	atomic.SwapUint32(&c.head.attention, 0)
	if shared := *c.shared.Load(); len(shared) > 0 {
		c.mu.Unlock()
		for _, h := range shared {
			if atomic.LoadUint32(&h.head.ready)|atomic.LoadUint32(&h.head.starved) != 0 {
				h.harvest()
			}
			switch {
			case h.api != nil:
				h.api.limited()
				if h.tags != nil {
					h.tags.beginFetches()
				}
			case h.inbox.state() == rdma.StateErr:
				h.inbox.flush() // of what was given back since
			}
		}
		c.mu.Lock()
	}
	if failed := c.harvest(); failed != nil {
		c.mu.Unlock()
		for _, q := range failed {
			q.flush()
		}
		c.mu.Lock()
	}
}

func (c *completionQueue) poll(wc []rdma.WC) (int, error) {
	c.mu.Lock()
	if atomic.LoadUint32(&c.head.attention) != 0 {
		c.lookLocked()
	}
	if err := c.broken(); err != nil {
		c.mu.Unlock()
		return 0, err
	}
	n := min(len(wc), int(c.count))
	mask := uint32(len(c.ring) - 1)
	for i := range n {
		e := &c.ring[(c.first+uint32(i))&mask]
		wc[i] = e.wc
		c.p.freed(e)
	}
	c.drop(n)
	c.mu.Unlock()
	return n, nil
}

// drop takes the first n completions out. Called with mu held.
func (c *completionQueue) drop(n int) {
	c.first += uint32(n)
	arch.StoreRelease32(&c.count, c.count-uint32(n))
}

// broken is the error of a queue that was overrun, or is closed. Called with mu held.
func (c *completionQueue) broken() error {
	if !c.over.Load() {
		return nil
	}
	if c.closed {
		return errClosedCQ("poll_cq")
	}
	return &rdma.OpError{Op: "poll_cq", Detail: fmt.Sprintf("the queue was overrun: more than %d completions were in it; make it larger or poll more often", c.size), Err: rdma.ErrNoMemory}
}

// harvest moves what initiators completed into the ring and gives the queue
// pairs that are in ERR. Called with mu held.
func (c *completionQueue) harvest() (failed []*queuePair) {
	for _, q := range c.queues {
		ready := &c.p.ready[q.index]
		if atomic.LoadUint32(ready) == 0 {
			continue
		}
		if q.recv == c {
			atomic.SwapUint32(ready, 0)
			q.rq.take()
			q.established()
		}
		if q.state() == rdma.StateErr {
			failed = append(failed, q)
		}
	}
	return failed
}

// take moves the done receives of a queue pair into its completion queue, in
// order. Called with recv.mu held.
func (r *receiveRing) take() {
	q := r.q
	if r.slots == 0 {
		return
	}
	for r.taken != atomic.LoadUint32(&r.posted) {
		i := r.taken & (r.slots - 1)
		sl := r.slot(i)
		if sl == nil || atomic.LoadUint32(&sl.state) != slotDone {
			return
		}
		k := r.took(i, sl)
		r.taken += k
		e := entry{q: q, free: r.taken, kind: entryRecv, wc: receiveWC(sl, r.wrid(i), q.num), offset: r.offset(i)}
		if sl.opcode&slotInline != 0 {
			r.unpack(i, sl, &e.wc)
		}
		stamp, solicited := sl.stamp, sl.flags&slotSolicited != 0
		if e.wc.Flags&rdma.WCFlagWithInv != 0 {
			q.pd.ended(q.num, e.wc.ImmData)
		}
		r.release(i, k)
		q.recv.push(&e, stamp, solicited)
	}
}
