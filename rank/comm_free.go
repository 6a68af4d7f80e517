package rank

import (
	"context"
	"slices"
)

// Free gives the communicator back (MPI_Comm_free). All ranks call it, of an
// intercommunicator both groups, when all their calls on it have returned. The
// world's own is freed by Finalize. Messages that nobody has received are lost.
func (c *Comm) Free(ctx context.Context) error { return c.free(ctx, "free") }

// Disconnect is Free (MPI_Comm_disconnect): as Free waits for all ranks, nothing
// is under way on the communicator afterwards.
func (c *Comm) Disconnect(ctx context.Context) error { return c.free(ctx, "disconnect") }

func (c *Comm) free(ctx context.Context, op string) error {
	if err := c.enter(); err != nil {
		return c.fail(op, -1, err)
	}
	w := c.world
	defer w.leave()
	if c == w.comm {
		return c.fail(op, -1, badClass(ClassComm, "the world's communicator is freed by Finalize"))
	}
	c.freed = true
	var err error
	if c.revoked == nil {
		err = c.team.Free(ctx)
	} else {
		err = c.team.Close()
	}
	c.forget()
	if err != nil {
		return c.failCollective(op, err)
	}
	return nil
}

// forget takes the communicator out of the world.
func (c *Comm) forget() {
	w := c.world
	for k := range uint32(contexts) {
		w.messages.Purge(contexts*c.context + k)
	}
	add(&w.past, c.team.Counters())
	w.comms = slices.DeleteFunc(w.comms, func(o *Comm) bool { return o == c })
}
