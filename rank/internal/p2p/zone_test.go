package p2p

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/gorun-mpi/gorun/rank/internal/match"
)

// withZones are the transports over which messages come into zones.
var withZones = []transport{{name: "zones", zones: true}, {name: "zones, adversary 8", zones: true, seed: 8},
	{name: "by mail, zones, shared receives", zones: true, onDemand: true, mail: true, own: -1}}

// A zone holds messages in one piece each, inside, and none on another that may be there still.
func TestZoneAgainstObviousVersion(t *testing.T) {
	for seed := range uint64(50) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		z := &zone{}
		type message struct{ at, end int }
		var all []message
		var sent, taken uint64
		refused := 0
		for range 2000 {
			if rnd.IntN(3) == 0 {
				taken += uint64(rnd.IntN(int(sent-taken) + 1))
				continue
			}
			n := 1 + rnd.IntN(landMost)
			if rnd.IntN(4) == 0 {
				n = landMost
			}
			at, ok := z.place(taken, n)
			if !ok {
				if sent == taken {
					t.Fatalf("seed %d: an empty zone has no room for %d bytes", seed, n)
				}
				refused++
				continue
			}
			if at < 0 || at+n > zoneBytes {
				t.Fatalf("seed %d: %d bytes at %d", seed, n, at)
			}
			if sent == taken && at != 0 {
				t.Fatalf("seed %d: a message at %d of an empty zone, want it at the front", seed, at)
			}
			sent++
			for i, m := range all[taken:] {
				if at < m.end && m.at < at+n {
					t.Fatalf("seed %d: message %d lies on message %d, and %d are taken", seed, sent, int(taken)+i+1, taken)
				}
			}
			all = append(all, message{at, at + n})
			z.enter(sent, at, n)
		}
		if refused == 0 {
			t.Errorf("seed %d: the zone was never full", seed)
		}
	}
}

// exchange sends and receives one message of n bytes on either side of ranks 0 and 1.
func (p *member) exchange(ctx context.Context, n, tag int) error {
	in, other := make([]byte, n), 1-p.self.rank
	if _, err := p.Exchange(ctx, &Sending{Buf: letter(make([]byte, n), p.self.rank, tag, n), Envelope: p.env(tag), Peer: other}, &Receiving{Buf: in, Want: want(other, tag)}); err != nil {
		return err
	}
	return checkLetter(in, other, tag, n)
}

// The first message of middle length is announced and brings a zone; all others up to landMost are written, and none is read.
func TestMiddleMessagesLand(t *testing.T) {
	over(t, withZones, []int{2}, func(ctx context.Context, p *member) error {
		q := &p.self.peers[1-p.self.rank]
		for _, n := range []int{q.eager, landMost + 1} {
			if err := p.exchange(ctx, n, 1); err != nil {
				return err
			}
			if q.zone != nil || q.loan != nil {
				return fmt.Errorf("a message of %d bytes has brought a zone", n)
			}
		}
		if err := p.exchange(ctx, q.eager+1, 1); err != nil {
			return err
		}
		if q.zone == nil || q.loan == nil {
			return errors.New("a message of middle length has brought no zone")
		}
		p.meet()
		reads := p.pd.Context().Counters().Reads
		for i := range 100 {
			if err := p.exchange(ctx, min(q.eager+1+i*5000, landMost), 2); err != nil {
				return err
			}
		}
		if got := p.pd.Context().Counters().Reads; got != reads {
			return fmt.Errorf("%d messages were read", got-reads)
		}
		p.meet()
		return nil
	})
}

// Zones are lent to so many peers; the others' messages are announced.
func TestZonesAreBounded(t *testing.T) {
	over(t, withZones[:1], []int{zonesMost + 4}, func(ctx context.Context, p *member) error {
		for round := range 3 {
			for d := 1; d < p.self.size; d++ {
				to, from := (p.self.rank+d)%p.self.size, (p.self.rank+p.self.size-d)%p.self.size
				in := make([]byte, 20000)
				if _, err := p.Exchange(ctx, &Sending{Buf: letter(make([]byte, 20000), p.self.rank, 1, round), Envelope: p.env(1), Peer: to}, &Receiving{Buf: in, Want: want(from, 1)}); err != nil {
					return err
				}
				if err := checkLetter(in, from, 1, round); err != nil {
					return err
				}
			}
		}
		if n := len(p.wire.given) - p.wire.borrowed; n != zonesMost || p.wire.borrowed > zonesMost {
			return fmt.Errorf("%d zones are lent, and %d borrowed, want %d and at most so many", n, p.wire.borrowed, zonesMost)
		}
		return nil
	})
}

