package rank

import (
	"context"
	"reflect"

	"github.com/gorun-mpi/gorun/coll"
	"github.com/gorun-mpi/gorun/coll/kernel"
)

// This is the byte-level half of the calls: what is left when types are gone.

// buffer is memory as a collective takes it.
func (c *Comm) buffer(mem []byte) coll.Buffer {
	return coll.Buffer{Mem: mem, MR: c.world.regions.find(mem)}
}

func (c *Comm) barrier(ctx context.Context) error {
	err := c.enterCollective()
	if err != nil {
		return c.fail("barrier", -1, err)
	}
	if err = c.team.Barrier(ctx); err != nil {
		err = c.failCollective("barrier", err)
	}
	c.world.leave()
	return err
}

func (c *Comm) bcast(ctx context.Context, buf []byte, root int) error {
	err := c.enterCollective()
	if err != nil {
		return c.fail("bcast", -1, err)
	}
	if err = c.team.Bcast(ctx, c.buffer(buf), len(buf), root); err != nil {
		err = c.failCollective("bcast", err)
	}
	c.world.leave()
	return err
}

// block is the length of one of size blocks in whole elements.
func (c *Comm) block(name string, n, elem int) (int, error) {
	if n%(c.size*elem) != 0 {
		return 0, badArgument("%s has %d elements, which are no %d equal blocks", name, n/elem, c.size)
	}
	return n / c.size, nil
}

func (c *Comm) alltoall(ctx context.Context, send, recv []byte, elem int, algorithm coll.Algorithm) error {
	block, err := c.block("recv", len(recv), elem)
	if err == nil && send != nil && len(send) != len(recv) {
		err = badArgument("send has %d elements and recv %d", len(send)/elem, len(recv)/elem)
	}
	if err == nil {
		err = c.enterCollective()
	}
	if err != nil {
		return c.fail("alltoall", -1, err)
	}
	if err = c.team.AllToAll(ctx, c.buffer(send), c.buffer(recv), block, algorithm); err != nil {
		err = c.failCollective("alltoall", err)
	}
	c.world.leave()
	return err
}

func (c *Comm) allgather(ctx context.Context, send, recv []byte, elem int) error {
	block, err := c.block("recv", len(recv), elem)
	if err == nil && send != nil && len(send) != block {
		err = badArgument("send has %d elements and a block of recv %d", len(send)/elem, block/elem)
	}
	if err == nil {
		err = c.enterCollective()
	}
	if err != nil {
		return c.fail("allgather", -1, err)
	}
	if err = c.team.AllGather(ctx, c.buffer(send), c.buffer(recv), block); err != nil {
		err = c.failCollective("allgather", err)
	}
	c.world.leave()
	return err
}

// reduction finds the arithmetic of an operation.
func reduction(kind reflect.Kind, op Op) (kernel.Reduction, error) {
	t, _ := kernel.TypeOf(kind)
	r, ok := kernel.For(t, kernel.Op(op))
	if !ok || int(op) >= len(opNames) {
		return r, badArgument("there is no %v of %v", op, kind)
	}
	return r, nil
}

func (c *Comm) allreduce(ctx context.Context, send, recv []byte, kind reflect.Kind, op Op) error {
	r, err := reduction(kind, op)
	if err == nil && send != nil && len(send) != len(recv) {
		err = badArgument("send has %d elements and recv %d", len(send)/r.Elem, len(recv)/r.Elem)
	}
	if err == nil {
		err = c.enterCollective()
	}
	if err != nil {
		return c.fail("allreduce", -1, err)
	}
	if err = c.team.AllReduce(ctx, c.buffer(send), c.buffer(recv), len(recv)/r.Elem, r); err != nil {
		err = c.failCollective("allreduce", err)
	}
	c.world.leave()
	return err
}

func (c *Comm) reduce(ctx context.Context, send, recv []byte, kind reflect.Kind, op Op, root int) error {
	r, err := reduction(kind, op)
	n := len(send)
	if err == nil && c.rank == root {
		n = len(recv)
		if send != nil && len(send) != len(recv) {
			err = badArgument("send has %d elements and recv %d", len(send)/r.Elem, len(recv)/r.Elem)
		}
	}
	if err == nil {
		err = c.enterCollective()
	}
	if err != nil {
		return c.fail("reduce", -1, err)
	}
	if err = c.team.Reduce(ctx, c.buffer(send), c.buffer(recv), n/r.Elem, r, root); err != nil {
		err = c.failCollective("reduce", err)
	}
	c.world.leave()
	return err
}

func (c *Comm) reduceScatter(ctx context.Context, send, recv []byte, kind reflect.Kind, op Op) error {
	r, err := reduction(kind, op)
	if err == nil && len(send) != c.size*len(recv) {
		err = badArgument("send has %d elements, %d times the %d of recv are expected", len(send)/r.Elem, c.size, len(recv)/r.Elem)
	}
	if err == nil {
		err = c.enterCollective()
	}
	if err != nil {
		return c.fail("reduce_scatter_block", -1, err)
	}
	if err = c.team.ReduceScatter(ctx, c.buffer(send), c.buffer(recv), len(recv)/r.Elem, r); err != nil {
		err = c.failCollective("reduce_scatter_block", err)
	}
	c.world.leave()
	return err
}

// gather is made of messages: everybody sends to the root, which receives them in
// the order of ranks. Cost: 1 step, (size-1) blocks at the root.
func (c *Comm) gather(ctx context.Context, send, recv []byte, root int) error {
	err := c.checkGather(send, recv, root)
	if err == nil {
		err = c.enterCollective()
	}
	if err != nil {
		return c.fail("gather", -1, err)
	}
	peer, err := c.gatherAt(ctx, send, recv, root)
	if err != nil {
		err = c.revoke("gather", c.fail("gather", peer, err))
	}
	c.world.leave()
	return err
}

func (c *Comm) checkGather(send, recv []byte, root int) error {
	if root < 0 || root >= c.size {
		return badArgument("root %d in a communicator of %d ranks", root, c.size)
	}
	if c.rank != root {
		return nil
	}
	if len(recv)%c.size != 0 || send != nil && len(send)*c.size != len(recv) {
		return badArgument("recv has %d bytes, %d times the %d of send are expected", len(recv), c.size, len(send))
	}
	return nil
}

// gatherAt tells also with which rank it failed.
func (c *Comm) gatherAt(ctx context.Context, send, recv []byte, root int) (peer int, err error) {
	w := c.world
	e, to, err := c.envelope(c.innerContext(), root, 0, false)
	if err != nil {
		return -1, err
	}
	if c.rank != root {
		return root, w.messages.Send(ctx, send, w.regions.find(send), e, to)
	}
	block := len(recv) / c.size
	for r := range c.size {
		into := recv[r*block : (r+1)*block]
		if r == root {
			if send != nil {
				copy(into, send)
			}
			continue
		}
		want, _, err := c.envelope(c.innerContext(), r, 0, true)
		if err != nil {
			return -1, err
		}
		st, err := w.messages.Recv(ctx, into, w.regions.find(into), want, nil)
		if err != nil {
			return r, err
		}
		if st.Bytes != block {
			return r, badArgument("rank %d gives %d bytes, and rank %d takes %d of each", r, st.Bytes, root, block)
		}
	}
	return -1, nil
}
