package soft

import (
	"bytes"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/rdma"
)

// A wireEnd is the other end of a link, which the test plays.
type wireEnd struct {
	t  *testing.T
	l  *link
	fd int
}

// far makes a link of a node whose other end the test plays.
func far(t *testing.T, n *node, to *peer, from rdma.GID) *wireEnd {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fds[0]); unix.Close(fds[1]) })
	l := &link{n: n.p.tcp.Load(), peer: to, from: from, fd: fds[0]}
	l.state.Store(linkUp)
	return &wireEnd{t, l, fds[1]}
}

// says has the link read some bytes.
func (w *wireEnd) says(parts ...[]byte) {
	w.t.Helper()
	b := bytes.Join(parts, nil)
	for again := 0; len(b) > 0 || again < 2; again++ { // a look that finds memory gone leaves the rest to the next one
		k, err := unix.Write(w.fd, b)
		if err != nil && err != unix.EAGAIN {
			w.t.Fatal(err)
		}
		b = b[max(k, 0):]
		w.l.n.mu.Lock()
		w.l.receive(true)
		w.l.n.mu.Unlock()
	}
}

// hears gives the frames that the link has for the other end.
func (w *wireEnd) hears() (all []frame) {
	w.t.Helper()
	w.l.mu.Lock()
	defer w.l.mu.Unlock()
	for b := w.l.out[w.l.gone:]; len(b) > 0; b = b[frameSize:] {
		f, err := parseFrame(b)
		if err != nil {
			w.t.Fatal(err)
		}
		all = append(all, f)
	}
	return all
}

func head(f frame) []byte {
	var b [frameSize]byte
	f.put(&b)
	return b[:]
}

// A long write is read into its memory as it comes. When the memory or the queue pair goes meanwhile, nothing
// is placed any more, and the requester hears why.
func TestLongWriteLands(t *testing.T) {
	noLeaks(t)
	const size = pieceSize
	pages := func(t *testing.T) []byte {
		b, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Munmap(b) })
		return b
	}
	cases := []struct {
		name      string
		meanwhile func(t *testing.T, mr rdma.MR, q *queuePair, mem []byte)
		want      frame
		whole     bool
	}{
		{"whole", func(*testing.T, rdma.MR, *queuePair, []byte) {}, frame{kind: frameAck}, true},
		{"region closed", func(t *testing.T, mr rdma.MR, _ *queuePair, _ []byte) {
			if err := mr.Close(); err != nil {
				t.Fatal(err)
			}
		}, frame{kind: frameNak, code: uint8(rdma.WCRemAccessErr)}, false},
		{"queue pair closed", func(t *testing.T, _ rdma.MR, q *queuePair, _ []byte) {
			if err := q.Close(); err != nil {
				t.Fatal(err)
			}
		}, frame{kind: frameNobody}, false},
		{"memory not mapped", func(t *testing.T, _ rdma.MR, _ *queuePair, mem []byte) {
			if err := unix.Mprotect(mem[size/2:], unix.PROT_NONE); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = unix.Mprotect(mem, unix.PROT_READ|unix.PROT_WRITE) })
		}, frame{kind: frameNak, code: uint8(rdma.WCRemAccessErr)}, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			n := hosts(t, 2)
			qa, qb := pair(t, n[0], n[1], attrs())
			mem := pages(t)
			mr := n[1].reg(mem, all|rdma.AccessOnDemand)
			w := far(t, n[1], nil, n[0].p.gids[0])
			write := frame{kind: frameRequest, op: rdma.WRRDMAWrite, to: qb.num, from: qa.num, psn: qb.own.expect,
				total: size, length: size, addr: addressOf(mem), key: mr.RKey()}
			data := bytes.Repeat([]byte{7}, size)
			w.says(head(write), data[:size/2])
			if !w.l.landing.active || !bytes.Equal(mem[:size/2], data[:size/2]) {
				t.Fatalf("half of the bytes have come: landing is %v, and they are in place: %v", w.l.landing.active, bytes.Equal(mem[:size/2], data[:size/2]))
			}
			c.meanwhile(t, mr, qb, mem)
			w.says(data[size/2:], head(frame{kind: frameHangUp, from: 9}))
			if w.l.landing.active || w.l.state.Load() != linkUp || len(w.l.rest) != 0 {
				t.Fatalf("all bytes have come: landing is %v, the link's state %d, %d bytes are left", w.l.landing.active, w.l.state.Load(), len(w.l.rest))
			}
			got := w.hears()
			if len(got) != 1 || got[0].kind != c.want.kind || got[0].code != c.want.code || got[0].psn != write.psn {
				t.Fatalf("answers %+v, want %+v for PSN %d", got, c.want, write.psn)
			}
			if c.name == "memory not mapped" {
				return
			}
			if want := data[size/2:]; c.whole != bytes.Equal(mem[size/2:], want) {
				t.Errorf("the second half is in place: %v, want %v", !c.whole, c.whole)
			}
		})
	}
}

