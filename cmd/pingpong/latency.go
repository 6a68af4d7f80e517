package main

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/gorun-mpi/gorun/rdma"
)

// latency times the operation one at a time. Writes and sends go to and fro, and
// count half a round trip; a read or an atomic is the client's alone and counts
// whole.
func latency(w *clock, e *end, ctl control, p *params, r *figures) error {
	e.rewind()
	fill(e.out(), e.serves)
	clear(e.inbox())
	if err := ctl.barrier(w.ctx); err != nil { // nobody writes into what is yet to be cleared
		return err
	}
	var trip func(i int) error
	switch p.op {
	case opWrite:
		trip = writes(w, e)
	case opSend:
		trip = sends(w, e, rdma.WRSend)
	case opWriteImm:
		trip = sends(w, e, rdma.WRRDMAWriteWithImm)
	case opRead:
		trip = fetches(w, e, rdma.WRRDMARead)
	case opAtomic:
		trip = fetches(w, e, rdma.WRAtomicFetchAndAdd)
	}
	whole := p.op == opRead || p.op == opAtomic
	times := make([]time.Duration, 0, p.iterations)
	for i := range p.warmup + p.iterations {
		if whole && e.serves {
			break
		}
		start := time.Now()
		if err := trip(i); err != nil {
			return lost(e, i, err)
		}
		if took := time.Since(start); i >= p.warmup {
			times = append(times, took)
		}
	}
	if err := ctl.barrier(w.ctx); err != nil {
		return err
	}
	if err := verify(e, p); err != nil {
		return err
	}
	if !e.serves {
		r.Latency = summarize(times, !whole)
	}
	return nil
}

// lost says what a message that did not come means.
func lost(e *end, i int, err error) error {
	if e.failure == nil && (e.params.transport == rdma.UC || e.params.transport == rdma.UD) {
		return fmt.Errorf("round trip %d: %w; %v does not repeat what is lost", i+1, err, e.params.transport)
	}
	return fmt.Errorf("round trip %d: %w", i+1, err)
}

// stamp is the last byte of write i: no two that follow each other are alike,
// and none is what the memory is cleared to.
func stamp(i int) byte { return byte(i%251 + 1) }

// writes is the trip of one write each way: its receiver sees its last byte
// change, for the bytes of a write come in order.
func writes(w *clock, e *end) func(int) error {
	l, out, in := &e.lanes[0], e.out(), e.inbox()
	last := len(in) - 1
	var want byte
	var posted uint64
	arrived := condition(func() bool { return in[last] == want })
	complete := condition(func() bool { return l.sent == posted })
	write := func() error {
		out[last] = want
		posted = l.sent + 1
		return e.post(l, rdma.WRRDMAWrite)
	}
	return func(i int) error {
		want = stamp(i)
		if !e.serves {
			if err := write(); err != nil {
				return err
			}
		}
		if err := e.until(w, arrived); err != nil {
			return err
		}
		if e.serves {
			if err := write(); err != nil {
				return err
			}
		}
		return e.until(w, complete)
	}
}

// sends is the trip of one message each way that takes a receive.
func sends(w *clock, e *end, op rdma.WROpcode) func(int) error {
	l := &e.lanes[0]
	var posted, taken uint64
	arrived := condition(func() bool { return l.received > taken })
	complete := condition(func() bool { return l.sent == posted })
	send := func() error {
		posted = l.sent + 1
		return e.post(l, op)
	}
	return func(int) error {
		if !e.serves {
			if err := send(); err != nil {
				return err
			}
		}
		if err := e.until(w, arrived); err != nil {
			return err
		}
		taken++
		if err := e.postRecv(l); err != nil {
			return err
		}
		if e.serves {
			if err := send(); err != nil {
				return err
			}
		}
		return e.until(w, complete)
	}
}

// fetches is the trip of a read or an atomic.
func fetches(w *clock, e *end, op rdma.WROpcode) func(int) error {
	l := &e.lanes[0]
	var posted uint64
	complete := condition(func() bool { return l.sent == posted })
	return func(int) error {
		posted = l.sent + 1
		if err := e.post(l, op); err != nil {
			return err
		}
		return e.until(w, complete)
	}
}

// fill writes what an end sends, which its peer can tell from anything else.
func fill(b []byte, server bool) {
	for i := range b {
		b[i] = pattern(i, server)
	}
}

func pattern(i int, server bool) byte {
	b := byte(i*7 + i>>8*13 + 1)
	if server {
		return ^b
	}
	return b
}

// verify looks at what the last message brought; the last byte of a write is its
// stamp. Of atomics the client's last fetched how often it had added before.
func verify(e *end, p *params) error {
	if p.op == opAtomic {
		return verifyCount(e, p.warmup+p.iterations)
	}
	if p.op == opRead && e.serves {
		return nil
	}
	got := e.inbox()
	if p.op == opWrite {
		got = got[:len(got)-1]
	}
	for i, b := range got {
		if want := pattern(i, !e.serves); b != want {
			return fmt.Errorf("wrong data: byte %d of %d is %#02x, want %#02x", i, len(got), b, want)
		}
	}
	return nil
}

func verifyCount(e *end, added int) error {
	if e.serves {
		return nil
	}
	fetched := binary.NativeEndian.Uint64(e.inbox())
	first := make([]byte, atomicSize)
	fill(first, true)
	if want := binary.NativeEndian.Uint64(first) + uint64(added) - 1; fetched != want {
		return fmt.Errorf("wrong data: the last of %d additions fetched %#x, want %#x: they were not one after the other", added, fetched, want)
	}
	return nil
}

// A summary is what perftest prints of latencies, in microseconds.
type summary struct {
	Min     float64 `json:"min_us"`
	Max     float64 `json:"max_us"`
	Typical float64 `json:"typical_us"` // the median
	Average float64 `json:"average_us"`
	P99     float64 `json:"p99_us"`
	P999    float64 `json:"p99_9_us"`
}

func summarize(times []time.Duration, half bool) *summary {
	slices.Sort(times)
	us := func(d time.Duration) float64 {
		v := float64(d) / float64(time.Microsecond)
		if half {
			v /= 2
		}
		return v
	}
	var sum time.Duration
	for _, t := range times {
		sum += t
	}
	n := len(times)
	at := func(q float64) float64 { return us(times[min(n-1, int(q*float64(n)))]) }
	return &summary{us(times[0]), us(times[n-1]), at(0.5), us(sum) / float64(n), at(0.99), at(0.999)}
}
