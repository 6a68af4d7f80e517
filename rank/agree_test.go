package rank_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rank"
	"github.com/gorun-mpi/gorun/rank/ranktest"
)

func TestAgree(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Each(t, []int{1, 2, 3, 8}, func(ctx context.Context, c *rank.Comm) error {
		for i := range 30 {
			got, err := c.Agree(ctx, ^(1<<c.Rank())<<i)
			if want := ^(1<<c.Size() - 1) << i; err != nil || got != want {
				return fmt.Errorf("agreed on %b, %v, want %b", got, err, want)
			}
		}
		// The context of one ends before the others are there: what it gave counts.
		if c.Size() > 1 {
			if c.Rank() == 0 {
				short, cancel := context.WithCancel(ctx)
				cancel()
				if got, err := c.Agree(short, 6); !errors.Is(err, context.Canceled) && got != 2 { // if it had to wait
					return fmt.Errorf("agree: %d, %v, want %v", got, err, context.Canceled)
				}
			} else if got, err := c.Agree(ctx, 3); err != nil || got != 2 {
				return fmt.Errorf("agreed on %d, %v, want 2", got, err)
			}
		}
		d, err := c.Dup(ctx)
		if err != nil {
			return err
		}
		if err := d.Revoke(); err != nil {
			return err
		}
		if got, err := d.Agree(ctx, 1+c.Rank()<<1); err != nil || got != 1 {
			return fmt.Errorf("agreed on %d, %v, want 1", got, err)
		}
		s, err := d.Shrink(ctx)
		if err != nil {
			return err
		}
		if rank.Compare(s, c) != rank.Congruent {
			return errors.New("nobody has died, and the communicator has other ranks")
		}
		return errors.Join(rank.Barrier(ctx, s), s.Free(ctx), d.Free(ctx), rank.Barrier(ctx, c))
	})
}

func TestShrinkIntercomm(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Run(t, 5, func(ctx context.Context, c *rank.Comm) error {
		half, err := c.Split(ctx, c.Rank()%2, 0)
		if err != nil {
			return err
		}
		inter, err := rank.CreateIntercomm(ctx, half, 0, c, 1-c.Rank()%2, 0)
		if err != nil {
			return err
		}
		s, err := inter.Shrink(ctx)
		if err != nil {
			return err
		}
		if rank.Compare(s, inter) != rank.Congruent {
			return errors.New("it has other groups")
		}
		return rank.Barrier(ctx, s)
	})
}

// A mortal is the context of a rank that dies when a wait has looked at it so often.
type mortal struct {
	context.Context
	looks *atomic.Int64
	die   func()
}

func (m mortal) Err() error {
	if m.looks.Add(-1) == 0 {
		m.die()
	}
	return m.Context.Err()
}

var errDead = errors.New("dies on purpose")

// A rank dies, the others shrink, and another dies at each place of that in which it looks at its context: the
// survivors have the same communicator, and it works.
func TestShrinkWhileRanksDie(t *testing.T) {
	testenv.NoLeaks(t)
	for _, n := range []int{2, 3, 5} {
		for victim := range n - 1 { // rank 0 coordinates
			for looks := int64(1); ; looks++ {
				var left atomic.Int64
				left.Store(looks)
				ctx, cancel := context.WithTimeout(t.Context(), testenv.Limit(time.Minute))
				err := rank.RunConfig{Continuous: true}.Run(ctx, n, func(ctx context.Context, c *rank.Comm) error {
					if err := rank.Barrier(ctx, c); err != nil && !errors.Is(err, rank.ErrProcFailed) && !errors.Is(err, rank.ErrRevoked) { // others have gone on
						return err
					}
					if c.Rank() == n-1 {
						return errDead
					}
					if err := rank.Barrier(ctx, c); !errors.Is(err, rank.ErrProcFailed) && !errors.Is(err, rank.ErrRevoked) {
						return fmt.Errorf("barrier: %v, want %v", err, rank.ErrProcFailed)
					}
					if err := c.Revoke(); err != nil {
						return err
					}
					in := ctx
					if c.Rank() == victim {
						in = mortal{ctx, &left, runtime.Goexit}
					}
					s, err := c.Shrink(in)
					if err != nil {
						return err
					}
					if err := settled(in, s); err != nil {
						return err
					}
					if c.Rank() == victim {
						left.Store(-1) // it does not die any more
					}
					return nil
				})
				cancel()
				mayDie := []int{n - 1}
				if left.Load() >= 0 {
					mayDie = append(mayDie, victim)
				}
				if bad := unexpected(err, mayDie...); bad != nil {
					t.Fatalf("%d ranks, rank %d dies at look %d: %v", n, victim, looks, bad)
				}
				if left.Load() < 0 {
					t.Logf("%d ranks: rank %d has died at %d places", n, victim, looks-1)
					break
				}
			}
		}
	}
}

