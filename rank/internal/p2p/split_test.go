package p2p

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"

	"github.com/gorun-mpi/gorun/internal/wait"
)

// Whatever two sides take at the same time is all of the message, and each byte once.
func TestPiecesAreTakenOnce(t *testing.T) {
	for _, length := range []int{1, 4096, splitFrom, splitFrom + 1, 300000, 1<<20 - 1, 1 << 31, 1<<40 + 7, math.MaxInt64 >> 2} {
		var of ticket
		s := newSplit(&of, 7, length)
		if s.pieces > piecesMost || (s.pieces-1)*s.piece >= length || length > s.pieces*s.piece || length >= splitFrom && s.pieces < 2 {
			t.Fatalf("%d bytes: %d pieces of %d", length, s.pieces, s.piece)
		}
		of.claim = claimWord(7, 0, s.pieces)
		var sides [2]split
		var bytes [2]int
		var group sync.WaitGroup
		for side := range sides {
			sides[side] = s
			group.Go(func() {
				var at int
				for before, n := -1, 1; n > 0; before = at {
					if side == 0 {
						at, n = sides[0].first(length, s.pieces)
					} else {
						at, n = sides[1].last(length)
					}
					if bytes[side] += n; n > 0 && before >= 0 && (at > before) != (side == 0) {
						t.Errorf("%d bytes: side %d takes %d after %d", length, side, at, before)
					}
				}
			})
		}
		group.Wait()
		if taken := sides[0].taken; bytes[0]+bytes[1] != length || taken < s.pieces && bytes[0] != taken*s.piece {
			t.Errorf("%d bytes: %d of the front and %d of the back were taken", length, bytes[0], bytes[1])
		}
	}
}

// A claim of another message, or one that was scribbled on, gives no piece.
func TestForeignClaimGivesNothing(t *testing.T) {
	var of ticket
	s := newSplit(&of, 7, 1<<20)
	for _, w := range []uint64{0, claimWord(8, 0, 2), claimWord(7, 0, 3), claimWord(7, 2, 1), math.MaxUint64} {
		of.claim = w
		if _, n := s.first(1<<20, s.pieces); n != 0 {
			t.Errorf("claim %#x: the first piece has %d bytes", w, n)
		}
		if _, n := s.last(1 << 20); n != 0 {
			t.Errorf("claim %#x: the last piece has %d bytes", w, n)
		}
	}
}

// A sender that is busy elsewhere leaves all of its messages to the receiver, and so
// does one that says in the middle that it cannot help.
func TestReceiverReadsAlone(t *testing.T) {
	over(t, mappedOnly, []int{2}, func(ctx context.Context, p *member) error {
		for _, fails := range []bool{false, true} {
			if p.self.rank == 1 {
				var ops []*Op
				for i := range 5 {
					o, err := p.Isend(letter(make([]byte, splitFrom+i*9973), 1, 1, i), nil, p.env(1), 0, Standard)
					if err != nil {
						return err
					}
					if ops = append(ops, o); fails {
						p.lines.helpless(&Op{ticket: o.ticket, split: split{of: &p.lines.tickets[o.ticket-1]}})
					}
				}
				p.meet()
				p.meet() // it is received
				if err := p.finish(ctx, ops...); err != nil {
					return err
				}
				p.meet()
				continue
			}
			p.meet()
			for i := range 5 {
				b := make([]byte, splitFrom+i*9973)
				if _, err := p.Recv(ctx, b, nil, want(1, 1), nil); err != nil {
					return err
				}
				if err := checkLetter(b, 1, 1, i); err != nil {
					return err
				}
			}
			p.meet()
			p.meet()
		}
		return nil
	})
}

