package rma

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/kernel"
	"github.com/gorun-mpi/gorun/rdma"
)

// A reader who met a writer goes before the next one, however often that one tries; one
// who has died or given up does not.
func TestReadersTurn(t *testing.T) {
	each(t, []int{3}, func(ctx context.Context, m *member) error {
		w, err := m.window(ctx, Allocate, 8)
		if err != nil {
			return err
		}
		me, l := m.g.Rank, &w.remotes[0]
		step := func(who int, f func() error) {
			if err == nil && who == me {
				err = errors.Join(f(), w.Flush(ctx, 0))
			}
			m.meet()
		}
		writes := func(want, looking bool) error {
			for range 20 {
				ok, holder, err := w.tryExclusive(l, looking)
				if ok != want || err != nil || !ok && holder != 2 {
					return fmt.Errorf("a writer: %v, %v, rank %d has it", ok, err, holder)
				}
				if ok {
					break
				}
			}
			return nil
		}
		reads := func(want, again bool) error {
			ok, holder, err := w.tryShared(l, again)
			if ok != want || err != nil || !ok && holder != 1 {
				return fmt.Errorf("a reader: %v, %v, rank %d has it", ok, err, holder)
			}
			return nil
		}
		m.gone = func(rank int) error {
			if rank == 2 {
				return errors.New("it has died")
			}
			return nil
		}
		for range 3 {
			step(1, func() error { return w.Lock(ctx, 0, true) })
			step(2, func() error { return reads(false, false) })
			step(1, func() error { return w.Unlock(ctx, 0, true) })
			step(0, func() error { return writes(false, false) })
			step(2, func() error { return reads(true, true) })
			step(0, func() error { return writes(true, false) })
			step(0, func() error {
				if ok, holder, err := w.drained(l, readerHolds, false); ok || holder != 2 || err != nil {
					return fmt.Errorf("while one reads: %v, %d, %v", ok, holder, err)
				}
				return nil
			})
			step(2, func() error { return w.Unlock(ctx, 0, false) })
			step(0, func() error {
				if ok, holder, err := w.drained(l, readerHolds, false); !ok || err != nil {
					return fmt.Errorf("when it does not any more: %v, %d, %v", ok, holder, err)
				}
				l.owned = true
				return w.Unlock(ctx, 0, true)
			})
			// One that gives up.
			step(1, func() error { return w.Lock(ctx, 0, true) })
			step(2, func() error {
				short, cancel := context.WithTimeout(ctx, 3*time.Millisecond)
				defer cancel()
				if err := w.Lock(short, 0, false); !errors.Is(err, context.DeadlineExceeded) {
					return fmt.Errorf("a lock that is held: %v", err)
				}
				return nil
			})
			step(1, func() error { return w.Unlock(ctx, 0, true) })
			step(0, func() error { return errors.Join(writes(true, false), w.Unlock(ctx, 0, true)) })
		}
		// One that dies.
		step(1, func() error { return w.Lock(ctx, 0, true) })
		step(2, func() error { return reads(false, false) })
		step(1, func() error { return w.Unlock(ctx, 0, true) })
		step(0, func() error { return errors.Join(writes(false, false), writes(true, true)) })
		return errors.Join(err, w.Close())
	})
}

