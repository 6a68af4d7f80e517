package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/gorun-mpi/gorun/rank"
)

// An engine runs the collectives of a rank. The exchange owns it, and makes one call at a time.
type engine interface {
	// buffers makes n integers each to send and to receive, registered, until close. It comes once,
	// on all ranks.
	buffers(ctx context.Context, n int) (send, recv []int32, err error)
	// call is the collective of a slot: only what is shared out takes part. It returns when what the rank receives
	// has arrived and what it sends has been sent.
	call(ctx context.Context, s slot) error
	// ran is an error unless the engine itself has run as many calls so far.
	ran(calls int) error
	// counts is what the engine's threads have done so far, which the rank's counters do not name.
	counts() engineCounts
	// pinned tells whether these threads have CPUs of their own.
	pinned() bool
	// close frees what the engine has made. With meet, when all went well, the ranks come together before.
	close(ctx context.Context, meet bool) error
}

// engineCounts are counted by an engine's own threads.
type engineCounts struct {
	writes, writeBytes uint64 // of blocks
	signals            uint64
	kernels            uint64 // times that a thread has run the kernel
	posted             uint64 // requests
}

// open makes the engine that --engine names.
func (e *exchange) open() (engine, error) {
	per := e.params.perPeer(e.comm.Size())
	own := inlineEngine{comm: e.comm, op: e.pattern.op, sent: per * e.pattern.op.blocks(e.comm.Size()), received: per * e.pattern.op.arriving(e.comm.Size())}
	started := newStartedEngine(own)
	switch e.params.engine {
	case engineDPA:
		if e.pattern.op != allToAll {
			return newStepEngine(own)
		}
		return newKernelEngine(e.ctx, e.comm, &e.params)
	case engineThread:
		started.by, started.of = "progress thread", func(c *rank.Counters) uint64 { return c.Collective.Beside }
		return started, nil
	case engineDaemon:
		started.by, started.of = "daemon", func(c *rank.Counters) uint64 { return c.Collective.Offloaded }
		return started, nil
	}
	return &own, nil
}

// An inlineEngine has the rank run the collective itself.
type inlineEngine struct {
	comm           *rank.Comm
	op             operation
	sent, received int // integers of a call
}

func (e *inlineEngine) buffers(_ context.Context, n int) (send, recv []int32, err error) {
	if send, err = rank.Alloc[int32](e.comm, n); err != nil {
		return nil, nil, err
	}
	recv, err = rank.Alloc[int32](e.comm, n)
	return send, recv, err
}

func (e *inlineEngine) call(ctx context.Context, s slot) error {
	return e.op.run(ctx, e.comm, s.send[:e.sent], s.recv[:e.received])
}

// A startedEngine has another run the collective, the rank's progress thread or the host's daemon: a request for each
// slot, which is started again for each call.
type startedEngine struct {
	inlineEngine
	by       string                      // the other
	of       func(*rank.Counters) uint64 // the calls that it has run, from the first step to the last
	requests map[int]rank.Request        // by place
}

func newStartedEngine(own inlineEngine) *startedEngine {
	return &startedEngine{inlineEngine: own, requests: make(map[int]rank.Request)}
}

func (e *startedEngine) call(ctx context.Context, s slot) error {
	r, err := e.start(s)
	if err != nil {
		return err
	}
	_, err = r.Wait(ctx)
	return err
}

// start starts the collective of a slot.
func (e *startedEngine) start(s slot) (r rank.Request, err error) {
	r, made := e.requests[s.at]
	if !made {
		if r, err = e.op.prepare(e.comm, s.send[:e.sent], s.recv[:e.received]); err != nil {
			return r, err
		}
		e.requests[s.at] = r
	}
	return r, r.Start()
}

func (e *startedEngine) ran(calls int) error {
	counted := e.comm.World().Counters()
	if n := e.of(&counted); n != uint64(calls) {
		return fmt.Errorf("the %s has run %d of %d calls: gorun -v says why", e.by, n, calls)
	}
	return nil
}

func (e *startedEngine) close(context.Context, bool) error {
	var errs []error
	for _, r := range e.requests {
		errs = append(errs, r.Free())
	}
	return errors.Join(errs...)
}

func (e *inlineEngine) ran(int) error                     { return nil }
func (e *inlineEngine) counts() engineCounts              { return engineCounts{} }
func (e *inlineEngine) pinned() bool                      { return false }
func (e *inlineEngine) close(context.Context, bool) error { return nil } // Finalize frees the buffers
