package soft

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorun-mpi/gorun/internal/arch"
	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rdma"
)

func FuzzFrame(f *testing.F) {
	for _, fr := range []frame{
		{kind: frameRequest, op: rdma.WRRDMAWrite, length: 5, total: 5, to: 1, from: 2, psn: 3, key: 4, addr: 5},
		{kind: frameRequest, op: rdma.WRSendWithInv, imm: 77, length: 3, total: 3},
		{kind: frameRequest, op: rdma.WRSend, length: pieceSize, total: 3 * pieceSize, offset: pieceSize},
		{kind: frameRequest, op: rdma.WRRDMAWrite, length: landingSize, total: 2 * landingSize, offset: landingSize},
		{kind: frameRequest, op: rdma.WRAtomicCmpAndSwp, total: 8, compareAdd: 1, swap: 2},
		{kind: frameMessage, op: rdma.WRSendWithImm, length: 5, total: 5, to: 1, from: 2, imm: 3, flags: frameSolicited},
		{kind: frameDatagram, op: rdma.WRSend, length: 9, total: 9, to: 1, from: 2, key: 7, code: 1, gid: rdma.GID{1, 15: 2}},
		{kind: frameRequest, op: rdma.WRSend, length: 5, total: 5, swap: 1 << 31, flags: frameXRC},
		{kind: frameRequest, op: rdma.WRAtomicCmpAndSwp, total: 8, to: 1, from: 2, compareAdd: 1, swap: 2, life: 3, flags: frameDC},
		{kind: frameCall, to: 1, from: 2, psn: psnMask, life: 3, compareAdd: dcTestKey}, {kind: frameHangUp, to: 1, from: 2, life: 3}, {kind: frameBusy, psn: 4, life: 3},
		{kind: frameAck, psn: psnMask}, {kind: frameNak, code: 10}, {kind: frameNotReady, code: 31},
		{kind: frameData, op: rdma.WRRDMARead, total: 10, offset: 0, length: 10},
	} {
		var b [frameSize]byte
		fr.put(&b)
		f.Add(b[:])
		if got, err := parseFrame(b[:]); err != nil || got != fr {
			f.Errorf("parseFrame(put(%+v)) = %+v, %v", fr, got, err)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		fr, err := parseFrame(b)
		if err != nil {
			return
		}
		var again [frameSize]byte
		fr.put(&again)
		if string(again[:]) != string(b[:frameSize]) {
			t.Errorf("%x is read and written as %x", b[:frameSize], again)
		}
		if fr.length > landingSize || uint64(fr.offset)+uint64(fr.length) > uint64(fr.total) {
			t.Errorf("%+v lies outside its message", fr)
		}
	})
}

func FuzzEndpoint(f *testing.F) {
	good := endpoint{rank: 1, pid: 2, started: 3, probe: 4, nonce: [16]byte{5}, host: "host", address: "127.0.0.1:6"}
	f.Add(good.append(nil))
	good.located = true
	f.Add(good.append(nil))
	f.Add([]byte{endpointVersion})
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := parseEndpoint(b)
		if err != nil {
			return
		}
		if again := e.append(nil); string(again) != string(b) {
			t.Errorf("%x is read and written as %x", b, again)
		}
	})
}

// FuzzSegment scribbles over both arenas, as a faulty member may,
// and then uses them. The owner's heap is out of reach, and so is, here, the memory
// of its process: the peer counts as another process's.
func FuzzSegment(f *testing.F) {
	f.Add(uint64(1), uint16(40))
	f.Add(uint64(2), uint16(4000))
	f.Fuzz(func(t *testing.T, seed uint64, words uint16) { scribble(t, seed, words, false) })
}

func TestScribbledSegment(t *testing.T) {
	for seed := range uint64(60) {
		scribble(t, seed, uint16(seed*seed*3), false)
	}
}

// Whatever is read twice may be another thing the second time.
func TestSegmentScribbledDuringRequests(t *testing.T) {
	for seed := range uint64(24) {
		scribble(t, seed, 0, !arch.RaceEnabled) // it is a race
	}
}

