package rdmatest

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/gorun-mpi/gorun/rdma"
)

// Side 1 has the windows and side 0 uses them.

func mwCases() []testCase {
	first := needing([]testCase{
		{name: "mw/type_1_shows_its_part_and_not_a_byte_more", nodes: 2, run: mwBounds1},
		{name: "mw/type_1_is_good_for_the_domain", nodes: 2, run: pair(mwDomain)},
		{name: "mw/type_1_rebinds_and_the_old_key_is_stale", nodes: 2, run: pair(mwRebind)},
		{name: "mw/type_1_length_0_unbinds", nodes: 2, run: pair(mwUnbind)},
		{name: "mw/rights_are_the_window's", nodes: 2, run: mwRights},
		{name: "mw/zero_based_window", nodes: 2, run: pair(mwZeroBased)},
		{name: "mw/bad_binds_of_type_1_are_MW_BIND_ERR", nodes: 2, run: mwBad1},
		{name: "mw/bound_region_is_EBUSY", nodes: 2, run: pair(mwBusy)},
		{name: "mw/closing_the_window_ends_the_key", nodes: 2, run: pair(mwClose)},
		{name: "mw/no_key_of_local_memory", nodes: 2, run: pair(mwLocal)},
		{name: "mw/nothing_is_touched_after_unbinding", nodes: 3, run: mwUnbindUnderFire},
	}, rdma.FeatureMW1)
	second := needing([]testCase{
		{name: "mw/type_2_shows_its_part_and_not_a_byte_more", nodes: 2, run: mwBounds2},
		{name: "mw/type_2_is_good_through_its_queue_pair_alone", nodes: 2, run: pair(mwOneQueue)},
		{name: "mw/type_2_must_be_free", nodes: 2, run: pair(mwMustBeFree)},
		{name: "mw/bad_binds_of_type_2_are_MW_BIND_ERR", nodes: 2, run: pair(mwBad2)},
		{name: "mw/bind_and_invalidate_in_the_order_of_the_queue", nodes: 2, run: pair(mwOrder)},
		{name: "mw/local_inv_frees_it", nodes: 2, run: pair(mwLocalInv)},
		{name: "mw/local_inv_of_what_it_cannot_is_refused", nodes: 2, run: pair(mwLocalInvBad)},
		{name: "mw/nothing_is_touched_after_local_inv", nodes: 2, run: mwLocalInvUnderFire},
		{name: "mw/queue_pair_of_a_bound_window_may_be_closed", nodes: 2, run: pair(mwPairFirst)},
		{name: "mw/every_verb_wants_its_type", nodes: 2, run: pair(mwTypes)},
	}, rdma.FeatureMW2)
	both := needing([]testCase{
		{name: "mw/send_with_inv_frees_it", nodes: 2, run: pair(mwSendInv)},
		{name: "mw/send_with_inv_of_what_it_cannot_is_REM_ACCESS_ERR", nodes: 2, run: mwSendInvBad},
	}, rdma.FeatureMW2, rdma.FeatureSendWithInv)
	return append(append(first, second...), both...)
}

const bindable = everything | rdma.AccessMWBind

func (s *side) window(typ rdma.MWType) rdma.MW {
	s.r.Helper()
	return result(s.pd.AllocMW(typ)).owned(s.r, "AllocMW(%v)", typ)
}

// keyed is a region under a key that is not its own.
type keyed struct {
	rdma.MR
	key uint32
}

func (k keyed) RKey() uint32 { return k.key }
func (k keyed) LKey() uint32 { return k.key }

// through is a part of m under a key that is not its own.
func through(m Region, off, n int, key uint32) Region {
	return Region{MR: keyed{m.MR, key}, Base: m.Base + uint64(off), Size: n, memory: m.memory}
}

// showing is the binding of n bytes of m from off.
func showing(m Region, off, n int, access rdma.Access) rdma.MWBind {
	return rdma.MWBind{MR: m.MR, Addr: m.Base + uint64(off), Length: uint64(n), Access: access}
}

const remoteAll = rdma.AccessRemoteWrite | rdma.AccessRemoteRead | rdma.AccessRemoteAtomic

// bind1 binds a window of type 1 on b's queue pair.
func (l *link) bind1(mw rdma.MW, id uint64, bind rdma.MWBind) {
	l.r.Helper()
	l.r.must(l.qb.BindMW(mw, id, rdma.SendSignaled, bind), "BindMW")
}

