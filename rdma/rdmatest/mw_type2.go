package rdmatest

import (
	"time"

	"github.com/gorun-mpi/gorun/rdma"
)

func mwOneQueue(r *rig, a, b *side) {
	m := b.region(b.pd, Ordinary, 64, bindable)
	mw := b.window(rdma.MWType2)
	src := a.memory(64)
	l := r.link()
	w := l.show(mw, m, 0, 64, remoteAll)
	r.sub("another_queue_pair", func(r *rig) {
		r.link().refused("write", write(1, w, 0, src.sge(0, 8)), m)
	})
	l.do(write(2, w, 0, src.sge(0, 8)))
}

func mwMustBeFree(r *rig, a, b *side) {
	m := b.region(b.pd, Ordinary, 64, bindable)
	mw := b.window(rdma.MWType2)
	src := a.memory(64)
	l := r.link()
	w := l.show(mw, m, 0, 8, remoteAll)
	other := r.connect(a, b)
	mwRefused(r, other, func() error {
		_, err := other.qb.PostSend([]rdma.SendWR{bind2(1, mw, rdma.IncRKey(mw.RKey()), showing(m, 0, 64, remoteAll))})
		return err
	})
	// It is bound as before.
	l.do(write(2, w, 0, src.sge(0, 8)))
	l.refused("beyond what was bound first", write(3, w, 1, src.sge(0, 8)), m)
}

// mwOrder posts a bind and the message that tells of it in one list, and so an
// invalidation and the message behind it: when the peer hears of it, it is done.
func mwOrder(r *rig, a, b *side) {
	m := b.region(b.pd, Ordinary, 64, bindable)
	mw := b.window(rdma.MWType2)
	src, note := a.memory(64), a.memory(64)
	l := r.link()
	key := mw.RKey()
	for round := range uint64(10) {
		key = rdma.IncRKey(key)
		w := through(m, 0, 64, key)
		postRecv(r, l.qa, receive(1, note.sge(0, 8)), receive(2))
		post(r, l.qb, bind2(10, mw, key, showing(m, 0, 64, remoteAll)), send(11))
		a.done(a.rcq, 1)
		src.store64(0, round)
		l.do(write(3, w, 0, src.sge(0, 8)))
		b.done(b.scq, 10, 11)
		equal(r, m.Load64(0), round, "round %d: the window brought", round)
		post(r, l.qb, unsignaled(localInv(12, key)), send(13))
		a.done(a.rcq, 2)
		b.done(b.scq, 13)
	}
	l.refused("after the message that tells of the invalidation", write(4, through(m, 0, 64, key), 0, src.sge(0, 8)), m)
}

func mwLocalInv(r *rig, a, b *side) {
	m := b.region(b.pd, Ordinary, 64, bindable)
	mw := b.window(rdma.MWType2)
	src := a.memory(64)
	l := r.link()
	w := l.show(mw, m, 0, 64, remoteAll)
	l.do(write(1, w, 0, src.sge(0, 8)))
	post(r, l.qb, localInv(2, w.RKey()))
	if wc := b.done(b.scq, 2); wc.Opcode != rdma.WCLocalInv {
		r.Errorf("the completion has opcode %d, want %d", wc.Opcode, rdma.WCLocalInv)
	}
	again := l.show(mw, m, 0, 64, remoteAll)
	if again.RKey() == w.RKey() {
		r.Errorf("bound again the window has the key %#x still", w.RKey())
	}
	l.do(write(3, again, 0, src.sge(0, 8)))
	l.back().do(localInv(4, again.RKey()))
	r.closeRegion(m)
	l.fails(rdma.WCRemAccessErr, write(5, again, 0, src.sge(0, 8)))
}

func mwLocalInvBad(r *rig, _, b *side) {
	notInvalidated(r, "a window that is free", b.window(rdma.MWType2).RKey(), func(r *rig, _, b *side, key uint32) {
		l := r.link()
		post(r, l.qb, localInv(1, key), send(2))
		b.fail(b.scq, rdma.WCMWBindErr, 1, 2)
	})
}

// notInvalidated tries keys that an invalidation must refuse, one of them the caller's. What
// they name is as good afterwards as before.
func notInvalidated(r *rig, name string, key uint32, try func(r *rig, a, b *side, key uint32)) {
	b := r.sides[1]
	m := b.region(b.pd, Ordinary, 64, bindable)
	elsewhere := r.link()
	shown := elsewhere.show(b.window(rdma.MWType1), m, 0, 64, remoteAll)
	bound := elsewhere.show(b.window(rdma.MWType2), m, 0, 64, remoteAll)
	for name, key := range map[string]uint32{
		name: key, "no such key": 0x00abcd01, "a window of type 1": shown.RKey(),
		"another queue pair's window": bound.RKey(), "another key of a window": bound.RKey() ^ 0x80, "a region": m.RKey(),
	} {
		r.sub(name, pair(func(r *rig, a, b *side) { try(r, a, b, key) }))
	}
	src := r.sides[0].memory(64)
	elsewhere.do(write(1, shown, 0, src.sge(0, 8)), write(2, bound, 0, src.sge(0, 8)), write(3, m, 0, src.sge(0, 8)))
}

