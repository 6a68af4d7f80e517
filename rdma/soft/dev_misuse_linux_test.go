package soft

import (
	stdctx "context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/arch"
	"github.com/gorun-mpi/gorun/rdma"
)

// A clumsy program does everything at once, from many goroutines and in any
// order: it makes, connects, uses and closes objects of every kind while others
// use them, posts what makes no sense, and uses what is closed. Every call must
// return with success or with an error that verbs know; and when all is closed,
// in whatever order that takes, nothing of the arena is in use any more.

// A clumsy is the program's half on one node: the last few objects of each kind,
// closed or not.
type clumsy struct {
	*node
	pds      pen[*domain]
	channels pen[*compChannel]
	cqs      pen[*completionQueue]
	mrs      pen[rdma.MR]
	mws      pen[rdma.MW]
	mkeys    pen[rdma.Mkey]
	spaces   pen[rdma.SVA]
	xrcds    pen[rdma.XRCD]
	srqs     pen[rdma.SRQ]
	qps      pen[rdma.QP]
	ahs      pen[rdma.AH]
	memory   []byte // mapped, ordinary

	mu   sync.Mutex
	made []closer
	did  map[string]int // what has succeeded
}

// A pen holds the last few objects of a kind.
type pen[T any] struct{ kept [4]atomic.Pointer[T] }

func (p *pen[T]) any(rng *rand.Rand) (v T, ok bool) {
	if at := p.kept[rng.IntN(len(p.kept))].Load(); at != nil {
		return *at, true
	}
	return v, false
}

func (p *pen[T]) put(rng *rand.Rand, v T) { p.kept[rng.IntN(len(p.kept))].Store(&v) }

// known are the errors that a verb may give.
var known = []error{rdma.ErrInvalid, rdma.ErrBusy, rdma.ErrNoMemory, rdma.ErrNotSupported, syscall.EFAULT}

func (c *clumsy) check(what string, err error) {
	if err == nil {
		c.mu.Lock()
		c.did[what]++
		c.mu.Unlock()
		return
	}
	if slices.ContainsFunc(known, func(k error) bool { return errors.Is(err, k) }) {
		return
	}
	c.t.Errorf("%s: %v", what, err)
}

// noted notes what was made.
func noted[T closer](c *clumsy, rng *rand.Rand, p *pen[T], what string, v T, err error) {
	if c.check(what, err); err != nil {
		return
	}
	c.mu.Lock()
	c.made = append(c.made, v)
	c.mu.Unlock()
	p.put(rng, v)
}

