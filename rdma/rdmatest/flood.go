package rdmatest

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rdma"
)

// A FloodFabric is one survivor with receive queues of every kind, and victims without
// end that send into them until they are killed.
type FloodFabric struct {
	// Open gives the survivor's node, in this process, and a way to start the
	// i-th victim, which reaches it. dead, when not nil, is called after its
	// death, as a launcher would tell it.
	Open func(t testing.TB) (survivor Node, start func(i int) (victim Victim, dead func()))
	// Kills is how many are killed.
	Kills int
	Seed  uint64
}

const (
	floodAlive   = 3 // victims at a time
	floodDepth   = 16
	floodPrivate = 4
	floodMessage = 512
	floodBuffers = 4 // of a victim, and so many of its requests are under way
)

// The ways that a victim's messages go.
const (
	floodRC     = iota // into an SRQ
	floodXRC           // into an SRQ of the domain
	floodDC            // into the target's SRQ, and atomics
	floodUD            // into the receive queue of a port
	floodStride        // RC into a striding receive queue, which is the victim's alone
	floodUC            // into a receive queue of its own
	floodKinds
)

var floodNames = [floodKinds]string{"rc", "xrc", "dc", "ud", "striding", "uc"}

// A flood is what a victim is told: where to send to, and its numbers.
type flood struct {
	GID      rdma.GID // of the survivor
	Endpoint []byte
	Nums     [floodKinds]uint32
	SRQ      uint32 // of XRC
	Word     uint64 // to add to
	RKey     uint32
	Seed     uint64
}

// floodAttr are the attributes of all queue pairs, at both ends.
func floodAttr(to rdma.GID, num uint32) rdma.QPAttr {
	attr := defaults().attr
	attr.AV = rdma.AV{DGID: to, HopLimit: 1, PortNum: 1}
	attr.DestQPNum, attr.QKey = num, udKey
	return attr
}

// floodSteps are the masks of the steps of a kind's queue pair, the sender's or the
// receiver's.
func floodSteps(kind int, sends bool) [3]rdma.QPAttrMask {
	switch {
	case kind == floodUD:
		return [3]rdma.QPAttrMask{rdma.QPPKeyIndexMask | rdma.QPPortMask | rdma.QPQKeyMask, 0, rdma.QPSQPSNMask}
	case kind == floodUC:
		return [3]rdma.QPAttrMask{initMask, ucRTRMask, ucRTSMask}
	case kind == floodXRC && sends:
		return [3]rdma.QPAttrMask{initMask, ucRTRMask, rtsMask}
	case kind == floodXRC:
		return [3]rdma.QPAttrMask{initMask, rtrMask, rdma.QPTimeoutMask | rdma.QPSQPSNMask}
	case kind == floodDC:
		return [3]rdma.QPAttrMask{dciInit, rdma.QPPathMTUMask, dciRTS}
	}
	return [3]rdma.QPAttrMask{initMask, rtrMask, rtsMask}
}

// floodUp takes a queue pair from RESET to RTS.
func floodUp(qp rdma.QP, attr rdma.QPAttr, kind int, sends bool) error {
	for i, mask := range floodSteps(kind, sends) {
		attr.State = rdma.StateInit + rdma.QPState(i)
		if err := qp.Modify(attr, mask|rdma.QPStateMask); err != nil {
			return fmt.Errorf("%s to %v: %w", floodNames[kind], attr.State, err)
		}
	}
	return nil
}

// A flooder is a victim's half.
type flooder struct {
	ctx rdma.Context
	pd  rdma.PD
	cq  rdma.CQ
	qps [floodKinds]rdma.QP
	mem Region
}

// flood makes a victim's half and gives its numbers, and when it has been told those of
// the survivor sends for ever.
func (a *agent) flood(c *call, ans *answer) (err error) {
	if c.On != 0 {
		return on(a, c.On, func(f *flooder) error { return f.begin(c.Load.Flood) })
	}
	f := &flooder{ctx: a.ctx}
	if f.pd, err = a.ctx.AllocPD(); err != nil {
		return err
	}
	if f.cq, err = a.ctx.CreateCQ(2 * floodBuffers); err != nil {
		return err
	}
	if f.mem, err = a.node.Memory(f.pd, Allocated, (floodBuffers+1)*floodMessage, everything); err != nil {
		return err
	}
	for kind, typ := range [floodKinds]rdma.QPType{rdma.RC, rdma.XRCSend, rdma.DCI, rdma.UD, rdma.RC, rdma.UC} {
		f.qps[kind], err = f.pd.CreateQP(rdma.QPInitAttr{Type: typ, SendCQ: f.cq, RecvCQ: f.cq, Cap: rdma.QPCap{MaxSendWR: floodBuffers, MaxSendSGE: 1}})
		if err != nil {
			return err
		}
		ans.Nums = append(ans.Nums, f.qps[kind].Num())
	}
	ans.Object = a.add(f)
	ans.GID, err = a.ctx.QueryGID(1, 0)
	return err
}

