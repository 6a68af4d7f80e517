package p2p

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/shm"
	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/internal/wait"
	"github.com/gorun-mpi/gorun/rank/internal/match"
	"github.com/gorun-mpi/gorun/rank/internal/peers"
	"github.com/gorun-mpi/gorun/rank/internal/peers/wireup"
	"github.com/gorun-mpi/gorun/rdma"
	"github.com/gorun-mpi/gorun/rdma/soft"
)

// limit is how long the engines of one run may take.
const limit = 5 * time.Minute

// A transport is how the engines of a rig reach each other.
type transport struct {
	name     string
	mapped   bool
	onDemand bool
	mail     bool // onDemand: ranks of the same parity alone map each other, if mapped
	seed     uint64
	paths    bool // onDemand
	zones    bool
	// Config.OwnMost and PoolMost
	own, pool int
}

// maps tells whether two ranks map each other.
func (tr transport) maps(a, b int) bool { return tr.mapped && (!tr.mail || a%2 == b%2) }

var transports = []transport{{name: "queue pairs"}, {name: "mapped", mapped: true}, {name: "on demand", mapped: true, onDemand: true},
	{name: "adversary 1", seed: 1}, {name: "adversary 2", seed: 2},
	{name: "by mail", onDemand: true, mail: true}, {name: "half by mail", mapped: true, onDemand: true, mail: true},
	{name: "by mail, adversary 3", onDemand: true, mail: true, seed: 3},
	{name: "shared receives", own: -1}, {name: "half by mail, shared receives", mapped: true, onDemand: true, mail: true, own: -1},
	{name: "shared receives, adversary 4", own: -1, seed: 4},
	{name: "dynamic", onDemand: true, mail: true, paths: true},
	{name: "half dynamic", mapped: true, onDemand: true, mail: true, paths: true},
	{name: "mapped, dynamic", mapped: true, onDemand: true, paths: true},
	{name: "dynamic, adversary 6", onDemand: true, mail: true, paths: true, seed: 6},
	{name: "zones", zones: true}, {name: "zones, adversary 7", zones: true, seed: 7},
	{name: "half by mail, zones, shared receives", mapped: true, onDemand: true, mail: true, own: -1, zones: true}}

// each runs f on engines of each size over each transport.
func each(t *testing.T, sizes []int, f func(ctx context.Context, p *member) error) {
	over(t, transports, sizes, f)
}

func over(t *testing.T, transports []transport, sizes []int, f func(ctx context.Context, p *member) error) {
	testenv.NoLeaks(t)
	for _, tr := range transports {
		for _, n := range sizes {
			t.Run(fmt.Sprintf("%s/n=%d", tr.name, n), func(t *testing.T) { runEngines(t, n, tr, f) })
		}
	}
}

// A member is one rank of a rig.
type member struct {
	*Engine
	t      testing.TB
	pd     rdma.PD
	sleeps sleeps
	gone   func(peer int) error // tells of deaths
	closes []func() error
	meet   func() // a barrier of all peers, outside the engine
}

// contacts is how many peers it has reached for.
func (p *member) contacts() (n int) {
	for i := range p.self.size {
		if p.self.set.Met(i) {
			n++
		}
	}
	return n
}

// connections is how many queue pairs it has connected, paths among them.
func (p *member) connections() (n int) {
	for _, qp := range p.Queues() {
		if qp.State() == rdma.StateRTS {
			n++
		}
	}
	return n
}

// sleeper sleeps on the device and counts.
type sleeper struct {
	rdma.Sleeper
	count *sleeps
}

func (s sleeper) Sleep(ns int64) bool { *s.count++; return s.Sleeper.Sleep(ns) }

// runEngines runs f as each of n ranks, which are goroutines.
func runEngines(t testing.TB, n int, tr transport, f func(ctx context.Context, p *member) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	segment, err := shm.NewLocal(shm.DefaultGeometry(n, shm.Limit()))
	if err != nil {
		t.Fatal(err)
	}
	defer segment.Close()
	hub := wireup.NewHub(n)
	var group sync.WaitGroup
	for r := range n {
		group.Go(func() {
			p := &member{t: t}
			defer p.close()
			exchange := hub.Member(r)
			p.meet = func() {
				if err := exchange.Barrier(ctx); err != nil {
					t.Errorf("rank %d of %d: meet: %v", r, n, err)
				}
			}
			err := p.open(ctx, segment, r, n, tr, exchange)
			if err == nil {
				err = f(ctx, p)
			}
			if err == errSilent {
				p.meet()
				p.meet()
				return
			}
			if err == nil {
				// As in Finalize: what is under way needs both sides.
				p.Leave()
				waiting := make(chan struct{})
				go func() { p.meet(); close(waiting) }()
				if err = p.Drain(ctx); err == nil {
					err = p.WaitFor(ctx, isClosed(waiting))
				}
				p.meet()
			} else {
				cancel()
			}
			if err != nil {
				t.Errorf("rank %d of %d: %v", r, n, err)
			}
		})
	}
	group.Wait()
}

// errSilent ends a rank that does nothing more, as if it had died.
var errSilent = errors.New("silent")

type isClosed chan struct{}

