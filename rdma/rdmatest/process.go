package rdmatest

import (
	"github.com/gorun-mpi/gorun/rdma"
)

func processCases() []testCase {
	processes := func(f Fabric) bool { return f.Processes }
	return []testCase{
		{name: "process/one_sided_work_needs_no_target", nodes: 2, run: processStopped, when: processes},
		{name: "process/stopped_target_is_waited_for", nodes: 2, run: processWaits, when: processes},
	}
}

// stopper is a node whose process can stand still.
type stopper interface {
	Stop() error
	Continue() error
}

// processStopped does everything to a process that does not run at all. A
// device that calls itself one-sided completes it.
func processStopped(r *rig) {
	a, b := r.sides[0], r.sides[1]
	if !a.ctx.QueryDevice().OneSided || !b.ctx.QueryDevice().OneSided {
		return // processWaits has it
	}
	for _, kind := range kinds(r) {
		r.sub(kind.String(), func(r *rig) {
			a, b := r.sides[0], r.sides[1]
			src, dst := a.memory(8192), b.region(b.pd, kind, 8192, everything)
			src.Store(0, pattern(1, 8192))
			l := r.link()
			l.recv(receive(10, dst.sge(4096, 64)), receive(11))
			target := b.node.(stopper)
			if err := target.Stop(); err != nil {
				r.Fatalf("stop the target: %v", err)
			}
			defer target.Continue()
			l.send(write(1, dst, 0, src.sge(0, 4000)), read(2, dst, 0, src.sge(4096, 4000)), fetchAdd(3, dst, 4088, 5, src.sge(8184, 8)),
				compareSwap(4, dst, 4088, 5, 9, src.sge(8176, 8)), send(5, src.sge(0, 64)), writeImm(6, 7, dst, 8000, src.sge(0, 8)))
			for id := uint64(1); id <= 6; id++ {
				a.want(a.scq, id, rdma.WCSuccess)
			}
			r.same("read from a stopped process", src.Load(4096, 4000), pattern(1, 4000))
			if err := target.Continue(); err != nil {
				r.Fatalf("continue the target: %v", err)
			}
			b.want(b.rcq, 10, rdma.WCSuccess)
			b.want(b.rcq, 11, rdma.WCSuccess)
			r.same("written to a stopped process", dst.Load(0, 4000), pattern(1, 4000))
			r.same("sent to a stopped process", dst.Load(4096, 64), pattern(1, 64))
			if got := dst.Load64(4088); got != 9 {
				r.Errorf("the atomics on a stopped process left %d, want 9", got)
			}
		})
	}
}

// processWaits posts to a stopped process with no limit of time; all is done
// when it goes on.
func processWaits(r *rig) {
	a, b := r.sides[0], r.sides[1]
	src, dst := a.memory(64<<10), b.memory(64<<10)
	src.Store(0, pattern(1, 64<<10))
	l := r.link(func(u *setup) { u.attr.Timeout = 0 })
	l.recv(receive(10, dst.sge(0, 64)))
	target := b.node.(stopper)
	if err := target.Stop(); err != nil {
		r.Fatalf("stop the target: %v", err)
	}
	defer target.Continue()
	l.send(send(1, src.sge(0, 64)), write(2, dst, 64, src.sge(64, 60_000)), fetchAdd(3, dst, 64_000, 1, src.sge(64_000, 8)))
	for range 1000 { // whatever completes now is fine, an error is not
		if wc, ok := a.poll(a.scq); ok {
			if wc.Status != rdma.WCSuccess {
				r.Fatalf("request %d to a stopped process: %q", wc.WRID, wc.Status)
			}
			if wc.WRID == 3 {
				return
			}
		}
	}
	if err := target.Continue(); err != nil {
		r.Fatalf("continue the target: %v", err)
	}
	for a.next(a.scq).WRID != 3 {
	}
	b.want(b.rcq, 10, rdma.WCSuccess)
	r.same("sent and written", dst.Load(0, 60_000), pattern(1, 60_000))
}