// scribble writes words over the arenas and uses them then, and, with whileInUse,
// goes on writing meanwhile.
func scribble(t *testing.T, seed uint64, words uint16, whileInUse bool) {
	n := nodes(t, 2, Config{})
	a, b := n[0], n[1]
	b.inlineRecv = int(seed%3) * 32
	if seed%4 == 3 {
		b.strides = rdma.StridingRQ{StrideBytes: 64, Strides: 2}
	}
	attr := attrs()
	attr.RetryCnt, attr.Timeout, attr.RNRRetry = 1, 1, 1
	qa, qb := pair(t, a, b, attr)
	a.p.find(b.p.gids[0]).reach = reachNone
	b.p.find(a.p.gids[0]).reach = reachNone
	src, dst := a.alloc(4096, all), b.alloc(4096, all)
	other := b.reg(make([]byte, 64), all|rdma.AccessMWBind)
	// One window of each type, and what to bind them to anew.
	shared, private := b.window(rdma.MWType1), b.window(rdma.MWType2)
	bind := rdma.MWBind{MR: other, Addr: other.Addr() + 8, Length: 32, Access: rdma.AccessRemoteWrite | rdma.AccessRemoteRead}
	if err := qb.BindMW(shared, 0, 0, bind); err != nil {
		t.Fatal(err)
	}
	post(t, qb, rdma.SendWR{Opcode: rdma.WRBindMW, MW: private, RKey: rdma.IncRKey(private.RKey()), Bind: &bind})
	space := must[rdma.SVA](t)(b.pd.ShareVA())
	if err := space.Protect(other.Addr(), 64, all); err != nil {
		t.Fatal(err)
	}
	laid := must[rdma.Mkey](t)(b.pd.CreateMkey(4))
	layout := &rdma.MkeyLayout{Access: all, Repeat: 8, Interleaved: []rdma.MkeyPiece{
		{Addr: dst.Addr(), Count: 3, Skip: 5, LKey: dst.LKey()}, {Addr: other.Addr(), Count: 1, Skip: 1, LKey: other.LKey()}}}
	post(t, qb, rdma.SendWR{Opcode: rdma.WRRegMkey, Mkey: laid, Layout: layout})
	rng := rand.New(rand.NewPCG(seed, 0))
	l := a.p.layout
	for range 8 {
		postRecv(t, qb, rdma.RecvWR{SGL: []rdma.SGE{sge(dst, 0, 64), sge(dst, 64, 64)}})
	}
	srq, toShared := a.intoSRQ(b)
	toDatagrams, datagrams := a.datagrams(b)
	handle := must[rdma.AH](t)(a.pd.CreateAH(rdma.AV{DGID: b.p.gids[0], PortNum: 1}))
	defer handle.Close()
	xrc, toXRC := a.intoXRC(b)
	tags := b.tagged(8, 8)
	if arch.RaceEnabled {
		// The watch for tags would read while a neighbour writes, and write where it
		// sends to, which is what the detector is there to tell of.
		b.p.watch.leave()
		b.p.watch.ended.Wait()
		defer b.p.watch.enter()
	}
	toTags := a.into(b, tags)
	strides := b.strided(8, 2)
	toStrides := a.into(b, strides)
	queues := []*sharedQueue{srq.sharedQueue, datagrams.shared, xrc.sharedQueue, tags.sharedQueue, strides.sharedQueue}
	receives := func() {
		list := []rdma.RecvWR{{SGL: []rdma.SGE{sge(dst, 0, 64)}}, {SGL: []rdma.SGE{sge(dst, 64, 64), sge(dst, 128, 64)}}}
		srq.PostRecv(list)
		xrc.PostRecv(list)
		datagrams.PostRecv(list)
		tags.PostRecv(list)
		strides.PostRecv(list[1:])
	}
	handles := []uint32{1 << handleIndex}
	entries := func() {
		list := []rdma.OpsWR{
			{Opcode: rdma.OpAdd, Tag: rng.Uint64N(4), Mask: 3, SGL: []rdma.SGE{sge(dst, 0, 64)}}, {Opcode: rdma.OpDel, Handle: handles[rng.IntN(len(handles))]},
			{Opcode: rdma.OpSync, Flags: rdma.SendSignaled | rdma.OpsTMSync, UnexpectedCnt: uint32(rng.IntN(4))},
		}
		tags.PostOps(list)
		handles = append(handles, list[0].Handle|1<<handleIndex)
	}
	message := func() rdma.SendWR {
		h := rdma.TMH{Opcode: rdma.TMOpcode(rng.IntN(4)), Tag: rng.Uint64N(8)}.Append(nil)
		b := rdma.RVH{Addr: src.Addr(), RKey: src.RKey(), Length: 40}.Append(h)
		return rdma.SendWR{Opcode: rdma.WRSend, Flags: rdma.SendSignaled | rdma.SendInline, Inline: b}
	}
	for range 4 {
		entries()
	}
	for range 8 {
		receives()
	}
	one := func(rng *rand.Rand) {
		arena := n[rng.IntN(2)].p.arena
		var from, size uint64
		switch rng.IntN(7) {
		case 0:
			from, size = l.regionAt, 8*regionSize
		case 1:
			from, size = l.queueAt, 2*contextSize
		case 2:
			from, size = l.readyAt, 64
		case 3:
			from, size = l.completionAt, 2*headerSize
		case 4:
			from, size = l.heapAt, 8<<10
		case 5:
			from, size = l.sharedAt, 5*sharedSize
		case 6:
			h := queues[rng.IntN(len(queues))]
			from, size = h.block.at, h.block.bytes()
			if rng.IntN(2) == 0 {
				size = 16 * uint64(h.block.slots) // claims and order
			} else if h.tags != nil {
				from, size = h.block.at+size-h.block.tagBytes(), h.block.tagBytes()
			}
		}
		v := rng.Uint64() >> rng.IntN(64)
		binary.NativeEndian.PutUint64(arena[from+rng.Uint64N(size/8)*8:], v)
	}
	for range words {
		one(rng)
	}
	requests := 40
	var stop atomic.Bool
	var others sync.WaitGroup
	if whileInUse {
		requests = 3000
		others.Go(func() {
			for rng := rand.New(rand.NewPCG(seed, 4)); !stop.Load(); {
				one(rng)
			}
		})
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		var wc [32]rdma.WC
		for i := range requests {
			mr := dst
			if rng.IntN(3) == 0 {
				mr = other
			}
			key := [...]uint32{mr.RKey(), mr.RKey(), shared.RKey(), private.RKey(), space.RKey(), laid.RKey()}[rng.IntN(6)]
			op := [...]rdma.WROpcode{0, 1, 2, 3, 4, 5, 6, rdma.WRSendWithInv}[rng.IntN(8)]
			qa.PostSend([]rdma.SendWR{{Opcode: op, Flags: rdma.SendSignaled, SGL: []rdma.SGE{sge(src, 0, 8)}, RemoteAddr: [...]uint64{mr.Addr() + 8, 8}[rng.IntN(2)], RKey: key, InvalidateRKey: key}})
			switch rng.IntN(8) {
			case 3:
				qb.PostSend([]rdma.SendWR{{Opcode: rdma.WRRegMkey, Mkey: laid, Layout: layout}})
			case 0:
				qb.PostSend([]rdma.SendWR{{Opcode: rdma.WRLocalInv, InvalidateRKey: private.RKey()}})
			case 1:
				qb.PostSend([]rdma.SendWR{{Opcode: rdma.WRBindMW, MW: private, RKey: rdma.IncRKey(private.RKey()), Bind: &bind}})
			case 2:
				qb.BindMW(shared, 0, 0, bind)
			}
			few := rdma.SendWR{Opcode: rdma.WRSend, Flags: rdma.SendSignaled, SGL: []rdma.SGE{sge(src, 0, 8)}, SRQNum: xrc.num,
				AH: handle, RemoteQPN: datagrams.num, RemoteQKey: 7}
			for _, q := range []*queuePair{toShared, toDatagrams, toXRC} {
				q.PostSend([]rdma.SendWR{few})
			}
			toTags.PostSend([]rdma.SendWR{message()})
			toStrides.PostSend([]rdma.SendWR{few})
			if i%4 == 0 {
				entries()
			}
			if i%8 == 0 {
				receives()
				qb.PostRecv([]rdma.RecvWR{{SGL: []rdma.SGE{sge(dst, 0, 64)}}})
			}
			a.cq.Poll(wc[:])
			b.cq.Poll(wc[:])
			a.ctx.Progress()
		}
	}()
	select {
	case <-done:
	case <-time.After(testenv.Limit(20 * time.Second)):
		t.Fatal("a scribbled segment holds its users up")
	}
	stop.Store(true)
	others.Wait()
	// A mark or a claim that stays would only make the clean-up wait.
	for _, x := range n {
		for i := range x.p.shared {
			if h := x.p.byShared.get(uint32(i)); h != nil {
				for k := range h.claims {
					atomic.StoreUint64(&h.claims[k], claimFree)
				}
			}
		}
		for i := range x.p.queues[:12] {
			atomic.StoreUint64(&x.p.queues[i].mark, 0)
		}
	}
	for _, w := range []interface{ Close() error }{shared, private, space, laid} {
		if err := w.Close(); err != nil {
			t.Errorf("close a window: %v", err)
		}
	}
}