func (c isClosed) Ready() bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// open makes the engine and connects it with its peers'.
func (p *member) open(ctx context.Context, segment *shm.Segment, rank, size int, tr transport, exchange wireup.Exchange) error {
	cfg := soft.Config{Segment: segment, Rank: rank, Host: "rig"}
	if tr.seed != 0 {
		cfg.Adversary = &soft.Adversary{Seed: tr.seed*100 + uint64(rank)}
	}
	provider, err := soft.New(cfg)
	if err != nil {
		return err
	}
	p.closes = append(p.closes, provider.Close)
	devices, err := provider.Devices()
	if err != nil {
		return err
	}
	device, err := devices[0].Open()
	if err != nil {
		return err
	}
	p.closes = append(p.closes, device.Close)
	if p.pd, err = device.AllocPD(); err != nil {
		return err
	}
	p.closes = append(p.closes, p.pd.Close)
	all, err := p.pd.RegMR(nil, rdma.AccessLocalWrite|rdma.AccessRemoteWrite|rdma.AccessRemoteRead|rdma.AccessOnDemand)
	if err != nil {
		return err
	}
	p.closes = append(p.closes, all.Close)
	gid, err := device.QueryGID(1, 0)
	if err != nil {
		return err
	}
	port, err := device.QueryPort(1)
	if err != nil {
		return err
	}
	ec := Config{Rank: rank, Size: size, PD: p.pd, Any: all, OwnMost: tr.own, PoolMost: tr.pool, Idle: (*uint32)(&p.sleeps), Alone: tr.mapped,
		Waiter: wait.New(wait.Config{Scheduler: true, Sleeper: sleeper{device.(rdma.Sleeper), &p.sleeps}}),
		Dead: func(peer int) error {
			if p.gone == nil {
				return nil
			}
			return p.gone(peer)
		}}
	if tr.zones {
		ec.Land = func(int) bool { return true }
	}
	if tr.mail {
		ec.Remote = func(int) bool { return true }
	}
	sc := peers.Config{Rank: rank, Size: size, PD: p.pd, Port: wireup.Port{Attr: device.QueryDevice(), MTU: port.ActiveMTU}, GID: gid,
		OnDemand: tr.onDemand, Mail: tr.mail, Dead: ec.Dead}
	if tr.mapped {
		sc.Maps = func(card *wireup.Card) bool { return tr.maps(rank, card.Local) }
	}
	if ec.Peers, err = peers.Open(sc); err != nil {
		return err
	}
	p.closes = append(p.closes, ec.Peers.Close, ec.Peers.CloseMail)
	if tr.paths {
		if err := ec.Peers.UsePaths(); err != nil {
			return err
		}
	}
	if p.Engine, err = New(ec); err != nil {
		return err
	}
	p.closes = append(p.closes, p.Engine.Close)
	card := wireup.Card{Local: rank}
	p.self.set.Show(&card, p.Target())
	card.Control, card.ControlKey = p.Control()
	for i := range size {
		if i != rank && !tr.onDemand {
			card.Messages.Add(p.QP(i).Num())
			card.Collectives.Add(p.QP(i).Num())
		}
	}
	packed, err := exchange.AllGather(ctx, card.Pack())
	if err != nil {
		return err
	}
	cards, err := wireup.ParseCards(packed)
	if err != nil {
		return err
	}
	p.self.set.Learn(cards)
	if tr.onDemand {
		p.Survey()
		return exchange.Barrier(ctx)
	}
	for i := range size {
		if i == rank {
			continue
		}
		if err := p.self.set.Connect(p.QP(i), i, cards[i].Messages.For(i, rank)); err != nil {
			return err
		}
		if err := p.Attach(i); err != nil {
			return err
		}
	}
	return exchange.Barrier(ctx)
}

func (p *member) close() {
	for i := len(p.closes) - 1; i >= 0; i-- {
		if err := p.closes[i](); err != nil {
			p.t.Errorf("close: %v", err)
		}
	}
}

// memory gives n bytes, registered or ordinary, until the end of the run.
func (p *member) memory(n int, registered bool) ([]byte, rdma.MR) {
	if !registered || n == 0 {
		return make([]byte, n), nil
	}
	mr, err := p.pd.AllocMR(n, rdma.AccessLocalWrite|rdma.AccessRemoteRead|rdma.AccessRemoteWrite)
	if err != nil {
		p.t.Error(err)
		return make([]byte, n), nil
	}
	p.closes = append(p.closes[:len(p.closes)-1], mr.Close, p.closes[len(p.closes)-1])
	return mr.Bytes()[:n], mr
}

// letter fills b so that its source, tag and number can be read.
func letter(b []byte, source, tag, number int) []byte {
	word := uint64(source)<<48 | uint64(tag)<<32 | uint64(number)
	i := 0
	for ; i+8 <= len(b); i += 8 {
		binary.LittleEndian.PutUint64(b[i:], word+uint64(i)<<20)
	}
	for ; i < len(b); i++ {
		b[i] = byte(word) + byte(i)
	}
	return b
}

func checkLetter(b []byte, source, tag, number int) error {
	want := letter(make([]byte, len(b)), source, tag, number)
	for i := range b {
		if b[i] != want[i] {
			return fmt.Errorf("message %d of rank %d with tag %d: byte %d of %d is %#x, want %#x", number, source, tag, i, len(b), b[i], want[i])
		}
	}
	return nil
}

// env is the envelope of what this rank sends.
func (p *member) env(tag int) match.Envelope {
	return match.Envelope{Context: 1, Source: int32(p.self.rank), Tag: int32(tag)}
}

// want is the envelope of a receive.
func want(source, tag int) match.Envelope {
	return match.Envelope{Context: 1, Source: int32(source), Tag: int32(tag)}
}
