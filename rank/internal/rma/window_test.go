package rma

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gorun-mpi/gorun/internal/kernel"
)

func sum(t *testing.T) kernel.Reduction {
	t.Helper()
	r, ok := kernel.For(kernel.Uint8, kernel.Sum)
	if !ok {
		t.Fatal("there is no sum of bytes")
	}
	return r
}

// Random puts, gets and sums of all lengths, small, larger than inline data and
// larger than the pool, out of memory that no region holds, against a model. Each
// origin has a part of each member's memory for itself, and all add to rank 0's last.
func TestAccesses(t *testing.T) {
	add := sum(t)
	for _, kind := range []Kind{Create, Allocate} {
		t.Run(fmt.Sprintf("kind %d", kind), func(t *testing.T) {
			each(t, []int{1, 3}, func(ctx context.Context, m *member) error {
				const part = 3 * poolSize
				size, me := m.g.Size, m.g.Rank
				w, err := m.window(ctx, kind, (size+1)*part)
				if err != nil {
					return err
				}
				model := make([][]byte, size)
				for i := range model {
					model[i] = make([]byte, part)
				}
				added := make([]byte, part) // by this rank to each member
				rnd := rand.New(rand.NewPCG(uint64(me), 5))
				type fetched struct{ have, want []byte }
				for round := range 40 {
					var gets []fetched
					for target := range size {
						at := rnd.IntN(part)
						n := min([]int{rnd.IntN(10), rnd.IntN(600), rnd.IntN(part), part}[rnd.IntN(4)], part-at)
						mine := model[target][at : at+n]
						off := uint64(me*part + at)
						switch rnd.IntN(3) {
						case 0:
							src := make([]byte, n)
							for i := range src {
								src[i] = byte(rnd.Uint32())
							}
							copy(mine, src)
							err = w.Put(target, off, src)
						case 1:
							f := fetched{make([]byte, n), slices.Clone(mine)}
							gets = append(gets, f)
							err = w.Get(target, off, f.have)
						default:
							src := bytes.Repeat([]byte{byte(round + 1)}, n)
							for i := range src {
								added[at+i] += src[i]
							}
							err = w.Accumulate(0, uint64(size*part+at), src, make([]byte, n), add)
						}
						if err = errors.Join(err, w.Flush(ctx, target)); err != nil {
							return fmt.Errorf("round %d, %d bytes at %d of rank %d: %w", round, n, at, target, err)
						}
					}
					for _, f := range gets {
						if !bytes.Equal(f.have, f.want) {
							return fmt.Errorf("round %d: a get of %d bytes brought others", round, len(f.have))
						}
					}
				}
				m.meet()
				for target := range size {
					got := make([]byte, part)
					if err := errors.Join(w.Get(target, uint64(me*part), got), w.Flush(ctx, target)); err != nil {
						return err
					}
					if !bytes.Equal(got, model[target]) {
						return fmt.Errorf("the memory of rank %d is not what was put", target)
					}
				}
				all := make([]byte, size*part)
				copy(all[me*part:], added)
				if err := m.g.AllGather(ctx, all, part); err != nil {
					return err
				}
				if me == 0 {
					for i, v := range w.Mem()[size*part:] {
						want := byte(0)
						for r := range size {
							want += all[r*part+i]
						}
						if v != want {
							return fmt.Errorf("the sum at %d is %d, want %d", i, v, want)
						}
					}
				}
				m.meet()
				return w.Close()
			})
		})
	}
}

// Epochs of post and start, and all locks, over devices without inline data.
func TestSynchronisation(t *testing.T) {
	each(t, []int{2, 3}, func(ctx context.Context, m *member) error {
		w, err := m.window(ctx, Create, 16)
		if err != nil {
			return err
		}
		size, me := m.g.Size, m.g.Rank
		left, right := []int{(me + size - 1) % size}, []int{(me + 1) % size}
		for round := range 20 {
			v := byte(10*round + me)
			if err := errors.Join(w.Post(left), w.Start(ctx, right), w.Put(right[0], 0, []byte{v}), w.Complete(ctx), w.Wait(ctx)); err != nil {
				return err
			}
			if got, want := w.Mem()[0], byte(10*round+left[0]); got != want {
				return fmt.Errorf("round %d: %d is there, want %d", round, got, want)
			}
		}
		b := make([]byte, 1)
		for i := range 30 {
			exclusive := i%3 != 0
			if err := errors.Join(w.Lock(ctx, 0, exclusive), w.Get(0, 1, b), w.Flush(ctx, 0)); err != nil {
				return err
			}
			if exclusive {
				b[0]++
				err = w.Put(0, 1, b)
			}
			if err := errors.Join(err, w.Unlock(ctx, 0, exclusive)); err != nil {
				return err
			}
		}
		m.meet()
		if me == 0 && w.Mem()[1] != byte(20*size) {
			return fmt.Errorf("%d is counted under locks, want %d", w.Mem()[1], 20*size)
		}
		m.meet()
		return w.Close()
	})
}

// A window that is given up while its queue pairs are connected, on one member
// before that and on the others after, does not spoil the next.
func TestGivenUp(t *testing.T) {
	each(t, []int{1, 3}, func(ctx context.Context, m *member) error {
		size, me := m.g.Size, m.g.Rank
		late := errors.New("too late")
		for failing := range size {
			if failing == me {
				m.broken = late
			}
			_, err := m.window(ctx, Create, size)
			m.broken = nil
			if failing == me {
				if !errors.Is(err, late) {
					return fmt.Errorf("the exchange fails, and New says %v", err)
				}
			} else if e, ok := errors.AsType[*MemberError](err); !ok || e.Member != failing {
				return fmt.Errorf("rank %d has failed, and New says %v", failing, err)
			}
		}
		w, err := m.window(ctx, Create, size)
		if err != nil {
			return err
		}
		for target := range size {
			if err := errors.Join(w.Put(target, uint64(me), []byte{byte(me + 1)}), w.Flush(ctx, target)); err != nil {
				return err
			}
		}
		m.meet()
		for i, v := range w.Mem() {
			if v != byte(i+1) {
				return fmt.Errorf("rank %d has put %d", i, v)
			}
		}
		m.meet()
		return w.Close()
	})
}
