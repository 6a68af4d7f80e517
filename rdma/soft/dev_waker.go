package soft

import "github.com/gorun-mpi/gorun/rdma"

// A Waker is a completion channel of this package, for a program that waits by other means than Get,
// such as a descriptor. From the first ReqNotify on the device looks for its events by itself.
type Waker interface {
	// Wake has wake called for each event. wake must not block, nor call this package.
	Wake(wake func())
	// Next takes the next event out; nil without an error: there is none.
	Next() (rdma.CQ, error)
}

// An AsyncWaker is a context of this package, for a program that waits for asynchronous events by other
// means than GetAsyncEvent.
type AsyncWaker interface {
	// WakeAsync has wake called for each event. wake must not block, nor call this package.
	WakeAsync(wake func())
	// NextAsync takes the next event out; false: there is none.
	NextAsync() (rdma.AsyncEvent, bool)
	// Watch begins and ends a wait: in between the device looks for events by itself.
	Watch(on bool)
}

var _ AsyncWaker = (*context)(nil)

func (c *context) WakeAsync(wake func()) {
	c.events.mu.Lock()
	defer c.events.mu.Unlock()
	c.events.ring = wake
}

func (c *context) NextAsync() (rdma.AsyncEvent, bool) {
	e, wake, err := c.events.next()
	return e, wake == nil && err == nil
}

func (c *context) Watch(on bool) {
	if on {
		c.p.watch.enter()
	} else {
		c.p.watch.leave()
	}
}
