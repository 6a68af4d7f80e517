package verbs

/*
#include "shim.h"
*/
import "C"

import (
	"context"
	"errors"
	"os"
	"syscall"

	"github.com/gorun-mpi/gorun/rdma"
)

// eventBacklog is how many asynchronous events wait for a program that does not
// ask for them; then the oldest are dropped.
const eventBacklog = 256

// A watcher reads a context's asynchronous events in a goroutine, in the
// netpoller: what they say must be known although no call asks. A CQ that was
// overrun and a device that is gone are told by Poll.
type watcher struct {
	c      *deviceContext
	file   *os.File // a descriptor of our own for libibverbs' file
	events chan rdma.AsyncEvent
	ended  chan struct{}
}

func newWatcher(c *deviceContext, fd int) (*watcher, error) {
	file, err := pollable(fd, "async events of "+c.device.name)
	if err != nil {
		return nil, err
	}
	w := &watcher{c: c, file: file, events: make(chan rdma.AsyncEvent, eventBacklog), ended: make(chan struct{})}
	go w.run()
	return w, nil
}

// pollable makes libibverbs' descriptor non-blocking and gives a copy of it to
// the netpoller: the original stays libibverbs' to close.
func pollable(fd int, name string) (*os.File, error) {
	if err := syscall.SetNonblock(fd, true); err != nil {
		return nil, &rdma.OpError{Op: "open_device", Detail: name, Err: err}
	}
	dup, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_DUPFD_CLOEXEC, 0)
	if errno != 0 {
		return nil, &rdma.OpError{Op: "open_device", Detail: name, Err: errno}
	}
	return os.NewFile(dup, name), nil
}

func (w *watcher) stop() {
	_ = w.file.Close() // wakes run
	<-w.ended
}

func (w *watcher) run() {
	defer close(w.ended)
	conn, err := w.file.SyscallConn()
	if err != nil {
		return
	}
	for {
		var failure error
		err := conn.Read(func(uintptr) bool {
			failure = w.next()
			return !errors.Is(failure, syscall.EAGAIN)
		})
		switch {
		case err != nil: // closed
			return
		case failure != nil && !errors.Is(failure, syscall.EINTR):
			// The kernel ends the file when the device is removed.
			w.c.dead.CompareAndSwap(nil, errGone(rdma.EventDeviceFatal))
			w.publish(rdma.AsyncEvent{Type: rdma.EventDeviceFatal})
			return
		}
	}
}

// next takes in one event.
func (w *watcher) next() error {
	var event rdma.AsyncEvent
	var object any
	err := w.c.lib.asyncEvent(w.c.h, func(e C.gv_async_event) {
		event = rdma.AsyncEvent{Type: rdma.EventType(e._type), Port: uint8(e.port)}
		for _, h := range []handle{e.cq, e.qp, e.srq} {
			if h != 0 {
				object = w.c.named(h)
			}
		}
	})
	if err != nil {
		return err
	}
	// From here on it is acknowledged: verbs that wait for that may be called.
	switch o := object.(type) {
	case *completionQueue:
		event.CQ = o
		o.broke()
	case *queuePair:
		if event.QP = o; event.Type == rdma.EventSQDrained && !o.drainAsked.Load() { // rxe tells it unasked
			return nil
		}
	case *sharedQueue:
		event.SRQ = o
	case nil:
		if event.Type == rdma.EventCQErr { // of a queue that was closed meanwhile
			return nil
		}
	}
	if event.Type == rdma.EventDeviceFatal {
		w.c.dead.CompareAndSwap(nil, errGone(event.Type))
	}
	w.publish(event)
	return nil
}

// publish keeps the event for GetAsyncEvent. Only the watcher's goroutine sends.
func (w *watcher) publish(e rdma.AsyncEvent) {
	for {
		select {
		case w.events <- e:
			return
		default:
		}
		select {
		case <-w.events:
		default:
		}
	}
}

// GetAsyncEvent waits for the next event. Events that no call has asked for wait, the
// latest 256 of them.
func (c *deviceContext) GetAsyncEvent(ctx context.Context) (rdma.AsyncEvent, error) {
	select {
	case e := <-c.watch.events:
		return e, nil
	default:
	}
	select {
	case e := <-c.watch.events:
		return e, nil
	case <-ctx.Done():
		return rdma.AsyncEvent{}, context.Cause(ctx)
	case <-c.watch.ended:
		select { // what was published before the end comes first
		case e := <-c.watch.events:
			return e, nil
		default:
		}
		return rdma.AsyncEvent{}, &rdma.OpError{Op: "get_async_event", Detail: "the context is closed or its device is gone", Err: rdma.ErrNoDevice}
	}
}
