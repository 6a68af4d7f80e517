package main

import "github.com/gorun-mpi/gorun/rank"

// The collectives that move bytes. A point's bytes are those of one block; of
// the whole vector in a broadcast. The root is rank 0.

func makeBarrier(w *worker, _ point) (call, error) {
	return call{step: w.barrier, begin: func() (rank.Request, error) { return rank.Ibarrier(w.comm) }, check: nothing}, nil
}

// started makes the call a non-blocking one: start and wait, together the step.
func started(w *worker, c *call, start func() (rank.Request, error)) {
	startedAll(w, c, 1, func(int) (rank.Request, error) { return start() })
}

// startedAll makes the call n non-blocking ones, all started before the first is waited for.
func startedAll(w *worker, c *call, n int, start func(i int) (rank.Request, error)) {
	requests := make([]rank.Request, n)
	c.start = func() (err error) {
		for i := range requests {
			if requests[i], err = start(i); err != nil {
				return err
			}
		}
		return nil
	}
	c.wait = func() error {
		for _, r := range requests {
			if _, err := r.Wait(w.ctx); err != nil {
				return err
			}
		}
		return nil
	}
	c.step = func() error {
		if err := c.start(); err != nil {
			return err
		}
		return c.wait()
	}
}

func makeBcast(w *worker, p point) (c call, err error) {
	buf, err := buffer[byte](w, &c, p.bytes)
	if err != nil {
		return c, err
	}
	if w.rank == 0 {
		fillBlock(buf, 0, 0)
	} else {
		c.spoil = func() { spoil(buf) }
	}
	c.check = from(buf, 0)
	block := func() error { return rank.Bcast(w.ctx, w.comm, buf, 0) }
	c.begin = func() (rank.Request, error) { return rank.Ibcast(w.comm, buf, 0) }
	if p.benchmark == "ibcast" {
		started(w, &c, c.begin)
		c.block = block
		return c, nil
	}
	c.step = block
	return c, nil
}

// blocks makes the buffers of a collective that sends and receives so many
// blocks; the block for rank r is filled as the one for r, or a sole one as
// that for 0.
func blocks(w *worker, p point, send, recv int) (c call, in, out []byte, err error) {
	if in, out, err = buffers[byte](w, &c, send*p.bytes, recv*p.bytes); err != nil {
		return c, nil, nil, err
	}
	for r := range send {
		fillBlock(in[r*p.bytes:(r+1)*p.bytes], w.rank, r)
	}
	return c, in, out, nil
}

// fromEach checks that out holds, by rank, what the ranks have for rank to.
func fromEach(w *worker, p point, out []byte, to int) func() (string, error) {
	return func() (string, error) {
		for r := range w.size {
			if wrong := wrongByte(out[r*p.bytes:(r+1)*p.bytes], r, to); wrong != "" {
				return wrong, nil
			}
		}
		return "", nil
	}
}

// atRoot is a check of rank 0's only.
func atRoot(w *worker, check func() (string, error)) func() (string, error) {
	if w.rank != 0 {
		return nothing
	}
	return check
}

func makeGather(w *worker, p point) (call, error) {
	c, in, out, err := blocks(w, p, 1, w.size)
	c.step = func() error { return rank.Gather(w.ctx, w.comm, in, out, 0) }
	c.check = atRoot(w, fromEach(w, p, out, 0))
	return c, err
}

func makeScatter(w *worker, p point) (call, error) {
	c, in, out, err := blocks(w, p, w.size, 1)
	c.step = func() error { return rank.Scatter(w.ctx, w.comm, in, out, 0) }
	c.check = func() (string, error) { return wrongByte(out, 0, w.rank), nil }
	return c, err
}

func makeAllgather(w *worker, p point) (call, error) {
	c, in, out, err := blocks(w, p, 1, w.size)
	c.step = func() error { return rank.Allgather(w.ctx, w.comm, in, out) }
	c.begin = func() (rank.Request, error) { return rank.Iallgather(w.comm, in, out) }
	c.check = fromEach(w, p, out, 0)
	return c, err
}

func makeAlltoall(w *worker, p point) (call, error) {
	c, in, out, err := blocks(w, p, w.size, w.size)
	c.step = func() error { return rank.Alltoall(w.ctx, w.comm, in, out) }
	c.begin = func() (rank.Request, error) { return rank.Ialltoall(w.comm, in, out) }
	c.check = fromEach(w, p, out, w.rank)
	return c, err
}

func makeIalltoall(w *worker, p point) (call, error) {
	c, in, out, err := blocks(w, p, w.size, w.size)
	started(w, &c, func() (rank.Request, error) { return rank.Ialltoall(w.comm, in, out) })
	c.block = func() error { return rank.Alltoall(w.ctx, w.comm, in, out) }
	c.check = fromEach(w, p, out, w.rank)
	return c, err
}

// equal are the counts and displacements of equal blocks, for the v-forms.
func equal(w *worker, p point) (counts, displacements []int) {
	for r := range w.size {
		counts, displacements = append(counts, p.bytes), append(displacements, r*p.bytes)
	}
	return counts, displacements
}

func makeGatherv(w *worker, p point) (call, error) {
	c, in, out, err := blocks(w, p, 1, w.size)
	counts, at := equal(w, p)
	c.step = func() error { return rank.Gatherv(w.ctx, w.comm, in, out, counts, at, 0) }
	c.check = atRoot(w, fromEach(w, p, out, 0))
	return c, err
}

func makeScatterv(w *worker, p point) (call, error) {
	c, in, out, err := blocks(w, p, w.size, 1)
	counts, at := equal(w, p)
	c.step = func() error { return rank.Scatterv(w.ctx, w.comm, in, counts, at, out, 0) }
	c.check = func() (string, error) { return wrongByte(out, 0, w.rank), nil }
	return c, err
}

func makeAllgatherv(w *worker, p point) (call, error) {
	c, in, out, err := blocks(w, p, 1, w.size)
	counts, at := equal(w, p)
	c.step = func() error { return rank.Allgatherv(w.ctx, w.comm, in, out, counts, at) }
	c.check = fromEach(w, p, out, 0)
	return c, err
}

func makeAlltoallv(w *worker, p point) (call, error) {
	c, in, out, err := blocks(w, p, w.size, w.size)
	counts, at := equal(w, p)
	c.step = func() error { return rank.Alltoallv(w.ctx, w.comm, in, counts, at, out, counts, at) }
	c.check = fromEach(w, p, out, w.rank)
	return c, err
}
