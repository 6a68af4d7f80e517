package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/gorun-mpi/gorun/rank"
	"github.com/gorun-mpi/gorun/rdma/dpa"
)

// A stepEngine has a device thread run the collectives for which there is no kernel of the original: a request for each slot,
// which the rank starts, and whose plan the thread steps to its end. The requests are the rank's own, so the
// thread posts to its queue pairs and not to some of the device's.
type stepEngine struct {
	*startedEngine
	thread  *dpa.StepThread
	request rank.Request // that it steps
}

func newStepEngine(own inlineEngine) (*stepEngine, error) {
	e := &stepEngine{startedEngine: newStartedEngine(own)}
	e.by, e.of = "device thread", func(c *rank.Counters) uint64 { return c.Collective.Beside }
	world := e.comm.World()
	var err error
	if e.thread, err = dpa.NewStepThread(world.DeviceContext(), world.LocalRank(), world.LocalSize()); err != nil {
		return nil, fmt.Errorf("set up --engine dpa: %w", err)
	}
	return e, nil
}

func (e *stepEngine) call(ctx context.Context, s slot) (err error) {
	if e.request, err = e.start(s); err != nil {
		return err
	}
	if err := e.thread.Run(ctx, e.op.String(), &e.request); err != nil {
		return err
	}
	_, err = e.request.Wait(ctx)
	return err
}

func (e *stepEngine) counts() engineCounts {
	c := e.thread.Counters()
	return engineCounts{kernels: c.Runs, posted: c.Posted}
}

func (e *stepEngine) pinned() bool { return e.thread.Pinned() != nil }

func (e *stepEngine) close(ctx context.Context, meet bool) error {
	err := e.thread.Close() // before the requests that it may step
	if stuck := (*dpa.StuckError)(nil); errors.As(err, &stuck) {
		return err
	}
	return errors.Join(err, e.startedEngine.close(ctx, meet))
}
