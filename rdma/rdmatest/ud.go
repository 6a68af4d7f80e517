package rdmatest

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/gorun-mpi/gorun/rdma"
)

func udCases() []testCase {
	return needing([]testCase{
		{name: "ud/message_with_its_GRH", nodes: 2, run: ports(udMessage)},
		{name: "ud/many_to_one", nodes: 4, run: udMany},
		{name: "ud/one_to_many", nodes: 3, run: udTargets},
		{name: "ud/reply_goes_back_by_the_GRH", nodes: 2, run: ports(udReply)},
		{name: "ud/to_itself", nodes: 1, run: udLoopback},
		{name: "ud/QKey_is_checked", nodes: 2, run: ports(udQKey)},
		{name: "ud/QKey_with_the_high_bit_is_the_queue_pairs", nodes: 2, run: ports(udOwnQKey)},
		{name: "ud/without_a_receive_it_is_lost", nodes: 2, run: ports(udNoReceive)},
		{name: "ud/longer_than_the_MTU_is_not_sent", nodes: 2, run: ports(udTooLong)},
		{name: "ud/too_long_for_the_receive_is_lost", nodes: 2, run: ports(udTooSmall), when: func(f Fabric) bool { return !f.Inexact }},
		{name: "ud/to_nobody_is_lost", nodes: 2, run: ports(udNobody)},
		{name: "ud/send_alone", nodes: 2, run: ports(udOps)},
		{name: "ud/bad_requests_are_EINVAL", nodes: 2, run: ports(udBad), when: func(f Fabric) bool { return !f.Inexact }},
		{name: "ud/local_error_is_SQE", nodes: 2, run: ports(udSQE), when: func(f Fabric) bool { return !f.Inexact }},
		{name: "ud/bad_receive_is_ERR", nodes: 2, run: ports(udBadReceive), when: func(f Fabric) bool { return !f.Inexact }},
		{name: "ud/receives_are_flushed", nodes: 2, run: ports(udFlush)},
		{name: "ud/states_need_the_QKey", nodes: 1, run: single(udStates)},
		{name: "ud/handle_holds_its_domain", nodes: 1, run: single(udHandle)},
	}, rdma.FeatureUD)
}

const udKey = 0x11111111

// A port is a datagram queue pair in RTS with what is needed to send from it.
type port struct {
	*side
	qp  rdma.QP
	mem Region // 8 KiB to send from
	box Region // and receives behind each other, udSlot bytes each
	id  uint64
}

// lossPatience is how long an unreliable message may take that an adversarial
// fabric may have lost, before it is sent again.
const lossPatience = 200 * time.Millisecond

// udSlot has room for the longest datagram.
const udSlot = rdma.GRHLen + 4096

func (s *side) port(changes ...func(*setup)) *port {
	s.r.Helper()
	u := defaults()
	u.attr.QKey = udKey
	u.init = func(_ int, i *rdma.QPInitAttr) { i.Type = rdma.UD }
	for _, change := range changes {
		change(&u)
	}
	p := &port{side: s, qp: s.newQP(u, 0), mem: s.memory(8192), box: s.memory(8 * udSlot)}
	p.up(u)
	return p
}

// ports makes a case of a function of a port on each of two sides.
func ports(run func(r *rig, a, b *port)) func(*rig) {
	return func(r *rig) { run(r, r.sides[0].port(), r.sides[1].port()) }
}

// up takes the queue pair from RESET to RTS.
func (p *port) up(u setup) {
	p.r.Helper()
	p.steps(p.qp, u.attr, rdma.QPPKeyIndexMask|rdma.QPPortMask|rdma.QPQKeyMask, 0, rdma.QPSQPSNMask)
}

// to makes an address handle of the port to a side.
func (p *port) to(s *side) rdma.AH {
	p.r.Helper()
	return p.handle(rdma.AV{DGID: s.gid(), HopLimit: 1, PortNum: 1})
}

func (p *port) handle(av rdma.AV) rdma.AH {
	p.r.Helper()
	return result(p.pd.CreateAH(av)).owned(p.r, "CreateAH(%+v)", av)
}

// datagram makes a signaled request.
func datagram(id uint64, ah rdma.AH, to *port, sgl ...rdma.SGE) rdma.SendWR {
	wr := send(id, sgl...)
	wr.AH, wr.RemoteQPN, wr.RemoteQKey = ah, to.qp.Num(), udKey
	return wr
}

