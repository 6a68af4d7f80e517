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

func TestAttributes(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Run(t, 3, func(ctx context.Context, c *rank.Comm) error {
		var gone []string
		deleted := func(c *rank.Comm, v string) error {
			gone = append(gone, c.Name()+" "+v)
			return nil
		}
		shared := rank.NewKeyval(rank.CopyValue[string], deleted)
		doubled := rank.NewKeyval(func(_ *rank.Comm, v int) (int, bool, error) { return 2 * v, v > 0, nil }, nil)
		private := rank.NewKeyval(nil, deleted)
		same := rank.NewKeyval[string](nil, nil) // another name of the same kind
		if _, found := shared.Get(c); found {
			return errors.New("a fresh keyval has a value")
		}
		for _, err := range []error{shared.Set(c, "first"), shared.Set(c, "second"), doubled.Set(c, 21), private.Set(c, "mine")} {
			if err != nil {
				return err
			}
		}
		if err := diff("deleted by Set", gone, []string{"world first"}); err != nil {
			return err
		}
		d, err := c.Dup(ctx)
		if err != nil {
			return err
		}
		d.SetName("d")
		if v, found := shared.Get(d); !found || v != "second" {
			return fmt.Errorf("the dup has %q", v)
		}
		if v, found := doubled.Get(d); !found || v != 42 {
			return fmt.Errorf("the dup has %d, want 42", v)
		}
		if v, found := private.Get(d); found {
			return fmt.Errorf("the dup has %q, which is not to be copied", v)
		}
		if _, found := same.Get(c); found {
			return errors.New("two keyvals are one")
		}
		if err := private.Delete(d); !errors.Is(err, rank.ClassKeyval) {
			return fmt.Errorf("deleted what is not there: %v", err)
		}
		if err := private.Set(d, "own"); err != nil {
			return err
		}
		gone = nil
		if err := d.Free(ctx); err != nil {
			return err
		}
		if err := diff("deleted by Free", gone, []string{"d own", "d second"}); err != nil {
			return err
		}
		if err := shared.Set(d, "late"); !errors.Is(err, rank.ErrFreed) {
			return fmt.Errorf("set on a freed communicator: %v", err)
		}
		if err := shared.Set(nil, "nowhere"); !errors.Is(err, rank.ClassComm) {
			return fmt.Errorf("set on nil: %v", err)
		}
		gone = nil
		if err := shared.Delete(c); err != nil {
			return err
		}
		if _, found := shared.Get(c); found || !slices.Equal(gone, []string{"world second"}) {
			return fmt.Errorf("deleted: %v, still there: %v", gone, found)
		}
		// A callback may use the world, and those of self and the world are
		// the last.
		sum := 0
		last := rank.NewKeyval(nil, func(c *rank.Comm, v int) error {
			all := []int{0}
			if err := rank.Allreduce(ctx, c, []int{v}, all, rank.Sum); err != nil {
				return err
			}
			sum = 10*sum + all[0]
			return nil
		})
		if err := errors.Join(last.Set(c.World().Self(), 1), last.Set(c, 2)); err != nil {
			return err
		}
		if err := c.World().Finalize(ctx); err != nil {
			return err
		}
		if sum != 16 {
			return fmt.Errorf("the callbacks made %d, want 16", sum)
		}
		return nil
	})
}

// A copy that fails on one rank fails its Dup, and what the others got is broken.
func TestAttributeCopyFails(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Each(t, []int{2, 3}, func(ctx context.Context, c *rank.Comm) error {
		cause := errors.New("cannot be copied")
		key := rank.NewKeyval(func(_ *rank.Comm, v int) (int, bool, error) {
			if v == 1 {
				return 0, false, cause
			}
			return v, true, nil
		}, nil)
		if err := key.Set(c, c.Rank()); err != nil {
			return err
		}
		d, err := c.Dup(ctx)
		if c.Rank() == 1 {
			if d != nil || !errors.Is(err, cause) {
				return fmt.Errorf("dup: %v, %v; want %v", d, err, cause)
			}
		} else {
			if err != nil {
				return err
			}
			if err := rank.Barrier(ctx, d); !errors.Is(err, rank.ErrRevoked) {
				return fmt.Errorf("barrier without rank 1: %v, want %v", err, rank.ErrRevoked)
			}
		}
		return rank.Barrier(ctx, c)
	})
}

// Callbacks may delete and set other attributes of the communicator.
func TestAttributeCallbacksChangeOthers(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Run(t, 1, func(ctx context.Context, c *rank.Comm) error {
		lower, upper := rank.NewKeyval[int](nil, nil), rank.NewKeyval[int](nil, nil)
		change := func(c *rank.Comm) error {
			if _, found := lower.Get(c); !found {
				return nil
			}
			return errors.Join(lower.Delete(c), upper.Set(c, 8))
		}
		key := rank.NewKeyval(func(old *rank.Comm, v int) (int, bool, error) { return v, true, change(old) },
			func(c *rank.Comm, _ int) error { return change(c) })
		want := func(when string, c *rank.Comm, k *rank.Keyval[int], value int, found bool) error {
			if v, ok := k.Get(c); v != value || ok != found {
				return fmt.Errorf("%s: %d, %v; want %d, %v", when, v, ok, value, found)
			}
			return nil
		}
		for _, tt := range []struct {
			name  string
			call  func(d *rank.Comm) error
			value int
		}{
			{"set", func(d *rank.Comm) error { return key.Set(d, 3) }, 3},
			{"dup", func(d *rank.Comm) error { _, err := d.Dup(ctx); return err }, 2},
			{"delete", func(d *rank.Comm) error { return key.Delete(d) }, 0},
		} {
			d, err := c.Dup(ctx)
			if err != nil {
				return err
			}
			if err := errors.Join(lower.Set(d, 1), key.Set(d, 2), tt.call(d)); err != nil {
				return fmt.Errorf("%s: %w", tt.name, err)
			}
			if err := errors.Join(want(tt.name, d, lower, 0, false), want(tt.name, d, upper, 8, true), want(tt.name, d, key, tt.value, tt.value != 0)); err != nil {
				return err
			}
		}
		return nil
	})
}

