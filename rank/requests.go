package rank

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// A RequestError says which of several requests failed (MPI_ERR_IN_STATUS). It unwraps to their errors.
type RequestError struct {
	// Index are the positions of the failed requests in the slice, and Err their errors.
	Index []int
	Err   []error
	// Pending is the number of requests that are not complete and still active (MPI_ERR_PENDING).
	Pending int
}

func (e *RequestError) Error() string {
	var b strings.Builder
	for i, err := range e.Err {
		if i > 0 {
			b.WriteString("; ")
		}
		fmt.Fprintf(&b, "request %d: %v", e.Index[i], err)
	}
	if e.Pending > 0 {
		fmt.Fprintf(&b, "; %d requests are not over", e.Pending)
	}
	return b.String()
}

func (e *RequestError) Unwrap() []error { return e.Err }

// Is reports whether target is the error's class.
func (e *RequestError) Is(target error) bool { return target == ClassInStatus }

// WaitAll waits for all requests (MPI_Waitall). statuses is nil, or has an entry for each
// request. Completed requests become null requests in reqs, and persistent requests become
// inactive. When some fail the error is a [*RequestError]. After a failure that concerns
// more than one message, such as the death of a peer, WaitAll does not wait for the rest,
// which may need what has failed; the rest stays in reqs. The same holds when ctx ends.
func WaitAll(ctx context.Context, reqs []Request, statuses []Status) error {
	w, err := enterAll("waitall", reqs, statuses, len(reqs))
	if w == nil {
		return err
	}
	defer w.leave()
	s := w.requests.newSeveral(w.turns != nil)
	*s = several{reqs: reqs, statuses: statuses}
	if !s.Ready() {
		err = w.waitFor(ctx, s)
	}
	return s.end(w, "waitall", err)
}

// TestAll completes all requests if all are complete, as WaitAll does, and
// returns true (MPI_Testall). Otherwise it returns false and changes no request.
func TestAll(reqs []Request, statuses []Status) (done bool, err error) {
	w, err := enterAll("testall", reqs, statuses, len(reqs))
	if w == nil {
		return err == nil, err
	}
	defer w.leave()
	w.progress()
	for _, q := range reqs {
		if r := q.running(); r != nil && !r.done() {
			w.vain()
			return false, nil
		}
	}
	s := w.requests.newSeveral(w.turns != nil)
	*s = several{reqs: reqs, statuses: statuses}
	for i := range reqs {
		s.take(i)
	}
	return true, s.end(w, "testall", nil)
}

// WaitAny waits for one of the requests and returns its index (MPI_Waitany).
// If no request is active it returns at once, with the index Undefined and
// an empty Status. When ctx ends first the index is Undefined too.
func WaitAny(ctx context.Context, reqs []Request) (index int, st Status, err error) {
	w, err := enterAll("waitany", reqs, nil, 0)
	if w == nil {
		return Undefined, emptyStatus, err
	}
	defer w.leave()
	a := w.requests.newAnyOf(w.turns != nil)
	*a = anyOf{reqs: reqs}
	if !a.Ready() {
		err = w.waitFor(ctx, a)
	}
	index = a.index
	*a = anyOf{}
	if err != nil {
		return Undefined, Status{}, w.comm.fail("waitany", -1, err)
	}
	if index == Undefined {
		return Undefined, emptyStatus, nil
	}
	err = complete(&reqs[index], &w.requests.status)
	return index, w.requests.status, err
}

// TestAny is WaitAny that does not wait (MPI_Testany): done is false if
// no request is complete and some are active.
func TestAny(reqs []Request) (index int, st Status, done bool, err error) {
	w, err := enterAll("testany", reqs, nil, 0)
	if w == nil {
		return Undefined, emptyStatus, err == nil, err
	}
	defer w.leave()
	w.progress()
	a := anyOf{reqs: reqs}
	if !a.Ready() {
		w.vain()
		return Undefined, Status{}, false, nil
	}
	if a.index == Undefined {
		return Undefined, emptyStatus, true, nil
	}
	err = complete(&reqs[a.index], &w.requests.status)
	return a.index, w.requests.status, true, err
}

// WaitSome waits until at least one of the requests is complete, and reports all that are
// (MPI_Waitsome). indices[:n] are their positions in reqs. indices has room for each request.
// statuses is nil or has room for each request too; statuses[k] belongs to indices[k]. When
// no request is active n is Undefined. When some failed the error is a [*RequestError].
func WaitSome(ctx context.Context, reqs []Request, indices []int, statuses []Status) (n int, err error) {
	w, err := enterSome("waitsome", reqs, indices, statuses)
	if w == nil {
		return Undefined, err
	}
	defer w.leave()
	a := w.requests.newAnyOf(w.turns != nil)
	*a = anyOf{reqs: reqs}
	if !a.Ready() {
		err = w.waitFor(ctx, a)
	}
	none := a.index == Undefined
	*a = anyOf{}
	if err != nil {
		return 0, w.comm.fail("waitsome", -1, err)
	}
	if none {
		return Undefined, nil
	}
	return completeSome(reqs, indices, statuses)
}

// TestSome is WaitSome that does not wait (MPI_Testsome): n may be 0.
func TestSome(reqs []Request, indices []int, statuses []Status) (n int, err error) {
	w, err := enterSome("testsome", reqs, indices, statuses)
	if w == nil {
		return Undefined, err
	}
	defer w.leave()
	w.progress()
	a := anyOf{reqs: reqs}
	switch {
	case !a.Ready():
		w.vain()
		return 0, nil
	case a.index == Undefined:
		return Undefined, nil
	}
	return completeSome(reqs, indices, statuses)
}

