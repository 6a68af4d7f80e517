package dpa

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/shm"
	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rdma"
	"github.com/gorun-mpi/gorun/rdma/soft"
)

const all = rdma.AccessLocalWrite | rdma.AccessRemoteWrite | rdma.AccessRemoteRead | rdma.AccessRemoteAtomic

func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// A fabric says which devices a test runs on.
type fabric struct {
	seed uint64 // of what they do wrong, 0: nothing
	tcp  bool   // each on a host of its own
}

// domains gives n domains whose devices reach each other.
func domains(t testing.TB, n int, on fabric) []rdma.PD {
	t.Helper()
	segment := must[*shm.Segment](t)(shm.NewLocal(shm.Geometry{Ranks: n, ArenaSize: 4 << 20}))
	t.Cleanup(func() { segment.Close() })
	list := make([]rdma.PD, n)
	for i := range list {
		cfg := soft.Config{Segment: segment, Rank: i, Host: "host"}
		if on.tcp {
			cfg = soft.Config{Host: fmt.Sprint("host", i), Secret: []byte("a secret of this test and no job")}
		}
		if on.seed != 0 {
			cfg.Adversary = &soft.Adversary{Seed: on.seed*100 + uint64(i)}
		}
		p := must[*soft.Provider](t)(soft.New(cfg))
		devices := must[[]rdma.Device](t)(p.Devices())
		ctx := must[rdma.Context](t)(devices[0].Open())
		list[i] = must[rdma.PD](t)(ctx.AllocPD())
		t.Cleanup(func() {
			for _, c := range []interface{ Close() error }{list[i], ctx, p} {
				if err := c.Close(); err != nil {
					t.Errorf("close a %T: %v", c, err)
				}
			}
		})
	}
	for _, a := range list {
		for _, b := range list {
			gid := must[rdma.GID](t)(b.Context().QueryGID(1, 0))
			if err := a.Context().(rdma.Endpointer).AddEndpoint(gid, b.Context().(rdma.Endpointer).Endpoint()); err != nil {
				t.Fatal(err)
			}
		}
	}
	return list
}

// open makes a Context on a device of its own.
func open(t testing.TB, cfg Config) *Context {
	t.Helper()
	return openOn(t, domains(t, 1, fabric{})[0], cfg)
}

// openOn makes a Context that is closed with the test.
func openOn(t testing.TB, pd rdma.PD, cfg Config) *Context {
	t.Helper()
	c := must[*Context](t)(New(pd, cfg))
	t.Cleanup(func() { closed(t, c) })
	return c
}

// closed closes a Context that nothing is stuck in.
func closed(t testing.TB, c *Context) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Errorf("close the context: %v", err)
	}
}

func group(t testing.TB, c *Context, n int) *ThreadGroup {
	t.Helper()
	return must[*ThreadGroup](t)(c.NewThreadGroup(n))
}

func event(t testing.TB, c *Context, publisher, subscriber Location) *SyncEvent {
	t.Helper()
	return must[*SyncEvent](t)(c.NewSyncEvent(publisher, subscriber))
}

// launch launches a kernel and gives its completion event, which becomes 1.
func launched(t testing.TB, g *ThreadGroup, l Launch) *SyncEvent {
	t.Helper()
	l.Complete, l.Value = event(t, g.ctx, Device, CPU), 1
	if err := g.Launch(l); err != nil {
		t.Fatal(err)
	}
	return l.Complete
}

// soon is a context that no test should come to the end of.
func soon(t testing.TB) context.Context { return testenv.Deadline(t, 30*time.Second) }

// finished waits for a launch.
func finished(t testing.TB, done *SyncEvent) error {
	t.Helper()
	err := done.WaitGt(soon(t), 0)
	if v, got := done.Get(); got == nil && v != 1 {
		t.Errorf("the completion event is %d, want 1", v)
	}
	return err
}

