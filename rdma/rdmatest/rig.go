package rdmatest

import (
	"errors"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/rdma"
)

// everything is every right a region may give.
const everything = rdma.AccessLocalWrite | rdma.AccessRemoteWrite | rdma.AccessRemoteRead | rdma.AccessRemoteAtomic

// A rig is what one case works on: its nodes with the usual objects, and what
// it made with them, closed in reverse at its end.
type rig struct {
	*testing.T
	f     Fabric
	rule  string // group/rule
	sides []*side
	owned []io.Closer
}

// A side is one node of a rig.
type side struct {
	r        *rig
	index    int
	node     Node
	ctx      rdma.Context
	pd       rdma.PD
	scq, rcq rdma.CQ // of the queue pairs of connect
}

// newRig opens n nodes and gives each a domain and two completion queues.
func newRig(t *testing.T, f Fabric, rule string, n int) *rig {
	t.Helper()
	nodes := f.Open(t, n)
	if len(nodes) != n {
		t.Fatalf("the fabric opened %d nodes, want %d", len(nodes), n)
	}
	r := &rig{T: t, f: f, rule: rule}
	t.Cleanup(r.closeAll)
	for i, node := range nodes {
		s := &side{r: r, index: i, node: node, ctx: node.Context()}
		s.pd = s.newPD()
		s.scq, s.rcq = s.newCQ(256), s.newCQ(256)
		r.sides = append(r.sides, s)
	}
	for _, s := range r.sides {
		for _, to := range r.sides {
			introduce(t, s.ctx, to.ctx)
		}
	}
	return r
}

// introduce tells from how to reach to.
func introduce(t testing.TB, from, to rdma.Context) {
	t.Helper()
	there, ok := to.(rdma.Endpointer)
	if !ok {
		return
	}
	gid, err := to.QueryGID(1, 0)
	if err != nil {
		t.Fatalf("QueryGID(1, 0): %v", err)
	}
	if err := from.(rdma.Endpointer).AddEndpoint(gid, there.Endpoint()); err != nil {
		t.Fatalf("AddEndpoint(%v): %v", gid, err)
	}
}

// sub runs a part of the case as a subtest that closes its own objects.
func (r *rig) sub(name string, run func(*rig)) {
	r.Helper()
	rule := r.rule + "/" + strings.ReplaceAll(name, " ", "_")
	if r.f.differs(rule) {
		return
	}
	r.T.Run(name, func(t *testing.T) {
		sub := &rig{T: t, f: r.f, rule: rule}
		for _, s := range r.sides {
			mine := *s
			mine.r = sub
			sub.sides = append(sub.sides, &mine)
		}
		t.Cleanup(sub.closeAll)
		run(sub)
	})
}

func (r *rig) own(c io.Closer) { r.owned = append(r.owned, c) }

func (r *rig) closeAll() {
	for i := len(r.owned) - 1; i >= 0; i-- {
		if err := r.owned[i].Close(); err != nil {
			r.Errorf("closing a %T at the end: %v", r.owned[i], err)
		}
	}
	r.owned = nil
}

// close closes an object of the rig now and without an error.
func (r *rig) close(c io.Closer) {
	r.Helper()
	r.disown(c)
	if err := c.Close(); err != nil {
		r.Fatalf("closing a %T: %v", c, err)
	}
}

func (r *rig) disown(c io.Closer) {
	for i, o := range r.owned {
		if o == c {
			r.owned = append(r.owned[:i:i], r.owned[i+1:]...)
			return
		}
	}
	r.Fatalf("a %T that the rig does not own", c)
}

func (s *side) newPD() rdma.PD {
	s.r.Helper()
	pd, err := s.ctx.AllocPD()
	if err != nil {
		s.r.Fatalf("AllocPD: %v", err)
	}
	s.r.own(pd)
	return pd
}

func (s *side) newCQ(cqe int) rdma.CQ {
	s.r.Helper()
	cq, err := s.ctx.CreateCQ(cqe)
	if err != nil {
		s.r.Fatalf("CreateCQ(%d): %v", cqe, err)
	}
	s.r.own(cq)
	return cq
}

// memory makes n bytes of the fabric's usual kind with all rights.
func (s *side) memory(n int) Region {
	s.r.Helper()
	return s.region(s.pd, s.r.f.Memory, n, everything)
}

