package p2p

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
)

// Everybody exchanges messages with everybody in an order that all know, while
// pairs move from inboxes to rings.
func TestTraffic(t *testing.T) {
	over(t, transports[:2], []int{4, 9, 10, 16}, func(ctx context.Context, p *peer) error {
		order := rand.New(rand.NewPCG(uint64(p.size), 5)) // the same in all
		b := make([]byte, 100)
		for i := range 40 * p.size * p.size {
			from, to, n := order.IntN(p.size), order.IntN(p.size), order.IntN(80)
			switch {
			case from == to:
			case p.rank == from:
				if err := p.Send(ctx, letter(b[:n], from, 3, i), nil, p.env(3), to); err != nil {
					return fmt.Errorf("message %d, to %d: %w", i, to, err)
				}
			case p.rank == to:
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
