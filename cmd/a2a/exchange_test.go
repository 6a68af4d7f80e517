package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/cmd/internal/logline"
	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rank"
)

// exchangeOn runs the exchange on ranks that are goroutines, and gives rank 0's
// report, what it printed and what was logged.
func exchangeOn(t *testing.T, ranks int, p params) (*report, string, string) {
	t.Helper()
	return exchangeWith(t, rank.RunConfig{}, ranks, p)
}

// exchangeWith is exchangeOn with a configuration of the ranks.
func exchangeWith(t *testing.T, cfg rank.RunConfig, ranks int, p params) (*report, string, string) {
	t.Helper()
	if p.engine == "" {
		p.engine = engineInline
	}
	if p.op == "" {
		p.op = "alltoall"
	}
	p.settle(ranks, threadsMost)
	var out, log strings.Builder
	var first *report
	var mu sync.Mutex // the log is written by all ranks
	p.configure(&cfg.Config)
	err := cfg.Run(testenv.Deadline(t, time.Minute), ranks, func(ctx context.Context, c *rank.Comm) error {
		e := &exchange{ctx: ctx, world: c.World(), comm: c, params: p, out: io.Discard, started: time.Now(),
			log: logline.New(&locked{mu: &mu, to: &log}, logline.Info)}
		if c.Rank() == 0 {
			e.out = &out
		}
		r, err := e.run()
		switch {
		case err != nil:
			return err
		case (r != nil) != (c.Rank() == 0):
			return fmt.Errorf("rank %d: got the report %v, want one on rank 0 only", c.Rank(), r)
		case r != nil:
			first = r
		}
		return nil
	})
	if err != nil {
		t.Fatalf("%d ranks, %+v: %v", ranks, p, err)
	}
	return first, out.String(), log.String()
}

// locked makes a writer safe for several goroutines.
type locked struct {
	mu *sync.Mutex
	to io.Writer
}

func (l *locked) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.to.Write(b)
}

// A call is a write for every ordered pair of ranks and a copy of every own
// block, whatever the size; the device executed a write for each of them and
// for what announces it.
func TestCounts(t *testing.T) {
	for _, ranks := range []int{1, 2, 3, 4, 7} {
		for _, per := range []int{4, 8, 1024, 100_000} {
			t.Run(fmt.Sprintf("%dx%d", ranks, per), func(t *testing.T) {
				r, _, _ := exchangeOn(t, ranks, params{msgsize: ranks * per, iterations: 3, warmup: 1, print: printNone, seed: 5})
				pairs := uint64(ranks * (ranks - 1))
				got := callCounts(r.counted)
				want := got // signals and what belongs to them depend on the size
				want.Writes, want.WriteBytes = pairs, pairs*uint64(per)
				want.Copies, want.CopyBytes = uint64(ranks), uint64(ranks*per)
				want.DeviceWrites = pairs + got.Signals + got.Credits + 2*got.Descriptors
				if got != want || got.Signals < pairs {
					t.Errorf("one call counts %+v, want %+v with at least %d signals", got, want, pairs)
				}
			})
		}
	}
}

func TestCallsAreCounted(t *testing.T) {
	for _, c := range []struct {
		name              string
		size, iters, warm int
		timed, atLeast    int
		calls             int // 0: do not look
	}{
		{"none timed", 8, 0, 0, 0, 1, 1},
		{"small, several batches", 8, 150, 3, 150, 154, 0},
		{"one buffer only", 2 << 20, 3, 1, 3, 5, 5},
	} {
		r, _, _ := exchangeOn(t, 2, params{msgsize: c.size, iterations: c.iters, warmup: c.warm, print: printNone})
		if r.timed != c.timed || r.calls < c.atLeast || c.calls != 0 && r.calls != c.calls {
			t.Errorf("%s: %d timed, %d verified; want %d, %d or more", c.name, r.timed, r.calls, c.timed, c.atLeast)
		}
		if c.timed > 0 && !(r.steady.min > 0 && r.steady.min <= r.steady.median && r.steady.median <= r.steady.p99) {
			t.Errorf("%s: steady state %+v, want 0 < min <= median <= p99", c.name, r.steady)
		}
	}
}

func TestMatricesOfRanks(t *testing.T) {
	_, out, log := exchangeOn(t, 4, params{msgsize: 36, iterations: 1, warmup: 0, seed: 3})
	p := pattern{seed: 3}
	want := "-----send buffs-----\n"
	for r := range 4 {
		row := make([]int32, 9)
		p.fill(row, 0, r, 4)
		want += string(appendRow(nil, r, row, 0))
	}
	want += "-----recv buffs-----\n"
	for r := range 4 {
		row := make([]int32, 9)
		for k := range 8 {
			row[k] = value(p.key(0, k/2, r), k%2)
		}
		want += string(appendRow(nil, r, row, 0))
	}
	if out != want {
		t.Errorf("printed\n%s\nwant\n%s", out, want)
	}
	if n := strings.Count(log, "-m 36: 9 integers cannot be shared out to 4 ranks"); n != 1 {
		t.Errorf("logged %q, want one warning about the integer left over", log)
	}
}

// On a device that executes late, out of order and in pieces the data are
// right all the same.
func TestAdversary(t *testing.T) {
	for seed := range uint64(5) {
		for _, size := range []int{16, 4096, 400_000} {
			exchangeWith(t, rank.RunConfig{Seed: seed + 1}, 4, params{msgsize: size, iterations: 5, warmup: 1, print: printNone})
		}
	}
}
