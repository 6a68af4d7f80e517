package rdmatest

import "github.com/gorun-mpi/gorun/rdma"

func processCases() []testCase {
	processes := func(f Fabric) bool { return f.Processes }
	return []testCase{
		{name: "process/one_sided_work_needs_no_target", nodes: 2, run: pair(processStopped), when: processes},
		{name: "process/stopped_target_is_waited_for", nodes: 2, run: pair(processWaits), when: processes},
	}
}

// stopper is a node whose process can stand still.
type stopper interface {
	Stop() error
	Continue() error
}

// processStopped does everything to a process that does not run at all. A
// device that calls itself one-sided completes it.
func processStopped(r *rig, a, b *side) {
	if !a.ctx.QueryDevice().OneSided || !b.ctx.QueryDevice().OneSided {
		return // processWaits has it
	}
	for _, kind := range kinds(r) {
		r.sub(kind.String(), pair(func(r *rig, a, b *side) {
			src, dst := a.filled(8192, 1), b.region(b.pd, kind, 8192, everything)
			l := r.link()
			l.recv(receive(10, dst.sge(4096, 64)), receive(11))
			target := b.node.(stopper)
			r.must(target.Stop(), "stop the target")
			defer target.Continue()
			l.do(write(1, dst, 0, src.sge(0, 4000)), read(2, dst, 0, src.sge(4096, 4000)), fetchAdd(3, dst, 4088, 5, src.sge(8184, 8)),
				compareSwap(4, dst, 4088, 5, 9, src.sge(8176, 8)), send(5, src.sge(0, 64)), writeImm(6, 7, dst, 8000, src.sge(0, 8)))
			r.same("read from a stopped process", src.Load(4096, 4000), pattern(1, 4000))
			r.must(target.Continue(), "continue the target")
			b.done(b.rcq, 10, 11)
			r.same("written to a stopped process", dst.Load(0, 4000), pattern(1, 4000))
			r.same("sent to a stopped process", dst.Load(4096, 64), pattern(1, 64))
			equal(r, dst.Load64(4088), 9, "the atomics on a stopped process left")
		}))
	}
}

// processWaits posts to a stopped process with no limit of time; all is done
// when it goes on.
func processWaits(r *rig, a, b *side) {
	src, dst := a.filled(64<<10, 1), b.memory(64<<10)
	l := r.link(func(u *setup) { u.attr.Timeout = 0 })
	l.recv(receive(10, dst.sge(0, 64)))
	target := b.node.(stopper)
	r.must(target.Stop(), "stop the target")
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
	r.must(target.Continue(), "continue the target")
	for a.next(a.scq).WRID != 3 {
	}
	b.done(b.rcq, 10)
	r.same("sent and written", dst.Load(0, 60_000), pattern(1, 60_000))
}