// listen posts the port's n-th receive.
func (p *port) listen(n int) {
	p.r.Helper()
	postRecv(p.r, p.qp, receive(uint64(n), p.box.sge(n*udSlot, udSlot)))
}

// payload is what receive n has behind its GRH.
func (p *port) payload(n, size int) []byte { return p.box.Load(n*udSlot+rdma.GRHLen, size) }

// shout posts a request, again when the fabric has lost it, until a receive of
// to completes, and gives its completion. Each try completes at the sender.
func (p *port) shout(wr rdma.SendWR, to *port) rdma.WC {
	p.r.Helper()
	for try := 1; ; try++ {
		post(p.r, p.qp, wr)
		p.done(p.scq, wr.WRID)
		if !p.r.f.Adversarial {
			return to.next(to.rcq)
		}
		var wc rdma.WC
		if waitFor(lossPatience, func() (ok bool) { wc, ok = to.poll(to.rcq); return ok }) {
			return wc
		}
		if try > 200 {
			p.r.Fatalf("a datagram got lost %d times", try)
		}
	}
}

// reaches proves that what p sends comes in at receive n of to, which is posted,
// and that nothing came before it.
func (p *port) reaches(to *port, n int) {
	p.r.Helper()
	p.id++
	want := pattern(p.id, 64)
	p.mem.Store(0, want)
	wc := p.shout(datagram(1<<32+p.id, p.to(to.side), to, p.mem.sge(0, 64)), to)
	if wc.WRID != uint64(n) || wc.Status != rdma.WCSuccess || wc.ByteLen != rdma.GRHLen+64 {
		p.r.Fatalf("a datagram of 64 bytes completed %+v %q, want receive %d", wc, wc.Status, n)
	}
	p.r.same("datagram", to.payload(n, 64), want)
}

func udMessage(r *rig, a, b *port) {
	ah := a.to(b.side)
	sgid, _ := a.ctx.QueryGID(1, 0)
	dgid, _ := b.ctx.QueryGID(1, 0)
	for i, size := range []int{0, 1, 8, 63, 1000, 4096} {
		r.sub("", func(r *rig) {
			b.listen(0)
			a.mem.Store(0, pattern(uint64(i), size))
			half := size / 2
			wr := datagram(uint64(i), ah, b, a.mem.sge(0, half), a.mem.sge(half, size-half))
			wr.Opcode, wr.ImmData = rdma.WRSendWithImm, uint32(i)
			wc := a.shout(wr, b)
			want := rdma.WC{Opcode: rdma.WCRecv, ByteLen: uint32(rdma.GRHLen + size), ImmData: uint32(i), QPNum: b.qp.Num(), SrcQP: a.qp.Num(),
				Flags: rdma.WCFlagGRH | rdma.WCFlagWithImm}
			want.VendorErr = wc.VendorErr
			if wc != want {
				r.Errorf("%d bytes: completed\n%+v, want\n%+v", size, wc, want)
			}
			h, err := rdma.ParseGRH(b.box.Load(0, rdma.GRHLen))
			if err != nil || h.SGID != sgid || h.DGID != dgid {
				r.Errorf("%d bytes: GRH %+v, %v, want one from %v to %v", size, h, err, sgid, dgid)
			}
			r.same("datagram", b.payload(0, size), pattern(uint64(i), size))
		})
	}
	b.none(b.rcq)
}

