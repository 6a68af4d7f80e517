package dpa

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rdma"
)

const errInvalid = rdma.ErrInvalid

// fabrics are the devices that tests of two ends run on.
var fabrics = []fabric{{}, {seed: 1}, {seed: 2}, {seed: 3}, {tcp: true}, {tcp: true, seed: 1}}

// eachDevice runs a test on two connected ends, on devices that misbehave too.
func eachDevice(t *testing.T, depth int, test func(t *testing.T, a, b *end)) {
	for _, on := range fabrics {
		t.Run(fmt.Sprintf("%+v", on), func(t *testing.T) {
			testenv.NoLeaks(t)
			a, b := ends(t, on, depth)
			test(t, a, b)
		})
	}
}

// The kernel of the all-to-all, between two: each writes a block and then its signal, and sees the other's block when it sees the signal.
func TestSignalComesBehindTheWrite(t *testing.T) {
	eachDevice(t, 16, func(t *testing.T, a, b *end) {
		const rounds, size = 200, 512
		ctx := soon(t)
		pair := [2]*end{a, b}
		var arrived [2]*SyncEvent
		var remote [2]RemoteEvent
		var dones [2]*SyncEvent
		var groups [2]*ThreadGroup
		for i, e := range pair {
			arrived[i] = event(t, e.ctx, RemoteNet, Device)
			remote[i] = must[RemoteEvent](t)(arrived[i].Export())
			dones[i], groups[i] = event(t, e.ctx, Device, CPU), group(t, e.ctx, 1)
		}
		for round := uint64(1); round <= rounds; round++ {
			for i, e := range pair {
				peer := pair[1-i]
				copy(e.mr.Bytes(), bytes.Repeat([]byte{byte(round) + byte(i)*100}, size))
				kernel := func(th *Thread) error {
					if err := th.Write(e.rdma, e.piece(0, size), peer.mr.Addr()+size, peer.mr.RKey()); err != nil {
						return err
					}
					if err := th.SignalSet(e.rdma, remote[1-i], round); err != nil {
						return err
					}
					if err := th.Synchronize(e.rdma); err != nil {
						return err
					}
					return th.WaitGt(arrived[i], round-1)
				}
				if err := groups[i].Launch(Launch{Kernel: kernel, Complete: dones[i], Value: round}); err != nil {
					t.Fatal(err)
				}
			}
			for i, e := range pair {
				if err := dones[i].WaitGt(ctx, round-1); err != nil {
					t.Fatal(err)
				}
				if want := bytes.Repeat([]byte{byte(round) + byte(1-i)*100}, size); !bytes.Equal(e.mr.Bytes()[size:2*size], want) {
					t.Fatalf("round %d: end %d has %v, want %d all over", round, i, e.mr.Bytes()[size:2*size], want[0])
				}
			}
		}
		if c := a.ctx.Counters(); c.Posted != 2*rounds {
			t.Errorf("the device threads posted %d requests, want %d", c.Posted, 2*rounds)
		}
	})
}

// SignalAdd adds, and the program can wait for it; a subscriber at the peer reads the event by RDMA.
func TestSignalAddAndRemoteReader(t *testing.T) {
	eachDevice(t, 8, func(t *testing.T, a, b *end) {
		counter := event(t, b.ctx, RemoteNet, CPU)
		word := must[RemoteEvent](t)(counter.Export())
		shown := event(t, b.ctx, CPU, RemoteNet)
		shownWord := must[RemoteEvent](t)(shown.Export())
		if err := shown.Set(77); err != nil {
			t.Fatal(err)
		}
		const n = 50
		var polled []rdma.WC
		g := group(t, a.ctx, 1)
		err := finished(t, launched(t, g, Launch{Kernel: func(th *Thread) error {
			for range n {
				if err := th.SignalAdd(a.rdma, word, 3); err != nil {
					return err
				}
			}
			read := []rdma.SendWR{{Opcode: rdma.WRRDMARead, Flags: rdma.SendSignaled, SGL: []rdma.SGE{a.piece(0, 8)},
				RemoteAddr: shownWord.Addr, RKey: shownWord.RKey}}
			if err := th.Post(a.rdma, 1234, read); err != nil {
				return err
			}
			if err := th.Synchronize(a.rdma); err != nil {
				return err
			}
			wc := make([]rdma.WC, 4)
			k, err := th.Poll(a.done, wc)
			polled = wc[:k]
			return err
		}}))
		if err != nil {
			t.Fatal(err)
		}
		if err := counter.WaitGt(soon(t), 3*n-1); err != nil {
			t.Fatal(err)
		}
		if v := must[uint64](t)(counter.Get()); v != 3*n {
			t.Errorf("the counter is %d, want %d", v, 3*n)
		}
		if len(polled) != 1 || polled[0].WRID != 1234 || polled[0].Opcode != rdma.WCRDMARead {
			t.Errorf("polled %+v, want the read with its id", polled)
		}
		if got := a.mr.Bytes()[0]; got != 77 {
			t.Errorf("read %d, want 77", got)
		}
	})
}

