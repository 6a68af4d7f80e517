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

// pair makes a case, or a part of one, of a function of the first two sides.
func pair(run func(r *rig, a, b *side)) func(*rig) {
	return func(r *rig) { run(r, r.sides[0], r.sides[1]) }
}

// single makes a case of a function of the only side.
func single(run func(r *rig, s *side)) func(*rig) {
	return func(r *rig) { run(r, r.sides[0]) }
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

// close closes objects of the rig now and without an error.
func (r *rig) close(objects ...io.Closer) {
	r.Helper()
	for _, c := range objects {
		r.disown(c)
		r.must(c.Close(), "closing a %T", c)
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
	return result(s.ctx.AllocPD()).owned(s.r, "AllocPD")
}

func (s *side) newCQ(cqe int) rdma.CQ {
	s.r.Helper()
	return result(s.ctx.CreateCQ(cqe)).owned(s.r, "CreateCQ(%d)", cqe)
}

// memory makes n bytes of the fabric's usual kind with all rights.
func (s *side) memory(n int) Region {
	s.r.Helper()
	return s.region(s.pd, s.r.f.Memory, n, everything)
}

// filled is memory that holds the pattern of the seed.
func (s *side) filled(n int, seed uint64) Region {
	s.r.Helper()
	m := s.memory(n)
	m.Store(0, pattern(seed, n))
	return m
}

func (s *side) region(pd rdma.PD, kind MemoryKind, n int, access rdma.Access) Region {
	s.r.Helper()
	m := result(s.node.Memory(pd, kind, n, access)).must(s.r, "register %d bytes of %v memory with %v", n, kind, access)
	s.r.own(m.MR)
	return m
}

// closeRegion deregisters regions now.
func (r *rig) closeRegion(regions ...Region) {
	r.Helper()
	for _, m := range regions {
		r.close(m.MR)
	}
}

// poll is one look at the queue for one completion.
func (s *side) poll(cq rdma.CQ) (rdma.WC, bool) {
	s.r.Helper()
	var wc [1]rdma.WC
	n := result(cq.Poll(wc[:])).must(s.r, "Poll")
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

// done waits for the successes of requests, in this order, and gives the last.
func (s *side) done(cq rdma.CQ, ids ...uint64) (last rdma.WC) {
	s.r.Helper()
	for _, id := range ids {
		last = s.want(cq, id, rdma.WCSuccess)
	}
	return last
}

// ids are n requests' from first on.
func ids(first uint64, n int) []uint64 {
	list := make([]uint64, n)
	for i := range list {
		list[i] = first + uint64(i)
	}
	return list
}

// fail waits for the failure of a request, and the flush of those behind it.
func (s *side) fail(cq rdma.CQ, status rdma.WCStatus, id uint64, behind ...uint64) {
	s.r.Helper()
	s.want(cq, id, status)
	for _, id := range behind {
		s.want(cq, id, rdma.WCWRFlushErr)
	}
}

// unlessBrief gives the usual number, or the brief one where the fabric is to be brief.
func unlessBrief[N int | uint64](r *rig, usual, brief N) N {
	if r.f.Brief {
		return brief
	}
	return usual
}

// unlessSlow is unlessBrief, also for an adversarial device, which does nothing fast.
func unlessSlow[N int | uint64](r *rig, usual, brief N) N {
	if r.f.Adversarial {
		return brief
	}
	return unlessBrief(r, usual, brief)
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

// quiet checks that no queue of connect's holds anything now.
func (r *rig) quiet() {
	r.Helper()
	for _, s := range r.sides {
		s.none(s.scq)
		s.none(s.rcq)
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

// untilRNR does something, and waits until requests of the side have met no receive n
// times since. Nothing completes meanwhile.
func (s *side) untilRNR(n uint64, do func()) {
	s.r.Helper()
	before := s.ctx.Counters().RNRRetries
	do()
	s.r.until("an RNR retry", func() bool {
		s.none(s.scq)
		return s.ctx.Counters().RNRRetries-before >= n
	})
}

// state waits until the queue pair is in the state.
func (s *side) state(qp rdma.QP, want rdma.QPState) {
	s.r.Helper()
	if !waitFor(s.r.f.Patience, func() bool { return qp.State() == want }) {
		s.r.Fatalf("side %d: the queue pair is in %v, want %v", s.index, qp.State(), want)
	}
}

// must ends the case where err is not nil. The format says what was tried.
func (r *rig) must(err error, format string, args ...any) {
	r.Helper()
	if err != nil {
		r.Fatalf(format+": %v", append(args, err)...)
	}
}

// An outcome is what a call gave that must not fail.
type outcome[T any] struct {
	v   T
	err error
}

func result[T any](v T, err error) outcome[T] { return outcome[T]{v, err} }

func (o outcome[T]) must(r *rig, format string, args ...any) T {
	r.Helper()
	r.must(o.err, format, args...)
	return o.v
}

// owned leaves it to the rig to close what was made.
func (o outcome[T]) owned(r *rig, format string, args ...any) T {
	r.Helper()
	r.must(o.err, format, args...)
	r.own(any(o.v).(io.Closer))
	return o.v
}

// refused checks that nothing was made, and no request taken, and that the error wraps
// target, or is any where that is nil. What was made all the same is the rig's to close.
func (o outcome[T]) refused(r *rig, what string, target error) {
	r.Helper()
	if n, ok := any(o.v).(int); ok && n != 0 {
		r.Errorf("%s: took %d", what, n)
	}
	if target != nil {
		r.wantErr(what, o.err, target)
	} else if o.err == nil {
		r.Errorf("%s: no error", what)
	}
	if c, ok := any(o.v).(io.Closer); ok && o.err == nil {
		r.own(c)
	}
}

// wantErr checks that err is there and wraps target.
func (r *rig) wantErr(what string, err, target error) {
	r.Helper()
	if !errors.Is(err, target) {
		r.Errorf("%s: error %v, want one wrapping %q", what, err, target)
	}
}

// equal compares what is there with what should be. The format ends where the value is named.
func equal[T comparable](r *rig, got, want T, format string, args ...any) {
	r.Helper()
	if got != want {
		r.Fatalf(format+" %v, want %v", append(args, got, want)...)
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
