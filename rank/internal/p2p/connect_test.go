package p2p

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/rank/internal/peers"
)

var onDemand = transports[2:3]

// long is a message that is announced.
const long = 300_000

// Ranks reach for those they talk with, and connect queue pairs with those of them that
// have long messages in ordinary memory for them or from them.
func TestConnectsOnDemand(t *testing.T) {
	for _, tt := range []struct {
		name       string
		bytes      int
		registered bool
		connects   int // of each rank with its two neighbours
	}{
		{"short", 100, false, 0},
		{"long, registered", long, true, 0},
		{"long", long, false, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			over(t, onDemand, []int{3, 16}, func(ctx context.Context, p *member) error {
				if p.contacts() != 0 || len(p.Queues()) != 0 {
					return fmt.Errorf("before the first message: %d peers reached for, %d queue pairs", p.contacts(), len(p.Queues()))
				}
				next, before := (p.self.rank+1)%p.self.size, (p.self.rank+p.self.size-1)%p.self.size
				out, mr := p.memory(tt.bytes, tt.registered)
				in := make([]byte, tt.bytes)
				for round := range 3 {
					if _, err := p.Exchange(ctx, &Sending{Buf: letter(out, p.self.rank, 1, round), MR: mr, Envelope: p.env(1), Peer: next}, &Receiving{Buf: in, Want: want(before, 1)}); err != nil {
						return err
					}
					if err := checkLetter(in, before, 1, round); err != nil {
						return err
					}
				}
				p.meet() // all have what they were sent, and have answered
				if p.contacts() != 2 || p.connections() != tt.connects || len(p.Queues()) != tt.connects {
					return fmt.Errorf("after a ring: %d peers reached for, %d queue pairs made, %d connected; want 2, %d and %[4]d",
						p.contacts(), len(p.Queues()), p.connections(), tt.connects)
				}
				return nil
			})
		})
	}
}

// Everybody has a long message for rank 0, and rank 0 one for everybody, all at first
// contact and at once.
func TestFirstContactAtOnce(t *testing.T) {
	over(t, onDemand, []int{2, 9, 16}, func(ctx context.Context, p *member) error {
		var ops []*Op
		in, out := make([][]byte, p.self.size), make([][]byte, p.self.size)
		p.meet()
		for peer := range p.self.size {
			if peer == p.self.rank || p.self.rank != 0 && peer != 0 {
				continue
			}
			in[peer], out[peer] = make([]byte, long), letter(make([]byte, long), p.self.rank, 1, peer)
			r, err := p.Irecv(in[peer], nil, want(peer, 1), nil)
			if err != nil {
				return err
			}
			s, err := p.Isend(out[peer], nil, p.env(1), peer, Standard)
			if err != nil {
				return err
			}
			ops = append(ops, r, s)
		}
		for _, o := range ops {
			if err := p.Wait(ctx, o); err != nil {
				return err
			}
			if _, err := p.Finish(o); err != nil {
				return err
			}
		}
		for peer, b := range in {
			if b == nil {
				continue
			}
			if err := checkLetter(b, peer, 1, p.self.rank); err != nil {
				return err
			}
		}
		return nil
	})
}

// A receive that waits for the sender to answer its offer ends with its context, the
// sender is let go, and the next message arrives.
func TestReceiveGivenUpBeforeConnected(t *testing.T) {
	over(t, onDemand, []int{2}, func(ctx context.Context, p *member) error {
		in, out := make([]byte, long), make([]byte, long)
		if p.self.rank == 1 {
			o, err := p.Isend(letter(out, 1, 1, 0), nil, p.env(1), 0, Standard)
			if err != nil {
				return err
			}
			p.meet() // computes until the receiver has given up
			p.meet()
			if err := p.Wait(ctx, o); err != nil {
				return err
			}
			if _, err := p.Finish(o); err != nil {
				return err
			}
			return p.Send(ctx, letter(out, 1, 1, 1), nil, p.env(1), 0)
		}
		p.meet()
		short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		_, err := p.Recv(short, in, nil, want(1, 1), nil)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("receive from a rank that makes no progress: %v, want %v", err, context.DeadlineExceeded)
		}
		p.meet()
		if _, err := p.Recv(ctx, in, nil, want(1, 1), nil); err != nil {
			return err
		}
		return checkLetter(in, 1, 1, 1)
	})
}

// A peer that has died is no peer any more at first contact, and one that dies before it
// has answered an offer ends what waits for that.
func TestDeathBeforeConnected(t *testing.T) {
	died := errors.New("it has died")
	over(t, onDemand, []int{3}, func(ctx context.Context, p *member) error {
		dead := func(gone int) {
			p.gone = func(peer int) error {
				if peer == gone {
					return died
				}
				return nil
			}
		}
		switch p.self.rank {
		case 0:
			p.meet() // rank 1 has announced, and does nothing more
			short, cancel := context.WithTimeout(ctx, 5*time.Millisecond)
			defer cancel()
			o, err := p.Irecv(make([]byte, long), nil, want(1, 1), nil)
			if err != nil {
				return err
			}
			if err := p.Wait(short, o); err == nil {
				return errors.New("a message of a rank that makes no progress was read")
			}
			dead(1)
			if err := p.Wait(ctx, o); err != nil {
				return err
			}
			if _, err := p.Finish(o); !errors.Is(err, died) {
				return fmt.Errorf("receive from a rank that died before it was connected: %v, want %v", err, died)
			}
		case 1:
			if _, err := p.Isend(letter(make([]byte, long), 1, 1, 0), nil, p.env(1), 0, Standard); err != nil {
				return err
			}
			p.meet()
			return errSilent
		case 2:
			p.meet()
			dead(1)
			for range 2 {
				if err := p.Send(ctx, []byte{1}, nil, p.env(1), 1); !errors.Is(err, died) {
					return fmt.Errorf("first message to a dead rank: %v, want %v", err, died)
				}
			}
			if p.contacts() != 0 {
				return errors.New("it reached for the memory of a dead rank")
			}
		}
		return errSilent
	})
}

// Offers that nobody should send fail the peer, or nothing.
func TestStrangeOffers(t *testing.T) {
	for _, tt := range []struct {
		name  string
		use   uint64
		id    uint64
		fails bool
	}{
		{"of no use", uint64(peers.Uses), 7, true},
		{"for collectives, where there are none", uint64(peers.Collectives), 7, true},
		{"of more than a number", 0, 2 << 32, true},
		{"of a number that is no queue pair's", 0, 1<<24 - 1, false},
		{"ready before it was answered", 0, 3 | 1<<32, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			over(t, onDemand, []int{2}, func(ctx context.Context, p *member) error {
				if p.self.rank == 1 {
					if to := &p.self.peers[0]; !p.Engine.wire.meet(to) || !p.lines.put(to, offer, tt.use, tt.id, nil) || !p.lines.put(to, offer, tt.use, tt.id, nil) {
						return errors.New("the offer does not leave")
					}
				}
				p.meet()
				if p.self.rank == 0 {
					p.Progress()
					if err := p.self.peers[1].Err(); (err != nil) != tt.fails {
						return fmt.Errorf("the peer's error is %v, want one: %v", err, tt.fails)
					}
				}
				return errSilent
			})
		})
	}
}
