package rank_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rank"
	"github.com/gorun-mpi/gorun/rank/ranktest"
)

// exchangeOn sends a value to the partner of each communicator, all at once, and wants
// that of the partner, on the communicator on which it was sent.
func exchangeOn(ctx context.Context, p *place, comms []*rank.Comm) error {
	src, dst := p.partners()
	if src == rank.ProcNull {
		return nil
	}
	var reqs []rank.Request
	got := make([]int, len(comms))
	for i, c := range comms {
		in, err := rank.Irecv(c, got[i:i+1], rank.AnySource, rank.AnyTag)
		if err != nil {
			return err
		}
		reqs = append(reqs, in)
	}
	for i, c := range slices.Backward(comms) {
		out, err := rank.Isend(c, []int{1000*p.id + i}, dst, i)
		if err != nil {
			return err
		}
		reqs = append(reqs, out)
	}
	if err := rank.WaitAll(ctx, reqs, nil); err != nil {
		return err
	}
	for i, v := range got {
		if v != 1000*p.far[src]+i {
			return fmt.Errorf("communicator %d brings %d, want %d", i, v, 1000*p.far[src]+i)
		}
	}
	return nil
}

// Several duplications at once, among other collectives, of communicators of all
// kinds, waited for in another order.
func TestIdup(t *testing.T) {
	eachPlace(t, func(ctx context.Context, p *place) error {
		first, q1, err := p.Idup()
		if err != nil {
			return err
		}
		if err := rank.Barrier(ctx, first); !p.IsInter() && p.Size() > 1 && err == nil {
			return errors.New("a communicator that is not made yet has a barrier")
		} else if err != nil && !errors.Is(err, rank.ErrUnfinished) {
			return err
		}
		sum := []int{0}
		q2, err := p.Iallreduce(rank.Of([]int{p.id}), rank.Of(sum), rank.Sum)
		if err != nil {
			return err
		}
		second, q3, err := p.Idup()
		if err != nil {
			return err
		}
		if _, err := q3.Wait(ctx); err != nil {
			return err
		}
		third, err := second.Dup(ctx) // of one whose sibling may not be done
		if err != nil {
			return err
		}
		if err := rank.WaitAll(ctx, []rank.Request{q2, q1}, nil); err != nil {
			return err
		}
		want := 0
		for _, id := range p.far {
			want += id
		}
		if sum[0] != want {
			return fmt.Errorf("the sum is %d, want %d", sum[0], want)
		}
		if first.Topology() != p.Topology() || rank.Compare(first, p.Comm) != rank.Congruent {
			return errors.New("the new communicator is not like the old one")
		}
		comms := []*rank.Comm{p.Comm, first, second, third}
		if err := exchangeOn(ctx, p, comms); err != nil {
			return err
		}
		for _, d := range comms[1:] {
			if err := errors.Join(rank.Barrier(ctx, d), d.Free(ctx)); err != nil {
				return err
			}
		}
		return nil
	})
}

// While a duplication is under way, some ranks make other communicators, and so use up
// the number that was proposed for it.
func TestIdupNumbersCollide(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Each(t, []int{2, 3, 8}, func(ctx context.Context, c *rank.Comm) error {
		half, err := c.Split(ctx, c.Rank()%2, 0)
		if err != nil {
			return err
		}
		p := intra("world", c)
		for round := range 4 {
			comms, others, reqs := []*rank.Comm{c}, []*rank.Comm{}, []rank.Request{}
			for i := range 3 {
				d, q, err := c.Idup()
				if err != nil {
					return err
				}
				comms, reqs = append(comms, d), append(reqs, q)
				if c.Rank()%2 == (i+round)%2 {
					for range 1 + i {
						e, err := half.Dup(ctx)
						if err != nil {
							return err
						}
						others = append(others, e)
					}
				}
			}
			if err := rank.WaitAll(ctx, reqs, nil); err != nil {
				return err
			}
			if err := exchangeOn(ctx, p, comms); err != nil {
				return fmt.Errorf("round %d: %w", round, err)
			}
			for _, d := range append(comms[1:], others...) {
				if err := d.Free(ctx); err != nil {
					return err
				}
			}
		}
		// One that nobody waits for ends with the world.
		_, _, err = c.Idup()
		return err
	})
}

// Attributes are copied when the call is made; a callback that fails is told when the
// request is waited for, on its rank, and on the others who has failed.
func TestIdupAttributes(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Each(t, []int{1, 3}, func(ctx context.Context, c *rank.Comm) error {
		broken, refuse := errors.New("no copy"), false
		gone := 0
		key := rank.NewKeyval(func(_ *rank.Comm, v int) (int, bool, error) {
			if refuse {
				return 0, false, broken
			}
			return v + 1, true, nil
		}, func(*rank.Comm, int) error { gone++; return nil })
		if err := key.Set(c, 1); err != nil {
			return err
		}
		d, q, err := c.Idup()
		if err != nil {
			return err
		}
		if err := key.Set(c, 5); err != nil { // afterwards
			return err
		}
		if _, err := q.Wait(ctx); err != nil {
			return err
		}
		if v, found := key.Get(d); !found || v != 2 {
			return fmt.Errorf("the copy has %d, %v, want 2", v, found)
		}
		if err := d.Free(ctx); err != nil || gone != 2 {
			return fmt.Errorf("free: %v, %d attributes are gone", err, gone)
		}
		refuse = c.Rank() == 0
		if d, q, err = c.Idup(); err != nil {
			return err
		}
		_, err = q.Wait(ctx)
		e, ok := errors.AsType[*rank.Error](err)
		if !ok || refuse != errors.Is(err, broken) || !refuse && e.Peer != 0 {
			return fmt.Errorf("a callback that fails on rank 0: %v", err)
		}
		if err = rank.Barrier(ctx, d); !errors.Is(err, rank.ErrFreed) {
			return fmt.Errorf("a communicator that was not made: %v", err)
		}
		return errors.Join(rank.Barrier(ctx, c), key.Delete(c))
	})
}
