package soft

import (
	"errors"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rdma"
)

// hosts makes n nodes that reach each other over TCP alone.
func hosts(t testing.TB, n int) []*node { return hostsWith(t, n, Config{}) }

// hostsWith is hosts with a configuration.
func hostsWith(t testing.TB, n int, cfg Config) []*node {
	t.Helper()
	list := make([]*node, n)
	cfg.Secret = secret
	for i := range list {
		cfg.Host = string(rune('a' + i))
		list[i] = open(t, cfg)
	}
	introduce(t, list...)
	return list
}

// stop keeps a node from serving its links until the function is called.
func stop(n *node) (goOn func()) {
	n.p.tcp.Load().mu.Lock()
	return sync.OnceFunc(n.p.tcp.Load().mu.Unlock)
}

// cut lets nothing through the links of nodes until the function is called: the kernel drops
// all packets that come, as when a cable is pulled.
func cut(t *testing.T, nodes ...*node) (mend func()) {
	t.Helper()
	nothing := [1]unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K}}
	each := func(do func(fd int) error) {
		for _, n := range nodes {
			net := n.p.tcp.Load()
			net.mu.Lock()
			defer net.mu.Unlock()
			for fd := range net.links {
				switch err := do(fd); {
				case errors.Is(err, unix.EPERM):
					testenv.Unsupported(t, "this kernel lets only root filter a socket's packets")
				case err != nil:
					t.Error(err)
				}
			}
		}
	}
	each(func(fd int) error {
		return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &nothing[0]})
	})
	return sync.OnceFunc(func() {
		each(func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DETACH_FILTER, 0) })
	})
}

// A message that is refused while most of it is still to be sent. It is longer
// than what the link and both sockets take.
func TestRefusalDuringSend(t *testing.T) {
	const size = 24 << 20
	for _, c := range []struct {
		name string
		op   rdma.WROpcode
		key  uint32 // added to the good one
		rnr  uint8
		late bool // a receive is posted after the refusal
		want rdma.WCStatus
	}{
		{"no receive, then one", rdma.WRSend, 0, 7, true, rdma.WCSuccess},
		{"no receive and no patience", rdma.WRSend, 0, 0, false, rdma.WCRNRRetryExcErr},
		{"no receive for an immediate", rdma.WRRDMAWriteWithImm, 0, 2, false, rdma.WCRNRRetryExcErr},
		{"stale key", rdma.WRRDMAWrite, 1, 7, false, rdma.WCRemAccessErr},
	} {
		t.Run(c.name, func(t *testing.T) {
			noLeaks(t)
			n := hosts(t, 2)
			attr := attrs()
			attr.RNRRetry, attr.Timeout = c.rnr, 0
			qa, qb := pair(t, n[0], n[1], attr)
			src, dst := n[0].alloc(size, all), n[1].alloc(size, all)
			fill(src.Bytes(), 1)
			post(t, qa, rdma.SendWR{Opcode: c.op, Flags: rdma.SendSignaled, SGL: []rdma.SGE{sge(src, 0, size)}, RemoteAddr: dst.Addr(), RKey: dst.RKey() + c.key})
			if c.late {
				for end := time.Now().Add(10 * time.Second); n[0].ctx.Counters().RNRRetries == 0; {
					n[0].ctx.Progress()
					n[1].ctx.Progress()
					if time.Now().After(end) {
						t.Fatal("the sender has not heard that there is no receive")
					}
				}
				postRecv(t, qb, rdma.RecvWR{SGL: []rdma.SGE{sge(dst, 0, size)}})
			}
			if wc := n[0].poll(1, n[1])[0]; wc.Status != c.want {
				t.Errorf("got %v, want %v", wc.Status, c.want)
			}
			if c.late && string(dst.Bytes()) != string(src.Bytes()) {
				t.Error("the message came with other bytes")
			}
		})
	}
}

