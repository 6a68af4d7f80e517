package rma

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"
)

// What rank 1 holds when it dies is taken from it, and whoever waits for it learns
// that. While it lives, contexts end the waits and leave nothing behind.
func TestHolders(t *testing.T) {
	add := sum(t)
	each(t, []int{3}, func(ctx context.Context, m *member) error {
		me := m.g.Rank
		var windows [5]*Window
		for i := range windows {
			w, err := m.window(ctx, Allocate, 8)
			if err != nil {
				return err
			}
			windows[i] = w
		}
		exclusive, shared, accumulate, scribbled, epochs := windows[0], windows[1], windows[2], windows[3], windows[4]
		if me == 1 {
			if err := errors.Join(exclusive.Lock(ctx, 0, true), shared.Lock(ctx, 0, false), accumulate.acquire(0)); err != nil {
				return err
			}
		}
		if me == 0 {
			atomic.StoreUint64(&scribbled.words[wordExclusive], 1<<32|77)
		}
		m.meet()
		if me == 1 {
			m.meet()
			m.meet()
			for _, w := range windows {
				if err := w.Close(); err != nil {
					return err
				}
			}
			return nil
		}

		short := func(what string, f func(context.Context) error) error {
			ctx, cancel := context.WithTimeout(ctx, 5*time.Millisecond)
			defer cancel()
			if err := f(ctx); !errors.Is(err, context.DeadlineExceeded) {
				return fmt.Errorf("%s: %v, want %v", what, err, context.DeadlineExceeded)
			}
			return nil
		}
		one := []int{1}
		if err := errors.Join(
			short("exclusive against exclusive", func(ctx context.Context) error { return exclusive.Lock(ctx, 0, true) }),
			short("shared against exclusive", func(ctx context.Context) error { return exclusive.Lock(ctx, 0, false) }),
			short("exclusive against shared", func(ctx context.Context) error { return shared.Lock(ctx, 0, true) }),
			short("start", func(ctx context.Context) error { return epochs.Start(ctx, one) }),
			epochs.Post(one),
			short("wait", func(ctx context.Context) error { return epochs.Wait(ctx) }),
		); err != nil {
			return err
		}
		if done, err := epochs.Test(); done || err != nil {
			return fmt.Errorf("test: %v, %v, want false", done, err)
		}
		names := func(what string, err error, cause error) error {
			if e, ok := errors.AsType[*MemberError](err); !ok || e.Member != 1 || !errors.Is(err, cause) {
				return fmt.Errorf("%s: %v, want %v of rank 1", what, err, cause)
			}
			return nil
		}
		m.patience = 30 * time.Millisecond
		if err := names("accumulate", accumulate.Accumulate(0, 0, []byte{1}, nil, add), ErrStopped); err != nil {
			return err
		}
		m.patience = patience
		m.meet()

		died := errors.New("it has died")
		m.gone = func(rank int) error {
			if rank == 1 {
				return died
			}
			return nil
		}
		_, tested := epochs.Test()
		if err := errors.Join(
			names("start", epochs.Start(ctx, one), died),
			names("wait", epochs.Wait(ctx), died),
			names("test", tested, died),
			accumulate.Accumulate(0, 0, []byte{1}, nil, add),
		); err != nil {
			return err
		}
		for _, w := range []*Window{exclusive, shared, scribbled} {
			for i := range 20 {
				kind := i%2 == 0
				if err := errors.Join(w.Lock(ctx, 0, kind), w.Unlock(ctx, 0, kind)); err != nil {
					return err
				}
			}
		}
		m.meet()
		if me == 0 && accumulate.Mem()[0] != 2 {
			return fmt.Errorf("the sum is %d, want 2", accumulate.Mem()[0])
		}
		for _, w := range windows {
			if err := w.Close(); err != nil {
				return err
			}
		}
		return nil
	})
}

// Who waits for a lock of a member that dies learns that, though another member that lives has the lock, or has asked for it and
// never heard that it got it.
func TestTargetDiesWhileAnotherHoldsItsLock(t *testing.T) {
	add := sum(t)
	each(t, []int{3}, func(ctx context.Context, m *member) error {
		var windows [3]*Window
		for i := range windows {
			w, err := m.window(ctx, Allocate, 8)
			if err != nil {
				return err
			}
			windows[i] = w
		}
		exclusive, shared, accumulate := windows[0], windows[1], windows[2]
		if m.g.Rank == 2 {
			if err := errors.Join(exclusive.Lock(ctx, 1, true), shared.Lock(ctx, 1, false), accumulate.acquire(1)); err != nil {
				return err
			}
		}
		m.meet()
		if m.g.Rank == 0 {
			died := errors.New("it has died")
			for what, wait := range map[string]func() error{
				"exclusive against exclusive": func() error { return exclusive.Lock(ctx, 1, true) },
				"shared against exclusive":    func() error { return exclusive.Lock(ctx, 1, false) },
				"exclusive against shared":    func() error { return shared.Lock(ctx, 1, true) },
				"accumulate":                  func() error { return accumulate.Accumulate(1, 0, []byte{1}, nil, add) },
			} {
				looks := 0
				m.gone = func(rank int) error {
					if rank != 1 {
						return nil
					}
					if looks++; looks < 4 { // it dies within the wait
						return nil
					}
					return died
				}
				if err := wait(); !errors.Is(err, died) {
					return fmt.Errorf("%s: %v, want %v", what, err, died)
				}
			}
			m.gone = nil
		}
		m.meet()
		for _, w := range windows {
			if err := w.Close(); err != nil {
				return err
			}
		}
		return nil
	})
}

// An origin that cannot be reached does not keep the next one waiting.
func TestPostUnreachable(t *testing.T) {
	each(t, []int{3}, func(ctx context.Context, m *member) error {
		w, err := m.window(ctx, Create, 8)
		if err != nil {
			return err
		}
		switch m.g.Rank {
		case 0:
			broken := w.remotes[1].words == nil
			died := errors.New("it has died")
			if broken {
				w.remotes[1].target.Fail(died)
			}
			if err := w.Post([]int{1, 2}); broken != errors.Is(err, died) {
				return fmt.Errorf("post: %v", err)
			}
		case 2:
			err = errors.Join(w.Start(ctx, []int{0}), w.Complete(ctx))
		}
		m.meet()
		return errors.Join(err, w.Close())
	})
}
