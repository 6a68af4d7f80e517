package rdmatest

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rdma"
)

// A Victim is a node whose process can be killed.
type Victim interface {
	Node
	// Kill returns when the process is dead.
	Kill() error
}

// A KillFabric makes three nodes that reach each other, one of them to be
// killed.
type KillFabric struct {
	// Open gives two nodes in this process and a victim in another. dead, when
	// not nil, is called after the victim's death, as a launcher would tell it.
	Open func(t testing.TB) (survivor, bystander Node, victim Victim, dead func())
	// Rounds, each with one kill, stop early when Budget is spent (never
	// before the first).
	Rounds  int
	Budget  time.Duration
	Seed    uint64
	Memory  MemoryKind
	Inexact bool
	// Patience is how long survivors may take to notice, 5 s where it is 0.
	Patience time.Duration
}

// RunKills kills a process in the middle of traffic in both directions, at a
// seeded point of time, and holds the survivors to the rules: every request to
// the dead completes with an error in bounded time, receives are flushed to the
// last one, messages that did arrive are whole, memory and queue pairs can be
// closed, and others' traffic goes on, on the same memory too.
func RunKills(t *testing.T, f KillFabric) {
	t.Helper()
	f.Patience = cmp.Or(f.Patience, 5*time.Second)
	end := time.Now().Add(f.Budget)
	rounds := 0
	for ; rounds < f.Rounds && (rounds == 0 || time.Now().Before(end)); rounds++ {
		ok := t.Run(fmt.Sprintf("kill_%d", rounds), func(t *testing.T) {
			testenv.NoLeaks(t)
			runKill(t, f, rand.New(rand.NewPCG(f.Seed, uint64(rounds))))
		})
		if !ok {
			return
		}
	}
	t.Logf("%d kills", rounds)
}

func runKill(t *testing.T, f KillFabric, rng *rand.Rand) {
	survivor, bystander, victim, dead := f.Open(t)
	killed := false
	fab := Fabric{Inexact: f.Inexact, Patience: f.Patience, Memory: f.Memory}
	fab.Open = func(testing.TB, int) []Node { return []Node{survivor, bystander, victim} }
	r := newRig(t, fab, "kill", 3)
	s, by, v := r.sides[0], r.sides[1], r.sides[2]
	// What the victim's agent holds dies with it.
	t.Cleanup(func() {
		if killed {
			r.forget()
		}
	})

	const depth, receives = 8, 256
	short := func(u *setup) {
		u.attr.Timeout, u.attr.RetryCnt = 10, 3 // 4.2 ms each
		u.cap.MaxRecvWR = receives
	}
	in := r.connect(v, s, short)  // the victim's traffic
	out := r.connect(s, v, short) // the survivor's
	beside := r.connect(by, s)

	mine, theirs := s.memory(churnMemory), v.memory(churnMemory)
	source, vsource := s.memory(churnMemory), v.memory(churnMemory)
	inbox := s.memory(receives * churnMessage)
	outCQ := s.scq
	for i := range receives {
		postRecv(r, in.qb, receive(uint64(i), inbox.sge(i*churnMessage, churnMessage)))
	}
	// Receives of the survivor run out: then the victim is in mid-retry.
	agent := victim.(interface {
		startChurn(c churn, qp rdma.QP, cq rdma.CQ, mem Region) error
	})
	c := churn{Base: mine.Base, RKey: mine.RKey(), Seed: rng.Uint64(), Depth: depth, Sends: true}
	if err := agent.startChurn(c, in.qa, v.scq, vsource); err != nil {
		t.Fatalf("start the victim's traffic: %v", err)
	}
	type end struct {
		status rdma.WCStatus
		err    error
		at     time.Time
	}
	ended := make(chan end, 1)
	back := churn{Base: theirs.Base, RKey: theirs.RKey(), Seed: rng.Uint64(), Depth: depth}
	go func() {
		deadline := time.Now().Add(2 * f.Patience)
		status, err := back.run(out.qa, outCQ, source, func() bool { runtime.Gosched(); return time.Now().After(deadline) })
		ended <- end{status, err, time.Now()}
	}()
	r.until("the victim's first write", func() bool { return mine.Load64(churnFlag) != 0 })
	for moment := time.Now().Add(time.Duration(rng.IntN(2500)) * time.Microsecond); time.Now().Before(moment); {
		runtime.Gosched()
	}
	if err := victim.Kill(); err != nil {
		t.Fatalf("kill: %v", err)
	}
	killed = true
	death := time.Now()
	if dead != nil {
		dead()
	}

	e := <-ended
	if e.err != nil || !fab.fits(e.status, rdma.WCRetryExcErr) {
		t.Errorf("the survivor's traffic ended with %q, %v, want %q", e.status, e.err, rdma.WCRetryExcErr)
	}
	if took := e.at.Sub(death); took > f.Patience {
		t.Errorf("the survivor noticed after %v, want at most %v", took, f.Patience)
	}
	r.until("the flush of the survivor's requests", func() bool {
		if wc, ok := s.poll(outCQ); ok && wc.Status != rdma.WCWRFlushErr {
			t.Errorf("behind the first failure: request %d, %q", wc.WRID, wc.Status)
		}
		return out.qa.State() == rdma.StateErr
	})
	checkInbox(r, in, inbox, receives)

	// The dead peer holds nothing of ours: the memory it was writing to works
	// for others, atomics on the word it was adding to included.
	from := by.memory(64)
	before := mine.Load64(churnWord)
	for i := range uint64(20) {
		beside.do(fetchAdd(i, mine, churnWord, 1, from.sge(0, 8)), write(100+i, mine, churnData, from.sge(8, 8)))
		if got := from.Load64(0); got != before+i {
			t.Fatalf("atomic %d beside the dead fetched %d, want %d", i, got, before+i)
		}
	}
	start := time.Now()
	r.closeRegion(mine)
	r.close(in.qb, out.qa)
	r.closeRegion(inbox)
	if took := time.Since(start); took > f.Patience {
		t.Errorf("closing what the dead peer used took %v", took)
	}
	beside.works(1000)
	s.none(s.rcq)
}

