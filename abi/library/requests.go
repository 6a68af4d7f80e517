//go:build cgo && linux

package main

import (
	"errors"

	"github.com/gorun-mpi/gorun/rank"
)

// A request is MPI_Request. It ends with the call that reports it complete, but for a persistent one.
//
//	started -- Wait, Test ... --> over          kept (inactive) <-- Start / Wait, Test ... --> active; Request_free ends it
type request struct {
	rank.Request
	handle     uintptr
	on         *owner
	persistent bool
	active     bool
	general    *rank.General
	access     *access                   // of a file
	cancel     func(complete bool) error // of a generalized one
	complete   bool                      // the program has said so
	done       func()                    // what is left to do when it is over
}

var requests = newTable[request](kindRequest)

// to says where the handle of the call's request goes, and whose errors are the request's.
func (f *frame) to(at ptr, c *comm) *frame {
	f.at, f.whose = at, &c.owner
	return f
}

// A form is how an operation is called. Its three functions bind operands alike, and dispatch calls the same one.
type form int

const (
	waits  form = iota // until it is over
	starts             // MPI_I...: the request is of the operation
	keeps              // MPI_..._init: the request starts it, as often as the program likes
	isBad              // its operands are wrong, or its request has no place
)

// ready is the form of a call on c whose operands are bound.
func (c *comm) ready(f *frame) form {
	if f.err != nil || f.form != waits && f.at == nil {
		return isBad
	}
	f.whose = &c.owner
	return f.form
}

// orNull is the call's error, or that of a result's pointer that is NULL.
func (f *frame) orNull() error {
	if f.err != nil {
		return f.err
	}
	return errNull
}

func (f *frame) started(q rank.Request, err error) error { return f.enter(q, err, false) }
func (f *frame) kept(q rank.Request, err error) error    { return f.enter(q, err, true) }

func (f *frame) enter(q rank.Request, err error, persistent bool) error {
	if err != nil {
		return err
	}
	h, slot := requests.enter()
	*slot = request{Request: q, handle: h, on: f.whose, persistent: persistent, active: !persistent}
	f.whose.pending++
	f.putHandle(f.at, h)
	return nil
}

// finish is what becomes of a request that was reported complete, and of its handle at the i-th place of a list.
func (q *request) finish(at *uintptr) {
	if q.done != nil {
		q.done()
		q.done = nil
	}
	if q.persistent {
		q.active = false
		return
	}
	h, on := q.handle, q.on
	*q = request{}
	requests.leave(h)
	*at = c_REQUEST_NULL
	on.less()
}

// requestAt is the request at an address, nil for MPI_REQUEST_NULL.
func (f *frame) requestAt(at ptr) (*request, *uintptr) {
	list := handlesAt(at, 1)
	if list == nil {
		f.bad(wrong(c_ERR_REQUEST, "the request's address is NULL"))
		return nil, nil
	}
	if list[0] == c_REQUEST_NULL {
		return nil, &list[0]
	}
	q := requests.find(list[0])
	if q == nil {
		f.bad(badHandle(c_ERR_REQUEST, "request", list[0]))
		return nil, &list[0]
	}
	f.on = q.on
	return q, &list[0]
}

// nothing is the status where no operation was.
var nothing = rank.Status{Source: rank.AnySource, Tag: rank.AnyTag}

// empty makes a status MPI's empty one, which has no error either.
func (s *cStatus) empty() {
	if s.set(&nothing); s != nil {
		s.err = c_SUCCESS
	}
}

func mpiWait(f *frame, at, status ptr) error {
	q, handle := f.requestAt(at)
	if f.err != nil {
		return f.err
	}
	if q == nil || !q.active {
		statusAt(status).empty()
		return nil
	}
	q.await()
	st, err := q.Wait(never)
	statusAt(status).set(&st)
	q.finish(handle)
	return err
}

// await waits for an access to a file, of which the engine would hear later.
func (q *request) await() {
	if q != nil && q.access != nil {
		await(q.access.done)
	}
}

