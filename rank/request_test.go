package rank

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// A toy is an operation that the test ends.
type toy struct {
	over, cancelled, freed bool
	starts                 int
	err                    error
	c                      *Comm
}

func (o *toy) done() bool { return o.over }
func (o *toy) finish(st *Status) error {
	o.over = false
	if *st = (Status{}); o.err != nil {
		return o.c.fail("toy", -1, o.err)
	}
	st.Source, st.Cancelled = 7, o.cancelled
	return nil
}
func (o *toy) cancel()      { o.over, o.cancelled = true, true }
func (o *toy) start() error { o.starts++; return nil }
func (o *toy) free()        { o.freed = true }

// Progress makes a toy an advancer: it ends when the rank waits.
func (o *toy) Progress() bool { o.over = true; return true }

func alone1(t *testing.T, f func(ctx context.Context, c *Comm) error) {
	t.Helper()
	if err := (RunConfig{}).Run(t.Context(), 1, f); err != nil {
		t.Fatal(err)
	}
}

func (o *toy) begin() Request { return o.c.world.newRequest(o.c, "toy").started(o) }

func TestStaleRequestIsNull(t *testing.T) {
	alone1(t, func(ctx context.Context, c *Comm) error {
		one := &toy{c: c, over: true}
		q := one.begin()
		if st, err := q.Wait(ctx); err != nil || st.Source != 7 {
			return fmt.Errorf("wait: %+v, %v", st, err)
		}
		// The next request is made of the same memory, and runs.
		two := &toy{c: c}
		other := two.begin()
		if other.r != q.r {
			return errors.New("the request was not recycled, so this tests nothing")
		}
		for _, stale := range []Request{q, {}} {
			if st, err := stale.Wait(ctx); err != nil || st != emptyStatus {
				return fmt.Errorf("wait for a stale request: %+v, %v; want the empty status", st, err)
			}
			if st, done, err := stale.Test(); err != nil || !done || st != emptyStatus {
				return fmt.Errorf("test of a stale request: %+v, %v, %v", st, done, err)
			}
		}
		if err := errors.Join(q.Cancel(), q.Free()); err != nil || two.cancelled {
			return fmt.Errorf("cancel and free of a stale request: %v, and the other is cancelled: %v", err, two.cancelled)
		}
		if err := q.Start(); !errors.Is(err, ErrArgument) {
			return fmt.Errorf("start of a stale request: %v", err)
		}
		if _, done, err := other.Test(); done || err != nil {
			return fmt.Errorf("the other request is over: %v, %v", done, err)
		}
		if err := other.Cancel(); err != nil {
			return err
		}
		st, err := other.Wait(ctx)
		if err == nil && !st.Cancelled {
			err = errors.New("not cancelled")
		}
		return err
	})
}

func TestWaitMovesOthersOn(t *testing.T) {
	alone1(t, func(ctx context.Context, c *Comm) error {
		o := &toy{c: c}
		c.world.traffic.add(o)
		defer c.world.traffic.remove(o)
		_, err := o.begin().Wait(ctx)
		return err
	})
}

func TestWaitAllReportsEachFailure(t *testing.T) {
	alone1(t, func(ctx context.Context, c *Comm) error {
		cause := errors.New("cause")
		ops := []*toy{{c: c, over: true}, {c: c, over: true, err: &TruncateError{Message: 2, Buffer: 1}}, {c: c}, {c: c, over: true, err: cause}, {c: c}}
		reqs := make([]Request, len(ops)+1)
		for i, o := range ops {
			reqs[i] = o.begin()
		}
		statuses := make([]Status, len(reqs))
		// Request 2 never ends, and the grave failure of 3 must be noticed.
		err := WaitAll(ctx, reqs, statuses)
		failed, ok := errors.AsType[*RequestError](err)
		if !ok || !slices.Equal(failed.Index, []int{1, 3}) || failed.Pending != 2 || !errors.Is(err, cause) {
			return fmt.Errorf("error %#v", err)
		}
		if !strings.Contains(err.Error(), "request 3") {
			return fmt.Errorf("the error names no request: %v", err)
		}
		if statuses[0].Source != 7 || statuses[5] != emptyStatus {
			return fmt.Errorf("statuses %+v", statuses)
		}
		for i, q := range reqs {
			if pending := i == 2 || i == 4; (q.live() != nil) != pending {
				return fmt.Errorf("request %d is live: %v", i, q.live() != nil)
			}
		}
		// A failure of one message leaves the wait as it is.
		ops[2].over = true
		c.world.traffic.add(ops[4])
		defer c.world.traffic.remove(ops[4])
		ops[2].err = &TruncateError{Message: 2, Buffer: 1}
		err = WaitAll(ctx, reqs, nil)
		failed, ok = errors.AsType[*RequestError](err)
		if !ok || !slices.Equal(failed.Index, []int{2}) || failed.Pending != 0 {
			return fmt.Errorf("error %#v", err)
		}
		return WaitAll(ctx, reqs, nil)
	})
}

