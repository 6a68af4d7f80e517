package mail

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/shm"
	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rdma"
	"github.com/gorun-mpi/gorun/rdma/soft"
)

// limit is how long a test waits for what must come.
const limit = time.Minute

// A member is one office with its device.
type member struct {
	*Office
	ctx rdma.Context
	gid rdma.GID
}

// open makes n offices that know each other. With a seed each loses datagrams.
func open(t *testing.T, n int, seed uint64) []*member {
	t.Helper()
	testenv.NoLeaks(t)
	segment, err := shm.NewLocal(shm.DefaultGeometry(n, shm.Limit()))
	if err != nil {
		t.Fatal(err)
	}
	var undo []func() error
	t.Cleanup(func() {
		for i := len(undo) - 1; i >= 0; i-- {
			if err := undo[i](); err != nil {
				t.Errorf("close: %v", err)
			}
		}
		if err := segment.Close(); err != nil {
			t.Error(err)
		}
	})
	all := make([]*member, n)
	for rank := range all {
		cfg := soft.Config{Segment: segment, Rank: rank, Host: "mail"}
		if seed != 0 {
			cfg.Adversary = &soft.Adversary{Seed: seed + uint64(rank)}
		}
		p, err := soft.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		undo = append(undo, p.Close)
		devices, err := p.Devices()
		if err != nil {
			t.Fatal(err)
		}
		m := &member{}
		all[rank] = m
		if m.ctx, err = devices[0].Open(); err != nil {
			t.Fatal(err)
		}
		undo = append(undo, m.ctx.Close)
		if m.gid, err = m.ctx.QueryGID(1, 0); err != nil {
			t.Fatal(err)
		}
		pd, err := m.ctx.AllocPD()
		if err != nil {
			t.Fatal(err)
		}
		undo = append(undo, pd.Close)
		if !Supported(m.ctx) {
			t.Fatal("the software device carries no mail")
		}
		if m.Office, err = Open(pd, rank, n, nil); err != nil {
			t.Fatal(err)
		}
		undo = append(undo, m.Close)
	}
	return all
}

// start starts offices.
func start(all []*member, which ...int) {
	for _, rank := range which {
		m := all[rank]
		m.Start(func(peer int) (Port, error) {
			to := all[peer]
			err := m.ctx.(rdma.Endpointer).AddEndpoint(to.gid, to.ctx.(rdma.Endpointer).Endpoint())
			return Port{AV: rdma.AV{DGID: to.gid, PortNum: 1, HopLimit: 1}, Address: to.Address()}, err
		})
	}
}

// until waits for done, while the offices look after themselves.
func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	testenv.Await(t, limit, what, done)
}

// Letters of everybody to everybody arrive once and in order, whatever the network loses,
// though nobody but the offices themselves looks after them.
func TestLettersArriveOnceInOrder(t *testing.T) {
	for _, seed := range []uint64{0, 1, 2} {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			const n, letters = 3, 5
			all := open(t, n, seed)
			start(all, 0, 1, 2)
			for number := range uint64(letters) {
				for from, m := range all {
					for to := range n {
						if to != from {
							m.Send(to, Letter{What: uint64(from), ID: number})
						}
					}
				}
			}
			for to, m := range all {
				var next [n]uint64
				for got := 0; got < letters*(n-1); got++ {
					var from int
					var l Letter
					until(t, fmt.Sprintf("letter %d of rank %d", got, to), func() (ok bool) { from, l, ok = m.Take(); return ok })
					if want := (Letter{What: uint64(from), ID: next[from]}); l != want {
						t.Fatalf("rank %d takes %+v from rank %d, want %+v", to, l, from, want)
					}
					next[from]++
				}
			}
			// All are acknowledged, and none comes twice.
			for rank, m := range all {
				until(t, "acknowledgements", func() bool { m.mu.Lock(); defer m.mu.Unlock(); return m.pendingLocked() == 0 })
				if from, l, ok := m.Take(); ok {
					t.Errorf("rank %d takes %+v from rank %d again", rank, l, from)
				}
			}
		})
	}
}

func (o *Office) pendingLocked() (n int) {
	for _, b := range o.boxes {
		if b != nil {
			n += len(b.letters)
		}
	}
	return n
}

