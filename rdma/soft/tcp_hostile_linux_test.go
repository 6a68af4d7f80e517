package soft

import (
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/rdma"
)

// Members of a job that know its secret and have gone mad: what they may say
// over a link, to the side that serves and to the side that has asked. Fuzzed
// bytes, 64 for a frame, become frames whose sizes are right, so that the parser
// lets them pass, and which find their way, most of them.

// say makes a frame of fuzzed bytes, lets aim give it numbers and keys that there
// are, and hands it to the link with a payload.
func (l *link) say(h []byte, kinds []frameKind, aim func(f *frame)) {
	le := binary.LittleEndian
	f := frame{kind: kinds[int(h[0])%len(kinds)], op: rdma.WROpcode(h[1] % 10), code: h[2] % 24, flags: h[3] & frameSolicited,
		imm: le.Uint32(h[20:]), total: le.Uint32(h[24:]) % (3 * pieceSize), life: uint32(h[36] % 3),
		addr: uint64(h[40]), compareAdd: le.Uint64(h[48:]), swap: le.Uint64(h[56:])}
	if h[4]&3 != 0 {
		f.total %= 100
	}
	aim(&f)
	if h[3]&0x70 == 0x70 {
		f.flags = h[3] & frameFlags
	}
	f.psn = (f.psn + [...]uint32{0, 0, 0, 0, 0, 0, 1, psnMask}[h[16]%8]) & psnMask
	switch {
	case f.kind == frameDatagram:
		f.total, f.offset, f.op = f.total%mtu, 0, rdma.WRSend+rdma.WROpcode(h[1]%2)
	case f.op > rdma.WRAtomicFetchAndAdd:
		f.op = rdma.WRSendWithInv
	}
	if f.kind == frameMessage && !f.op.Operation().OnType(rdma.UC) {
		f.op = rdma.WROpcode(h[1] % 4)
	}
	f.offset = min(f.offset, f.total)
	if f.kind == frameData || f.kind == frameDatagram || (f.kind == frameRequest || f.kind == frameMessage) && !f.op.Operation().Fetches() {
		f.length = min(f.total-f.offset, pieceSize)
	} else {
		f.offset = 0
	}
	var b [frameSize]byte
	f.put(&b)
	out := b[:]
	for i := range f.length {
		v := byte(i) | 0x80
		if i < 32 && f.offset == 0 { // where headers of tags may be
			v = h[32+i]
		}
		if i == 0 {
			v %= 5
		}
		out = append(out, v)
	}
	l.n.mu.Lock()
	defer l.n.mu.Unlock()
	l.digest(out, true)
	l.resume()
}

// frames calls say for each frame that data has bytes for.
func frames(data []byte, say func(h []byte)) {
	for at := 0; at+frameSize <= len(data) && at < 64*frameSize; at += frameSize {
		say(data[at : at+frameSize])
	}
}

// pipeLink makes a link of a node whose other end is a socket that nobody reads.
func pipeLink(t *testing.T, n *node, to *peer) *link {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fds[0]); unix.Close(fds[1]) })
	l := &link{n: n.p.tcp.Load(), peer: to, fd: fds[0]}
	l.state.Store(linkUp)
	return l
}

// unreliable connects two UC queue pairs, and gives b's.
func unreliable(t *testing.T, a, b *node) *queuePair {
	t.Helper()
	var q [2]*queuePair
	for i, n := range []*node{a, b} {
		q[i] = must[rdma.QP](t)(n.pd.CreateQP(rdma.QPInitAttr{SendCQ: n.cq, RecvCQ: n.cq, Type: rdma.UC,
			Cap: rdma.QPCap{MaxSendWR: 64, MaxRecvWR: 64, MaxSendSGE: 4, MaxRecvSGE: 4}})).(*queuePair)
	}
	for i, to := range []*node{b, a} {
		at := attrs()
		at.AV, at.DestQPNum = rdma.AV{DGID: to.p.gids[0], PortNum: 1}, q[1-i].num
		for _, step := range []rdma.QPState{rdma.StateInit, rdma.StateRTR, rdma.StateRTS} {
			at.State = step
			if err := q[i].Modify(at, stepMask(rdma.UC, step)); err != nil {
				t.Fatal(err)
			}
		}
	}
	return q[1]
}

