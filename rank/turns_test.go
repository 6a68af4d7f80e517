package rank_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/coll"
	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rank"
)

// concurrently runs f n times at the same time, and joins the errors.
func concurrently(n int, f func(i int) error) error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = f(i) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// inTurns runs f on n ranks that permit calls of several goroutines, in several ways.
func inTurns(t *testing.T, n int, f func(ctx context.Context, c *rank.Comm) error) {
	t.Helper()
	for _, cfg := range []struct {
		name string
		rank.RunConfig
	}{
		{"mapped", rank.RunConfig{Config: rank.Config{Concurrent: true}}},
		{"verbs", rank.RunConfig{Config: rank.Config{Concurrent: true, Verbs: true}}},
		{"progress thread", rank.RunConfig{Config: rank.Config{Concurrent: true, Progress: rank.ProgressOn}}},
		{"adversary", rank.RunConfig{Config: rank.Config{Concurrent: true}, Seed: 1}},
	} {
		t.Run(cfg.name, func(t *testing.T) {
			testenv.NoLeaks(t)
			if err := cfg.Run(testenv.Deadline(t, time.Minute), n, f); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// talk has four goroutines of each of two ranks exchange messages, short and long, each with
// its own tag: all but one are in Recv whenever one sends.
func talk(ctx context.Context, c *rank.Comm) error {
	return concurrently(4, func(i int) error {
		peer := 1 - c.Rank()
		buf := make([]int, []int{1, 100, 1000, 40_000}[i])
		for round := range 30 {
			if (c.Rank()+i)%2 == 0 {
				for k := range buf {
					buf[k] = round + k
				}
				if err := rank.Send(ctx, c, buf, peer, i); err != nil {
					return err
				}
			}
			clear(buf)
			if _, err := rank.Recv(ctx, c, buf, peer, i); err != nil {
				return err
			}
			if last := len(buf) - 1; buf[0] != round || buf[last] != round+last {
				return fmt.Errorf("tag %d, round %d: got %d ... %d", i, round, buf[0], buf[last])
			}
			if (c.Rank()+i)%2 != 0 {
				if err := rank.Send(ctx, c, buf, peer, i); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// collect has three goroutines of each rank in collectives of a communicator each, blocking and
// started.
func collect(ctx context.Context, c *rank.Comm) error {
	var comms [3]*rank.Comm
	for i := range comms {
		d, err := c.Dup(ctx)
		if err != nil {
			return err
		}
		comms[i] = d
	}
	n := c.Size()
	if err := concurrently(len(comms), func(i int) error {
		d := comms[i]
		in, out := make([]int, []int{1, 500, 30_000}[i]), make([]int, []int{1, 500, 30_000}[i])
		for round := range 20 {
			for k := range in {
				in[k] = d.Rank() + round
			}
			if err := rank.Allreduce(ctx, d, in, out, rank.Sum); err != nil {
				return err
			}
			if want := n*(n-1)/2 + n*round; out[0] != want || out[len(out)-1] != want {
				return fmt.Errorf("communicator %d, round %d: sums %d and %d, want %d", i, round, out[0], out[len(out)-1], want)
			}
			q, err := rank.Ibcast(d, in, round%n)
			if err != nil {
				return err
			}
			if round%2 == 0 {
				err = rank.WaitAll(ctx, []rank.Request{q}, nil)
			} else {
				for done := false; !done && err == nil; {
					_, done, err = q.Test()
				}
			}
			if err != nil {
				return err
			}
			if in[len(in)-1] != round%n+round {
				return fmt.Errorf("communicator %d, round %d: broadcast gave %d, want %d", i, round, in[len(in)-1], round%n+round)
			}
		}
		return nil
	}); err != nil {
		return err
	}
	for _, d := range comms {
		if err := d.Free(ctx); err != nil {
			return err
		}
	}
	return nil
}

func TestMessagesOfSeveralGoroutines(t *testing.T) { inTurns(t, 2, talk) }

func TestCollectivesOfSeveralGoroutines(t *testing.T) { inTurns(t, 3, collect) }

// One goroutine waits for an answer when another one begins to send the question.
func TestSendBesideReceive(t *testing.T) {
	inTurns(t, 2, func(ctx context.Context, c *rank.Comm) error {
		for round := range 50 {
			if c.Rank() == 1 {
				v := []int{0}
				_, err := rank.Recv(ctx, c, v, 0, 1)
				if err == nil {
					err = rank.Send(ctx, c, v, 0, 2)
				}
				if err != nil {
					return err
				}
				continue
			}
			q, err := rank.Irecv(c, make([]int, 1), 1, 2)
			if err != nil {
				return err
			}
			if err := concurrently(2, func(i int) error {
				if i == 0 {
					_, err := q.Wait(ctx)
					return err
				}
				return rank.Ssend(ctx, c, []int{round}, 1, 1)
			}); err != nil {
				return err
			}
		}
		return nil
	})
}

// Each message is one goroutine's, whoever probes for it.
func TestProbesOfSeveralGoroutines(t *testing.T) {
	const all = 120
	inTurns(t, 2, func(ctx context.Context, c *rank.Comm) error {
		if c.Rank() == 1 {
			return concurrently(3, func(i int) error {
				for k := i; k < all; k += 3 {
					if err := rank.Send(ctx, c, []int{k}, 0, 0); err != nil {
						return err
					}
				}
				return nil
			})
		}
		var mu sync.Mutex
		seen := make(map[int]bool)
		if err := concurrently(4, func(int) error {
			for range all / 4 {
				m, _, err := c.Mprobe(ctx, rank.AnySource, 0)
				if err != nil {
					return err
				}
				v := []int{0}
				if _, err := rank.Mrecv(ctx, m, v); err != nil {
					return err
				}
				mu.Lock()
				seen[v[0]] = true
				mu.Unlock()
			}
			return nil
		}); err != nil {
			return err
		}
		if len(seen) != all {
			return fmt.Errorf("got %d messages, want %d", len(seen), all)
		}
		return nil
	})
}

// A second collective on the same communicator is an error, and leaves the first alone.
func TestCollectivesOfOneCommunicatorExclude(t *testing.T) {
	for name, call := range map[string]func(ctx context.Context, c *rank.Comm) error{
		"barrier": rank.Barrier,
		"split": func(ctx context.Context, c *rank.Comm) error {
			_, err := c.Split(ctx, 0, 0)
			return err
		},
		"window": func(ctx context.Context, c *rank.Comm) error {
			_, err := rank.WinAllocate[int](ctx, c, 1)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			refused := make(chan struct{})
			inOne := sync.OnceFunc(func() { close(refused) })
			cfg := rank.RunConfig{Config: rank.Config{Concurrent: true}}
			if err := cfg.Run(testenv.Deadline(t, time.Minute), 2, func(ctx context.Context, c *rank.Comm) error {
				if c.Rank() == 1 {
					<-refused
					return call(ctx, c)
				}
				return concurrently(2, func(int) error {
					err := call(ctx, c)
					if errors.Is(err, rank.ErrConcurrent) {
						inOne()
						return nil
					}
					return err
				})
			}); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// access has four goroutines of each rank at one window: all add to the same elements of rank 0, by
// three calls, and each has elements of its own at the next rank.
func access(ctx context.Context, c *rank.Comm) error {
	const several, rounds, own = 4, 30, 3000
	w, err := rank.WinAllocate[int](ctx, c, 3+several*own)
	if err == nil {
		err = w.LockAll(ctx, 0)
	}
	if err != nil {
		return err
	}
	seen := make([][]int, several)
	next := (c.Rank() + 1) % c.Size()
	if err := concurrently(several, func(i int) error {
		out, in := make([]int, own), make([]int, own)
		for round := range rounds {
			before, err := w.FetchAndOp(1, 0, 0, rank.Sum)
			if err != nil {
				return err
			}
			seen[i] = append(seen[i], before)
			if err := w.Accumulate([]int{1, 1}, 0, 1, rank.Sum); err != nil {
				return err
			}
			for k := range out {
				out[k] = i + round*k
			}
			if err := w.Put(out, next, 3+own*i); err != nil {
				return err
			}
			if err := w.Flush(ctx, next); err != nil {
				return err
			}
			if err := w.Get(in, next, 3+own*i); err != nil {
				return err
			}
			if err := w.FlushLocal(ctx, next); err != nil {
				return err
			}
			if !slices.Equal(in, out) {
				return fmt.Errorf("goroutine %d, round %d: got other elements than were put", i, round)
			}
		}
		for added := false; !added; {
			was, err := w.FetchAndOp(0, 0, 2, rank.NoOp)
			if err != nil {
				return err
			}
			got, err := w.CompareAndSwap(was+1, was, 0, 2)
			if err != nil {
				return err
			}
			added = got == was
		}
		return nil
	}); err != nil {
		return err
	}
	all := slices.Concat(seen...)
	if slices.Sort(all); len(slices.Compact(all)) != several*rounds {
		return fmt.Errorf("%d fetches, but a value came twice", several*rounds)
	}
	if err := w.UnlockAll(ctx); err != nil {
		return err
	}
	if err := rank.Barrier(ctx, c); err != nil {
		return err
	}
	n := several * c.Size()
	if want := []int{n * rounds, n * rounds, n*rounds + n}; c.Rank() == 0 && !slices.Equal(w.Base()[:3], want) {
		return fmt.Errorf("sums %v, want %v", w.Base()[:3], want)
	}
	return w.Free(ctx)
}

func TestWindowsOfSeveralGoroutines(t *testing.T) { inTurns(t, 3, access) }

// Each goroutine has a window, whose fences, and the epochs of Post and Start, meet those of the others in any order.
func TestEpochsOfSeveralGoroutines(t *testing.T) {
	inTurns(t, 2, func(ctx context.Context, c *rank.Comm) error {
		var windows [3]*rank.Win[int]
		for i := range windows {
			w, err := rank.WinAllocate[int](ctx, c, 2)
			if err != nil {
				return err
			}
			windows[i] = w
		}
		peer := 1 - c.Rank()
		other, err := c.Group().Incl([]int{peer})
		if err != nil {
			return err
		}
		if err := concurrently(len(windows), func(i int) error {
			w := windows[i]
			for round := range 20 {
				if err := w.Fence(ctx, 0); err != nil {
					return err
				}
				if err := w.Put([]int{round}, peer, 0); err != nil {
					return err
				}
				if err := w.Fence(ctx, rank.ModeNoSucceed); err != nil {
					return err
				}
				if got := w.Base()[0]; got != round {
					return fmt.Errorf("window %d, round %d: a fence gave %d", i, round, got)
				}
				if err := w.Post(other, 0); err != nil {
					return err
				}
				if err := w.Start(ctx, other, 0); err != nil {
					return err
				}
				if err := w.Put([]int{round}, peer, 1); err != nil {
					return err
				}
				if err := errors.Join(w.Complete(ctx), w.Wait(ctx)); err != nil {
					return err
				}
				if got := w.Base()[1]; got != round {
					return fmt.Errorf("window %d, round %d: Wait gave %d", i, round, got)
				}
			}
			return nil
		}); err != nil {
			return err
		}
		for _, w := range windows {
			if err := w.Free(ctx); err != nil {
				return err
			}
		}
		return nil
	})
}

// One goroutine waits for a lock that its holder gives back when another one has sent a message.
func TestSendBesideLock(t *testing.T) {
	inTurns(t, 2, func(ctx context.Context, c *rank.Comm) error {
		w, err := rank.WinAllocate[int](ctx, c, 1)
		if err != nil {
			return err
		}
		for _, kind := range []rank.LockType{rank.LockShared, rank.LockExclusive} {
			for round := range 20 {
				if c.Rank() == 1 {
					if err := w.Lock(ctx, rank.LockExclusive, 0, 0); err != nil {
						return err
					}
					if err := rank.Send(ctx, c, []int{round}, 0, 1); err != nil {
						return err
					}
					if _, err := rank.Recv(ctx, c, make([]int, 1), 0, 2); err != nil {
						return err
					}
					if err := w.Unlock(ctx, 0); err != nil {
						return err
					}
				} else {
					if _, err := rank.Recv(ctx, c, make([]int, 1), 1, 1); err != nil {
						return err
					}
					if err := concurrently(2, func(i int) error {
						if i == 0 {
							return w.Lock(ctx, kind, 0, 0)
						}
						return rank.Ssend(ctx, c, []int{round}, 1, 2)
					}); err != nil {
						return err
					}
					if err := w.Unlock(ctx, 0); err != nil {
						return err
					}
				}
				if err := rank.Barrier(ctx, c); err != nil {
					return err
				}
			}
		}
		return w.Free(ctx)
	})
}

func init() {
	programs["in turns"] = func() {
		ctx, cancel := context.WithTimeout(context.Background(), testenv.Limit(time.Minute))
		defer cancel()
		w, err := rank.Init(ctx, rank.Config{Concurrent: true})
		if err == nil {
			err = errors.Join(talk(ctx, w.Comm()), collect(ctx, w.Comm()), access(ctx, w.Comm()))
			err = errors.Join(err, w.Finalize(ctx))
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

func TestGoroutinesOfProcesses(t *testing.T) {
	testenv.NoLeaks(t)
	for _, hosts := range [][]int{{2}, {1, 1}} {
		for _, env := range [][]string{nil, {"GORUN_ASYNC_PROGRESS=on"}} {
			j := &job{program: "in turns", hosts: hosts, env: env}
			j.start(t)
			for r := range 2 {
				if status := j.wait(t, r); status != 0 {
					t.Errorf("%v, %v: rank %d: status %d\n%s", hosts, env, r, status, &j.errs[r])
				}
			}
		}
	}
}

// A started call that mismatches ends its communicator, whoever moves it: a wait of another
// goroutine, or the thread beside. They ask the other rank what it called, which does not
// answer here for a while, and meanwhile it is nobody else's turn. The other communicators go on.
func TestMismatchInTurns(t *testing.T) {
	ended := make(chan struct{}, 1)
	inTurns(t, 2, func(ctx context.Context, c *rank.Comm) error {
		d, err := c.Dup(ctx)
		if err != nil {
			return err
		}
		n := (100 << 10) << c.Rank()
		r, err := rank.Iallreduce(d, make([]int, n), make([]int, n), rank.Sum)
		if err != nil {
			return err
		}
		errs := make(chan error, 1)
		if c.Rank() == 0 {
			go func() {
				_, err := rank.Recv(ctx, c, make([]int, 1), 1, 3)
				errs <- err
			}()
		} else {
			<-ended
			errs <- rank.Send(ctx, c, []int{1}, 0, 3)
		}
		_, err = r.Wait(ctx)
		if c.Rank() == 0 {
			ended <- struct{}{}
		}
		if !errors.Is(err, coll.ErrMismatch) && !errors.Is(err, rank.ErrRevoked) {
			return fmt.Errorf("the call ended with %v, want a mismatch", err)
		}
		return <-errs
	})
}