// Windows of long messages both ways, into buffers of their own, some of them too long.
func TestWindowIsShared(t *testing.T) {
	const window, rounds = 40, 3
	over(t, mappedOnly, []int{2}, func(ctx context.Context, p *member) error {
		out, in := make([][]byte, window), make([][]byte, window)
		for round := range rounds {
			var ops []*Op
			for i := range window {
				n := splitFrom - 2 + (i*round*7919)%200000
				out[i], in[i] = letter(make([]byte, n), p.self.rank, round, i), make([]byte, n+i%3*1000)
				r, err := p.Irecv(in[i], nil, want(1-p.self.rank, round), nil)
				if err != nil {
					return err
				}
				s, err := p.Isend(out[i], nil, p.env(round), 1-p.self.rank, Standard)
				if err != nil {
					return err
				}
				ops = append(ops, r, s)
			}
			if err := p.finish(ctx, ops...); err != nil {
				return err
			}
			for i := range window {
				if err := checkLetter(in[i][:len(out[i])], 1-p.self.rank, round, i); err != nil {
					return err
				}
			}
			p.meet()
		}
		return nil
	})
}

// A sender that looks while the receiver is elsewhere writes its half, and the receive
// is over with the next look.
func TestSenderHelps(t *testing.T) {
	over(t, mappedOnly, []int{2}, func(ctx context.Context, p *member) error {
		const n = 1<<20 + 12345
		if p.self.rank == 1 {
			o, err := p.Isend(letter(make([]byte, n), 1, 1, 0), nil, p.env(1), 0, Standard)
			if err != nil {
				return err
			}
			p.meet()
			p.meet() // the receiver has its half
			for p.Progress(); o.split.taken == 0; p.Progress() {
			}
			p.meet()
			return p.finish(ctx, o)
		}
		b := make([]byte, n)
		o, err := p.Irecv(b, nil, want(1, 1), nil)
		if err != nil {
			return err
		}
		p.meet()
		for p.Progress(); o.state != moving; p.Progress() {
		}
		p.meet()
		p.meet()
		p.Progress()
		if !o.Done() {
			return errors.New("both halves are there, and the receive is not over")
		}
		if err := p.finish(ctx, o); err != nil {
			return err
		}
		return checkLetter(b, 1, 1, 0)
	})
}

// A sender that dies with a piece that it has taken ends the receive, which is not over
// before.
func TestHelperDies(t *testing.T) {
	died := errors.New("it has died")
	over(t, mappedOnly, []int{2}, func(ctx context.Context, p *member) error {
		if p.self.rank == 1 {
			o, err := p.Isend(make([]byte, 1<<20), nil, p.env(1), 0, Standard)
			if err != nil {
				return err
			}
			p.meet()
			s := newSplit(&p.lines.tickets[o.ticket-1], o.generation, 1<<20)
			// Claimed as soon as the receiver has offered it.
			if err := p.waits.waiter.Wait(ctx, ready(func() bool { _, n := s.last(1 << 20); return n > 0 })); err != nil {
				return err
			}
			p.meet()
			return errSilent
		}
		// The receiver reads its own half only, as if it had other messages to read first.
		o, err := p.Irecv(make([]byte, 1<<20), nil, want(1, 1), nil)
		if err != nil {
			return err
		}
		p.meet()
		for p.Progress(); o.state != moving; p.Progress() {
		}
		p.meet()
		for range 1000 {
			p.Progress()
		}
		if o.Done() {
			return fmt.Errorf("done while the sender has a piece of it: %v", o.err)
		}
		p.gone = func(int) error { return died }
		if err := p.WaitFor(ctx, allDone{o}); err != nil {
			return err
		}
		if _, err := p.Finish(o); !errors.Is(err, died) {
			return fmt.Errorf("%v, want %v", err, died)
		}
		if len(p.wire.splits) > 0 {
			p.Progress()
		}
		if len(p.wire.splits) > 0 {
			return fmt.Errorf("%d receives wait still", len(p.wire.splits))
		}
		return nil
	})
}

type ready func() bool

func (f ready) Ready() bool { return f() }

var _ wait.Condition = ready(nil)
