package p2p

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/gorun-mpi/gorun/internal/arch"
	"github.com/gorun-mpi/gorun/rank/internal/match"
)

// oneChunk has all connections of a rank share the receives that one of them needs.
var oneChunk = []transport{{name: "queue pairs, one chunk", own: -1, pool: 1},
	{name: "by mail, one chunk", onDemand: true, mail: true, own: -1, pool: 1},
	{name: "one chunk, adversary 5", own: -1, pool: 1, seed: 5},
	{name: "dynamic, one chunk", onDemand: true, mail: true, paths: true, pool: 1}}

// Receives grow with the connections up to a bound: the first have their own, the others
// share what they bring, and those that come when the pool is full bring nothing.
func TestReceivesAreBounded(t *testing.T) {
	const ranks, most, own = 24, 16, 4
	chunk := func(depth, slot int) int { return (depth + rendezvousMax) * slot }
	depth, eager := shape(ranks)
	tr := transport{name: "by mail", onDemand: true, mail: true, own: own, pool: most*chunk(depth, slotHeader+eager) + 1}
	over(t, []transport{tr}, []int{ranks}, func(ctx context.Context, p *member) error {
		for n := 1; n < ranks; n++ { // rank 0 meets them one by one
			b := make([]byte, 8)
			switch p.self.rank {
			case 0:
				if _, err := p.Recv(ctx, b, nil, want(n, 1), nil); err != nil {
					return err
				}
				chunks, given, shared := len(p.wire.chunks), p.wire.pool.given, p.wire.srq != nil
				if wc, wg, ws := min(n, most), min(n, own), n > own; chunks != wc || given != wg || shared != ws {
					return fmt.Errorf("%d connections: %d chunks, %d receive queues of their own, a shared one: %v; want %d, %d, %v", n, chunks, given, shared, wc, wg, ws)
				}
				if err := checkLetter(b, n, 1, n); err != nil {
					return err
				}
			case n:
				if err := p.Send(ctx, letter(b, n, 1, n), nil, p.env(1), 0); err != nil {
					return err
				}
			}
			p.meet()
		}
		return nil
	})
}

// Many send to one that computes, and it has receives for few of their messages: the rest
// wait with their senders, and nothing is lost or held up when it receives.
func TestIncastWithoutReceives(t *testing.T) {
	sizes := []int{9, 65}
	if arch.RaceEnabled {
		sizes = []int{9, 17}
	}
	for _, tr := range oneChunk {
		for _, n := range sizes {
			if n > 9 && tr.seed != 0 {
				continue
			}
			var waited atomic.Bool
			over(t, []transport{tr}, []int{n}, func(ctx context.Context, p *member) error {
				messages := p.self.depth + 3 // the last ones wait for credit
				lengths := []int{8, 100, p.self.eager, 1000}
				if p.self.rank == 0 {
					return p.takeAll(ctx, messages, lengths)
				}
				// So that they are connected.
				if err := p.Send(ctx, letter(make([]byte, 8), p.self.rank, 1, messages), nil, p.env(1), 0); err != nil {
					return err
				}
				p.meet()
				ops := make([]*Op, messages)
				for i := range ops {
					b := letter(make([]byte, lengths[i%len(lengths)]), p.self.rank, 1, i)
					var err error
					if ops[i], err = p.Isend(b, nil, p.env(1), 0, Standard); err != nil {
						return err
					}
				}
				for !waited.Load() && ctx.Err() == nil {
					if p.Progress(); p.pd.Context().Counters().RNRRetries > 0 {
						waited.Store(true)
					}
				}
				// Who waits for rank 0 holds nobody else up.
				if other := p.self.rank ^ 1; other > 0 && other < n {
					var in [100]byte
					st, err := p.Exchange(ctx, &Sending{Buf: letter(make([]byte, 100), p.self.rank, 2, 0), Envelope: p.env(2), Peer: other}, &Receiving{Buf: in[:], Want: want(other, 2)})
					if err != nil || st.Bytes != len(in) {
						return fmt.Errorf("message of rank %d while rank 0 computes: %d bytes, %w", other, st.Bytes, err)
					}
					if err := checkLetter(in[:], other, 2, 0); err != nil {
						return err
					}
				}
				p.meet()
				return p.finish(ctx, ops...)
			})
		}
	}
}