func mpiTest(f *frame, at, flag, status ptr) error {
	q, handle := f.requestAt(at)
	if f.err != nil || flag == nil {
		return f.orNull()
	}
	if q == nil || !q.active {
		f.putBool(flag, true)
		statusAt(status).empty()
		return nil
	}
	st, done, err := q.Test()
	if done || err != nil {
		statusAt(status).set(&st)
		q.finish(handle)
	}
	f.putBool(flag, done || err != nil)
	return err
}

// A batch is a list of requests for the calls of several.
type batch struct {
	handles  []uintptr
	requests []rank.Request
	statuses []rank.Status
	indices  []int
	next     *batch // recycled
}

// batches are those that no call has.
var batches *batch

func newBatch() *batch {
	b := batches
	if b == nil {
		return new(batch)
	}
	batches, b.next = b.next, nil
	return b
}

func (b *batch) giveBack() {
	if b != nil {
		b.next, batches = batches, b
	}
}

// all is the batch of a list of C; persistent requests that are not active count as null.
func (f *frame) all(n int, at ptr) *batch {
	b := newBatch()
	f.batch = b
	b.handles, b.requests = handlesAt(at, n), b.requests[:0]
	if n < 0 {
		f.bad(wrong(c_ERR_COUNT, "%d requests", n))
	} else if n > 0 && b.handles == nil {
		f.bad(wrong(c_ERR_REQUEST, "the list of requests is NULL"))
	}
	for _, h := range b.handles {
		var q rank.Request
		if h != c_REQUEST_NULL {
			r := requests.find(h)
			if r == nil {
				f.bad(badHandle(c_ERR_REQUEST, "request", h))
				break
			}
			if f.on == nil {
				f.on = r.on
			}
			if r.active {
				q = r.Request
			}
		}
		b.requests = append(b.requests, q)
	}
	for len(b.statuses) < len(b.requests) {
		b.statuses, b.indices = append(b.statuses, rank.Status{}), append(b.indices, 0)
	}
	return b
}

// finish ends the i-th request.
func (b *batch) finish(i int) {
	if h := &b.handles[i]; *h != c_REQUEST_NULL {
		requests.find(*h).finish(h)
	}
}

// settle stores what became of all requests: errs has those that failed, by place; rest: others are not over.
func (b *batch) settle(statuses ptr, err error) error {
	failed, several := errors.AsType[*rank.RequestError](err)
	if err != nil && !several {
		return err
	}
	for i := range b.requests {
		code, over := c_SUCCESS, true
		if several {
			over = b.requests[i] == rank.Request{}
			for k, at := range failed.Index {
				if at == i {
					code, over = codeOf(failed.Err[k]), true
				}
			}
			if q := requests.find(b.handles[i]); q != nil && q.persistent && q.active && code == c_SUCCESS {
				_, over, _ = q.GetStatus()
			}
			if !over {
				code = c_ERR_PENDING
			}
		}
		if s := statusIn(statuses, i); s != nil {
			s.set(&b.statuses[i])
			if several {
				s.err = int32(code)
			}
		}
		if over {
			b.finish(i)
		}
	}
	return err
}

func mpiWaitall(f *frame, n int, list, statuses ptr) error {
	b := f.all(n, list)
	if f.err != nil {
		return f.err
	}
	for _, h := range b.handles {
		requests.find(h).await()
	}
	return b.settle(statuses, rank.WaitAll(never, b.requests, b.statuses[:len(b.requests)]))
}

func mpiTestall(f *frame, n int, list, flag, statuses ptr) error {
	b := f.all(n, list)
	if f.err != nil || flag == nil {
		return f.orNull()
	}
	done, err := rank.TestAll(b.requests, b.statuses[:len(b.requests)])
	f.putBool(flag, done)
	if !done && err == nil {
		return nil
	}
	return b.settle(statuses, err)
}

func mpiWaitany(f *frame, n int, list, index, status ptr) error {
	b := f.all(n, list)
	if f.err != nil || index == nil {
		return f.orNull()
	}
	i, st, err := rank.WaitAny(never, b.requests)
	return f.one(b, i, st, err, index, status)
}

