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