// A rank whose office has not begun keeps what comes.
func TestLettersWaitForStart(t *testing.T) {
	all := open(t, 2, 0)
	start(all, 0)
	all[0].Send(1, Letter{ID: 7})
	until(t, "the letter is sent twice", func() bool {
		all[0].mu.Lock()
		defer all[0].mu.Unlock()
		return all[0].boxes[1].wait > 2*firstWait
	})
	if _, l, ok := all[1].Take(); ok {
		t.Fatalf("an office that has not begun gives %+v", l)
	}
	start(all, 1)
	var l Letter
	until(t, "the letter", func() (ok bool) { _, l, ok = all[1].Take(); return ok })
	if l != (Letter{ID: 7}) {
		t.Errorf("got %+v", l)
	}
}

// A peer that does not answer is given up when its time is over, with what is in line for it,
// unless the device would tell if it had gone.
func TestSilentPeerIsGivenUp(t *testing.T) {
	all := open(t, 3, 0)
	start(all, 0, 2)
	m := all[0]
	m.mu.Lock()
	var ahead time.Duration
	m.now = func() time.Time { return time.Now().Add(ahead) }
	m.mu.Unlock()
	m.Probe(1)
	m.Probe(2)
	m.Send(1, Letter{ID: 1})
	until(t, "the other peer answers", func() bool { m.mu.Lock(); defer m.mu.Unlock(); return len(m.boxes[2].letters) == 0 })
	if err := m.Failed(1); err != nil {
		t.Fatalf("a peer is given up at once: %v", err)
	}
	m.mu.Lock()
	ahead = patience
	m.mu.Unlock()
	m.Look()
	if err := m.Failed(1); err != nil {
		t.Fatalf("given up with %v, though the device knows that it is there", err)
	}
	m.mu.Lock()
	m.gone = nil
	m.mu.Unlock()
	until(t, "the peer is given up", func() bool { return m.Failed(1) != nil })
	if err := m.Failed(1); !errors.Is(err, ErrSilent) {
		t.Errorf("given up with %v, want %v", err, ErrSilent)
	}
	if err := m.Failed(2); err != nil {
		t.Errorf("the peer that answers is given up: %v", err)
	}
	m.Send(1, Letter{ID: 2}) // to nobody
	if n := m.pendingLocked(); n != 0 {
		t.Errorf("%d letters are in line for a peer that was given up", n)
	}
	if _, l, ok := all[2].Take(); ok {
		t.Errorf("a probe comes as a letter: %+v", l)
	}
}

// A peer that the device knows to be gone is given up before its time is over.
func TestGonePeerIsGivenUp(t *testing.T) {
	all := open(t, 2, 0)
	m := all[0]
	m.gone = func(gid rdma.GID) bool { return gid == all[1].gid }
	start(all, 0)
	m.Probe(1)
	until(t, "the peer is given up", func() bool { return m.Failed(1) != nil })
	if err := m.Failed(1); !errors.Is(err, ErrGone) {
		t.Errorf("given up with %v, want %v", err, ErrGone)
	}
}

// A peer that the launcher knows to have died is given up, with its letters, and the device hears of it: its letters hold
// up those of others there.
func TestLostPeerIsGivenUp(t *testing.T) {
	all := open(t, 3, 0)
	m := all[0]
	var lost atomic.Bool
	m.lost = func(peer int) bool { return lost.Load() && peer == 1 }
	start(all, 0, 2) // rank 1 never answers
	m.Probe(1)
	lost.Store(true)
	m.Send(2, Letter{What: 1})
	until(t, "the peer is given up", func() bool { return m.Failed(1) != nil })
	if err := m.Failed(1); !errors.Is(err, ErrGone) || !m.ctx.(rdma.Witness).Gone(all[1].gid) {
		t.Errorf("given up with %v, want %v, which the device knows too", err, ErrGone)
	}
	until(t, "the other one's letter", func() bool { _, _, ok := all[2].Take(); return ok })
	if err := m.Failed(2); err != nil {
		t.Errorf("the other one: %v", err)
	}
}

