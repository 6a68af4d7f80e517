package soft

import (
	stdctx "context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/gorun-mpi/gorun/rdma"
)

// eventQueue holds a context's asynchronous events until they are asked for.
type eventQueue struct {
	mu     sync.Mutex // guards what follows; no lock is taken under it
	list   []rdma.AsyncEvent
	closed bool
	wake   chan struct{} // capacity 1; made by the first that waits
	ring   func()        // WakeAsync's; nil without it
}

// add appends an event.
func (q *eventQueue) add(e rdma.AsyncEvent) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.list = append(q.list, e)
	q.signal()
	if q.ring != nil {
		q.ring()
	}
}

// signal wakes one that waits. Called with mu held.
func (q *eventQueue) signal() {
	if q.wake != nil {
		select {
		case q.wake <- struct{}{}:
		default: // a token is there already
		}
	}
}

// forget drops the events of an object that is destroyed.
func (q *eventQueue) forget(of func(rdma.AsyncEvent) bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.list = slices.DeleteFunc(q.list, of)
}

func (q *eventQueue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.signal()
}

// next takes the first event out. There is none when wake is not nil, and it
// says when to look again.
func (q *eventQueue) next() (e rdma.AsyncEvent, wake chan struct{}, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.wake == nil {
		q.wake = make(chan struct{}, 1)
	}
	switch {
	case q.closed:
		q.signal() // for the others that wait
		return e, nil, &rdma.OpError{Op: "get_async_event", Detail: "the context is closed", Err: rdma.ErrInvalid}
	case len(q.list) == 0:
		return e, q.wake, nil
	}
	e = q.list[0]
	q.list = slices.Delete(q.list, 0, 1)
	if len(q.list) > 0 {
		q.signal()
	}
	return e, nil, nil
}

func (c *context) GetAsyncEvent(ctx stdctx.Context) (rdma.AsyncEvent, error) {
	watched := false
	for {
		e, wake, err := c.events.next()
		if wake == nil {
			return e, err
		}
		if !watched {
			watched = true
			c.p.watch.enter()
			defer c.p.watch.leave()
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return rdma.AsyncEvent{}, stdctx.Cause(ctx)
		}
	}
}

// Why a queue pair was moved to ERR by an initiator, in the bits of
// queueContext.word above the state.
const (
	faultTold    uint32 = 1 + iota // a completion of its own says it
	faultAccess                    // EventQPAccessErr: a key, a range, a right
	faultRequest                   // EventQPReqErr: an operation that it does not take
	faultFatal                     // EventQPFatal: its completion queue is broken
	faultShift   = 8
)

// faultOf is the cause behind the status that the requester gets.
func faultOf(st rdma.WCStatus) uint32 {
	switch st {
	case rdma.WCRemAccessErr:
		return faultAccess
	case rdma.WCRemInvReqErr:
		return faultRequest
	}
	return faultTold
}

// tellFault tells the program once why the queue pair is in ERR.
func (q *queuePair) tellFault() {
	w := atomic.LoadUint32(&q.own.word)
	cause := w >> faultShift
	if cause == 0 || !atomic.CompareAndSwapUint32(&q.own.word, w, w&queueState) {
		return
	}
	switch cause {
	case faultAccess:
		q.tell(rdma.EventQPAccessErr)
	case faultRequest:
		q.tell(rdma.EventQPReqErr)
	case faultFatal:
		q.tell(rdma.EventQPFatal)
	}
}

func (q *queuePair) tell(typ rdma.EventType) { q.pd.ctx.events.add(rdma.AsyncEvent{Type: typ, QP: q}) }

// tellPort tells all contexts of the port.
func (p *Provider) tellPort(typ rdma.EventType) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.contexts {
		c.events.add(rdma.AsyncEvent{Type: typ, Port: 1})
	}
}

// The values of queueContext.established.
const (
	establishedNo uint32 = iota
	establishedNow
	establishedTold
)

// begin notes a message to a queue pair that is still in RTR.
func (s *peer) begin(c *queueContext) {
	if atomic.LoadUint32(&c.established) == establishedNo {
		atomic.StoreUint32(&c.established, establishedNow)
		s.raise(c)
		s.attend(c.recvCQ, false)
		s.alarm.Ring()
	}
}

// established tells the program of the first message to a queue pair in RTR.
func (q *queuePair) established() {
	if atomic.LoadUint32(&q.own.established) == establishedNow {
		atomic.StoreUint32(&q.own.established, establishedTold)
		q.tell(rdma.EventCommEst)
	}
}

// drained tells the program that a send queue in SQD has nothing under way, if
// it wants to know. Called with mu held.
func (q *queuePair) drained() {
	w := &q.wire
	if q.ending.draining && q.state() == rdma.StateSQD && (w.next == 0 && w.offset == 0 || q.sq.waiting != accepted) {
		q.ending.draining = false
		q.tell(rdma.EventSQDrained)
	}
}