// create makes an object of some kind.
func (c *clumsy) create(rng *rand.Rand) {
	pd := c.pd
	if other, ok := c.pds.any(rng); ok && rng.IntN(4) == 0 {
		pd = other
	}
	if rng.IntN(100) == 0 {
		v, err := c.ctx.AllocPD()
		d, _ := v.(*domain)
		noted(c, rng, &c.pds, "AllocPD", d, err)
		return
	}
	var access = all | rdma.AccessMWBind
	switch rng.IntN(16) {
	case 0:
		v, err := pd.AllocMR(1+rng.IntN(16<<10), access)
		noted(c, rng, &c.mrs, "AllocMR", v, err)
	case 1:
		n := 1 + rng.IntN(len(c.memory))
		v, err := pd.RegMR(c.memory[:n], access)
		noted(c, rng, &c.mrs, "RegMR", v, err)
	case 2:
		v, err := pd.AllocMW(rdma.MWType(1 + rng.IntN(2)))
		noted(c, rng, &c.mws, "AllocMW", v, err)
	case 3:
		v, err := pd.CreateMkey(1 + rng.IntN(8))
		noted(c, rng, &c.mkeys, "CreateMkey", v, err)
	case 4:
		v, err := pd.ShareVA()
		noted(c, rng, &c.spaces, "ShareVA", v, err)
	case 5:
		v, err := c.ctx.OpenXRCD(rdma.XRCDInitAttr{})
		noted(c, rng, &c.xrcds, "OpenXRCD", v, err)
	case 6:
		v, err := c.ctx.CreateCompChannel()
		ch, _ := v.(*compChannel)
		noted(c, rng, &c.channels, "CreateCompChannel", ch, err)
	case 7:
		attr := rdma.CQInitAttr{CQE: 1 << rng.IntN(10), Timestamps: rng.IntN(2) == 0, IgnoreOverrun: rng.IntN(4) == 0}
		if ch, ok := c.channels.any(rng); ok {
			attr.Channel = ch
		}
		v, err := c.ctx.CreateCQEx(attr)
		cq, _ := v.(*completionQueue)
		noted(c, rng, &c.cqs, "CreateCQEx", cq, err)
	case 8:
		init := rdma.SRQInitAttr{Attr: rdma.SRQAttr{MaxWR: 1 + rng.IntN(32), MaxSGE: rng.IntN(3)}}
		if x, ok := c.xrcds.any(rng); ok && rng.IntN(2) == 0 {
			cq, _ := c.cqs.any(rng)
			init.Type, init.XRCD, init.CQ = rdma.SRQXRC, x, cq
			if cq == nil {
				init.CQ = nil
			}
		} else if rng.IntN(2) == 0 {
			init.Type, init.CQ, init.MaxTags, init.MaxOps = rdma.SRQTagMatching, c.cq, rng.IntN(16), rng.IntN(16)
		}
		v, err := pd.CreateSRQ(init)
		noted(c, rng, &c.srqs, "CreateSRQ", v, err)
	case 9:
		v, err := pd.CreateAH(rdma.AV{DGID: c.ctx.p.gids[0], PortNum: 1})
		noted(c, rng, &c.ahs, "CreateAH", v, err)
	default:
		c.createQP(rng, pd)
	}
}

var clumsyTypes = []rdma.QPType{rdma.RC, rdma.RC, rdma.UC, rdma.UD, rdma.XRCSend, rdma.XRCRecv, rdma.DCI, rdma.DCT, 77}

func (c *clumsy) createQP(rng *rand.Rand, pd *domain) {
	init := rdma.QPInitAttr{Type: clumsyTypes[rng.IntN(len(clumsyTypes))], SigAll: rng.IntN(2) == 0, DCAccessKey: dcTestKey,
		Cap: rdma.QPCap{MaxSendWR: rng.IntN(64), MaxRecvWR: rng.IntN(64), MaxSendSGE: rng.IntN(5), MaxRecvSGE: rng.IntN(5), MaxInlineData: 64, MaxInlineRecv: rng.IntN(2) * 64}}
	for _, to := range []*rdma.CQ{&init.SendCQ, &init.RecvCQ} {
		*to = c.cq
		if cq, ok := c.cqs.any(rng); ok && rng.IntN(2) == 0 {
			*to = cq
		}
	}
	if s, ok := c.srqs.any(rng); ok && rng.IntN(2) == 0 {
		init.SRQ = s
	} else if rng.IntN(3) == 0 {
		init.Striding = rdma.StridingRQ{StrideBytes: 64, Strides: 4}
	}
	if x, ok := c.xrcds.any(rng); ok {
		init.XRCD = x
	}
	v, err := pd.CreateQP(init)
	noted(c, rng, &c.qps, "CreateQP", v, err)
	if err == nil && init.Type == rdma.XRCRecv {
		if x, ok := c.xrcds.any(rng); ok {
			v, err := c.ctx.OpenQP(v.Num(), x)
			noted(c, rng, &c.qps, "OpenQP", v, err)
		}
	}
}

// partner is what a transport talks to.
func partner(typ rdma.QPType) rdma.QPType {
	switch typ {
	case rdma.XRCSend:
		return rdma.XRCRecv
	case rdma.XRCRecv:
		return rdma.XRCSend
	}
	return typ
}

// connect takes two queue pairs, of one transport if there are such, to RTS.
func (c *clumsy) connect(rng *rand.Rand, other *clumsy) {
	q, ok := c.qps.any(rng)
	if !ok {
		return
	}
	at, init := q.Query()
	if at.State == rdma.StateRTS && rng.IntN(10) > 0 {
		return
	}
	var to rdma.QP
	var theirs rdma.QPInitAttr
	for range 10 {
		if to, ok = other.qps.any(rng); ok {
			if _, theirs = to.Query(); theirs.Type == partner(init.Type) {
				break
			}
		}
	}
	if to == nil {
		return
	}
	c.bringUp(q, init.Type, other, to.Num())
	other.bringUp(to, theirs.Type, c, q.Num())
}

