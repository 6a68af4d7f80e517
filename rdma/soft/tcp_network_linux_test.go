package soft

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/arch"
	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rdma"
)

// Strangers of every kind beside two members of a job.
func TestUnauthenticatedConnections(t *testing.T) { both(t, testUnauthenticatedConnections) }

func testUnauthenticatedConnections(t *testing.T, secure Handshake) {
	noLeaks(t)
	n := []*node{open(t, Config{Host: "a", Secret: secret, Secure: secure}), open(t, Config{Host: "b", Secret: secret, Secure: secure})}
	magic := magicOf(secure, false)
	introduce(t, n...)
	address := n[1].p.tcp.Load().address
	var conns []net.Conn
	defer func() {
		for _, c := range conns {
			c.Close()
		}
	}()
	for i := range 3 * halfMost {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
		switch i % 4 {
		case 0: // says nothing
		case 1:
			c.Write([]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n and more, so that it is a whole greeting in length\r\n"))
		case 2:
			c.Write(magic[:7])
		case 3: // a whole greeting, then nonsense
			hello := make([]byte, helloSize+500)
			copy(hello, magic[:])
			copy(hello[64:], n[1].p.gids[0][:])
			c.Write(hello)
		}
	}
	qa, _ := pair(t, n[0], n[1], attrs())
	src, dst := n[0].alloc(8, all), n[1].alloc(8, all)
	fill(src.Bytes(), 3)
	post(t, qa, rdma.SendWR{Flags: rdma.SendSignaled, Opcode: rdma.WRRDMAWrite, SGL: []rdma.SGE{sge(src, 0, 8)}, RemoteAddr: dst.Addr(), RKey: dst.RKey()})
	if wc := n[0].poll(1, n[1])[0]; wc.Status != rdma.WCSuccess {
		t.Errorf("a member's write: %v", wc.Status)
	}
	n[1].p.tcp.Load().halfMu.Lock()
	if k := len(n[1].p.tcp.Load().half); k > halfMost {
		t.Errorf("%d strangers are kept, want at most %d", k, halfMost)
	}
	n[1].p.tcp.Load().halfMu.Unlock()
}

// bare is the encryption of a test that is about something else.
type bare struct{}

func (bare) Seal(dst []byte, bufs [][]byte) ([]byte, error) {
	return append(dst, bytes.Join(bufs, nil)...), nil
}

func (bare) Open(dst, in []byte) (plain []byte, used int, err error) {
	return append(dst, in...), len(in), nil
}

// Members that have proved the secret, and wait for the encryption, are not driven out by strangers: all of them
// are welcome in the end. There is a bound for them too.
func TestStrangersDriveOutNoMember(t *testing.T) {
	noLeaks(t)
	entered, goOn := make(chan struct{}, 2*provenMost), make(chan struct{})
	release := sync.OnceFunc(func() { close(goOn) })
	defer release()
	handshake := func(_ io.ReadWriter, _ []byte, _ string, server bool) (Sealer, error) {
		if server {
			entered <- struct{}{}
			<-goOn
		}
		return bare{}, nil
	}
	a, b := apart(t, handshake)
	address := a.p.tcp.Load().address
	call := func() error {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			return err
		}
		defer conn.Close()
		_, err = greet(conn, secret, handshake, b.p.gids[0], a.p.gids[0], nil)
		return err
	}
	members := make(chan error, provenMost)
	for range provenMost {
		go func() { members <- call() }()
		select {
		case <-entered:
		case err := <-members:
			t.Fatal(err)
		}
	}
	if err := call(); err == nil || len(entered) > 0 { // before any stranger: none drives it out
		t.Errorf("%d are in the handshake at once (%v), want at most %d", provenMost+1, err, provenMost)
	}
	for range halfMost + 1 {
		stranger := must[net.Conn](t)(net.Dial("tcp", address))
		defer stranger.Close()
	}
	// Connections are accepted in turn: all of those were, once this one's greeting is answered.
	last := must[net.Conn](t)(net.Dial("tcp", address))
	defer last.Close()
	hello := make([]byte, helloSize)
	copy(hello, secureMagic[:])
	copy(hello[64:], a.p.gids[0][:])
	_, _ = last.Write(hello)
	if _, err := io.ReadFull(last, make([]byte, replySize)); err != nil {
		t.Error(err)
	}
	release()
	out := 0
	for range provenMost {
		// They are one process to the listener, which may need no second link with it.
		if err := <-members; err != nil && !errors.Is(err, errCrossed) {
			out++
		}
	}
	if out > 0 {
		t.Errorf("%d of %d members were driven out", out, provenMost)
	}
}