// FuzzMember lets a member say anything to queue pairs of every kind.
func FuzzMember(f *testing.F) {
	add := func(seed uint64, frames int) {
		rng := rand.New(rand.NewPCG(seed, 11))
		b := make([]byte, frames*frameSize)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		f.Add(b)
	}
	for seed := range uint64(20) {
		add(seed, 30)
	}
	f.Fuzz(member)
}

func member(t *testing.T, data []byte) {
	n := nodes(t, 2, Config{Secret: secret, DCResponders: 2})
	a, b := n[0], n[1]
	const room = 3 * pieceSize
	before, mr, behind := b.alloc(4096, 0), b.alloc(room, all|rdma.AccessMWBind), b.alloc(4096, 0)
	// Queue pairs of every kind, all connected to a, whose link it is.
	var targets []*queuePair
	with := func(change func(*node)) {
		other := *b
		change(&other)
		_, q := pair(t, a, &other, attrs())
		targets = append(targets, q)
	}
	with(func(*node) {})
	with(func(n *node) { n.inlineRecv = 64 })
	with(func(n *node) { n.strides = rdma.StridingRQ{StrideBytes: 64, Strides: 4} })
	uc := unreliable(t, a, b)
	sharing, _ := a.intoSRQ(b)
	xrc, _ := a.intoXRC(b)
	tags := b.tagged(8, 8)
	a.into(b, tags)
	_, datagrams := a.datagrams(b)
	dct := b.target()
	for q := range b.ctx.queues {
		if q.init.SRQ == rdma.SRQ(sharing) || q.init.SRQ == rdma.SRQ(tags) || q.init.Type == rdma.XRCRecv {
			targets = append(targets, q)
		}
	}
	targets = append(targets, datagrams, dct, uc)
	receives := []rdma.RecvWR{{SGL: []rdma.SGE{sge(mr, 0, 100), sge(mr, 200, 200)}}, {SGL: []rdma.SGE{sge(mr, 0, room)}}, {}, {SGL: []rdma.SGE{sge(mr, 0, 256)}}}
	for _, q := range []*queuePair{targets[0], targets[2], uc} {
		q.PostRecv(receives)
	}
	own := b.alloc(512, all) // what came inline is copied by whoever polls, who may be the watch
	targets[1].PostRecv([]rdma.RecvWR{{SGL: []rdma.SGE{sge(own, 0, 256)}}, {SGL: []rdma.SGE{sge(own, 256, 100), sge(own, 384, 100)}}})
	for range 2 {
		sharing.PostRecv(receives)
		xrc.PostRecv(receives)
		tags.PostRecv(receives)
		tags.PostOps([]rdma.OpsWR{{Opcode: rdma.OpAdd, Tag: 1, Mask: 1, SGL: []rdma.SGE{sge(mr, 0, 300)}}, {Opcode: rdma.OpAdd, Mask: 0, SGL: []rdma.SGE{sge(mr, 0, room)}}})
		dct.init.SRQ.PostRecv([]rdma.RecvWR{{SGL: []rdma.SGE{sge(mr, 0, room)}}})
		datagrams.PostRecv(receives)
	}
	window := b.window(rdma.MWType2)
	b.owned = append(b.owned, window)
	bind := rdma.MWBind{MR: mr, Addr: mr.Addr(), Length: 64, Access: remoteAccess}
	post(t, targets[0], rdma.SendWR{Opcode: rdma.WRBindMW, MW: window, RKey: rdma.IncRKey(window.RKey()), Bind: &bind})
	l := pipeLink(t, b, nil)
	l.from = a.p.gids[0]
	kinds := []frameKind{frameRequest, frameRequest, frameRequest, frameMessage, frameDatagram, frameCall, frameHangUp, frameAck}
	last := map[*queuePair]frame{}
	frames(data, func(h []byte) {
		q := targets[int(h[8])%len(targets)]
		l.say(h, kinds, func(f *frame) {
			if f.kind == frameAck && h[9]&15 != 0 {
				f.kind = frameRequest
			}
			switch f.kind {
			case frameDatagram:
				q = datagrams
			case frameMessage:
				q = uc
			case frameCall, frameHangUp:
				q = dct
			}
			q.mu.Lock()
			defer q.mu.Unlock()
			f.to, f.from, f.psn = q.num, q.attr.DestQPNum, q.own.expect
			f.key = [...]uint32{mr.RKey(), mr.RKey(), window.RKey(), before.RKey(), uint32(h[33])}[h[32]%5]
			f.addr = mr.Addr() + uint64(h[40])&^uint64(h[41]&7)
			f.imm = f.key
			if f.op == rdma.WRAtomicCmpAndSwp || f.op == rdma.WRAtomicFetchAndAdd {
				f.total, f.addr = 8, f.addr&^7
			}
			if h[42]&15 == 0 {
				f.addr = binary.LittleEndian.Uint64(h[40:])
			}
			in := &q.wire.inbound
			switch q.init.Type {
			case rdma.XRCRecv:
				f.flags |= frameXRC
				f.swap = uint64(xrc.num)
			case rdma.DCT:
				f.from, f.compareAdd = uint32(h[12]%4), dcTestKey
				if c := l.calls[f.from]; c != nil && h[13]&7 != 0 {
					f.life, f.psn, in = c.life, c.expect, &c.inbound
				}
				if f.kind == frameRequest {
					f.flags |= frameDC
				}
			case rdma.UD:
				f.gid, f.key = b.p.gids[0], 7
			}
			if in.inside > 0 && in.inside != ^uint32(0) && h[28]&7 != 0 {
				*f = last[q] // the next piece
				f.offset = in.inside
			}
			last[q] = *f
		})
	})
	b.p.tcp.Load().mu.Lock()
	l.replies, l.replied = nil, 0
	if len(l.out) > 16<<20 {
		t.Errorf("%d bytes of answers wait for %d requests", len(l.out), len(data)/frameSize)
	}
	b.p.abandon(l)
	b.p.tcp.Load().mu.Unlock()
	var wc [64]rdma.WC
	if k, err := b.cq.Poll(wc[:]); err == nil {
		for _, w := range wc[:k] {
			if w.Status == rdma.WCSuccess && w.ByteLen > room+rdma.GRHLen {
				t.Errorf("a completion of %d bytes: %+v", w.ByteLen, w)
			}
		}
	}
	for _, m := range []rdma.MR{before, behind} {
		for i, v := range m.Bytes() {
			if v != 0 {
				t.Fatalf("byte %d of memory without any right is %#x", i, v)
			}
		}
	}
	for _, q := range targets {
		if q.wire.tk.claim != nil {
			t.Errorf("queue pair of type %v keeps a receive without its link", q.init.Type)
		}
	}
}