// bringUp goes as far as the queue pair lets itself be taken.
func (c *clumsy) bringUp(q rdma.QP, typ rdma.QPType, other *clumsy, num uint32) {
	a := attrs()
	a.QKey, a.Timeout, a.RetryCnt, a.RNRRetry = 7, 5, 1, 1
	a.AV, a.DestQPNum = rdma.AV{DGID: other.p.gids[0], PortNum: 1, HopLimit: 1}, num
	for _, to := range []rdma.QPState{rdma.StateReset, rdma.StateInit, rdma.StateRTR, rdma.StateRTS} {
		a.State = to
		err := q.Modify(a, stepMask(typ, to))
		c.check("Modify to "+to.String(), err)
		if err != nil {
			return
		}
	}
}

// stepMask is what a transport wants for a step.
func stepMask(typ rdma.QPType, to rdma.QPState) rdma.QPAttrMask {
	if to == rdma.StateReset {
		return rdma.QPStateMask
	}
	m := map[rdma.QPState]rdma.QPAttrMask{rdma.StateInit: initMask, rdma.StateRTR: rtrMask, rdma.StateRTS: rtsMask}[to]
	switch typ {
	case rdma.UC:
		m &^= rdma.QPMaxDestRdAtomicMask | rdma.QPMinRNRTimerMask | rdma.QPTimeoutMask | rdma.QPRetryCntMask | rdma.QPRNRRetryMask | rdma.QPMaxRdAtomicMask
	case rdma.UD:
		m = map[rdma.QPState]rdma.QPAttrMask{rdma.StateInit: rdma.QPStateMask | rdma.QPPKeyIndexMask | rdma.QPPortMask | rdma.QPQKeyMask,
			rdma.StateRTR: rdma.QPStateMask, rdma.StateRTS: rdma.QPStateMask | rdma.QPSQPSNMask}[to]
	case rdma.XRCSend:
		m &^= rdma.QPMaxDestRdAtomicMask | rdma.QPMinRNRTimerMask
	case rdma.XRCRecv:
		m &^= rdma.QPRetryCntMask | rdma.QPRNRRetryMask | rdma.QPMaxRdAtomicMask
	case rdma.DCI:
		m = map[rdma.QPState]rdma.QPAttrMask{rdma.StateInit: rdma.QPStateMask | rdma.QPPKeyIndexMask | rdma.QPPortMask,
			rdma.StateRTR: rdma.QPStateMask | rdma.QPPathMTUMask, rdma.StateRTS: rtsMask}[to]
	case rdma.DCT:
		m = map[rdma.QPState]rdma.QPAttrMask{rdma.StateInit: initMask,
			rdma.StateRTR: rdma.QPStateMask | rdma.QPPathMTUMask | rdma.QPMinRNRTimerMask}[to]
	}
	return m
}

// sges names some memory, now and then none that there is.
func (c *clumsy) sges(rng *rand.Rand) []rdma.SGE {
	list := make([]rdma.SGE, rng.IntN(4))
	if rng.IntN(100) == 0 {
		list = make([]rdma.SGE, 5000)
	}
	for i := range list {
		if mr, ok := c.mrs.any(rng); ok {
			list[i] = rdma.SGE{Addr: mr.Addr() + rng.Uint64N(mr.Len()), LKey: mr.LKey(), Length: 8 * uint32(rng.IntN(8))}
		}
		switch rng.IntN(40) {
		case 0:
			list[i].Length = ^uint32(0)
		case 1:
			list[i].Addr = rng.Uint64()
		case 2:
			list[i].Length = 8
		case 3:
			if k, ok := c.mkeys.any(rng); ok {
				list[i].Addr, list[i].LKey = 0, k.LKey()
			}
		case 4:
			if v, ok := c.spaces.any(rng); ok {
				list[i].Addr, list[i].LKey = addressOf(c.memory), v.LKey()
			}
		}
	}
	return list
}

