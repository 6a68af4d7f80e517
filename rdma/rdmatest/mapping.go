package rdmatest

import (
	"fmt"
	"runtime"
	"time"

	"github.com/gorun-mpi/gorun/rdma"
)

// The cases here ask nothing of a context that is no Mapper, nor of a peer
// that it cannot map.

func mapCases() []testCase {
	return []testCase{
		{name: "map/is_the_peers_memory", nodes: 2, run: viewing(mapMemory)},
		{name: "map/takes_no_bad_name", nodes: 2, run: viewing(mapRefused)},
		{name: "map/own_memory", nodes: 1, run: viewing(mapOwn)},
		{name: "map/unknown_peer_is_EINVAL", nodes: 1, run: single(mapUnknown)},
		{name: "map/ordinary_memory_is_ENOTSUP", nodes: 2, run: pair(mapOrdinary)},
		{name: "map/agrees_with_requests", nodes: 2, run: viewing(mapBesideRequests)},
		{name: "map/notify_wakes_a_sleeper", nodes: 2, run: pair(mapNotify)},
		{name: "map/makes_no_garbage", nodes: 2, run: viewing(mapGarbage), long: true},
	}
}

// viewing makes a case of a function that needs a view of side 1, or on one node of itself.
func viewing(run func(r *rig, a, b *side, p rdma.PeerMemory)) func(*rig) {
	return func(r *rig) {
		a, b := r.sides[0], r.sides[len(r.sides)-1]
		if p := a.view(b); p != nil {
			run(r, a, b, p)
		}
	}
}

const readWrite = rdma.AccessRemoteRead | rdma.AccessRemoteWrite

// view gives side s's view of another, nil where the device has none.
func (s *side) view(of *side) rdma.PeerMemory {
	s.r.Helper()
	m, ok := s.ctx.(rdma.Mapper)
	if !ok {
		return nil
	}
	p, err := m.Peer(of.gid())
	if err != nil {
		s.r.wantErr("Peer", err, rdma.ErrNotSupported)
		return nil
	}
	return p
}

func (s *side) gid() rdma.GID {
	s.r.Helper()
	return result(s.ctx.QueryGID(1, 0)).must(s.r, "QueryGID(1, 0)")
}

func (r *rig) mapped(p rdma.PeerMemory, m Region, off, n int, access rdma.Access) []byte {
	r.Helper()
	b := result(p.Map(m.Base+uint64(off), m.RKey(), n, access)).must(r, "Map %d bytes at %d for %v", n, off, access)
	if len(b) != n || cap(b) != n {
		r.Fatalf("Map of %d bytes gave %d of %d", n, len(b), cap(b))
	}
	return b
}

// mapMemory: what one side stores the other loads, in both directions.
func mapMemory(r *rig, a, b *side, p rdma.PeerMemory) {
	const size = 10_000
	m := b.region(b.pd, Allocated, size, everything)
	all := r.mapped(p, m, 0, size, readWrite)
	m.Store(0, pattern(1, size))
	r.same("what the peer stored", all, pattern(1, size))
	copy(all, pattern(2, size))
	r.same("what was stored by way of the view", m.Load(0, size), pattern(2, size))
	part := r.mapped(p, m, 4097, 3, rdma.AccessRemoteRead)
	r.same("a part", part, pattern(2, size)[4097:4100])
	r.mapped(p, m, size, 0, rdma.AccessRemoteRead)

	zero := b.region(b.pd, Allocated, 64, everything|rdma.AccessZeroBased)
	zero.Store(0, pattern(3, 64))
	r.same("a zero-based region", r.mapped(p, zero, 8, 8, readWrite), pattern(3, 64)[8:16])
}