// A peer that ended, or stopped, in the middle of an operation.
func TestDeregWithStuckPeer(t *testing.T) {
	for _, c := range []struct {
		name  string
		mark  func(mr rdma.MR) uint64
		dead  bool
		moves bool
		want  error
	}{
		{"idle", func(rdma.MR) uint64 { return 0 }, false, false, nil},
		{"at another region", func(mr rdma.MR) uint64 { return uint64(mr.RKey()>>8) + 2 }, false, false, nil},
		{"at the region and dead", func(mr rdma.MR) uint64 { return uint64(mr.RKey()>>8) + 1 }, true, false, nil},
		{"at the region and moving", func(mr rdma.MR) uint64 { return uint64(mr.RKey()>>8) + 1 }, false, true, nil},
		{"at the region and stopped", func(mr rdma.MR) uint64 { return uint64(mr.RKey()>>8) + 1 }, false, false, errStuck},
		{"at the queue and stopped", func(rdma.MR) uint64 { return markQueue }, false, false, errStuck},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := nodes(t, 2, Config{})
				qa, _ := pair(t, n[0], n[1], attrs())
				mr := n[1].alloc(64, all)
				atomic.StoreUint64(&qa.own.mark, 5*markTurn|c.mark(mr))
				if c.dead {
					n[1].p.segment.SetDead(0)
				}
				if c.moves {
					time.AfterFunc(time.Second, func() { atomic.StoreUint64(&qa.own.mark, 6*markTurn|c.mark(mr)) })
				}
				begin := time.Now()
				err := mr.Close()
				if !errors.Is(err, c.want) || time.Since(begin) > drainLimit+time.Second {
					t.Errorf("Close: %v after %v, want %v", err, time.Since(begin), c.want)
				}
				atomic.StoreUint64(&qa.own.mark, 0)
				if err := mr.Close(); err != nil {
					t.Errorf("Close again: %v", err)
				}
			})
		})
	}
}

