package rdmatest

import (
	"fmt"

	"github.com/gorun-mpi/gorun/rdma"
)

func signalCases() []testCase {
	return []testCase{
		{name: "signal/only_signaled_complete", nodes: 2, run: pair(signalSome)},
		{name: "signal/sig_all_completes_all", nodes: 2, run: pair(signalAll)},
		{name: "signal/long_runs_without_signal", nodes: 2, run: pair(signalRare)},
		{name: "inline/buffer_is_free_after_post", nodes: 2, run: pair(inlineReuse)},
		{name: "inline/needs_no_key", nodes: 2, run: pair(inlineNoKey)},
		{name: "inline/longest_fits_and_one_more_does_not", nodes: 2, run: pair(inlineLimit)},
	}
}

// mixed is one request of each kind, unsignaled unless told.
func mixed(first uint64, src, dst Region, signaled func(i int) bool) []rdma.SendWR {
	list := []rdma.SendWR{
		write(0, dst, 0, src.sge(0, 8)), read(0, dst, 0, src.sge(8, 8)), send(0, src.sge(0, 8)),
		fetchAdd(0, dst, 64, 1, src.sge(16, 8)), writeImm(0, 1, dst, 0, src.sge(0, 8)),
		compareSwap(0, dst, 64, 0, 0, src.sge(24, 8)), sendImm(0, 2, src.sge(0, 8)),
		{Opcode: rdma.WRRDMAWrite, Flags: rdma.SendInline | rdma.SendSignaled, Inline: []byte("inline"), RemoteAddr: dst.Base, RKey: dst.RKey()},
	}
	for i := range list {
		list[i].WRID = first + uint64(i)
		if !signaled(i) {
			list[i].Flags &^= rdma.SendSignaled
		}
	}
	return list
}

func signalSome(r *rig, a, b *side) {
	src, dst := a.memory(128), b.memory(128)
	l := r.link()
	for mask := range 32 { // which of eight are signaled, the last one always
		mask := mask*8 | 128
		l.recv(receive(1, dst.sge(96, 8)), receive(2, dst.sge(96, 8)), receive(3, dst.sge(96, 8)))
		signaled := func(i int) bool { return mask>>i&1 == 1 }
		l.send(mixed(100, src, dst, signaled)...)
		for i := range 8 {
			if signaled(i) {
				a.done(a.scq, 100+uint64(i))
			}
		}
		a.none(a.scq)
		b.done(b.rcq, 1, 2, 3)
		b.none(b.rcq)
	}
}

func signalAll(r *rig, a, b *side) {
	src, dst := a.memory(128), b.memory(128)
	l := r.link(func(u *setup) { u.sigAll = true })
	l.recv(receive(1, dst.sge(96, 8)), receive(2, dst.sge(96, 8)), receive(3, dst.sge(96, 8)))
	l.send(mixed(100, src, dst, func(int) bool { return false })...)
	a.done(a.scq, ids(100, 8)...)
	a.none(a.scq)
}

// signalRare: slots of unsignaled requests come back with the next signaled one.
func signalRare(r *rig, a, b *side) {
	src, dst := a.memory(64), b.memory(64)
	l := r.link(func(u *setup) { u.cap.MaxSendWR = 16 })
	_, init := l.qa.Query()
	room := init.Cap.MaxSendWR
	for round := range uint64(20) {
		list := make([]rdma.SendWR, room)
		for i := range list {
			src.store64(0, round)
			list[i] = unsignaled(write(round*100+uint64(i), dst, 8*(i%8), src.sge(0, 8)))
		}
		list[room-1].Flags |= rdma.SendSignaled
		l.send(list...)
		a.done(a.scq, round*100+uint64(room-1))
		equal(r, dst.Load64(8*((room-1)%8)), round, "round %d: the last write brought", round)
	}
	a.none(a.scq)
}

