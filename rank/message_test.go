package rank_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rank"
	"github.com/gorun-mpi/gorun/rank/ranktest"
)

// lengths of messages, around what is sent inline, at once and by announcement.
var lengths = []int{0, 1, 8, 239, 240, 241, 500, 4031, 4032, 4033, 20000, 300000}

// letter fills a message so that its source, tag and number can be read.
func letter(b []byte, src, tag, number int) []byte {
	for i := range b {
		b[i] = byte(src*101 + tag*37 + number*11 + i)
	}
	return b
}

func checkLetter(b []byte, src, tag, number int) error {
	want := letter(make([]byte, len(b)), src, tag, number)
	return diff(fmt.Sprintf("message %d of rank %d with tag %d", number, src, tag), b, want)
}

func TestSendRecvLengths(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Each(t, []int{2, 3}, func(ctx context.Context, c *rank.Comm) error {
		// Around the ring: rank 0 starts, so that no rank waits for itself.
		next, before := (c.Rank()+1)%c.Size(), (c.Rank()+c.Size()-1)%c.Size()
		for round, n := range lengths {
			out, err := make1[byte](c, n, round)
			if err != nil {
				return err
			}
			in, err := make1[byte](c, n+round%3, round/2) // sometimes with room to spare
			if err != nil {
				return err
			}
			letter(out, c.Rank(), round, n)
			if c.Rank() == 0 {
				if err := rank.Send(ctx, c, out, next, round); err != nil {
					return err
				}
			}
			st, err := rank.Recv(ctx, c, in, before, round)
			if err != nil {
				return err
			}
			if want := (rank.Status{Source: before, Tag: round, Count: n, Bytes: n}); st != want {
				return fmt.Errorf("status %+v, want %+v", st, want)
			}
			if err := checkLetter(in[:n], before, round, n); err != nil {
				return err
			}
			if c.Rank() != 0 {
				if err := rank.Send(ctx, c, out, next, round); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

func TestSendrecv(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Each(t, []int{1, 2, 5}, func(ctx context.Context, c *rank.Comm) error {
		next, before := (c.Rank()+1)%c.Size(), (c.Rank()+c.Size()-1)%c.Size()
		for round, n := range lengths {
			out, in := letter(make([]byte, n), c.Rank(), 1, round), make([]byte, n)
			st, err := rank.Sendrecv(ctx, c, out, next, 5, in, before, rank.AnyTag)
			if err != nil {
				return err
			}
			if want := (rank.Status{Source: before, Tag: 5, Count: n, Bytes: n}); st != want {
				return fmt.Errorf("status %+v, want %+v", st, want)
			}
			if err := checkLetter(in, before, 1, round); err != nil {
				return err
			}
		}
		return nil
	})
}

// Everybody floods rank 0, which takes what comes: nothing is lost, and what one
// rank sends stays in order, short messages and long ones alike.
func TestFlood(t *testing.T) {
	testenv.NoLeaks(t)
	const messages = 300
	ranktest.Each(t, []int{2, 4}, func(ctx context.Context, c *rank.Comm) error {
		if c.Rank() > 0 {
			rnd := rand.New(rand.NewPCG(uint64(c.Rank()), 3))
			for i := range messages {
				n := 4 + lengths[rnd.IntN(len(lengths))]
				b := letter(make([]byte, n), c.Rank(), i%3, i)
				if err := rank.Send(ctx, c, b, 0, i%3); err != nil {
					return err
				}
			}
			return nil
		}
		got := make([]int, c.Size())
		b := make([]byte, 400000)
		for range messages * (c.Size() - 1) {
			st, err := rank.Recv(ctx, c, b, rank.AnySource, rank.AnyTag)
			if err != nil {
				return err
			}
			number := got[st.Source]
			got[st.Source]++
			if st.Tag != number%3 {
				return fmt.Errorf("message %d of rank %d has tag %d, want %d: overtaken", number, st.Source, st.Tag, number%3)
			}
			if err := checkLetter(b[:st.Count], st.Source, st.Tag, number); err != nil {
				return err
			}
		}
		return nil
	})
}

// Short messages wait for the receive that asks for them, in any order.
func TestUnexpected(t *testing.T) {
	testenv.NoLeaks(t)
	const tags = 60
	ranktest.Each(t, []int{2, 3}, func(ctx context.Context, c *rank.Comm) error {
		// All send before anybody receives: eager messages do not wait.
		for dst := range c.Size() {
			for tag := range tags {
				if err := rank.Send(ctx, c, letter(make([]byte, 100+tag), c.Rank(), tag, 0), dst, tag); err != nil {
					return err
				}
			}
		}
		rnd := rand.New(rand.NewPCG(uint64(c.Rank()), 8))
		b := make([]byte, 200)
		for _, i := range rnd.Perm(c.Size() * tags) {
			src, tag := i/tags, i%tags
			st, err := rank.Recv(ctx, c, b, src, tag)
			if err != nil {
				return err
			}
			if want := (rank.Status{Source: src, Tag: tag, Count: 100 + tag, Bytes: 100 + tag}); st != want {
				return fmt.Errorf("status %+v, want %+v", st, want)
			}
			if err := checkLetter(b[:st.Count], src, tag, 0); err != nil {
				return err
			}
		}
		return nil
	})
}

// A flood that nobody has asked for yet leaves room for messages that are.
func TestFloodBesideTraffic(t *testing.T) {
	testenv.NoLeaks(t)
	const floods, length, asked = 270, 4000, 200 // the last of more than 1 MiB are held back
	ranktest.Each(t, []int{2}, func(ctx context.Context, c *rank.Comm) error {
		if c.Rank() == 1 {
			for i := range floods {
				if err := rank.Send(ctx, c, letter(make([]byte, length), 1, 1, i), 0, 1); err != nil {
					return err
				}
			}
			for i := range asked {
				if err := rank.Send(ctx, c, letter(make([]byte, 10), 1, 2, i), 0, 2); err != nil {
					return err
				}
			}
			return nil
		}
		b := make([]byte, length)
		for i := range asked {
			if _, err := rank.Recv(ctx, c, b, 1, 2); err != nil {
				return err
			}
			if err := checkLetter(b[:10], 1, 2, i); err != nil {
				return err
			}
		}
		for i := range floods {
			if _, err := rank.Recv(ctx, c, b, 1, 1); err != nil {
				return err
			}
			if err := checkLetter(b, 1, 1, i); err != nil {
				return err
			}
		}
		return nil
	})
}

// A message that does not fit is told in elements of the buffer's type too, however
// it is received.
func TestTruncateTellsElements(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Run(t, 2, func(ctx context.Context, c *rank.Comm) error {
		if c.Rank() == 1 {
			for range 3 {
				if err := rank.Send(ctx, c, make([]float64, 100), 0, 0); err != nil {
					return err
				}
			}
			return rank.Send(ctx, c, make([]byte, 801), 0, 0)
		}
		b := make([]float64, 50)
		_, recv := rank.Recv(ctx, c, b, 1, 0)
		q, err := rank.Irecv(c, b, 1, 0)
		if err != nil {
			return err
		}
		_, irecv := q.Wait(ctx)
		_, exchange := rank.Sendrecv(ctx, c, []float64{1}, rank.ProcNull, 0, b, 1, 0)
		for _, err := range []error{recv, irecv, exchange} {
			if err == nil || !strings.Contains(err.Error(), "of 800 bytes (100 of float64)") || !strings.HasSuffix(err.Error(), "of 400 bytes (50 of float64)") {
				return fmt.Errorf("error %v", err)
			}
		}
		if _, err := rank.Recv(ctx, c, b, 1, 0); err == nil || !strings.Contains(err.Error(), "of 801 bytes ") || !strings.HasSuffix(err.Error(), "of 400 bytes (50 of float64)") {
			return fmt.Errorf("error %v", err)
		}
		return nil
	})
}

func TestTruncate(t *testing.T) {
	testenv.NoLeaks(t)
	for _, n := range []int{3000, 100000} {
		ranktest.Run(t, 2, func(ctx context.Context, c *rank.Comm) error {
			if c.Rank() == 1 {
				if err := rank.Send(ctx, c, letter(make([]byte, n), 1, 0, 0), 0, 0); err != nil {
					return err
				}
				return rank.Send(ctx, c, []byte{42}, 0, 0)
			}
			b := make([]byte, 1000)
			_, err := rank.Recv(ctx, c, b, 1, 0)
			te, ok := errors.AsType[*rank.TruncateError](err)
			if !ok || te.Message != n || te.Buffer != 1000 {
				return fmt.Errorf("error %v, want a truncation of %d to 1000 bytes", err, n)
			}
			if err := checkLetter(b, 1, 0, 0); err != nil {
				return err
			}
			// The message is consumed, and the connection lives.
			if _, err := rank.Recv(ctx, c, b, 1, 0); err != nil || b[0] != 42 {
				return fmt.Errorf("the message after: %d, %v; want 42", b[0], err)
			}
			return nil
		})
	}
}

// Messages, collectives and communicators in random order.
func TestMessagesBetweenCollectives(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Each(t, []int{3}, func(ctx context.Context, c *rank.Comm) error {
		rnd := rand.New(rand.NewPCG(4, 4)) // the same on all ranks
		for round := range 40 {
			from, to, n := rnd.IntN(c.Size()), rnd.IntN(c.Size()), lengths[rnd.IntN(len(lengths))]
			if c.Rank() == from {
				if err := rank.Send(ctx, c, letter(make([]byte, n), from, 0, round), to, round); err != nil {
					return err
				}
			}
			if round%4 == 0 && n < 4000 { // the message passes the barrier unreceived
				if err := rank.Barrier(ctx, c); err != nil {
					return err
				}
			}
			if c.Rank() == to {
				b := make([]byte, n)
				if _, err := rank.Recv(ctx, c, b, from, round); err != nil {
					return err
				}
				if err := checkLetter(b, from, 0, round); err != nil {
					return err
				}
			}
			if err := reductions[int32](ctx, c, rank.Sum, 10, round); err != nil {
				return err
			}
		}
		return nil
	})
}