// Writers do not stop while regions come and go. A byte that lands after Close
// would land in a later region, which must stay as it was made: zero.
func TestDeregDuringWrites(t *testing.T) {
	noLeaks(t)
	n := nodes(t, 3, Config{})
	target := n[2]
	stop := make(chan struct{})
	var current atomic.Pointer[rdma.MR]
	var writes atomic.Uint64
	var writers sync.WaitGroup
	for half, w := range n[:2] {
		src := w.alloc(8192, all)
		fill(src.Bytes(), 1)
		src.Bytes()[0] = 1
		qa, qb := w.queue(), target.queue()
		attr := attrs()
		bring(t, qa, rdma.StateRTS, target, qb.num, attr)
		bring(t, qb, rdma.StateRTS, w, qa.num, attr)
		writers.Go(func() {
			var wc [64]rdma.WC
			for {
				select {
				case <-stop:
					return
				default:
				}
				mr := current.Load()
				if mr == nil {
					continue
				}
				qa.PostSend([]rdma.SendWR{{Opcode: rdma.WRRDMAWrite, Flags: rdma.SendSignaled, SGL: []rdma.SGE{sge(src, 0, 4096)}, RemoteAddr: (*mr).Addr() + uint64(half*4096), RKey: (*mr).RKey()}})
				writes.Add(1)
				runtime.Gosched()
				w.cq.Poll(wc[:])
				if qa.State() == rdma.StateErr || qb.State() == rdma.StateErr {
					for _, q := range []*queuePair{qa, qb} {
						if err := q.Modify(rdma.QPAttr{State: rdma.StateReset}, rdma.QPStateMask); err != nil {
							t.Error(err)
							return
						}
					}
					bring(t, qa, rdma.StateRTS, target, qb.num, attr)
					bring(t, qb, rdma.StateRTS, w, qa.num, attr)
				}
			}
		})
	}
	for i, end := 0, time.Now().Add(time.Second); i < 300 && time.Now().Before(end); i++ {
		mr, err := target.pd.AllocMR(8192, all)
		if err != nil {
			t.Fatal(err)
		}
		current.Store(&mr)
		for seen := writes.Load(); writes.Load() < seen+4; {
			runtime.Gosched()
		}
		mem := mr.Bytes()
		if err := mr.Close(); err != nil {
			t.Fatal(err)
		}
		clear(mem) // free memory now, and nobody's
		for seen := writes.Load(); writes.Load() < seen+2; {
			runtime.Gosched()
		}
		for j, b := range mem {
			if b != 0 {
				t.Fatalf("round %d: byte %d was written after Close", i, j)
			}
		}
	}
	close(stop)
	writers.Wait()
}

