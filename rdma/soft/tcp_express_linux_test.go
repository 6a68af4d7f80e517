package soft

import (
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/rdma"
)

// wordSend is an inline send of 8 bytes.
func wordSend(v uint64) rdma.SendWR {
	return rdma.SendWR{WRID: v, Opcode: rdma.WRSend, Flags: rdma.SendInline | rdma.SendSignaled, Inline: binary.LittleEndian.AppendUint64(nil, v)}
}

// linked is a pair over a link that is up both ways, and b's end of it.
func linked(t *testing.T) (n []*node, qa, qb *queuePair, l *link) {
	t.Helper()
	n = hosts(t, 2)
	qa, qb = pair(t, n[0], n[1], attrs())
	for i, q := range []*queuePair{qa, qb} {
		other := []*queuePair{qb, qa}[i]
		postRecv(t, other, rdma.RecvWR{SGL: []rdma.SGE{sge(n[1-i].alloc(8, all), 0, 8)}})
		post(t, q, wordSend(1))
		n[1-i].poll(1, n[i])
		n[i].poll(1, n[1-i])
	}
	return n, qa, qb, qb.wire.link
}

// bytes is a request from a to b, as it comes over the link.
func (q *queuePair) bytes(psn uint32, payload []byte, change func(*frame)) []byte {
	f := frame{kind: frameRequest, op: rdma.WRSend, length: uint32(len(payload)), total: uint32(len(payload)),
		to: q.num, from: q.attr.DestQPNum, psn: psn, imm: 3}
	if change != nil {
		change(&f)
	}
	b := make([]byte, frameSize)
	f.put((*[frameSize]byte)(b))
	return append(b, payload...)
}

// A short message is taken in place where it and its receive are as usual. In every other case nothing is done,
// so that the general way finds all as it was.
func TestShortMessageInPlace(t *testing.T) {
	payload := []byte("12345678")
	for _, tt := range []struct {
		name   string
		recv   func(n *node, mr rdma.MR) []rdma.RecvWR // nil: one of 8 bytes
		change func(*frame)
		before func(n *node, q *queuePair)
		took   bool
	}{
		{name: "usual", took: true},
		{name: "longer receive", took: true, recv: func(_ *node, mr rdma.MR) []rdma.RecvWR {
			return []rdma.RecvWR{{SGL: []rdma.SGE{sge(mr, 0, 64)}}}
		}},
		{name: "no receive", recv: func(*node, rdma.MR) []rdma.RecvWR { return nil }},
		{name: "shorter receive", recv: func(_ *node, mr rdma.MR) []rdma.RecvWR {
			return []rdma.RecvWR{{SGL: []rdma.SGE{sge(mr, 0, 7)}}}
		}},
		{name: "two entries", recv: func(_ *node, mr rdma.MR) []rdma.RecvWR {
			return []rdma.RecvWR{{SGL: []rdma.SGE{sge(mr, 0, 8), sge(mr, 8, 8)}}}
		}},
		{name: "beyond the region", recv: func(_ *node, mr rdma.MR) []rdma.RecvWR {
			return []rdma.RecvWR{{SGL: []rdma.SGE{sge(mr, 60, 8)}}}
		}},
		{name: "before the region", recv: func(_ *node, mr rdma.MR) []rdma.RecvWR {
			return []rdma.RecvWR{{SGL: []rdma.SGE{{Addr: mr.Addr() - 8, Length: 8, LKey: mr.LKey()}}}}
		}},
		{name: "unknown key", recv: func(_ *node, mr rdma.MR) []rdma.RecvWR {
			return []rdma.RecvWR{{SGL: []rdma.SGE{{Addr: mr.Addr(), Length: 8, LKey: mr.LKey() + 1}}}}
		}},
		{name: "read-only region", recv: func(n *node, _ rdma.MR) []rdma.RecvWR {
			return []rdma.RecvWR{{SGL: []rdma.SGE{sge(n.alloc(8, 0), 0, 8)}}}
		}},
		{name: "ordinary memory", recv: func(n *node, _ rdma.MR) []rdma.RecvWR {
			return []rdma.RecvWR{{SGL: []rdma.SGE{sge(n.reg(make([]byte, 8), all), 0, 8)}}}
		}},
		{name: "sent before", change: func(f *frame) { f.psn = (f.psn - 1) & psnMask }},
		{name: "beyond the next", change: func(f *frame) { f.psn++ }},
		{name: "a piece", change: func(f *frame) { f.total++ }},
		{name: "the end of a message", change: func(f *frame) { f.offset = 1 }},
		{name: "solicited", change: func(f *frame) { f.flags = frameSolicited }},
		{name: "immediate", change: func(f *frame) { f.op = rdma.WRSendWithImm }},
		{name: "datagram", change: func(f *frame) { f.kind = frameMessage }},
		{name: "another sender", change: func(f *frame) { f.from++ }},
		{name: "an earlier queue pair", change: func(f *frame) { f.to += maxQueues }},
		{name: "armed", before: func(n *node, _ *queuePair) { n.cq.armed = armedSolicited }},
		{name: "in ERR", before: func(_ *node, q *queuePair) {
			q.mu.Lock()
			q.p.self.fault(q.own, faultTold)
			q.mu.Unlock()
		}},
		{name: "an earlier one not harvested", before: func(_ *node, q *queuePair) { q.own.head++ }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			noLeaks(t)
			n, _, qb, l := linked(t)
			mr := n[1].alloc(64, all)
			recv := []rdma.RecvWR{{WRID: 9, SGL: []rdma.SGE{sge(mr, 0, 8)}}}
			if tt.recv != nil {
				recv = tt.recv(n[1], mr)
			}
			postRecv(t, qb, recv...)
			cq := n[1].cq
			w := n[1].p.tcp.Load()
			w.mu.Lock()
			if tt.before != nil {
				tt.before(n[1], qb)
			}
			expect, head, taken, count := qb.own.expect, qb.own.head, qb.rq.taken, cq.count
			b := qb.bytes(expect, payload, tt.change)
			got := l.take(b)
			if want := map[bool]int{true: len(b)}[tt.took]; got != want {
				t.Errorf("took %d bytes, want %d", got, want)
			}
			if !tt.took && (qb.own.expect != expect || qb.own.head != head || qb.rq.taken != taken || cq.count != count || string(mr.Bytes()[:8]) == string(payload)) {
				t.Error("something was done")
			}
			cq.armed = 0
			w.mu.Unlock()
			if !tt.took {
				return
			}
			wc := n[1].poll(1)[0]
			if want := (rdma.WC{WRID: recv[0].WRID, Opcode: rdma.WCRecv, ByteLen: 8, ImmData: 3, QPNum: qb.num, SrcQP: qb.attr.DestQPNum}); wc != want {
				t.Errorf("completion %+v, want %+v", wc, want)
			}
			if string(mr.Bytes()[:8]) != string(payload) {
				t.Errorf("found %q, want %q", mr.Bytes()[:8], payload)
			}
			if qb.own.expect != (expect+1)&psnMask {
				t.Errorf("number %d is due, want %d", qb.own.expect, expect+1)
			}
		})
	}
}

