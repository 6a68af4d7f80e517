package soft

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rdma"
)

// An acknowledgement takes the place of one before it of the same requester, and of nothing
// else.
func TestAcknowledgementsMerge(t *testing.T) {
	noLeaks(t)
	n := hosts(t, 1)
	ack := func(to, psn, life uint32) *frame {
		return &frame{kind: frameAck, to: to, from: 1, psn: psn, life: life}
	}
	nothing := func([]byte) bool { return true }
	cases := []struct {
		name    string
		answers []*frame
		want    []uint32 // PSNs that wait
	}{
		{"of one requester", []*frame{ack(7, 1, 1), ack(7, 2, 1), ack(7, 3, 1)}, []uint32{3}},
		{"of two requesters in turn", []*frame{ack(7, 1, 1), ack(8, 5, 1), ack(7, 2, 1)}, []uint32{1, 5, 2}},
		{"of two connections", []*frame{ack(7, 1, 1), ack(7, 2, 2)}, []uint32{1, 2}},
		{"around a refusal", []*frame{ack(7, 1, 1), {kind: frameNak, to: 7, from: 1, psn: 2, life: 1, code: 9}, ack(7, 3, 1)}, []uint32{1, 2, 3}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			l := pipeLink(t, n[0], nil)
			for _, f := range c.answers {
				l.queue(f, 0, nothing)
			}
			var got []uint32
			for b := l.out[l.gone:]; len(b) > 0; b = b[frameSize:] {
				f, err := parseFrame(b)
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, f.psn)
			}
			if len(got) != len(c.want) {
				t.Fatalf("PSNs %d wait, want %d", got, c.want)
			}
			for i := range got {
				if got[i] != c.want[i] {
					t.Fatalf("PSNs %d wait, want %d", got, c.want)
				}
			}
		})
	}
}

// Acknowledgements wait for owedLooks looks of an owner that goes on looking, and other
// answers for none.
func TestAcknowledgementsWait(t *testing.T) {
	noLeaks(t)
	n := hosts(t, 1)
	l := pipeLink(t, n[0], nil)
	l.queue(&frame{kind: frameAck, psn: 1}, 0, nil)
	l.flush(false)
	for i := range owedLooks {
		if l.waiting() == 0 {
			t.Fatalf("the acknowledgement has left after %d looks, want %d", i, owedLooks)
		}
		l.age(false)
	}
	if l.waiting() != 0 {
		t.Errorf("the acknowledgement waits after %d looks", owedLooks)
	}
	l.queue(&frame{kind: frameAck, psn: 2}, 0, nil)
	l.queue(&frame{kind: frameNak, psn: 3, code: 9}, 0, nil)
	if l.flush(false); l.waiting() != 0 {
		t.Error("a refusal waits with the acknowledgement before it")
	}
	l.queue(&frame{kind: frameAck, psn: 4}, 0, nil)
	if l.flush(true); l.waiting() != 0 {
		t.Error("an acknowledgement waits although nothing looks again")
	}
}

// A message is acknowledged although its receiver, having looked once, never does again.
func TestOwedAcknowledgementLeaves(t *testing.T) {
	noLeaks(t)
	n := hosts(t, 2)
	qa, qb := pair(t, n[0], n[1], attrs())
	src, dst := n[0].alloc(8, all), n[1].alloc(8, all)
	for i := range uint64(50) {
		postRecv(t, qb, rdma.RecvWR{SGL: []rdma.SGE{sge(dst, 0, 8)}})
		post(t, qa, rdma.SendWR{WRID: i, Flags: rdma.SendSignaled, Opcode: rdma.WRSend, SGL: []rdma.SGE{sge(src, 0, 8)}})
		n[1].poll(1, n[0]) // at most until it has come
		var wc [1]rdma.WC
		testenv.Await(t, 10*time.Second, "the message is acknowledged", func() bool {
			k, _ := n[0].cq.Poll(wc[:])
			return k == 1
		})
		if wc[0].Status != rdma.WCSuccess || wc[0].WRID != i {
			t.Fatalf("completion %+v, want of %d", wc[0], i)
		}
	}
}

