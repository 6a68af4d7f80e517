package peers

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/gorun-mpi/gorun/internal/shm"
	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rank/internal/peers/wireup"
	"github.com/gorun-mpi/gorun/rdma"
	"github.com/gorun-mpi/gorun/rdma/soft"
)

// A side is one of two ranks that map each other, with the offers that are on their way to
// the other one.
type side struct {
	*Set
	cq     rdma.CQ
	offers []struct {
		use Use
		id  uint64
	}
	up     rdma.QP // for messages
	failed error
}

func (s *side) Meet(int) error { return s.failed }

func (s *side) Offer(_ int, use Use, id uint64) {
	s.offers = append(s.offers, struct {
		use Use
		id  uint64
	}{use, id})
}

func (s *side) Connected(_ int, qp rdma.QP) { s.up = qp }

func (s *side) Fail(_ int, err error) error {
	s.failed = err
	return err
}

// twoSides are ranks 0 and 1, which know each other's cards.
func twoSides(t *testing.T) (sides [2]*side) {
	t.Helper()
	testenv.NoLeaks(t)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	closing := func(f func() error) { t.Cleanup(func() { must(f()) }) }
	segment, err := shm.NewLocal(shm.DefaultGeometry(2, shm.Limit()))
	must(err)
	closing(segment.Close)
	cards := make([]wireup.Card, 2)
	for rank := range sides {
		provider, err := soft.New(soft.Config{Segment: segment, Rank: rank, Host: "here"})
		must(err)
		closing(provider.Close)
		devices, err := provider.Devices()
		must(err)
		device, err := devices[0].Open()
		must(err)
		closing(device.Close)
		pd, err := device.AllocPD()
		must(err)
		closing(pd.Close)
		gid, err := device.QueryGID(1, 0)
		must(err)
		s := &side{}
		s.Set, err = Open(Config{Rank: rank, Size: 2, PD: pd, Port: wireup.Port{Attr: device.QueryDevice(), MTU: rdma.MTU4096}, GID: gid,
			Maps: func(*wireup.Card) bool { return true }, OnDemand: true})
		must(err)
		s.cq, err = device.CreateCQ(16)
		must(err)
		closing(s.cq.Close)
		s.Serve(s)
		for use := range Uses {
			s.Make(use, func(peer int) (rdma.QP, error) {
				qp, _, err := s.Half(peer, rdma.QPInitAttr{SendCQ: s.cq, RecvCQ: s.cq, Type: rdma.RC, Cap: rdma.QPCap{MaxSendWR: 1, MaxSendSGE: 1}}, rdma.AccessRemoteWrite, s.cq)
				if err == nil {
					closing(qp.Close)
				}
				return qp, err
			})
		}
		s.Show(&cards[rank], nil)
		sides[rank] = s
	}
	for _, s := range sides {
		s.Learn(cards)
	}
	return sides
}

// deliver takes the first offer on its way from a rank in at the other one, again if asked.
func deliver(sides [2]*side, from int, again bool) {
	s := sides[from]
	if len(s.offers) == 0 {
		return
	}
	o := s.offers[0]
	if !again {
		s.offers = s.offers[1:]
	}
	sides[1-from].Offered(from, uint64(o.use), o.id)
}

// Whichever side wants a queue pair first, and however often an offer comes, each use gets
// one queue pair on each side, which leads to that of the same use on the other.
func TestSetConnectsInAnyOrder(t *testing.T) {
	for seed := range uint64(50) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			sides := twoSides(t)
			rng := rand.New(rand.NewPCG(seed, 0))
			var qps [2][Uses]rdma.QP
			for range 200 {
				at, use := rng.IntN(2), Use(rng.IntN(int(Uses)))
				if rng.IntN(3) > 0 {
					deliver(sides, at, rng.IntN(4) == 0)
					continue
				}
				qp, err := sides[at].Queue(1-at, use)
				if err != nil {
					t.Fatal(err)
				}
				if old := qps[at][use]; old != nil && old != qp {
					t.Fatalf("rank %d, use %d: another queue pair than before", at, use)
				}
				qps[at][use] = qp
			}
			for use := range Uses {
				a, b := qps[0][use], qps[1][use]
				if a == nil || b == nil {
					t.Fatalf("use %d: connected: %t and %t, want both", use, a != nil, b != nil)
				}
				to, _ := a.Query()
				back, _ := b.Query()
				if to.DestQPNum != b.Num() || back.DestQPNum != a.Num() || a.State() != rdma.StateRTS || b.State() != rdma.StateRTS {
					t.Errorf("use %d: %d (%v) leads to %d, and %d (%v) to %d", use, a.Num(), a.State(), to.DestQPNum, b.Num(), b.State(), back.DestQPNum)
				}
			}
			for rank, s := range sides {
				if s.up != qps[rank][Messages] || s.failed != nil || !s.Met(1-rank) {
					t.Errorf("rank %d: messages have %v, want %v; failed: %v; met: %t", rank, s.up, qps[rank][Messages], s.failed, s.Met(1-rank))
				}
			}
		})
	}
}

// A message that overtakes the offer says as well that the peer's queue pair is in RTS.
func TestSetOvertakenOffer(t *testing.T) {
	sides := twoSides(t)
	if sides[1].Overtaken(0) {
		t.Error("a connection that nobody has begun is up")
	}
	if _, err := sides[0].Queue(1, Messages); err != nil {
		t.Fatal(err)
	}
	deliver(sides, 0, false) // rank 1 connects, and answers that it is ready
	if sides[1].up != nil {
		t.Error("rank 1 posts before rank 0 is ready")
	}
	deliver(sides, 1, false) // rank 0 is ready, and up: its message comes before its offer
	if sides[0].up == nil || !sides[1].Overtaken(0) || sides[1].up == nil {
		t.Errorf("up: %t and %t, want both", sides[0].up != nil, sides[1].up != nil)
	}
}

func TestSetRejectsStrangeOffers(t *testing.T) {
	for _, tt := range []struct {
		name    string
		use, id uint64
		want    error
	}{
		{"no use", uint64(Uses), 7, ErrDamaged},
		{"a use of many bits", 1<<63 | 1, 7, ErrDamaged},
		{"more than a number", 0, 2 * offerReady, ErrDamaged},
		{"a number that is no queue pair's", 0, 1<<24 - 1, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := twoSides(t)[0]
			s.Offered(1, tt.use, tt.id)
			s.Offered(1, tt.use, tt.id)
			if !errors.Is(s.failed, tt.want) {
				t.Errorf("fails with %v, want %v", s.failed, tt.want)
			}
		})
	}
	s := twoSides(t)[0]
	s.Make(Collectives, nil)
	if s.Offered(1, uint64(Collectives), 7); !errors.Is(s.failed, ErrDamaged) {
		t.Errorf("an offer of a use that there is not fails with %v, want %v", s.failed, ErrDamaged)
	}
}
