package rank_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rank"
	"github.com/gorun-mpi/gorun/rank/ranktest"
)

// halfFull is a buffer of n items with gaps between them, and what reads item i.
func halfFull(n int, packed bool) (b rank.Buffer, item func(i int) *int64, err error) {
	if packed {
		s := make([]int64, n)
		return rank.Of(s), func(i int) *int64 { return &s[i] }, nil
	}
	t, err := rank.TypeFor[int64]()
	if err == nil {
		t, err = rank.Resized(t, 0, 16)
	}
	s := make([]int64, 2*n)
	return rank.Typed(s, n, t), func(i int) *int64 { return &s[2*i] }, err
}

// Partitions of both sides in many proportions, ready in any order, started again and
// again, two pairs of the same tag at once: each tells rightly what has come.
func TestPartitions(t *testing.T) {
	eachPlace(t, func(ctx context.Context, p *place) error {
		src, dst := p.partners()
		rnd := rand.New(rand.NewPCG(uint64(p.id), 3))
		for at, k := range []struct {
			items, out, in int
			packed         bool
		}{{24, 1, 1, true}, {24, 4, 2, true}, {24, 3, 8, false}, {0, 3, 2, true}, {2400, 8, 1, true}, {24000, 1, 6, true}, {24000, 12, 5, false}} {
			if (testing.Short() || p.World().Comm().Size() > 5) && at%3 != 2 {
				continue
			}
			var out, in [2]rank.Request
			var sent, got [2]func(int) *int64
			for i := range 2 {
				for _, send := range []bool{i == 0, i != 0} {
					b, item, err := halfFull(k.items, k.packed == send)
					if err != nil {
						return err
					}
					if send {
						sent[i] = item
						out[i], err = p.PsendInit(b, k.out, dst, at)
					} else {
						got[i] = item
						in[i], err = p.PrecvInit(b, k.in, src, at)
					}
					if err != nil {
						return err
					}
				}
			}
			for round := range 2 {
				value := func(id, i, at int) int64 { return int64(id)<<40 + int64(round)<<36 + int64(i)<<32 + int64(at) }
				if err := rank.StartAll([]rank.Request{out[0], in[1], out[1], in[0]}); err != nil {
					return err
				}
				for i := range 2 {
					for at := range k.items {
						*sent[i](at) = value(p.id, i, at)
					}
					order := rnd.Perm(k.out)
					if err := errors.Join(out[i].PreadyList(order[:len(order)/2])); err != nil {
						return err
					}
					for _, at := range order[len(order)/2:] {
						if err := out[i].Pready(at); err != nil {
							return err
						}
					}
				}
				for _, i := range rnd.Perm(2) {
					for _, part := range rnd.Perm(k.in) {
						for arrived := false; !arrived; {
							var err error
							if arrived, err = in[i].Parrived(part); err != nil {
								return err
							}
							if err := ctx.Err(); err != nil {
								return err
							}
						}
						for at := part * k.items / k.in; src != rank.ProcNull && at < (part+1)*k.items/k.in; at++ {
							if want := value(p.far[src], i, at); *got[i](at) != want {
								return fmt.Errorf("%+v, round %d: item %d of partition %d is %#x, want %#x", k, round, at, part, *got[i](at), want)
							}
						}
					}
					st, err := in[i].Wait(ctx)
					if err != nil || src != rank.ProcNull && (st.Source != src || st.Tag != at || st.Bytes != 8*k.items) {
						return fmt.Errorf("%+v: status %+v, %v", k, st, err)
					}
				}
				if err := rank.WaitAll(ctx, out[:], nil); err != nil {
					return err
				}
			}
			for i := range 2 {
				if err := errors.Join(out[i].Free(), in[i].Free()); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// A partition is there before the others are ready, and none that was not.
func TestPartitionsComeOneByOne(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Each(t, []int{2}, func(ctx context.Context, c *rank.Comm) error {
		const parts, each = 5, 3000
		b := make([]int32, parts*each)
		if c.Rank() == 0 {
			q, err := rank.PsendInit(c, b, parts, 1, 7)
			if err == nil {
				err = q.Start()
			}
			for _, i := range []int{3, 0, 4, 1, 2} {
				for j := range each {
					b[i*each+j] = int32(i*each + j)
				}
				// The receiver says when it has this one, and has seen no other.
				if err = errors.Join(err, q.PreadyRange(i, i), rank.Barrier(ctx, c)); err != nil {
					return err
				}
			}
			if _, err = q.Wait(ctx); err != nil {
				return err
			}
			return q.Free()
		}
		q, err := rank.PrecvInit(c, b, parts, 0, 7)
		if err == nil {
			err = q.Start()
		}
		if err != nil {
			return err
		}
		here := map[int]bool{}
		for _, i := range []int{3, 0, 4, 1, 2} {
			for here[i] = true; ; {
				arrived, err := q.Parrived(i)
				if err != nil || ctx.Err() != nil {
					return errors.Join(err, ctx.Err())
				}
				if arrived {
					break
				}
			}
			for j := range parts {
				arrived, err := q.Parrived(j)
				if err != nil || arrived != here[j] {
					return fmt.Errorf("partition %d: %v, %v, want %v", j, arrived, err, here[j])
				}
			}
			if b[i*each+each-1] != int32(i*each+each-1) {
				return fmt.Errorf("partition %d is not whole", i)
			}
			if err := rank.Barrier(ctx, c); err != nil {
				return err
			}
		}
		if _, err = q.Wait(ctx); err != nil {
			return err
		}
		return q.Free()
	})
}

// Mistakes are errors where they are made; sides that do not fit an error of the
// receiver, and the sender is not kept.
func TestPartitionFaults(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Each(t, []int{2}, func(ctx context.Context, c *rank.Comm) error {
		other := 1 - c.Rank()
		b := make([]byte, 60)
		for name, f := range map[string]func() error{
			"no partition":  func() error { _, err := rank.PsendInit(c, b, 0, other, 0); return err },
			"uneven":        func() error { _, err := rank.PrecvInit(c, b, 7, other, 0); return err },
			"no rank":       func() error { _, err := rank.PsendInit(c, b, 2, 2, 0); return err },
			"any source":    func() error { _, err := rank.PrecvInit(c, b, 2, rank.AnySource, 0); return err },
			"any tag":       func() error { _, err := rank.PrecvInit(c, b, 2, other, rank.AnyTag); return err },
			"no partitions": func() error { return rank.Request{}.Pready(0) },
			"another request": func() error {
				q, err := rank.SendInit(c, b, other, 0)
				if err != nil {
					return nil
				}
				err = q.Pready(0)
				return errors.Join(err, q.Free())
			},
		} {
			if err := f(); err == nil {
				return fmt.Errorf("%s: no error", name)
			}
		}
		for _, lengths := range [][2]int{{60, 30}, {30, 60}, {60000, 30000}, {30000, 60000}, {60, 60}} {
			if c.Rank() == 0 {
				q, err := rank.PsendInit(c, make([]byte, lengths[0]), 3, 1, 1)
				if err != nil {
					return err
				}
				if q.Pready(0) == nil {
					return errors.New("ready before it was started")
				}
				if err := errors.Join(q.Start(), q.PreadyRange(0, 1)); err != nil {
					return err
				}
				if q.Pready(1) == nil || q.Pready(3) == nil || q.Pready(-1) == nil {
					return errors.New("ready twice, or not there")
				}
				if _, err := q.Parrived(0); err == nil {
					return errors.New("a send has arrived")
				}
				if err := q.Pready(2); err != nil {
					return err
				}
				if _, err := q.Wait(ctx); err != nil {
					return err
				}
				if err := q.Free(); err != nil {
					return err
				}
				continue
			}
			q, err := rank.PrecvInit(c, make([]byte, lengths[1]), 2, 0, 1)
			if err != nil {
				return err
			}
			if arrived, err := q.Parrived(1); !arrived || err != nil {
				return fmt.Errorf("of an inactive request: %v, %v", arrived, err)
			}
			if err := q.Start(); err != nil {
				return err
			}
			if _, err := q.Parrived(2); err == nil {
				return errors.New("partition 2 of 2 has arrived")
			}
			_, err = q.Wait(ctx)
			var truncated *rank.TruncateError
			switch {
			case lengths[0] > lengths[1] && (!errors.As(err, &truncated) || truncated.Message != lengths[0] || truncated.Buffer != lengths[1]),
				lengths[0] < lengths[1] && !errors.Is(err, rank.ClassCount), lengths[0] == lengths[1] && err != nil:
				return fmt.Errorf("%v: %v", lengths, err)
			}
			if err := q.Free(); err != nil {
				return err
			}
		}
		// What was started and is not over does not keep the world.
		var q rank.Request
		var err error
		if c.Rank() == 0 {
			q, err = rank.PsendInit(c, b, 3, 1, 2)
		} else {
			q, err = rank.PrecvInit(c, b, 3, 0, 3) // which nobody sends
		}
		return errors.Join(err, q.Start())
	})
}