// The requests of a post leave by one system call, and a message with its answer takes at
// most two of each side: itself and an acknowledgement.
func TestSystemCallsOfMessages(t *testing.T) {
	noLeaks(t)
	n := hosts(t, 2)
	qa, qb := pair(t, n[0], n[1], attrs())
	a, b := n[0].alloc(512, all), n[1].alloc(512, all)
	writes := func(n *node) uint64 { return n.p.tcp.Load().counts.writes.Load() }
	round := func() {
		for i, q := range []*queuePair{qa, qb} {
			mr, other := a, b
			if i == 1 {
				mr, other = b, a
			}
			postRecv(t, []*queuePair{qb, qa}[i], rdma.RecvWR{SGL: []rdma.SGE{sge(other, 0, 8)}})
			post(t, q, rdma.SendWR{Flags: rdma.SendSignaled, Opcode: rdma.WRSend, SGL: []rdma.SGE{sge(mr, 0, 8)}})
			n[1-i].poll(1, n[i])
			n[i].poll(1, n[1-i])
		}
	}
	round()
	const rounds = 50
	before := writes(n[0]) + writes(n[1])
	for range rounds {
		round()
	}
	if got := writes(n[0]) + writes(n[1]) - before; got > 4*rounds {
		t.Errorf("%d sends for %d messages there and back, want at most 4 each", got, rounds)
	}
	list := make([]rdma.SendWR, 16)
	for i := range list {
		list[i] = rdma.SendWR{Opcode: rdma.WRRDMAWrite, SGL: []rdma.SGE{sge(a, 8*i, 8)}, RemoteAddr: b.Addr() + uint64(8*i), RKey: b.RKey()}
	}
	list[15].Flags = rdma.SendSignaled
	before = writes(n[0])
	goOn := stop(n[0]) // else the guard may send what there is of the post so far
	post(t, qa, list...)
	goOn()
	n[0].poll(1, n[1])
	if got := writes(n[0]) - before; got != 1 {
		t.Errorf("%d sends for the %d requests of a post, want 1", got, len(list))
	}
}

// Where messages go there and back, acknowledgements go with them: each side sends once a message.
func TestMessagesCarryAcknowledgements(t *testing.T) {
	noLeaks(t)
	n := hosts(t, 2)
	qa, qb := pair(t, n[0], n[1], attrs())
	q, mrs := [2]*queuePair{qa, qb}, [2]rdma.MR{n[0].alloc(512, all), n[1].alloc(512, all)}
	for i := range q {
		postRecv(t, q[i], slices.Repeat([]rdma.RecvWR{{SGL: []rdma.SGE{sge(mrs[i], 0, 8)}}}, 8)...)
	}
	writes := func() uint64 { return n[0].p.tcp.Load().counts.writes.Load() + n[1].p.tcp.Load().counts.writes.Load() }
	const rounds = 200
	acknowledged, before := 0, uint64(0)
	for round := range rounds + 10 {
		if round == 10 { // the link is up
			before, acknowledged = writes(), 0
		}
		for i := range q {
			post(t, q[i], rdma.SendWR{Flags: rdma.SendSignaled, Opcode: rdma.WRSend, SGL: []rdma.SGE{sge(mrs[i], 0, 8)}})
			for came := false; !came; {
				wc := n[1-i].poll(1)[0]
				if came = wc.Opcode == rdma.WCRecv; !came {
					acknowledged++
				}
				if wc.Status != rdma.WCSuccess {
					t.Fatalf("completion %+v", wc)
				}
			}
			postRecv(t, q[1-i], rdma.RecvWR{SGL: []rdma.SGE{sge(mrs[1-i], 0, 8)}})
		}
	}
	if got := writes() - before; got > 2*rounds+rounds/4 {
		t.Errorf("%d sends for %d messages there and back, want one each", got, rounds)
	}
	if acknowledged < 2*rounds-2 {
		t.Errorf("%d of %d messages are acknowledged", acknowledged, 2*rounds)
	}
}