// mapRefused violates what a request is checked for. Not a byte of what is next
// to the region comes out.
func mapRefused(r *rig, a, b *side, p rdma.PeerMemory) {
	const size, top = 4096, ^uint64(0)
	closed := b.region(b.pd, Allocated, size, everything)
	r.closeRegion(closed)
	good := b.region(b.pd, Allocated, size, everything)
	for _, bad := range []struct {
		name   string
		addr   uint64
		rkey   uint32
		length int
		access rdma.Access
	}{
		{"index", good.Base, good.RKey() ^ 0x00abcd00, 8, readWrite},
		{"largest index", good.Base, 0xffffff00 | good.RKey()&0xff, 8, readWrite},
		{"key 0", good.Base, 0, 8, readWrite},
		{"key", good.Base, good.RKey() ^ 1, 8, readWrite},
		{"stale key", closed.Base, closed.RKey(), 8, readWrite},
		{"before", good.Base - 8, good.RKey(), 8, readWrite},
		{"beyond", good.Base + size, good.RKey(), 8, readWrite},
		{"crosses the start", good.Base - 1, good.RKey(), 8, readWrite},
		{"crosses the end", good.Base + size - 7, good.RKey(), 8, readWrite},
		{"longer", good.Base, good.RKey(), size + 1, readWrite},
		{"wraps", top - 3, good.RKey(), 8, readWrite},
		{"wraps to the start", good.Base + 1, good.RKey(), int(^uint(0) >> 1), readWrite},
		{"negative", good.Base + 8, good.RKey(), -8, readWrite},
		{"local rights", good.Base, good.RKey(), 8, rdma.AccessLocalWrite},
	} {
		if got, err := p.Map(bad.addr, bad.rkey, bad.length, bad.access); err == nil {
			r.Errorf("%s: Map gave %d bytes", bad.name, len(got))
		} else {
			r.wantErr(bad.name, err, rdma.ErrInvalid)
		}
	}
	for _, right := range []rdma.Access{rdma.AccessRemoteRead, rdma.AccessRemoteWrite, rdma.AccessRemoteAtomic} {
		weak := b.region(b.pd, Allocated, size, everything&^right)
		result(p.Map(weak.Base, weak.RKey(), 8, right)).refused(r, fmt.Sprintf("%v of a region without it", right), rdma.ErrInvalid)
		r.mapped(p, weak, 0, 8, everything&^right&^rdma.AccessLocalWrite)
	}
	r.mapped(p, good, 0, size, readWrite)
	r.closeRegion(good)
	result(p.Map(good.Base, good.RKey(), 8, readWrite)).refused(r, "a key that has become stale", rdma.ErrInvalid)
}

func mapOwn(r *rig, a, _ *side, p rdma.PeerMemory) {
	m := a.region(a.pd, Allocated, 64, everything)
	copy(r.mapped(p, m, 0, 64, readWrite), pattern(1, 64))
	r.same("the own memory", m.Load(0, 64), pattern(1, 64))
	p.Notify()
	r.closeRegion(m)
	result(p.Map(m.Base, m.RKey(), 8, readWrite)).refused(r, "a stale key", rdma.ErrInvalid)
}

func mapUnknown(r *rig, a *side) {
	m, ok := a.ctx.(rdma.Mapper)
	if !ok {
		return
	}
	gid := a.gid()
	for i := range gid {
		gid[i] ^= 0x5a
	}
	result(m.Peer(gid)).refused(r, "Peer of a GID that nobody introduced", rdma.ErrInvalid)
}

// mapOrdinary: memory of the program is not mapped, in the same process
// neither, so that programs behave alike wherever their peers are.
func mapOrdinary(r *rig, a, _ *side) {
	for _, b := range r.sides {
		p := a.view(b)
		if p == nil {
			continue
		}
		for _, kind := range kinds(r)[1:] {
			m := b.region(b.pd, kind, 64, everything)
			result(p.Map(m.Base, m.RKey(), 8, readWrite)).refused(r, fmt.Sprintf("Map of %v memory", kind), rdma.ErrNotSupported)
		}
	}
}

// mapBesideRequests: requests and views reach the same bytes.
func mapBesideRequests(r *rig, a, b *side, p rdma.PeerMemory) {
	src, dst := a.memory(128), b.region(b.pd, Allocated, 128, everything)
	view := r.mapped(p, dst, 0, 128, readWrite)
	l := r.link()
	src.Store(0, pattern(1, 64))
	l.do(write(1, dst, 0, src.sge(0, 64)))
	r.same("what a write brought", view[:64], pattern(1, 64))
	copy(view[64:], pattern(2, 64))
	l.do(read(2, dst, 64, src.sge(64, 64)))
	r.same("what a read brought", src.Load(64, 64), pattern(2, 64))
}

