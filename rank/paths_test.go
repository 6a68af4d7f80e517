package rank_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/gorun-mpi/gorun/internal/arch"
	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rank"
	"github.com/gorun-mpi/gorun/rank/ranktest"
)

func init() {
	programs["crowd"] = func() { rank.Main(tellCrowd) }
	programs["crowd on a device"] = func() { onDevice(tellCrowd) }
	light := dose{[]layout{gaps}, []numeric{numerics[5]}, []int{2, large}, false}
	programs["light suite"] = func() { rank.Main(suite(light, 3)) }
	programs["light suite on a device"] = func() { onDevice(suite(light, 3)) }
}

// tellCrowd is crowd, with a line of what each rank has for it.
func tellCrowd(ctx context.Context, c *rank.Comm) error {
	err := crowd(ctx, c)
	n := c.World().Counters()
	fmt.Printf("crowd: %s %d %d\n", c.World().Host(), n.QueuePairs, n.QueueBytes)
	return err
}

// crowd has everybody talk with everybody over all that there are queue pairs for.
func crowd(ctx context.Context, c *rank.Comm) error {
	size, me := c.Size(), c.Rank()
	for _, n := range []int{1, 300, 20_000} {
		var requests []rank.Request
		in, out := make([][]int, size), make([][]int, size)
		for i := 1; i < size; i++ {
			from, to := (me+size-i)%size, (me+i)%size
			in[from], out[to] = make([]int, n), make([]int, n)
			for k := range out[to] {
				out[to][k] = me*1_000_000 + to*1000 + k
			}
			r, err1 := rank.Irecv(c, in[from], from, n)
			s, err2 := rank.Isend(c, out[to], to, n)
			if err := errors.Join(err1, err2); err != nil {
				return err
			}
			requests = append(requests, r, s)
		}
		for _, r := range requests {
			if _, err := r.Wait(ctx); err != nil {
				return err
			}
		}
		for from, b := range in {
			for k, got := range b {
				if want := from*1_000_000 + me*1000 + k; got != want {
					return fmt.Errorf("%d ints of rank %d: element %d is %d, want %d", n, from, k, got, want)
				}
			}
		}
	}
	for _, n := range []int{1, 5000} {
		in, out := make([]int, n*size), make([]int, n*size)
		for round := range 3 {
			for i := range out {
				out[i] = me*size + i/n + round
			}
			if err := rank.Alltoall(ctx, c, out, in); err != nil {
				return err
			}
			for i, got := range in {
				if want := i/n*size + me + round; got != want {
					return fmt.Errorf("all-to-all of %d ints: element %d of rank %d is %d, want %d", n, i%n, i/n, got, want)
				}
			}
		}
	}
	w, err := rank.WinAllocate[int64](ctx, c, size)
	if err != nil {
		return err
	}
	if err := putAll(ctx, w, w.Base(), func(int) int { return me }, me); err != nil {
		return err
	}
	if err := w.Free(ctx); err != nil {
		return err
	}
	dyn, err := rank.WinCreateDynamic[int64](ctx, c) // always over queue pairs
	if err != nil {
		return err
	}
	mem := make([]int64, size)
	if err := dyn.Attach(mem); err != nil {
		return err
	}
	at := make([]int, size)
	if err := rank.Allgather(ctx, c, []int{rank.Address(mem)}, at); err != nil {
		return err
	}
	if err := putAll(ctx, dyn, mem, func(to int) int { return at[to] + 8*me }, me); err != nil {
		return err
	}
	if err := dyn.Detach(mem); err != nil {
		return err
	}
	return dyn.Free(ctx)
}

// putAll has each rank put a word to all.
func putAll(ctx context.Context, w *rank.Win[int64], mem []int64, at func(to int) int, me int) error {
	if err := w.Fence(ctx, 0); err != nil {
		return err
	}
	for to := range mem {
		if err := w.Put([]int64{int64(me + 1)}, to, at(to)); err != nil {
			return err
		}
	}
	if err := w.Fence(ctx, 0); err != nil {
		return err
	}
	for r, got := range mem {
		if got != int64(r+1) {
			return fmt.Errorf("the window holds %d of rank %d, want %d", got, r, r+1)
		}
	}
	return nil
}

// overEveryBudget has ranks go over dynamic connections.
var overEveryBudget = []string{"GORUN_QP_MEMORY=0"}

