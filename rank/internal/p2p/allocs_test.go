//go:build !race

// The race detector allocates on its own account.

package p2p

import (
	"context"
	"fmt"
	"testing"

	"github.com/gorun-mpi/gorun/rdma"
)

// In steady state no operation allocates: of any length and mode, in both kinds of
// memory, whether its receive comes before the message or after.
func TestNoAllocations(t *testing.T) {
	over(t, append(transports[:3:3], transports[8], withZones[0]), []int{2}, func(ctx context.Context, p *member) error {
		for _, n := range []int{0, 8, lineData, 100, 1000, 4000, 4096, 5000, 20000, 200000} {
			for _, registered := range []bool{false, true} {
				out, outMR := p.memory(n, registered)
				in, inMR := p.memory(n, registered)
				for _, mode := range modes[:2] {
					for _, late := range []bool{false, true} {
						got, err := p.allocations(ctx, out, in, outMR, inMR, mode, late)
						if err != nil {
							return err
						}
						if got != 0 {
							p.t.Errorf("%d bytes, registered: %v, mode %d, late receive: %v: %v allocations a round, want 0", n, registered, mode, late, got)
						}
					}
				}
			}
		}
		return nil
	})
}

// allocations counts them while both ranks send each other some messages at once. A
// late receive is posted when its message has been seen.
func (p *member) allocations(ctx context.Context, out, in []byte, outMR, inMR rdma.MR, mode Mode, late bool) (float64, error) {
	const runs, burst = 50, 6
	other := 1 - p.self.rank
	var sends, recvs [burst]*Op
	send := func() (err error) {
		for i := range sends {
			if sends[i], err = p.Isend(out, outMR, p.env(1), other, mode); err != nil {
				return err
			}
		}
		return nil
	}
	recv := func() (err error) {
		for i := range recvs {
			if late {
				if _, err = p.Probe(ctx, want(other, 1), nil); err != nil {
					return err
				}
			}
			// All of them write the same.
			if recvs[i], err = p.Irecv(in, inMR, want(other, 1), nil); err != nil {
				return err
			}
		}
		return nil
	}
	first, second := recv, send
	if late {
		first, second = send, recv
	}
	round := func() error {
		if err := first(); err != nil {
			return err
		}
		if err := second(); err != nil {
			return err
		}
		if err := p.finish(ctx, recvs[:]...); err != nil {
			return err
		}
		return p.finish(ctx, sends[:]...)
	}
	for range runs {
		if err := round(); err != nil {
			return 0, err
		}
	}
	p.meet()
	var failed error
	got := 0.0
	if p.self.rank == 0 {
		got = testing.AllocsPerRun(runs, func() {
			if failed == nil {
				failed = round()
			}
		})
	} else {
		for i := 0; i < runs+1 && failed == nil; i++ {
			failed = round()
		}
	}
	p.meet() // what the other does next is not counted
	if failed != nil {
		return 0, fmt.Errorf("%d bytes: %w", len(out), failed)
	}
	return got, nil
}
