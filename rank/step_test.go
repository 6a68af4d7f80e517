package rank_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rank"
)

// deferrable are started collectives of all that has executors.
var deferrable = map[string]func(c *rank.Comm, in, out []int64) (rank.Request, error){
	"barrier": func(c *rank.Comm, _, _ []int64) (rank.Request, error) { return rank.Ibarrier(c) },
	"bcast":   func(c *rank.Comm, in, _ []int64) (rank.Request, error) { return rank.Ibcast(c, in, 0) },
	"reduce": func(c *rank.Comm, in, out []int64) (rank.Request, error) {
		return rank.Ireduce(c, in, out, rank.Sum, 0)
	},
	"allreduce": func(c *rank.Comm, in, out []int64) (rank.Request, error) {
		return rank.Iallreduce(c, in, out, rank.Sum)
	},
	"alltoall": func(c *rank.Comm, in, out []int64) (rank.Request, error) { return rank.Ialltoall(c, in, out) },
	"reduce_scatter": func(c *rank.Comm, in, out []int64) (rank.Request, error) {
		return rank.IreduceScatterBlock(c, in, out[:len(out)/c.Size()], rank.Sum)
	},
	"allgather": func(c *rank.Comm, in, out []int64) (rank.Request, error) {
		return rank.Iallgather(c, in[:len(in)/c.Size()], out)
	},
}

// With Config.Deferred a rank's start and wait make no step of a collective, however short: the progress
// thread does, or the goroutine that steps.
func TestDeferredCollectivesAreRunBeside(t *testing.T) {
	for _, progress := range []rank.Progress{rank.ProgressOn, rank.ProgressOff} {
		for _, n := range []int{1, 2, 3} {
			for name, start := range deferrable {
				t.Run(fmt.Sprintf("%v/%s/n=%d", progress, name, n), func(t *testing.T) {
					testenv.NoLeaks(t)
					cfg := rank.RunConfig{Config: rank.Config{Progress: progress, Deferred: true}}
					if err := cfg.Run(testenv.Deadline(t, time.Minute), n, func(ctx context.Context, c *rank.Comm) error {
						const calls = 5
						for _, elements := range []int{6, 60_000} {
							before := c.World().Counters().Collective
							for range calls {
								in, out := make([]int64, elements), make([]int64, elements)
								for i := range in {
									in[i] = int64(c.Rank() + 1)
								}
								q, err := start(c, in, out)
								if err != nil {
									return err
								}
								if progress == rank.ProgressOff {
									if err := stepToTheEnd(ctx, q); err != nil {
										return err
									}
								}
								if _, err := q.Wait(ctx); err != nil {
									return err
								}
								if name == "allreduce" && out[elements-1] != int64(n*(n+1)/2) {
									return fmt.Errorf("the sum is %d", out[elements-1])
								}
							}
							after := c.World().Counters().Collective
							if after.Beside-before.Beside != calls || after.Calls-before.Calls != calls {
								return fmt.Errorf("%d elements: %d of %d calls were run beside the rank, want %d", elements, after.Beside-before.Beside, after.Calls-before.Calls, calls)
							}
						}
						return nil
					}); err != nil {
						t.Fatal(err)
					}
				})
			}
		}
	}
}

// stepToTheEnd steps a request on another goroutine until it is over.
func stepToTheEnd(ctx context.Context, q rank.Request) error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			moved, over := q.Step()
			if over {
				return
			}
			if !moved {
				runtime.Gosched()
			}
		}
	}()
	<-done
	return ctx.Err()
}

