package rank_test

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/arch"
	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rank"
	"github.com/gorun-mpi/gorun/rank/ranktest"
)

func init() {
	programs["ring"] = func() {
		rank.Main(func(ctx context.Context, c *rank.Comm) error { return ring(ctx, c) })
	}
	programs["ring on a device"] = func() {
		ctx := context.Background()
		w, err := rank.Init(ctx, rank.Config{Devices: []string{"soft0"}})
		if err == nil {
			err = ring(ctx, w.Comm())
		}
		if err == nil {
			err = w.Finalize(ctx)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	// Rank 1 ends before anybody has had to do with it.
	programs["unmet"] = func() {
		ctx := context.Background()
		env, err := rank.FromEnviron(os.Environ())
		if err != nil {
			panic(err)
		}
		w, err := rank.Init(ctx, rank.Config{Environment: &env})
		if err != nil {
			panic(err)
		}
		dead := make(chan os.Signal, 1)
		signal.Notify(dead, unix.SIGUSR1)
		fmt.Println("ready")
		c := w.Comm()
		<-dead
		for c.Rank() == 0 && err == nil {
			err = rank.Send(ctx, c, make([]int, 10), 1, 0)
		}
		if c.Rank() == 2 {
			err = rank.Barrier(ctx, c)
		}
		fmt.Println(judge(c, err), err)
		os.Exit(0)
	}
}

// ring passes short and long messages round, and says what that has connected.
func ring(ctx context.Context, c *rank.Comm) error {
	next, before := (c.Rank()+1)%c.Size(), (c.Rank()+c.Size()-1)%c.Size()
	short := 0 // queue pairs for short messages
	if c.World().Device().Mapped < c.Size()-1 {
		short = 2
	}
	for _, tt := range []struct{ ints, peers, queues int }{{10, 2, short}, {100_000, 2, 2}} {
		in, out := make([]int, tt.ints), make([]int, tt.ints)
		for round := range 3 {
			for i := range out {
				out[i] = c.Rank() + round + i
			}
			if _, err := rank.Sendrecv(ctx, c, out, next, round, in, before, round); err != nil {
				return err
			}
			for i, got := range in {
				if want := before + round + i; got != want {
					return fmt.Errorf("round %d: element %d of %d is %d, want %d", round, i, tt.ints, got, want)
				}
			}
		}
		if n := c.World().Counters(); n.Peers > tt.peers || n.QueuePairs > tt.queues {
			return fmt.Errorf("%d ranks, a ring of %d ints: %d peers reached for and %d queue pairs, want at most %d and %d",
				c.Size(), tt.ints, n.Peers, n.QueuePairs, tt.peers, tt.queues)
		}
	}
	return nil
}

// What a rank connects grows with the ranks that it talks with, not with all.
func TestRingConnectsNeighbours(t *testing.T) {
	testenv.NoLeaks(t)
	for _, n := range []int{3, 16, 64} {
		t.Run(fmt.Sprintf("goroutines/n=%d", n), func(t *testing.T) { ranktest.Run(t, n, ring) })
		if testing.Short() && n > 16 {
			continue // goroutines show it
		}
		t.Run(fmt.Sprintf("processes/n=%d", n), func(t *testing.T) {
			j := &job{program: "ring", hosts: []int{n}}
			j.start(t)
			j.done(t)
		})
	}
	for _, tt := range []struct {
		name, program string
		hosts         []int
	}{
		{"two hosts", "ring", []int{4, 4}}, {"four hosts", "ring", []int{4, 4, 4, 4}},
		{"on a device", "ring on a device", []int{16}}, {"two hosts, on a device", "ring on a device", []int{4, 4}},
	} {
		if arch.RaceEnabled && len(tt.hosts) > 1 {
			continue // for the reason that TestProcesses gives
		}
		t.Run(tt.name, func(t *testing.T) {
			j := &job{program: tt.program, hosts: tt.hosts}
			j.start(t)
			j.done(t)
		})
	}
	for _, seed := range []uint64{1, 2} {
		t.Run(fmt.Sprintf("adversary %d", seed), func(t *testing.T) { ranktest.RunSeed(t, 8, seed, ring) })
	}
}

// Collectives, a split and windows over ranks that nobody has reached for before.
func TestLargeWorldConnectsOnDemand(t *testing.T) {
	testenv.NoLeaks(t)
	for _, n := range []int{16, 64} {
		t.Run(fmt.Sprintf("n=%d", n), func(t *testing.T) {
			ranktest.Run(t, n, func(ctx context.Context, c *rank.Comm) error {
				if got := c.World().Counters(); got.Peers != 0 || got.QueuePairs != 0 {
					return fmt.Errorf("after Init: %d peers reached for, %d queue pairs", got.Peers, got.QueuePairs)
				}
				half, err := c.Split(ctx, c.Rank()%2, c.Rank())
				if err != nil {
					return err
				}
				sum := []int{c.Rank()}
				if err := rank.Allreduce(ctx, half, nil, sum, rank.Sum); err != nil {
					return err
				}
				want := n / 2 * (n/2 - 1)
				if c.Rank()%2 == 1 {
					want += n / 2
				}
				if sum[0] != want {
					return fmt.Errorf("the sum of the ranks of a half is %d, want %d", sum[0], want)
				}
				all := make([]int, 2000)
				all[0] = c.Rank()
				if err := rank.Bcast(ctx, c, all, n-1); err != nil {
					return err
				}
				if all[0] != n-1 {
					return fmt.Errorf("rank %d broadcasts %d", n-1, all[0])
				}
				w, err := rank.WinAllocate[int](ctx, c, 1)
				if err != nil {
					return err
				}
				if err := w.Fence(ctx, 0); err != nil {
					return err
				}
				if err := w.Put([]int{c.Rank()}, (c.Rank()+1)%n, 0); err != nil {
					return err
				}
				if err := w.Fence(ctx, 0); err != nil {
					return err
				}
				if got := w.Base()[0]; got != (c.Rank()+n-1)%n {
					return fmt.Errorf("the window holds %d, want %d", got, (c.Rank()+n-1)%n)
				}
				return w.Free(ctx)
			})
		})
	}
}

// A rank that dies before it was needed is missed by those who need it then.
func TestDeathBeforeFirstContact(t *testing.T) {
	testenv.NoLeaks(t)
	for _, foreign := range []bool{false, true} {
		j := &job{program: "unmet", hosts: []int{3}, foreign: foreign}
		j.start(t)
		for r := range 3 {
			j.until(t, r, "ready")
		}
		if err := j.ranks[1].Process.Kill(); err != nil {
			t.Fatal(err)
		}
		<-j.gone[1]
		for _, r := range []int{2, 0} { // each ends when it has found out
			if err := j.ranks[r].Process.Signal(unix.SIGUSR1); err != nil {
				t.Fatal(err)
			}
			j.until(t, r, "good")
			if out := j.out[r].String(); strings.Contains(out, "wrong") {
				t.Errorf("rank %d: %s", r, out)
			}
		}
	}
}