// Writes that ask for no completion do not fill the queue, and Synchronize knows their end.
func TestPostWaitsForRoom(t *testing.T) {
	eachDevice(t, 4, func(t *testing.T, a, b *end) {
		const n = 300
		for i := range n {
			a.mr.Bytes()[i] = byte(i)
		}
		err := finished(t, launched(t, group(t, a.ctx, 1), Launch{Kernel: func(th *Thread) error {
			for i := range n {
				if err := th.Write(a.rdma, a.piece(i, 1), b.mr.Addr()+uint64(i), b.mr.RKey()); err != nil {
					return err
				}
				if i%7 == 0 {
					if err := th.Synchronize(a.rdma); err != nil {
						return err
					}
				}
			}
			return th.Synchronize(a.rdma)
		}}))
		if err != nil {
			t.Fatal(err)
		}
		for i := range n {
			if got := b.mr.Bytes()[i]; got != byte(i) {
				t.Fatalf("byte %d is %d, want %d", i, got, byte(i))
			}
		}
	})
}

// A Post that fills the queue pair waits for writes that tell nothing of themselves.
func TestPostOfTheWholeDepthBehindWrites(t *testing.T) {
	const depth = 8
	eachDevice(t, depth, func(t *testing.T, a, b *end) {
		err := finished(t, launched(t, group(t, a.ctx, 1), Launch{Kernel: func(th *Thread) error {
			for _, n := range []int{depth, depth - 1, depth/2 + 1} {
				for range 2 {
					if err := th.Write(a.rdma, a.piece(0, 1), b.mr.Addr(), b.mr.RKey()); err != nil {
						return err
					}
				}
				wrs := make([]rdma.SendWR, n)
				for i := range wrs {
					wrs[i] = rdma.SendWR{Opcode: rdma.WRRDMAWrite}
				}
				if err := th.Post(a.rdma, 1, wrs); err != nil {
					return err
				}
			}
			return th.Synchronize(a.rdma)
		}}))
		if err != nil {
			t.Fatal(err)
		}
	})
}

func TestFailedRequestIsTheKernelsError(t *testing.T) {
	eachDevice(t, 8, func(t *testing.T, a, b *end) {
		g := group(t, a.ctx, 1)
		var after error
		failed := failure(t, launched(t, g, Launch{Kernel: func(th *Thread) error {
			if err := th.Write(a.rdma, a.piece(0, 8), b.mr.Addr(), b.mr.RKey()+1); err != nil {
				return err
			}
			err := th.Synchronize(a.rdma)
			after = th.Write(a.rdma, a.piece(0, 8), b.mr.Addr(), b.mr.RKey())
			return err
		}}))
		var wc *WCError
		if !errors.As(failed, &wc) || wc.QPNum != a.qp.Num() || wc.Status == rdma.WCSuccess {
			t.Errorf("got %v, want the request's status", failed)
		}
		if !errors.As(after, &wc) {
			t.Errorf("a write behind it: %v, want the same error", after)
		}
	})
}