// Members are not kept out by each other: more of them than a listener has in
// the handshake at once, all at the same moment.
func TestManyLinksAtOnce(t *testing.T) { both(t, testManyLinksAtOnce) }

func testManyLinksAtOnce(t *testing.T, secure Handshake) {
	noLeaks(t)
	n := []*node{open(t, Config{Host: "a", Secret: secret, Secure: secure}), open(t, Config{Host: "b", Secret: secret, Secure: secure})}
	introduce(t, n...)
	if bytes.Compare(n[0].p.gids[0][:], n[1].p.gids[0][:]) > 0 {
		n[0], n[1] = n[1], n[0] // it takes every connection
	}
	s := n[0].p.find(n[1].p.gids[0])
	links := make([]*link, 6*halfMost)
	switch {
	case secure == nil:
	case arch.RaceEnabled:
		links = links[:provenMost+provenMost/4] // a handshake of TLS takes 60 ms of CPU time
	case testing.Short():
		links = links[:halfMost+halfMost/4] // otherwise 5
	}
	var all sync.WaitGroup
	for i := range links {
		all.Go(func() {
			net := n[0].p.tcp.Load()
			links[i] = &link{n: net, peer: s, from: s.gids[0], dials: true}
			net.halfMu.Lock()
			net.start(links[i]) // dial would give all the same
			net.halfMu.Unlock()
		})
	}
	all.Wait()
	testenv.Await(t, dialLimit, "all links are up", func() bool {
		up := 0
		for i, l := range links {
			switch l.state.Load() {
			case linkUp:
				up++
			case linkBroken:
				t.Fatalf("link %d did not come up", i)
			}
		}
		return up == len(links)
	})
}

// Of two processes that dial each other, the one with the lower GID decides which connection is the link.
func TestCrossedDials(t *testing.T) {
	noLeaks(t)
	n := hosts(t, 2)
	if bytes.Compare(n[0].p.gids[0][:], n[1].p.gids[0][:]) > 0 {
		n[0], n[1] = n[1], n[0]
	}
	for i, name := range []string{"lower", "higher"} {
		net, other := n[i].p.tcp.Load(), n[1-i].p.gids[0]
		if l, dials := net.expect(other); l == nil || dials || net.byGID[other] != l {
			t.Errorf("%s, which does not dial: link %p, dials %v; want a new link", name, l, dials)
		}
		own := &link{n: net, from: other, dials: true}
		net.byGID[other] = own
		if l, dials := net.expect(other); l != own || !dials || own.dials {
			t.Errorf("%s, whose dial has not got through: link %p, dials %v, and goes on: %v; want %p, true, false", name, l, dials, own.dials, own)
		}
		own.dials, own.greets = true, true
		want := []*link{nil, own}[i]
		if l, dials := net.expect(other); l != want || !dials || own.dials != (i == 0) {
			t.Errorf("%s, which dials: link %p, dials %v, and goes on: %v; want %p, true, %v", name, l, dials, own.dials, want, i == 0)
		}
		own.state.Store(linkBroken)
		l, dials := net.expect(other)
		if l == nil || l == own || dials {
			t.Errorf("%s, whose dial has failed: link %p, dials %v; want a new link", name, l, dials)
		}
		l.state.Store(linkUp)
		if again, _ := net.expect(other); (again == nil) != (i == 0) || again == l {
			t.Errorf("%s, which has a link: %p, want another one by the higher, none by the lower", name, again)
		}
		delete(net.byGID, other)
	}
}

// Where only one of two processes that dial each other gets through, theirs is the link at once, whichever it is.
func TestOneSidedDials(t *testing.T) {
	testenv.Part(t, testenv.Timed)
	for blocked, name := range []string{"lower", "higher"} {
		t.Run(name, func(t *testing.T) {
			noLeaks(t)
			n := hosts(t, 2)
			if bytes.Compare(n[0].p.gids[0][:], n[1].p.gids[0][:]) > 0 {
				n[0], n[1] = n[1], n[0]
			}
			n[blocked].p.find(n[1-blocked].p.gids[0]).ep.address = silent(t)
			qa, qb := pair(t, n[0], n[1], attrs())
			q := []*queuePair{qa, qb}
			begin := time.Now()
			for _, i := range []int{blocked, 1 - blocked} {
				mr, to := n[i].alloc(8, all), n[1-i].alloc(8, all)
				post(t, q[i], rdma.SendWR{Flags: rdma.SendSignaled, Opcode: rdma.WRRDMAWrite, SGL: []rdma.SGE{sge(mr, 0, 8)}, RemoteAddr: to.Addr(), RKey: to.RKey()})
			}
			for i := range n {
				if wc := n[i].poll(1, n[1-i])[0]; wc.Status != rdma.WCSuccess {
					t.Fatalf("completion %+v", wc)
				}
			}
			if took := time.Since(begin); took > handshakeLimit/2 {
				t.Errorf("the link was there after %v", took)
			}
		})
	}
}

