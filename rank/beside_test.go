package rank_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/arch"
	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rank"
)

// beside runs ranks with a progress thread each, on a plain device and on one that
// misbehaves.
func beside(t *testing.T, n int, f func(ctx context.Context, c *rank.Comm) error) {
	t.Helper()
	for _, cfg := range []struct {
		name string
		rank.RunConfig
	}{
		{"mapped", rank.RunConfig{Config: rank.Config{Progress: rank.ProgressOn}}},
		{"verbs", rank.RunConfig{Config: rank.Config{Progress: rank.ProgressOn, Verbs: true}}},
		{"adversary", rank.RunConfig{Config: rank.Config{Progress: rank.ProgressOn}, Seed: 1}},
	} {
		t.Run(cfg.name, func(t *testing.T) {
			testenv.NoLeaks(t)
			if err := cfg.Run(testenv.Deadline(t, time.Minute), n, f); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// muchBytes is more bytes than a call that starts an operation moves by itself.
const muchBytes = 1 << 20

// All ranks start a collective and are then in no call until one of them has its result:
// without the progress thread none would.
func TestProgressThreadMovesCollectives(t *testing.T) {
	for _, n := range []int{2, 3} {
		for name, start := range map[string]func(c *rank.Comm, in, out []float64) (rank.Request, error){
			"iallreduce": func(c *rank.Comm, in, out []float64) (rank.Request, error) {
				return rank.Iallreduce(c, in, out, rank.Sum)
			},
			"ialltoall": func(c *rank.Comm, in, out []float64) (rank.Request, error) { return rank.Ialltoall(c, in, out) },
			"persistent": func(c *rank.Comm, in, out []float64) (rank.Request, error) {
				q, err := rank.AllreduceInit(c, in, out, rank.Sum)
				if err == nil {
					err = q.Start()
				}
				return q, err
			},
		} {
			t.Run(fmt.Sprintf("%s/n=%d", name, n), func(t *testing.T) {
				testenv.NoLeaks(t)
				over := make(chan struct{})
				cfg := rank.RunConfig{Config: rank.Config{Progress: rank.ProgressOn}}
				if err := cfg.Run(testenv.Deadline(t, time.Minute), n, func(ctx context.Context, c *rank.Comm) error {
					in, out := make([]float64, 6*muchBytes/8), make([]float64, 6*muchBytes/8)
					for i := range in {
						in[i] = float64(c.Rank() + 1)
					}
					q, err := start(c, in, out)
					if err != nil {
						return err
					}
					if c.Rank() != 0 {
						select { // computes, and makes no call
						case <-over:
						case <-ctx.Done():
							return ctx.Err()
						}
					}
					_, err = q.Wait(ctx)
					if c.Rank() == 0 {
						close(over)
					}
					if err != nil {
						return err
					}
					for i, v := range out {
						want := float64(n * (n + 1) / 2)
						if name == "ialltoall" {
							want = float64(i/(len(out)/n) + 1)
						}
						if v != want {
							return fmt.Errorf("element %d is %v, want %v", i, v, want)
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

// A long message arrives at a rank that has posted the receive and then makes no call.
func TestProgressThreadMovesMessages(t *testing.T) {
	arrived := make(chan struct{}, 1)
	beside(t, 2, func(ctx context.Context, c *rank.Comm) error {
		data := make([]byte, muchBytes)
		if c.Rank() == 0 {
			for i := range data {
				data[i] = byte(i * 7)
			}
			if err := rank.Ssend(ctx, c, data, 1, 3); err != nil {
				return err
			}
			arrived <- struct{}{}
			return nil
		}
		q, err := rank.Irecv(c, data, 0, 3)
		if err != nil {
			return err
		}
		select {
		case <-arrived:
		case <-ctx.Done():
			return ctx.Err()
		}
		if _, err := q.Wait(ctx); err != nil {
			return err
		}
		for i, b := range data {
			if b != byte(i*7) {
				return fmt.Errorf("byte %d is %d, want %d", i, b, byte(i*7))
			}
		}
		return nil
	})
}

// A collective of few bytes in which a rank has several turns goes on while the rank is in
// no call, though nobody has woken its thread.
func TestProgressThreadFindsShortCollectives(t *testing.T) {
	passed := make(chan struct{}, 1)
	beside(t, 3, func(ctx context.Context, c *rank.Comm) error {
		for range 3 {
			q, err := rank.Ibarrier(c)
			if err != nil {
				return err
			}
			if c.Rank() == 0 {
				select {
				case <-passed:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			if _, err := q.Wait(ctx); err != nil {
				return err
			}
			if c.Rank() == 1 {
				passed <- struct{}{}
			}
		}
		return nil
	})
}

// The thread does not call functions of the program: the operation of a started reduction
// runs on the program's goroutine alone.
func TestProgressThreadLeavesOperationsToTheProgram(t *testing.T) {
	beside(t, 2, func(ctx context.Context, c *rank.Comm) error {
		inside, calls := true, 0 // plain: the race detector sees another thread
		op := rank.OpFunc("add", true, func(dst, a, b []int) {
			if !inside {
				panic("called while the program was in no call")
			}
			calls++
			for i := range dst {
				dst[i] = a[i] + b[i]
			}
		})
		in, out := slices.Repeat([]int{c.Rank() + 1}, muchBytes/8), make([]int, muchBytes/8)
		for range 5 {
			q, err := rank.Iallreduce(c, in, out, op)
			if err != nil {
				return err
			}
			inside = false
			sum, total := slices.Repeat([]int{1}, muchBytes/8), 0
			for _, v := range sum {
				total += v
			}
			inside = true
			if _, err := q.Wait(ctx); err != nil {
				return err
			}
			if out[0] != 3 || out[len(out)-1] != 3 || total != len(sum) || calls == 0 {
				return fmt.Errorf("out %d ... %d, %d calls", out[0], out[len(out)-1], calls)
			}
		}
		return nil
	})
}

// Calls of all kinds beside a thread that is at work give what they give without one.
func TestCallsBesideProgressThread(t *testing.T) {
	beside(t, 3, func(ctx context.Context, c *rank.Comm) error {
		n, me := c.Size(), c.Rank()
		right, left := (me+1)%n, (me+n-1)%n
		in, out := slices.Repeat([]int{me + 1}, muchBytes/8), make([]int, muchBytes/8)
		for round := range 30 {
			big, err := rank.Iallreduce(c, in, out, rank.Sum)
			if err != nil {
				return err
			}
			short, err := rank.Ibarrier(c)
			if err != nil {
				return err
			}
			back := make([]int, 20<<10)
			recv, err := rank.Irecv(c, back, left, round)
			if err != nil {
				return err
			}
			send, err := rank.Isend(c, slices.Repeat([]int{round*n + me}, len(back)), right, round)
			if err != nil {
				return err
			}
			for range round % 4 {
				if _, _, err := big.Test(); err != nil {
					return err
				}
			}
			total, err := rank.AllreduceOne(ctx, c, me, rank.Sum)
			if err != nil {
				return err
			}
			if err := rank.WaitAll(ctx, []rank.Request{recv, short, send, big}, nil); err != nil {
				return err
			}
			if want := n * (n + 1) / 2; out[0] != want || out[len(out)-1] != want || total != n*(n-1)/2 || back[len(back)-1] != round*n+left {
				return fmt.Errorf("round %d: sums %d and %d, total %d, received %d", round, out[0], out[len(out)-1], total, back[len(back)-1])
			}
		}
		return nil
	})
}

// What ends the thread is the error of the rank's next call, and of the rank.
func TestProgressThreadPanics(t *testing.T) {
	testenv.NoLeaks(t)
	cfg := rank.RunConfig{Config: rank.Config{Progress: rank.ProgressOn}}
	err := cfg.Run(testenv.Deadline(t, time.Minute), 2, func(ctx context.Context, c *rank.Comm) error {
		if c.Rank() == 1 {
			<-rank.PanicBeside(c, "oh no")
		}
		return rank.Barrier(ctx, c)
	})
	p, ok := errors.AsType[*rank.PanicError](err)
	if !ok || p.Rank != 1 || p.Value != "oh no" {
		t.Fatalf("got %v, want the panic of rank 1's progress thread", err)
	}
}

func TestProgressFromEnvironment(t *testing.T) {
	for _, c := range []struct {
		env  []string
		want rank.Progress
		err  string
	}{
		{nil, 0, ""},
		{[]string{"GORUN_ASYNC_PROGRESS=on"}, rank.ProgressOn, ""},
		{[]string{"MPICH_ASYNC_PROGRESS=1"}, rank.ProgressOn, ""},
		{[]string{"I_MPI_ASYNC_PROGRESS=enable"}, rank.ProgressOn, ""},
		{[]string{"I_MPI_ASYNC_PROGRESS=1", "MPICH_ASYNC_PROGRESS=0"}, rank.ProgressOff, ""},
		{[]string{"MPICH_ASYNC_PROGRESS=1", "GORUN_ASYNC_PROGRESS=auto"}, rank.ProgressAuto, ""},
		{[]string{"MPICH_ASYNC_PROGRESS=perhaps"}, 0, "MPICH_ASYNC_PROGRESS=perhaps: expected off, on or auto"},
	} {
		env, err := rank.FromEnviron(c.env)
		if c.err != "" {
			if err == nil || err.Error() != c.err {
				t.Errorf("%v: got error %v, want %s", c.env, err, c.err)
			}
			continue
		}
		if err != nil || env.Progress != c.want {
			t.Errorf("%v: got %v and %v, want %v", c.env, env.Progress, err, c.want)
		}
	}
}

func TestProgressCPUFromEnvironment(t *testing.T) {
	gorun := []string{"PMI_FD=3", "PMI_RANK=0", "PMI_SIZE=1", "GORUN_JOB=a", "GORUN_HOST=a", "GORUN_SEGMENT=4"}
	env, err := rank.FromEnviron(append(gorun, "GORUN_ASYNC_CPU=5"))
	if err != nil || !env.ProgressPinned || env.ProgressCPU != 5 {
		t.Errorf("got %+v and %v, want CPU 5", env, err)
	}
	if env, err = rank.FromEnviron(gorun); err != nil || env.ProgressPinned {
		t.Errorf("got %+v and %v, want no CPU", env, err)
	}
	if _, err = rank.FromEnviron(append(gorun, "GORUN_ASYNC_CPU=any")); err == nil {
		t.Error("GORUN_ASYNC_CPU=any: got no error")
	}
}

func init() {
	programs["beside"] = func() {
		rank.Main(func(ctx context.Context, c *rank.Comm) error {
			asked := make(chan os.Signal, 1)
			signal.Notify(asked, unix.SIGUSR1)
			out := make([]int, muchBytes/8)
			q, err := rank.Iallreduce(c, slices.Repeat([]int{1}, len(out)), out, rank.Sum)
			if err != nil {
				return err
			}
			if c.Rank() == 0 {
				fmt.Println("started")
				<-asked
			}
			if _, err := q.Wait(ctx); err != nil {
				return err
			}
			if out[0] != c.Size() || out[len(out)-1] != c.Size() {
				return fmt.Errorf("sums %d and %d, want %d", out[0], out[len(out)-1], c.Size())
			}
			fmt.Println("over")
			return nil
		})
	}
}

// The same between processes: rank 0 sleeps outside of any call until the others are through.
func TestProgressThreadOfProcess(t *testing.T) {
	testenv.NoLeaks(t)
	for _, hosts := range [][]int{{3}, {2, 1}} {
		if arch.RaceEnabled && len(hosts) > 1 {
			continue // for the reason that TestProcesses gives
		}
		t.Run(fmt.Sprint(hosts), func(t *testing.T) {
			j := &job{program: "beside", hosts: hosts, env: []string{"MPICH_ASYNC_PROGRESS=1"}}
			j.start(t)
			j.until(t, 0, "started")
			j.until(t, 1, "over")
			j.until(t, 2, "over")
			if err := j.ranks[0].Process.Signal(syscall.SIGUSR1); err != nil {
				t.Fatal(err)
			}
			for r := range 3 {
				if status := j.wait(t, r); status != 0 {
					t.Errorf("rank %d: status %d\n%s", r, status, &j.errs[r])
				}
			}
		})
	}
}