// A completion context wakes its thread at each receive, also from sleep.
func TestCompletionsWakeTheThread(t *testing.T) {
	eachDevice(t, 16, func(t *testing.T, a, b *end) {
		const n = 20
		wrs := make([]rdma.RecvWR, 16)
		for i := range wrs {
			wrs[i] = rdma.RecvWR{WRID: uint64(i), SGL: []rdma.SGE{b.piece(64*i, 8)}}
		}
		must[int](t)(b.qp.PostRecv(wrs))
		seen, got := event(t, b.ctx, Device, CPU), 0
		done := launched(t, group(t, b.ctx, 1), Launch{On: b.recv, Kernel: func(th *Thread) error {
			var wc [4]rdma.WC
			k, err := th.Poll(b.recv, wc[:])
			for _, c := range wc[:k] {
				if c.Status != rdma.WCSuccess || c.Opcode != rdma.WCRecv {
					return fmt.Errorf("receive %d: %v", c.WRID, c.Status)
				}
				if _, err := th.PostRecv(b.rdma, wrs[c.WRID:c.WRID+1]); err != nil {
					return err
				}
			}
			if k == 0 {
				return errors.New("woken for nothing")
			}
			if got += k; got == n {
				return ErrFinish
			}
			return errors.Join(err, th.Set(seen, uint64(got)))
		}})
		g, sent := group(t, a.ctx, 1), event(t, a.ctx, Device, CPU)
		for i := uint64(1); i <= n; i++ {
			send := []rdma.SendWR{{Opcode: rdma.WRSend, SGL: []rdma.SGE{a.piece(0, 8)}}}
			err := g.Launch(Launch{Complete: sent, Value: i, Kernel: func(th *Thread) error {
				return errors.Join(th.Post(a.rdma, i, send), th.Synchronize(a.rdma))
			}})
			if err != nil {
				t.Fatal(err)
			}
			if err := sent.WaitGt(soon(t), i-1); err != nil {
				t.Fatal(err)
			}
			if i == n {
				break
			}
			if err := seen.WaitGt(soon(t), i-1); err != nil { // it comes to sleep in between
				t.Fatal(err)
			}
		}
		if err := finished(t, done); err != nil {
			t.Fatal(err)
		}
	})
}

// A launch that waits for completions ends when its group does.
func TestCloseWakesAWaiterForCompletions(t *testing.T) {
	testenv.NoLeaks(t)
	a, _ := ends(t, fabric{}, 4)
	g := group(t, a.ctx, 1)
	done := launched(t, g, Launch{On: a.recv, Kernel: func(*Thread) error { return errors.New("it ran") }})
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	if failed := failure(t, done); !errors.Is(failed, ErrClosed) {
		t.Errorf("got %v, want %v", failed, ErrClosed)
	}
}

func TestHandOverIsChecked(t *testing.T) {
	testenv.NoLeaks(t)
	a, _ := ends(t, fabric{}, 4)
	small := must[*CompletionContext](t)(a.ctx.NewCompletionContext(4))
	defer small.Close()
	create := func(init rdma.QPInitAttr) rdma.QP {
		init.Type = rdma.RC
		qp := must[rdma.QP](t)(a.pd.CreateQP(init))
		t.Cleanup(func() { qp.Close() })
		return qp
	}
	room := rdma.QPCap{MaxSendWR: 4, MaxSendSGE: 1, MaxInlineData: 8}
	for name, err := range map[string]error{
		"completes elsewhere": func() error { _, err := a.ctx.NewRDMA(a.qp, small); return err }(),
		"no inline data": func() error {
			qp := create(rdma.QPInitAttr{SendCQ: a.done.CQ(), RecvCQ: a.recv.CQ(), Cap: rdma.QPCap{MaxSendWR: 1, MaxSendSGE: 1}})
			_, err := a.ctx.NewRDMA(qp, a.done)
			return err
		}(),
		"receives in the same queue": func() error {
			qp := create(rdma.QPInitAttr{SendCQ: a.done.CQ(), RecvCQ: a.done.CQ(), Cap: room})
			_, err := a.ctx.NewRDMA(qp, a.done)
			return err
		}(),
		"more requests than completions": func() error {
			room.MaxSendWR = a.done.CQ().Cap()
			qp := create(rdma.QPInitAttr{SendCQ: a.done.CQ(), RecvCQ: a.recv.CQ(), Cap: room})
			_, err := a.ctx.NewRDMA(qp, a.done)
			return err
		}(),
		"a request in the middle that is signalled": finishedPost(t, a, 1, 2),
		"an id that is too long":                    finishedPost(t, a, MaxID+1, 1),
		"more than the queue takes":                 finishedPost(t, a, 1, 5),
	} {
		if !errors.Is(err, errInvalid) {
			t.Errorf("%s: %v, want %v", name, err, errInvalid)
		}
	}
}

// finishedPost posts n requests, of which all but the last of more than two are signalled, and gives what the kernel got.
func finishedPost(t *testing.T, e *end, id uint64, n int) (err error) {
	t.Helper()
	wrs := make([]rdma.SendWR, n)
	for i := range wrs {
		wrs[i] = rdma.SendWR{Opcode: rdma.WRRDMAWrite}
	}
	if n == 2 {
		wrs[0].Flags = rdma.SendSignaled
	}
	g := group(t, e.ctx, 1)
	defer g.Close()
	if launch := finished(t, launched(t, g, Launch{Kernel: func(th *Thread) error { err = th.Post(e.rdma, id, wrs); return nil }})); launch != nil {
		t.Fatal(launch)
	}
	return err
}
