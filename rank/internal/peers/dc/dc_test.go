package dc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/arch"
	"github.com/gorun-mpi/gorun/internal/shm"
	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rank/internal/peers/wireup"
	"github.com/gorun-mpi/gorun/rdma"
	"github.com/gorun-mpi/gorun/rdma/soft"
)

const (
	testKey  = 1<<63 | 5
	allRight = rdma.AccessLocalWrite | rdma.AccessRemoteRead | rdma.AccessRemoteWrite | rdma.AccessRemoteAtomic
	limit    = 2 * time.Minute
)

// A node is a rank with a target, memory and receives that it posts by hand.
type node struct {
	t      testing.TB
	pd     rdma.PD
	gid    rdma.GID
	srq    rdma.SRQ
	cq     rdma.CQ // of the target
	target rdma.QP
	mr     rdma.MR
	wcs    [16]rdma.WC
}

func must[T any](t testing.TB) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// A rig is nodes of which the first has a pool.
type rig struct {
	nodes   []*node
	segment *shm.Segment
	pool    *Pool
	cq      *CQ
	ctx     rdma.Context
	closes  []func() error
}

func newRig(t testing.TB, n int, seed uint64) *rig {
	t.Helper()
	testenv.NoLeaks(t)
	r := &rig{segment: must[*shm.Segment](t)(shm.NewLocal(shm.DefaultGeometry(n, shm.Limit())))}
	r.closes = append(r.closes, r.segment.Close)
	t.Cleanup(func() {
		for i := len(r.closes) - 1; i >= 0; i-- {
			if err := r.closes[i](); err != nil {
				t.Errorf("close: %v", err)
			}
		}
	})
	var port wireup.Port
	endpoints := make([][]byte, n)
	for i := range n {
		cfg := soft.Config{Segment: r.segment, Rank: i, Host: "rig"}
		if seed != 0 && i == 0 {
			cfg.Adversary = &soft.Adversary{Seed: seed}
		}
		p := must[*soft.Provider](t)(soft.New(cfg))
		r.closes = append(r.closes, p.Close)
		device := must[rdma.Context](t)(must[[]rdma.Device](t)(p.Devices())[0].Open())
		nd := &node{t: t, pd: must[rdma.PD](t)(device.AllocPD()), gid: must[rdma.GID](t)(device.QueryGID(1, 0)), cq: must[rdma.CQ](t)(device.CreateCQ(256))}
		nd.srq = must[rdma.SRQ](t)(nd.pd.CreateSRQ(rdma.SRQInitAttr{Attr: rdma.SRQAttr{MaxWR: 64, MaxSGE: 1}}))
		port = wireup.Port{Attr: device.QueryDevice(), MTU: rdma.MTU4096}
		nd.target = must[rdma.QP](t)(Target(nd.pd, port, nd.gid, nd.srq, nd.cq, testKey))
		nd.mr = must[rdma.MR](t)(nd.pd.AllocMR(1<<16, allRight))
		r.closes = append(r.closes, device.Close, nd.pd.Close, nd.cq.Close, nd.srq.Close, nd.target.Close, nd.mr.Close)
		endpoints[i] = device.(rdma.Endpointer).Endpoint()
		r.nodes = append(r.nodes, nd)
		if i == 0 {
			r.ctx = device
		}
	}
	r.pool = must[*Pool](t)(New(Config{PD: r.nodes[0].pd, Port: port, Inline: 512, Find: func(peer int) (rdma.AV, wireup.Target, error) {
		to := r.nodes[peer]
		err := r.ctx.(rdma.Endpointer).AddEndpoint(to.gid, endpoints[peer])
		return rdma.AV{DGID: to.gid, PortNum: 1, HopLimit: 1}, wireup.Target{Number: to.target.Num(), Key: testKey}, err
	}}))
	cq := must[rdma.CQ](t)(r.ctx.CreateCQ(16))
	r.closes = append(r.closes, cq.Close, r.pool.Close)
	r.cq = r.pool.CQ(cq)
	return r
}

// path makes a path that is closed before the pool.
func (r *rig) path(t testing.TB, peer int) *Path {
	t.Helper()
	p := must[*Path](t)(r.pool.Path(peer, r.cq, 128))
	r.closes = append(r.closes, p.Close)
	return p
}