// show binds a window of either type to n bytes of m from off, and waits.
func (l *link) show(mw rdma.MW, m Region, off, n int, access rdma.Access) Region {
	l.r.Helper()
	const id = 4711
	bind := showing(m, off, n, access)
	if mw.Type() == rdma.MWType1 {
		l.bind1(mw, id, bind)
	} else {
		post(l.r, l.qb, bind2(id, mw, rdma.IncRKey(mw.RKey()), bind))
	}
	if wc := l.b.done(l.b.scq, id); wc.Opcode != rdma.WCBindMW {
		l.r.Errorf("the completion of a bind has opcode %d, want %d", wc.Opcode, rdma.WCBindMW)
	}
	return through(m, off, n, mw.RKey())
}

// bind2 is the binding of a window of type 2.
func bind2(id uint64, mw rdma.MW, key uint32, bind rdma.MWBind) rdma.SendWR {
	return rdma.SendWR{WRID: id, Opcode: rdma.WRBindMW, Flags: rdma.SendSignaled, MW: mw, RKey: key, Bind: &bind}
}

func localInv(id uint64, key uint32) rdma.SendWR {
	return rdma.SendWR{WRID: id, Opcode: rdma.WRLocalInv, Flags: rdma.SendSignaled, InvalidateRKey: key}
}

func sendInv(id uint64, key uint32, sgl ...rdma.SGE) rdma.SendWR {
	return rdma.SendWR{WRID: id, Opcode: rdma.WRSendWithInv, Flags: rdma.SendSignaled, InvalidateRKey: key, SGL: sgl}
}

// refused posts a request of side 0 that the window must refuse: link l is dead
// afterwards. m is the memory behind the window.
func (l *link) refused(what string, wr rdma.SendWR, m Region) {
	l.r.Helper()
	before := m.Load(0, m.Size)
	wr.WRID = 999
	l.send(wr)
	wc := l.a.next(l.a.scq)
	if wc.WRID != 999 || !l.r.f.fits(wc.Status, rdma.WCRemAccessErr) {
		l.r.Errorf("%s: request %d ended with %q, want %q", what, wc.WRID, wc.Status, rdma.WCRemAccessErr)
	}
	l.b.state(l.qb, rdma.StateErr)
	l.r.same(what, m.Load(0, m.Size), before)
}

// mwBounds writes and reads every border of a window.
func mwBounds(r *rig, typ rdma.MWType) {
	const size, from, n = 3 * 4096, 4096 - 40, 4096 + 80
	for _, kind := range []MemoryKind{Allocated, Ordinary} {
		for i, c := range []struct {
			off, n int
			ok     bool
		}{
			{0, n, true}, {0, 1, true}, {n - 1, 1, true}, {8, 64, true},
			{-1, 1, false}, {-1, 8, false}, {n, 1, false}, {n - 7, 8, false}, {-1, n + 1, false}, {0, n + 1, false}, {-from, size, false}, {1 << 40, 8, false}, {-(1 << 60), 8, false},
		} {
			r.sub(fmt.Sprintf("%v_%d_bytes_at_%d", kind, c.n, c.off), pair(func(r *rig, a, b *side) {
				m := b.region(b.pd, kind, size, bindable)
				src := a.filled(size, uint64(i))
				mw := b.window(typ)
				l := r.link()
				w := l.show(mw, m, from, n, remoteAll)
				if w.RKey() == m.RKey() {
					r.Error("the window has the region's key")
				}
				// The region's own key is as good as before.
				l.do(write(1, m, 0, src.sge(0, 8)))
				if !c.ok {
					l.refused("write", write(2, w, c.off, src.sge(0, c.n)), m)
					return
				}
				l.do(write(2, w, c.off, src.sge(0, c.n)))
				want := make([]byte, size)
				copy(want, pattern(uint64(i), size)[:8])
				copy(want[from+c.off:], pattern(uint64(i), size)[:c.n])
				r.same("written through a window", m.Load(0, size), want)
				got := a.memory(size)
				l.do(read(3, w, c.off, got.sge(0, c.n)))
				r.same("read through it", got.Load(0, c.n), want[from+c.off:from+c.off+c.n])
			}))
		}
	}
}

func mwBounds1(r *rig) { mwBounds(r, rdma.MWType1) }
func mwBounds2(r *rig) { mwBounds(r, rdma.MWType2) }