// What a stranger sends changes nothing: the sender's queue pair is not that of the rank
// that it says it is.
func TestStrangeDatagrams(t *testing.T) {
	all := open(t, 3, 0)
	start(all, 0)
	o := all[0].Office
	good := func() []byte {
		d := make([]byte, datagramLen)
		d[0], d[4], d[8] = kindLetter, 1, 1
		return d
	}
	for _, tt := range []struct {
		name   string
		change func(d []byte)
		from   uint32
	}{
		{"of another queue pair", func(d []byte) {}, all[1].Address().Number ^ 1},
		{"of no rank", func(d []byte) { d[4], d[7] = 0xff, 0xff }, all[1].Address().Number},
		{"of the rank itself", func(d []byte) { d[4] = 0 }, o.Address().Number},
		{"of no kind", func(d []byte) { d[0] = 9 }, all[1].Address().Number},
		{"an answer to nothing", func(d []byte) { d[0] = kindAnswer }, all[1].Address().Number},
		{"from the future", func(d []byte) { d[8] = 2 }, all[1].Address().Number},
		{"from the far future", func(d []byte) { copy(d[8:16], "\xff\xff\xff\xff\xff\xff\xff\xff") }, all[1].Address().Number},
	} {
		d := good()
		tt.change(d)
		o.mu.Lock()
		o.arrived(d, tt.from)
		o.mu.Unlock()
		if peer, l, ok := o.Take(); ok {
			t.Errorf("%s: it is taken for %+v of rank %d", tt.name, l, peer)
		}
	}
	o.mu.Lock()
	o.arrived(good(), all[1].Address().Number)
	o.mu.Unlock()
	if _, _, ok := o.Take(); !ok {
		t.Error("the letter of the rank itself is not taken any more")
	}
}

// A peer that has more to say than there is room for waits until some of it is taken.
func TestLettersThatNobodyTakes(t *testing.T) {
	const letters = keptMost + 5
	all := open(t, 2, 0)
	start(all, 0, 1)
	for number := range uint64(letters) {
		all[0].Send(1, Letter{ID: number})
	}
	until(t, "the line is full", func() bool { return all[1].waiting.Load() == keptMost })
	until(t, "the next letter is sent again", func() bool {
		all[0].mu.Lock()
		defer all[0].mu.Unlock()
		return all[0].boxes[1].first == keptMost+1 && all[0].boxes[1].wait > 2*firstWait
	})
	if n := all[1].waiting.Load(); n != keptMost {
		t.Fatalf("%d letters wait, want %d at most", n, keptMost)
	}
	for number := range uint64(letters) {
		var l Letter
		until(t, "a letter", func() (ok bool) { _, l, ok = all[1].Take(); return ok })
		if l.ID != number {
			t.Fatalf("letter %d comes as number %d", l.ID, number)
		}
	}
}

func FuzzDatagram(f *testing.F) {
	f.Add(make([]byte, datagramLen), uint32(0))
	d := make([]byte, datagramLen)
	d[0], d[4], d[8] = kindLetter, 1, 1
	f.Add(d, uint32(7))
	f.Fuzz(func(t *testing.T, d []byte, from uint32) {
		if len(d) != datagramLen {
			return
		}
		o := &Office{boxes: []*box{nil, {peer: 1, first: 1}, {peer: 2, first: 1, err: ErrGone}}}
		for _, b := range o.boxes[1:] {
			b.port.Address.Number, b.ah = 7, noHandle{}
		}
		o.arrived(d, from)
		if n := len(o.in); n > 1 || n == 1 && from != 7 {
			t.Errorf("%x of %d is %d letters", d, from, n)
		}
	})
}

type noHandle struct{}

func (noHandle) PD() rdma.PD  { return nil }
func (noHandle) Close() error { return nil }

// Offices of ranks that have nothing to say look ever less often, and at once as often as before when a letter comes.
func TestIdleOfficesLookLessOften(t *testing.T) {
	all := open(t, 2, 0)
	start(all, 0, 1)
	every, looks := tick, 0
	for range 100 {
		every = after(every, all[1].look())
		looks += int(tickMost / every)
	}
	if every != tickMost || looks > 110 {
		t.Errorf("after 100 looks in vain: one every %v, %d in all for each %v, want %v and 110 at most", every, looks, tickMost, tickMost)
	}
	all[0].Send(1, Letter{ID: 7})
	until(t, "the letter", func() bool { return after(tickMost, all[1].look()) == tick || all[1].waiting.Load() > 0 })
}