// Two processes that send to each other at once have one connection, whoever was first.
func TestOneConnectionAPair(t *testing.T) { both(t, testOneConnectionAPair) }

func testOneConnectionAPair(t *testing.T, secure Handshake) {
	noLeaks(t)
	for round := range 20 {
		n := []*node{open(t, Config{Host: "a", Secret: secret, Secure: secure}), open(t, Config{Host: "b", Secret: secret, Secure: secure})}
		introduce(t, n...)
		qa, qb := pair(t, n[0], n[1], attrs())
		for i, q := range []*queuePair{qa, qb} {
			if round%3 == 1+i {
				continue // the other one dials alone
			}
			mr, to := n[i].alloc(8, all), n[1-i].alloc(8, all)
			post(t, q, rdma.SendWR{Flags: rdma.SendSignaled, Opcode: rdma.WRRDMAWrite, SGL: []rdma.SGE{sge(mr, 0, 8)}, RemoteAddr: to.Addr(), RKey: to.RKey()})
		}
		for i, q := range []*queuePair{qa, qb} {
			if round%3 == 1+i {
				mr, to := n[i].alloc(8, all), n[1-i].alloc(8, all)
				n[1-i].poll(1, n[i])
				post(t, q, rdma.SendWR{Flags: rdma.SendSignaled, Opcode: rdma.WRRDMAWrite, SGL: []rdma.SGE{sge(mr, 0, 8)}, RemoteAddr: to.Addr(), RKey: to.RKey()})
				if wc := n[i].poll(1, n[1-i])[0]; wc.Status != rdma.WCSuccess {
					t.Fatalf("completion %+v", wc)
				}
			}
		}
		if round%3 == 0 {
			for i := range n {
				if wc := n[i].poll(1, n[1-i])[0]; wc.Status != rdma.WCSuccess {
					t.Fatalf("completion %+v", wc)
				}
			}
		}
		for i := range n {
			net := n[i].p.tcp.Load()
			net.mu.Lock()
			if len(net.links) != 1 {
				t.Errorf("round %d: process %d has %d connections, want 1", round, i, len(net.links))
			}
			net.mu.Unlock()
		}
	}
}

// Two sides that read more of each other than the connection takes do not wait for each other, and what
// each has asked for behind it is answered in order.
func TestReadsOfEachOther(t *testing.T) { both(t, testReadsOfEachOther) }

func testReadsOfEachOther(t *testing.T, secure Handshake) {
	noLeaks(t)
	const size = 24 << 20
	n := []*node{open(t, Config{Host: "a", Secret: secret, Secure: secure}), open(t, Config{Host: "b", Secret: secret, Secure: secure})}
	introduce(t, n...)
	qa, qb := pair(t, n[0], n[1], attrs())
	var mem, far, word [2]rdma.MR
	for i := range n {
		mem[i], far[i], word[i] = n[i].alloc(size, all), n[i].alloc(size, all), n[i].alloc(16, all)
		for k := range far[i].Bytes() {
			far[i].Bytes()[k] = byte(k>>9 + i + k)
		}
	}
	for i, q := range []*queuePair{qa, qb} {
		to := 1 - i
		post(t, q,
			rdma.SendWR{WRID: 0, Flags: rdma.SendSignaled, Opcode: rdma.WRRDMARead, SGL: []rdma.SGE{sge(mem[i], 0, size)}, RemoteAddr: far[to].Addr(), RKey: far[to].RKey()},
			rdma.SendWR{WRID: 1, Flags: rdma.SendSignaled, Opcode: rdma.WRAtomicFetchAndAdd, SGL: []rdma.SGE{sge(word[i], 0, 8)}, RemoteAddr: word[to].Addr() + 8, RKey: word[to].RKey(), CompareAdd: 1},
			rdma.SendWR{WRID: 2, Flags: rdma.SendSignaled, Opcode: rdma.WRRDMAWrite, SGL: []rdma.SGE{sge(word[i], 0, 8)}, RemoteAddr: far[to].Addr(), RKey: far[to].RKey()},
			rdma.SendWR{WRID: 3, Flags: rdma.SendSignaled, Opcode: rdma.WRRDMARead, SGL: []rdma.SGE{sge(mem[i], 0, 4096)}, RemoteAddr: far[to].Addr() + 8192, RKey: far[to].RKey()})
	}
	for i := range n {
		for k, wc := range n[i].poll(4, n[1-i]) {
			if wc.Status != rdma.WCSuccess || wc.WRID != uint64(k) {
				t.Fatalf("process %d: completion %d is %+v", i, k, wc)
			}
		}
	}
	for i := range n {
		if !bytes.Equal(mem[i].Bytes()[4096:], far[1-i].Bytes()[4096:]) {
			t.Errorf("process %d has read other bytes", i)
		}
		if got := word[i].Bytes()[8]; got != 1 {
			t.Errorf("the word of process %d is %d, want 1", i, got)
		}
	}
}

