package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/gorun-mpi/gorun/rank"
	"github.com/gorun-mpi/gorun/rdma"
	"github.com/gorun-mpi/gorun/rdma/dpa"
)

// A stepEngine has a device thread run the collectives for which there is no kernel of the original: a request for each slot,
// which the rank starts, and whose plan the thread steps to its end. The requests are the rank's own, so the
// thread posts to its queue pairs and not to some of the device's.
type stepEngine struct {
	*startedEngine
	pd      rdma.PD
	device  *dpa.Context
	group   *dpa.ThreadGroup
	done    *dpa.SyncEvent
	kernel  dpa.Kernel
	request rank.Request // that the thread steps
	seq     uint64       // of the call
}

// newStepEngine makes the device thread. What was made when it fails is closed.
func newStepEngine(own inlineEngine) (e *stepEngine, err error) {
	e = &stepEngine{startedEngine: newStartedEngine(own)}
	e.by, e.of = "device thread", func(c *rank.Counters) uint64 { return c.Collective.Beside }
	e.kernel = dpa.Steps(e)
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("set up --engine dpa: %w", err), e.close(context.Background(), false))
		}
	}()
	world := e.comm.World()
	if e.pd, err = world.DeviceContext().AllocPD(); err != nil {
		return e, err
	}
	if e.device, err = dpa.New(e.pd, dpa.Config{Threads: 1, Place: world.LocalRank(), Processes: world.LocalSize()}); err != nil {
		return e, err
	}
	if e.group, err = e.device.NewThreadGroup(1); err != nil {
		return e, err
	}
	e.done, err = e.device.NewSyncEvent(dpa.Device, dpa.CPU)
	return e, err
}

// Step is the request's under way, for the kernel.
func (e *stepEngine) Step() (moved, over bool) { return e.request.Step() }

func (e *stepEngine) call(ctx context.Context, s slot) (err error) {
	if e.request, err = e.start(s); err != nil {
		return err
	}
	e.seq++
	if err := e.group.Launch(dpa.Launch{Name: e.op.String(), Kernel: e.kernel, Complete: e.done, Value: e.seq}); err != nil {
		return err
	}
	if err := e.done.WaitGt(ctx, e.seq-1); err != nil {
		return err
	}
	_, err = e.request.Wait(ctx)
	return err
}

func (e *stepEngine) counts() engineCounts {
	c := e.device.Counters()
	return engineCounts{kernels: c.Runs, posted: c.Posted}
}

func (e *stepEngine) pinned() bool { return e.device.Pinned() != nil }

func (e *stepEngine) close(ctx context.Context, meet bool) error {
	var errs []error
	if e.device != nil { // before the requests that its thread may step
		err := e.device.Close()
		if stuck := (*dpa.StuckError)(nil); errors.As(err, &stuck) {
			return err
		}
		errs = append(errs, err)
	}
	errs = append(errs, e.startedEngine.close(ctx, meet))
	if e.pd != nil {
		errs = append(errs, e.pd.Close())
	}
	return errors.Join(errs...)
}
