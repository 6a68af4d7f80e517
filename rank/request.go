package rank

import (
	"context"
	"errors"
)

// A Request is the handle of a started operation (MPI_Request). It is a small value. After Wait, Test or
// a similar call has reported completion, all copies of the value are null requests (MPI_REQUEST_NULL),
// as the zero Request is, and waiting for them returns at once. A persistent request, made by an ...Init
// function, is inactive before Start and after completion was reported; Free frees it.
//
// The buffers belong to the operation until completion was reported.
// Operations progress only while the rank is in a call of this package, with [Config].Progress, by a daemon, or by [Request.Step].
type Request struct {
	r          *request
	generation uint64
}

// request is what a Request stands for. Those of a world are recycled.
//
//	free -> active -> free                                 a call
//	free -> inactive -> active -> inactive ... -> free     a persistent one
//	        active -> detached -> free                     freed while it runs
type request struct {
	world *World
	// generation counts the uses, so that a Request of an earlier one is known.
	generation uint64
	what       pending
	persistent bool
	active     bool
	comm       *Comm
	next       *request // free ones
	op         string   // for errors
	message    message  // where what is a message: it is recycled too
	receipt    receipt  // where it is a plain receive
}

// pending is an operation as its request sees it. Its methods are called between
// World.enter and leave.
type pending interface {
	// done tells whether the operation is over. It makes no progress.
	done() bool
	// finish gives the outcome of one that is over and gives back what it
	// holds. The error is an *Error, and st is set in any case. The request calls
	// it once for each start.
	finish(st *Status) error
	// cancel ends the operation, if that can still be (MPI_Cancel): then it is
	// done, and finish gives a Status with Cancelled. Otherwise it does nothing.
	cancel()
	// start begins the operation of a persistent request anew.
	start() error
	// free gives back what a persistent operation keeps from start to start.
	free()
}

// requests are the handles of a world's started operations, and what its one running call waits for.
type requests struct {
	all      []*request
	idle     *request   // of them, those not in use
	used     int        // of them, the others
	detached []*request // freed before they were over
	several  several
	anyOf    anyOf
	status   Status // that a call returns, or nobody wants
}

// newRequest gives a request of a call on c, of the world's recycled ones. The
// caller then starts the operation and gives what.activate or drops it with retire.
func (w *World) newRequest(c *Comm, op string) *request {
	if len(w.requests.detached) > 0 {
		w.requests.reap()
	}
	s := &w.requests
	r := s.idle
	if r == nil {
		r = &request{world: w}
		s.all = append(s.all, r)
	} else {
		s.idle = r.next
	}
	r.comm, r.op, r.next = c, op, nil
	if s.used++; w.beside != nil {
		w.beside.start()
	}
	return r
}

// started makes the Request of an operation that was started.
func (r *request) started(what pending) Request {
	r.what, r.active = what, true
	return Request{r, r.generation}
}

// inactive makes the Request of a persistent operation that was prepared.
func (r *request) inactive(what pending) Request {
	r.what, r.persistent = what, true
	return Request{r, r.generation}
}

// retire makes all copies of a request stale and recycles it.
func (r *request) retire() {
	r.generation++
	if r.message.comm != nil {
		r.message = message{}
	}
	r.comm, r.what, r.persistent, r.active = nil, nil, false, false
	s := &r.world.requests
	r.next, s.idle = s.idle, r
	s.used--
}

// done tells whether the call of a request is over.
func (r *request) done() bool {
	if r.receipt.op != nil { // without the call through the interface
		return r.receipt.op.Done()
	}
	return r.what.done()
}

// complete takes the outcome of a request that is done.
func (r *request) complete(st *Status) error {
	if r.receipt.op != nil {
		return r.received(st)
	}
	err := r.what.finish(st)
	r.active = false
	if !r.persistent {
		r.retire()
	}
	return err
}

// reap completes detached requests that are done. Nobody asks for their outcome, but for
// that of buffered sends.
func (s *requests) reap() {
	kept := s.detached[:0]
	for _, r := range s.detached {
		if !r.done() {
			kept = append(kept, r)
			continue
		}
		from := r.message.from
		if err := r.complete(&s.status); err != nil && from != nil && from.lost == nil {
			from.lost = err
		}
	}
	clear(s.detached[len(kept):])
	s.detached = kept
}

// live is the request behind q, nil when q is null by now.
func (q Request) live() *request {
	if q.r == nil || q.r.generation != q.generation {
		return nil
	}
	return q.r
}

// running is live, but nil for an inactive one too: there is nothing to wait for.
func (q Request) running() *request {
	if r := q.live(); r != nil && r.active {
		return r
	}
	return nil
}

// emptyStatus is what waiting for nothing gives.
var emptyStatus = Status{Source: AnySource, Tag: AnyTag}

// Ready lets a request be waited for.
func (r *request) Ready() bool { return r.done() }