// Requests of any lengths arrive as they were posted, one piece or several, both ways at once: short payloads
// go behind their headers, long ones from where they are, and acknowledgements of the other way in between.
func TestRequestsOfAnyLength(t *testing.T) {
	noLeaks(t)
	n := hosts(t, 2)
	qa, qb := pair(t, n[0], n[1], attrs())
	const size = 1 << 16
	q, mrs := [2]*queuePair{qa, qb}, [4]rdma.MR{n[0].alloc(size, all), n[1].alloc(size, all), n[0].alloc(size, all), n[1].alloc(size, all)}
	rng := rand.New(rand.NewPCG(2, 7))
	for round := range 60 {
		for i := range q {
			from, to := mrs[i], mrs[3-i]
			b := from.Bytes()
			for k := range b {
				b[k] = byte(rng.Uint32())
			}
			clear(to.Bytes())
			list := make([]rdma.SendWR, 1+rng.IntN(48))
			most, at := []int{8, shortMost, 3 * shortMost, size / len(list)}[round%4], 0
			for k := range list {
				w := 1 + rng.IntN(min(most, size/len(list)))
				list[k] = rdma.SendWR{Opcode: rdma.WRRDMAWrite, SGL: []rdma.SGE{sge(from, at, w/2), sge(from, at+w/2, w-w/2)}, RemoteAddr: to.Addr() + uint64(at), RKey: to.RKey()}
				at += w
			}
			clear(b[at:])
			list[len(list)-1].Flags = rdma.SendSignaled
			post(t, q[i], list...)
		}
		n[0].poll(1, n[1])
		n[1].poll(1, n[0])
		for i := range q {
			if !bytes.Equal(mrs[i].Bytes(), mrs[3-i].Bytes()) {
				t.Fatalf("round %d: what side %d wrote is not what the other has", round, i)
			}
		}
	}
}

// What waits for the socket reaches it in order and whole, however it takes it.
func TestOutKeepsOrder(t *testing.T) {
	noLeaks(t)
	n := hosts(t, 1)
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[0])
	defer unix.Close(fds[1])
	l := &link{n: n[0].p.tcp.Load(), fd: fds[0]}
	l.state.Store(linkUp)
	rng := rand.New(rand.NewPCG(3, 14))
	var want, got []byte
	buf := make([]byte, 100<<10)
	for range 2000 {
		if rng.IntN(2) == 0 {
			b := make([]byte, rng.IntN(40<<10))
			for i := range b {
				b[i] = byte(rng.Uint32())
			}
			want = append(want, b...)
			l.mu.Lock()
			l.append(b)
			l.mu.Unlock()
		}
		if rng.IntN(3) > 0 {
			l.flush(true)
		}
		if k, err := unix.Read(fds[1], buf[:1+rng.IntN(len(buf)-1)]); err == nil {
			got = append(got, buf[:k]...)
		}
	}
	for l.waiting() > 0 || len(got) < len(want) {
		l.flush(true)
		k, err := unix.Read(fds[1], buf)
		if err != nil {
			t.Fatalf("%d of %d bytes have come, then %v", len(got), len(want), err)
		}
		got = append(got, buf[:k]...)
	}
	if !bytes.Equal(got, want) {
		t.Error("the bytes that came are not those that were queued")
	}
}

// A link that answers a read is served when the socket has room, although nothing waits for that: there is more to
// come. It is read again when the queue pair has gone meanwhile.
func TestLinkIsReadAfterItsReaderHasGone(t *testing.T) {
	noLeaks(t)
	n := hosts(t, 1)
	l := pipeLink(t, n[0], nil)
	set, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(set)
	if err := unix.EpollCtl(set, unix.EPOLL_CTL_ADD, l.fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(l.fd)}); err != nil {
		t.Fatal(err)
	}
	l.n, l.seen = &network{p: n[0].p, epoll: set}, unix.EPOLLIN
	l.wait(&reply{read: true, f: frame{to: 1<<24 - 1, total: 8}})
	l.mu.Lock()
	l.watch(false)
	l.mu.Unlock()
	if l.seen != unix.EPOLLIN|unix.EPOLLOUT {
		t.Fatalf("while it answers a read it is watched for %#x, want %#x", l.seen, unix.EPOLLIN|unix.EPOLLOUT)
	}
	if l.n.serve(l, true); l.replying.Load() || l.seen != unix.EPOLLIN {
		t.Errorf("it answers: %v, and is watched for %#x, want %#x", l.replying.Load(), l.seen, unix.EPOLLIN)
	}
}
