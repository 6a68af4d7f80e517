package main

import "github.com/gorun-mpi/gorun/rank"

// The collectives that move bytes. A point's bytes are those of one block; of
// the whole vector in a broadcast. The root is rank 0.

func makeBarrier(w *worker, _ point) (call, error) {
	return call{step: w.barrier, check: nothing}, nil
}

func makeBcast(w *worker, p point) (c call, err error) {
	buf, err := buffer[byte](w, &c, p.bytes)
	if err != nil {
		return c, err
	}
	if w.rank == 0 {
		fillBlock(buf, 0, 0)
	}
	c.step = func() error { return rank.Bcast(w.ctx, w.comm, buf, 0) }
	c.check = from(buf, 0)
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

func makeAllgather(w *worker, p point) (call, error) {
	c, in, out, err := blocks(w, p, 1, w.size)
	c.step = func() error { return rank.Allgather(w.ctx, w.comm, in, out) }
	c.check = fromEach(w, p, out, 0)
	return c, err
}

func makeAlltoall(w *worker, p point) (call, error) {
	c, in, out, err := blocks(w, p, w.size, w.size)
	c.step = func() error { return rank.Alltoall(w.ctx, w.comm, in, out) }
	c.check = fromEach(w, p, out, w.rank)
	return c, err
}
