package rdmatest

import "github.com/gorun-mpi/gorun/rdma"

// The attributes that a step of an RC queue pair needs.
const (
	initMask = rdma.QPStateMask | rdma.QPPKeyIndexMask | rdma.QPPortMask | rdma.QPAccessFlagsMask
	rtrMask  = rdma.QPStateMask | rdma.QPAVMask | rdma.QPPathMTUMask | rdma.QPDestQPNMask | rdma.QPRQPSNMask |
		rdma.QPMaxDestRdAtomicMask | rdma.QPMinRNRTimerMask
	rtsMask = rdma.QPStateMask | rdma.QPTimeoutMask | rdma.QPRetryCntMask | rdma.QPRNRRetryMask | rdma.QPSQPSNMask |
		rdma.QPMaxRdAtomicMask
)

// A setup says how the two queue pairs of a link are made.
type setup struct {
	cap    rdma.QPCap
	sigAll bool
	attr   rdma.QPAttr                        // of both, but for AV, DestQPNum and State
	each   func(side int, a *rdma.QPAttr)     // changes attr for side 0 (a) or 1 (b)
	init   func(side int, i *rdma.QPInitAttr) // changes the creation
	until  [2]rdma.QPState                    // where to stop, RTS when 0
}

func defaults() setup {
	return setup{
		cap: rdma.QPCap{MaxSendWR: 32, MaxRecvWR: 32, MaxSendSGE: 4, MaxRecvSGE: 4, MaxInlineData: 64},
		attr: rdma.QPAttr{
			PortNum: 1, AccessFlags: everything, PathMTU: rdma.MTU1024,
			RQPSN: 77, SQPSN: 77, MaxDestRdAtomic: 4, MaxRdAtomic: 4,
			MinRNRTimer: 1,  // 0.01 ms
			Timeout:     17, // 0.54 s
			RetryCnt:    7, RNRRetry: 7,
		},
	}
}

// A link is two connected queue pairs, a's and b's.
type link struct {
	r      *rig
	a, b   *side
	qa, qb rdma.QP
}

// link connects sides 0 and 1, both in RTS.
func (r *rig) link(changes ...func(*setup)) *link {
	r.Helper()
	return r.connect(r.sides[0], r.sides[1], changes...)
}

// connect makes a queue pair on each side and connects the two.
func (r *rig) connect(a, b *side, changes ...func(*setup)) *link {
	r.Helper()
	s := defaults()
	for _, change := range changes {
		change(&s)
	}
	l := &link{r: r, a: a, b: b}
	l.qa, l.qb = a.newQP(s, 0), b.newQP(s, 1)
	for i, qp := range []rdma.QP{l.qa, l.qb} {
		for _, to := range []rdma.QPState{rdma.StateInit, rdma.StateRTR, rdma.StateRTS} {
			if s.until[i] != 0 && to > s.until[i] {
				break
			}
			l.step(i, qp, s, to)
		}
	}
	return l
}

func (s *side) newQP(u setup, which int) rdma.QP {
	s.r.Helper()
	init := rdma.QPInitAttr{SendCQ: s.scq, RecvCQ: s.rcq, Cap: u.cap, Type: rdma.RC, SigAll: u.sigAll}
	if u.init != nil {
		u.init(which, &init)
	}
	return result(s.pd.CreateQP(init)).owned(s.r, "CreateQP")
}

// attrs are the attributes of side i's queue pair, for every step.
func (l *link) attrs(i int, s setup) rdma.QPAttr {
	l.r.Helper()
	attr := s.attr
	peer, there := l.b, l.qb
	if i == 1 {
		peer, there = l.a, l.qa
	}
	attr.AV = rdma.AV{DGID: peer.gid(), HopLimit: 1, PortNum: 1}
	attr.DestQPNum = there.Num()
	if s.each != nil {
		s.each(i, &attr)
	}
	return attr
}

// steps moves side i's queue pair from RESET to RTS.
func (l *link) steps(i int, qp rdma.QP, s setup) {
	l.r.Helper()
	for _, to := range []rdma.QPState{rdma.StateInit, rdma.StateRTR, rdma.StateRTS} {
		l.step(i, qp, s, to)
	}
}

// step moves side i's queue pair on to the next state.
func (l *link) step(i int, qp rdma.QP, s setup, to rdma.QPState) {
	l.r.Helper()
	attr := l.attrs(i, s)
	attr.State = to
	l.r.must(qp.Modify(attr, maskOf(to)), "side %d: modify to %v", i, to)
	equal(l.r, qp.State(), to, "side %d: modified to %v, the state is", i, to)
}

// maskOf is the mask of a step forward to the state.
func maskOf(to rdma.QPState) rdma.QPAttrMask {
	switch to {
	case rdma.StateInit:
		return initMask
	case rdma.StateRTR:
		return rtrMask
	case rdma.StateRTS:
		return rtsMask
	}
	return rdma.QPStateMask
}