// udMany has three senders, which know nothing of each other, send to one.
func udMany(r *rig) {
	b := r.sides[0].port()
	var from []*port
	for _, s := range r.sides[1:] {
		from = append(from, s.port(), s.port())
	}
	handles := make([]rdma.AH, len(from))
	for i, p := range from {
		handles[i] = p.to(b.side)
	}
	for n := range 8 {
		b.listen(n)
	}
	rounds := unlessBrief(r, 40, 8)
	seen := map[*port]int{}
	for k := range rounds {
		for i, p := range from {
			p.mem.Store(0, binary.LittleEndian.AppendUint64(nil, uint64(k)<<8|uint64(i)))
			wr := datagram(uint64(k), handles[i], b, p.mem.sge(0, 8))
			post(r, p.qp, wr)
			p.done(p.scq, uint64(k))
		}
		due := len(from)
		look := func() bool {
			for wc, ok := b.poll(b.rcq); ok; wc, ok = b.poll(b.rcq) {
				got := binary.LittleEndian.Uint64(b.payload(int(wc.WRID), 8))
				i := int(got & 0xff)
				if i >= len(from) || wc.SrcQP != from[i].qp.Num() || int(got>>8) > k {
					r.Fatalf("round %d: message %#x from queue pair %#x", k, got, wc.SrcQP)
				}
				seen[from[i]]++
				due--
				b.listen(int(wc.WRID))
			}
			return due <= 0
		}
		if !r.f.Adversarial {
			r.until("a datagram of each", look)
		} else {
			look()
		}
	}
	if r.f.Adversarial {
		r.until("a datagram of each sender", func() bool {
			for i, p := range from {
				if seen[p] == 0 {
					post(r, p.qp, datagram(0, handles[i], b, p.mem.sge(0, 8)))
					p.done(p.scq, 0)
				}
			}
			for wc, ok := b.poll(b.rcq); ok; wc, ok = b.poll(b.rcq) {
				if i := binary.LittleEndian.Uint64(b.payload(int(wc.WRID), 8)) & 0xff; i < uint64(len(from)) {
					seen[from[i]]++
				}
				b.listen(int(wc.WRID))
			}
			return len(seen) == len(from)
		})
		return
	}
	for _, p := range from {
		if n := seen[p]; n != rounds {
			r.Errorf("%d datagrams of queue pair %#x, want %d", n, p.qp.Num(), rounds)
		}
	}
	b.none(b.rcq)
}

// udTargets sends from one queue pair to many.
func udTargets(r *rig) {
	a := r.sides[0].port()
	to := []*port{r.sides[1].port(), r.sides[2].port(), r.sides[1].port()}
	for k := range 12 {
		b := to[k%3]
		b.listen(0)
		a.reaches(b, 0)
		for _, other := range to {
			other.none(other.rcq)
		}
	}
}

func udReply(r *rig, a, b *port) {
	b.listen(0)
	a.mem.Store(0, pattern(1, 8))
	wc := a.shout(datagram(1, a.to(b.side), b, a.mem.sge(0, 8)), b)
	av := result(rdma.ReplyAV(wc, b.box.Load(0, rdma.GRHLen), 1)).must(r, "ReplyAV")
	b.mem.Store(0, pattern(2, 8))
	back := datagram(2, b.handle(av), a, b.mem.sge(0, 8))
	back.RemoteQPN = wc.SrcQP
	a.listen(0)
	if wc := b.shout(back, a); wc.SrcQP != b.qp.Num() {
		r.Errorf("the reply is of queue pair %#x, want %#x", wc.SrcQP, b.qp.Num())
	}
	r.same("reply", a.payload(0, 8), pattern(2, 8))
}

func udLoopback(r *rig) {
	a := r.sides[0].port()
	other := r.sides[0].port()
	for k := range 3 {
		other.listen(0)
		a.reaches(other, 0)
		a.listen(k)
		a.reaches(a, k)
	}
}

// lost posts requests that must not arrive. Behind them something else does.
func (p *port) lost(wrs ...rdma.SendWR) {
	p.r.Helper()
	post(p.r, p.qp, wrs...)
	for i := range wrs {
		p.done(p.scq, wrs[i].WRID)
	}
}

func udQKey(r *rig, a, b *port) {
	b.listen(0)
	wr := datagram(1, a.to(b.side), b, a.mem.sge(0, 8))
	for _, key := range []uint32{udKey ^ 1, 0, udKey ^ 1<<30} {
		wr.RemoteQKey = key
		a.lost(wr)
	}
	a.reaches(b, 0)
	b.none(b.rcq)
	// A new key counts from then on.
	r.must(b.qp.Modify(rdma.QPAttr{QKey: udKey + 1}, rdma.QPQKeyMask), "modify the Q_Key")
	b.listen(1)
	wr.RemoteQKey = udKey
	a.lost(wr)
	wr.RemoteQKey = udKey + 1
	if wc := a.shout(wr, b); wc.WRID != 1 {
		r.Errorf("receive %d, want 1", wc.WRID)
	}
	b.none(b.rcq)
}

func udOwnQKey(r *rig, a, b *port) {
	other := r.sides[0].port(func(u *setup) { u.attr.QKey = udKey + 1 })
	b.listen(0)
	b.listen(1)
	wr := datagram(1, other.to(b.side), b, other.mem.sge(0, 8))
	wr.RemoteQKey = 1<<31 | udKey
	other.lost(wr)
	wr.AH, wr.SGL = a.to(b.side), []rdma.SGE{a.mem.sge(0, 8)}
	if wc := a.shout(wr, b); wc.WRID != 0 || wc.SrcQP != a.qp.Num() {
		r.Errorf("completed %+v, want receive 0 of queue pair %#x", wc, a.qp.Num())
	}
	b.none(b.rcq)
}

