package main

import (
	"bytes"
	"fmt"

	"github.com/gorun-mpi/gorun/rdma"
)

// tutorial has the client write a line into the server's memory, and the server
// read another one out of the client's. The ends meet after each step: an end
// fills its memory before the other may touch it, and leaves it alone until the
// other has done so.
func tutorial(w *clock, e *end, ctl control, r *report) error {
	fill := func(text string) {
		clear(e.out())
		copy(e.out(), text)
	}
	got := func() string {
		text, _, _ := bytes.Cut(e.inbox(), []byte{0})
		return string(text)
	}
	if !e.serves {
		fill("written into the server's memory")
		if err := e.do(w, rdma.WRRDMAWrite); err != nil {
			return err
		}
		r.Lines = append(r.Lines, fmt.Sprintf("client: wrote %d bytes to %#x, rkey %#x", e.params.size, e.peer.Addr+uint64(e.params.span()+grhRoom), e.peer.RKey))
		fill("read out of the client's memory")
	}
	if err := ctl.barrier(w.ctx); err != nil {
		return err
	}
	if e.serves {
		r.Lines = append(r.Lines, fmt.Sprintf("server: the client's write brought %q", got()))
		if err := e.do(w, rdma.WRRDMARead); err != nil {
			return err
		}
		r.Lines = append(r.Lines, fmt.Sprintf("server: read %d bytes at %#x, rkey %#x: %q", e.params.size, e.peer.Addr, e.peer.RKey, got()))
	}
	return ctl.barrier(w.ctx)
}

// do posts one request and waits for its completion.
func (e *end) do(w *clock, op rdma.WROpcode) error {
	if err := e.post(&e.lanes[0], op); err != nil {
		return err
	}
	l := &e.lanes[0]
	want := l.sent + 1
	return e.until(w, func() bool { return l.sent == want })
}

// until polls until ready, or a request has failed.
func (e *end) until(w *clock, ready condition) error {
	err := w.until(func() bool {
		e.poll()
		return e.failure != nil || ready()
	})
	if e.failure != nil {
		return e.failure
	}
	return err
}