// mwDomain: a window of type 1 is bound through one queue pair and used through
// another of the domain, but not through one of another domain.
func mwDomain(r *rig, a, b *side) {
	m := b.region(b.pd, Ordinary, 64, bindable)
	mw := b.window(rdma.MWType1)
	src := a.filled(64, 1)
	w := r.link().show(mw, m, 0, 64, remoteAll)
	r.try("through_another_queue_pair", write(1, w, 0, src.sge(0, 64)), rdma.WCSuccess)
	r.same("written through another queue pair", m.Load(0, 64), pattern(1, 64))
	r.sub("through_another_domain", pair(func(r *rig, _, b *side) {
		b.pd = b.newPD()
		r.link().refused("write", write(2, w, 0, src.sge(8, 8)), m)
	}))
}

func mwRebind(r *rig, a, b *side) {
	first, second := b.region(b.pd, Ordinary, 64, bindable), b.region(b.pd, Allocated, 64, bindable)
	mw := b.window(rdma.MWType1)
	src := a.filled(64, 1)
	l := r.link()
	old := l.show(mw, first, 0, 64, remoteAll)
	l.do(write(1, old, 0, src.sge(0, 8)))
	w := l.show(mw, second, 16, 16, remoteAll)
	if w.RKey() == old.RKey() {
		r.Errorf("bound anew the window has the key %#x still", w.RKey())
	}
	l.do(write(2, w, 0, src.sge(0, 16)))
	r.closeRegion(first) // it is not bound any more
	for name, key := range map[string]uint32{"old_key_new_place": old.RKey(), "index_zero_key": old.RKey() &^ 0xff} {
		if key == w.RKey() {
			continue // one bind in 256 gives the window that very key
		}
		r.sub(name, func(r *rig) { r.link().refused(name, write(3, through(second, 16, 16, key), 0, src.sge(0, 8)), second) })
	}
	r.try("new_key_old_place", write(4, through(first, 0, 8, w.RKey()), 0, src.sge(0, 8)), rdma.WCRemAccessErr)
	want := make([]byte, 64)
	copy(want[16:], pattern(1, 64)[:16])
	r.same("the region that is shown now", second.Load(0, 64), want)
}

func mwUnbind(r *rig, a, b *side) {
	m := b.region(b.pd, Ordinary, 64, bindable)
	mw := b.window(rdma.MWType1)
	src := a.memory(64)
	l := r.link()
	w := l.show(mw, m, 0, 64, remoteAll)
	l.do(write(1, w, 0, src.sge(0, 8)))
	l.bind1(mw, 2, rdma.MWBind{})
	b.done(b.scq, 2)
	for name, key := range map[string]uint32{"old_key": w.RKey(), "next_key": mw.RKey()} {
		r.sub(name, func(r *rig) { r.link().refused(name, write(3, through(m, 0, 64, key), 0, src.sge(0, 8)), m) })
	}
	w = l.show(mw, m, 0, 64, remoteAll)
	l.do(write(4, w, 0, src.sge(0, 8)))
	l.bind1(mw, 5, rdma.MWBind{MR: m.MR, Addr: m.Base})
	b.done(b.scq, 5)
	r.closeRegion(m)
}

// mwRights: what may be done is what the window grants, whether the region's
// own key grants it or not.
func mwRights(r *rig) {
	for _, region := range []rdma.Access{rdma.AccessLocalWrite | rdma.AccessMWBind, bindable} {
		for granted := rdma.Access(0); granted <= remoteAll; granted += 2 {
			r.sub(fmt.Sprintf("%v_of_%v", granted, region), pair(func(r *rig, a, b *side) {
				m := b.region(b.pd, Ordinary, 64, region)
				mw := b.window(rdma.MWType1)
				src := a.memory(64)
				for _, op := range remoteOps(src.sge(0, 8)) {
					if op.wr.Opcode.Operation().Received != 0 {
						continue
					}
					l := r.link()
					w := l.show(mw, m, 8, 16, granted)
					wr := op.to(w.Base, w.RKey())
					wr.Flags = rdma.SendSignaled
					if granted&op.need == 0 {
						l.refused(op.name, wr, m)
						continue
					}
					l.send(wr)
					a.done(a.scq, 0)
				}
			}))
		}
	}
}

func mwZeroBased(r *rig, a, b *side) {
	for _, kind := range kinds(r) {
		m := b.region(b.pd, kind, 64, bindable)
		mw := b.window(rdma.MWType1)
		src := a.filled(64, 1)
		l := r.link()
		w := l.show(mw, m, 16, 32, remoteAll|rdma.AccessZeroBased)
		w.Base = 0
		l.do(write(1, w, 8, src.sge(0, 24)))
		want := make([]byte, 64)
		copy(want[24:], pattern(1, 64)[:24])
		r.same(kind.String()+" memory", m.Load(0, 64), want)
		l.refused("beyond", write(2, w, 25, src.sge(0, 8)), m)
		r.close(mw)
	}
}