// A lock whose holder is dead, or that was scribbled on, is taken over.
func TestLockHeldByDeadRank(t *testing.T) {
	testenv.Part(t, testenv.Timed)
	for _, c := range []struct {
		name string
		word uint64
		dead bool
		wait time.Duration
	}{
		{"free", 7 << 32, false, 0},
		{"holder is dead", 7<<32 | 1, true, 0},
		{"no such rank", 7<<32 | 4000, false, 0},
		{"holder is stopped", 7<<32 | 1, false, lockPatience},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := nodes(t, 2, Config{})
			s := n[1].p.self
			if c.dead {
				n[1].p.segment.SetDead(0)
			}
			l := &s.locks[0].word
			atomic.StoreUint64(l, c.word)
			begin := time.Now()
			held := s.lock(l, 1)
			if took := time.Since(begin); took < c.wait || took > c.wait+2*time.Second {
				t.Errorf("taken after %v, want %v", took, c.wait)
			}
			s.unlock(l, held)
			if w := atomic.LoadUint64(l); uint32(w) != 0 {
				t.Errorf("the lock is %#x after unlock, want it free", w)
			}
		})
	}
}

// A queue pair that was left with its peer stuck in it: the memory that the peer
// may still write to is not given back, and neither is the queue pair used again.
func TestCloseWithStuckPeer(t *testing.T) {
	for _, destroy := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			n := nodes(t, 2, Config{})
			qa, qb := pair(t, n[0], n[1], attrs())
			mr := n[1].alloc(64, all)
			at := 5*markTurn | (uint64(mr.RKey()>>8) + 1)
			atomic.StoreUint64(&qa.own.mark, at)
			if destroy {
				if err := qb.Close(); !errors.Is(err, errStuck) {
					t.Errorf("Close of the queue pair: %v, want %v", err, errStuck)
				}
			} else {
				if err := qb.Modify(rdma.QPAttr{State: rdma.StateReset}, rdma.QPStateMask); err == nil {
					t.Error("Modify to RESET: no error")
				}
				a := attrs()
				a.State = rdma.StateInit
				if err := qb.Modify(a, initMask); err == nil {
					t.Error("Modify to INIT beside a stuck peer: no error")
				}
			}
			if err := mr.Close(); !errors.Is(err, errStuck) {
				t.Errorf("Close of the region: %v, want %v", err, errStuck)
			}
			atomic.StoreUint64(&qa.own.mark, 6*markTurn)
			if !destroy {
				bring(t, qb, rdma.StateRTS, n[0], qa.num, attrs())
			}
		})
	}
}

