package rma

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/shm"
	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/internal/wait"
	"github.com/gorun-mpi/gorun/rank/internal/peers"
	"github.com/gorun-mpi/gorun/rank/internal/peers/wireup"
	"github.com/gorun-mpi/gorun/rdma"
	"github.com/gorun-mpi/gorun/rdma/soft"
)

// limit is how long the members of one run may take.
const limit = 5 * time.Minute

// A transport is how the members of a rig reach each other.
type transport struct {
	name   string
	mapped bool
	bare   bool // no on-demand paging, nothing inline
	seed   uint64
}

var transports = []transport{
	{name: "mapped", mapped: true}, {name: "requests"}, {name: "bare device", bare: true},
	{name: "adversary 1", seed: 1}, {name: "bare adversary", bare: true, seed: 2},
}

// A bareContext is a device that offers little of what is optional.
type bareContext struct{ rdma.Context }

func (c bareContext) Endpoint() []byte { return c.Context.(rdma.Endpointer).Endpoint() }

func (c bareContext) AddEndpoint(gid rdma.GID, endpoint []byte) error {
	return c.Context.(rdma.Endpointer).AddEndpoint(gid, endpoint)
}

func (c bareContext) QueryDevice() rdma.DeviceAttr {
	a := c.Context.QueryDevice()
	a.ODP, a.MaxInlineData = false, 0
	return a
}

type barePD struct{ rdma.PD }

func (p barePD) Context() rdma.Context { return bareContext{p.PD.Context()} }

func (p barePD) CreateQP(attr rdma.QPInitAttr) (rdma.QP, error) {
	if attr.Cap.MaxInlineData != 0 {
		return nil, rdma.ErrInvalid
	}
	return p.PD.CreateQP(attr)
}

// A member is one rank of a rig.
type member struct {
	*Engine
	g      Group
	pd     rdma.PD
	sleeps uint32
	gone   func(rank int) error // tells of deaths
	mark   *uint32              // see Config.Mark
	broken error                // what AllToAll says, here only
	meet   func()               // a barrier of all members
	closes []func() error
}

type sleeper struct {
	rdma.Sleeper
	count *uint32
}

func (s sleeper) Sleep(ns int64) bool { *s.count++; return s.Sleeper.Sleep(ns) }

// each runs f as each of n ranks over each transport.
func each(t *testing.T, sizes []int, f func(ctx context.Context, m *member) error) {
	testenv.NoLeaks(t)
	for _, tr := range transports {
		for _, n := range sizes {
			t.Run(fmt.Sprintf("%s/n=%d", tr.name, n), func(t *testing.T) { run(t, n, tr, f) })
		}
	}
}

// run runs f as each of n ranks, which are goroutines.
func run(t *testing.T, n int, tr transport, f func(ctx context.Context, m *member) error) {
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
			m := &member{}
			defer func() {
				for _, c := range slices.Backward(m.closes) {
					if err := c(); err != nil {
						t.Errorf("rank %d of %d: close: %v", r, n, err)
					}
				}
			}()
			err := m.open(ctx, segment, r, n, tr, hub.Member(r))
			if err == nil {
				err = f(ctx, m)
			}
			if err == nil {
				err = hub.Member(r).Barrier(ctx)
			}
			if err != nil {
				t.Errorf("rank %d of %d: %v", r, n, err)
				cancel()
			}
		})
	}
	group.Wait()
}

func (m *member) open(ctx context.Context, segment *shm.Segment, rank, size int, tr transport, exchange wireup.Exchange) error {
	cfg := soft.Config{Segment: segment, Rank: rank, Host: "rig"}
	if tr.seed != 0 {
		cfg.Adversary = &soft.Adversary{Seed: tr.seed*100 + uint64(rank)}
	}
	provider, err := soft.New(cfg)
	if err != nil {
		return err
	}
	m.closes = append(m.closes, provider.Close)
	devices, err := provider.Devices()
	if err != nil {
		return err
	}
	device, err := devices[0].Open()
	if err != nil {
		return err
	}
	m.closes = append(m.closes, device.Close)
	if m.pd, err = device.AllocPD(); err != nil {
		return err
	}
	m.closes = append(m.closes, m.pd.Close)
	ec := Config{Rank: rank, Size: size, PD: m.pd, Idle: &m.sleeps, Died: errors.New("died"),
		Find: func([]byte) rdma.MR { return nil },
		Dead: func(rank int) error {
			if m.gone == nil {
				return nil
			}
			return m.gone(rank)
		},
		Mark: func(int) *uint32 { return m.mark }}
	if tr.bare {
		ec.PD = barePD{m.pd}
	} else {
		const access = rdma.AccessLocalWrite | rdma.AccessRemoteWrite | rdma.AccessRemoteRead | rdma.AccessOnDemand
		if ec.Any, err = m.pd.RegMR(nil, access); err != nil {
			return err
		}
		m.closes = append(m.closes, ec.Any.Close)
	}
	gid, err := device.QueryGID(1, 0)
	if err != nil {
		return err
	}
	attr, err := device.QueryPort(1)
	if err != nil {
		return err
	}
	sc := peers.Config{Rank: rank, Size: size, PD: ec.PD, Port: wireup.Port{Attr: device.QueryDevice(), MTU: attr.ActiveMTU}, GID: gid}
	if tr.mapped {
		sc.Maps = func(*wireup.Card) bool { return true }
	}
	if ec.Peers, err = peers.Open(sc); err != nil {
		return err
	}
	var intro wireup.Card
	ec.Peers.Show(&intro, nil)
	packed, err := exchange.AllGather(ctx, intro.Pack())
	if err != nil {
		return err
	}
	intros, err := wireup.ParseCards(packed)
	if err != nil {
		return err
	}
	ec.Peers.Learn(intros)
	waiter := wait.New(wait.Config{Scheduler: true, Sleeper: sleeper{device.(rdma.Sleeper), &m.sleeps}})
	ec.Wait, ec.Hold = waiter.Wait, waiter.Wait
	gather := func(ctx context.Context, mine []byte) ([][]byte, error) {
		return exchange.AllGather(ctx, slices.Clone(mine))
	}
	m.g = Group{Rank: rank, Size: size, World: func(i int) int { return i },
		AllGather: func(ctx context.Context, all []byte, block int) error {
			blocks, err := gather(ctx, all[rank*block:(rank+1)*block])
			copy(all, slices.Concat(blocks...))
			return err
		},
		AllToAll: func(ctx context.Context, all []byte, block int) error {
			rows, err := gather(ctx, all)
			for i, row := range rows {
				copy(all[i*block:], row[rank*block:(rank+1)*block])
			}
			return errors.Join(err, m.broken)
		}}
	m.meet = func() { _ = exchange.Barrier(ctx) } // whoever is missed fails the run
	m.Engine = NewEngine(ec)
	m.closes = append(m.closes, m.Engine.Close)
	return nil
}

// window makes a window of n bytes, of the window's or of the program's memory.
func (m *member) window(ctx context.Context, kind Kind, n int) (*Window, error) {
	if kind == Create {
		return New(ctx, m.Engine, m.g, Layout{Create, 1, 1}, make([]byte, n), 0)
	}
	return New(ctx, m.Engine, m.g, Layout{kind, 1, 1}, nil, n)
}
