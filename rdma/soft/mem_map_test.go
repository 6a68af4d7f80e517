package soft

import (
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/gorun-mpi/gorun/rdma"
)

// Where stores would not do what requests do, nothing is mapped.
func TestMapNotSupported(t *testing.T) {
	noLeaks(t)
	n := nodes(t, 2, Config{Adversary: &Adversary{Seed: 1}})
	for _, peer := range n {
		if p, err := n[0].ctx.Peer(peer.p.gids[0]); !errors.Is(err, rdma.ErrNotSupported) || p != nil {
			t.Errorf("adversary: Peer gave %v, %v, want ErrNotSupported", p, err)
		}
	}
	secret := []byte("0123456789abcdef0123456789abcdef")
	a := open(t, Config{Host: "a", Secret: secret, Listen: "127.0.0.1:0"})
	b := open(t, Config{Host: "b", Secret: secret, Listen: "127.0.0.1:0"})
	introduce(t, a, b)
	if p, err := a.ctx.Peer(b.p.gids[0]); !errors.Is(err, rdma.ErrNotSupported) || p != nil {
		t.Errorf("TCP: Peer gave %v, %v, want ErrNotSupported", p, err)
	}
	if _, err := a.ctx.Peer(a.p.gids[1]); err != nil {
		t.Errorf("the own memory: %v", err)
	}
}

// A peer may have written anything into its table: what Map gives is inside the
// heap of its arena, or an error.
func TestMapOfScribbledTable(t *testing.T) {
	noLeaks(t)
	n := nodes(t, 2, Config{})
	p, _ := n[0].ctx.Peer(n[1].p.gids[0])
	s := p.(*peer)
	rng := rand.New(rand.NewPCG(1, 2))
	edges := []uint64{0, 1, 8, s.p.layout.heapAt - 1, s.p.layout.heapAt, uint64(len(s.arena)) - 8, uint64(len(s.arena)), 1 << 62, 1<<63 - 1, 1 << 63, ^uint64(0) - 7, ^uint64(0)}
	number := func() uint64 {
		if rng.IntN(4) == 0 {
			return rng.Uint64() >> rng.IntN(64)
		}
		return edges[rng.IntN(len(edges))] + uint64(rng.IntN(17)) - 8
	}
	start := addressOf(s.arena) + s.p.layout.heapAt
	end := addressOf(s.arena) + uint64(len(s.arena))
	e := &s.regions[5]
	given := 0
	for range 200_000 {
		atomic.StoreUint64(&e.state, 5<<8|7|regionLive)
		e.addr, e.length, e.va, e.offset = number(), number(), number(), number()
		e.access, e.kind = uint32(all), uint32(rng.IntN(5))
		length := int(number())
		b, err := s.Map(number(), 5<<8|7, length, rdma.AccessRemoteRead)
		if err != nil {
			continue
		}
		given++
		if at := addressOf(b); len(b) != length || len(b) > 0 && (at < start || at > end || uint64(len(b)) > end-at) {
			t.Fatalf("Map gave %d bytes at %#x, the heap is %#x to %#x; the entry is %+v", len(b), at, start, end, *e)
		}
	}
	if given == 0 {
		t.Error("no entry was good")
	}
	*e = regionEntry{}
}

func TestMapAllocatesNothing(t *testing.T) {
	noLeaks(t)
	n := nodes(t, 2, Config{})
	mr := n[1].alloc(4096, all)
	for _, peer := range n {
		p, err := n[0].ctx.Peer(peer.p.gids[0])
		if err != nil {
			t.Fatal(err)
		}
		own := mr
		if peer == n[0] {
			own = n[0].alloc(4096, all)
		}
		if got := testing.AllocsPerRun(1000, func() {
			if _, err := p.Map(own.Addr()+8, own.RKey(), 64, rdma.AccessRemoteWrite); err != nil {
				t.Fatal(err)
			}
			p.Notify()
		}); got != 0 {
			t.Errorf("%v allocations", got)
		}
	}
}