// Single elements of all sorts, vectors across them and swaps, all at once, of all
// members: nothing is lost.
func TestSinglesAndVectors(t *testing.T) {
	find := func(t kernel.Type, op kernel.Op) kernel.Reduction {
		r, _ := kernel.For(t, op)
		return r
	}
	ints, halves, floats := find(kernel.Int64, kernel.Sum), find(kernel.Int32, kernel.Sum), find(kernel.Float64, kernel.Sum)
	bits, replace := find(kernel.Uint32, kernel.BOr), find(kernel.Int64, kernel.Replace)
	word := func(v uint64) []byte { return binary.NativeEndian.AppendUint64(nil, v) }
	each(t, []int{1, 4}, func(ctx context.Context, m *member) error {
		const rounds = 200
		size, me := m.g.Size, m.g.Rank
		// sum, sum of halves, sum of floats, bits, swapped, unaligned, last of all
		w, err := m.window(ctx, Allocate, 7*8)
		if err != nil {
			return err
		}
		one := floats64(1)
		vector := slices.Concat(word(1), word(1<<32|1))
		last, result := uint64(0), make([]byte, 8)
		turn := 0 // every second access tries before it waits
		accumulate := func(member int, off uint64, src, result []byte, op kernel.Reduction) error {
			if turn++; turn%2 == 0 && w.TryAccumulate(member, int(off), src, result, &op) {
				return nil
			}
			return w.Accumulate(member, off, src, result, op)
		}
		swap := func(off uint64, value, compare, result []byte) error {
			if turn++; turn%2 == 0 && w.TryCompareAndSwap(0, int(off), value, compare, result) {
				return nil
			}
			return w.CompareAndSwap(0, off, value, compare, result)
		}
		for i := range rounds {
			err := errors.Join(
				accumulate(0, 0, word(1), result, ints),
				accumulate(0, 8, word(1)[:4], nil, halves), accumulate(0, 12, word(1)[:4], nil, halves),
				accumulate(0, 16, one, nil, floats),
				accumulate(0, 24, word(1 << (me*7 + i%7))[:4], nil, bits),
				accumulate(0, 42, word(3)[:4], nil, halves), // unaligned
				accumulate(0, 48, word(uint64(me+1)), nil, replace),
				accumulate(0, 0, vector[:8], nil, ints),
			)
			if err == nil {
				var v [16]byte
				copy(v[:], vector)
				err = accumulate(0, 0, v[:], nil, halves) // two elements and more: a vector
			}
			if got := binary.NativeEndian.Uint64(result); err == nil && got < last {
				err = fmt.Errorf("the sum goes from %d down to %d", last, got)
			} else {
				last = got
			}
			for err == nil { // counts by swaps
				var before [8]byte
				if err = accumulate(0, 32, nil, before[:], ints); err != nil {
					break
				}
				old := binary.NativeEndian.Uint64(before[:])
				if err = swap(32, word(old+1), word(old), result); err != nil || binary.NativeEndian.Uint64(result) == old {
					break
				}
			}
			if err != nil {
				return err
			}
		}
		m.meet()
		if me == 0 {
			n, got := uint64(rounds*size), w.Mem()
			at := func(i int) uint64 { return binary.NativeEndian.Uint64(got[i:]) }
			all := uint64(0)
			for r := range size {
				all |= 127 << (7 * r)
			}
			if at(0) != 3*n || at(8) != 2*n<<32|2*n || string(got[16:24]) != string(floats64(float64(n))) || at(24) != all ||
				at(32) != n || binary.NativeEndian.Uint32(got[42:]) != uint32(3*n) || at(48) < 1 || at(48) > uint64(size) {
				return fmt.Errorf("%d rounds gave % x", n, got)
			}
		}
		return w.Close()
	})
}

// A member that stands at a single element keeps vectors out; its death lets them in.
func TestDeathAtASingle(t *testing.T) {
	add := sum(t)
	run(t, 2, transports[0], func(ctx context.Context, m *member) error {
		w, err := m.window(ctx, Allocate, 16)
		if err != nil {
			return err
		}
		if m.g.Rank == 1 {
			if !w.announce(&w.remotes[0]) {
				return errors.New("nobody has the lock, and the announcement fails")
			}
			m.meet()
			m.meet()
			return w.Close()
		}
		m.meet()
		m.patience = 20 * time.Millisecond
		vector := []byte{1, 2, 3}
		if e, ok := errors.AsType[*MemberError](w.Accumulate(0, 0, vector, nil, add)); !ok || e.Member != 1 || !errors.Is(e, ErrStopped) {
			return fmt.Errorf("a vector beside a single that does not go on: %v", e)
		}
		m.gone = func(rank int) error {
			if rank == 1 {
				return errors.New("it has died")
			}
			return nil
		}
		if err := w.Accumulate(0, 0, vector, nil, add); err != nil || w.Mem()[2] != 3 {
			return fmt.Errorf("a vector beside a dead one: %v, %v", err, w.Mem()[:3])
		}
		m.meet()
		return w.Close()
	})
}

// What needs no request tells of a death as soon as the word of the dead says so.
func TestMarkOfTheDead(t *testing.T) {
	add := sum(t)
	run(t, 2, transports[0], func(ctx context.Context, m *member) error {
		m.mark = new(uint32)
		w, err := m.window(ctx, Allocate, 16)
		if err != nil {
			return err
		}
		other, died, asked := 1-m.g.Rank, errors.New("it has died"), 0
		m.gone = func(int) error { asked++; return died }
		b := make([]byte, 8)
		if err := w.Flush(ctx, other); err != nil || !w.Settled(other) || !w.TryAccumulate(other, 0, b, nil, &add) ||
			!w.TryCompareAndSwap(other, 8, b, b, b) || asked > 0 {
			return fmt.Errorf("a member whose word says that it lives: flush %v, and %d questions", err, asked)
		}
		m.meet()
		*m.mark = 1
		if err := w.Flush(ctx, other); err != died || w.Settled(other) || w.TryAccumulate(other, 0, b, nil, &add) || w.TryCompareAndSwap(other, 8, b, b, b) {
			return fmt.Errorf("a member that has died: flush %v, or an access is done", err)
		}
		if err := w.Accumulate(other, 0, b, nil, add); err != died {
			return fmt.Errorf("an accumulate to a dead member: %v", err)
		}
		m.gone = nil
		m.meet()
		return w.Close()
	})
}

