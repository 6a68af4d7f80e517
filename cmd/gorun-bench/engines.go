package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gorun-mpi/gorun/rank"
	"github.com/gorun-mpi/gorun/rdma/dpa"
)

// With --engine the same collectives are run by different threads, each in rows of its own:
//
//	inline   the rank, in its blocking call
//	thread   the rank's progress thread; the rank starts the call and waits
//	dpa      a device thread of package rdma/dpa, which steps the started call
//	daemon   the daemon of gorun --offload
//
// Who has made the steps is counted by package coll, for each call, and a row with any call that another
// has made a step of is an error: nothing falls back to inline.

// The engines that --engine names.
const (
	engineInline = "inline"
	engineThread = "thread"
	engineDPA    = "dpa"
	engineDaemon = "daemon"
)

var engines = []string{engineInline, engineThread, engineDPA, engineDaemon}

func (p *params) checkEngines() error {
	if err := known(p.engineList, engines...); err != nil {
		return err
	}
	p.engines = strings.Split(p.engineList, ",")
	return nil
}

// settleEngines holds the other options against --engine.
func (p *params) settleEngines() error {
	switch {
	case len(p.engines) == 0:
		return nil
	case len(p.asyncs) > 0 || p.tune != "" || p.applications || p.quick:
		return errors.New("--engine: found --async-progress, --tune, --applications or --quick beside it, expected none of them")
	case p.engineList == engineDaemon && !slices.Contains(p.memories, registered):
		return errors.New("--engine daemon: found --memory ordinary, expected registered: the daemon does not reach other memory")
	}
	p.benchmarkList = cmp.Or(p.benchmarkList, "engines")
	list, err := p.selected()
	for _, b := range list {
		if b.how&startable == 0 {
			return fmt.Errorf("--engine: found -b %s, expected collectives that an engine can run: -b engines has all of them", b.name)
		}
	}
	return err
}

// configureEngine has a rank be what the plan's engine needs.
func (p *plan) configureEngine(cfg *rank.Config) {
	if p.engine == "" {
		return
	}
	cfg.Progress = rank.ProgressOff
	switch p.engine {
	case engineThread:
		cfg.Progress, cfg.Deferred = rank.ProgressOn, true
	case engineDPA:
		cfg.Deferred = true
	case engineDaemon:
		cfg.Offload, cfg.OffloadFrom = true, -1
	}
}

// An engine runs the calls of a point for one rank, and counts them. A worker has one.
type engine struct {
	w      *worker
	name   string
	made   uint64 // calls
	before rank.Counters

	thread   *dpa.StepThread // of dpa, which steps request
	request  rank.Request
	launched uint64
}

// openEngine makes the plan's engine; nil: it names none.
func (w *worker) openEngine() (e *engine, err error) {
	if w.plan.engine == "" {
		return nil, nil
	}
	e = &engine{w: w, name: w.plan.engine}
	if e.name == engineDPA {
		world := w.comm.World()
		e.thread, err = dpa.NewStepThread(world.DeviceContext(), world.LocalRank(), world.LocalSize())
	}
	return e, err
}

func (e *engine) close() error {
	if e == nil || e.thread == nil {
		return nil
	}
	return e.thread.Close()
}

// run has the engine run a point's calls from here on.
func (e *engine) run(c *call) {
	e.made, e.launched = 0, 0
	e.before = e.w.comm.World().Counters()
	if e.thread != nil {
		e.launched = e.thread.Counters().Launches
	}
	inline, begin := c.step, c.begin
	c.step = func() error {
		e.made++
		if e.name == engineInline {
			return inline()
		}
		r, err := begin()
		if err != nil {
			return err
		}
		if e.name == engineDPA {
			e.request = r
			if err := e.thread.Run(e.w.ctx, "steps of a collective", &e.request); err != nil {
				return err
			}
		}
		_, err = r.Wait(e.w.ctx)
		return err
	}
}

// executed is how many calls the engine has run from the first step to the last, all there were; else an error.
func (e *engine) executed() (uint64, error) {
	now := e.w.comm.World().Counters().Collective
	was := e.before.Collective
	calls, beside, offloaded := now.Calls-was.Calls, now.Beside-was.Beside, now.Offloaded-was.Offloaded
	by, n, others := "rank itself", calls-beside-offloaded, beside+offloaded
	switch e.name {
	case engineThread:
		by, n, others = "progress thread", beside, offloaded
	case engineDPA:
		by, n, others = "device thread", min(beside, e.thread.Counters().Launches-e.launched), offloaded
	case engineDaemon:
		by, n, others = "daemon", offloaded, beside
	default:
		n = min(n, e.made) // those that lead the ranks are its too
	}
	if n != e.made || others != 0 {
		return 0, fmt.Errorf("engine %s: the %s has run %d of %d calls, and %d were run by others", e.name, by, n, e.made, e.made-n+others)
	}
	return n, nil
}