// A host that is cut off acknowledges nothing. One whose process stands still does, as an adapter would.
// The requester's clock is its progress goroutine's, or its polls'.
func TestSilentPeer(t *testing.T) {
	testenv.Part(t, testenv.Timed)
	for _, c := range []struct {
		name    string
		timeout uint8
		retries uint8
		size    int
		polls   bool
		stopped bool          // the process; else the host is cut off
		silence time.Duration // how long, 0: until the end
		want    rdma.WCStatus

		configured time.Duration // Config.Silence
	}{
		{"cut off for ever, timeout as short as can be", 1, 0, 8, false, false, 0, rdma.WCRetryExcErr, 0},
		{"cut off for ever, polled", 1, 1, 8, true, false, 0, rdma.WCRetryExcErr, 0},
		{"cut off for ever, more than the sockets take", 1, 0, 24 << 20, true, false, 0, rdma.WCRetryExcErr, 0},
		{"cut off for less than the retries", 17, 7, 8, true, false, time.Second, rdma.WCSuccess, 0},
		{"cut off for a while, without a timeout", 0, 0, 8, true, false, 2 * time.Second, rdma.WCSuccess, 0},
		{"stopped for longer than all tries", 1, 0, 8, true, true, 4 * silenceLeast, rdma.WCSuccess, 0},
		{"stopped in a message longer than the sockets take", 1, 0, 24 << 20, true, true, 4 * silenceLeast, rdma.WCSuccess, 0},
		{"stopped for a while, without a timeout", 0, 0, 8, true, true, 2 * time.Second, rdma.WCSuccess, 0},
		{"cut off for ever, with patience", 1, 1, 8, true, false, 0, rdma.WCRetryExcErr, 4 * time.Second},
		{"cut off for less than the patience", 1, 1, 8, true, false, 2500 * time.Millisecond, rdma.WCSuccess, 6 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			n := hostsWith(t, 2, Config{Silence: c.configured})
			attr := attrs()
			attr.Timeout, attr.RetryCnt = c.timeout, c.retries
			qa, _ := pair(t, n[0], n[1], attr)
			src, dst := n[0].alloc(c.size, all), n[1].alloc(c.size, all)
			write := rdma.SendWR{Opcode: rdma.WRRDMAWrite, Flags: rdma.SendSignaled, SGL: []rdma.SGE{sge(src, 0, 8)}, RemoteAddr: dst.Addr(), RKey: dst.RKey()}
			post(t, qa, write)
			n[0].poll(1, n[1]) // the link is up
			var goOn func()
			if c.stopped {
				goOn = stop(n[1])
			} else {
				goOn = cut(t, n...)
			}
			defer goOn()
			begin := time.Now()
			write.SGL[0].Length = uint32(c.size)
			post(t, qa, write)
			if c.silence > 0 {
				time.AfterFunc(c.silence, goOn)
			}
			if !c.polls {
				for qa.State() == rdma.StateRTS && time.Since(begin) < 10*time.Second {
					time.Sleep(10 * time.Millisecond)
				}
			}
			wc := n[0].poll(1)[0]
			took := time.Since(begin)
			least := max(time.Duration(c.retries+1)*max(rdma.AckTimeout(c.timeout), silenceLeast), c.configured)
			if c.want == rdma.WCSuccess {
				least = c.silence
			}
			if wc.Status != c.want || took < least-10*time.Millisecond {
				t.Errorf("got %v after %v, want %v after %v", wc.Status, took, c.want, least)
			}
			k := n[0].ctx.Counters().AckRetries
			if c.silence == 0 && k < uint64(c.retries) { // more, if this process was not scheduled for a while
				t.Errorf("%d ack retries, want %d", k, c.retries)
			}
			if c.stopped && k != 0 {
				t.Errorf("%d ack retries, want none: the kernel acknowledges", k)
			}
		})
	}
}