// A peer that is stopped before there is a link to it, so that its kernel takes connections and nobody greets, is
// given up when the patience with dials is over: what waits for it ends with an error.
func TestAPeerStoppedBeforeItsFirstLinkIsGivenUp(t *testing.T) {
	testenv.Part(t, testenv.Timed)
	noLeaks(t)
	stopped, err := net.Listen("tcp", "127.0.0.1:0") // and never Accept
	if err != nil {
		t.Fatal(err)
	}
	defer stopped.Close()
	a, b := open(t, Config{Host: "a", Secret: secret}), open(t, Config{Host: "b", Secret: secret})
	introduce(t, a, b)
	s := a.p.find(b.p.gids[0])
	s.ep.address = stopped.Addr().String()
	a.p.tcp.Load().patience = time.Millisecond
	qa, _ := pair(t, a, b, attrs())
	src := a.reg(make([]byte, 8), all)
	begin := time.Now()
	post(t, qa, rdma.SendWR{Flags: rdma.SendSignaled, Opcode: rdma.WRSend, SGL: []rdma.SGE{sge(src, 0, 8)}})
	if wc := a.poll(1)[0]; wc.Status == rdma.WCSuccess || !s.gone.Load() {
		t.Errorf("status %v, the peer is gone: %t; want an error, and true", wc.Status, s.gone.Load())
	}
	if took := time.Since(begin); took < handshakeLimit/2 {
		t.Errorf("it was given up after %v, before the one handshake it has had could be over", took)
	}
}

// FuzzServe gives a link whatever a member gone mad may send.
func FuzzServe(f *testing.F) {
	for op := range byte(7) {
		var b [frameSize]byte
		(&frame{kind: frameRequest, op: rdma.WROpcode(op), psn: 7, to: 1 << queueBits, total: 8}).put(&b)
		f.Add(b[:])
	}
	// A connection of DC: a call, its requests, one of them twice, and its end.
	var story []byte
	for _, fr := range []frame{
		{kind: frameCall, psn: 3, life: 1, flags: 1}, {kind: frameRequest, op: rdma.WRAtomicFetchAndAdd, psn: 3, life: 1, total: 8, flags: 1 | frameDC},
		{kind: frameRequest, op: rdma.WRAtomicFetchAndAdd, psn: 3, life: 1, total: 8, flags: 1 | frameDC},
		{kind: frameRequest, op: rdma.WRRDMARead, psn: 4, life: 1, total: 16, flags: 1 | frameDC},
		{kind: frameCall, psn: 9, life: 2, flags: 1}, {kind: frameRequest, op: rdma.WRSend, psn: 9, life: 2, flags: 1 | frameDC}, {kind: frameHangUp, life: 2, flags: 1},
	} {
		var b [frameSize]byte
		fr.put(&b)
		story = append(story, b[:]...)
	}
	f.Add(story)
	f.Fuzz(func(t *testing.T, data []byte) {
		n := nodes(t, 2, Config{Secret: secret, DCResponders: 2})
		a, b := n[0], n[1]
		qa, qb := pair(t, a, b, attrs())
		dct := b.target()
		mr := b.alloc(64, all)
		postRecv(t, qb, rdma.RecvWR{SGL: []rdma.SGE{sge(mr, 0, 16)}})
		l := &link{n: b.p.tcp.Load(), from: a.p.gids[0], fd: -1}
		data = append([]byte(nil), data...)
		for at := 0; at+frameSize <= len(data); at += frameSize {
			// Let some of it find its way.
			h := data[at:]
			if h[3]&^frameDC == 1 {
				to := qb.num
				if h[3] &= frameDC; h[3] != 0 || frameKind(h[0]) == frameCall || frameKind(h[0]) == frameHangUp {
					to = dct.num
				}
				if frameKind(h[0]) == frameCall {
					binary.LittleEndian.PutUint64(h[48:], dcTestKey)
				}
				binary.LittleEndian.PutUint32(h[8:], to)
				binary.LittleEndian.PutUint32(h[12:], qa.num)
				binary.LittleEndian.PutUint32(h[32:], mr.RKey())
				binary.LittleEndian.PutUint64(h[40:], mr.Addr()+uint64(h[40]))
			}
		}
		b.p.tcp.Load().mu.Lock()
		l.digest(data, true)
		l.replies, l.replied = nil, 0
		if k := len(l.calls); k > 2 {
			t.Errorf("%d calls with 2 responders", k)
		}
		b.p.abandon(l)
		b.p.tcp.Load().mu.Unlock()
		if k := b.held(); k != 0 || len(dct.calls) != 0 {
			t.Errorf("without the link %d responders are held, by %d calls", k, len(dct.calls))
		}
		var wc [16]rdma.WC
		b.cq.Poll(wc[:])
	})
}

