package p2p

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"
)

// pathsOnly has all go over dynamic connections.
var pathsOnly = transports[slices.IndexFunc(transports, func(tr transport) bool { return tr.name == "dynamic" }):][:1]

// A long message that its sender gives up while it is read, so that what was read may be
// anything, is not received; nor does the connection outlive it, on either side.
func TestGivenUpWhileRead(t *testing.T) {
	over(t, pathsOnly, []int{3}, func(ctx context.Context, p *member) error {
		b := make([]byte, long)
		switch p.self.rank {
		case 0:
			for _, from := range []int{1, 2} {
				if _, err := p.Recv(ctx, b[:8], nil, want(from, 1), nil); err != nil {
					return err
				}
			}
			p.meet()
			// Rank 1 has taken the announcement's word back, and not said so yet.
			if _, err := p.Recv(ctx, b, nil, want(1, 2), nil); !errors.Is(err, ErrWithdrawn) {
				return fmt.Errorf("receive of a message that was given up: %v, want %v", err, ErrWithdrawn)
			}
			p.meet()
			if _, err := p.Recv(ctx, b, nil, want(1, 3), nil); !errors.Is(err, ErrCut) {
				return fmt.Errorf("receive of a rank that has cut the connection: %v, want %v", err, ErrCut)
			}
			if err := p.Send(ctx, b[:8], nil, p.env(1), 1); !errors.Is(err, ErrCut) {
				return fmt.Errorf("send to it: %v, want %v", err, ErrCut)
			}
			if _, err := p.Recv(ctx, b[:8], nil, want(2, 1), nil); err != nil {
				return err
			}
			return errSilent
		case 1:
			if err := p.Send(ctx, b[:8], nil, p.env(1), 0); err != nil {
				return err
			}
			o, err := p.Isend(letter(b, 1, 2, 0), nil, p.env(2), 0, Standard)
			if err != nil {
				return err
			}
			for deadline := time.Now().Add(limit); o.state != sent; p.Progress() {
				if time.Now().After(deadline) {
					return errors.New("the announcement does not leave")
				}
			}
			p.self.letGo(&p.self.peers[0], o.number)
			clear(b)
			p.meet()
			p.meet()
			p.Abandon(o)
			return errSilent
		}
		if err := p.Send(ctx, b[:8], nil, p.env(1), 0); err != nil {
			return err
		}
		p.meet()
		p.meet()
		if err := p.Send(ctx, b[:8], nil, p.env(1), 0); err != nil {
			return err
		}
		return errSilent
	})
}