// What a rank runs itself does not count as run beside it: blocking calls, and operations of the program.
func TestDeferredLeavesOwnCallsToTheRank(t *testing.T) {
	testenv.NoLeaks(t)
	cfg := rank.RunConfig{Config: rank.Config{Progress: rank.ProgressOn, Deferred: true}}
	if err := cfg.Run(testenv.Deadline(t, time.Minute), 2, func(ctx context.Context, c *rank.Comm) error {
		op := rank.OpFunc("add", true, func(dst, a, b []int) {
			for i := range dst {
				dst[i] = a[i] + b[i]
			}
		})
		in, out := []int{c.Rank() + 1}, []int{0}
		q, err := rank.Iallreduce(c, in, out, op)
		if err != nil {
			return err
		}
		behind, err := rank.Ibarrier(c)
		if err != nil {
			return err
		}
		for _, r := range []rank.Request{q, behind} {
			if _, err := r.Wait(ctx); err != nil {
				return err
			}
		}
		if err := rank.Allreduce(ctx, c, in, out, rank.Sum); err != nil {
			return err
		}
		if n := c.World().Counters().Collective; out[0] != 3 || n.Calls != 3 || n.Beside > 1 {
			return fmt.Errorf("the sum is %d; %d of %d calls were run beside the rank, want at most the barrier", out[0], n.Beside, n.Calls)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// A rank that waits outside for its thread hears of the end of its context, and can wait again. TestDeath has the death of a peer.
func TestDeferredWaitEndsWithContext(t *testing.T) {
	testenv.NoLeaks(t)
	cfg := rank.RunConfig{Config: rank.Config{Progress: rank.ProgressOn, Deferred: true}}
	gaveUp := make(chan struct{})
	err := cfg.Run(testenv.Deadline(t, time.Minute), 2, func(ctx context.Context, c *rank.Comm) error {
		if c.Rank() == 1 {
			<-gaveUp
			return rank.Barrier(ctx, c)
		}
		release := sync.OnceFunc(func() { close(gaveUp) })
		defer release() // an error too
		q, err := rank.Ibarrier(c)
		if err != nil {
			return err
		}
		short, cancel := context.WithCancel(ctx)
		cancel()
		if _, err := q.Wait(short); !errors.Is(err, context.Canceled) {
			return fmt.Errorf("got %v, want the end of the context", err)
		}
		release()
		_, err = q.Wait(ctx)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A started reduction whose function panics ends with the panic and its stack, whoever of the rank's calls
// steps it; its peers hear why, and the rank's other communicators go on.
func TestStartedReductionPanics(t *testing.T) {
	testenv.NoLeaks(t)
	for name, cfg := range map[string]rank.Config{
		"in calls": {},
		"deferred": {Progress: rank.ProgressOn, Deferred: true},
		"beside":   {Progress: rank.ProgressOn},
	} {
		t.Run(name, func(t *testing.T) {
			err := (&rank.RunConfig{Config: cfg}).Run(testenv.Deadline(t, time.Minute), 3, func(ctx context.Context, c *rank.Comm) error {
				other, err := c.Dup(ctx)
				if err != nil {
					return err
				}
				op := rank.OpFunc("sum", true, func(dst, a, b []int) {
					if c.Rank() == 1 {
						panic("oh no")
					}
					for i := range dst {
						dst[i] = a[i] + b[i]
					}
				})
				q, err := rank.Iallreduce(c, make([]int, 30_000), make([]int, 30_000), op) // each rank reduces a part
				if err == nil {
					// A call on the other communicator steps it, and does not end by it.
					if err := rank.Barrier(ctx, other); err != nil {
						return err
					}
					_, err = q.Wait(ctx)
				}
				p, panicked := errors.AsType[*rank.PanicError](err)
				switch {
				case c.Rank() != 1 && !(errors.Is(err, rank.ErrRevoked) && strings.Contains(err.Error(), "the function of its reduction panicked")):
					return fmt.Errorf("got %v, want that rank 1 has revoked the communicator, with the reason", err)
				case c.Rank() == 1 && (!panicked || p.Value != "oh no" || p.Rank != 1 || !strings.Contains(string(p.Stack), "TestStartedReductionPanics")):
					return fmt.Errorf("got %v with %+v, want the panic and its stack", err, p)
				}
				in, out := []int{c.Rank()}, []int{0}
				q, err = rank.Iallreduce(other, in, out, rank.Sum)
				if err == nil {
					_, err = q.Wait(ctx)
				}
				if err != nil || out[0] != 3 {
					return fmt.Errorf("then the sum on another communicator is %d, with %v", out[0], err)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestStepNeedsDeferred(t *testing.T) {
	testenv.NoLeaks(t)
	if err := rank.Run(1, func(ctx context.Context, c *rank.Comm) error {
		q, err := rank.Ibarrier(c)
		if err != nil {
			return err
		}
		defer func() {
			if recover() == nil {
				t.Error("Step did not panic without Config.Deferred")
			}
		}()
		q.Step()
		return nil
	}); err != nil {
		t.Error(err)
	}
}