func (f *flooder) begin(to flood) error {
	if err := f.ctx.(rdma.Endpointer).AddEndpoint(to.GID, to.Endpoint); err != nil {
		return err
	}
	for kind, qp := range f.qps {
		if err := floodUp(qp, floodAttr(to.GID, to.Nums[kind]), kind, true); err != nil {
			return err
		}
	}
	ah, err := f.pd.CreateAH(floodAttr(to.GID, 0).AV)
	if err != nil {
		return err
	}
	go f.run(to, ah)
	return nil
}

// run sends until the process is killed. Nothing may fail before.
func (f *flooder) run(to flood, ah rdma.AH) {
	rng := rand.New(rand.NewPCG(to.Seed, 2))
	var wc [floodBuffers]rdma.WC
	var free []uint64
	for i := range uint64(floodBuffers) {
		free = append(free, i)
	}
	word := make([]byte, floodMessage)
	for n := uint64(1); ; n++ {
		for len(free) == 0 {
			k, err := f.cq.Poll(wc[:])
			if err != nil {
				panic(err)
			}
			for _, c := range wc[:k] {
				if c.Status != rdma.WCSuccess {
					panic(fmt.Sprintf("a victim's request ended with %q before the victim did", c.Status))
				}
				free = append(free, c.WRID)
			}
		}
		id := free[len(free)-1]
		free = free[:len(free)-1]
		at := int(id) * floodMessage
		for i := 0; i < floodMessage; i += 8 {
			binary.NativeEndian.PutUint64(word[i:], n)
		}
		f.mem.Store(at, word)
		kind := rng.IntN(floodKinds)
		wr := rdma.SendWR{WRID: id, Opcode: rdma.WRSend, Flags: rdma.SendSignaled, SGL: []rdma.SGE{f.mem.sge(at, floodMessage)}}
		switch kind {
		case floodXRC:
			wr.SRQNum = to.SRQ
		case floodUD:
			wr.AH, wr.RemoteQPN, wr.RemoteQKey = ah, to.Nums[kind], udKey
		case floodDC:
			wr.AH, wr.RemoteQPN, wr.DCAccessKey = ah, to.Nums[kind], dcKey
			if n%2 == 0 {
				wr.Opcode, wr.RemoteAddr, wr.RKey, wr.CompareAdd = rdma.WRAtomicFetchAndAdd, to.Word, to.RKey, 1
				wr.SGL = []rdma.SGE{f.mem.sge(floodBuffers*floodMessage, 8)}
			}
		}
		if _, err := f.qps[kind].PostSend([]rdma.SendWR{wr}); err != nil {
			panic(err)
		}
	}
}

// An inlet is a receive queue of the survivor.
type inlet struct {
	r     *rig
	kind  int
	mem   Region
	slot  int // bytes of a receive
	head  int // of them, before the message
	takes int // messages in one
	post  func([]rdma.RecvWR) (int, error)
	out   int  // receives that are posted
	over  bool // nothing more is
}

func (s *side) inlet(kind, receives, slot int, post func([]rdma.RecvWR) (int, error)) *inlet {
	in := &inlet{r: s.r, kind: kind, slot: slot, takes: 1, mem: s.memory(receives * slot), post: post}
	if kind == floodUD {
		in.head = rdma.GRHLen
	}
	for i := range receives {
		in.put(i)
	}
	return in
}

// put posts receive i, in memory that holds nothing.
func (in *inlet) put(i int) {
	in.mem.Store(i*in.slot, make([]byte, in.slot))
	if n, err := in.post([]rdma.RecvWR{receive(uint64(in.kind)<<32|uint64(i), in.mem.sge(i*in.slot, in.slot))}); n != 1 {
		in.r.Fatalf("PostRecv of %s: %v", floodNames[in.kind], err)
	}
	in.out++
}

