package rank_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rank"
	"github.com/gorun-mpi/gorun/rank/ranktest"
)

func TestBadArguments(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Run(t, 2, func(ctx context.Context, c *rank.Comm) error {
		buf := make([]int32, 8)
		for _, tt := range []struct {
			name string
			call func() error
			says string
		}{
			{"send to nobody", func() error { return rank.Send(ctx, c, buf, 2, 0) }, "rank 2 in a communicator of 2"},
			{"send to any", func() error { return rank.Send(ctx, c, buf, rank.AnySource, 0) }, "rank -1"},
			{"send with any tag", func() error { return rank.Send(ctx, c, buf, 1, rank.AnyTag) }, "tag -1"},
			{"recv from nobody", func() error { _, err := rank.Recv(ctx, c, buf, -7, 0); return err }, "rank -7"},
			{"recv of a bad tag", func() error { _, err := rank.Recv(ctx, c, buf, 0, -7); return err }, "tag -7"},
			{"root", func() error { return rank.Bcast(ctx, c, buf, 2) }, "root 2"},
			{"gather root", func() error { return rank.Gather(ctx, c, buf[:4], buf, -1) }, "root -1"},
			{"blocks", func() error { return rank.Alltoall(ctx, c, buf[:7], buf[:7]) }, "recv holds 7 items, which cannot be divided into 2 equal blocks"},
			{"lengths", func() error { return rank.Allreduce(ctx, c, buf[:3], buf[4:], rank.Sum) }, "send holds 12 bytes, expected 16"},
			{"overlap", func() error { return rank.Allreduce(ctx, c, buf[:4], buf[2:6], rank.Sum) }, "overlap"},
			{"op", func() error { return rank.Allreduce(ctx, c, nil, buf, rank.MinLoc) }, "operation minloc is not defined for int32"},
			{"order of complex", func() error { return rank.Allreduce(ctx, c, nil, []complex64{1}, rank.Max) }, "operation max is not defined for complex64"},
			{"scatter", func() error { return rank.ReduceScatterBlock(ctx, c, buf, buf[:3], rank.Sum) }, "send holds 32 bytes, expected 24"},
			{"alloc", func() error { _, err := rank.Alloc[int](c, -1); return err }, "-1 elements"},
			{"free of others' memory", func() error { return rank.Free(c, buf) }, "is not memory of Alloc"},
			{"color", func() error { _, err := c.Split(ctx, -5, 0); return err }, "color -5"},
			{"free the world", func() error { return c.Free(ctx) }, "freed by Finalize"},
		} {
			err := tt.call()
			e, ok := errors.AsType[*rank.Error](err)
			if !ok || !errors.Is(err, rank.ErrArgument) || !strings.Contains(err.Error(), tt.says) || strings.Count(err.Error(), "bad argument") != 1 {
				return fmt.Errorf("%s: error %q, want a bad argument that says %q", tt.name, err, tt.says)
			}
			if e.Rank != c.Rank() || e.Host == "" {
				return fmt.Errorf("%s: %+v does not name the caller", tt.name, e)
			}
		}
		return rank.Barrier(ctx, c) // nothing of that harmed the communicator
	})
}

func TestAlloc(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Run(t, 2, func(ctx context.Context, c *rank.Comm) error {
		var all [][]float64
		for n := range 40 {
			s, err := rank.Alloc[float64](c, n)
			if err != nil {
				return err
			}
			if len(s) != n {
				return fmt.Errorf("%d elements, want %d", len(s), n)
			}
			all = append(all, fill(s, c.Rank(), n))
		}
		for n, s := range all {
			if err := diff("memory of Alloc", s, fill(make([]float64, n), c.Rank(), n)); err != nil {
				return err
			}
		}
		for n := 39; n >= 0; n -= 2 {
			if err := rank.Free(c, all[n]); err != nil {
				return err
			}
			if err := rank.Free(c, all[n]); !errors.Is(err, rank.ErrArgument) {
				return fmt.Errorf("freed twice: %v, want %v", err, rank.ErrArgument)
			}
		}
		// What was not freed goes with Finalize, and still serves.
		sum := make([]float64, 38)
		return rank.Allreduce(ctx, c, all[38], sum, rank.Sum)
	})
}