// An acknowledgement behind a message is kept for another look, or for the guard, which tells an owner that sleeps.
func TestKeptAcknowledgement(t *testing.T) {
	noLeaks(t)
	n, qa, qb, l := linked(t)
	goOn := stop(n[0]) // which acknowledges nothing by itself
	defer goOn()
	dst := n[1].alloc(8, all)
	w, p := n[1].p.tcp.Load(), n[1].p
	for _, all := range []bool{true, false} {
		postRecv(t, qb, rdma.RecvWR{SGL: []rdma.SGE{sge(dst, 0, 8)}})
		p.work.turn.Lock() // nobody else looks
		w.mu.Lock()
		post(t, qb, wordSend(2))
		ack := make([]byte, frameSize)
		(&frame{kind: frameAck, to: qb.num, from: qa.num, psn: qb.psn, life: qb.life}).put((*[frameSize]byte)(ack))
		if !l.digest(append(qb.bytes(qb.own.expect, []byte("12345678"), nil), ack...), all) {
			t.Error("a message with an acknowledgement is no protocol")
		}
		underWay := func() uint32 {
			qb.mu.Lock()
			defer qb.mu.Unlock()
			return qb.sq.pending.n
		}
		if late := l.late; late == all || (underWay() > 0) != late {
			t.Errorf("all %v: kept %v, %d requests are under way", all, late, underWay())
		}
		w.mu.Unlock()
		p.self.bell.Prepare()
		w.flushAll() // as the guard does, whatever it finds
		if woken := p.self.bell.Sleep(1); woken == all || underWay() > 0 {
			t.Errorf("all %v: the bell has rung: %v; %d requests are under way", all, woken, underWay())
		}
		p.self.bell.Cancel()
		p.work.turn.Unlock()
		n[1].poll(2)
	}
}

// What the socket does not take of short messages follows, in order.
func TestShortMessagesWaitForTheSocket(t *testing.T) {
	noLeaks(t)
	n, qa, qb, l := linked(t)
	for _, fd := range []int{l.fd, qa.wire.link.fd} {
		for _, o := range []int{unix.SO_SNDBUF, unix.SO_RCVBUF} {
			if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, o, 1); err != nil {
				t.Fatal(err)
			}
		}
	}
	const most, size = 60, 248
	dst := n[1].alloc(most*size, all)
	waited := false
	for round := range 3 {
		for i := range most {
			postRecv(t, qb, rdma.RecvWR{WRID: uint64(i), SGL: []rdma.SGE{sge(dst, i*size, size)}})
		}
		goOn := stop(n[1])
		for i := range most {
			b := make([]byte, size)
			for k := range b {
				b[k] = byte(round + i + k)
			}
			post(t, qa, rdma.SendWR{WRID: uint64(i), Opcode: rdma.WRSend, Flags: rdma.SendInline | rdma.SendSignaled, Inline: b})
		}
		la := qa.wire.link
		la.mu.Lock()
		waited = waited || la.waiting() > 0
		la.mu.Unlock()
		goOn()
		got := n[1].poll(most, n[0])
		for i, wc := range got {
			if wc.WRID != uint64(i) || wc.Status != rdma.WCSuccess || wc.ByteLen != size {
				t.Fatalf("round %d: completion %d is %+v", round, i, wc)
			}
			for k, v := range dst.Bytes()[i*size:][:size] {
				if v != byte(round+i+k) {
					t.Fatalf("round %d: byte %d of message %d is %#x, want %#x", round, k, i, v, byte(round+i+k))
				}
			}
		}
		for i, wc := range n[0].poll(most, n[1]) {
			if wc.WRID != uint64(i) || wc.Status != rdma.WCSuccess {
				t.Fatalf("round %d: send %d is %+v", round, i, wc)
			}
		}
	}
	if !waited {
		t.Error("the socket took everything at once")
	}
}