// move makes a transition that needs no attributes.
func (r *rig) move(qp rdma.QP, to rdma.QPState) {
	r.Helper()
	r.must(qp.Modify(rdma.QPAttr{State: to}, rdma.QPStateMask), "modify to %v", to)
}

// send posts on a's queue pair, which must take everything.
func (l *link) send(wrs ...rdma.SendWR) {
	l.r.Helper()
	post(l.r, l.qa, wrs...)
}

// fails posts a request on a's queue pair and waits until it has failed.
func (l *link) fails(status rdma.WCStatus, wr rdma.SendWR) {
	l.r.Helper()
	l.send(wr)
	l.a.want(l.a.scq, wr.WRID, status)
}

// back is the link as b sees it.
func (l *link) back() *link { return &link{r: l.r, a: l.b, b: l.a, qa: l.qb, qb: l.qa} }

// do posts on a's queue pair and waits until the signaled requests are done.
func (l *link) do(wrs ...rdma.SendWR) {
	l.r.Helper()
	l.send(wrs...)
	for _, wr := range wrs {
		if wr.Flags&rdma.SendSignaled != 0 {
			l.a.done(l.a.scq, wr.WRID)
		}
	}
}

func post(r *rig, qp rdma.QP, wrs ...rdma.SendWR) {
	r.Helper()
	if n, err := qp.PostSend(wrs); err != nil || n != len(wrs) {
		r.Fatalf("PostSend took %d of %d: %v", n, len(wrs), err)
	}
}

// recv posts receives on b's queue pair, which must take all.
func (l *link) recv(wrs ...rdma.RecvWR) {
	l.r.Helper()
	postRecv(l.r, l.qb, wrs...)
}

func postRecv(r *rig, qp rdma.QP, wrs ...rdma.RecvWR) {
	r.Helper()
	if n, err := qp.PostRecv(wrs); err != nil || n != len(wrs) {
		r.Fatalf("PostRecv took %d of %d: %v", n, len(wrs), err)
	}
}

// works proves that the link is alive: a write that arrives.
func (l *link) works(id uint64) {
	l.r.Helper()
	src, dst := l.a.memory(64), l.b.memory(64)
	want := pattern(id, 64)
	src.Store(0, want)
	l.do(write(id, dst, 0, src.sge(0, 64)))
	l.r.same("a write that must arrive", dst.Load(0, 64), want)
}

// astray gives a request a key that nothing has.
func astray(wr rdma.SendWR) rdma.SendWR {
	wr.RKey ^= 1
	return wr
}

// The constructors below make signaled requests.

func write(id uint64, dst Region, off int, sgl ...rdma.SGE) rdma.SendWR {
	return request(rdma.WRRDMAWrite, id, dst, off, sgl)
}

func writeImm(id uint64, imm uint32, dst Region, off int, sgl ...rdma.SGE) rdma.SendWR {
	wr := request(rdma.WRRDMAWriteWithImm, id, dst, off, sgl)
	wr.ImmData = imm
	return wr
}

func read(id uint64, src Region, off int, sgl ...rdma.SGE) rdma.SendWR {
	return request(rdma.WRRDMARead, id, src, off, sgl)
}

func fetchAdd(id uint64, dst Region, off int, add uint64, old rdma.SGE) rdma.SendWR {
	wr := request(rdma.WRAtomicFetchAndAdd, id, dst, off, []rdma.SGE{old})
	wr.CompareAdd = add
	return wr
}

func compareSwap(id uint64, dst Region, off int, compare, swap uint64, old rdma.SGE) rdma.SendWR {
	wr := request(rdma.WRAtomicCmpAndSwp, id, dst, off, []rdma.SGE{old})
	wr.CompareAdd, wr.Swap = compare, swap
	return wr
}

func request(op rdma.WROpcode, id uint64, m Region, off int, sgl []rdma.SGE) rdma.SendWR {
	return rdma.SendWR{WRID: id, Opcode: op, Flags: rdma.SendSignaled, SGL: sgl, RemoteAddr: m.Base + uint64(off), RKey: m.RKey()}
}

func send(id uint64, sgl ...rdma.SGE) rdma.SendWR {
	return rdma.SendWR{WRID: id, Opcode: rdma.WRSend, Flags: rdma.SendSignaled, SGL: sgl}
}

func sendImm(id uint64, imm uint32, sgl ...rdma.SGE) rdma.SendWR {
	return rdma.SendWR{WRID: id, Opcode: rdma.WRSendWithImm, Flags: rdma.SendSignaled, ImmData: imm, SGL: sgl}
}

// unsignaled takes the signal from a request.
func unsignaled(wr rdma.SendWR) rdma.SendWR {
	wr.Flags &^= rdma.SendSignaled
	return wr
}

func receive(id uint64, sgl ...rdma.SGE) rdma.RecvWR { return rdma.RecvWR{WRID: id, SGL: sgl} }