func (s *side) region(pd rdma.PD, kind MemoryKind, n int, access rdma.Access) Region {
	s.r.Helper()
	m, err := s.node.Memory(pd, kind, n, access)
	if err != nil {
		s.r.Fatalf("register %d bytes of %v memory with %v: %v", n, kind, access, err)
	}
	s.r.own(m.MR)
	return m
}

// closeRegion deregisters one region now.
func (r *rig) closeRegion(m Region) {
	r.Helper()
	r.close(m.MR)
}

// poll is one look at the queue for one completion.
func (s *side) poll(cq rdma.CQ) (rdma.WC, bool) {
	s.r.Helper()
	var wc [1]rdma.WC
	n, err := cq.Poll(wc[:])
	if err != nil {
		s.r.Fatalf("Poll: %v", err)
	}
	if n < 0 || n > 1 {
		s.r.Fatalf("Poll of one completion gave %d", n)
	}
	return wc[0], n == 1
}

// next waits for the next completion. Only this queue is polled: the other
// side has to do its part without help.
func (s *side) next(cq rdma.CQ) rdma.WC {
	s.r.Helper()
	var wc rdma.WC
	s.r.until("a completion", func() bool {
		var ok bool
		wc, ok = s.poll(cq)
		return ok
	})
	return wc
}

// want waits for the next completion and checks identity and status.
func (s *side) want(cq rdma.CQ, id uint64, status rdma.WCStatus) rdma.WC {
	s.r.Helper()
	wc := s.next(cq)
	if wc.WRID != id || !s.r.f.fits(wc.Status, status) {
		s.r.Fatalf("side %d: completion of request %d is %q, want request %d %q", s.index, wc.WRID, wc.Status, id, status)
	}
	return wc
}

// fits tells whether a status will do where want is due.
func (f Fabric) fits(got, want rdma.WCStatus) bool {
	if f.Inexact && want != rdma.WCSuccess {
		return got != rdma.WCSuccess
	}
	return got == want
}

// none checks that the queue is empty now. The caller has made sure that what
// must not be there would be there.
func (s *side) none(cq rdma.CQ) {
	s.r.Helper()
	if wc, ok := s.poll(cq); ok {
		s.r.Fatalf("side %d: an unexpected completion: request %d, %q, opcode %d", s.index, wc.WRID, wc.Status, wc.Opcode)
	}
}

// until waits for an event, with back-off so that peers get the processor.
func (r *rig) until(what string, done func() bool) {
	r.Helper()
	if !waitFor(r.f.Patience, done) {
		r.Fatalf("%s did not come within %v", what, r.f.Patience)
	}
}

func waitFor(patience time.Duration, done func() bool) bool {
	deadline := time.Now().Add(patience)
	for i := 0; !done(); i++ {
		switch {
		case i < 500:
			runtime.Gosched()
		case time.Now().After(deadline):
			return done()
		default:
			time.Sleep(50 * time.Microsecond)
		}
	}
	return true
}

// state waits until the queue pair is in the state.
func (s *side) state(qp rdma.QP, want rdma.QPState) {
	s.r.Helper()
	if !waitFor(s.r.f.Patience, func() bool { return qp.State() == want }) {
		s.r.Fatalf("side %d: the queue pair is in %v, want %v", s.index, qp.State(), want)
	}
}

// wantErr checks that err is there and wraps target.
func (r *rig) wantErr(what string, err, target error) {
	r.Helper()
	if !errors.Is(err, target) {
		r.Errorf("%s: error %v, want one wrapping %q", what, err, target)
	}
}

// same compares memory and names the first difference.
func (r *rig) same(what string, got, want []byte) {
	r.Helper()
	if len(got) != len(want) {
		r.Fatalf("%s: %d bytes, want %d", what, len(got), len(want))
	}
	for i := range got {
		if got[i] != want[i] {
			bad := 0
			for j := range got {
				if got[j] != want[j] {
					bad++
				}
			}
			r.Fatalf("%s: byte %d of %d is %#02x, want %#02x (%d bytes differ)", what, i, len(got), got[i], want[i], bad)
		}
	}
}

// pattern gives n bytes that no other seed gives and no shift of it repeats.
func pattern(seed uint64, n int) []byte {
	rng := rand.NewPCG(seed, 0x9e3779b97f4a7c15)
	b := make([]byte, n)
	for i := 0; i < n; i += 8 {
		v := rng.Uint64()
		for j := i; j < n && j < i+8; j++ {
			b[j] = byte(v)
			v >>= 8
		}
	}
	return b
}