// A peer is gone when its host has been silent for some time, not when its process is stopped.
func TestGone(t *testing.T) {
	testenv.Part(t, testenv.Timed)
	for name, c := range map[string]struct {
		silence time.Duration // as configured
		stopped bool
	}{"stopped": {0, true}, "cut off": {0, false}, "cut off, with more patience": {12 * time.Second, false}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := hostsWith(t, 2, Config{Silence: c.silence})
			silence := n[0].p.cfg.silence()
			attr := attrs()
			attr.Timeout = 0
			qa, _ := pair(t, n[0], n[1], attr)
			dst := n[1].alloc(8, all)
			write := rdma.SendWR{Opcode: rdma.WRRDMAWrite, Flags: rdma.SendSignaled | rdma.SendInline, Inline: make([]byte, 8), RemoteAddr: dst.Addr(), RKey: dst.RKey()}
			post(t, qa, write)
			n[0].poll(1, n[1])
			if c.stopped {
				defer stop(n[1])()
			} else {
				defer cut(t, n...)()
			}
			begin := time.Now()
			post(t, qa, write)
			peer := n[1].p.gids[0]
			if !c.stopped {
				testenv.Await(t, 10*silence, "the peer is gone", func() bool { return n[0].ctx.Gone(peer) })
				if took := time.Since(begin); took < silence-silenceLeast { // the last acknowledgement was before
					t.Errorf("gone after %v, want %v", took, silence)
				}
				return
			}
			for time.Since(begin) < silence+2*silenceLeast {
				if n[0].ctx.Gone(peer) {
					t.Fatalf("gone after %v: it is only stopped", time.Since(begin))
				}
				time.Sleep(silenceLeast)
			}
		})
	}
}

// An idle link asks the other host for as long as that may be silent, and sends what was lost again without waiting ever longer.
func TestLinksAreTuned(t *testing.T) {
	for silence, want := range map[time.Duration]struct{ least, most time.Duration }{
		0:                {10 * time.Second, 10 * time.Second},
		12 * time.Second: {12 * time.Second, 12 * time.Second},
		time.Minute:      {time.Minute, time.Minute},
		time.Hour:        {59 * time.Minute, time.Hour},
	} {
		n := hostsWith(t, 2, Config{Silence: silence})
		qa, _ := pair(t, n[0], n[1], attrs())
		dst := n[1].alloc(8, all)
		post(t, qa, rdma.SendWR{Opcode: rdma.WRRDMAWrite, Flags: rdma.SendSignaled | rdma.SendInline, Inline: make([]byte, 8), RemoteAddr: dst.Addr(), RKey: dst.RKey()})
		n[0].poll(1, n[1])
		net := n[0].p.tcp.Load()
		net.mu.Lock()
		for fd := range net.links {
			get := func(option int) int { return must[int](t)(unix.GetsockoptInt(fd, unix.IPPROTO_TCP, option)) }
			idle, every, count := get(unix.TCP_KEEPIDLE), get(unix.TCP_KEEPINTVL), get(unix.TCP_KEEPCNT)
			if whole := time.Duration(idle+every*count) * time.Second; whole < want.least || whole > want.most {
				t.Errorf("silence of %v: given up after %d s and %d times %d s, want %v to %v", silence, idle, count, every, want.least, want.most)
			}
			if get(unix.TCP_THIN_LINEAR_TIMEOUTS) != 1 {
				t.Error("its timeouts double from the first on")
			}
		}
		net.mu.Unlock()
	}
}