func TestSelf(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Each(t, []int{1, 3}, func(ctx context.Context, c *rank.Comm) error {
		s := c.World().Self()
		if s.Size() != 1 || s.Rank() != 0 || s.Name() != "self" || s.Group().Intersection(c.Group()).Rank() != 0 {
			return fmt.Errorf("self is rank %d of %d", s.Rank(), s.Size())
		}
		if err := s.Free(ctx); !errors.Is(err, rank.ClassComm) {
			return fmt.Errorf("free self: %v", err)
		}
		d, err := s.Dup(ctx) // which only this rank makes
		if err != nil {
			return err
		}
		for i, x := range []*rank.Comm{s, d, c} {
			if err := rank.Send(ctx, x, []int{i}, x.Rank(), 0); err != nil {
				return err
			}
		}
		for i, x := range []*rank.Comm{s, d, c} {
			got := []int{-1}
			if _, err := rank.Recv(ctx, x, got, rank.AnySource, 0); err != nil || got[0] != i {
				return fmt.Errorf("%s got %d, %v; want %d", x.Name(), got[0], err, i)
			}
		}
		// Contexts of the world go on above those that some ranks have used.
		e, err := c.Dup(ctx)
		if err != nil {
			return err
		}
		return roll(ctx, e)
	})
}

func TestEnvironmentOfTheWorld(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Run(t, 2, func(ctx context.Context, c *rank.Comm) error {
		w := c.World()
		before := rank.Wtime()
		if err := rank.Barrier(ctx, c); err != nil {
			return err
		}
		if after := rank.Wtime(); before < 0 || after <= before || after-before > 60 || rank.Wtick() > 1e-6 {
			return fmt.Errorf("a barrier from %v to %v", before, after)
		}
		if _, known, err := w.UniverseSize(ctx); known || err != nil {
			return fmt.Errorf("nobody knows the universe here: %v, %v", known, err)
		}
		if w.ProcessorName() != w.Host() || w.Finalized() {
			return fmt.Errorf("processor %q, finalized %v", w.ProcessorName(), w.Finalized())
		}
		if err := w.Finalize(ctx); err != nil {
			return err
		}
		if _, _, err := w.AppNum(ctx); !errors.Is(err, rank.ErrFinalized) || !w.Finalized() {
			return fmt.Errorf("after Finalize: %v, %v", err, w.Finalized())
		}
		return nil
	})
}

// A window has attributes and an error handler of its own, beside those of the
// communicator that it was made of.
func TestWindowAttributes(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Each(t, []int{1, 3}, func(ctx context.Context, c *rank.Comm) error {
		var gone []string
		key := rank.NewKeyval(rank.CopyValue[string], func(c *rank.Comm, v string) error {
			gone = append(gone, c.Name()+" "+v)
			return nil
		})
		var told []string
		c.SetErrhandler(func(c *rank.Comm, err error) { told = append(told, "comm "+c.Name()) })
		defer c.SetErrhandler(nil)
		if err := key.Set(c, "outer"); err != nil {
			return err
		}
		w, err := rank.WinAllocate[byte](ctx, c, 1)
		if err != nil {
			return err
		}
		w.SetName("board")
		if _, found := key.Get(w); found {
			return errors.New("the window has the communicator's attribute")
		}
		if err := errors.Join(key.Set(w, "first"), key.Set(w, "second")); err != nil {
			return err
		}
		if v, found := key.Get(w); !found || v != "second" {
			return fmt.Errorf("the window has %q, %v", v, found)
		}
		broken := errors.New("broken")
		w.CallErrhandler(broken)
		w.SetErrhandler(func(c *rank.Comm, err error) {
			if errors.Is(err, broken) || errors.Is(err, rank.ClassRMASync) {
				told = append(told, "window "+c.Name())
			}
		})
		w.CallErrhandler(broken)
		w.Errhandler()(c, broken)
		if err := w.Put(nil, 0, 0); !errors.Is(err, rank.ClassRMASync) {
			return fmt.Errorf("put without an epoch: %v", err)
		}
		c.CallErrhandler(broken)
		if want := []string{"comm board", "window board", "window world", "window board", "comm world"}; !slices.Equal(told, want) {
			return fmt.Errorf("the handlers were told %q, want %q", told, want)
		}
		if err := w.Free(ctx); err != nil {
			return err
		}
		if err := key.Set(w, "late"); !errors.Is(err, rank.ErrFreed) {
			return fmt.Errorf("set on a freed window: %v", err)
		}
		if v, _ := key.Get(c); v != "outer" || !slices.Equal(gone, []string{"board first", "board second"}) {
			return fmt.Errorf("%q, and gone are %q", v, gone)
		}
		return key.Delete(c)
	})
}