// checkInbox fails the survivor's queue pair and takes all its receives: whole
// messages first, in order, then flushes, each receive exactly once.
func checkInbox(r *rig, in *link, inbox Region, receives int) {
	r.Helper()
	s := in.b
	own := s.memory(8)
	// Its requests fail too: that takes the queue pair to ERR.
	post(r, in.qb, rdma.SendWR{WRID: 5000, Opcode: rdma.WRSend, SGL: []rdma.SGE{own.sge(0, 8)}})
	seen := false
	r.until("the failure of a send to the dead", func() bool {
		wc, ok := s.poll(s.scq)
		if ok && wc.WRID == 5000 {
			seen = true
			if wc.Status == rdma.WCSuccess || wc.Status != rdma.WCWRFlushErr && !r.f.fits(wc.Status, rdma.WCRetryExcErr) {
				r.Errorf("a send to the dead: %q, want %q", wc.Status, rdma.WCRetryExcErr)
			}
		}
		return seen
	})
	flushing := false
	for i := range receives {
		wc := s.next(s.rcq)
		if wc.WRID != uint64(i) {
			r.Fatalf("receive %d completed when %d was due", wc.WRID, i)
		}
		switch {
		case wc.Status == rdma.WCSuccess && !flushing:
			got := inbox.Load(i*churnMessage, churnMessage)
			for w := 0; w < churnMessage; w += 8 {
				if v := binary.NativeEndian.Uint64(got[w:]); v != uint64(i+1) || wc.ByteLen != churnMessage {
					r.Fatalf("message %d (%d bytes): word %d is %d, want %d", i, wc.ByteLen, w/8, v, i+1)
				}
			}
		case wc.Status == rdma.WCWRFlushErr:
			flushing = true
		default:
			r.Fatalf("receive %d: %q (flushing %v)", i, wc.Status, flushing)
		}
	}
}

// startChurn starts traffic in the agent's process.
func (p *Proc) startChurn(c churn, qp rdma.QP, cq rdma.CQ, mem Region) error {
	c.QP, c.CQ, c.Mem = handleOf(qp), handleOf(cq), handleOf(mem.MR)
	return p.do(&call{Op: opChurn, Load: load{Churn: c}})
}

// forget drops the objects of processes, which have gone with them.
func (r *rig) forget() {
	r.owned = slices.DeleteFunc(r.owned, func(o io.Closer) bool { return handleOf(o) != 0 })
}