// StartAll starts persistent requests (MPI_Startall). It stops at the
// first that cannot be started, and the error names its index.
func StartAll(reqs []Request) error {
	for i, q := range reqs {
		if err := q.Start(); err != nil {
			return fmt.Errorf("start request %d: %w", i, err)
		}
	}
	return nil
}

// several is a wait for all of some requests, which completes them as they come.
type several struct {
	reqs     []Request
	statuses []Status
	next     int // those before are over
	polls    uint
	failed   *RequestError
	grave    bool // a failure that ends the wait
}

// sweepEvery is how many polls look only at the first request that is not over.
const sweepEvery = 64

// Ready tells whether the wait is over.
func (s *several) Ready() bool {
	for ; s.next < len(s.reqs) && !s.grave; s.next++ {
		if s.take(s.next) {
			continue
		}
		if s.polls++; s.polls%sweepEvery == 0 {
			// One may have failed, and the first need what it was about.
			for i := s.next + 1; i < len(s.reqs); i++ {
				s.take(i)
			}
		}
		return s.grave
	}
	return true
}

// take completes request i if it is over; false: it is not.
func (s *several) take(i int) bool {
	r := s.reqs[i].running()
	if r == nil {
		return true
	}
	if !r.done() {
		return false
	}
	var st *Status
	if s.statuses != nil {
		st = &s.statuses[i]
	} else if r.receipt.op == nil {
		st = &r.world.requests.status // that nobody wants
	}
	if err := complete(&s.reqs[i], st); err != nil {
		s.failed = s.failed.add(i, err)
		s.grave = s.grave || !single(err)
	}
	return true
}

// end is the error of a wait that ended with err, of its context.
func (s *several) end(w *World, op string, err error) error {
	pending := 0
	if err != nil || s.grave {
		for i := range s.reqs {
			if !s.take(i) {
				pending++
			}
		}
	}
	failed := s.failed
	*s = several{}
	switch {
	case failed != nil:
		failed.Pending = pending
		return failed
	case err != nil && pending > 0:
		return w.comm.fail(op, -1, err)
	}
	return nil
}

// add is e with one failure more; e may be nil.
func (e *RequestError) add(i int, err error) *RequestError {
	if e == nil {
		e = new(RequestError)
	}
	e.Index, e.Err = append(e.Index, i), append(e.Err, err)
	return e
}

// single tells whether an error concerns one message only.
func single(err error) bool {
	if _, ok := errors.AsType[*TruncateError](err); ok {
		return true
	}
	return errors.Is(err, ErrArgument)
}

// anyOf is a wait for one of some requests.
type anyOf struct {
	reqs  []Request
	index int // of one that is over, Undefined when none is active
}

// Ready tells whether one is over, or none is active.
func (a *anyOf) Ready() bool {
	a.index = Undefined
	active := false
	for i := range a.reqs {
		r := a.reqs[i].running()
		if r == nil {
			continue
		}
		if r.done() {
			a.index = i
			return true
		}
		active = true
	}
	return !active
}

// complete takes the outcome of a request that is over, and makes it null where
// it is not persistent.
func complete(q *Request, st *Status) error {
	r := q.r
	if !r.persistent {
		*q = Request{}
	}
	return r.complete(st)
}

// completeSome completes all that are over.
func completeSome(reqs []Request, indices []int, statuses []Status) (n int, err error) {
	var failed *RequestError
	for i := range reqs {
		r := reqs[i].running()
		if r == nil || !r.done() {
			continue
		}
		st := &r.world.requests.status
		if statuses != nil {
			st = &statuses[n]
		}
		err := complete(&reqs[i], st)
		indices[n] = i
		n++
		if err != nil {
			failed = failed.add(i, err)
		}
	}
	if failed != nil {
		return n, failed
	}
	return n, nil
}

// newSeveral is what a call waits for: the world's own, or one for this call where several wait.
func (s *requests) newSeveral(own bool) *several {
	if own {
		return new(several)
	}
	return &s.several
}

// newAnyOf is newSeveral of an anyOf.
func (s *requests) newAnyOf(own bool) *anyOf {
	if own {
		return new(anyOf)
	}
	return &s.anyOf
}

// enterAll begins a call about several requests, of one world: nil without an
// error when all of them are null. It makes n statuses empty, unless there are to
// be none.
func enterAll(op string, reqs []Request, statuses []Status, n int) (*World, error) {
	if statuses != nil && len(statuses) < n {
		return nil, &Error{Op: op, Peer: -1, Err: badArgument("%d statuses for %d requests: expected none, or one for each", len(statuses), n)}
	}
	if statuses != nil {
		for i := range n {
			statuses[i] = emptyStatus
		}
	}
	var w *World
	for i := range reqs {
		switch r := reqs[i].r; {
		case r == nil:
		case w == nil:
			w = r.world
		case w != r.world:
			return nil, w.comm.fail(op, -1, badClass(ClassRequest, "request %d belongs to another rank than those before it", i))
		}
	}
	if w == nil {
		return nil, nil
	}
	if err := w.enter(); err != nil {
		return nil, w.comm.fail(op, -1, err)
	}
	return w, nil
}

// enterSome is enterAll of the calls that tell which requests are over.
func enterSome(op string, reqs []Request, indices []int, statuses []Status) (*World, error) {
	if len(indices) < len(reqs) {
		return nil, &Error{Op: op, Peer: -1, Err: badArgument("%d indices for %d requests: expected one for each", len(indices), len(reqs))}
	}
	return enterAll(op, reqs, statuses, len(reqs))
}