func mwLocalInvUnderFire(r *rig) {
	underFire(r, 6, bindable, bothKinds, func(r *rig, f *fire) {
		l := r.connect(f.writers[0], f.target)
		f.w, f.links = l.show(f.target.window(rdma.MWType2), f.m, 0, f.m.Size, remoteAll), []*link{l}
		f.stop = func() { l.back().do(localInv(1, f.w.RKey())) }
	})
}

func mwPairFirst(r *rig, a, b *side) {
	m := b.region(b.pd, Ordinary, 64, bindable)
	mw := b.window(rdma.MWType2)
	src := a.memory(64)
	l := r.link()
	w := l.show(mw, m, 0, 64, remoteAll)
	l.do(write(1, w, 0, src.sge(0, 8)))
	begin := time.Now()
	r.close(l.qb)
	if took := time.Since(begin); took > r.f.Patience {
		r.Errorf("the close took %v", took)
	}
	r.link().refused("write through another queue pair", write(2, w, 0, src.sge(0, 8)), m)
	r.close(mw)
	r.closeRegion(m)
}

func mwTypes(r *rig, _, b *side) {
	m := b.region(b.pd, Ordinary, 64, bindable)
	one, two := b.window(rdma.MWType1), b.window(rdma.MWType2)
	l := r.link()
	r.wantErr("BindMW of a window of type 2", l.qb.BindMW(two, 1, 0, showing(m, 0, 64, remoteAll)), rdma.ErrInvalid)
	for name, wr := range map[string]rdma.SendWR{
		"bind of a window of type 1":    bind2(1, one, rdma.IncRKey(one.RKey()), showing(m, 0, 64, remoteAll)),
		"bind of no window":             {Opcode: rdma.WRBindMW, Bind: &rdma.MWBind{}},
		"bind to nothing that is named": {Opcode: rdma.WRBindMW, MW: two, RKey: two.RKey()},
		"a right that windows have not": bind2(1, two, two.RKey(), showing(m, 0, 64, rdma.AccessLocalWrite)),
	} {
		result(l.qb.PostSend([]rdma.SendWR{wr})).refused(r, name, rdma.ErrInvalid)
	}
	result(b.pd.AllocMW(3)).refused(r, "a window of type 3", rdma.ErrInvalid)
	l.works(1)
}

func mwSendInv(r *rig, a, b *side) {
	m := b.region(b.pd, Ordinary, 64, bindable)
	mw := b.window(rdma.MWType2)
	src, box := a.filled(64, 1), b.memory(64)
	l := r.link()
	for round := range 5 {
		w := l.show(mw, m, 0, 64, remoteAll)
		l.recv(receive(7, box.sge(0, 64)))
		l.do(write(1, w, 0, src.sge(0, 8)), sendInv(2, w.RKey(), src.sge(0, 40)))
		wc := b.done(b.rcq, 7)
		if wc.Flags&rdma.WCFlagWithInv == 0 || wc.Flags&rdma.WCFlagWithImm != 0 || wc.ImmData != w.RKey() || wc.Opcode != rdma.WCRecv || wc.ByteLen != 40 {
			r.Errorf("round %d: the completion is %+v, want one of 40 bytes that tells of key %#x", round, wc, w.RKey())
		}
		r.same("sent", box.Load(0, 40), pattern(1, 64)[:40])
	}
	w := l.show(mw, m, 0, 64, remoteAll)
	l.recv(receive(8))
	l.do(sendInv(3, w.RKey()))
	b.done(b.rcq, 8)
	r.closeRegion(m) // which is free of it
	l.fails(rdma.WCRemAccessErr, write(4, w, 0, src.sge(0, 8)))
}

func mwSendInvBad(r *rig) {
	notInvalidated(r, "largest key", ^uint32(0), func(r *rig, a, b *side, key uint32) {
		l := r.link()
		l.recv(receive(5), receive(6))
		l.send(sendInv(1, key), send(2))
		a.fail(a.scq, rdma.WCRemAccessErr, 1, 2)
		b.state(l.qb, rdma.StateErr)
		for range 2 {
			if wc := b.next(b.rcq); wc.Status == rdma.WCSuccess {
				r.Errorf("receive %d is a success", wc.WRID)
			}
		}
	})
}