// badBinds are bindings that a window of any type is refused.
func badBinds(r *rig) map[string]rdma.MWBind {
	b := r.sides[1]
	good := b.region(b.pd, Ordinary, 64, bindable)
	mute := b.region(b.pd, Ordinary, 64, everything)
	reader := b.region(b.pd, Ordinary, 64, rdma.AccessRemoteRead|rdma.AccessMWBind)
	closed := b.region(b.pd, Ordinary, 64, bindable)
	r.closeRegion(closed)
	bad := map[string]rdma.MWBind{
		"a region without MW_BIND":         showing(mute, 0, 64, remoteAll),
		"write of a region without it":     showing(reader, 0, 64, rdma.AccessRemoteWrite),
		"atomics of a region without them": showing(reader, 0, 64, rdma.AccessRemoteAtomic),
		"one byte more":                    showing(good, 0, 65, remoteAll),
		"one byte before":                  showing(good, -1, 8, remoteAll),
		"beyond":                           showing(good, 64, 8, remoteAll),
		"it wraps":                         {MR: good.MR, Addr: good.Base + 8, Length: ^uint64(0) - 4, Access: remoteAll},
		"another domain's region":          showing(b.region(b.newPD(), Ordinary, 64, bindable), 0, 64, remoteAll),
		"a closed region":                  showing(closed, 0, 64, remoteAll),
	}
	if r.f.Refuses&rdma.AccessZeroBased == 0 && !r.f.WholePages {
		bad["a zero-based region"] = showing(b.region(b.pd, Ordinary, 64, bindable|rdma.AccessZeroBased), 0, 64, remoteAll)
	}
	return bad
}

// mwRefused posts a binding that must fail: at the post, where libibverbs looks
// already, or by its completion. What is behind it is flushed.
func mwRefused(r *rig, l *link, post func() error) {
	r.Helper()
	b := l.b
	if err := post(); err != nil {
		if !errors.Is(err, rdma.ErrInvalid) && !errors.Is(err, syscall.EPERM) {
			r.Errorf("refused at the post with %v", err)
		}
		return
	}
	if n, err := l.qb.PostSend([]rdma.SendWR{send(2)}); err != nil {
		r.Fatalf("post behind a bad bind took %d: %v", n, err)
	}
	b.fail(b.scq, rdma.WCMWBindErr, 1, 2)
	b.state(l.qb, rdma.StateErr)
}

func mwBad1(r *rig) {
	for name, bind := range badBinds(r) {
		r.sub(name, pair(func(r *rig, a, b *side) {
			l := r.link()
			mw := b.window(rdma.MWType1)
			mwRefused(r, l, func() error { return l.qb.BindMW(mw, 1, rdma.SendSignaled, bind) })
			// The key that it would have had opens nothing.
			src := a.memory(64)
			again := r.link()
			again.send(rdma.SendWR{WRID: 3, SGL: []rdma.SGE{src.sge(0, 8)}, RemoteAddr: bind.Addr, RKey: mw.RKey()})
			a.want(a.scq, 3, rdma.WCRemAccessErr)
			r.close(mw)
		}))
	}
}

func mwBad2(r *rig, _, b *side) {
	bad := badBinds(r)
	good := b.region(b.pd, Ordinary, 64, bindable)
	bad["length 0"] = showing(good, 0, 0, remoteAll)
	bad["no region"] = rdma.MWBind{}
	for name, bind := range bad {
		r.sub(name, func(r *rig) {
			l := r.link()
			mw := r.sides[1].window(rdma.MWType2)
			mwRefused(r, l, func() error {
				_, err := l.qb.PostSend([]rdma.SendWR{bind2(1, mw, rdma.IncRKey(mw.RKey()), bind)})
				return err
			})
			r.close(mw)
		})
	}
	r.sub("the key of another window", func(r *rig) {
		l := r.link()
		mw := r.sides[1].window(rdma.MWType2)
		mwRefused(r, l, func() error {
			_, err := l.qb.PostSend([]rdma.SendWR{bind2(1, mw, mw.RKey()^0x100, showing(good, 0, 64, remoteAll))})
			return err
		})
	})
}