// wait polls until it has n completions.
func (r *rig) wait(t testing.TB, n int) (got []rdma.WC) {
	t.Helper()
	var wcs [5]rdma.WC
	for end := time.Now().Add(limit); len(got) < n; {
		k, err := r.cq.Poll(wcs[:])
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, wcs[:k]...)
		if k == 0 && time.Now().After(end) {
			t.Fatalf("%d completions, want %d: %+v", len(got), n, got)
		}
	}
	return got
}

func post(t testing.TB, p *Path, wrs ...rdma.SendWR) {
	t.Helper()
	if n, err := p.PostSend(wrs); n != len(wrs) || err != nil {
		t.Fatalf("PostSend took %d of %d: %v", n, len(wrs), err)
	}
}

// word is a write of a word into a peer's memory.
func (r *rig) word(peer, at int, v uint64, id uint64) rdma.SendWR {
	mr := r.nodes[peer].mr
	return rdma.SendWR{WRID: id, Opcode: rdma.WRRDMAWrite, Flags: rdma.SendSignaled | rdma.SendInline, Inline: binary.LittleEndian.AppendUint64(nil, v),
		RemoteAddr: mr.Addr() + uint64(at), RKey: mr.RKey()}
}

func message(v, id uint64) rdma.SendWR {
	return rdma.SendWR{WRID: id, Opcode: rdma.WRSend, Flags: rdma.SendSignaled | rdma.SendInline, Inline: binary.LittleEndian.AppendUint64(nil, v)}
}

// receive posts receives.
func (n *node) receive(count int) {
	n.t.Helper()
	for i := range count {
		sge := []rdma.SGE{{Addr: n.mr.Addr() + uint64(1<<15+64*i), Length: 64, LKey: n.mr.LKey()}}
		if _, err := n.srq.PostRecv([]rdma.RecvWR{{WRID: uint64(i), SGL: sge}}); err != nil {
			n.t.Fatal(err)
		}
	}
}

// arrived polls what has come to the target and gives the words in order.
func (n *node) arrived() (words []uint64) {
	k, err := n.cq.Poll(n.wcs[:])
	if err != nil {
		n.t.Fatal(err)
	}
	for _, wc := range n.wcs[:k] {
		if wc.Status != rdma.WCSuccess {
			n.t.Fatalf("receive: %v", wc.Status)
		}
		words = append(words, binary.LittleEndian.Uint64(n.mr.Bytes()[1<<15+64*wc.WRID:]))
	}
	return words
}

func fine(t testing.TB, wcs []rdma.WC) {
	t.Helper()
	for _, wc := range wcs {
		if wc.Status != rdma.WCSuccess {
			t.Fatalf("request %d: %v", wc.WRID, wc.Status)
		}
	}
}

