package rank_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rank"
)

// offloadLengths are the calls of program "offload", which lets the daemon have those of offloadFrom bytes and more.
var offloadLengths = []int{8, 4088, 4096, 100 << 10}

const offloadFrom = 4096

func init() {
	programs["offload"] = func() {
		w, err := rank.Init(context.Background(), rank.Config{OffloadFrom: offloadFrom})
		if err == nil {
			err = offload(context.Background(), w.Comm())
		}
		if err == nil {
			err = w.Finalize(context.Background())
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	programs["offload asks"] = func() {
		_, err := rank.Init(context.Background(), rank.Config{Offload: true})
		fmt.Println(err)
	}
	programs["offload from -2"] = func() {
		_, err := rank.Init(context.Background(), rank.Config{OffloadFrom: -2})
		fmt.Println(err)
	}
}

// offload starts a sum of each length, and prints after each how many calls the daemon has run.
func offload(ctx context.Context, c *rank.Comm) error {
	for _, n := range offloadLengths {
		in, err := rank.Alloc[int64](c, n/8)
		if err != nil {
			return err
		}
		out, err := rank.Alloc[int64](c, n/8)
		if err != nil {
			return err
		}
		in[n/8-1] = int64(c.Rank() + 1)
		q, err := rank.Iallreduce(c, in, out, rank.Sum)
		if err != nil {
			return err
		}
		if _, err := q.Wait(ctx); err != nil {
			return err
		}
		if want := int64(c.Size() * (c.Size() + 1) / 2); out[n/8-1] != want {
			return fmt.Errorf("the sum of %d bytes ends with %d, want %d", n, out[n/8-1], want)
		}
		if c.Rank() == 0 {
			fmt.Println(n, c.World().Counters().Collective.Offloaded)
		}
	}
	return nil
}

// Config.OffloadFrom is the length from which the daemon gets calls, and not below.
func TestOffloadFrom(t *testing.T) {
	testenv.NoLeaks(t)
	j := &job{program: "offload", hosts: []int{2}, offload: 1}
	j.start(t)
	if got, want := j.done(t), "8 0\n4088 0\n4096 1\n102400 2\n"; got != want {
		t.Errorf("lengths and calls of the daemon:\n%swant\n%s", got, want)
	}
	if !j.segs[0].Used(2) {
		t.Error("the daemon has not said that it was given calls")
	}
	refused := &job{program: "offload from -2", hosts: []int{2}, offload: 1}
	refused.start(t)
	for r := range 2 {
		refused.until(t, r, "Config.OffloadFrom is -2: expected a number of bytes, 0 or -1")
		refused.wait(t, r)
	}
}

// Config.Offload needs gorun: another launcher has no daemon, and Init says so.
func TestOffloadNeedsGorun(t *testing.T) {
	testenv.NoLeaks(t)
	j := &job{program: "offload asks", hosts: []int{2}, foreign: true}
	j.start(t)
	for r := range 2 {
		j.until(t, r, "Config.Offload: found another launcher, expected gorun, which starts the daemon")
		j.wait(t, r)
	}
}