// Wait returns the result when the operation is complete (MPI_Wait). For a null or inactive
// request it returns at once, with an empty Status. When ctx ends first, the operation continues:
// it can be waited for again, or cancelled. For a send only Status.Cancelled is meaningful.
func (q Request) Wait(ctx context.Context) (Status, error) {
	if q.r == nil {
		return emptyStatus, nil
	}
	w := q.r.world
	if w.beside.defers() {
		if err := q.waitOutside(ctx); err != nil {
			return Status{}, err
		}
	}
	if err := w.enter(); err != nil {
		return Status{}, w.comm.fail("wait", -1, err)
	}
	defer w.leave()
	r := q.running()
	if r == nil {
		return emptyStatus, nil
	}
	if !r.done() {
		if err := w.waitFor(ctx, r); err != nil {
			return Status{}, r.comm.fail("wait for "+r.op, -1, err)
		}
	}
	err := r.complete(&w.requests.status)
	return w.requests.status, err
}

// Test completes the request if the operation is complete, and returns its result;
// otherwise it returns false (MPI_Test). It makes progress on all operations.
func (q Request) Test() (st Status, done bool, err error) { return q.test("test", false) }

// test is Test, or with keep GetStatus.
func (q Request) test(call string, keep bool) (st Status, done bool, err error) {
	if q.r == nil {
		return emptyStatus, true, nil
	}
	w := q.r.world
	if err := w.enter(); err != nil {
		return Status{}, false, w.comm.fail(call, -1, err)
	}
	defer w.leave()
	r := q.running()
	if r == nil {
		return emptyStatus, true, nil
	}
	if !r.done() {
		w.progress()
		if !r.done() {
			w.vain()
			return Status{}, false, nil
		}
	}
	if keep {
		t := r.tell()
		return t.status, true, t.err
	}
	err = r.complete(&w.requests.status)
	return w.requests.status, true, err
}

// Cancel cancels the operation if that is still possible (MPI_Cancel): only a
// receive without a matching message can be cancelled. In either case the
// program still waits for the request; the Status says whether it was cancelled.
func (q Request) Cancel() error {
	return q.do("cancel", func(r *request) error {
		if r.active && !r.done() {
			r.what.cancel()
		}
		return nil
	})
}

// Free frees a request (MPI_Request_free): a persistent one, or one whose result
// is not needed. A running operation continues until it is complete. Its buffers
// belong to it until the program knows that from elsewhere, or until Finalize,
// which waits for sends and cancels receives. Freeing a null request does nothing.
func (q Request) Free() error {
	return q.do("free request", func(r *request) error {
		w := r.world
		switch {
		case r.active:
			if r.persistent {
				r.what = once{r.what}
				r.persistent = false
			}
			r.generation++ // for others it is null at once
			w.requests.detached = append(w.requests.detached, r)
			w.requests.reap()
		default:
			r.what.free()
			r.retire()
		}
		return nil
	})
}

// once is a persistent operation whose request was freed while it ran.
type once struct{ pending }

func (o once) finish(st *Status) error {
	err := o.pending.finish(st)
	o.pending.free()
	return err
}

// Start starts the operation of an inactive persistent request (MPI_Start).
func (q Request) Start() error { return q.do("start", (*request).begin) }

// begin is Start after the checks of the handle.
func (r *request) begin() error {
	switch {
	case !r.persistent:
		return badClass(ClassRequest, "the request of %s is not persistent: only a persistent one can be started", r.op)
	case r.active:
		return badClass(ClassRequest, "the persistent %s is active: wait for it first", r.op)
	case r.comm.barred:
		return r.comm.unusable()
	}
	if err := r.what.start(); err != nil {
		return err
	}
	r.active = true
	return nil
}

// do calls f for the request behind q, inside a call of its world. What is null
// by now is left alone, unless it never was a request.
func (q Request) do(op string, f func(*request) error) error {
	if q.r == nil {
		return &Error{Op: op, Peer: -1, Err: badClass(ClassRequest, "the request is null")}
	}
	w := q.r.world
	if err := w.enter(); err != nil {
		return w.comm.fail(op, -1, err)
	}
	defer w.leave()
	r := q.live()
	if r == nil {
		if op == "start" {
			return w.comm.fail(op, -1, badClass(ClassRequest, "the request was already freed"))
		}
		return nil
	}
	err := f(r)
	if _, told := errors.AsType[*Error](err); err == nil || told {
		return err
	}
	return r.comm.fail(op, -1, err)
}

// settle ends what still runs when the world is finalized: receives are cancelled,
// sends are waited for.
func (w *World) settle(ctx context.Context) error {
	for _, r := range w.requests.all {
		if r.active && !r.done() {
			r.what.cancel()
			if err := w.waitFor(ctx, r); err != nil {
				return r.comm.fail("finalize: wait for "+r.op, -1, err)
			}
		}
	}
	return nil
}
