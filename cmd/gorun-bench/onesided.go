package main

import "github.com/gorun-mpi/gorun/rank"

// The one-sided benchmarks: rank 0 is the origin, the memory of rank 1 the
// target. All of them happen in one epoch, under a lock of all ranks' memory.

// target makes a window of memory of the plan's kind and opens its epoch.
func target[T rank.Number](w *worker, c *call, n int) (win *rank.Win[T], mem []T, err error) {
	if w.plan.memory == registered {
		win, err = rank.WinAllocate[T](w.ctx, w.comm, n)
	} else {
		win, err = rank.WinCreate(w.ctx, w.comm, make([]T, n))
	}
	if err != nil {
		return nil, nil, err
	}
	c.release = append(c.release, func() error {
		if err := win.UnlockAll(w.ctx); err != nil {
			return err
		}
		return win.Free(w.ctx)
	})
	return win, win.Base(), win.LockAll(w.ctx, 0)
}

// settled is a check of rank 1's window, when all ranks' accesses are over.
func settled[T rank.Number](w *worker, win *rank.Win[T], check func() string) func() (string, error) {
	return func() (string, error) {
		if err := w.barrier(); err != nil {
			return "", err
		}
		if w.rank != 1 {
			return "", nil
		}
		if err := win.Sync(); err != nil {
			return "", err
		}
		return check(), nil
	}
}

// makeRMA makes put, get and their bandwidths: one access, or a window of them,
// and a flush.
func makeRMA(w *worker, p point) (call, error) {
	var c call
	in, out := make([]byte, p.bytes), make([]byte, p.bytes)
	fillBlock(in, w.rank, 0)
	win, mem, err := target[byte](w, &c, p.bytes)
	if err != nil {
		return c, err
	}
	access, times := func() error { return win.Put(in, 1, 0) }, 1
	c.check = settled(w, win, func() string { return wrongByte(mem, 0, 0) })
	c.spoil = func() { spoil(mem) }
	if p.benchmark == "get" || p.benchmark == "get_bw" {
		fillBlock(mem, w.rank, 0)
		c.spoil = func() { spoil(out) }
		access = func() error { return win.Get(out, 1, 0) }
		c.check = atRoot(w, from(out, 1))
	}
	if p.benchmark == "put_bw" || p.benchmark == "get_bw" {
		times = windowSize
	}
	c.step = fromOrigin(w, func() error {
		for range times {
			if err := access(); err != nil {
				return err
			}
		}
		return win.Flush(w.ctx, 1)
	})
	return c, nil
}

// fromOrigin is a step that only rank 0 makes.
func fromOrigin(w *worker, step func() error) func() error {
	if w.rank != 0 {
		return func() error { return nil }
	}
	return step
}

// makeAccumulate replaces the target's elements, which leaves a result that can
// be checked after any number of calls.
func makeAccumulate(w *worker, p point) (call, error) {
	return ofType(p.typ, accumulate[int8], accumulate[int32], accumulate[int64], accumulate[float32], accumulate[float64])(w, p)
}

func accumulate[T rank.Number](w *worker, p point) (c call, err error) {
	elem := typeSizes[p.typ]
	n := p.bytes / elem
	in := make([]T, n)
	fillElements(in, elem, w.rank)
	win, mem, err := target[T](w, &c, n)
	if err != nil {
		return c, err
	}
	c.check = settled(w, win, func() string { return wrongElement(mem, elem, 0, 0, 1) })
	c.spoil = func() { spoil(mem) }
	c.step = fromOrigin(w, func() error {
		if err := win.Accumulate(in, 1, 0, rank.Replace); err != nil {
			return err
		}
		return win.Flush(w.ctx, 1)
	})
	return c, nil
}
