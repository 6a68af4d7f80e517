package rank

import (
	"context"
	"errors"
	"slices"

	"github.com/gorun-mpi/gorun/coll"
)

// Free frees the communicator (MPI_Comm_free). All ranks call it, when all their calls
// on it have returned; on an intercommunicator, all ranks of both groups. Finalize frees
// the world's communicator. Collectives that were started complete first, and their
// requests can be waited for afterwards. Messages that were not received are lost.
func (c *Comm) Free(ctx context.Context) error { return c.free(ctx, "free") }

// Disconnect is Free (MPI_Comm_disconnect), which waits for all ranks:
// no communication is pending on the communicator afterwards.
func (c *Comm) Disconnect(ctx context.Context) error { return c.free(ctx, "disconnect") }

func (c *Comm) free(ctx context.Context, op string) error {
	w, deleted, err := c.toFree()
	if err != nil {
		return c.fail(op, -1, err)
	}
	defer w.leave()
	if c.revoked == nil {
		if err = c.settle(ctx); err == nil {
			err = c.team.Free(ctx)
		} else {
			err = errors.Join(err, c.team.Close())
		}
	} else {
		err = c.team.Close()
	}
	c.forget()
	if err == nil && c.revoked == nil {
		delete(w.news.agreements, c.context) // all members are here
	}
	switch {
	case err != nil:
		return c.failCollective(op, errors.Join(err, deleted))
	case deleted != nil:
		return c.fail(op, -1, deleted)
	}
	return nil
}

// Leave frees the communicator without waiting for the others (MPI_Comm_free, which need not wait): all ranks call it, each
// when it likes. Started operations complete, and their requests can be waited for afterwards; messages that no
// receive waits for are lost. The memory is given back in some later call, when all ranks have left, or by Finalize.
func (c *Comm) Leave() error {
	w, deleted, err := c.toFree()
	if err != nil {
		return c.fail("leave", -1, err)
	}
	defer w.leave()
	c.purge()
	if p, err := c.team.StartFree(); err == nil {
		if c.started++; c.started == 1 {
			w.traffic.add(c.team)
		}
		d := &departure{c, p}
		w.traffic.add(d)
		d.Progress()
	} else { // the communicator is revoked
		_ = c.team.Close()
		c.forget()
	}
	if deleted != nil {
		return c.fail("leave", -1, deleted)
	}
	return nil
}

// A departure is a communicator that this rank has left: it goes when the others have left it too.
type departure struct {
	comm    *Comm
	pending *coll.Pending
}

var _ advancer = (*departure)(nil)

// Progress gives the communicator back once nobody writes to its memory. An error is a peer's death, or a call of another
// rank that this one has not made: that rank gets the error in its own call.
func (d *departure) Progress() (advanced bool) {
	done, err := d.pending.Done()
	if !done {
		return false
	}
	c := d.comm
	w := c.world
	w.traffic.remove(d)
	if c.started--; c.started == 0 {
		w.traffic.remove(c.team)
	}
	_ = c.team.Close()
	c.forget()
	if err == nil {
		delete(w.news.agreements, c.context) // all members have left
	}
	return true
}

// settle waits until the collectives that were started are over; their requests
// tell the outcome when they are asked.
func (c *Comm) settle(ctx context.Context) error {
	w := c.world
	for i := 0; i < len(w.requests.all) && c.started > 0; i++ {
		r := w.requests.all[i]
		if r.active && r.comm == c && collective(r.what) && !r.what.done() {
			if err := w.waitFor(ctx, r); err != nil {
				return err
			}
		}
	}
	return nil
}

// collective tells whether an operation is one of all ranks of its communicator.
func collective(what pending) bool {
	switch what.(type) {
	case *call, *duplication:
		return true
	}
	return false
}

// toFree begins the freeing of the communicator: it has no attributes then, whose
// callbacks may still use it. deleted is what those said.
func (c *Comm) toFree() (w *World, deleted, err error) {
	if err := c.enterAnyway(); err != nil {
		return nil, nil, err
	}
	w = c.world
	if c == w.comm || c == w.self {
		w.leave()
		return nil, nil, badClass(ClassComm, "the world's own communicators are freed by Finalize")
	}
	if len(c.attributes) > 0 {
		w.leave()
		deleted = c.deleteAttributes()
		if err := c.enterAnyway(); err != nil {
			return nil, nil, errors.Join(err, deleted)
		}
	}
	c.freed, c.barred = true, true
	return w, deleted, nil
}

// release gives a communicator back on this rank alone.
func (c *Comm) release() {
	c.freed, c.barred = true, true
	_ = c.team.Close() // it is revoked, or nobody uses it
	c.forget()
	c.unhear()
}

// purge discards the communicator's messages, those that are still to come too.
func (c *Comm) purge() {
	for k := range uint32(contexts) {
		c.world.messages.Purge(contexts*c.context + k)
	}
}

// unhear drops what other ranks have told of a communicator that comes to nothing here.
func (c *Comm) unhear() {
	delete(c.world.news.agreements, c.context)
	delete(c.world.news.early, c.context)
}

// forget takes the communicator out of the world.
func (c *Comm) forget() {
	w := c.world
	c.purge()
	w.past.Add(c.team.Counters())
	w.comms = slices.DeleteFunc(w.comms, func(o *Comm) bool { return o == c })
}
