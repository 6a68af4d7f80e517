package p2p

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/gorun-mpi/gorun/internal/arch"
)

// Everybody exchanges messages with everybody in an order that all know, while
// pairs move from inboxes to rings.
func TestTraffic(t *testing.T) {
	over(t, transports[:3], []int{4, 9, 10, 16}, func(ctx context.Context, p *member) error {
		order := rand.New(rand.NewPCG(uint64(p.self.size), 5)) // the same in all
		b := make([]byte, 100)
		for i := range 40 * p.self.size * p.self.size {
			from, to, n := order.IntN(p.self.size), order.IntN(p.self.size), order.IntN(80)
			switch {
			case from == to:
			case p.self.rank == from:
				if err := p.Send(ctx, letter(b[:n], from, 3, i), nil, p.env(3), to); err != nil {
					return fmt.Errorf("message %d, to %d: %w", i, to, err)
				}
			case p.self.rank == to:
				st, err := p.Recv(ctx, b, nil, want(from, 3), nil)
				if err != nil {
					return fmt.Errorf("message %d, from %d: %w", i, from, err)
				}
				if st.Bytes != n {
					return fmt.Errorf("message %d, from %d: %d bytes, want %d", i, from, st.Bytes, n)
				}
				if err := checkLetter(b[:n], from, 3, i); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// Messages over several lines, over slots and over receive slots go round a ring many
// times, both ways at once, with receives before and after them.
func TestWrapAround(t *testing.T) {
	messages := 100_000
	if arch.RaceEnabled {
		messages = 10_000
	}
	// Up to 9 ranks a message has as many lines as it needs, beyond at most 8.
	over(t, transports[:3], []int{2, 10}, func(ctx context.Context, p *member) error {
		const window = 24
		other := p.self.rank ^ 1
		own, theirs := rand.New(rand.NewPCG(uint64(p.self.rank), 13)), rand.New(rand.NewPCG(uint64(other), 13))
		late := rand.New(rand.NewPCG(uint64(p.self.rank), 17))
		length := func(r *rand.Rand) int {
			if r.IntN(2) == 0 {
				return lineData + 1 + r.IntN(500)
			}
			return lineData + 1 + r.IntN(mappedEager-lineData)
		}
		var sends, recvs [window]*Op
		var out, in [window][mappedEager]byte
		wanted := make([]byte, mappedEager)
		for i := range messages/p.self.size + window {
			w := i % window
			if number := i - window; number >= 0 {
				if err := p.Wait(ctx, recvs[w]); err != nil {
					return fmt.Errorf("message %d: %w", number, err)
				}
				st, err := p.Finish(recvs[w])
				if err != nil {
					return fmt.Errorf("message %d: %w", number, err)
				}
				n := length(theirs)
				if st.Bytes != n || !bytes.Equal(in[w][:n], letter(wanted[:n], other, 3, number)) {
					return fmt.Errorf("message %d of rank %d, %d bytes: %d bytes arrived, or not what was sent", number, other, n, st.Bytes)
				}
				if err := p.finish(ctx, sends[w]); err != nil {
					return fmt.Errorf("send %d: %w", number, err)
				}
			}
			if i >= messages/p.self.size {
				continue
			}
			var err error
			lags := late.IntN(4) == 0
			if !lags {
				if recvs[w], err = p.Irecv(in[w][:], nil, want(other, 3), nil); err != nil {
					return err
				}
			}
			n := length(own)
			if sends[w], err = p.Isend(letter(out[w][:n], p.self.rank, 3, i), nil, p.env(3), other, Standard); err != nil {
				return err
			}
			if lags {
				if late.IntN(8) == 0 { // it is there, unexpected
					if _, err = p.Probe(ctx, want(other, 3), nil); err != nil {
						return err
					}
				}
				if recvs[w], err = p.Irecv(in[w][:], nil, want(other, 3), nil); err != nil {
					return err
				}
			}
		}
		return nil
	})
}