// A peer that died in the middle of a send, of which nobody has told.
func TestFlushAfterPeerDied(t *testing.T) {
	n := nodes(t, 2, Config{})
	qa, qb := pair(t, n[0], n[1], attrs())
	postRecv(t, qb, rdma.RecvWR{WRID: 3})
	atomic.StoreUint64(&qa.own.mark, markTurn|markQueue)
	defer atomic.StoreUint64(&qa.own.mark, 0)
	s := n[1].p.find(n[0].p.gids[0])
	if err := qb.Modify(rdma.QPAttr{State: rdma.StateErr}, rdma.QPStateMask); err != nil {
		t.Fatal(err)
	}
	var wc [1]rdma.WC
	if k, _ := n[1].cq.Poll(wc[:]); k != 0 {
		t.Errorf("%+v beside a peer that may be filling the receive", wc[0])
	}
	s.mu.Lock()
	s.ep.pid, s.ep.started = 1<<22+1, 1 // beyond any process
	s.mu.Unlock()
	if wc := n[1].poll(1)[0]; wc.WRID != 3 || wc.Status != rdma.WCWRFlushErr {
		t.Errorf("got %+v, want a flush of 3", wc)
	}
}

// Claims of a shared queue whose claimant has died are found by its owner, told
// of the death or not, when somebody wants a receive; so are claims that were
// given back when others had gone past them. A claimant that is alive
// keeps its claim.
func TestClaimHeldByDeadRank(t *testing.T) {
	for _, c := range []struct {
		name        string
		told, ended bool
		back        bool
		want        int // of both receives, those that messages get
	}{
		{"told", true, true, false, 2}, {"untold", false, true, false, 2}, {"given back", false, false, true, 2}, {"alive", false, false, false, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := nodes(t, 3, Config{})
			const dead, owner, other = 0, 1, 2
			o := n[owner]
			s, _ := n[dead].intoSRQ(o)
			toOther := n[other].into(o, s)
			dst := o.alloc(64, all)
			for id := range uint64(2) {
				if _, err := s.PostRecv([]rdma.RecvWR{{WRID: id, SGL: []rdma.SGE{sge(dst, 0, 8)}}}); err != nil {
					t.Fatal(err)
				}
			}
			// In the middle of a message.
			view := n[dead].p.find(o.p.gids[0])
			tk, ok := view.take(&view.shared[s.index], dead)
			if !ok {
				t.Fatal("no receive to claim")
			}
			tk.cq = o.cq.index
			send := rdma.SendWR{Opcode: rdma.WRSend, Flags: rdma.SendSignaled | rdma.SendInline, Inline: []byte("a word..")}
			post(t, toOther, send)
			switch {
			case c.back:
				tk.giveBack()
			case c.told:
				o.p.segment.SetDead(dead)
			case c.ended:
				at := o.p.find(n[dead].p.gids[0])
				at.mu.Lock()
				at.ep.pid, at.ep.started = 1<<22+1, 1 // beyond any process
				at.mu.Unlock()
			}
			post(t, toOther, send)
			got := map[uint64]bool{}
			var wc [4]rdma.WC
			end := time.Now().Add(testenv.Limit(10 * time.Second))
			for polls := 0; polls < 2000 || len(got) < c.want && time.Now().Before(end); polls++ { // the second message may be repeated after a timer
				k, err := o.cq.Poll(wc[:])
				if err != nil {
					t.Fatal(err)
				}
				for _, w := range wc[:k] {
					if w.Status != rdma.WCSuccess || got[w.WRID] {
						t.Fatalf("%+v after %v", w, got)
					}
					got[w.WRID] = true
				}
				n[other].cq.Poll(wc[:])
			}
			if len(got) != c.want {
				t.Errorf("messages got %d receives, want %d", len(got), c.want)
			}
			for i := range s.claims { // or the clean-up waits for who is alive
				atomic.StoreUint64(&s.claims[i], claimFree)
			}
		})
	}
}