// FuzzAnswers lets a member answer anything to requests of every kind. Each of
// them completes once, in order, however it ends.
func FuzzAnswers(f *testing.F) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 12))
		b := make([]byte, 20*frameSize)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		f.Add(b)
	}
	f.Fuzz(answers)
}

func answers(t *testing.T, data []byte) {
	n := hosts(t, 2)
	a, b := n[0], n[1]
	s := a.p.find(b.p.gids[0])
	l := pipeLink(t, a, s)
	s.mu.Lock()
	s.link = l
	s.mu.Unlock()
	attr := attrs()
	attr.Timeout, attr.RetryCnt, attr.RNRRetry = 0, 0, 0
	rc, _ := pair(t, a, b, attr)
	to, far := b.target(), b.alloc(64, all)
	dci := a.initiator(b, to)
	before, mr, behind := a.alloc(4096, 0), a.alloc(4096, all), a.alloc(4096, 0)
	requesters := []*queuePair{rc, dci.q}
	kinds := []rdma.WROpcode{rdma.WRRDMAWrite, rdma.WRSend, rdma.WRRDMARead, rdma.WRRDMARead, rdma.WRAtomicFetchAndAdd, rdma.WRSendWithImm}
	for _, q := range requesters {
		for i, op := range kinds {
			n := 8
			if op == rdma.WRRDMARead {
				n = 1000
			}
			post(t, q, rdma.SendWR{WRID: uint64(i), Opcode: op, Flags: rdma.SendSignaled, SGL: []rdma.SGE{sge(mr, i*600%3000, n)}, RemoteAddr: far.Addr(), RKey: far.RKey(),
				AH: dci.ah, RemoteQPN: to.num, DCAccessKey: dcTestKey})
		}
	}
	replies := []frameKind{frameAck, frameData, frameData, frameNak, frameNotReady, frameNobody, frameBusy}
	frames(data, func(h []byte) {
		q := requesters[int(h[8])%len(requesters)]
		l.say(h, replies, func(f *frame) {
			q.mu.Lock() // of progress.run
			defer q.mu.Unlock()
			f.to, f.from, f.life, f.psn, f.offset = q.num, q.attr.DestQPNum, q.life, q.psn, q.wire.settled
			if q == dci.q {
				f.from = to.num
			}
			if h[36]&15 == 0 {
				f.life++
			}
			if f.kind >= frameNak && h[37]&3 != 0 {
				f.kind = frameAck + frameKind(h[37]>>2&1)
			}
			if f.kind == frameData {
				f.op = [...]rdma.WROpcode{rdma.WRRDMARead, rdma.WRAtomicFetchAndAdd}[h[1]%2]
				f.total = 1000
				if q.sq.pending.n > 0 && q.sq.pending.first().wr.Opcode == rdma.WRAtomicFetchAndAdd {
					f.total = 8
				}
				if h[25]&15 == 0 {
					f.total = uint32(h[24])
				}
			}
		})
	})
	for _, q := range requesters {
		if err := q.Modify(rdma.QPAttr{State: rdma.StateErr}, rdma.QPStateMask); err != nil {
			t.Fatal(err)
		}
	}
	next := map[uint32]uint64{}
	for _, w := range a.poll(len(requesters) * len(kinds)) {
		if w.WRID != next[w.QPNum] {
			t.Errorf("queue pair %#x: request %d completes when %d is due", w.QPNum, w.WRID, next[w.QPNum])
		}
		next[w.QPNum] = w.WRID + 1
	}
	var wc [1]rdma.WC
	if k, _ := a.cq.Poll(wc[:]); k != 0 {
		t.Errorf("one more: %+v", wc[0])
	}
	for _, m := range []rdma.MR{before, behind} {
		for i, v := range m.Bytes() {
			if v != 0 {
				t.Fatalf("byte %d of memory without any right is %#x", i, v)
			}
		}
	}
}