// Many paths over few initiators: the requests of each are executed and complete in their
// order, and only those complete that ask for it.
func TestPathsKeepTheirOrder(t *testing.T) {
	for _, seed := range []uint64{0, 1, 2} {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			const peers, rounds = 3 * initiatorsMax, 200
			r := newRig(t, peers+1, seed)
			rnd := rand.New(rand.NewPCG(seed, 3))
			var paths [peers + 1]*Path
			var posted, asked, seen [peers + 1]uint64
			for i := 1; i <= peers; i++ {
				paths[i] = r.path(t, i)
			}
			total, got := 0, 0
			take := func(wcs []rdma.WC) {
				fine(t, wcs)
				for _, wc := range wcs {
					i, number := int(wc.WRID>>32), wc.WRID&0xffffffff
					if number <= seen[i] {
						t.Fatalf("rank %d: completion %d after %d", i, number, seen[i])
					}
					seen[i] = number
					// What is complete is there, with all before it.
					if have := atomic.LoadUint64(wordAt(r.nodes[i].mr.Bytes())); have < number {
						t.Fatalf("rank %d: request %d is complete, and the memory has %d", i, number, have)
					}
					got++
				}
			}
			for range rounds {
				i := 1 + rnd.IntN(peers)
				for range 1 + rnd.IntN(4) {
					if posted[i]-seen[i] >= 100 {
						break
					}
					posted[i]++
					wr := r.word(i, 0, posted[i], uint64(i)<<32|posted[i])
					if posted[i]%3 != 0 {
						wr.Flags &^= rdma.SendSignaled
					} else {
						asked[i]++
						total++
					}
					post(t, paths[i], wr)
				}
				if rnd.IntN(3) == 0 {
					var wcs [4]rdma.WC
					n, err := r.cq.Poll(wcs[:])
					if err != nil {
						t.Fatal(err)
					}
					take(wcs[:n])
				}
			}
			for i := 1; i <= peers; i++ { // so that what is not signaled is known to be over
				posted[i]++
				post(t, paths[i], r.word(i, 0, posted[i], uint64(i)<<32|posted[i]))
				total++
			}
			take(r.wait(t, total-got))
			for i := 1; i <= peers; i++ {
				if have := binary.LittleEndian.Uint64(r.nodes[i].mr.Bytes()); have != posted[i] {
					t.Errorf("rank %d: the memory has %d, want %d", i, have, posted[i])
				}
			}
			if n := len(r.pool.Queues()); n != initiatorsMax {
				t.Errorf("%d initiators for %d peers, want %d", n, peers, initiatorsMax)
			}
		})
	}
}

// More receivers without receives than there are initiators: what is for them waits, and
// what is for others goes on; when they receive all comes, once and in order.
func TestNoReceiveHoldsUpNobodyElse(t *testing.T) {
	for _, seed := range []uint64{0, 1} {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			const busy, messages = initiatorsMax + 4, 5
			r := newRig(t, busy+2, seed)
			last := r.path(t, busy+1)
			var paths []*Path
			for i := 1; i <= busy; i++ {
				p := r.path(t, i)
				paths = append(paths, p)
				post(t, p, r.word(i, 0, 7, 0))
				for k := range uint64(messages) {
					post(t, p, message(uint64(i)*100+k, uint64(i)))
				}
				post(t, p, r.word(i, 8, 8, 0)) // behind the messages
			}
			fine(t, r.wait(t, busy)) // the words before them
			for k := range 3 {
				post(t, last, r.word(busy+1, 0, uint64(k), 1))
				fine(t, r.wait(t, 1))
			}
			for i := 1; i <= busy; i++ {
				if v := binary.LittleEndian.Uint64(r.nodes[i].mr.Bytes()[8:]); v != 0 {
					t.Errorf("rank %d: a write has overtaken the messages that were posted before it", i)
				}
			}
			var got [busy + 1][]uint64
			for i := 1; i <= busy; i++ {
				r.nodes[i].receive(2) // not enough at once
			}
			done, posted := 0, 2
			for end := time.Now().Add(limit); done < busy*(messages+1); {
				var wcs [8]rdma.WC
				n, err := r.cq.Poll(wcs[:])
				if err != nil {
					t.Fatal(err)
				}
				fine(t, wcs[:n])
				done += n
				all := true
				for i := 1; i <= busy; i++ {
					got[i] = append(got[i], r.nodes[i].arrived()...)
					all = all && len(got[i]) >= 2
				}
				if all && posted == 2 {
					for i := 1; i <= busy; i++ {
						r.nodes[i].receive(messages)
					}
					posted += messages
				}
				if time.Now().After(end) {
					t.Fatalf("%d of %d requests are complete; arrived: %v", done, busy*(messages+1), got)
				}
			}
			for i := 1; i <= busy; i++ {
				got[i] = append(got[i], r.nodes[i].arrived()...)
				for k, v := range got[i] {
					if want := uint64(i*100 + k); v != want {
						t.Fatalf("rank %d: message %d is %d, want %d", i, k, v, want)
					}
				}
				if len(got[i]) != messages {
					t.Errorf("rank %d: %d messages, want %d", i, len(got[i]), messages)
				}
				if v := binary.LittleEndian.Uint64(r.nodes[i].mr.Bytes()[8:]); v != 8 {
					t.Errorf("rank %d: the word behind the messages is %d, want 8", i, v)
				}
			}
			for _, p := range paths {
				if p.State() != rdma.StateRTS {
					t.Error("a path whose receiver had no receive is in ERR")
				}
			}
		})
	}
}

