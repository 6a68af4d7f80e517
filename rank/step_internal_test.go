package rank

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/coll"
	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rdma"
)

// A rank that a collective finds dead has failed, also where messages have found before that its connection does not answer.
func TestDeadRankWhoseConnectionFailedFirst(t *testing.T) {
	testenv.NoLeaks(t)
	var err error
	_ = RunConfig{}.Run(testenv.Deadline(t, time.Minute), 2, func(ctx context.Context, c *Comm) error {
		if c.Rank() == 1 {
			return Barrier(ctx, c) // which rank 0 revokes
		}
		_ = c.world.messages.Fail(1, rdma.WCRetryExcErr)
		err = c.failCollective("bcast", &coll.Error{Peer: 1, Err: coll.ErrPeerDead})
		return err
	})
	if !errors.Is(err, ErrProcFailed) || !errors.Is(err, rdma.WCRetryExcErr) || ClassOf(err) != ClassProcFailed {
		t.Errorf("got %v of class %v, want ErrProcFailed", err, ClassOf(err))
	}
}

// A faulty is traffic whose progress panics.
type faulty struct{}

func (faulty) Progress() bool { panic("oh no") }

// A panic while a thread steps is over for that thread; the rank's next call returns it, and does not
// wait for the thread to get out.
func TestStepPanics(t *testing.T) {
	testenv.NoLeaks(t)
	cfg := RunConfig{Config: Config{Progress: ProgressOff, Deferred: true}}
	if err := cfg.Run(testenv.Deadline(t, time.Minute), 1, func(ctx context.Context, c *Comm) error {
		w := c.World()
		q, err := Ibarrier(c)
		if err != nil {
			return err
		}
		w.traffic.add(faulty{})
		for range 2 { // the second finds that the rank has failed
			if _, over := q.Step(); !over {
				return errors.New("Step says that the operation is not over")
			}
		}
		_, err = q.Wait(ctx)
		if p, ok := errors.AsType[*PanicError](err); !ok || p.Value != "oh no" || !strings.Contains(string(p.Stack), "faulty") {
			return fmt.Errorf("Wait returned %v, want the panic with its stack", err)
		}
		w.traffic.remove(faulty{})
		w.beside.failed.Store(nil) // or the rank could not end
		_, err = q.Wait(ctx)
		return err
	}); err != nil {
		t.Error(err)
	}
}