// taken checks that the message of a completion is whole, and posts the receive again
// when it is used up. It tells whether there was a message.
func (in *inlet) taken(wc *rdma.WCEx) bool {
	i := int(uint32(wc.WRID))
	if wc.Status == rdma.WCSuccess {
		b := in.mem.Load(i*in.slot+in.head+int(wc.Offset), floodMessage)
		first := binary.NativeEndian.Uint64(b)
		for k := 0; k < len(b); k += 8 {
			if v := binary.NativeEndian.Uint64(b[k:]); v != first || first == 0 || int(wc.ByteLen) != in.head+floodMessage {
				in.r.Fatalf("a message of %s, %d bytes, want %d: word %d is %d, the first %d", floodNames[in.kind], wc.ByteLen, in.head+floodMessage, k/8, v, first)
			}
		}
	} else if !in.over {
		in.r.Fatalf("a receive of %s ended with %q", floodNames[in.kind], wc.Status)
	}
	if wc.Status != rdma.WCSuccess || in.takes == 1 || wc.Flags&rdma.WCFlagLastStride != 0 {
		if in.out--; !in.over {
			in.put(i)
		}
	}
	return wc.Status == rdma.WCSuccess
}

// A refuge is the survivor's half.
type refuge struct {
	*side
	gid     rdma.GID
	x       *target
	xsrq    rdma.SRQ
	srq     rdma.SRQ
	port    rdma.QP
	dct     *dcTarget
	word    Region
	shared  [floodKinds]*inlet
	private map[uint32]*inlet // by queue pair
	count   [floodKinds]int
}

func newRefuge(s *side) *refuge {
	s.r.Helper()
	s.extended()
	f := &refuge{side: s, private: map[uint32]*inlet{}, word: s.memory(8)}
	f.gid = dcPath(s.r, s).AV.DGID
	f.srq = s.newSRQ(floodDepth)
	f.x = s.domain(rdma.XRCDInitAttr{Flags: os.O_CREATE})
	f.xsrq = f.x.queue(floodDepth, s.rcq)
	f.dct = s.target(dcKey)
	f.port = f.receiver(floodUD, rdma.QPInitAttr{Type: rdma.UD, Cap: rdma.QPCap{MaxSendWR: 1, MaxSendSGE: 1, MaxRecvWR: floodDepth, MaxRecvSGE: 1}})
	s.up(f.port, floodUD, f.gid, 0)
	f.shared = [floodKinds]*inlet{
		floodRC: s.inlet(floodRC, floodDepth, floodMessage, f.srq.PostRecv), floodXRC: s.inlet(floodXRC, floodDepth, floodMessage, f.xsrq.PostRecv),
		floodDC: s.inlet(floodDC, floodDepth, floodMessage, f.dct.srq.PostRecv), floodUD: s.inlet(floodUD, floodDepth, rdma.GRHLen+floodMessage, f.port.PostRecv),
	}
	return f
}

func (s *side) up(qp rdma.QP, kind int, to rdma.GID, num uint32) {
	s.r.Helper()
	s.r.must(floodUp(qp, floodAttr(to, num), kind, false), "take a queue pair to RTS")
}

// receiver makes a queue pair that receives.
func (f *refuge) receiver(kind int, init rdma.QPInitAttr) rdma.QP {
	f.r.Helper()
	init.SendCQ, init.RecvCQ = f.scq, f.rcq
	return result(f.pd.CreateQP(init)).owned(f.r, "CreateQP of %s", floodNames[kind])
}

// look takes in what has arrived.
func (f *refuge) look() {
	f.r.Helper()
	var wcs [16]rdma.WCEx
	for {
		n := result(f.rcq.PollEx(wcs[:])).must(f.r, "PollEx")
		for i := range wcs[:n] {
			wc := &wcs[i]
			kind := int(wc.WRID >> 32)
			in := f.shared[kind]
			if in == nil {
				in = f.private[wc.QPNum]
			}
			if in.taken(wc) {
				f.count[kind]++
			}
		}
		if n == 0 {
			return
		}
	}
}

func (f *refuge) messages() (sum int) {
	for _, n := range f.count {
		sum += n
	}
	return sum
}