// A dialler may give up just before the verdict reaches it, when the other side has the link already: that side has sent
// nothing over it, and what waits for it goes over another link, once.
func TestALinkThatOneSideHasGivenUpIsMadeAgain(t *testing.T) {
	noLeaks(t)
	a, b := open(t, Config{Host: "a", Secret: secret}), open(t, Config{Host: "b", Secret: secret})
	introduce(t, a, b)
	_, qb := pair(t, a, b, attrs())
	c, err := dial(b.p.self.ep.address, testenv.Limit(handshakeLimit), func(*os.File) {})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := greet(c, secret, nil, a.p.gids[0], b.p.gids[0], nil); err != nil {
		t.Fatal(err)
	}
	n := b.p.tcp.Load()
	var halfway *link
	testenv.Await(t, dialLimit, "the link is there", func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		for _, halfway = range n.links {
			return true
		}
		return false
	})
	word, counter := b.reg(make([]byte, 8), all), a.reg(make([]byte, 8), all)
	post(t, qb, rdma.SendWR{Flags: rdma.SendSignaled, Opcode: rdma.WRAtomicFetchAndAdd, SGL: []rdma.SGE{sge(word, 0, 8)}, RemoteAddr: counter.Addr(), RKey: counter.RKey(), CompareAdd: 1})
	b.ctx.Progress()
	if s := halfway.state.Load(); s != linkDialling || halfway.heard.Load() != 0 {
		t.Errorf("the link is in state %d, and %d things have moved over it; want %d and none: its other side may not have it", s, halfway.heard.Load(), linkDialling)
	}
	c.Close()
	if wc := b.poll(1, a)[0]; wc.Status != rdma.WCSuccess {
		t.Errorf("the request ended with %v, want success over a link of its own", wc.Status)
	}
	if got := counter.Bytes()[0]; got != 1 {
		t.Errorf("it was executed %d times, want once", got)
	}
}

// A datagram to where no process listens any more is lost, and holds up no other one: also where the goroutine that dials
// runs only between two looks of the owner.
func TestDatagramsToNobodyHoldUpNone(t *testing.T) {
	noLeaks(t)
	a, b, c := open(t, Config{Host: "a", Secret: secret}), open(t, Config{Host: "b", Secret: secret}), open(t, Config{Host: "c", Secret: secret})
	introduce(t, a, b, c)
	mail, inbox := a.datagrams(c)
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a.p.find(b.p.gids[0]).ep.address = closed.Addr().String()
	closed.Close()
	src, dst := a.reg(make([]byte, 8), all), c.reg(make([]byte, 64), all)
	postRecv(t, inbox, rdma.RecvWR{SGL: []rdma.SGE{sge(dst, 0, 64)}})
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for _, to := range []*node{b, c} {
		ah := must[rdma.AH](t)(a.pd.CreateAH(rdma.AV{DGID: to.p.gids[0], PortNum: 1}))
		a.owned = append(a.owned, ah)
		letter := rdma.SendWR{Opcode: rdma.WRSend, Flags: rdma.SendSignaled, AH: ah, RemoteQPN: inbox.num, RemoteQKey: 7, SGL: []rdma.SGE{sge(src, 0, 8)}}
		post(t, mail, letter)
		if got := statuses(a.poll(1, c)); got[0] != rdma.WCSuccess {
			t.Errorf("the datagram ended with %v, want success", got)
		}
		if to == b { // which has been found not to listen
			post(t, mail, letter)
			if a.ctx.Progress(); mail.sq.pending.n != 0 {
				t.Error("a second datagram waits until a dial has failed, which another look begins anew")
			}
			a.poll(1)
		}
	}
	c.poll(1, a)
}
