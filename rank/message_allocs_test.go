//go:build !race

// The race detector allocates on its own account.

package rank_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rank"
	"github.com/gorun-mpi/gorun/rank/ranktest"
)

// In steady state no message allocates, whatever it is made of and however it is sent.
func TestMessagesAllocateNothing(t *testing.T) {
	testenv.NoLeaks(t)
	for _, n := range []int{1, 100, 10000} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			ranktest.Run(t, 2, func(ctx context.Context, c *rank.Comm) error {
				calls, err := messageCalls(ctx, c, n)
				if err != nil {
					return err
				}
				for _, call := range calls {
					if err := steady(t, c, call.name, call.f); err != nil {
						return fmt.Errorf("%s: %w", call.name, err)
					}
				}
				return nil
			})
		})
	}
}

type call struct {
	name string
	f    func() error
}

// messageCalls exchange n elements with the other of two ranks.
func messageCalls(ctx context.Context, c *rank.Comm, n int) ([]call, error) {
	peer := 1 - c.Rank()
	if err := c.World().AttachBuffer(100 << 20); err != nil {
		return nil, err
	}
	a, b := make([]float64, 2*n), make([]float64, 2*n)
	particles, others := make([]particle, n), make([]particle, n)
	flags, gotFlags := make([]bool, n), make([]bool, n)
	every2nd := must(rank.Vector(n, 1, 2, typeOf[float64]()))
	reqs, statuses, indices := make([]rank.Request, 2), make([]rank.Status, 2), make([]int, 2)
	persistent := make([]rank.Request, 2)
	var err error
	if persistent[0], err = rank.RecvInit(c, b, peer, 9); err != nil {
		return nil, err
	}
	if persistent[1], err = rank.SendInit(c, a, peer, 9); err != nil {
		return nil, err
	}
	start := func() (err error) {
		if reqs[0], err = rank.Irecv(c, b, peer, 1); err == nil {
			reqs[1], err = rank.Isend(c, a, peer, 1)
		}
		return err
	}
	// one sends a message that the other receives, both ways.
	one := func(send, recv func() error) func() error {
		return func() error {
			first, second := send, recv
			if c.Rank() == 1 {
				first, second = recv, send
			}
			if err := first(); err != nil {
				return err
			}
			return second()
		}
	}
	recv := func() error { _, err := rank.Recv(ctx, c, b, peer, rank.AnyTag); return err }
	return []call{
		{"isend, irecv, waitall", func() error {
			if err := start(); err != nil {
				return err
			}
			return rank.WaitAll(ctx, reqs, statuses)
		}},
		{"wait", func() error {
			if err := start(); err != nil {
				return err
			}
			if _, err := reqs[1].Wait(ctx); err != nil {
				return err
			}
			_, err := reqs[0].Wait(ctx)
			return err
		}},
		{"waitany", func() error {
			if err := start(); err != nil {
				return err
			}
			for range reqs {
				if _, _, err := rank.WaitAny(ctx, reqs); err != nil {
					return err
				}
			}
			return nil
		}},
		{"testsome", func() error {
			if err := start(); err != nil {
				return err
			}
			for left := len(reqs); left > 0; {
				n, err := rank.TestSome(reqs, indices, statuses)
				if err != nil {
					return err
				}
				left -= n
			}
			return nil
		}},
		{"persistent", func() error {
			if err := rank.StartAll(persistent); err != nil {
				return err
			}
			return rank.WaitAll(ctx, persistent, nil)
		}},
		{"structs", func() error {
			_, err := rank.Sendrecv(ctx, c, particles, peer, 1, others, peer, 1)
			return err
		}},
		{"bools", func() error {
			_, err := rank.Sendrecv(ctx, c, flags, peer, 1, gotFlags, peer, 1)
			return err
		}},
		{"vector", func() error {
			_, err := c.Sendrecv(ctx, rank.Typed(a, 1, every2nd), peer, 1, rank.Typed(b, 1, every2nd), peer, 1)
			return err
		}},
		{"started vector", func() (err error) {
			if reqs[0], err = c.Irecv(rank.Typed(b, 1, every2nd), peer, 1); err != nil {
				return err
			}
			if reqs[1], err = c.Isend(rank.Typed(a, 1, every2nd), peer, 1); err != nil {
				return err
			}
			return rank.WaitAll(ctx, reqs, nil)
		}},
		{"sendrecv_replace", func() error {
			_, err := rank.SendrecvReplace(ctx, c, a, peer, 1, peer, 1)
			return err
		}},
		{"ssend", one(func() error { return rank.Ssend(ctx, c, a, peer, 1) }, recv)},
		{"rsend", one(func() error { return rank.Rsend(ctx, c, a, peer, 1) }, recv)},
		{"bsend", one(func() error { return rank.Bsend(ctx, c, a, peer, 1) }, recv)},
		{"probe", one(func() error { return rank.Send(ctx, c, a, peer, 1) }, func() error {
			if _, err := rank.Probe(ctx, c, peer, 1); err != nil {
				return err
			}
			return recv()
		})},
		{"mprobe", one(func() error { return rank.Send(ctx, c, a, peer, 1) }, func() error {
			m, _, err := rank.Mprobe(ctx, c, peer, 1)
			if err != nil {
				return err
			}
			_, err = rank.Mrecv(ctx, m, b)
			return err
		})},
		{"pack", func() error {
			_, err := rank.Pack(c, make([]byte, 0, 8), 0, rank.Of(a[:0]))
			return err
		}},
	}, nil
}

// steady fails the test when f allocates after a while. Both ranks call it; what either
// allocates counts.
func steady(t *testing.T, c *rank.Comm, name string, f func() error) error {
	const runs = 100
	for range 50 {
		if err := f(); err != nil {
			return err
		}
	}
	if c.Rank() == 1 {
		for range runs + 1 {
			if err := f(); err != nil {
				return err
			}
		}
		return nil
	}
	var failed error
	got := testing.AllocsPerRun(runs, func() {
		if failed == nil {
			failed = f()
		}
	})
	if got != 0 {
		t.Errorf("%s: %v allocations a call, want 0", name, got)
	}
	return failed
}