// The rest of a long write that was for a queue pair's last connection does not end its next one, which
// waits for a request of the same number.
func TestLongWriteOfTheLastConnection(t *testing.T) {
	noLeaks(t)
	n := hosts(t, 2)
	qa, qb := pair(t, n[0], n[1], attrs())
	mr := n[1].alloc(2*pieceSize, all)
	w := far(t, n[1], nil, n[0].p.gids[0])
	write := frame{kind: frameRequest, op: rdma.WRRDMAWrite, to: qb.num, from: qa.num, psn: qb.own.expect,
		total: 2 * pieceSize, length: pieceSize, addr: mr.Addr(), key: mr.RKey()}
	data := make([]byte, pieceSize)
	w.says(head(write), data)
	write.offset = pieceSize
	w.says(head(write), data[:pieceSize/2])
	if !w.l.landing.active {
		t.Fatal("the second piece does not land, so the test shows nothing")
	}
	if err := qb.Modify(rdma.QPAttr{State: rdma.StateReset}, rdma.QPStateMask); err != nil {
		t.Fatal(err)
	}
	bring(t, qb, rdma.StateRTS, n[0], qa.num, attrs())
	w.says(data[pieceSize/2:])
	if s := qb.State(); w.l.landing.active || s != rdma.StateRTS || len(w.hears()) != 0 {
		t.Errorf("landing is %v, the queue pair in %v, answers %+v; want RTS and none", w.l.landing.active, s, w.hears())
	}
}

// The data of a long read is read into the requester's memory as it comes.
func TestLongReadLands(t *testing.T) {
	noLeaks(t)
	const size = pieceSize + pieceSize/2
	cases := []struct {
		name      string
		meanwhile func(t *testing.T, mr rdma.MR)
		want      rdma.WCStatus
	}{
		{"whole", func(*testing.T, rdma.MR) {}, rdma.WCSuccess},
		{"region closed", func(t *testing.T, mr rdma.MR) {
			if err := mr.Close(); err != nil {
				t.Fatal(err)
			}
		}, rdma.WCLocProtErr},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			n := hosts(t, 2)
			s := n[0].p.find(n[1].p.gids[0])
			w := far(t, n[0], s, n[1].p.gids[0])
			s.mu.Lock()
			s.link = w.l
			s.mu.Unlock()
			qa, qb := pair(t, n[0], n[1], attrs())
			mem := make([]byte, size)
			mr := n[0].reg(mem, all)
			post(t, qa, rdma.SendWR{WRID: 5, Flags: rdma.SendSignaled, Opcode: rdma.WRRDMARead, SGL: []rdma.SGE{sge(mr, 0, size)}, RemoteAddr: 1 << 20, RKey: 256})
			piece := frame{kind: frameData, op: rdma.WRRDMARead, to: qa.num, from: qb.num, psn: qa.psn, life: qa.life, total: size, length: pieceSize}
			data := bytes.Repeat([]byte{7}, size)
			w.says(head(piece), data[:pieceSize/2])
			if !w.l.landing.active || !bytes.Equal(mem[:pieceSize/2], data[:pieceSize/2]) {
				t.Fatalf("half of a piece has come: landing is %v", w.l.landing.active)
			}
			c.meanwhile(t, mr)
			rest := piece
			rest.offset, rest.length = pieceSize, size-pieceSize
			w.says(data[pieceSize/2:pieceSize], head(rest), data[pieceSize:])
			if wc := n[0].poll(1); wc[0].Status != c.want || wc[0].WRID != 5 {
				t.Fatalf("completion %+v, want status %v", wc[0], c.want)
			}
			if c.want == rdma.WCSuccess && !bytes.Equal(mem, data) {
				t.Error("the bytes are not in place")
			}
			if c.want != rdma.WCSuccess && bytes.Contains(mem[pieceSize/2:], []byte{7}) {
				t.Error("bytes were placed after the region was closed")
			}
		})
	}
}

// The data of a read goes from its memory to the socket: while the other end takes nothing, no more than
// a piece of it waits in the link.
func TestReadIsNotCopied(t *testing.T) {
	noLeaks(t)
	n := hosts(t, 2)
	qa, qb := pair(t, n[0], n[1], attrs())
	const size = 16 << 20
	mr := n[1].alloc(size, all)
	for i := range mr.Bytes() {
		mr.Bytes()[i] = byte(i * 7 >> 3)
	}
	w := far(t, n[1], nil, n[0].p.gids[0])
	w.says(head(frame{kind: frameRequest, op: rdma.WRRDMARead, to: qb.num, from: qa.num, psn: qb.own.expect, total: size, addr: mr.Addr(), key: mr.RKey()}))
	if !w.l.replying.Load() {
		t.Fatal("the socket has taken all, so the test shows nothing")
	}
	var got []byte
	buf := make([]byte, 1<<20)
	for len(got) < size {
		if have := cap(w.l.out); have > 2*(landingSize+frameSize) {
			t.Fatalf("the link keeps %d bytes for what waits, want at most a piece", have)
		}
		k, err := unix.Read(w.fd, buf)
		if err != nil && err != unix.EAGAIN {
			t.Fatal(err)
		}
		for got = append(got, buf[:max(k, 0)]...); len(got) >= frameSize; {
			f, err := parseFrame(got)
			if err != nil || f.kind != frameData || f.length != min(landingSize, size-f.offset) {
				t.Fatalf("found %+v (%v), want a piece of data as long as one may be", f, err)
			}
			if len(got) < frameSize+int(f.length) {
				break
			}
			if !bytes.Equal(got[frameSize:frameSize+f.length], mr.Bytes()[f.offset:f.offset+f.length]) {
				t.Fatalf("other bytes at %d", f.offset)
			}
			if got = got[frameSize+f.length:]; f.last() {
				if len(got) > 0 || w.l.replying.Load() {
					t.Errorf("%d bytes behind the last piece, and the link answers: %v", len(got), w.l.replying.Load())
				}
				return
			}
		}
		w.l.n.mu.Lock()
		w.l.flush(true)
		w.l.resume()
		w.l.n.mu.Unlock()
	}
}