// A floodLife is a living victim with its queue pairs at the survivor.
type floodLife struct {
	victim Victim
	dead   func()
	qps    map[int]rdma.QP
}

// begin starts a victim. It takes two questions, so that a new process is soon at it.
func (f *refuge) begin(v Victim, dead func(), seed uint64) *floodLife {
	f.r.Helper()
	ask := v.(interface {
		call(*call) (*answer, error)
	}).call
	there := result(ask(&call{Op: opFlood})).must(f.r, "make a victim's queue pairs")
	f.r.must(f.ctx.(rdma.Endpointer).AddEndpoint(there.GID, v.Context().(rdma.Endpointer).Endpoint()), "AddEndpoint")
	own := rdma.QPCap{MaxRecvWR: floodPrivate, MaxRecvSGE: 1}
	life := &floodLife{victim: v, dead: dead, qps: map[int]rdma.QP{
		floodRC:     f.receiver(floodRC, rdma.QPInitAttr{Type: rdma.RC, SRQ: f.srq}),
		floodXRC:    f.receiver(floodXRC, rdma.QPInitAttr{Type: rdma.XRCRecv, XRCD: f.x.x}),
		floodStride: f.receiver(floodStride, rdma.QPInitAttr{Type: rdma.RC, Cap: own, Striding: rdma.StridingRQ{StrideBytes: strideBytes, Strides: 2 * floodMessage / strideBytes}}),
		floodUC:     f.receiver(floodUC, rdma.QPInitAttr{Type: rdma.UC, Cap: own}),
	}}
	to := flood{GID: f.gid, Endpoint: f.ctx.(rdma.Endpointer).Endpoint(), SRQ: f.xsrq.Num(), Word: f.word.Base, RKey: f.word.RKey(), Seed: seed}
	to.Nums[floodUD], to.Nums[floodDC] = f.port.Num(), f.dct.qp.Num()
	for kind, qp := range life.qps {
		to.Nums[kind] = qp.Num()
		f.up(qp, kind, there.GID, there.Nums[kind])
	}
	striding := f.inlet(floodStride, floodPrivate, 2*floodMessage, life.qps[floodStride].PostRecv)
	striding.takes = 2
	f.private[to.Nums[floodStride]] = striding
	f.private[to.Nums[floodUC]] = f.inlet(floodUC, floodPrivate, floodMessage, life.qps[floodUC].PostRecv)
	if _, err := ask(&call{Op: opFlood, On: there.Object, Load: load{Flood: to}}); err != nil {
		f.r.Fatalf("start a victim's traffic: %v", err)
	}
	return life
}

// leave closes the queue pairs of a victim that has died, in the middle of messages
// perhaps, by the book: what it took from a shared queue is there when the queue pair
// takes no more, and each receive of an own queue ends once.
func (f *refuge) leave(l *floodLife) {
	f.r.Helper()
	for kind, qp := range l.qps {
		in := f.private[qp.Num()]
		if in != nil {
			in.over = true
		}
		f.r.move(qp, rdma.StateErr)
		if kind == floodRC {
			equal(f.r, f.event(rdma.EventQPLastWQEReached).QP, qp, "the event is of")
		}
		f.look()
		if in != nil {
			f.r.until("the flush of "+floodNames[kind], func() bool { f.look(); return in.out == 0 })
			delete(f.private, qp.Num())
			f.r.closeRegion(in.mem)
		}
		f.r.close(qp)
	}
}

// still stops victims wherever they are, until the function is called: they spin, and a
// new one is to come up beside them.
func still[L any](r *rig, alive []L, of func(L) (Victim, func())) (goOn func()) {
	r.Helper()
	all := func(do func(stopper) error) {
		for _, l := range alive {
			victim, _ := of(l)
			r.must(do(victim.(stopper)), "stop or continue the victim")
		}
	}
	all(stopper.Stop)
	return func() { all(stopper.Continue) }
}

// strike kills one of those alive at some moment, up to which it looks, and lets leave
// take back what the dead one had. It gives those that are left.
func strike[L any](r *rig, rng *rand.Rand, alive []L, of func(L) (Victim, func()), look func(), leave func(L)) []L {
	r.Helper()
	for moment := time.Now().Add(time.Duration(rng.IntN(1500)) * time.Microsecond); time.Now().Before(moment); {
		look()
		runtime.Gosched()
	}
	k := rng.IntN(len(alive))
	gone := alive[k]
	alive[k] = alive[len(alive)-1]
	victim, dead := of(gone)
	r.must(victim.Kill(), "Kill")
	if dead != nil && rng.IntN(2) == 0 {
		dead()
	}
	leave(gone)
	victim.(interface{ Reap() }).Reap()
	return alive[:len(alive)-1]
}