func udNoReceive(r *rig, a, b *port) {
	wr := datagram(1, a.to(b.side), b, a.mem.sge(0, 8))
	for range 3 {
		a.lost(wr)
	}
	// The datagrams are over before the receive is posted: what comes through
	// another queue pair behind them has been executed behind them.
	through := r.sides[1].port()
	through.listen(0)
	a.reaches(through, 0)
	b.listen(0)
	a.reaches(b, 0)
	b.none(b.rcq)
	equal(r, b.qp.State(), rdma.StateRTS, "the receiver is in")
}

func udTooLong(r *rig, a, b *port) {
	mtu := 4096
	if p, err := a.ctx.QueryPort(1); err == nil {
		mtu = p.ActiveMTU.Bytes()
	}
	big := r.sides[1].memory(2*mtu + rdma.GRHLen)
	postRecv(r, b.qp, receive(0, big.sge(0, 2*mtu+rdma.GRHLen)))
	a.lost(datagram(1, a.to(b.side), b, a.mem.sge(0, mtu+1)))
	if wc := a.shout(datagram(2, a.to(b.side), b, a.mem.sge(0, mtu)), b); wc.WRID != 0 || wc.ByteLen != uint32(mtu+rdma.GRHLen) {
		r.Errorf("one of just the MTU completed %+v", wc)
	}
	b.none(b.rcq)
}

func udTooSmall(r *rig, a, b *port) {
	postRecv(r, b.qp, receive(0, b.box.sge(0, rdma.GRHLen+64)))
	for _, size := range []int{65, 1000} {
		a.lost(datagram(1, a.to(b.side), b, a.mem.sge(0, size)))
	}
	a.reaches(b, 0)
	b.none(b.rcq)
}

func udNobody(r *rig, a, b *port) {
	gone := r.sides[1].port()
	wr := datagram(1, a.to(b.side), b, a.mem.sge(0, 8))
	wr.RemoteQPN = gone.qp.Num()
	r.close(gone.qp)
	a.lost(wr)
	wr.RemoteQPN = 0xffffff
	a.lost(wr)
	b.listen(0)
	a.reaches(b, 0)
}

func udOps(r *rig, a, b *port) {
	b.listen(0)
	for _, op := range rdma.Opcodes() {
		if o := op.Operation(); o.OnType(rdma.UD) || !o.GoesOut() {
			continue
		}
		wr := datagram(1, a.to(b.side), b, a.mem.sge(0, 8))
		wr.Opcode, wr.RemoteAddr, wr.RKey = op, b.box.Base, b.box.RKey()
		result(a.qp.PostSend([]rdma.SendWR{wr})).refused(r, fmt.Sprintf("operation %d", op), nil)
	}
	a.reaches(b, 0)
	a.none(a.scq)
}

func udBad(r *rig, a, b *port) {
	good := datagram(1, a.to(b.side), b, a.mem.sge(0, 8))
	for name, spoil := range map[string]func(*rdma.SendWR){
		"no handle": func(w *rdma.SendWR) { w.AH = nil }, "a number of 25 bits": func(w *rdma.SendWR) { w.RemoteQPN |= 1 << 24 },
	} {
		wr := good
		spoil(&wr)
		result(a.qp.PostSend([]rdma.SendWR{wr})).refused(r, name, rdma.ErrInvalid)
	}
	gid, _ := b.ctx.QueryGID(1, 0)
	for name, av := range map[string]rdma.AV{
		"port 0": {DGID: gid}, "port 9": {DGID: gid, PortNum: 9}, "nobody": {DGID: rdma.GID{1}, PortNum: 1}, "source GID": {DGID: gid, PortNum: 1, SGIDIdx: 200},
	} {
		result(a.pd.CreateAH(av)).refused(r, "CreateAH: "+name, rdma.ErrInvalid)
	}
}

// udSQE: an error of the sender's own stops its send queue and no more; RTS
// starts it again.
func udSQE(r *rig, a, b *port) {
	sqe(r, a, b.side, func(id uint64, sgl ...rdma.SGE) rdma.SendWR { return datagram(id, a.to(b.side), b, sgl...) })
	b.listen(0)
	a.reaches(b, 0)
	a.listen(0)
	b.reaches(a, 0)
}

