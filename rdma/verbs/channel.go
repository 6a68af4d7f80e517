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
	"time"

	"github.com/gorun-mpi/gorun/rdma"
)

// A channel is a completion channel, whose descriptor the netpoller watches.
type channel struct {
	c    *deviceContext
	h    handle
	node node
	file *os.File      // a descriptor of our own for libibverbs' file
	turn chan struct{} // held by the Get that sets the deadline of file
}

var _ rdma.CompChannel = (*channel)(nil)

func (c *deviceContext) CreateCompChannel() (rdma.CompChannel, error) {
	const op = "create_comp_channel"
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := check(op, &c.node); err != nil {
		return nil, err
	}
	ch := &channel{c: c, turn: make(chan struct{}, 1)}
	var fd C.int
	if rc := C.gv_create_comp_channel(&c.lib.c, c.h, &ch.h, &fd); rc != 0 {
		return nil, failed(op, rc, "")
	}
	var err error
	if ch.file, err = pollable(int(fd), "completion channel of "+c.device.name); err != nil {
		C.gv_destroy_comp_channel(&c.lib.c, ch.h)
		return nil, err
	}
	ch.node.adopt(&c.node)
	return ch, nil
}

// Get waits for the next event.
func (ch *channel) Get(ctx context.Context) (rdma.CQ, error) {
	select {
	case ch.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { <-ch.turn }()
	conn, err := ch.file.SyscallConn()
	if err != nil {
		return nil, ch.closed()
	}
	if err := ch.file.SetReadDeadline(time.Time{}); err != nil {
		return nil, ch.closed()
	}
	stop := context.AfterFunc(ctx, func() { _ = ch.file.SetReadDeadline(time.Unix(1, 0)) })
	// The goroutine with the next turn sets the deadline anew, once this one is over.
	defer stop()
	for {
		var q *completionQueue
		var failure error
		err := conn.Read(func(uintptr) bool {
			q, failure = ch.next()
			return !errors.Is(failure, syscall.EAGAIN)
		})
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			if ctx.Err() == nil && ch.file.SetReadDeadline(time.Time{}) != nil { // that of an earlier Get came late
				return nil, ch.closed()
			}
			if ctx.Err() == nil { // else this Get's may have gone with that
				continue
			}
			return nil, context.Cause(ctx)
		case err != nil:
			return nil, ch.closed()
		case errors.Is(failure, syscall.EINTR):
			continue
		case failure != nil:
			return nil, failure
		case q != nil:
			return q, nil
		}
	}
}

func (ch *channel) closed() error {
	return &rdma.OpError{Op: "get_cq_event", Detail: "the channel is closed", Err: syscall.EBADF}
}

// next takes one event in. The queue is nil when it was closed meanwhile.
func (ch *channel) next() (*completionQueue, error) {
	lib := ch.c.lib
	var h handle
	if rc := C.gv_get_cq_event(&lib.c, ch.h, &h); rc != 0 {
		return nil, failed("get_cq_event", rc, "")
	}
	q, _ := ch.c.named(h).(*completionQueue)
	C.gv_ack_cq_event(&lib.c, h)
	return q, nil
}

// Close destroys the channel.
func (ch *channel) Close() error {
	return ch.c.shut("destroy_comp_channel", &ch.node, func() error {
		_ = ch.file.Close()   // ends a Get that waits
		ch.turn <- struct{}{} // and waits for it
		defer func() { <-ch.turn }()
		return failed("destroy_comp_channel", C.gv_destroy_comp_channel(&ch.c.lib.c, ch.h), "")
	})
}