// A rank that has died fails its paths, with the status first and the rest flushed, and
// nobody else's, though they share initiators.
func TestDeathFailsItsPathsOnly(t *testing.T) {
	const peers = 2 * initiatorsMax
	r := newRig(t, peers+1, 0)
	var paths [peers + 1]*Path
	for i := 1; i <= peers; i++ {
		paths[i] = r.path(t, i)
		post(t, paths[i], r.word(i, 0, 1, 0))
	}
	fine(t, r.wait(t, peers))
	second := r.path(t, 3)
	r.segment.SetDead(3)
	for round := range 3 {
		for i := 1; i <= peers; i++ {
			post(t, paths[i], r.word(i, 0, 2, uint64(i)), r.word(i, 8, 3, uint64(i)), r.word(i, 16, 4, uint64(i)))
		}
		var of3 []rdma.WCStatus
		for _, wc := range r.wait(t, 3*peers) {
			if wc.WRID == 3 {
				of3 = append(of3, wc.Status)
			} else if wc.Status != rdma.WCSuccess {
				t.Fatalf("rank %d, which lives: %v", wc.WRID, wc.Status)
			}
		}
		first := rdma.WCRetryExcErr
		if round > 0 {
			first = rdma.WCWRFlushErr
		}
		if len(of3) != 3 || of3[0] != first || of3[1] != rdma.WCWRFlushErr || of3[2] != rdma.WCWRFlushErr {
			t.Errorf("round %d: requests to the dead rank ended with %v, want %v and flushes", round, of3, first)
		}
	}
	if paths[3].State() != rdma.StateErr || second.State() != rdma.StateRTS {
		t.Errorf("the paths to the dead rank are in %v and, unused, %v", paths[3].State(), second.State())
	}
	post(t, second, r.word(3, 0, 1, 9))
	if wc := r.wait(t, 1)[0]; wc.Status != rdma.WCRetryExcErr {
		t.Errorf("another path to the dead rank: %v, want %v", wc.Status, rdma.WCRetryExcErr)
	}
}

// A refused access fails its path, and a new path to the same rank works.
func TestRefusedAccess(t *testing.T) {
	r := newRig(t, 2, 0)
	p := r.path(t, 1)
	bad := r.word(1, 0, 1, 1)
	bad.RKey ^= 0x80
	post(t, p, bad, r.word(1, 0, 2, 2))
	wcs := r.wait(t, 2)
	if wcs[0].Status != rdma.WCRemAccessErr || wcs[1].Status != rdma.WCWRFlushErr {
		t.Errorf("a wrong key: %v and %v, want %v and %v", wcs[0].Status, wcs[1].Status, rdma.WCRemAccessErr, rdma.WCWRFlushErr)
	}
	post(t, r.path(t, 1), r.word(1, 0, 3, 3))
	fine(t, r.wait(t, 1))
	if n := len(r.pool.Queues()); n != 1 {
		t.Errorf("%d initiators, want the one that was made anew", n)
	}
}

