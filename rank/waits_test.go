package rank_test

import (
	"context"
	"fmt"
	"regexp"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rank"
)

// waits are calls in which rank 0 waits for rank 1, which is in none.
var waits = map[string]struct {
	wait func(ctx context.Context, c *rank.Comm) error
	says string
}{
	"receive": {func(ctx context.Context, c *rank.Comm) error {
		_, err := rank.Recv(ctx, c, make([]int, 1), 1, 77)
		return err
	}, `^in a receive from rank 1, tag 77$`},
	"receive from any": {func(ctx context.Context, c *rank.Comm) error {
		_, err := rank.Recv(ctx, c, make([]int, 1), rank.AnySource, rank.AnyTag)
		return err
	}, `^in a receive from any rank, any tag$`},
	"long send": {func(ctx context.Context, c *rank.Comm) error {
		return rank.Send(ctx, c, make([]byte, 4<<20), 1, 5)
	}, `^in a send to rank 1, tag 5, announced and not received$`},
	"probe": {func(ctx context.Context, c *rank.Comm) error {
		_, err := c.Probe(ctx, 1, 3)
		return err
	}, `^in a probe for a message from rank 1, tag 3$`},
	"barrier": {func(ctx context.Context, c *rank.Comm) error {
		return rank.Barrier(ctx, c)
	}, `^in barrier \(call 1 of the communicator\), for rank 1$`},
	"wait for all": {func(ctx context.Context, c *rank.Comm) error {
		var reqs []rank.Request
		for tag := range 3 {
			q, err := rank.Irecv(c, make([]int, 1), 1, tag)
			if err != nil {
				return err
			}
			reqs = append(reqs, q)
		}
		return rank.WaitAll(ctx, reqs, nil)
	}, `^for requests, 3 of which are not over, the first in a receive from rank 1, tag [012]$`},
}

func init() {
	for name, w := range waits {
		programs["waits in "+name] = func() {
			rank.Main(func(ctx context.Context, c *rank.Comm) error {
				fmt.Println("ready")
				if c.Rank() == 1 {
					<-ctx.Done()
					return nil
				}
				return w.wait(ctx, c)
			})
		}
	}
}

func TestWaitingRankTells(t *testing.T) {
	testenv.NoLeaks(t)
	for name, w := range waits {
		t.Run(name, func(t *testing.T) {
			j := &job{program: "waits in " + name, hosts: []int{2}}
			j.start(t)
			j.until(t, 0, "ready")
			j.until(t, 1, "ready")
			says := regexp.MustCompile(w.says)
			if !testenv.Holds(limit, func() bool {
				var clock unix.Timespec
				if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &clock); err != nil {
					t.Fatal(err)
				}
				got, ok := j.segs[0].Waits(0, time.Duration(clock.Nano()))
				return ok && says.MatchString(got.Text) && got.Since > 20*time.Millisecond && got.Since < limit
			}) {
				got, ok := j.segs[0].Waits(0, 1<<62)
				t.Fatalf("the rank says %+v, %v; want %q", got, ok, says)
			}
			if got, ok := j.segs[0].Waits(1, 1<<62); ok {
				t.Errorf("the rank that is in no call says %+v", got)
			}
		})
	}
}

// A wait that lasts is told of, with the rank that is waited for.
func TestLongWaitIsTold(t *testing.T) {
	testenv.NoLeaks(t)
	told := make(chan rank.Wait, 100)
	cfg := rank.TellsWaits(time.Millisecond, func(w rank.Wait) { told <- w })
	err := rank.RunConfig{Config: cfg}.Run(testenv.Deadline(t, time.Minute), 2, func(ctx context.Context, c *rank.Comm) error {
		if c.Rank() == 1 {
			for range 2 { // again when it lasts
				select {
				case w := <-told:
					if w.For < time.Millisecond || w.Peer != 1 || w.What != "in barrier (call 1 of the communicator), for rank 1" {
						t.Errorf("told of %+v", w)
					}
				case <-ctx.Done():
					return ctx.Err()
				}
			}
		}
		return rank.Barrier(ctx, c)
	})
	if err != nil {
		t.Error(err)
	}
}
