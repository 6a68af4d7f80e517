package rank_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rank"
)

func init() {
	// Rank 1 dies as the variable says; the others must notice and say whom
	// they miss.
	for name, wait := range map[string]func(context.Context, *rank.Comm) error{
		"alltoall": func(ctx context.Context, c *rank.Comm) error {
			buf := make([]int, 1000*c.Size())
			for {
				if err := rank.Alltoall(ctx, c, nil, buf); err != nil {
					return err
				}
			}
		},
		"barrier": func(ctx context.Context, c *rank.Comm) error {
			for {
				if err := rank.Barrier(ctx, c); err != nil {
					return err
				}
			}
		},
		"a started allreduce": func(ctx context.Context, c *rank.Comm) error {
			buf := make([]float64, 3000)
			for {
				q, err := rank.Iallreduce(c, nil, buf, rank.Sum)
				if err == nil {
					_, err = q.Wait(ctx)
				}
				if err != nil {
					return err
				}
			}
		},
		"a persistent alltoallv": func(ctx context.Context, c *rank.Comm) error {
			counts := make([]int, c.Size())
			for i := range counts {
				counts[i] = 500
			}
			q, err := rank.AlltoallvInit(c, nil, nil, nil, make([]int, 500*c.Size()), counts, nil)
			for err == nil {
				if err = q.Start(); err == nil {
					for done := false; !done && err == nil; { // Test is what progresses
						_, done, err = q.Test()
					}
				}
			}
			return err
		},
		"recv": func(ctx context.Context, c *rank.Comm) error {
			_, err := rank.Recv(ctx, c, make([]int, 1), 1, 0)
			return err
		},
		"recv from any": func(ctx context.Context, c *rank.Comm) error {
			_, err := rank.Recv(ctx, c, make([]int, 1), rank.AnySource, 0)
			return err
		},
		"recv from any, which goes on": func(ctx context.Context, c *rank.Comm) error {
			_, death := rank.Recv(ctx, c, make([]int, 1), rank.AnySource, 0)
			e, ok := errors.AsType[*rank.Error](death)
			if !ok || !errors.Is(death, rank.ErrProcFailed) || e.Class() != rank.ClassProcFailed || !slices.Equal(e.Failed, []int{1}) {
				return fmt.Errorf("not of rank 1's failure: %v", death)
			}
			if g, err := c.AckFailed(); err != nil || g.Size() != 1 {
				return fmt.Errorf("acknowledged %d failures, %v", g.Size(), err)
			}
			if c.Rank() == 0 { // nothing comes from rank 1, and rank 2 sends later
				if err := rank.Send(ctx, c, []int{1}, 2, 1); err != nil {
					return err
				}
			}
			if st, err := rank.Recv(ctx, c, make([]int, 1), rank.AnySource, 1); err != nil || st.Source != 2-c.Rank() {
				return fmt.Errorf("received from rank %d, %v", st.Source, err)
			}
			if c.Rank() == 2 {
				if err := rank.Send(ctx, c, []int{1}, 0, 1); err != nil {
					return err
				}
			}
			return death
		},
		"long send": func(ctx context.Context, c *rank.Comm) error {
			return rank.Send(ctx, c, make([]int, 1<<20), 1, 0)
		},
		"many sends": func(ctx context.Context, c *rank.Comm) error {
			for {
				if err := rank.Send(ctx, c, make([]int, 100), 1, 0); err != nil {
					return err
				}
			}
		},
		"ssend": func(ctx context.Context, c *rank.Comm) error {
			return rank.Ssend(ctx, c, make([]int, 1), 1, 0)
		},
		"bsend": func(ctx context.Context, c *rank.Comm) error {
			if err := c.World().AttachBuffer(1 << 21); err != nil {
				return err
			}
			if err := rank.Bsend(ctx, c, make([]byte, 1<<20), 1, 0); err != nil {
				return err
			}
			_, err := c.World().DetachBuffer(ctx)
			return err
		},
		"precv": func(ctx context.Context, c *rank.Comm) error {
			q, err := rank.PrecvInit(c, make([]int, 4), 2, 1, 0)
			if err == nil {
				err = q.Start()
			}
			if err == nil {
				_, err = q.Wait(ctx)
			}
			return err
		},
		"probe": func(ctx context.Context, c *rank.Comm) error {
			_, err := rank.Probe(ctx, c, rank.AnySource, 0)
			return err
		},
		"iprobe": func(ctx context.Context, c *rank.Comm) error {
			for {
				if _, found, err := rank.Iprobe(c, 1, 0); found || err != nil {
					return err
				}
			}
		},
		"waitall": func(ctx context.Context, c *rank.Comm) error {
			return rank.WaitAll(ctx, unanswered(c), nil)
		},
		"waitany": func(ctx context.Context, c *rank.Comm) error {
			_, _, err := rank.WaitAny(ctx, unanswered(c))
			return err
		},
		"test": func(ctx context.Context, c *rank.Comm) error {
			reqs := unanswered(c)
			for {
				if _, done, err := reqs[1].Test(); done {
					return err
				}
			}
		},
	} {
		programs["death in "+name] = func() { mourn(rank.Barrier, wait) }
	}
	// No rank has talked with the one that dies.
	for name, wait := range map[string]func(context.Context, *rank.Comm) error{
		"a first recv": func(ctx context.Context, c *rank.Comm) error {
			_, err := rank.Recv(ctx, c, make([]int, 1), 1, 0)
			return err
		},
		"a first long send": func(ctx context.Context, c *rank.Comm) error {
			return rank.Send(ctx, c, make([]int, 1<<20), 1, 0)
		},
		"a first barrier": rank.Barrier,
	} {
		programs["death in "+name] = func() { mourn(func(context.Context, *rank.Comm) error { return nil }, wait) }
	}
	// It waits outside of the engine for its progress thread, which hears of the death.
	programs["death in a deferred barrier"] = func() {
		mournAs(rank.Config{Progress: rank.ProgressOn, Deferred: true}, rank.Barrier, func(ctx context.Context, c *rank.Comm) error {
			q, err := rank.Ibarrier(c)
			if err == nil {
				_, err = q.Wait(ctx)
			}
			return err
		})
	}
	programs["error"] = func() {
		rank.Main(func(ctx context.Context, c *rank.Comm) error {
			if c.Rank() == 1 {
				return errors.New("the cause")
			}
			return rank.Barrier(ctx, c)
		})
	}
	programs["panic"] = func() {
		rank.Main(func(ctx context.Context, c *rank.Comm) error {
			if c.Rank() == 1 {
				panic("oh no")
			}
			return rank.Barrier(ctx, c)
		})
	}
	programs["abort"] = func() {
		rank.Main(func(ctx context.Context, c *rank.Comm) error {
			if c.Rank() == 1 {
				c.World().Abort(0, "enough\nof this")
			}
			return rank.Barrier(ctx, c)
		})
	}
}