// use does something with objects that are there, or were.
func (c *clumsy) use(rng *rand.Rand, other *clumsy) {
	q, isQ := c.qps.any(rng)
	mr, isMR := c.mrs.any(rng)
	theirs, isTheirs := other.mrs.any(rng)
	wr := rdma.SendWR{Opcode: rdma.WROpcode(rng.IntN(11)), Flags: rdma.SendFlags(rng.IntN(8)), SGL: c.sges(rng), DCAccessKey: dcTestKey, RemoteQKey: 7}
	switch rng.IntN(8) {
	case 0:
		wr.Opcode = rdma.WRRegMkey
	case 1:
		wr.Flags |= rdma.SendInline
	case 2, 3:
		wr.SGL = nil
	case 4: // what a queue with tags matches
		h := rdma.TMH{Opcode: rdma.TMOpcode(rng.IntN(4)), Tag: rng.Uint64N(2)}.Append(nil)
		wr.Opcode, wr.Flags, wr.SGL = rdma.WRSend, wr.Flags|rdma.SendInline, nil
		wr.Inline = rdma.RVH{RKey: 0x101, Length: rng.Uint32N(64)}.Append(h)
	}
	if isTheirs {
		wr.RemoteAddr, wr.RKey = theirs.Addr()+rng.Uint64N(theirs.Len()), theirs.RKey()
	}
	if w, ok := other.mws.any(rng); ok && rng.IntN(4) == 0 {
		wr.RKey, wr.InvalidateRKey = w.RKey(), w.RKey()
	}
	if w, ok := c.mws.any(rng); ok && isMR {
		wr.MW, wr.Bind = w, &rdma.MWBind{MR: mr, Addr: mr.Addr(), Length: uint64(rng.IntN(int(mr.Len()) + 1)), Access: rdma.AccessRemoteWrite}
		if wr.Opcode == rdma.WRBindMW {
			wr.RKey = rdma.IncRKey(w.RKey())
		}
		if wr.Opcode == rdma.WRLocalInv {
			wr.InvalidateRKey = w.RKey()
		}
	}
	if k, ok := c.mkeys.any(rng); ok && isMR {
		wr.Mkey, wr.Layout = k, &rdma.MkeyLayout{Access: all, Repeat: rng.Uint32N(5), Interleaved: []rdma.MkeyPiece{
			{Addr: mr.Addr(), Count: rng.Uint32N(16), Skip: rng.Uint32N(16), LKey: mr.LKey()}}}
	}
	if h, ok := c.ahs.any(rng); ok {
		wr.AH = h
	}
	if p, ok := other.qps.any(rng); ok {
		wr.RemoteQPN = p.Num()
	}
	if s, ok := other.srqs.any(rng); ok {
		wr.SRQNum = s.Num()
	}
	recv := []rdma.RecvWR{{SGL: c.sges(rng)}, {}}
	var wc [8]rdma.WC
	var ex [8]rdma.WCEx
	now, cancel := stdctx.WithCancel(stdctx.Background())
	cancel()
	switch k := rng.IntN(24); {
	case k < 7 && isQ:
		_, err := q.PostSend([]rdma.SendWR{wr, wr})
		c.check("PostSend", err)
	case k < 9 && isQ:
		_, err := q.PostRecv(recv)
		c.check("PostRecv", err)
	case k < 11:
		if s, ok := c.srqs.any(rng); ok {
			_, err := s.PostRecv(recv)
			c.check("PostRecv", err)
			ops := []rdma.OpsWR{{Opcode: rdma.OpsOpcode(rng.IntN(4)), Flags: rdma.SendFlags(rng.IntN(2)) * rdma.SendSignaled, Handle: rng.Uint32N(1 << 18), SGL: recv[0].SGL, Mask: rng.Uint64N(2), UnexpectedCnt: rng.Uint32N(4)}}
			_, err = s.PostOps(ops)
			c.check("PostOps", err)
			if err == nil && ops[0].Opcode == rdma.OpAdd && rng.IntN(2) == 0 {
				ops[0].Opcode = rdma.OpDel
				_, err = s.PostOps(ops)
				c.check("PostOps", err)
			}
			c.check("Modify", s.Modify(rdma.SRQAttr{Limit: rng.IntN(8)}, rdma.SRQLimitMask))
			s.Query()
		}
	case k < 14:
		cq, ok := c.cqs.any(rng)
		if !ok || rng.IntN(2) == 0 {
			cq = c.cq
		}
		if !cq.over.Load() {
			n, err := cq.Poll(wc[:])
			c.check("Poll", err)
			for _, w := range wc[:n] {
				c.check(fmt.Sprintf("%v of %d", w.Status, w.Opcode), nil)
			}
			_, err = cq.PollEx(ex[:])
			c.check("PollEx", err)
		}
	case k == 14:
		if cq, ok := c.cqs.any(rng); ok {
			c.check("ReqNotify", cq.ReqNotify(rng.IntN(2) == 0))
			c.check("Resize", cq.Resize(rng.IntN(64)))
		}
	case k == 15:
		if ch, ok := c.channels.any(rng); ok {
			if _, err := ch.Get(now); !errors.Is(err, stdctx.Canceled) {
				c.check("Get", err)
			}
		}
		if _, err := c.ctx.GetAsyncEvent(now); !errors.Is(err, stdctx.Canceled) {
			c.check("GetAsyncEvent", err)
		}
	case k == 16 && isMR:
		access, pd := all|rdma.AccessMWBind, rdma.PD(nil)
		if d, ok := c.pds.any(rng); ok {
			pd = d
		}
		c.check("Rereg", mr.Rereg(rdma.ReregFlags(rng.IntN(8)), pd, c.memory[:1+rng.IntN(len(c.memory))], access))
	case k == 17:
		if v, ok := c.spaces.any(rng); ok {
			c.check("Protect", v.Protect(addressOf(c.memory), uint64(rng.IntN(len(c.memory)+1)), []rdma.Access{0, all}[rng.IntN(2)]))
		}
	case k == 18 && isQ:
		if w, ok := c.mws.any(rng); ok && wr.Bind != nil {
			c.check("BindMW", q.BindMW(w, 0, rdma.SendSignaled, *wr.Bind))
		}
	case k == 19 && isQ:
		if rng.IntN(3) == 0 {
			c.check("Modify", q.Modify(rdma.QPAttr{State: []rdma.QPState{rdma.StateErr, rdma.StateSQD, rdma.StateRTS, rdma.StateReset}[rng.IntN(4)]}, rdma.QPStateMask))
		}
		q.State()
		q.Query()
	case k == 20:
		c.ctx.Counters()
		c.ctx.Progress()
		if pd, ok := c.pds.any(rng); ok {
			c.check("AdviseMR", pd.AdviseMR(rdma.AdvisePrefetch, 0, c.sges(rng)))
		}
	default:
		c.connect(rng, other)
	}
}