// takeAll is rank 0 of the incast.
func (p *member) takeAll(ctx context.Context, messages int, lengths []int) error {
	b := make([]byte, p.self.eager)
	for from := 1; from < p.self.size; from++ {
		if _, err := p.Recv(ctx, b[:8], nil, want(from, 1), nil); err != nil {
			return err
		}
	}
	p.meet()
	p.meet() // computes until somebody has waited for a receive
	if n := len(p.wire.chunks); n != 1 {
		return fmt.Errorf("%d chunks of receives for %d peers, want 1", n, p.self.size-1)
	}
	for from := p.self.size - 1; from > 0; from-- {
		for i := range messages {
			n := lengths[i%len(lengths)]
			st, err := p.Recv(ctx, b, nil, want(from, 1), nil)
			if err != nil {
				return err
			}
			if st.Bytes != n {
				return fmt.Errorf("message %d of rank %d: %d bytes, want %d", i, from, st.Bytes, n)
			}
			if err := checkLetter(b[:n], from, 1, i); err != nil {
				return err
			}
		}
	}
	return nil
}

// A message over a shared queue that is not what it should be, or not of who it says, ends
// the peer that sent it, and no other; its receive is used again.
func TestDamagedSharedMessage(t *testing.T) {
	for _, tt := range []struct {
		name string
		send func(b []byte) int
	}{
		{"of another rank", func(b []byte) int { h := header{kind: eager, source: 2}; return h.put(b) }},
		{"of no rank", func(b []byte) int { h := header{kind: eager, source: 1<<24 - 1}; return h.put(b) }},
		{"of no kind", func(b []byte) int { h := header{kind: 77, source: 1}; return h.put(b) }},
		{"of no bytes", func([]byte) int { return 0 }},
		{"an answer that nobody waits for", func(b []byte) int { h := header{kind: finished, source: 1, id: 5}; return h.put(b) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			over(t, oneChunk[:2], []int{3}, func(ctx context.Context, p *member) error {
				b := make([]byte, 8)
				talk := func(a, z int) error {
					if p.self.rank == a {
						return p.Send(ctx, b, nil, p.env(1), z)
					}
					if p.self.rank != z {
						return nil
					}
					_, err := p.Recv(ctx, b, nil, want(a, 1), nil)
					return err
				}
				if err := errors.Join(talk(1, 0), talk(2, 0)); err != nil {
					return err
				}
				p.meet()
				if p.self.rank == 1 {
					p.wire.postInline(&p.self.peers[0], tt.send(p.wire.small[:]))
					if err := p.self.peers[0].Err(); err != nil {
						return err
					}
					p.meet()
					return errSilent
				}
				p.meet()
				if p.self.rank == 0 {
					if _, err := p.Recv(ctx, b, nil, want(1, 9), nil); err == nil {
						return errors.New("a damaged message was received")
					}
				}
				for range 3 * p.self.depth {
					if err := errors.Join(talk(2, 0), talk(0, 2)); err != nil {
						return fmt.Errorf("with a rank that has sent nothing wrong: %w", err)
					}
				}
				return errSilent
			})
		})
	}
}

// So does one over a queue pair of its own, though a receive waits for what it says.
func TestDamagedMessageForAReceive(t *testing.T) {
	for _, tt := range []struct {
		name string
		sent header
		want match.Envelope
	}{
		{"of another rank", header{kind: eager, source: 2, tag: 9, context: 1}, want(1, 9)},
		{"of no tag", header{kind: eager, source: 1, tag: -7, context: 1}, want(1, match.Any)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			over(t, []transport{{name: "queue pairs"}}, []int{3}, func(ctx context.Context, p *member) error {
				b := make([]byte, 8)
				switch p.self.rank {
				case 0:
					if _, err := p.Recv(ctx, b, nil, want(1, 1), nil); err != nil {
						return err
					}
					o, err := p.Irecv(b, nil, tt.want, nil)
					if err != nil {
						return err
					}
					p.meet()
					if err := p.Wait(ctx, o); err != nil {
						return err
					}
					if st, err := p.Finish(o); err == nil {
						return fmt.Errorf("a damaged message was received: %+v", st)
					}
				case 1:
					if err := p.Send(ctx, b, nil, p.env(1), 0); err != nil {
						return err
					}
					p.meet()
					p.wire.postInline(&p.self.peers[0], tt.sent.put(p.wire.small[:]))
				default:
					p.meet()
				}
				p.meet()
				return errSilent
			})
		})
	}
}
