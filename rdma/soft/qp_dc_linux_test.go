package soft

import (
	"encoding/binary"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rdma"
)

// eventually lets the nodes go on until done.
func eventually(t *testing.T, what string, done func() bool, list ...*node) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !done(); {
		for _, n := range list {
			n.ctx.Progress()
		}
		if time.Now().After(end) {
			t.Fatalf("%s: not within 10 s", what)
		}
	}
}

// held counts the responders of a provider that are claimed.
func (n *node) held() (k int) {
	for i := range n.p.responders {
		if atomic.LoadUint64(&n.p.responders[i].claim) != 0 {
			k++
		}
	}
	return k
}

// receive posts a receive to the target's shared queue.
func (q *queuePair) receive(t testing.TB, mr rdma.MR, id uint64, off, n int) {
	t.Helper()
	if _, err := q.init.SRQ.PostRecv([]rdma.RecvWR{{WRID: id, SGL: []rdma.SGE{sge(mr, off, n)}}}); err != nil {
		t.Fatal(err)
	}
}

// Nobody has told of its end, and nobody at the target was introduced to it.
func TestResponderOfUnknownInitiator(t *testing.T) {
	n := nodes(t, 3, Config{DCResponders: 1})
	b := n[2]
	to, mr := b.target(), b.alloc(64, all)
	i := n[1].initiator(b, to)
	for _, gid := range n[0].p.gids {
		delete(n[1].p.peers, gid)
		delete(b.p.peers, gid)
	}
	atomic.StoreUint64(&b.p.responders[0].claim, 1<<32|1<<queueBits)
	i.post(wordTo(mr, 1))
	eventually(t, "CNAKs of a responder whose holder lives", func() bool {
		k, _ := i.cq.Poll(make([]rdma.WC, 1))
		return k > 0 || i.ctx.Counters().DCCNAKs > 0
	})
	dead := exec.Command("true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	atomic.StoreUint32(&n[0].p.head.owner, uint32(dead.Process.Pid))
	if wc := i.poll(1)[0]; wc.Status != rdma.WCSuccess {
		t.Errorf("%+v", wc)
	}
}

// The one responder is with an initiator whose message waits for a receive: another
// host's request gets CNAKs, and its turn when the first has nothing under way.
func TestNoResponderOverTCPIsCNAK(t *testing.T) {
	noLeaks(t)
	n := hosts(t, 2)
	b := open(t, Config{Host: "target", Secret: secret, DCResponders: 1})
	n = append(n, b)
	introduce(t, n...)
	to, mr := b.target(), b.alloc(64, all)
	one, two := n[0].initiator(b, to), n[1].initiator(b, to)
	one.post(rdma.SendWR{WRID: 1, Opcode: rdma.WRSend, Flags: rdma.SendSignaled | rdma.SendInline, Inline: []byte("a message")})
	eventually(t, "the first connection", func() bool { return n[0].ctx.Counters().RNRRetries > 0 }, n...)
	two.post(wordTo(mr, 2))
	eventually(t, "CNAKs", func() bool { return n[1].ctx.Counters().DCCNAKs >= 3 }, n...)
	if c := n[1].ctx.Counters(); c.DCConnects != 0 || c.AckRetries != 0 || c.RNRRetries != 0 {
		t.Errorf("%d connections, %d and %d retries while the responder is another's, want none", c.DCConnects, c.AckRetries, c.RNRRetries)
	}
	to.receive(t, mr, 3, 8, 16)
	for _, i := range []*initiator{one, two} {
		if wc := i.poll(1, n...)[0]; wc.Status != rdma.WCSuccess {
			t.Errorf("%+v", wc)
		}
	}
	b.poll(1)
	if got := string(mr.Bytes()[:17]); got != "a word..a message" {
		t.Errorf("memory is %q", got)
	}
	if c := n[1].ctx.Counters(); c.DCConnects != 1 {
		t.Errorf("%d connections, want 1", c.DCConnects)
	}
	eventually(t, "the hang-ups", func() bool { return b.held() == 0 }, n...)
}

// A link that breaks while nothing is under way costs nothing; what was under way
// fails, as nobody knows whether it was executed.
func TestDCConnectionAfterLinkBroke(t *testing.T) {
	noLeaks(t)
	n := hosts(t, 2)
	to, mr := n[1].target(), n[1].alloc(64, all)
	i := n[0].initiator(n[1], to)
	cut := func() {
		l := n[0].p.find(n[1].p.gids[0]).connection()
		l.mu.Lock()
		l.breakOff()
		l.mu.Unlock()
	}
	for k := range uint64(3) {
		i.post(wordTo(mr, k))
		if wc := i.poll(1, n...)[0]; wc.Status != rdma.WCSuccess {
			t.Fatalf("request %d: %+v", k, wc)
		}
		eventually(t, "the hang-up", func() bool { return n[1].held() == 0 }, n...)
		cut()
	}
	if c := n[0].ctx.Counters(); c.DCConnects != 1 {
		t.Errorf("%d connections, want 1: the target was the same", c.DCConnects)
	}
	i.post(rdma.SendWR{WRID: 7, Opcode: rdma.WRSend, Flags: rdma.SendSignaled | rdma.SendInline, Inline: []byte("waits")})
	eventually(t, "an RNR retry", func() bool { return n[0].ctx.Counters().RNRRetries > 0 }, n...)
	cut()
	if wc := i.poll(1, n...)[0]; wc.Status != rdma.WCRetryExcErr {
		t.Errorf("under way when the link broke: %v, want %v", wc.Status, rdma.WCRetryExcErr)
	}
	eventually(t, "the end of the call", func() bool { return n[1].held() == 0 }, n...)
}

// Targets of both kinds in turn: order is that of the send queue, across the segment
// and TCP.
func TestDCTargetsInSegmentAndOverTCP(t *testing.T) {
	noLeaks(t)
	for _, adversary := range []*Adversary{nil, {Seed: 3}} {
		near := nodes(t, 2, Config{Secret: secret, Adversary: adversary})
		far := open(t, Config{Host: "far", Secret: secret, Adversary: adversary})
		n := append(near, far)
		introduce(t, n...)
		var to []*initiator // of one queue pair
		var mem []rdma.MR
		for _, at := range []*node{near[1], far, near[0]} {
			i := near[0].initiator(at, at.target())
			if len(to) > 0 {
				i.q = to[0].q
			}
			to, mem = append(to, i), append(mem, at.alloc(64, all))
		}
		rounds := [...]int{0, 1, 1, 0, 2, 1, 2, 0, 0, 1, 2, 1, 0, 1}
		counts := make([]uint64, len(to))
		for round := range 20 {
			for k, w := range rounds {
				wr := rdma.SendWR{WRID: uint64(k), Opcode: rdma.WRAtomicFetchAndAdd, Flags: rdma.SendSignaled, SGL: []rdma.SGE{sge(mem[2], 8+8*(k%4), 8)},
					RemoteAddr: mem[w].Addr(), RKey: mem[w].RKey(), CompareAdd: 1}
				counts[w]++
				to[w].post(wr)
				if round%2 == 0 {
					near[0].poll(1, n...)
				}
			}
			if round%2 == 1 {
				for k, wc := range near[0].poll(len(rounds), n...) {
					if wc.WRID != uint64(k) || wc.Status != rdma.WCSuccess {
						t.Fatalf("completion %d: %+v", k, wc)
					}
				}
			}
		}
		for k, mr := range mem {
			if got := binary.NativeEndian.Uint64(mr.Bytes()); got != counts[k] {
				t.Errorf("target %d: 1 was added %d times, want %d", k, got, counts[k])
			}
		}
		eventually(t, "the hang-ups", func() bool { return near[0].held()+near[1].held()+far.held() == 0 }, n...)
	}
}

// An initiator that has called for a connection sends a request twice, or out of turn.
func TestDCCallsAndDuplicates(t *testing.T) {
	n := hosts(t, 2)
	b := n[1]
	to, mr := b.target(), b.alloc(64, all)
	l := &link{n: b.p.tcp.Load(), from: n[0].p.gids[0], fd: -1}
	const caller = 1<<queueBits | 5
	say := func(f frame) (answer frame) {
		t.Helper()
		f.from = caller
		if f.to == 0 {
			f.to = to.num
		}
		var h [frameSize]byte
		f.put(&h)
		b.p.tcp.Load().mu.Lock()
		defer b.p.tcp.Load().mu.Unlock()
		l.out = l.out[:0]
		if !l.digest(h[:], true) {
			t.Fatalf("%+v is not understood", f)
		}
		if len(l.out) > 0 {
			answer, _ = parseFrame(l.out)
		}
		return answer
	}
	add := frame{kind: frameRequest, op: rdma.WRAtomicFetchAndAdd, flags: frameDC, psn: 9, life: 4, total: 8, key: mr.RKey(), addr: mr.Addr(), compareAdd: 1}
	next := add
	next.psn = 10
	ahead := add
	ahead.psn = 12
	other := add
	other.life = 3
	call := frame{kind: frameCall, psn: 9, life: 4, compareAdd: dcTestKey}
	wrong, nobody := call, call
	wrong.compareAdd++
	nobody.to = to.num ^ 1<<23
	for k, c := range []struct {
		name string
		say  frame
		want frameKind
		word uint64 // afterwards
		held int
	}{
		{"a request without a call", add, frameNobody, 0, 0},
		{"a wrong key", wrong, frameNak, 0, 0},
		{"a number of nobody", nobody, frameNobody, 0, 0},
		{"a hang-up without a call", frame{kind: frameHangUp, life: 4}, 0, 0, 0},
		{"a call", call, 0, 0, 1},
		{"an atomic", add, frameData, 1, 1},
		{"the same again", add, frameData, 1, 1},
		{"one ahead of its turn", ahead, frameNobody, 1, 1},
		{"the next", next, frameData, 2, 1},
		{"of another call", other, frameNobody, 2, 1},
		{"both again", add, frameData, 2, 1},
		{"", next, frameData, 2, 1},
		{"a hang-up of another call", frame{kind: frameHangUp, life: 3}, 0, 2, 1},
		{"a call in place of the first", call, 0, 2, 1},
		{"a hang-up", frame{kind: frameHangUp, life: 4}, 0, 2, 0},
		{"after the hang-up", add, frameNobody, 2, 0},
	} {
		got := say(c.say)
		if got.kind != c.want || c.want == frameNak && rdma.WCStatus(got.code) != rdma.WCRemAccessErr {
			t.Errorf("%d, %s: answer %+v, want one of kind %d", k, c.name, got, c.want)
		}
		if w := binary.NativeEndian.Uint64(mr.Bytes()); w != c.word || b.held() != c.held {
			t.Errorf("%d, %s: the word is %d and %d responders are held, want %d and %d", k, c.name, w, b.held(), c.word, c.held)
		}
	}
}

// A message that is coming in when its target leaves, or its initiator, gives its
// receive back.
func TestDCMessageUnfinished(t *testing.T) {
	for name, leave := range map[string]func(l *link, to *queuePair){
		"target to ERR":   func(_ *link, to *queuePair) { to.Modify(rdma.QPAttr{State: rdma.StateErr}, rdma.QPStateMask) },
		"target to RESET": func(_ *link, to *queuePair) { to.Modify(rdma.QPAttr{State: rdma.StateReset}, rdma.QPStateMask) },
		"initiator hangs up": func(l *link, to *queuePair) {
			l.hungUp(&frame{from: 77, life: 1})
		},
		"link breaks": func(l *link, to *queuePair) { l.n.p.abandon(l) },
	} {
		t.Run(name, func(t *testing.T) {
			n := hosts(t, 2)
			b := n[1]
			to, mr := b.target(), b.alloc(2*pieceSize, all)
			to.receive(t, mr, 1, 0, 2*pieceSize)
			l := &link{n: b.p.tcp.Load(), from: n[0].p.gids[0], fd: -1}
			b.p.tcp.Load().mu.Lock()
			l.called(&frame{from: 77, to: to.num, psn: 1, life: 1, compareAdd: dcTestKey})
			l.serve(&frame{kind: frameRequest, op: rdma.WRSend, flags: frameDC, from: 77, to: to.num, psn: 1, life: 1, total: 2 * pieceSize, length: pieceSize}, make([]byte, pieceSize))
			if b.held() != 1 || len(l.out) != 0 {
				t.Fatalf("%d responders are held and %d bytes of answers wait, want 1 and 0", b.held(), len(l.out))
			}
			b.p.tcp.Load().mu.Unlock()
			func() {
				if name == "initiator hangs up" || name == "link breaks" {
					b.p.tcp.Load().mu.Lock()
					defer b.p.tcp.Load().mu.Unlock()
				}
				leave(l, to)
			}()
			if b.held() != 0 {
				t.Errorf("%d responders are held, want 0", b.held())
			}
			// The receive serves another.
			if to.state() != rdma.StateRTR {
				to.Modify(rdma.QPAttr{State: rdma.StateReset}, rdma.QPStateMask)
				b.steps(to, initMask, rdma.QPStateMask|rdma.QPAVMask|rdma.QPPathMTUMask|rdma.QPMinRNRTimerMask)
			}
			i := n[0].initiator(b, to)
			i.post(rdma.SendWR{WRID: 2, Opcode: rdma.WRSend, Flags: rdma.SendSignaled | rdma.SendInline, Inline: []byte("another")})
			if wc := i.poll(1, n...)[0]; wc.Status != rdma.WCSuccess {
				t.Errorf("the next message: %+v", wc)
			}
			if wc := b.poll(1, n...)[0]; wc.WRID != 1 || wc.ByteLen != 7 {
				t.Errorf("the receive: %+v", wc)
			}
		})
	}
}

// A target whose host is cut off, or whose process ends, fails what goes to it in bounded
// time, and what is behind for others too.
func TestDCTargetGone(t *testing.T) {
	testenv.Part(t, testenv.Timed)
	for name, retries := range map[string]uint8{"cut off": 1, "closed": 7} {
		t.Run(name, func(t *testing.T) {
			noLeaks(t)
			n := hosts(t, 2)
			to, mr := n[1].target(), n[1].alloc(64, all)
			i := n[0].initiator(n[1], to)
			i.post(wordTo(mr, 1))
			i.poll(1, n...)
			eventually(t, "the hang-up", func() bool { return n[1].held() == 0 }, n...)
			a := attrs()
			a.Timeout, a.RetryCnt = 1, retries
			i.q.Modify(rdma.QPAttr{State: rdma.StateReset}, rdma.QPStateMask)
			for k, mask := range []rdma.QPAttrMask{rdma.QPStateMask | rdma.QPPKeyIndexMask | rdma.QPPortMask, rdma.QPStateMask | rdma.QPPathMTUMask, rtsMask} {
				a.State = rdma.StateInit + rdma.QPState(k)
				if err := i.q.Modify(a, mask); err != nil {
					t.Fatal(err)
				}
			}
			if name == "cut off" {
				defer cut(t, n...)()
			} else {
				n[1].p.tcp.Load().close()
				defer func() { n[1].p.tcp.Store(nil) }()
			}
			begin := time.Now()
			i.post(wordTo(mr, 2))
			i.post(wordTo(mr, 3))
			for k, wc := range i.poll(2) {
				if want := [...]rdma.WCStatus{rdma.WCRetryExcErr, rdma.WCWRFlushErr}[k]; wc.Status != want {
					t.Errorf("%+v, want %v", wc, want)
				}
			}
			// 2 silences at most, on a machine with nothing else to do.
			if took := time.Since(begin); took > 20*silenceLeast {
				t.Errorf("after %v, want at most %v", took, 20*silenceLeast)
			}
		})
	}
}