// A spoken is a stream whose other side says what was written down.
type spoken struct{ rest []byte }

func (s *spoken) Read(b []byte) (int, error) {
	if len(s.rest) == 0 {
		return 0, io.ErrUnexpectedEOF
	}
	k := copy(b, s.rest)
	s.rest = s.rest[k:]
	return k, nil
}

func (s *spoken) Write(b []byte) (int, error)   { return len(b), nil }
func (s *spoken) Close() error                  { return nil }
func (s *spoken) SetDeadline(_ time.Time) error { return nil }

// FuzzHandshake: a process that does not know the secret gets in on neither side,
// whatever it says.
func FuzzHandshake(f *testing.F) {
	hello := make([]byte, helloSize+proofSize)
	copy(hello, helloMagic[:])
	copy(hello[64:], here[0][:])
	f.Add(hello)
	f.Add(append(secureMagic[:], hello[16:]...))
	f.Add(make([]byte, replySize+1))
	f.Fuzz(func(t *testing.T, said []byte) {
		for _, secure := range []Handshake{nil, TLS} {
			if from, err := welcome(&spoken{said}, secret, secure, here, unlisted); err == nil {
				t.Errorf("%x is welcome as %v", said, from.gid)
			}
			if _, err := greet(&spoken{said}, secret, secure, there, here[0], nil); err == nil || len(said) >= replySize && !errors.Is(err, errStranger) {
				t.Errorf("%x: %v, want a stranger", said, err)
			}
		}
	})
}

func TestLinkRejectsForgedFrames(t *testing.T) {
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 13))
		b := make([]byte, 60*frameSize)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		t.Run("says", func(t *testing.T) { member(t, b) })
		t.Run("answers", func(t *testing.T) { answers(t, b) })
	}
}