// Over the budget a rank has nine queue pairs, however many ranks there are, and a
// host's queue pairs take what its ranks take; the job's grow with the hosts. Below the budget
// they grow with the square of the ranks, as long as everybody talks with everybody.
func TestQueueMemoryGrowsWithHosts(t *testing.T) {
	testenv.NoLeaks(t)
	const perHost, most = 2, 9
	measure := func(t *testing.T, program, budget string, hosts int) (pairs, bytes int) {
		j := &job{program: program, env: []string{"GORUN_QP_MEMORY=" + budget}}
		for range hosts {
			j.hosts = append(j.hosts, perHost)
		}
		j.start(t)
		out := j.done(t)
		ofHost := map[string][2]int{}
		for line := range strings.Lines(out) {
			var host string
			var p, b int
			if _, err := fmt.Sscanf(line, "crowd: %s %d %d", &host, &p, &b); err == nil {
				ofHost[host] = [2]int{ofHost[host][0] + p, ofHost[host][1] + b}
				pairs, bytes = pairs+p, bytes+b
			}
		}
		if len(ofHost) != hosts {
			t.Fatalf("%d hosts have told what they have, want %d:\n%s", len(ofHost), hosts, out)
		}
		if budget == "0" {
			for host, n := range ofHost {
				if n[0] > perHost*most {
					t.Errorf("%d hosts: host %s has %d queue pairs for %d ranks, want at most %d", hosts, host, n[0], perHost, perHost*most)
				}
			}
		}
		return pairs, bytes
	}
	for _, program := range []string{"crowd", "crowd on a device"} {
		t.Run(program, func(t *testing.T) {
			var one int
			for hosts := 1; hosts <= 4; hosts++ {
				if testing.Short() && hosts%2 == 0 {
					continue
				}
				if arch.RaceEnabled && hosts > 1 {
					break // for the reason that TestProcesses gives
				}
				n := hosts * perHost
				pairs, bytes := measure(t, program, "0", hosts)
				if hosts == 1 {
					one = max(bytes, perHost*most*bytes/max(pairs, 1))
				}
				if bytes > hosts*one {
					t.Errorf("%d hosts over the budget: %d bytes of queue pairs, want at most %d for each host as with one", hosts, bytes, one)
				}
				rc, rcBytes := measure(t, program, "1G", hosts)
				// One for each purpose to each peer where all go over queue pairs, and at
				// least one where those of a host share memory.
				if least := n * (n - 1); rc < least || hosts > 2 && rcBytes <= bytes {
					t.Errorf("%d ranks below the budget: %d queue pairs of %d bytes, want %d or more, and more than the %d bytes over it", n, rc, rcBytes, least, bytes)
				}
				t.Logf("%d hosts, %d ranks: over the budget %d queue pairs, %d bytes; below it %d, %d bytes", hosts, n, pairs, bytes, rc, rcBytes)
			}
		})
	}
}

// overBudget runs f on ranks that go over dynamic connections.
func overBudget(t *testing.T, n int, seed uint64, verbs bool, f func(context.Context, *rank.Comm) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), ranktest.Limit)
	defer cancel()
	if err := (rank.RunConfig{Seed: seed, Config: rank.Config{QPMemory: -1, Verbs: verbs}}).Run(ctx, n, f); err != nil {
		t.Fatalf("%d ranks, seed %d, verbs: %v: %v", n, seed, verbs, err)
	}
}

// Where a CPU has many ranks, those that go over queue pairs make no connections, which take letters and turns of both.
func TestCrowdedRanksSendNoLetters(t *testing.T) {
	testenv.NoLeaks(t)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	const n = 18 // on 2 CPUs, and too many to be connected in Init
	var sent atomic.Uint64
	err := (rank.RunConfig{Config: rank.Config{Verbs: true}}).Run(testenv.Deadline(t, ranktest.Limit), n, func(ctx context.Context, c *rank.Comm) error {
		err := crowd(ctx, c)
		sent.Add(c.World().Counters().Datagrams)
		return err
	})
	if err != nil || sent.Load() != 0 {
		t.Errorf("%d ranks on 2 CPUs: %v, %d datagrams, want none", n, err, sent.Load())
	}
}

// The whole suite over dynamic connections.
func TestSuiteOverBudget(t *testing.T) {
	testenv.NoLeaks(t)
	sizes, seeds := testenv.Fewer([]int{2, 3, 5, 8}, []int{2, 5}), testenv.Fewer(uint64(3), 1)
	for _, n := range sizes {
		for _, verbs := range []bool{false, true} {
			t.Run(fmt.Sprintf("n=%d/verbs=%v", n, verbs), func(t *testing.T) {
				overBudget(t, n, 0, verbs, suite(dose{[]layout{layouts[n%6]}, []numeric{numerics[n%7]}, []int{3, 1200, large}, false}, uint64(n)))
			})
		}
	}
	for seed := range seeds {
		t.Run(fmt.Sprintf("adversary/seed=%d", seed+1), func(t *testing.T) {
			overBudget(t, 3, seed+1, false, suite(dose{[]layout{layouts[seed]}, []numeric{numerics[3*seed%7]}, []int{3, 1200}, false}, seed))
		})
	}
	for _, tt := range []struct {
		program string
		hosts   []int
	}{{"light suite", []int{4}}, {"light suite", []int{2, 1}}, {"light suite on a device", []int{2, 1}}, {"windows", []int{2, 2}}} {
		if arch.RaceEnabled && len(tt.hosts) > 1 {
			continue // for the reason that TestProcesses gives
		}
		t.Run(fmt.Sprintf("%s/%v", tt.program, tt.hosts), func(t *testing.T) {
			j := &job{program: tt.program, hosts: tt.hosts, env: overEveryBudget}
			j.start(t)
			j.done(t)
		})
	}
}

// A large crowd in one process.
func TestCrowdOverBudget(t *testing.T) {
	testenv.NoLeaks(t)
	for _, verbs := range []bool{false, true} {
		for _, n := range []int{2, 16, 24} {
			t.Run(fmt.Sprintf("n=%d/verbs=%v", n, verbs), func(t *testing.T) {
				overBudget(t, n, 0, verbs, func(ctx context.Context, c *rank.Comm) error {
					if err := crowd(ctx, c); err != nil {
						return err
					}
					if got := c.World().Counters().QueuePairs; got > 9 {
						return fmt.Errorf("%d ranks: %d queue pairs, want at most 9", n, got)
					}
					return nil
				})
			})
		}
	}
}
