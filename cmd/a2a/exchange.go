package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"syscall"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/gorun-mpi/gorun/rank"
	"github.com/gorun-mpi/gorun/rdma"
)

// exchange runs the collectives of one rank.
type exchange struct {
	ctx     context.Context
	world   *rank.World
	comm    *rank.Comm
	params  params
	log     *logrus.Logger
	out     io.Writer
	started time.Time // of the process

	engine  engine
	pattern pattern
	slots   []slot
	calls   int // made so far, and the number of the next one
	stamps  []time.Time
	// samples are the times of the timed calls in nanoseconds.
	samples []int64
}

// slot holds the buffers of one call of a batch.
type slot struct {
	at         int // in the engine's buffers
	send, recv []int32
}

// slotBytes is about how much the send buffers of a batch take together: small
// enough for the caches, so that using many is like using one.
const slotBytes = 256 << 10

// maxSlots bounds the calls of a batch: 64 timed, and one untimed at each end.
const maxSlots = 66

// cacheLine keeps the buffers of different calls from sharing a line.
const cacheLine = 64

// run is the whole exchange. The report is rank 0's; it is nil elsewhere.
func (e *exchange) run() (r *report, err error) {
	p, ranks := &e.params, e.comm.Size()
	e.pattern = pattern{uint64(p.seed), p.operation()}
	if over := p.unused(ranks); over > 0 && e.comm.Rank() == 0 {
		e.log.Warnf("-m %d: %d integers cannot be shared out to %d ranks, so the last %d stay 0 and are not sent; -m %d would leave none over",
			p.msgsize, p.ints(), ranks, over, (p.ints()-over)*intSize)
	}
	if e.engine, err = e.open(); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, e.engine.close(e.ctx, err == nil)) }()
	if err := e.allocate(); err != nil {
		return nil, err
	}
	setUp := time.Since(e.started)

	first, counted, err := e.first()
	if err != nil {
		return nil, err
	}
	started := starting(e.world.Counters())
	if err := e.printMatrices(); err != nil {
		return nil, err
	}
	if err := e.batches(p.warmup, false); err != nil {
		return nil, err
	}
	before := switches()
	if err := e.batches(p.iterations, true); err != nil {
		return nil, err
	}
	return e.collect(setUp, first, counted, append(started, switches()-before))
}

// allocate makes the buffers of all slots, in one registered piece each way.
func (e *exchange) allocate() error {
	ints := e.params.ints()
	arriving := ints // with what is over
	if e.pattern.op == reduceScatter {
		arriving = e.params.perPeer(e.comm.Size())
	}
	stride := (ints*intSize + cacheLine - 1) / cacheLine * cacheLine / intSize
	n := min(max(1, slotBytes/(stride*intSize)), maxSlots)
	send, recv, err := e.engine.buffers(e.ctx, n*stride)
	if errors.Is(err, rdma.ErrNoMemory) {
		return fmt.Errorf("-m %d: no memory for send and receive buffers of that size, try a smaller one: %w", e.params.msgsize, err)
	}
	if err != nil {
		return err
	}
	e.slots = make([]slot, n)
	for i := range e.slots {
		e.slots[i] = slot{i * stride, send[i*stride : i*stride+ints : i*stride+ints], recv[i*stride : i*stride+arriving : i*stride+arriving]}
	}
	e.stamps = make([]time.Time, n+1)
	e.samples = make([]int64, 0, e.params.iterations)
	return nil
}

// first makes, times, counts and verifies the first call; its buffers stay as
// they are, for the matrices.
func (e *exchange) first() (time.Duration, []uint64, error) {
	e.prepare(1)
	if err := rank.Barrier(e.ctx, e.comm); err != nil {
		return 0, nil, err
	}
	before := e.reading()
	start := time.Now()
	if err := e.engine.call(e.ctx, e.slots[0]); err != nil {
		return 0, nil, err
	}
	took := time.Since(start)
	return took, delta(before, e.reading()), e.verify(1)
}