// The progress thread hears of a Revoke while the program asks.
func TestRevokedBesideThread(t *testing.T) {
	testenv.NoLeaks(t)
	cfg := rank.RunConfig{Config: rank.Config{Progress: rank.ProgressOn}}
	err := cfg.Run(testenv.Deadline(t, time.Minute), 2, func(ctx context.Context, c *rank.Comm) error {
		d, err := c.Dup(ctx)
		if err != nil {
			return err
		}
		if c.Rank() == 1 {
			if err := d.Revoke(); err != nil {
				return err
			}
			return rank.Send(ctx, c, []int{1}, 0, 0)
		}
		q, err := rank.Irecv(c, make([]int, 1), 1, 0) // and the thread begins
		if err != nil {
			return err
		}
		for !d.Revoked() && ctx.Err() == nil {
			runtime.Gosched()
		}
		_, err = q.Wait(ctx)
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// Collectives on a communicator that a death has revoked are refused while the progress thread is at work, and
// name those that had failed.
func TestRefusedBesideThread(t *testing.T) {
	testenv.NoLeaks(t)
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Limit(time.Minute))
	defer cancel()
	cfg := rank.RunConfig{Continuous: true, Config: rank.Config{Progress: rank.ProgressOn}}
	err := cfg.Run(ctx, 3, func(ctx context.Context, c *rank.Comm) (err error) {
		all := make([]*rank.Comm, 20)
		for i := range all {
			if all[i], err = c.Dup(ctx); err != nil {
				return err
			}
		}
		if c.Rank() == 2 { // dies when the others have all of them
			for r := range 2 {
				if _, err := rank.Recv(ctx, c, make([]int, 1), r, 0); err != nil {
					return err
				}
			}
			return errDead
		}
		err = rank.Send(ctx, c, []int{1}, 2, 0)
		for err == nil {
			err = rank.Barrier(ctx, c)
		}
		was, ok := errors.AsType[*rank.Error](err)
		if !ok {
			return err
		}
		if c.Rank() == 1 {
			over, cancel := context.WithCancel(ctx)
			cancel()
			for _, d := range all { // words that the other's thread hears
				_, _ = d.Agree(over, 1)
			}
			return rank.Send(ctx, c, []int{1}, 0, 0)
		}
		q, err := rank.Irecv(c, make([]int, 1), 1, 0) // and the thread begins
		for done := false; !done && err == nil; _, done, err = q.Test() {
			again := rank.Barrier(ctx, c)
			if e, ok := errors.AsType[*rank.Error](again); !ok || !errors.Is(again, rank.ErrRevoked) || !slices.Equal(e.Failed, was.Failed) {
				return fmt.Errorf("barrier: %v, want %v by failures of %v", again, rank.ErrRevoked, was.Failed)
			}
		}
		return err
	})
	if bad := unexpected(err, 2); bad != nil {
		t.Fatal(bad)
	}
}

// The context of a rank ends at each place of a Shrink in which it looks at it: all have the communicator, or all an
// error, and the next Shrink and Agree of all work.
func TestShrinkWhoseContextEnds(t *testing.T) {
	testenv.NoLeaks(t)
	for _, n := range []int{2, 3, 5} {
		for _, victim := range []int{0, n - 1} {
			for looks, done := int64(1), false; !done; looks++ {
				var left, made atomic.Int64
				left.Store(looks)
				ranktest.Run(t, n, func(ctx context.Context, c *rank.Comm) error {
					d, err := c.Dup(ctx)
					if err != nil {
						return err
					}
					if err := d.Revoke(); err != nil {
						return err
					}
					in, cancel := context.WithCancel(ctx)
					defer cancel()
					if c.Rank() == victim {
						in = mortal{in, &left, cancel}
					}
					s, err := d.Shrink(in)
					switch {
					case err == nil:
						made.Add(1)
					case c.Rank() == victim && !errors.Is(err, context.Canceled):
						return fmt.Errorf("shrink: %v, want %v", err, context.Canceled)
					}
					// It is in a call, and helps the others.
					if err := rank.Barrier(ctx, c); err != nil {
						return err
					}
					if all := made.Load(); all != 0 && all != int64(n) {
						return fmt.Errorf("%d of %d ranks have the communicator", all, n)
					}
					if s != nil {
						if err := errors.Join(rank.Barrier(ctx, s), s.Free(ctx)); err != nil {
							return err
						}
					}
					for range 2 {
						if got, err := d.Agree(ctx, 6|8<<c.Rank()); err != nil || got != 6 {
							return fmt.Errorf("agreed on %d, %v, want 6", got, err)
						}
						s, err := d.Shrink(ctx)
						if err != nil {
							return fmt.Errorf("the next shrink: %w", err)
						}
						if err := errors.Join(rank.Barrier(ctx, s), s.Free(ctx)); err != nil {
							return err
						}
					}
					return d.Free(ctx)
				})
				if done = left.Load() > 0; done {
					t.Logf("%d ranks: the context of rank %d has ended at %d places", n, victim, looks-1)
				}
				if t.Failed() {
					t.Fatalf("%d ranks, the context of rank %d ends at look %d", n, victim, looks)
				}
			}
		}
	}
}

// A second call of a rank in the agreements of one communicator is refused, and the first is as it was.
func TestConcurrentAgree(t *testing.T) {
	testenv.NoLeaks(t)
	ctx, cancel := context.WithTimeout(t.Context(), testenv.Limit(time.Minute))
	defer cancel()
	err := rank.RunConfig{Config: rank.Config{Concurrent: true}}.Run(ctx, 2, func(ctx context.Context, c *rank.Comm) error {
		if c.Rank() == 1 { // when one of the other's calls has returned
			if _, err := rank.Recv(ctx, c, make([]int, 1), 0, 0); err != nil {
				return err
			}
			_, err := c.Agree(ctx, 3)
			return err
		}
		errs := make(chan error)
		for range 2 {
			go func() {
				got, err := c.Agree(ctx, 7)
				if err == nil && got != 3 {
					err = fmt.Errorf("agreed on %d, want 3", got)
				}
				errs <- err
			}()
		}
		if err := <-errs; !errors.Is(err, rank.ErrConcurrent) {
			return fmt.Errorf("agree: %v, want %v", err, rank.ErrConcurrent)
		}
		return errors.Join(rank.Send(ctx, c, []int{1}, 1, 0), <-errs)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// settled tells whether a communicator of all that live comes to work, which all know alike.
func settled(ctx context.Context, s *rank.Comm) error {
	for {
		own := make([]int, 0, s.Size())
		for r := range s.Size() {
			world, err := s.Group().Translate([]int{r}, s.World().Group())
			if err != nil {
				return err
			}
			own = append(own, world...)
		}
		all := make([]int, s.Size()*s.Size())
		err := rank.Allgather(ctx, s, own, all)
		for r := range s.Size() {
			if err == nil && !slices.Equal(all[r*s.Size():][:s.Size()], own) {
				return fmt.Errorf("rank %d of %v has %v", r, own, all[r*s.Size():][:s.Size()])
			}
		}
		ok := 1
		if err != nil {
			if !errors.Is(err, rank.ErrProcFailed) && !errors.Is(err, rank.ErrRevoked) {
				return err
			}
			ok = 0
			_ = s.Revoke()
		}
		flag, err := s.Agree(ctx, ok)
		if err != nil && !errors.Is(err, rank.ErrProcFailed) {
			return err
		}
		if flag == 1 {
			return nil
		}
		next, err := s.Shrink(ctx)
		if err != nil {
			return err
		}
		_ = s.Free(ctx)
		s = next
	}
}

// unexpected is what is wrong with the error of a Run in which only some ranks may fail.
func unexpected(err error, mayFail ...int) error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return err
	}
	for _, e := range joined.Unwrap() {
		fine := false
		for _, r := range mayFail {
			fine = fine || len(e.Error()) > 6 && e.Error()[:6] == fmt.Sprintf("rank %d", r)
		}
		if !fine {
			return e
		}
	}
	return nil
}