// A collective that its context ends revokes the communicator on all ranks; the
// world's messages and other communicators live on.
func TestContextRevokes(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Each(t, []int{2, 3}, func(ctx context.Context, c *rank.Comm) error {
		d, err := c.Dup(ctx)
		if err != nil {
			return err
		}
		if c.Rank() == 0 {
			short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
			defer cancel()
			if err := rank.Barrier(short, d); !errors.Is(err, context.DeadlineExceeded) {
				return fmt.Errorf("barrier alone: %v, want %v", err, context.DeadlineExceeded)
			}
			if err := rank.Barrier(ctx, d); !errors.Is(err, rank.ErrRevoked) || !errors.Is(err, context.DeadlineExceeded) {
				return fmt.Errorf("barrier after: %v, want %v with its cause", err, rank.ErrRevoked)
			}
		} else if c.Rank() == 1 {
			if err := rank.Barrier(ctx, c); err != nil { // so that rank 0 was alone
				return err
			}
			// Rank 0 came to the first barrier, which may therefore succeed.
			err := rank.Barrier(ctx, d)
			if err == nil {
				err = rank.Barrier(ctx, d)
			}
			if !errors.Is(err, rank.ErrRevoked) {
				return fmt.Errorf("barrier on a revoked communicator: %v, want %v", err, rank.ErrRevoked)
			}
			return rank.Barrier(ctx, c)
		}
		if err := rank.Barrier(ctx, c); err != nil {
			return err
		}
		return rank.Barrier(ctx, c)
	})
}

func TestRecvContext(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Run(t, 2, func(ctx context.Context, c *rank.Comm) error {
		if c.Rank() == 0 {
			short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
			defer cancel()
			_, err := rank.Recv(short, c, make([]int, 1), 1, 0)
			if e, ok := errors.AsType[*rank.Error](err); !ok || !errors.Is(err, context.DeadlineExceeded) || e.Peer != 1 || e.Op != "recv" {
				return fmt.Errorf("error %v, want recv's from rank 1 with %v", err, context.DeadlineExceeded)
			}
		}
		if err := rank.Barrier(ctx, c); err != nil {
			return err
		}
		// The receive that was given up takes nothing away.
		if c.Rank() == 1 {
			return rank.Send(ctx, c, []int{5}, 0, 0)
		}
		got := []int{0}
		if _, err := rank.Recv(ctx, c, got, 1, 0); err != nil || got[0] != 5 {
			return fmt.Errorf("%d, %v after a receive that was given up; want 5", got[0], err)
		}
		return nil
	})
}

// A long send that its context ends is taken back: the peer does not read memory
// that is its owner's again, and receives what comes after.
func TestLongSendContext(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Run(t, 2, func(ctx context.Context, c *rank.Comm) error {
		if c.Rank() == 0 {
			short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
			defer cancel()
			if err := rank.Send(short, c, make([]byte, 1<<20), 1, 0); !errors.Is(err, context.DeadlineExceeded) {
				return fmt.Errorf("send: %v, want %v", err, context.DeadlineExceeded)
			}
			if err := rank.Barrier(ctx, c); err != nil {
				return err
			}
			return rank.Send(ctx, c, []byte{1}, 1, 0)
		}
		if err := rank.Barrier(ctx, c); err != nil {
			return err
		}
		b := make([]byte, 1<<20)
		st, err := rank.Recv(ctx, c, b, 0, 0)
		if err == nil && (st.Count != 1 || b[0] != 1) {
			return fmt.Errorf("received %d bytes, want the message after the one that was given up", st.Count)
		}
		return err
	})
}

