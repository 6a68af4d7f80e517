package main

import "github.com/gorun-mpi/gorun/rank"

// tag marks all messages.
const tag = 7

// pair makes the buffers of a benchmark of messages.
func pair(w *worker, p point) (c call, in, out []byte, err error) {
	if in, out, err = buffers[byte](w, &c, p.bytes, p.bytes); err == nil {
		fillBlock(in, w.rank, 0)
	}
	return c, in, out, err
}

// from checks that out holds what a rank sends.
func from(out []byte, sender int) func() (string, error) {
	return func() (string, error) { return wrongByte(out, sender, 0), nil }
}

func nothing() (string, error) { return "", nil }

func makeLatency(w *worker, p point) (call, error) {
	c, in, out, err := pair(w, p)
	if err != nil {
		return c, err
	}
	peer := 1 - w.rank
	c.check = from(out, peer)
	c.step = func() error {
		if w.rank == 0 {
			if err := rank.Send(w.ctx, w.comm, in, peer, tag); err != nil {
				return err
			}
			_, err := rank.Recv(w.ctx, w.comm, out, peer, tag)
			return err
		}
		if _, err := rank.Recv(w.ctx, w.comm, out, peer, tag); err != nil {
			return err
		}
		return rank.Send(w.ctx, w.comm, in, peer, tag)
	}
	return c, nil
}

// other is the other rank of a pair, of which the lower half of the ranks has
// the senders.
func (w *worker) other() int {
	half := w.size / 2
	if w.rank < half {
		return w.rank + half
	}
	return w.rank - half
}

// makeWindow makes bw and mr: a window of messages, then an empty answer.
func makeWindow(w *worker, p point) (call, error) {
	c, in, out, err := pair(w, p)
	if err != nil {
		return c, err
	}
	peer, requests := w.other(), make([]rank.Request, windowSize)
	var none []byte
	if w.rank < w.size/2 {
		c.check = nothing
		c.step = func() (err error) {
			for i := range requests {
				if requests[i], err = rank.Isend(w.comm, in, peer, tag); err != nil {
					return err
				}
			}
			if err := rank.WaitAll(w.ctx, requests, nil); err != nil {
				return err
			}
			_, err = rank.Recv(w.ctx, w.comm, none, peer, tag)
			return err
		}
		return c, nil
	}
	c.check = from(out, peer)
	c.step = func() (err error) {
		for i := range requests {
			if requests[i], err = rank.Irecv(w.comm, out, peer, tag); err != nil {
				return err
			}
		}
		if err := rank.WaitAll(w.ctx, requests, nil); err != nil {
			return err
		}
		return rank.Send(w.ctx, w.comm, none, peer, tag)
	}
	return c, nil
}

// makeBothWays makes bibw: a window in each direction; receives are posted
// first, as OSU does.
func makeBothWays(w *worker, p point) (call, error) {
	c, in, out, err := pair(w, p)
	if err != nil {
		return c, err
	}
	peer, requests := w.other(), make([]rank.Request, 2*windowSize)
	c.check = from(out, peer)
	c.step = func() (err error) {
		for i := range windowSize {
			if requests[i], err = rank.Irecv(w.comm, out, peer, tag); err != nil {
				return err
			}
		}
		for i := range windowSize {
			if requests[windowSize+i], err = rank.Isend(w.comm, in, peer, tag); err != nil {
				return err
			}
		}
		return rank.WaitAll(w.ctx, requests, nil)
	}
	return c, nil
}