func TestWaitSome(t *testing.T) {
	alone1(t, func(ctx context.Context, c *Comm) error {
		ops := []*toy{{c: c}, {c: c, over: true}, {c: c}, {c: c, over: true, err: errors.New("cause")}}
		reqs := make([]Request, len(ops))
		for i, o := range ops {
			reqs[i] = o.begin()
		}
		indices, statuses := make([]int, len(ops)), make([]Status, len(ops))
		n, err := WaitSome(ctx, reqs, indices, statuses)
		failed, ok := errors.AsType[*RequestError](err)
		if n != 2 || !slices.Equal(indices[:n], []int{1, 3}) || statuses[0].Source != 7 || !ok || !slices.Equal(failed.Index, []int{3}) {
			return fmt.Errorf("%d: %v %+v, %v", n, indices, statuses, err)
		}
		if n, err := TestSome(reqs, indices, nil); n != 0 || err != nil {
			return fmt.Errorf("testsome: %d, %v", n, err)
		}
		if i, _, done, err := TestAny(reqs); done || err != nil {
			return fmt.Errorf("testany: %d, %v", i, err)
		}
		if done, err := TestAll(reqs, nil); done || err != nil {
			return fmt.Errorf("testall: %v, %v", done, err)
		}
		ops[2].over = true
		if i, st, err := WaitAny(ctx, reqs); i != 2 || st.Source != 7 || err != nil {
			return fmt.Errorf("waitany: %d, %+v, %v", i, st, err)
		}
		ended, cancel := context.WithCancel(ctx)
		cancel()
		if i, _, err := WaitAny(ended, reqs); i != Undefined || !errors.Is(err, context.Canceled) {
			return fmt.Errorf("waitany with an ended context: %d, %v", i, err)
		}
		if err := WaitAll(ended, reqs, nil); !errors.Is(err, context.Canceled) {
			return fmt.Errorf("waitall with an ended context: %v", err)
		}
		ops[0].over = true
		if done, err := TestAll(reqs, statuses); !done || err != nil || statuses[0].Source != 7 || statuses[1] != emptyStatus {
			return fmt.Errorf("testall: %v, %v", done, err)
		}
		if n, err := WaitSome(ctx, reqs, indices, nil); n != Undefined || err != nil {
			return fmt.Errorf("waitsome of none: %d, %v", n, err)
		}
		if i, _, err := WaitAny(ctx, reqs); i != Undefined || err != nil {
			return fmt.Errorf("waitany of none: %d, %v", i, err)
		}
		if _, err := WaitSome(ctx, reqs, indices[:2], nil); !errors.Is(err, ErrArgument) {
			return fmt.Errorf("too few indices: %v", err)
		}
		return nil
	})
}

func TestPersistent(t *testing.T) {
	alone1(t, func(ctx context.Context, c *Comm) error {
		o := &toy{c: c}
		q := c.world.newRequest(c, "toy").inactive(o)
		if st, err := q.Wait(ctx); err != nil || st != emptyStatus {
			return fmt.Errorf("wait for an inactive request: %+v, %v", st, err)
		}
		for range 3 {
			if err := StartAll([]Request{q}); err != nil {
				return err
			}
			if err := q.Start(); !errors.Is(err, ErrArgument) {
				return fmt.Errorf("second start: %v", err)
			}
			if _, done, _ := q.Test(); done {
				return errors.New("over before its end")
			}
			o.over = true
			reqs := []Request{q}
			if err := WaitAll(ctx, reqs, nil); err != nil || reqs[0] != q {
				return fmt.Errorf("waitall: %v, %v", err, reqs)
			}
		}
		// Freed while it runs, it ends by itself.
		if err := q.Start(); err != nil {
			return err
		}
		if err := q.Free(); err != nil || o.freed {
			return fmt.Errorf("free: %v, freed %v", err, o.freed)
		}
		if st, err := q.Wait(ctx); err != nil || st != emptyStatus {
			return fmt.Errorf("wait for a freed request: %+v, %v", st, err)
		}
		o.over = true
		next := (&toy{c: c, over: true}).begin()
		if !o.freed || len(c.world.requests.detached) != 0 {
			return errors.New("the freed request was not completed")
		}
		_, err := next.Wait(ctx)
		return err
	})
}

// A persistent call cannot be started on a communicator that is gone.
func TestStartOnFreedCommunicator(t *testing.T) {
	alone1(t, func(ctx context.Context, c *Comm) error {
		d, err := c.Dup(ctx)
		if err != nil {
			return err
		}
		q, err := RecvInit(d, []int{0}, 0, 0)
		if err != nil {
			return err
		}
		if err := d.Free(ctx); err != nil {
			return err
		}
		if err := q.Start(); !errors.Is(err, ErrFreed) {
			return fmt.Errorf("start: %v, want %v", err, ErrFreed)
		}
		return q.Free()
	})
}

// What runs still when the world is finalized is cancelled or waited for.
func TestFinalizeSettles(t *testing.T) {
	o := new(toy)
	alone1(t, func(ctx context.Context, c *Comm) error {
		o.c = c
		return o.begin().Free()
	})
	if !o.cancelled {
		t.Error("Finalize did not end the operation")
	}
}