// In ERR nothing is executed any more, whether it was posted or in line, and others are not
// disturbed. A closed path's requests complete no more.
func TestErrAndClose(t *testing.T) {
	for _, seed := range []uint64{0, 1, 2, 3} {
		for _, closes := range []bool{false, true} {
			t.Run(fmt.Sprintf("seed=%d/closes=%v", seed, closes), func(t *testing.T) {
				const peers = 2 * initiatorsMax
				r := newRig(t, peers+1, seed)
				into := r.nodes[0].mr
				read := func(i, at int) rdma.SendWR {
					from := r.nodes[i].mr
					return rdma.SendWR{WRID: uint64(i), Opcode: rdma.WRRDMARead, Flags: rdma.SendSignaled,
						SGL: []rdma.SGE{{Addr: into.Addr() + uint64(at), Length: 64, LKey: into.LKey()}}, RemoteAddr: from.Addr(), RKey: from.RKey()}
				}
				var paths [peers + 1]*Path
				for i := 1; i <= peers; i++ {
					for k := range 64 {
						r.nodes[i].mr.Bytes()[k] = 0xee
					}
					paths[i] = r.path(t, i)
					post(t, paths[i], message(1, uint64(i)), read(i, 64*i)) // no receive: it waits
				}
				want := 0
				for i := 1; i <= peers; i += 2 {
					var err error
					if closes {
						err = paths[i].Close()
					} else {
						err = paths[i].Modify(rdma.QPAttr{State: rdma.StateErr}, rdma.QPStateMask)
						want += 2
					}
					if err != nil {
						t.Fatal(err)
					}
				}
				for i := 1; i <= peers; i++ {
					r.nodes[i].receive(1)
				}
				var flushed, good int
				for _, wc := range r.wait(t, want+peers) {
					switch i := int(wc.WRID); {
					case i%2 == 1 && wc.Status == rdma.WCWRFlushErr:
						flushed++
					case i%2 == 0 && wc.Status == rdma.WCSuccess:
						good++
					default:
						t.Fatalf("path %d: %v", i, wc.Status)
					}
				}
				if flushed != want || good != peers {
					t.Errorf("%d flushed and %d executed, want %d and %d", flushed, good, want, peers)
				}
				for i := 1; i <= peers; i++ {
					n := len(r.nodes[i].arrived())
					b := into.Bytes()[64*i]
					if i%2 == 1 && (n != 0 || b != 0) || i%2 == 0 && (n != 1 || b != 0xee) {
						t.Errorf("rank %d: %d messages came, and %#x was read", i, n, b)
					}
				}
			})
		}
	}
}

func TestBadPosts(t *testing.T) {
	r := newRig(t, 2, 0)
	p := r.path(t, 1)
	long := rdma.SendWR{Opcode: rdma.WRSend, Flags: rdma.SendInline, Inline: make([]byte, 513)}
	two := rdma.SendWR{Opcode: rdma.WRSend, SGL: make([]rdma.SGE, 2)}
	for _, wr := range []rdma.SendWR{long, two} {
		if n, err := p.PostSend([]rdma.SendWR{r.word(1, 0, 1, 1), wr}); n != 1 || !errors.Is(err, rdma.ErrInvalid) {
			t.Errorf("PostSend: %d, %v, want 1 and %v", n, err, rdma.ErrInvalid)
		}
		fine(t, r.wait(t, 1))
	}
	if _, err := p.PostRecv(nil); !errors.Is(err, rdma.ErrInvalid) {
		t.Errorf("PostRecv: %v, want %v", err, rdma.ErrInvalid)
	}
	if err := p.Modify(rdma.QPAttr{State: rdma.StateReset}, rdma.QPStateMask); !errors.Is(err, rdma.ErrInvalid) {
		t.Errorf("to RESET: %v, want %v", err, rdma.ErrInvalid)
	}
	if _, init := p.Query(); init.Cap.MaxSendWR != 128 || init.Cap.MaxInlineData != 512 {
		t.Errorf("Query: %+v, want 128 requests and 512 bytes inline", init.Cap)
	}
}

// In steady state a request allocates nothing.
func TestPathsAllocateNothing(t *testing.T) {
	if arch.RaceEnabled {
		return // the race detector allocates on its own account
	}
	r := newRig(t, initiatorsMax+3, 0)
	var paths []*Path
	var wrs [][]rdma.SendWR
	for i := 1; i < initiatorsMax+3; i++ {
		paths = append(paths, r.path(t, i))
		wrs = append(wrs, []rdma.SendWR{r.word(i, 0, 1, 1), r.word(i, 8, 2, 2)})
	}
	var wcs [16]rdma.WC
	round := func() {
		left := 0
		for i, p := range paths {
			if _, err := p.PostSend(wrs[i]); err != nil {
				t.Fatal(err)
			}
			left += len(wrs[i])
		}
		for left > 0 {
			n, err := r.cq.Poll(wcs[:])
			if err != nil {
				t.Fatal(err)
			}
			left -= n
		}
	}
	for range 20 {
		round()
	}
	if n := testing.AllocsPerRun(100, round); n != 0 {
		t.Errorf("%v allocations a round, want 0", n)
	}
}