// unanswered are receives of what nobody sends: from a rank that lives, and from rank 1.
func unanswered(c *rank.Comm) []rank.Request {
	var reqs []rank.Request
	for _, src := range []int{2 - c.Rank(), 1} {
		q, err := rank.Irecv(c, make([]int, 1), src, 0)
		if err != nil {
			panic(err)
		}
		reqs = append(reqs, q)
	}
	return reqs
}

// mourn is a rank of a job in which rank 1 dies, after before.
func mourn(before, wait func(context.Context, *rank.Comm) error) {
	mournAs(rank.Config{}, before, wait)
}

func mournAs(cfg rank.Config, before, wait func(context.Context, *rank.Comm) error) {
	ctx := context.Background()
	w, err := rank.Init(ctx, cfg)
	if err != nil {
		fmt.Println(err)
		os.Exit(2)
	}
	c := w.Comm()
	if err := before(ctx, c); err != nil {
		fmt.Println(err)
		os.Exit(2)
	}
	fmt.Println("ready")
	if c.Rank() != 1 {
		start := time.Now()
		err = wait(ctx, c)
		fmt.Printf("%v after %v\n%s\n", err, time.Since(start).Round(time.Millisecond), judge(c, err))
	}
	for { // until the test kills it: who ended would be missed by the others
		_ = unix.Pause()
	}
}

// judge says what is wrong with the error of a rank that misses rank 1.
func judge(c *rank.Comm, err error) string {
	e, ok := errors.AsType[*rank.Error](err)
	switch {
	case !ok || e.Rank != c.Rank():
		return fmt.Sprintf("wrong: not an error of rank %d", c.Rank())
	case e.Peer != 1 && !errors.Is(err, rank.ErrRevoked):
		return "wrong: it does not name rank 1"
	case e.Peer == 1 && e.PeerHost == "":
		return "wrong: it does not name the host"
	}
	return "good"
}