// A peer that is slow is not silent: its process serves a little now and then,
// and the whole takes longer than all timeouts together.
func TestSlowPeer(t *testing.T) {
	testenv.Part(t, testenv.Timed)
	noLeaks(t)
	n := hosts(t, 2)
	attr := attrs()
	attr.Timeout, attr.RetryCnt = 1, 2 // the test itself may not be scheduled for a while
	qa, _ := pair(t, n[0], n[1], attr)
	const size, count = 2 << 20, 60
	src, dst := n[0].alloc(size, all), n[1].alloc(size, all)
	write := rdma.SendWR{Opcode: rdma.WRRDMAWrite, Flags: rdma.SendSignaled, SGL: []rdma.SGE{sge(src, 0, size)}, RemoteAddr: dst.Addr(), RKey: dst.RKey()}
	post(t, qa, write)
	n[0].poll(1, n[1])
	defer stop(n[1])()
	for range count {
		post(t, qa, write)
	}
	begin := time.Now()
	var wc [1]rdma.WC
	for done, next := 0, begin; done < count; {
		if now := time.Now(); now.After(next) {
			n[1].p.tcp.Load().lookLocked(true)
			next = now.Add(silenceLeast / 8)
		}
		k, err := n[0].cq.Poll(wc[:])
		if err != nil || k > 0 && wc[0].Status != rdma.WCSuccess {
			t.Fatalf("write %d after %v: %v, %v", done, time.Since(begin), wc[0].Status, err)
		}
		if done += k; time.Since(begin) > time.Minute {
			t.Fatal("it does not end")
		}
	}
	if took := time.Since(begin); took < 3*silenceLeast {
		t.Errorf("all was done after %v: the peer was not slow", took)
	}
}

// A responder that was made anew expects another PSN: the requester is told.
func TestOtherPSN(t *testing.T) {
	testenv.Part(t, testenv.Timed)
	noLeaks(t)
	n := hosts(t, 2)
	attr := attrs()
	attr.Timeout, attr.RetryCnt = 10, 2
	qa, qb := pair(t, n[0], n[1], attr)
	dst := n[1].alloc(8, all)
	write := rdma.SendWR{Opcode: rdma.WRRDMAWrite, Flags: rdma.SendSignaled | rdma.SendInline, Inline: make([]byte, 8), RemoteAddr: dst.Addr(), RKey: dst.RKey()}
	post(t, qa, write)
	n[0].poll(1, n[1])
	if err := qb.Modify(rdma.QPAttr{State: rdma.StateReset}, rdma.QPStateMask); err != nil {
		t.Fatal(err)
	}
	attr.RQPSN = 3 // the requester is at 8
	bring(t, qb, rdma.StateRTS, n[0], qa.num, attr)
	begin := time.Now()
	post(t, qa, write)
	wc := n[0].poll(1, n[1])[0]
	if took := time.Since(begin); wc.Status != rdma.WCRetryExcErr || took >= 3*silenceLeast {
		t.Errorf("got %v after %v, want %v before silence would tell", wc.Status, took, rdma.WCRetryExcErr)
	}
	if k := n[0].ctx.Counters().AckRetries; k != 2 {
		t.Errorf("%d ack retries, want 2", k)
	}
}

// What is still under way when a queue pair is taken down and connected again
// answers nothing of the new connection.
func TestAnswerOfEarlierConnection(t *testing.T) {
	noLeaks(t)
	n := hosts(t, 2)
	qa, qb := pair(t, n[0], n[1], attrs())
	src, dst := n[0].alloc(16, all), n[1].alloc(16, all)
	copy(dst.Bytes(), "old.....new.....")
	read := func(at uint64) rdma.SendWR {
		return rdma.SendWR{Opcode: rdma.WRRDMARead, Flags: rdma.SendSignaled, SGL: []rdma.SGE{sge(src, 0, 8)}, RemoteAddr: dst.Addr() + at, RKey: dst.RKey()}
	}
	post(t, qa, rdma.SendWR{Opcode: rdma.WRRDMAWrite, Flags: rdma.SendSignaled, RemoteAddr: dst.Addr(), RKey: dst.RKey()})
	n[0].poll(1, n[1])
	goOn := stop(n[0]) // its answer waits
	defer goOn()
	post(t, qa, read(0))
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); {
		n[1].ctx.Progress()
		qb.mu.Lock()
		done := qb.own.expect == 9
		qb.mu.Unlock()
		if done {
			break
		}
	}
	for _, q := range []*queuePair{qa, qb} {
		if err := q.Modify(rdma.QPAttr{State: rdma.StateReset}, rdma.QPStateMask); err != nil {
			t.Fatal(err)
		}
	}
	attr := attrs()
	attr.SQPSN, attr.RQPSN = 8, 8 // that of the read
	bring(t, qa, rdma.StateRTS, n[1], qb.num, attr)
	bring(t, qb, rdma.StateRTS, n[0], qa.num, attr)
	post(t, qa, read(8))
	goOn()
	wc := n[0].poll(1, n[1])[0]
	if got := string(src.Bytes()[:8]); wc.Status != rdma.WCSuccess || got != "new....." {
		t.Errorf("%v and %q, want success and %q", wc.Status, got, "new.....")
	}
}