// An end is a domain with a Context on it, and a queue pair in the hands of the device.
type end struct {
	pd   rdma.PD
	ctx  *Context
	done *CompletionContext
	recv *CompletionContext
	qp   rdma.QP
	rdma *RDMA
	mr   rdma.MR
}

// ends makes two ends with connected queue pairs.
func ends(t testing.TB, on fabric, depth int) (a, b *end) {
	t.Helper()
	list := domains(t, 2, on)
	pair := make([]*end, 2)
	for i := range pair {
		pair[i] = newEnd(t, list[i], depth)
	}
	for i, e := range pair {
		connect(t, e.qp, list[1-i], pair[1-i].qp.Num())
	}
	return pair[0], pair[1]
}

func newEnd(t testing.TB, pd rdma.PD, depth int) *end {
	t.Helper()
	e := &end{pd: pd}
	e.ctx = must[*Context](t)(New(pd, Config{Threads: 2}))
	e.done = must[*CompletionContext](t)(e.ctx.NewCompletionContext(2 * depth))
	e.recv = must[*CompletionContext](t)(e.ctx.NewCompletionContext(2 * depth))
	e.mr = must[rdma.MR](t)(pd.AllocMR(4096, all))
	e.qp = must[rdma.QP](t)(pd.CreateQP(rdma.QPInitAttr{Type: rdma.RC, SendCQ: e.done.CQ(), RecvCQ: e.recv.CQ(),
		Cap: rdma.QPCap{MaxSendWR: depth, MaxRecvWR: depth, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInlineData: 64}}))
	e.rdma = must[*RDMA](t)(e.ctx.NewRDMA(e.qp, e.done))
	t.Cleanup(func() {
		for _, c := range []interface{ Close() error }{e.ctx, e.qp, e.done, e.recv, e.mr} {
			if err := c.Close(); err != nil {
				t.Errorf("close a %T: %v", c, err)
			}
		}
	})
	return e
}

// connect brings a queue pair to RTS.
func connect(t testing.TB, qp rdma.QP, peer rdma.PD, num uint32) {
	t.Helper()
	gid := must[rdma.GID](t)(peer.Context().QueryGID(1, 0))
	attr := rdma.QPAttr{PortNum: 1, AccessFlags: all, AV: rdma.AV{DGID: gid, PortNum: 1, HopLimit: 1}, PathMTU: rdma.MTU1024,
		DestQPNum: num, MaxDestRdAtomic: 4, MaxRdAtomic: 4, MinRNRTimer: 1, Timeout: 14, RetryCnt: 7, RNRRetry: 7}
	for attr.State = rdma.StateInit; attr.State <= rdma.StateRTS; attr.State++ {
		if err := qp.Modify(attr, rdma.Required(rdma.RC, attr.State-1, attr.State)); err != nil {
			t.Fatal(err)
		}
	}
}

// piece is a part of the end's memory.
func (e *end) piece(at, n int) rdma.SGE {
	return rdma.SGE{Addr: e.mr.Addr() + uint64(at), Length: uint32(n), LKey: e.mr.LKey()}
}

// failure is the KernelError of a launch's completion event.
func failure(t testing.TB, done *SyncEvent) *KernelError {
	t.Helper()
	err := done.WaitGt(soon(t), 0)
	var failed *KernelError
	if !errors.As(err, &failed) {
		t.Fatalf("the completion event's error is %v, want a KernelError", err)
	}
	return failed
}

// goesOn checks that a group runs the next launch.
func goesOn(t testing.TB, g *ThreadGroup) {
	t.Helper()
	var ran atomic.Int32
	err := finished(t, launched(t, g, Launch{Kernel: func(*Thread) error { ran.Add(1); return nil }}))
	if err != nil || int(ran.Load()) != g.NumThreads() {
		t.Errorf("the next launch ran on %d threads of %d, error %v", ran.Load(), g.NumThreads(), err)
	}
}