// Messages that nobody has asked for come out whole, however they are taken, also of a peer that has failed since.
func TestUnexpectedLand(t *testing.T) {
	over(t, withZones, []int{2}, func(ctx context.Context, p *member) error {
		if err := p.exchange(ctx, 20000, 9); err != nil {
			return err
		}
		const messages = 40
		if p.self.rank == 1 {
			var ops []*Op
			for i := range messages {
				o, err := p.Isend(letter(make([]byte, 5000+3000*i), 1, i%3, i), nil, p.env(i%3), 0, modes[i%2])
				if err != nil {
					return err
				}
				ops = append(ops, o)
			}
			if err := p.finish(ctx, ops...); err != nil {
				return err
			}
			p.meet()
			return p.Send(ctx, letter(make([]byte, 30000), 1, 5, 0), nil, p.env(5), 0)
		}
		for i := messages - 1; i >= 0; i-- { // of each tag the first one that is left
			tag, number := i%3, (messages-1-i)/3*3+i%3
			n := 5000 + 3000*number
			in := make([]byte, n)
			if _, err := p.Probe(ctx, want(1, tag), nil); err != nil {
				return err
			}
			m, _, err := p.Mprobe(ctx, want(1, tag), nil)
			if err != nil {
				return err
			}
			o, err := p.Imrecv(m, in, nil, 0)
			if err != nil {
				return err
			}
			if err := p.finish(ctx, o); err != nil {
				return err
			}
			if err := checkLetter(in, 1, tag, number); err != nil {
				return err
			}
		}
		p.meet()
		if _, err := p.Probe(ctx, want(1, 5), nil); err != nil {
			return err
		}
		p.lines.fail(&p.self.peers[1], errors.New("it has died")) // its message is here
		in := make([]byte, 30000)
		if _, err := p.Recv(ctx, in, nil, want(1, 5), nil); err != nil {
			return err
		}
		if err := checkLetter(in, 1, 5, 0); err != nil {
			return err
		}
		return errSilent
	})
}

// What a peer says of its zone, and of messages there, is not believed.
func TestForgedLandings(t *testing.T) {
	for _, tt := range []struct {
		name string
		h    header
	}{
		{"behind the zone", header{kind: landed, address: zoneBytes, length: 1}},
		{"over its end", header{kind: landed, address: zoneBytes - 99, length: 100}},
		{"at a wrapped place", header{kind: landed, address: 1<<64 - 50, length: 100}},
		{"too long", header{kind: landed, length: landMost + 1}},
		{"far too long, synchronous", header{kind: landedSync, address: 64, length: 1 << 61}},
		{"a second zone", header{kind: granted, length: zoneBytes}},
		{"an answer to nothing", header{kind: finished, id: 3}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			over(t, []transport{withZones[0], withZones[2]}, []int{2}, func(ctx context.Context, p *member) error {
				if err := p.exchange(ctx, 20000, 9); err != nil {
					return err
				}
				p.meet()
				if p.self.rank == 1 {
					tt.h.source = 1
					p.wire.postInline(&p.self.peers[0], tt.h.put(p.wire.small[:]))
					return errSilent
				}
				if _, err := p.Recv(ctx, make([]byte, 8), nil, want(1, match.Any), nil); err == nil {
					return errors.New("a forged message was received")
				}
				return errSilent
			})
		})
	}
	t.Run("no zone was lent", func(t *testing.T) {
		over(t, []transport{{name: "queue pairs"}, withZones[0]}, []int{2}, func(ctx context.Context, p *member) error {
			for _, what := range []kind{landed, granted} {
				if what == granted && p.self.rank == 1 {
					break
				}
				if p.self.rank == 1 {
					h := header{kind: what, source: 1, length: 100}
					p.wire.postInline(&p.self.peers[0], h.put(p.wire.small[:]))
				} else if _, err := p.Recv(ctx, make([]byte, 8), nil, want(1, match.Any), nil); err == nil {
					return errors.New("a forged message was received")
				}
			}
			return errSilent
		})
	})
}

// A message for a zone is done when it is copied, and gets there whatever becomes of its memory. A synchronous
// one that is given up leaves the connection up, and the answer to it is nobody's.
func TestLandingNeedsNoMemory(t *testing.T) {
	over(t, withZones, []int{2}, func(ctx context.Context, p *member) error {
		if err := p.exchange(ctx, 20000, 9); err != nil {
			return err
		}
		p.meet()
		if p.self.rank == 1 {
			p.meet()
			for i, mode := range modes {
				in := make([]byte, 20000)
				if _, err := p.Recv(ctx, in, nil, want(0, 1), nil); err != nil {
					return err
				}
				if err := checkLetter(in, 0, 1, i); err != nil {
					return fmt.Errorf("mode %d: %w", mode, err)
				}
			}
			return p.exchange(ctx, 30000, 2)
		}
		ended, cancel := context.WithCancel(ctx)
		cancel()
		b := make([]byte, 20000)
		for i, mode := range modes {
			o, err := p.Isend(letter(b, 0, 1, i), nil, p.env(1), 1, mode)
			if err != nil {
				return err
			}
			if o.Done() == (mode == Synchronous) {
				return fmt.Errorf("mode %d: the send is done: %t", mode, o.Done())
			}
			if err := p.Wait(ended, o); err != nil {
				p.Abandon(o)
			} else if _, err := p.Finish(o); err != nil {
				return err
			}
			clear(b)
		}
		p.meet()
		return p.exchange(ctx, 30000, 2)
	})
}

// A synchronous message of a context that is revoked on its way ends, and the answer to it is nobody's.
func TestRevokedLanding(t *testing.T) {
	over(t, withZones, []int{2}, func(ctx context.Context, p *member) error {
		if err := p.exchange(ctx, 20000, 9); err != nil {
			return err
		}
		p.meet()
		if p.self.rank == 0 {
			env := p.env(1)
			env.Context = 5
			for range 2 * rendezvousMax {
				o, err := p.Isend(make([]byte, 20000), nil, env, 1, Synchronous)
				if err != nil {
					return err
				}
				defer func() {
					if _, err := p.Finish(o); !errors.Is(err, ErrRevoked) {
						p.t.Errorf("a message of a revoked context: %v", err)
					}
				}()
				defer func() { _ = p.Wait(ctx, o) }()
			}
			p.Revoke(5)
			p.meet()
		} else {
			p.meet()
			p.Revoke(5)
		}
		return p.exchange(ctx, 30000, 2)
	})
}