func mwBusy(r *rig, _, b *side) {
	m := b.region(b.pd, Ordinary, 64, bindable)
	mw, other := b.window(rdma.MWType1), b.window(rdma.MWType1)
	l := r.link()
	l.show(mw, m, 0, 64, remoteAll)
	l.show(other, m, 8, 8, rdma.AccessRemoteRead)
	r.wantErr("close a region with two windows", m.Close(), rdma.ErrBusy)
	r.close(other)
	r.wantErr("close a region with one window", m.Close(), rdma.ErrBusy)
	if l.b.ctx.Supports(rdma.FeatureReregMR) == nil {
		result(b.node.Rereg(m, rdma.ReregAccess, nil, piece{}, everything)).refused(r, "rereg of a region with a window", rdma.ErrBusy)
	}
	// It was not changed.
	src := r.sides[0].memory(64)
	l.do(write(1, m, 0, src.sge(0, 8)))
	r.close(mw)
	r.closeRegion(m)

	pd := b.newPD()
	result(pd.AllocMW(rdma.MWType1)).owned(r, "AllocMW")
	r.wantErr("close a domain with a window", pd.Close(), rdma.ErrBusy)
}

func mwClose(r *rig, a, b *side) {
	m := b.region(b.pd, Ordinary, 64, bindable)
	src := a.memory(64)
	for round := range 20 { // so that indexes are used again
		mw := b.window(rdma.MWType1)
		r.sub(fmt.Sprint(round), func(r *rig) {
			l := r.link()
			w := l.show(mw, m, 0, 64, remoteAll)
			l.do(write(1, w, 0, src.sge(0, 8)))
			r.must(mw.Close(), "close a window")
			l.refused("write", write(2, w, 0, src.sge(0, 8)), m)
		})
		r.disown(mw)
	}
	r.closeRegion(m)
}

func mwLocal(r *rig, a, b *side) {
	m := a.region(a.pd, Ordinary, 64, bindable)
	mw := a.window(rdma.MWType1)
	dst := b.memory(64)
	r.connect(b, a).show(mw, m, 0, 64, remoteAll)
	l := r.link()
	l.fails(rdma.WCLocProtErr, write(1, dst, 0, rdma.SGE{Addr: m.Base, Length: 8, LKey: mw.RKey()}))
	r.close(mw)
}

// mwUnbindUnderFire unbinds a window of type 1 that two peers write through.
// When that has completed the memory is the program's.
func mwUnbindUnderFire(r *rig) {
	underFire(r, 4, bindable, bothKinds, func(r *rig, f *fire) {
		mw := f.target.window(rdma.MWType1)
		binder := r.connect(f.writers[0], f.target)
		f.w = binder.show(mw, f.m, 0, f.m.Size, remoteAll)
		f.stop = func() {
			binder.bind1(mw, 1, rdma.MWBind{})
			f.target.done(f.target.scq, 1)
		}
	})
}

// A fire is writes of side 0's memory m by all other sides, which stop ends.
type fire struct {
	round   int
	kind    MemoryKind // of m
	target  *side
	writers []*side
	m       Region

	w     Region  // what they write through
	links []*link // of the writers, or nil
	stop  func()
}

var bothKinds = []MemoryKind{Ordinary, Allocated}

// underFire makes rounds of fire with memory of each kind. Behind stop nothing may be
// stored in it. prepare gives w, stop, and links where it has them.
func underFire(r *rig, rounds int, access rdma.Access, kinds []MemoryKind, prepare func(r *rig, f *fire)) {
	const size, half, depth = 64 << 10, 32 << 10, 8
	for round := range rounds {
		for _, kind := range kinds {
			r.sub(fmt.Sprintf("%v_%d", kind, round), func(r *rig) {
				target, writers := r.sides[0], r.sides[1:]
				m := target.region(target.pd, kind, size, access)
				f := &fire{round: round, kind: kind, target: target, writers: writers, m: m}
				prepare(r, f)
				flags := target.region(target.pd, Allocated, 64, everything)
				ends := make(chan error, len(writers))
				for i, side := range writers {
					var l *link
					if f.links != nil {
						l = f.links[i]
					} else {
						l = r.connect(side, target)
					}
					src := side.filled(size, uint64(i))
					go func() {
						status, err := l.fire(flags, 8*i, src, depth, func(k int) rdma.SendWR {
							return write(0, f.w, i*half, src.sge(0, half))
						}, nil)
						if err == nil && !r.f.fits(status, rdma.WCRemAccessErr) {
							err = fmt.Errorf("status %q, want %q", status, rdma.WCRemAccessErr)
						}
						ends <- err
					}()
				}
				for i := range writers {
					r.until("the first write", func() bool { return flags.Load64(8*i) != 0 })
				}
				f.stop()
				mark := pattern(99, size)
				m.Store(0, mark)
				for range writers {
					r.must(<-ends, "a writer")
				}
				r.same("the memory afterwards", m.Load(0, size), mark)
			})
		}
	}
}