// A read that is being answered when its queue pair goes leaves the next queue
// pair of that index alone.
func TestReadAfterQueuePairClosed(t *testing.T) {
	n := hosts(t, 2)
	_, qb := pair(t, n[0], n[1], attrs())
	mr := n[1].alloc(8, all)
	l := &link{n: n[1].p.tcp.Load(), from: n[0].p.gids[0], fd: -1}
	l.wait(&reply{read: true, f: frame{op: rdma.WRRDMARead, from: 77, psn: 5, life: 3, to: qb.num ^ 1<<queueBits, key: mr.RKey() ^ 1, addr: mr.Addr(), total: 8}})
	if !l.readOn(&l.replies[0]) || l.replying.Load() {
		t.Error("the read goes on")
	}
	if f, err := parseFrame(l.out); err != nil || f.kind != frameNobody || f.to != 77 || f.psn != 5 || f.life != 3 {
		t.Errorf("the requester hears %+v (%v), want that nobody is there: it would wait for ever", f, err)
	}
	if s := qb.State(); s != rdma.StateRTS {
		t.Errorf("the other queue pair is in %v, want RTS", s)
	}
}

// However many requests the send queues of a process hold, their answers wait behind one long read and the link stays.
func TestLongReadBeforeManyRequests(t *testing.T) {
	noLeaks(t)
	n := hosts(t, 2)
	const queues, depth, size = 4, 20 << 10, 16 << 20
	n[0].owned = append(n[0].owned, n[0].cq)
	n[0].cq = must[rdma.CQ](t)(n[0].ctx.CreateCQ(2 * queues * depth)).(*completionQueue)
	var qs [queues]*queuePair
	for i := range qs {
		qs[i] = must[rdma.QP](t)(n[0].pd.CreateQP(rdma.QPInitAttr{SendCQ: n[0].cq, RecvCQ: n[0].cq, Type: rdma.RC, Cap: rdma.QPCap{MaxSendWR: depth, MaxSendSGE: 1}})).(*queuePair)
		qb := n[1].queue()
		bring(t, qs[i], rdma.StateRTS, n[1], qb.num, attrs())
		bring(t, qb, rdma.StateRTS, n[0], qs[i].num, attrs())
	}
	reader, _ := pair(t, n[0], n[1], attrs())
	src, dst := n[0].alloc(size, all), n[1].alloc(size, all)
	post(t, reader, rdma.SendWR{Opcode: rdma.WRRDMAWrite, Flags: rdma.SendSignaled, RemoteAddr: dst.Addr(), RKey: dst.RKey()})
	n[0].poll(1, n[1]) // the link is up
	goOn := stop(n[0]) // which takes nothing of the read
	defer goOn()
	post(t, reader, rdma.SendWR{Opcode: rdma.WRRDMARead, Flags: rdma.SendSignaled, SGL: []rdma.SGE{sge(src, 0, size)}, RemoteAddr: dst.Addr(), RKey: dst.RKey()})
	write := rdma.SendWR{Opcode: rdma.WRRDMAWrite, Flags: rdma.SendSignaled, RemoteAddr: dst.Addr(), RKey: dst.RKey()}
	for range depth { // in turn, so that no acknowledgement stands for another
		for _, q := range qs {
			post(t, q, write)
		}
		n[1].ctx.Progress()
	}
	goOn()
	for i, wc := range n[0].poll(queues*depth+1, n[1]) {
		if wc.Status != rdma.WCSuccess {
			t.Fatalf("completion %d of %d: %v", i, queues*depth+1, wc.Status)
		}
	}
}