// sqe makes a bad request on a's queue pair and takes it through SQE back to RTS.
func sqe(r *rig, a *port, b *side, request func(id uint64, sgl ...rdma.SGE) rdma.SendWR) {
	r.Helper()
	bad := a.mem.sge(0, 8)
	bad.LKey ^= 1
	post(r, a.qp, unsignaled(request(1, bad)), unsignaled(request(2, a.mem.sge(0, 8))))
	a.fail(a.scq, rdma.WCLocProtErr, 1, 2)
	a.state(a.qp, rdma.StateSQE)
	post(r, a.qp, unsignaled(request(3, a.mem.sge(0, 8))))
	a.want(a.scq, 3, rdma.WCWRFlushErr)
	r.must(a.qp.Modify(rdma.QPAttr{State: rdma.StateRTS}, rdma.QPStateMask), "modify SQE to RTS")
}

func udBadReceive(r *rig, a, b *port) {
	bad := b.box.sge(0, udSlot)
	bad.LKey ^= 1
	postRecv(r, b.qp, receive(0, bad))
	b.listen(1)
	if wc := a.shout(datagram(1, a.to(b.side), b, a.mem.sge(0, 8)), b); wc.WRID != 0 || !r.f.fits(wc.Status, rdma.WCLocProtErr) {
		r.Errorf("completed %+v %q", wc, wc.Status)
	}
	b.want(b.rcq, 1, rdma.WCWRFlushErr)
	b.state(b.qp, rdma.StateErr)
}

func udFlush(r *rig, a, b *port) {
	for n := range 3 {
		b.listen(n)
	}
	a.reaches(b, 0)
	r.move(b.qp, rdma.StateErr)
	b.fail(b.rcq, rdma.WCWRFlushErr, 1, 2)
	b.listen(3)
	b.want(b.rcq, 3, rdma.WCWRFlushErr)
	wr := datagram(1, a.to(b.side), b, a.mem.sge(0, 8))
	a.lost(wr)
	through := r.sides[1].port()
	through.listen(0)
	a.reaches(through, 0) // so it is over
	// And again from the start, with what was left gone.
	r.move(b.qp, rdma.StateReset)
	u := defaults()
	u.attr.QKey = udKey
	b.up(u)
	b.listen(4)
	a.reaches(b, 4)
	b.listen(5)
	r.move(b.qp, rdma.StateReset)
	b.up(u)
	b.listen(6)
	a.reaches(b, 6)
	b.none(b.rcq)
}

func udStates(r *rig, s *side) {
	u := defaults()
	u.init = func(_ int, i *rdma.QPInitAttr) { i.Type = rdma.UD }
	qp := s.newQP(u, 0)
	attr := rdma.QPAttr{State: rdma.StateInit, PortNum: 1, QKey: udKey}
	mask := rdma.QPStateMask | rdma.QPPKeyIndexMask | rdma.QPPortMask
	r.wantErr("INIT without a Q_Key", qp.Modify(attr, mask), rdma.ErrInvalid)
	r.wantErr("INIT with access flags", qp.Modify(attr, mask|rdma.QPQKeyMask|rdma.QPAccessFlagsMask), rdma.ErrInvalid)
	r.must(qp.Modify(attr, mask|rdma.QPQKeyMask), "modify to INIT")
	attr.State = rdma.StateRTR
	r.wantErr("RTR with a destination", qp.Modify(attr, rdma.QPStateMask|rdma.QPDestQPNMask), rdma.ErrInvalid)
	r.must(qp.Modify(attr, rdma.QPStateMask), "modify to RTR")
	if got, init := qp.Query(); got.QKey != udKey || got.State != rdma.StateRTR || init.Type != rdma.UD {
		r.Errorf("the query gives Q_Key %#x, %v, %v", got.QKey, got.State, init.Type)
	}
}

func udHandle(r *rig, s *side) {
	pd := s.newPD()
	gid, _ := s.ctx.QueryGID(1, 0)
	ah := result(pd.CreateAH(rdma.AV{DGID: gid, PortNum: 1, HopLimit: 1})).must(r, "CreateAH")
	if ah.PD() != pd {
		r.Errorf("the handle is of another domain")
	}
	r.wantErr("closing a domain with a handle", pd.Close(), rdma.ErrBusy)
	r.must(ah.Close(), "Close")
	r.close(pd)
}