// At gives what lies in the window, and nothing else.
func TestAt(t *testing.T) {
	run(t, 1, transports[0], func(ctx context.Context, m *member) error {
		w, err := New(ctx, m.Engine, m.g, Layout{Kind: Allocate, Elem: 8, Unit: 8}, nil, 24)
		if err != nil {
			return err
		}
		for _, c := range []struct{ disp, n, from int }{
			{0, 24, 0}, {1, 8, 8}, {2, 8, 16}, {3, 0, 24}, {0, 0, 0}, {0, 25, -1}, {2, 9, -1}, {3, 1, -1}, {4, 0, -1}, {-1, 8, -1},
			{-1, 0, -1}, {math.MinInt, 8, -1}, {math.MaxInt, 8, -1}, {1 << 61, 8, -1}, {1<<61 + 1, 8, -1}, {math.MaxInt/8 + 1, 0, -1},
		} {
			b := w.At(0, c.disp, c.n)
			if (b != nil) != (c.from >= 0) || b != nil && (len(b) != c.n || address(b) != address(w.Mem())+uint64(c.from)) {
				return fmt.Errorf("%d bytes at %d: %d at %d", c.n, c.disp, len(b), address(b)-address(w.Mem()))
			}
		}
		return w.Close()
	})
}

// A request that is refused spoils the windows that share the queue pair, and no
// others: neither dynamic ones nor those that are made later.
func TestRefusedRequest(t *testing.T) {
	each(t, []int{2, 3}, func(ctx context.Context, m *member) error {
		size, me := m.g.Size, m.g.Rank
		next := (me + 1) % size
		mem := make([]byte, 64)
		first, err := m.window(ctx, Create, 64)
		if err != nil {
			return err
		}
		dynamic, err := m.window(ctx, Dynamic, 0)
		if err != nil {
			return err
		}
		at := make([]byte, 8*size)
		binary.NativeEndian.PutUint64(at[8*me:], address(mem))
		if err := errors.Join(dynamic.Attach(mem), m.g.AllGather(ctx, at, 8)); err != nil {
			return err
		}
		refuse := func(w *Window) error {
			l := w.remotes[next].target
			_ = m.move(l, rdma.WRRDMAWrite, []byte{1}, 1<<40, 77) // Flush says it
			if err := w.Flush(ctx, next); err == nil {
				return errors.New("a write of nobody's memory is complete")
			}
			return nil
		}
		works := func(w *Window, off uint64) error {
			got := []byte{0}
			err := errors.Join(w.Put(next, off, []byte{byte(me + 1)}), w.Flush(ctx, next), w.Get(next, off, got), w.Flush(ctx, next))
			if err != nil || got[0] != byte(me+1) {
				return fmt.Errorf("%d is there, want %d: %w", got[0], me+1, err)
			}
			return nil
		}
		target := binary.NativeEndian.Uint64(at[8*next:]) + 7
		if err := errors.Join(works(first, 0), works(dynamic, target)); err != nil {
			return err
		}
		m.meet()
		if me == 0 {
			if err := refuse(first); err != nil {
				return err
			}
		}
		m.meet()
		if err := works(dynamic, target); err != nil {
			return fmt.Errorf("dynamic: %w", err)
		}
		for range 3 {
			later, err := m.window(ctx, Create, 64)
			if err != nil {
				return fmt.Errorf("a later window: %w", err)
			}
			if err := works(later, 0); err != nil {
				return fmt.Errorf("a later window: %w", err)
			}
			if me == 0 {
				if err := first.Flush(ctx, next); err == nil {
					return errors.New("the first window works again")
				}
				err = refuse(dynamic)
			}
			m.meet()
			if err = errors.Join(err, works(later, 1)); err != nil {
				return fmt.Errorf("a later window after a refused request of a dynamic one: %w", err)
			}
			m.meet()
			if err := later.Close(); err != nil {
				return err
			}
		}
		return errors.Join(first.Close(), dynamic.Close())
	})
}

func floats64(v float64) []byte { return binary.NativeEndian.AppendUint64(nil, math.Float64bits(v)) }