// A bounce is one player of a ball that two programs play to each other by
// stores into the other's word and Notify; each sleeps until its turn comes.
type bounce struct {
	Mem    handle // at an agent: where the own word is
	GID    rdma.GID
	Addr   uint64 // of the other's word
	RKey   uint32
	Rounds int
	First  bool
}

// bounceSlow is what a Sleep that is not ended by a Notify takes at the least,
// in any device worth the name.
const bounceSlow = 8 * time.Millisecond

// run plays and tells how often the ball took bounceSlow to come.
func (b bounce) run(ctx rdma.Context, mine Region) (slow int, err error) {
	sl := ctx.(rdma.Sleeper)
	p, err := ctx.(rdma.Mapper).Peer(b.GID)
	if err != nil {
		return 0, err
	}
	theirs, err := p.Map(b.Addr, b.RKey, 8, rdma.AccessRemoteWrite)
	if err != nil {
		return 0, err
	}
	deadline := time.Now().Add(time.Minute)
	for k := uint64(1); k <= uint64(b.Rounds); k++ {
		if b.First {
			store64(theirs, k)
			p.Notify()
		}
		start := time.Now()
		for mine.Load64(0) != k {
			sl.Prepare()
			if mine.Load64(0) == k {
				sl.Cancel()
				break
			}
			if sl.Sleep(int64(time.Minute)); time.Now().After(deadline) {
				return slow, fmt.Errorf("the ball of round %d has not come, %d were slow", k, slow)
			}
		}
		sl.Cancel()
		if time.Since(start) >= bounceSlow {
			slow++
		}
		if !b.First {
			store64(theirs, k)
			p.Notify()
		}
	}
	return slow, nil
}

// bounce is how an agent plays.
func (a *agent) bounce(c *call, ans *answer) error {
	return on(a, c.Load.Bounce.Mem, func(mem Region) (err error) {
		ans.N, err = c.Load.Bounce.run(a.ctx, mem)
		return err
	})
}

// mapNotify plays some hundred rounds. Without Notify every one is slow; a busy
// machine makes a few.
func mapNotify(r *rig, a, b *side) {
	if _, ok := a.ctx.(rdma.Sleeper); !ok || a.view(b) == nil {
		return
	}
	const rounds = 400
	mine, theirs := a.region(a.pd, Allocated, 64, everything), b.region(b.pd, Allocated, 64, everything)
	play := bounce{GID: b.gid(), Addr: theirs.Base, RKey: theirs.RKey(), Rounds: rounds, First: true}
	back := bounce{GID: a.gid(), Addr: mine.Base, RKey: mine.RKey(), Rounds: rounds}
	type end struct {
		slow int
		err  error
	}
	ended := make(chan end, 1)
	go func() {
		var e end
		if p, ok := b.node.(interface {
			bounce(b bounce, mem Region) (int, error)
		}); ok {
			e.slow, e.err = p.bounce(back, theirs)
		} else {
			e.slow, e.err = back.run(b.ctx, theirs)
		}
		ended <- e
	}()
	slow, err := play.run(a.ctx, mine)
	e := <-ended
	if err != nil || e.err != nil {
		r.Fatalf("%v; the peer: %v", err, e.err)
	}
	if slow += e.slow; slow > rounds/2 {
		r.Errorf("%d of %d balls took %v or more: Notify does not end a Sleep", slow, 2*rounds, bounceSlow)
	}
}

// mapGarbage: programs map on their way.
func mapGarbage(r *rig, a, b *side, p rdma.PeerMemory) {
	m := b.region(b.pd, Allocated, 4096, everything)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	const calls = 10_000
	for i := range calls {
		if _, err := p.Map(m.Base+uint64(i%4000), m.RKey(), 64, readWrite); err != nil {
			r.Fatal(err)
		}
		p.Notify()
	}
	runtime.ReadMemStats(&after)
	if n := after.Mallocs - before.Mallocs; n > calls/100 {
		r.Errorf("%d allocations in %d calls of Map", n, calls)
	}
}

// bounce plays in the agent's process.
func (p *Proc) bounce(b bounce, mem Region) (slow int, err error) {
	b.Mem = handleOf(mem.MR)
	a, err := p.call(&call{Op: opBounce, Load: load{Bounce: b}})
	return a.N, err
}