// one stores the one request that is over.
func (f *frame) one(b *batch, i int, st rank.Status, err error, index, status ptr) error {
	if i == rank.Undefined {
		f.put(index, c_UNDEFINED)
		if err == nil {
			statusAt(status).empty()
		}
		return err
	}
	f.put(index, i)
	statusAt(status).set(&st)
	if q := requests.find(b.handles[i]); q != nil && q.on != nil {
		f.on = q.on
	}
	b.finish(i)
	return err
}

func mpiTestany(f *frame, n int, list, index, flag, status ptr) error {
	b := f.all(n, list)
	if f.err != nil || index == nil || flag == nil {
		return f.orNull()
	}
	i, st, done, err := rank.TestAny(b.requests)
	f.putBool(flag, done || err != nil)
	if !done && err == nil {
		f.put(index, c_UNDEFINED)
		return nil
	}
	return f.one(b, i, st, err, index, status)
}

func mpiWaitsome(f *frame, n int, list, count, indices, statuses ptr) error {
	b := f.all(n, list)
	if f.err != nil || count == nil {
		return f.orNull()
	}
	k, err := rank.WaitSome(never, b.requests, b.indices[:len(b.requests)], b.statuses[:len(b.requests)])
	return f.some(b, k, err, count, indices, statuses)
}

func mpiTestsome(f *frame, n int, list, count, indices, statuses ptr) error {
	b := f.all(n, list)
	if f.err != nil || count == nil {
		return f.orNull()
	}
	k, err := rank.TestSome(b.requests, b.indices[:len(b.requests)], b.statuses[:len(b.requests)])
	return f.some(b, k, err, count, indices, statuses)
}

// some stores the k requests that are over.
func (f *frame) some(b *batch, k int, err error, count, indices, statuses ptr) error {
	if k == rank.Undefined {
		f.put(count, c_UNDEFINED)
		return err
	}
	failed, several := errors.AsType[*rank.RequestError](err)
	if err != nil && !several {
		return err
	}
	f.put(count, k)
	to := intsAt(indices, k)
	if to == nil && k > 0 {
		return errNull
	}
	for j := range k {
		i := b.indices[j]
		to[j] = int32(i)
		if s := statusIn(statuses, j); s != nil {
			s.set(&b.statuses[j])
			if several {
				s.err = c_SUCCESS
				for m, at := range failed.Index {
					if at == i {
						s.err = int32(codeOf(failed.Err[m]))
					}
				}
			}
		}
		b.finish(i)
	}
	return err
}

func mpiRequestFree(f *frame, at ptr) error {
	q, handle := f.requestAt(at)
	if f.err != nil {
		return f.err
	}
	if q == nil {
		return wrong(c_ERR_REQUEST, "the request is MPI_REQUEST_NULL")
	}
	err := q.Request.Free()
	q.persistent = false
	q.done = nil
	q.finish(handle)
	return err
}

func mpiRequestGetStatus(f *frame, q *request, flag, status ptr) error {
	if flag == nil {
		return errNull
	}
	if q == nil || !q.active {
		f.putBool(flag, true)
		statusAt(status).empty()
		return nil
	}
	st, done, err := q.GetStatus()
	f.putBool(flag, done)
	if done {
		statusAt(status).set(&st)
	}
	return err
}

func mpiCancel(f *frame, at ptr) error {
	q, _ := f.requestAt(at)
	if f.err != nil {
		return f.err
	}
	if q == nil {
		return wrong(c_ERR_REQUEST, "the request is MPI_REQUEST_NULL")
	}
	if q.cancel != nil {
		return q.cancel(q.complete)
	}
	return q.Cancel()
}

func mpiStart(f *frame, at ptr) error {
	q, _ := f.requestAt(at)
	if f.err != nil {
		return f.err
	}
	return q.start()
}

func (q *request) start() error {
	switch {
	case q == nil || !q.persistent:
		return wrong(c_ERR_REQUEST, "only persistent requests are started")
	case q.active:
		return wrong(c_ERR_REQUEST, "the request is active already")
	}
	err := q.Start()
	q.active = err == nil
	return err
}

func mpiStartall(f *frame, n int, list ptr) error {
	b := f.all(n, list)
	if f.err != nil {
		return f.err
	}
	for _, h := range b.handles {
		if err := requests.find(h).start(); err != nil {
			return err
		}
	}
	return nil
}