// miss starts a job of three ranks, ends rank 1 when all wait, and returns when the others' waits have ended well, and how
// long that took.
func (j *job) miss(t *testing.T, end func() error) time.Duration {
	t.Helper()
	j.start(t)
	for r := range 3 {
		j.until(t, r, "ready")
	}
	start := time.Now()
	if err := end(); err != nil {
		t.Fatal(err)
	}
	for _, r := range []int{0, 2} {
		j.until(t, r, "good")
	}
	took := time.Since(start)
	t.Logf("%v: %s%s", took, &j.out[0], &j.out[2])
	return took
}

// deaths are the programs in which rank 1 dies, in order.
func deaths() (names []string) {
	for name := range programs {
		if strings.HasPrefix(name, "death in ") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// A rank that is killed ends the waits of the others in bounded time. With -short each
// wait is tried in two of the five kinds of jobs, and each kind with two waits of five.
func TestDeath(t *testing.T) {
	testenv.NoLeaks(t)
	var longest time.Duration
	for i, name := range deaths() {
		for k, tt := range []struct {
			name    string
			hosts   []int
			foreign bool
			env     []string
		}{
			{"one host", []int{3}, false, nil},
			{"two hosts", []int{1, 2}, false, nil},
			{"foreign launcher", []int{3}, true, nil},
			{"one host, over the budget", []int{3}, false, overEveryBudget},
			{"two hosts, over the budget", []int{1, 2}, false, overEveryBudget},
		} {
			if testing.Short() && (i+k)%5 > 1 {
				continue
			}
			t.Run(name+"/"+tt.name, func(t *testing.T) {
				j := &job{program: name, hosts: tt.hosts, foreign: tt.foreign, env: tt.env}
				longest = max(longest, j.miss(t, func() error { return j.ranks[1].Process.Kill() }))
			})
		}
	}
	t.Run("soon", func(t *testing.T) {
		testenv.Part(t, testenv.Timed)
		if most := 15 * time.Second; longest > most {
			t.Errorf("one took %v, want at most %v", longest, most)
		}
	})
}

// A rank of another host that does not answer, as it is stopped, is waited for without end. When the launcher says that it is
// dead, the waits end.
func TestDeathElsewhere(t *testing.T) {
	testenv.NoLeaks(t)
	for i, name := range deaths() {
		for k, tt := range []struct {
			name string
			env  []string
		}{
			{"connections", nil},
			{"over the budget", overEveryBudget},
		} {
			if testing.Short() && (i+k)%2 > 0 {
				continue
			}
			t.Run(name+"/"+tt.name, func(t *testing.T) {
				j := &job{program: name, hosts: []int{1, 1, 1}, marks: true, env: tt.env}
				j.miss(t, func() error {
					if err := j.ranks[1].Process.Signal(unix.SIGSTOP); err != nil {
						return err
					}
					for _, r := range []int{0, 2} {
						j.segs[r].SetDeadElsewhere([]int{1})
					}
					return nil
				})
			})
		}
	}
}

func TestMainFails(t *testing.T) {
	testenv.NoLeaks(t)
	for _, tt := range []struct {
		program, says, event string
	}{
		{"error", "rank 1 (host a): the cause", "rank 1 aborts with 1: the cause"},
		{"panic", "rank 1 (host a): panic: oh no", "rank 1 aborts with 1: panic: oh no"},
		{"abort", "", "rank 1 aborts with 1: enough of this"},
	} {
		t.Run(tt.program, func(t *testing.T) {
			j := &job{program: tt.program, hosts: []int{2}}
			j.start(t)
			if status := j.wait(t, 1); status != 1 {
				t.Errorf("exit status %d, want 1", status)
			}
			if got := j.errs[1].String(); !strings.Contains(got, tt.says) {
				t.Errorf("standard error %q, want %q in it", got, tt.says)
			}
			j.wait(t, 0) // notices that its peer is gone
			j.mu.Lock()
			defer j.mu.Unlock()
			if len(j.events) == 0 || !strings.HasPrefix(j.events[0], tt.event) {
				t.Errorf("the launcher saw %q, want first %q", j.events, tt.event)
			}
		})
	}
}