func TestConcurrentCallsAreRefused(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Run(t, 2, func(ctx context.Context, c *rank.Comm) error {
		if c.Rank() == 1 {
			_, err := rank.Recv(ctx, c, make([]int, 1), 0, 0)
			return err
		}
		received := make(chan error)
		wait, stop := context.WithCancel(ctx)
		go func() {
			err := rank.ErrConcurrent
			for errors.Is(err, rank.ErrConcurrent) { // it may be the second one itself
				_, err = rank.Recv(wait, c, make([]int, 1), 1, 0)
			}
			received <- err
		}()
		var err error
		for err == nil && ctx.Err() == nil {
			// Until the receive runs, a message to oneself is fine.
			_, err = rank.Sendrecv(ctx, c, []int{1}, 0, 3, make([]int, 1), 0, 3)
		}
		stop()
		if got := <-received; !errors.Is(got, context.Canceled) {
			return fmt.Errorf("receive: %v, want %v", got, context.Canceled)
		}
		if !errors.Is(err, rank.ErrConcurrent) {
			return fmt.Errorf("second call: %v, want %v", err, rank.ErrConcurrent)
		}
		return rank.Send(ctx, c, []int{1}, 1, 0)
	})
}

func TestRunReportsTheFirstCause(t *testing.T) {
	testenv.NoLeaks(t)
	cause := errors.New("the cause")
	for _, tt := range []struct {
		name string
		fail func(c *rank.Comm) error
		says []string
	}{
		{"error", func(*rank.Comm) error { return cause }, []string{"rank 1 (host localhost)", "the cause"}},
		{"panic", func(*rank.Comm) error { panic("oh no") }, []string{"rank 1", "panic: oh no"}},
		{"abort", func(c *rank.Comm) error { c.World().Abort(7, "enough"); return nil }, []string{"rank 1 called abort(7): enough"}},
		{"abort with a status of 0", func(c *rank.Comm) error { c.World().Abort(256, "enough"); return nil }, []string{"rank 1 called abort(1): enough"}},
		{"goexit", func(*rank.Comm) error { runtime.Goexit(); return nil }, []string{"rank 1 (host localhost)", "runtime.Goexit"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var ended atomic.Int32
			var begun sync.WaitGroup // who fails before the others have joined ends their Init
			begun.Add(2)
			err := rank.Run(3, func(ctx context.Context, c *rank.Comm) error {
				if c.Rank() == 1 {
					begun.Wait()
					return tt.fail(c)
				}
				begun.Done()
				defer ended.Add(1)
				if c.Rank() == 0 {
					_, err := rank.Recv(ctx, c, make([]int, 1), 1, 0)
					return err
				}
				return rank.Barrier(ctx, c)
			})
			if err == nil {
				t.Fatal("no error")
			}
			for _, s := range tt.says {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("error %q does not say %q", err, s)
				}
			}
			if strings.Contains(err.Error(), "rank 0 (") || strings.Contains(err.Error(), "rank 2 (") {
				t.Errorf("error %q blames ranks that only followed", err)
			}
			if ended.Load() != 2 {
				t.Errorf("%d of the other ranks ended, want 2", ended.Load())
			}
		})
	}
}

func TestRunReturnsPanicError(t *testing.T) {
	testenv.NoLeaks(t)
	cause := errors.New("the cause")
	err := rank.Run(2, func(ctx context.Context, c *rank.Comm) error {
		if c.Rank() == 1 {
			panic(cause)
		}
		return rank.Barrier(ctx, c)
	})
	p, ok := errors.AsType[*rank.PanicError](err)
	if !ok {
		t.Fatalf("got %v, want a *rank.PanicError", err)
	}
	if p.Rank != 1 || p.Value != cause || !errors.Is(err, cause) {
		t.Errorf("rank %d, value %v", p.Rank, p.Value)
	}
	if want := "rank 1 (host localhost): panic: the cause"; p.Error() != want {
		t.Errorf("the error is %q, want %q", p, want)
	}
	if !strings.Contains(err.Error(), p.Error()+"\n\n"+string(p.Stack)) {
		t.Errorf("the error of Run is %q, want the panic and its stack", err)
	}
	stack := string(p.Stack)
	if !strings.HasPrefix(stack, "goroutine ") || !strings.Contains(stack, "errors_test.go") || strings.Contains(stack, "runtime/debug.Stack") {
		t.Errorf("stack %q", stack)
	}
}

