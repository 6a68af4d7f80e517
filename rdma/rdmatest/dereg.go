package rdmatest

import (
	"fmt"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rdma"
)

func deregCases() []testCase {
	return []testCase{
		{name: "dereg/nothing_is_touched_after_close", nodes: 3, run: deregUnderFire},
		{name: "dereg/reads_never_see_what_came_after", nodes: 3, run: deregUnderReads},
		{name: "dereg/waiting_requests_do_not_hold_it_up", nodes: 2, run: pair(deregWaiting)},
	}
}

// fire posts requests made by next, at most depth outstanding, until one
// fails, and gives its status. It is for goroutines of their own. The first
// request is a write of 8 bytes to flag.
func (l *link) fire(flag Region, off int, one Region, depth int, next func(k int) rdma.SendWR, checked func(k int) error) (rdma.WCStatus, error) {
	patience := testenv.Limit(30 * time.Second)
	posted, done := 0, 0
	status := rdma.WCSuccess
	var err error
	wc := make([]rdma.WC, depth)
	ok := waitFor(patience, func() bool {
		for status == rdma.WCSuccess && posted-done < depth {
			wr := next(posted)
			if posted == 0 {
				wr = write(0, flag, off, one.sge(0, 8))
			}
			wr.WRID = uint64(posted)
			var n int
			if n, err = l.qa.PostSend([]rdma.SendWR{wr}); n != 1 || err != nil {
				err = fmt.Errorf("post: %d, %w", n, err)
				return true
			}
			posted++
		}
		var n int
		if n, err = l.a.scq.Poll(wc); err != nil {
			return true
		}
		for _, c := range wc[:n] {
			if c.WRID != uint64(done) {
				err = fmt.Errorf("completion of request %d, want %d", c.WRID, done)
				return true
			}
			if status == rdma.WCSuccess {
				status = c.Status
			} else if c.Status != rdma.WCWRFlushErr {
				err = fmt.Errorf("%q after %q", c.Status, status)
				return true
			}
			if c.Status == rdma.WCSuccess && checked != nil && done > 0 {
				if err = checked(done); err != nil {
					return true
				}
			}
			done++
		}
		return status != rdma.WCSuccess && done == posted
	})
	if err == nil && !ok {
		err = fmt.Errorf("no failure within %v; %d of %d requests complete", patience, done, posted)
	}
	return status, err
}

// deregUnderFire closes a region while two peers write to it. When Close has
// returned the memory is the program's again: what it stores stays.
func deregUnderFire(r *rig) {
	rounds := unlessBrief(r, 12, 4)
	const size, depth = 64 << 10, 8
	for _, kind := range []MemoryKind{Ordinary, Allocated} {
		for round := range rounds {
			r.sub(fmt.Sprintf("%v_%d", kind, round), func(r *rig) {
				target, writers := r.sides[0], r.sides[1:]
				flags := target.region(target.pd, Allocated, 64, everything)
				m := target.region(target.pd, kind, size, everything)
				type end struct {
					status rdma.WCStatus
					err    error
				}
				ends := make(chan end, len(writers))
				for i, w := range writers {
					l := r.connect(w, target)
					src := w.filled(size, uint64(i))
					half := size / 2 // each writer has its own
					n := half >> (round % 4 * 3)
					go func() {
						status, err := l.fire(flags, 8*i, src, depth, func(k int) rdma.SendWR {
							return write(0, m, i*half+k*n%half, src.sge(0, n))
						}, nil)
						ends <- end{status, err}
					}()
				}
				for i := range writers {
					r.until("the first write", func() bool { return flags.Load64(8*i) != 0 })
				}
				for spin := time.Now().Add(time.Duration(round*70) * time.Microsecond); time.Now().Before(spin); {
				}
				r.closeRegion(m)
				after := m
				if kind == Allocated { // the next one is likely to get the same memory
					after = target.region(target.pd, Allocated, size, everything)
				}
				mark := pattern(99, size)
				after.Store(0, mark)
				for range writers {
					if e := <-ends; e.err != nil || !r.f.fits(e.status, rdma.WCRemAccessErr) {
						r.Errorf("a writer ended with %q, %v, want %q", e.status, e.err, rdma.WCRemAccessErr)
					}
				}
				r.same("memory after Close", after.Load(0, size), mark)
			})
		}
	}
}

// deregUnderReads: a read that succeeded brought what was there before Close.
func deregUnderReads(r *rig) {
	rounds := unlessBrief(r, 8, 3)
	const size, depth = 32 << 10, 4
	for round := range rounds {
		r.sub(fmt.Sprint(round), func(r *rig) {
			target, readers := r.sides[0], r.sides[1:]
			flags := target.region(target.pd, Allocated, 64, everything)
			m := target.region(target.pd, Ordinary, size, everything)
			old := pattern(uint64(round), size)
			m.Store(0, old)
			ends := make(chan error, len(readers))
			for i, w := range readers {
				l := r.connect(w, target)
				got, one := w.memory(depth*size), w.memory(64)
				one.store64(0, 1)
				go func() {
					status, err := l.fire(flags, 8*i, one, depth, func(k int) rdma.SendWR {
						return read(0, m, 0, got.sge(k%depth*size, size))
					}, func(k int) error {
						if b := got.Load(k%depth*size, size); string(b) != string(old) {
							return fmt.Errorf("read %d brought bytes that were stored after Close", k)
						}
						return nil
					})
					if err == nil && !r.f.fits(status, rdma.WCRemAccessErr) {
						err = fmt.Errorf("status %q, want %q", status, rdma.WCRemAccessErr)
					}
					ends <- err
				}()
			}
			for i := range readers {
				r.until("the first read", func() bool { return flags.Load64(8*i) != 0 })
			}
			for spin := time.Now().Add(time.Duration(round*150) * time.Microsecond); time.Now().Before(spin); {
			}
			r.closeRegion(m)
			m.Store(0, pattern(^uint64(round), size))
			for range readers {
				r.must(<-ends, "a reader")
			}
		})
	}
}

// deregWaiting closes a region that a peer's request, held up by a missing
// receive, names: the request finds the key stale when its turn comes.
func deregWaiting(r *rig, a, b *side) {
	src, dst := a.memory(64), b.memory(64)
	l := r.link()
	a.untilRNR(1, func() { l.send(send(1), write(2, dst, 0, src.sge(0, 8))) })
	start := time.Now()
	r.closeRegion(dst)
	if took := time.Since(start); took > 2*time.Second {
		r.Errorf("Close took %v", took)
	}
	l.recv(receive(3))
	a.done(a.scq, 1)
	a.want(a.scq, 2, rdma.WCRemAccessErr)
	b.done(b.rcq, 3)
}
