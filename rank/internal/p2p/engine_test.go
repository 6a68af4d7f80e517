package p2p

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rank/internal/match"
)

// lengths of messages, around what fits a line, a slot, an inline send, and what
// is announced.
var lengths = []int{0, 1, 8, 39, 40, 41, 64, 239, 240, 241, 1000, 4031, 4032, 4033, 8191, 8192, 8193, 20000, 70001, 300000}

var modes = []Mode{Standard, Synchronous, Ready}

// finished waits for operations and gives the first error.
func (p *member) finish(ctx context.Context, ops ...*Op) error {
	for i, o := range ops {
		if err := p.Wait(ctx, o); err != nil {
			return fmt.Errorf("operation %d: %w", i, err)
		}
		if _, err := p.Finish(o); err != nil {
			return fmt.Errorf("operation %d: %w", i, err)
		}
	}
	return nil
}

// Everybody sends to everybody, itself included, in every length and mode and in
// both kinds of memory, with receives before and after.
func TestAllPairs(t *testing.T) {
	each(t, []int{1, 2, 3, 16}, func(ctx context.Context, p *member) error {
		for round, n := range lengths {
			if p.self.size > 3 && round%4 != 0 {
				continue
			}
			var ops []*Op
			in := make([][]byte, p.self.size)
			receive := func() error {
				for s := range p.self.size {
					b, mr := p.memory(n, (round+s)%3 == 0)
					in[s] = b
					o, err := p.Irecv(b, mr, want(s, round), nil)
					if err != nil {
						return err
					}
					ops = append(ops, o)
				}
				return nil
			}
			if (p.self.rank+round)%2 == 0 {
				if err := receive(); err != nil {
					return err
				}
			}
			for d := range p.self.size {
				b, mr := p.memory(n, (round+d)%2 == 0)
				o, err := p.Isend(letter(b, p.self.rank, round, d), mr, p.env(round), d, modes[(round+d)%len(modes)])
				if err != nil {
					return err
				}
				ops = append(ops, o)
			}
			if (p.self.rank+round)%2 != 0 {
				if err := receive(); err != nil {
					return err
				}
			}
			if err := p.finish(ctx, ops...); err != nil {
				return fmt.Errorf("%d bytes: %w", n, err)
			}
			for s := range in {
				if err := checkLetter(in[s], s, round, p.self.rank); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// A flood of mixed messages to one rank, which takes them by wildcards in any
// way that there is: nothing is lost, nothing of one sender is overtaken.
func TestFloodInOrder(t *testing.T) {
	const messages = 400
	each(t, []int{2, 5}, func(ctx context.Context, p *member) error {
		rnd := rand.New(rand.NewPCG(uint64(p.self.rank), 7))
		if p.self.rank > 0 {
			var ops []*Op
			for i := range messages {
				b := letter(make([]byte, lengths[rnd.IntN(len(lengths)-3)]), p.self.rank, i%3, i)
				o, err := p.Isend(b, nil, p.env(i%3), 0, modes[rnd.IntN(len(modes))])
				if err != nil {
					return err
				}
				if ops = append(ops, o); rnd.IntN(50) == 0 {
					if err := p.finish(ctx, ops...); err != nil {
						return err
					}
					ops = ops[:0]
				}
			}
			return p.finish(ctx, ops...)
		}
		next := make([][3]int, p.self.size)
		for s := range next {
			next[s] = [3]int{0, 1, 2}
		}
		b := make([]byte, 1<<20)
		for range messages * (p.self.size - 1) {
			source, tag := match.Any, match.Any
			if rnd.IntN(4) == 0 { // somebody who has something left to send
				for source = 1 + rnd.IntN(p.self.size-1); next[source][0] >= messages && next[source][1] >= messages && next[source][2] >= messages; {
					source = 1 + rnd.IntN(p.self.size-1)
				}
			}
			var st Status
			var err error
			var o *Op
			switch rnd.IntN(4) {
			case 0:
				if st, err = p.Probe(ctx, want(source, tag), nil); err == nil {
					var got Status
					if got, err = p.Recv(ctx, b, nil, want(st.Source, st.Tag), nil); err == nil && got != st {
						err = fmt.Errorf("received %+v, probed %+v", got, st)
					}
				}
			case 1:
				var m *Message
				if m, st, err = p.Mprobe(ctx, want(source, tag), nil); err == nil {
					if o, err = p.Imrecv(m, b[:st.Bytes], nil, 0); err == nil {
						err = p.finish(ctx, o)
					}
				}
			case 2:
				if o, err = p.Irecv(b, nil, want(source, tag), nil); err == nil {
					if err = p.Wait(ctx, o); err == nil {
						st, err = p.Finish(o)
					}
				}
			default:
				st, err = p.Recv(ctx, b, nil, want(source, tag), nil)
			}
			if err != nil {
				return err
			}
			number := next[st.Source][st.Tag]
			next[st.Source][st.Tag] += 3
			if err := checkLetter(b[:st.Bytes], st.Source, st.Tag, number); err != nil {
				return err
			}
		}
		return nil
	})
}

// Cancels race arrivals: each message is received by exactly one of the receives
// that were not cancelled.
func TestCancelRacesArrivals(t *testing.T) {
	each(t, []int{2}, func(ctx context.Context, p *member) error {
		const messages = 300
		rnd := rand.New(rand.NewPCG(uint64(p.self.rank), 9))
		if p.self.rank == 0 {
			for i := range messages {
				if err := p.Send(ctx, letter(make([]byte, lengths[i%len(lengths)]), 0, 0, i), nil, p.env(0), 1); err != nil {
					return err
				}
			}
			return nil
		}
		for got := 0; got < messages; {
			b := make([]byte, 300000)
			o, err := p.Irecv(b, nil, want(0, 0), nil)
			if err != nil {
				return err
			}
			for range rnd.IntN(5) {
				p.Progress()
			}
			cancelled := rnd.IntN(2) == 0 && p.Cancel(o)
			if err := p.Wait(ctx, o); err != nil {
				return err
			}
			st, err := p.Finish(o)
			if cancelled != errors.Is(err, ErrCancelled) || !cancelled && err != nil {
				return fmt.Errorf("receive with Cancel %v: %v", cancelled, err)
			}
			if !cancelled {
				if err := checkLetter(b[:st.Bytes], 0, 0, got); err != nil {
					return err
				}
				got++
			}
		}
		return nil
	})
}

// A synchronous send is not done before its receive.
func TestSynchronous(t *testing.T) {
	each(t, []int{1, 2}, func(ctx context.Context, p *member) error {
		other := (p.self.rank + 1) % p.self.size
		for _, n := range lengths {
			o, err := p.Isend(letter(make([]byte, n), p.self.rank, 1, n), nil, p.env(1), other, Synchronous)
			if err != nil {
				return err
			}
			st, err := p.Probe(ctx, want(other, 1), nil)
			if err != nil {
				return err
			}
			if want := (Status{Source: other, Tag: 1, Bytes: n}); st != want {
				return fmt.Errorf("probe: %+v, want %+v", st, want)
			}
			p.meet()
			for range 20 {
				p.Progress()
			}
			if o.Done() {
				return fmt.Errorf("a synchronous send of %d bytes is done before its receive", n)
			}
			p.meet()
			b := make([]byte, n)
			if _, err := p.Recv(ctx, b, nil, want(other, 1), nil); err != nil {
				return err
			}
			if err := p.finish(ctx, o); err != nil {
				return err
			}
			if err := checkLetter(b, other, 1, n); err != nil {
				return err
			}
		}
		if err := p.SendMode(ctx, nil, nil, p.env(1), p.self.rank, Synchronous); !errors.Is(err, ErrSelf) {
			return fmt.Errorf("blocking synchronous send to itself: %v, want %v", err, ErrSelf)
		}
		return nil
	})
}

// A receive that is too short gets the beginning and an error with both sizes.
func TestTruncate(t *testing.T) {
	each(t, []int{1, 2}, func(ctx context.Context, p *member) error {
		other := (p.self.rank + 1) % p.self.size
		for _, n := range lengths[1:] {
			for _, room := range []int{0, n / 2, n - 1} {
				s, err := p.Isend(letter(make([]byte, n), p.self.rank, 1, n), nil, p.env(1), other, Standard)
				if err != nil {
					return err
				}
				b := make([]byte, room)
				st, err := p.Recv(ctx, b, nil, want(other, 1), nil)
				var te *TruncateError
				if !errors.As(err, &te) || *te != (TruncateError{Message: n, Buffer: room}) {
					return fmt.Errorf("%d bytes into %d: %v", n, room, err)
				}
				if want := (Status{Source: other, Tag: 1, Bytes: room}); st != want {
					return fmt.Errorf("status %+v, want %+v", st, want)
				}
				if err := checkLetter(b[:room/8*8], other, 1, n); err != nil {
					return err
				}
				if err := p.finish(ctx, s); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// Messages that come for a communicator after it was freed are refused.
func TestPurgeForGood(t *testing.T) {
	each(t, []int{2}, func(ctx context.Context, p *member) error {
		if p.self.rank == 1 {
			p.Purge(1)
			p.meet()
			err := p.Send(ctx, nil, nil, match.Envelope{Context: 2, Source: 1, Tag: 0}, 0)
			if err == nil {
				_, err = p.Recv(ctx, nil, nil, match.Envelope{Context: 2, Source: 0, Tag: 0}, nil)
			}
			if err == nil && p.self.peers[0].held != 0 {
				err = fmt.Errorf("%d bytes of a freed communicator are held", p.self.peers[0].held)
			}
			return err
		}
		p.meet()
		var ops []*Op
		for i, n := range []int{10, 5000, 300000} {
			for range 100 {
				o, err := p.Isend(make([]byte, n), nil, p.env(0), 1, modes[i%2])
				if err != nil {
					return err
				}
				ops = append(ops, o)
			}
		}
		for i, o := range ops {
			if err := p.Wait(ctx, o); err != nil {
				return err
			}
			refused := i >= 100
			if _, err := p.Finish(o); refused != errors.Is(err, ErrRefused) || !refused && err != nil {
				return fmt.Errorf("send %d: %v, refused: %v", i, err, refused)
			}
		}
		env := match.Envelope{Context: 2, Tag: 0}
		if _, err := p.Recv(ctx, nil, nil, match.Envelope{Context: 2, Source: 1, Tag: 0}, nil); err != nil {
			return err
		}
		return p.Send(ctx, nil, nil, env, 1)
	})
}

// When a peer has died all operations that concern it end, and no others.
func TestDeathEndsOperations(t *testing.T) {
	died := errors.New("it has died")
	each(t, []int{3}, func(ctx context.Context, p *member) error {
		if p.self.rank == 2 {
			p.meet()
			return errSilent
		}
		var dead, alive []*Op
		add := func(list *[]*Op, o *Op, err error) {
			if err != nil {
				p.t.Error(err)
			}
			*list = append(*list, o)
		}
		other := 1 - p.self.rank
		add3 := func(n int, mode Mode) {
			o, err := p.Isend(make([]byte, n), nil, p.env(8), 2, mode)
			add(&dead, o, err)
		}
		add3(10, Synchronous)
		for range ticketMax + 20 {
			add3(100000, Standard)
		}
		add3(10, Standard)
		o, err := p.Irecv(make([]byte, 8), nil, want(2, 1), nil)
		add(&dead, o, err)
		o, err = p.Irecv(make([]byte, 8), nil, want(match.Any, 2), nil)
		add(&dead, o, err)
		o, err = p.Irecv(make([]byte, 8), nil, want(match.Any, 3), []int32{0, 1})
		add(&alive, o, err)
		o, err = p.Irecv(make([]byte, 8), nil, want(other, 4), nil)
		add(&alive, o, err)
		p.meet()
		p.gone = func(peer int) error {
			if peer == 2 {
				return died
			}
			return nil
		}
		if err := p.WaitFor(ctx, allDone(dead)); err != nil {
			return err
		}
		for i, o := range dead {
			if _, err := p.Finish(o); !errors.Is(err, died) {
				return fmt.Errorf("operation %d: %v, want %v", i, err, died)
			}
		}
		for _, tag := range []int{3, 4} {
			if err := p.Send(ctx, nil, nil, p.env(tag), other); err != nil {
				return err
			}
		}
		if err := p.finish(ctx, alive...); err != nil {
			return err
		}
		if err := p.Send(ctx, nil, nil, p.env(0), 2); !errors.Is(err, died) {
			return fmt.Errorf("send to the dead: %v", err)
		}
		return nil
	})
}

type allDone []*Op

func (a allDone) Ready() bool {
	for _, o := range a {
		if !o.Done() {
			return false
		}
	}
	return true
}

// What a context ends takes nothing of others with it: an open receive goes on
// with those who are left.
func TestExpiredSend(t *testing.T) {
	// Under an adversary the peer learns of it by an ack timeout, after 8 s.
	over(t, transports[:3], []int{3}, func(ctx context.Context, p *member) error {
		switch p.self.rank {
		case 0:
			short, cancel := context.WithTimeout(ctx, 5*time.Millisecond)
			defer cancel()
			if err := p.Send(short, make([]byte, 100000), nil, p.env(1), 1); !errors.Is(err, context.DeadlineExceeded) {
				return fmt.Errorf("long send: %v", err)
			}
			p.meet()
		case 1:
			p.meet()
			for range 10 {
				p.Progress()
			}
			_, err := p.Recv(ctx, make([]byte, 8), nil, want(match.Any, 2), nil)
			return err
		case 2:
			p.meet()
			return p.Send(ctx, make([]byte, 8), nil, p.env(2), 1)
		}
		return nil
	})
}

// The peers are in no call while a notice is given, so one that needs a connection or credit
// stays in line; it comes behind what was sent before.
func TestNotifyWaitsForNobody(t *testing.T) {
	testenv.NoLeaks(t)
	for _, tr := range transports {
		for _, n := range []int{2, 5} {
			t.Run(fmt.Sprintf("%s/n=%d", tr.name, n), func(t *testing.T) {
				given := make(chan int, 1)
				runEngines(t, n, tr, func(ctx context.Context, p *member) error {
					if p.self.rank == 0 {
						before := 0
						for p.TrySend([]byte{1}, p.env(1), 1, Standard) && before < 10000 {
							before++
						}
						for d := 1; d < p.self.size; d++ {
							p.Notify(nil, p.env(1), d)
						}
						given <- before
						return p.Drain(ctx)
					}
					before := <-given
					given <- before
					got := []byte{0}
					for i := 0; p.self.rank == 1 && i < before; i++ {
						if st, err := p.Recv(ctx, got, nil, want(0, 1), nil); err != nil || st.Bytes != 1 {
							return fmt.Errorf("message %d of %d: %d bytes, %v", i, before, st.Bytes, err)
						}
					}
					if st, err := p.Recv(ctx, got, nil, want(0, 1), nil); err != nil || st.Bytes != 0 {
						return fmt.Errorf("the notice has %d bytes, %v", st.Bytes, err)
					}
					return nil
				})
			})
		}
	}
}