// batches makes n calls, and times them when asked. A batch of several calls
// has one more, untimed, at each end. The one at the head brings the ranks into step
// again after they have verified and filled their buffers, each at its own speed. In the
// one at the tail a rank may wait for its CPU while another verifies there: without it
// the 99th percentile of four ranks on two CPUs was the time of a verification.
func (e *exchange) batches(n int, timed bool) error {
	lead, tail := 0, 0
	if len(e.slots) > 2 {
		lead, tail = 1, 1
	}
	for n > 0 {
		size := min(n, len(e.slots)-lead-tail)
		all := lead + size + tail
		e.prepare(all)
		if err := rank.Barrier(e.ctx, e.comm); err != nil {
			return err
		}
		e.stamps[0] = time.Now()
		for i := range all {
			if err := e.engine.call(e.ctx, e.slots[i]); err != nil {
				return err
			}
			e.stamps[i+1] = time.Now()
		}
		for i := lead; timed && i < lead+size; i++ {
			e.samples = append(e.samples, int64(e.stamps[i+1].Sub(e.stamps[i])))
		}
		if err := e.verify(all); err != nil {
			return err
		}
		n -= size
	}
	return nil
}

// prepare fills the buffers of the next n calls.
func (e *exchange) prepare(n int) {
	for i := range n {
		e.pattern.fill(e.slots[i].send, e.calls+i, e.comm.Rank(), e.comm.Size())
		clear(e.slots[i].recv)
		if e.pattern.op == broadcast && e.comm.Rank() == root {
			copy(e.slots[i].recv, e.slots[i].send) // a broadcast has one buffer
		}
	}
}

// verify holds what n calls brought against what was sent.
func (e *exchange) verify(n int) error {
	for i := range n {
		if w, ok := e.pattern.verify(e.slots[i].recv, e.calls+i, e.comm.Rank(), e.comm.Size()); !ok {
			from := fmt.Sprintf("the block of rank %d", w.block)
			if e.pattern.op != allToAll {
				from = "the result of " + e.pattern.op.String()
			}
			return fmt.Errorf("call %d brought rank %d wrong data: in %s, integer %d, found %d, expected %d",
				w.call, e.comm.Rank(), from, w.index, w.got, w.want)
		}
	}
	e.calls += n
	return e.engine.ran(e.calls)
}

// switches is how often the kernel has given the CPUs of this process to another.
func switches() uint64 {
	var used syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &used) != nil {
		return 0
	}
	return uint64(used.Nvcsw) + uint64(used.Nivcsw)
}

// collect brings together at rank 0 what the ranks measured and counted.
func (e *exchange) collect(setUp, first time.Duration, counted, started []uint64) (*report, error) {
	spans := []int64{int64(setUp), int64(first)}
	slowest := make([]int64, len(spans))
	if err := rank.Reduce(e.ctx, e.comm, spans, slowest, rank.Max, 0); err != nil {
		return nil, err
	}
	mine := slices.Concat(counted, started)
	sum := make([]uint64, len(mine))
	if err := rank.Reduce(e.ctx, e.comm, mine, sum, rank.Sum, 0); err != nil {
		return nil, err
	}
	var all []int64
	if e.comm.Rank() == 0 {
		all = make([]int64, len(e.samples)*e.comm.Size())
	}
	if len(e.samples) > 0 {
		if err := rank.Gather(e.ctx, e.comm, e.samples, all, 0); err != nil {
			return nil, err
		}
	}
	if e.comm.Rank() != 0 {
		return nil, nil
	}
	return &report{
		ranks: e.comm.Size(), params: e.params, device: e.world.Device(), pinned: e.engine.pinned(),
		setUp: time.Duration(slowest[0]), first: time.Duration(slowest[1]),
		steady: summarize(all), timed: len(e.samples), calls: e.calls, counted: sum[:counters], started: sum[counters:],
	}, nil
}