// RunFlood kills processes in the middle of messages into queues of every kind, several
// of which they share with each other, and holds the survivor to this: messages that
// arrive are whole, no receive is lost or used twice, and no queue is stuck.
func RunFlood(t *testing.T, f FloodFabric) {
	t.Helper()
	testenv.NoLeaks(t)
	survivor, start := f.Open(t)
	r := newRig(t, Fabric{Patience: testenv.Limit(20 * time.Second), Open: func(testing.TB, int) []Node { return []Node{survivor} }}, "flood", 1)
	rng := rand.New(rand.NewPCG(f.Seed, 3))
	home := newRefuge(r.sides[0])
	of := func(l *floodLife) (Victim, func()) { return l.victim, l.dead }
	var alive []*floodLife
	for kills := range f.Kills {
		goOn := still(r, alive, of)
		for len(alive) < floodAlive {
			v, dead := start(kills + len(alive))
			alive = append(alive, home.begin(v, dead, rng.Uint64()))
		}
		goOn()
		alive = strike(r, rng, alive, of, home.look, home.leave)
		got := home.messages()
		r.until("a message of those who live", func() bool {
			home.look()
			return home.messages() > got
		})
	}
	for _, l := range alive {
		r.must(l.victim.Kill(), "Kill")
	}
	for _, l := range alive {
		home.leave(l)
	}
	home.look()
	home.complete()
	for kind, n := range home.count {
		if n == 0 {
			t.Errorf("no message came by %s", floodNames[kind])
		}
	}
	t.Logf("%d kills; messages by kind %v: %v", f.Kills, floodNames, home.count)
}

// complete proves that every receive of the shared queues is there, once, with
// messages of the survivor's own.
func (f *refuge) complete() {
	r, s := f.r, f.side
	r.Helper()
	src := s.memory(floodMessage)
	rc := r.connect(s, s, ownCQs(1, nil, f.rcq), from(1, f.srq))
	xrc := f.x.from(s)
	dci, ah := s.initiator(), f.dct.handle(s)
	ud := f.receiver(floodUD, rdma.QPInitAttr{Type: rdma.UD, Cap: rdma.QPCap{MaxSendWR: 1, MaxSendSGE: 1}})
	s.up(ud, floodUD, f.gid, 0)
	for kind, send := range map[int]func(){
		floodRC:  func() { rc.send(send(1, src.sge(0, 8))) },
		floodXRC: func() { xrc.send(into(f.xsrq, send(1, src.sge(0, 8)))) },
		floodDC: func() {
			post(r, dci, f.dct.at(ah, send(1, src.sge(0, 8))), f.dct.at(ah, unsignaled(fetchAdd(2, f.word, 0, 1, src.sge(8, 8)))))
		},
		floodUD: func() {
			wr := send(1, src.sge(0, 8))
			wr.AH, wr.RemoteQPN, wr.RemoteQKey = ah, f.port.Num(), udKey
			post(r, ud, wr)
		},
	} {
		// The receiver looks too: only that finds what the dead have claimed.
		seen := map[uint64]bool{}
		var wc [1]rdma.WCEx
		for len(seen) < floodDepth {
			sent := false
			send()
			r.until("a message of the survivor's own by "+floodNames[kind], func() bool {
				n, err := f.rcq.PollEx(wc[:])
				if err != nil || n == 1 && (wc[0].Status != rdma.WCSuccess || seen[wc[0].WRID] || int(wc[0].WRID>>32) != kind) {
					r.Fatalf("messages of the survivor's own by %s: %v, %+v %q, seen %v", floodNames[kind], err, wc, wc[0].Status, seen)
				}
				if n == 1 {
					seen[wc[0].WRID] = true
				}
				if sent {
					return n == 0 // a look behind its completion
				}
				own, ok := s.poll(s.scq)
				if ok && own.Status != rdma.WCSuccess {
					r.Fatalf("a message of the survivor's own by %s: %q", floodNames[kind], own.Status)
				}
				sent = ok
				return false
			})
		}
	}
}