// An error says once which rank it is of, and where, whatever the program has wrapped it in.
func TestRankAndHostAreToldOnce(t *testing.T) {
	testenv.NoLeaks(t)
	for _, tt := range []struct {
		name string
		f    func(context.Context, *rank.Comm) error
		want string
	}{
		{"of the world", func(ctx context.Context, c *rank.Comm) error { return rank.Send(ctx, c, []int{1}, 9, 0) },
			"rank 1 (host localhost): send: "},
		{"wrapped", func(ctx context.Context, c *rank.Comm) error {
			return fmt.Errorf("step 3: %w", rank.Send(ctx, c, []int{1}, 9, 0))
		}, "rank 1 (host localhost): step 3: send: "},
		{"of a communicator", func(ctx context.Context, c *rank.Comm) error {
			self, err := c.Split(ctx, c.Rank(), 0)
			if err != nil {
				return err
			}
			return rank.Send(ctx, self, []int{1}, 9, 0)
		}, "rank 1 (host localhost): rank 0: send on "},
		{"of no world", func(context.Context, *rank.Comm) error { return rank.DimsCreate(6, []int{4}) },
			"rank 1 (host localhost): dims_create: "},
	} {
		err := rank.Run(2, func(ctx context.Context, c *rank.Comm) error {
			err := tt.f(ctx, c)
			if c.Rank() != 1 {
				return nil
			}
			return err
		})
		if err == nil || !strings.HasPrefix(err.Error(), tt.want) || strings.Count(err.Error(), "localhost") != 1 {
			t.Errorf("%s: error %v, want it to begin with %q, and the host once", tt.name, err, tt.want)
		}
	}
}

func TestFinalized(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Run(t, 2, func(ctx context.Context, c *rank.Comm) error {
		if err := c.World().Finalize(ctx); err != nil {
			return err
		}
		for name, err := range map[string]error{
			"barrier":  rank.Barrier(ctx, c),
			"send":     rank.Send(ctx, c, []int{1}, 0, 0),
			"finalize": c.World().Finalize(ctx),
			"alloc":    func() error { _, err := rank.Alloc[int](c, 1); return err }(),
		} {
			if !errors.Is(err, rank.ErrFinalized) {
				return fmt.Errorf("%s after finalize: %v, want %v", name, err, rank.ErrFinalized)
			}
		}
		return nil
	})
}

// Ranks that call different things, or the same with different sizes, learn it.
func TestMismatch(t *testing.T) {
	testenv.NoLeaks(t)
	for name, f := range map[string]func(context.Context, *rank.Comm) error{
		"kind": func(ctx context.Context, c *rank.Comm) error {
			if c.Rank() == 0 {
				return rank.Barrier(ctx, c)
			}
			return rank.Allreduce(ctx, c, nil, []int{1}, rank.Sum)
		},
		"length": func(ctx context.Context, c *rank.Comm) error {
			return rank.Allreduce(ctx, c, nil, make([]int, 1+c.Rank()), rank.Sum)
		},
		"type": func(ctx context.Context, c *rank.Comm) error {
			if c.Rank() == 0 {
				return rank.Allreduce(ctx, c, nil, []int64{1}, rank.Sum)
			}
			return rank.Allreduce(ctx, c, nil, []float64{1}, rank.Sum)
		},
	} {
		t.Run(name, func(t *testing.T) {
			ranktest.Run(t, 2, func(ctx context.Context, c *rank.Comm) error {
				err := f(ctx, c)
				if e, ok := errors.AsType[*rank.Error](err); !ok || e.Peer != 1-c.Rank() {
					return fmt.Errorf("error %v, want one that names rank %d", err, 1-c.Rank())
				}
				return nil
			})
		})
	}
}
