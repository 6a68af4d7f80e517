package p2p

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/rank/internal/match"
)

var mappedOnly = transports[1:2]

// A rank that dies between its claim in an inbox and its message holds up neither
// the receiver nor those who send behind it.
func TestDeadClaimIsPassedOver(t *testing.T) {
	over(t, mappedOnly, []int{3, 12}, func(ctx context.Context, p *member) error {
		switch p.self.rank {
		case 0:
			p.gone = func(peer int) error {
				if peer == 2 {
					return errors.New("it has died")
				}
				return nil
			}
			p.meet()
			for i := range 300 {
				b := make([]byte, 8)
				if _, err := p.Recv(ctx, b, nil, want(1, 1), nil); err != nil {
					return err
				}
				if err := checkLetter(b, 1, 1, i); err != nil {
					return err
				}
			}
		case 1:
			p.meet()
			for i := range 300 {
				if err := p.Send(ctx, letter(make([]byte, 8), 1, 1, i), nil, p.env(1), 0); err != nil {
					return err
				}
			}
		case 2:
			for range 3 {
				if _, ok := p.lines.claim(p.self.peers[0].far); !ok {
					return errors.New("no line to claim")
				}
			}
			p.meet()
			return errSilent
		default:
			p.meet()
		}
		return nil
	})
}

// Whatever stands in a rank's mapped memory, its calls end, and nothing crashes.
func TestScribbledMemory(t *testing.T) {
	over(t, mappedOnly, []int{2, 10}, func(ctx context.Context, p *member) error {
		rnd := rand.New(rand.NewPCG(uint64(p.self.size), 11))
		for range hotAfter * 4 { // to a ring, where there is one to be had
			other := p.self.rank ^ 1
			if _, err := p.Exchange(ctx, &Sending{Buf: []byte{1}, Envelope: p.env(0), Peer: other}, &Receiving{Buf: make([]byte, 1), Want: want(other, 0)}); err != nil {
				return err
			}
		}
		for round := range 60 {
			p.meet()
			if p.self.rank == 1 {
				// Likely words and any words, all over what peers may write.
				mem := words(p.self.peers[0].far.whole)
				for range 400 {
					at, w := rnd.IntN(len(mem)), rnd.Uint64()
					if round%2 == 0 { // at the head of a line
						at = at / 8 * 8
						w = pack(uint32(rnd.IntN(4)), kind(rnd.IntN(40)), rnd.IntN(256), rnd.IntN(12))
					}
					mem[at] = w
				}
			}
			p.meet()
			if p.self.rank != 0 {
				continue
			}
			short, cancel := context.WithTimeout(ctx, 2*time.Millisecond)
			env := match.Envelope{Context: 1, Source: match.Any, Tag: match.Any}
			var own [20000]byte
			_, _ = p.Recv(short, own[:], nil, env, nil)
			for n := range 3 {
				_ = p.Send(short, own[:n*n*5000], nil, p.env(1), 1)
			}
			if m, _, ok, _ := p.Improbe(env, nil); ok {
				if o, err := p.Imrecv(m, own[:], nil, 0); err == nil {
					_ = p.Wait(short, o)
					p.Abandon(o)
				}
			}
			cancel()
			if took := ctx.Err(); took != nil {
				return fmt.Errorf("round %d: %w", round, took)
			}
		}
		return errSilent
	})
}