// inlineReuse overwrites what was posted inline while it waits for a receive.
func inlineReuse(r *rig, a, b *side) {
	src, dst := a.memory(64), b.memory(256)
	p := pattern(1, 64)
	src.Store(0, p)
	l := r.link()
	buf := append([]byte(nil), p...)
	fromSGL := send(1, src.sge(0, 10), src.sge(20, 10))
	fromSGL.Flags |= rdma.SendInline
	fromSlice := rdma.SendWR{WRID: 2, Opcode: rdma.WRSend, Flags: rdma.SendSignaled | rdma.SendInline, Inline: buf[:40]}
	toMemory := rdma.SendWR{WRID: 3, Opcode: rdma.WRRDMAWrite, Flags: rdma.SendSignaled | rdma.SendInline,
		Inline: buf[40:50], RemoteAddr: dst.Base + 200, RKey: dst.RKey()}
	l.send(fromSGL, fromSlice, toMemory)
	src.Store(0, make([]byte, 64))
	clear(buf)
	l.recv(receive(4, dst.sge(0, 64)), receive(5, dst.sge(64, 64)))
	a.done(a.scq, 1, 2, 3)
	equal(r, b.done(b.rcq, 4).ByteLen, 20, "bytes received inline:")
	equal(r, b.done(b.rcq, 5).ByteLen, 40, "bytes received inline:")
	r.same("inline from SGEs", dst.Load(0, 20), append(append([]byte(nil), p[0:10]...), p[20:30]...))
	r.same("inline from a slice", dst.Load(64, 40), p[:40])
	r.same("inline write", dst.Load(200, 10), p[40:50])
}

func inlineNoKey(r *rig, a, b *side) {
	src, dst := a.memory(64), b.memory(64)
	foreign := a.region(a.newPD(), r.f.Memory, 64, 0)
	p := pattern(1, 64)
	src.Store(0, p)
	foreign.Store(0, p)
	l := r.link()
	bad := src.sge(0, 16)
	bad.LKey = 0xdeadbeef
	for i, sge := range []rdma.SGE{bad, foreign.sge(16, 16)} {
		wr := write(uint64(i), dst, 16*i, sge)
		wr.Flags |= rdma.SendInline
		l.send(wr)
		a.done(a.scq, uint64(i))
	}
	r.same("inline without a key", dst.Load(0, 32), p[:32])
}

func inlineLimit(r *rig, a, b *side) {
	d := a.ctx.QueryDevice()
	for _, ask := range []int{0, 1, 64, d.MaxInlineData} {
		l := r.link(func(u *setup) { u.cap.MaxInlineData = ask })
		_, init := l.qa.Query()
		most := init.Cap.MaxInlineData
		p := pattern(uint64(ask), most+1)
		dst := b.memory(most + 1)
		src := a.memory(most + 1)
		src.Store(0, p)
		wr := rdma.SendWR{WRID: 1, Opcode: rdma.WRRDMAWrite, Flags: rdma.SendSignaled | rdma.SendInline, RemoteAddr: dst.Base, RKey: dst.RKey()}
		slice, sges := wr, wr
		slice.Inline = p
		sges.SGL = []rdma.SGE{src.sge(0, most), src.sge(most, 1)}
		for _, long := range []rdma.SendWR{slice, sges} {
			result(l.qa.PostSend([]rdma.SendWR{long})).refused(r, fmt.Sprintf("inline of %d bytes where %d is the limit", most+1, most), nil)
		}
		slice.Inline = p[:most]
		l.send(slice)
		a.done(a.scq, 1)
		want := append(p[:most:most], 0)
		r.same("the longest inline write", dst.Load(0, most+1), want)
		if most > 0 {
			dst.Store(0, make([]byte, most+1))
			sges.SGL = []rdma.SGE{src.sge(0, most)}
			l.send(sges)
			a.done(a.scq, 1)
			r.same("the longest inline write from an SGE", dst.Load(0, most+1), want)
		}
	}
}