// end closes one object, whatever uses it.
func (c *clumsy) end(rng *rand.Rand) {
	c.mu.Lock()
	var v closer
	if n := len(c.made); n > 0 {
		v = c.made[rng.IntN(n)]
	}
	c.mu.Unlock()
	if v == nil {
		return
	}
	err := v.Close()
	c.check(fmt.Sprintf("close a %T", v), err)
	if err == nil {
		c.mu.Lock()
		c.made = slices.DeleteFunc(c.made, func(have closer) bool { return have == v })
		c.mu.Unlock()
		c.check(fmt.Sprintf("close a %T again", v), v.Close())
	}
}

// endAll closes everything, and looks that nothing is left.
func (c *clumsy) endAll(rng *rand.Rand) {
	t, p := c.t, c.p
	for pass := 0; len(c.made) > 0; pass++ {
		rng.Shuffle(len(c.made), func(i, j int) { c.made[i], c.made[j] = c.made[j], c.made[i] })
		c.made = slices.DeleteFunc(c.made, func(v closer) bool {
			err := v.Close()
			if err != nil && (!errors.Is(err, rdma.ErrBusy) || pass > 10) {
				t.Errorf("close a %T: %v", v, err)
			}
			return err == nil
		})
		if pass > 10 {
			t.Fatalf("%d objects do not close", len(c.made))
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	kept := uint64(0)
	for _, list := range p.sharedBlocks {
		for _, b := range list {
			kept += (b.bytes() + grain - 1) &^ (grain - 1)
			if b.bytes() >= pageSize {
				kept += (b.bytes()+pageSize-1)&^(pageSize-1) - (b.bytes()+grain-1)&^(grain-1)
			}
		}
	}
	if p.heap.inUse != kept || p.abandoned != 0 {
		t.Errorf("%d bytes of the arena are in use, %d of them by shared queues' memory; %d are abandoned", p.heap.inUse, kept, p.abandoned)
	}
	for name, x := range map[string]*indexes{"keys": &p.free.keys, "queue pairs": &p.free.qps, "shared queues": &p.free.srqs} {
		if used := x.next - len(x.free); used != 0 {
			t.Errorf("%d %s are in use", used, name)
		}
		seen := make(map[int]bool)
		for _, i := range x.free {
			if seen[i] {
				t.Errorf("of the %s, %d is free twice", name, i)
			}
			seen[i] = true
		}
	}
	for _, o := range p.domains {
		if o.opens != 0 {
			t.Errorf("an XRC domain is open %d times", o.opens)
		}
	}
}

func TestMisuseFromManyGoroutines(t *testing.T) {
	shared := func(cfg Config) func(*testing.T) []*node {
		return func(t *testing.T) []*node { return nodes(t, 2, cfg) }
	}
	for _, c := range []struct {
		name string
		open func(t *testing.T) []*node
	}{
		{"segment", shared(Config{})},
		{"adversary", shared(Config{Adversary: &Adversary{Seed: 3}})},
		{"tcp", func(t *testing.T) []*node { return hosts(t, 2) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			noLeaks(t)
			n := c.open(t)
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed %d", seed)
			var programs []*clumsy
			for _, x := range n {
				memory, err := unix.Mmap(-1, 0, 64<<10, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
				if err != nil {
					t.Fatal(err)
				}
				defer unix.Munmap(memory)
				programs = append(programs, &clumsy{node: x, memory: memory, did: make(map[string]int)})
			}
			rounds := 4000
			if arch.RaceEnabled {
				rounds = 1000
			}
			var workers sync.WaitGroup
			for w := range 6 {
				rng := rand.New(rand.NewPCG(seed, uint64(w)))
				me, other := programs[w%2], programs[(w+w/2)%2]
				workers.Go(func() {
					for range rounds {
						switch rng.IntN(30) {
						case 0, 1:
							me.create(rng)
						case 2:
							me.end(rng)
						default:
							me.use(rng, other)
						}
					}
				})
			}
			workers.Wait()
			for _, c := range programs {
				c.endAll(rand.New(rand.NewPCG(seed, 99)))
				t.Log(c.did)
				for _, what := range []string{"CreateQP", "Modify to RTS", "PostSend", "PostRecv", "RegMR"} {
					if c.did[what] == 0 {
						t.Errorf("no %s has succeeded", what)
					}
				}
			}
		})
	}
}

// A poll beside it sees a queue pair that is being made when it has its context, and takes no other one's receives for its.
func TestQueuePairsAreMadeBesidePolls(t *testing.T) {
	a := open(t, Config{})
	attr := rdma.QPInitAttr{SendCQ: a.cq, RecvCQ: a.cq, Type: rdma.RC, Cap: rdma.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}}
	first := must[rdma.QP](t)(a.pd.CreateQP(attr)).(*queuePair)
	a.owned = append(a.owned, first)
	var polls sync.WaitGroup
	over := make(chan struct{})
	polls.Go(func() {
		var wc [1]rdma.WC
		for {
			select {
			case <-over:
				return
			default:
			}
			for i := range a.p.ready[:4] { // as initiators do
				atomic.StoreUint32(&a.p.ready[i], 1)
			}
			atomic.StoreUint32(&first.recv.head.attention, 1)
			if _, err := a.cq.Poll(wc[:]); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for range 20000 {
		q := must[rdma.QP](t)(a.pd.CreateQP(attr))
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	}
	close(over)
	polls.Wait()
}