// An owner does not go by its protection table in the arena, on which others may
// scribble: neither over loopback nor when it serves what came over TCP.
func TestLocalLookupIgnoresArena(t *testing.T) {
	n := nodes(t, 1, Config{})[0]
	mine, other := make([]byte, 64), make([]byte, 64)
	mr := n.reg(mine, all)
	e := &n.p.regions[mr.RKey()>>8]
	e.va = addressOf(other)
	e.length = 1 << 40
	qa, _ := pair(t, n, n, attrs())
	post(t, qa, rdma.SendWR{Opcode: rdma.WRRDMAWrite, Flags: rdma.SendSignaled | rdma.SendInline, Inline: []byte("a word.."), RemoteAddr: mr.Addr(), RKey: mr.RKey()},
		rdma.SendWR{Opcode: rdma.WRRDMAWrite, Flags: rdma.SendSignaled | rdma.SendInline, Inline: []byte("a word.."), RemoteAddr: mr.Addr() + 64, RKey: mr.RKey()})
	if got := statuses(n.poll(2)); got[0] != rdma.WCSuccess || got[1] != rdma.WCRemAccessErr {
		t.Errorf("inside and outside the region: %v", got)
	}
	if string(mine[:8]) != "a word.." || other[0] != 0 {
		t.Errorf("the region has %q, other memory %q", mine[:8], other[:8])
	}
}

// A program that was stopped while it waited has not waited.
func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w patience
		for i, step := range []time.Duration{time.Minute, time.Hour, time.Millisecond} {
			if w.over(time.Second) {
				t.Errorf("look %d: over", i)
			}
			time.Sleep(step)
		}
		n := 0
		for ; !w.over(time.Second) && n < 10_000; n++ {
			time.Sleep(time.Millisecond)
		}
		if n < 900 || n > 1100 {
			t.Errorf("over after %d looks a millisecond apart, want some 1000", n)
		}
	})
}

// scribbleTarget scribbles over what a target's initiators go by.
func scribbleTarget(t *testing.T, seed uint64, words uint16) {
	n := nodes(t, 2, Config{DCResponders: 2})
	b := n[1]
	n[0].p.find(b.p.gids[0]).reach = reachNone
	to, mr := b.target(), b.alloc(64, all)
	i := n[0].initiator(b, to)
	rng := rand.New(rand.NewPCG(seed, 2))
	l := b.p.layout
	keep := [...]uint32{b.p.head.touched.queues, b.p.head.touched.shared}
	for range words {
		from, size := l.responderAt, uint64(4*responderSize)
		switch rng.IntN(4) {
		case 0:
			from, size = l.queueAt, 2*contextSize
		case 1:
			from, size = l.sharedAt, sharedSize
		case 2:
			from, size = 64, 64 // the header's tail, of which initiators read
		}
		binary.NativeEndian.PutUint64(b.p.arena[from+rng.Uint64N(size/8)*8:], rng.Uint64()>>rng.IntN(64))
	}
	b.p.head.touched.queues, b.p.head.touched.shared = keep[0], keep[1]
	done := make(chan struct{})
	go func() {
		defer close(done)
		var wc [32]rdma.WC
		for k := range uint64(40) {
			wr := wordTo(mr, k)
			if k%3 == 0 {
				wr.Opcode = rdma.WRSend
			}
			wr.AH, wr.RemoteQPN, wr.DCAccessKey = i.ah, to.num, dcTestKey
			i.q.PostSend([]rdma.SendWR{wr})
			to.init.SRQ.PostRecv([]rdma.RecvWR{{SGL: []rdma.SGE{sge(mr, 0, 64)}}})
			i.cq.Poll(wc[:])
			b.cq.Poll(wc[:])
			i.ctx.Progress()
			to.State()
		}
	}()
	select {
	case <-done:
	case <-time.After(testenv.Limit(20 * time.Second)):
		t.Fatal("a scribbled target holds its users up")
	}
	for _, x := range n {
		for k := range x.p.queues[:4] {
			atomic.StoreUint64(&x.p.queues[k].mark, 0)
		}
	}
}
