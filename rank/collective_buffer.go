package rank

import (
	"context"

	"github.com/gorun-mpi/gorun/coll"
)

// Barrier is the function [Barrier].
func (c *Comm) Barrier(ctx context.Context) error {
	shape := shape{kind: coll.Barrier}
	if done, err := c.again(ctx, &shape, nil, nil); done {
		return err
	}
	return c.begin("barrier").like(&shape).barrier().run(ctx)
}

// Ibarrier is the function [Ibarrier].
func (c *Comm) Ibarrier() (Request, error) { return c.beginRequest("ibarrier").barrier().launch() }

// BarrierInit is the function [BarrierInit].
func (c *Comm) BarrierInit() (Request, error) { return c.beginRequest("barrier_init").barrier().keep() }

// Bcast is [Bcast] of Buffers.
func (c *Comm) Bcast(ctx context.Context, buf Buffer, root int) error {
	shape := shapeOf(coll.Bcast, &noOperand, &buf, Op{}, root)
	if done, err := c.again(ctx, &shape, nil, buf.run()); done {
		return err
	}
	return c.begin("bcast").like(&shape).bcast(buf, root).run(ctx)
}

// Ibcast is [Ibcast] of Buffers.
func (c *Comm) Ibcast(buf Buffer, root int) (Request, error) {
	return c.beginRequest("ibcast").bcast(buf, root).launch()
}

// BcastInit is [BcastInit] of Buffers.
func (c *Comm) BcastInit(buf Buffer, root int) (Request, error) {
	return c.beginRequest("bcast_init").bcast(buf, root).keep()
}

// Gather is [Gather] of Buffers.
func (c *Comm) Gather(ctx context.Context, send, recv Buffer, root int) error {
	shape := shapeOf(coll.Gather, &send, &recv, Op{}, root)
	if done, err := c.again(ctx, &shape, send.run(), recv.run()); done {
		return err
	}
	return c.begin("gather").like(&shape).gather(send, recv, root).run(ctx)
}

// Igather is [Igather] of Buffers.
func (c *Comm) Igather(send, recv Buffer, root int) (Request, error) {
	return c.beginRequest("igather").gather(send, recv, root).launch()
}

// GatherInit is [GatherInit] of Buffers.
func (c *Comm) GatherInit(send, recv Buffer, root int) (Request, error) {
	return c.beginRequest("gather_init").gather(send, recv, root).keep()
}

// Scatter is [Scatter] of Buffers.
func (c *Comm) Scatter(ctx context.Context, send, recv Buffer, root int) error {
	shape := shapeOf(coll.Scatter, &send, &recv, Op{}, root)
	if done, err := c.again(ctx, &shape, send.run(), recv.run()); done {
		return err
	}
	return c.begin("scatter").like(&shape).scatter(send, recv, root).run(ctx)
}

// Iscatter is [Iscatter] of Buffers.
func (c *Comm) Iscatter(send, recv Buffer, root int) (Request, error) {
	return c.beginRequest("iscatter").scatter(send, recv, root).launch()
}

// ScatterInit is [ScatterInit] of Buffers.
func (c *Comm) ScatterInit(send, recv Buffer, root int) (Request, error) {
	return c.beginRequest("scatter_init").scatter(send, recv, root).keep()
}

// Allgather is [Allgather] of Buffers.
func (c *Comm) Allgather(ctx context.Context, send, recv Buffer) error {
	shape := shapeOf(coll.AllGather, &send, &recv, Op{}, 0)
	if done, err := c.again(ctx, &shape, send.run(), recv.run()); done {
		return err
	}
	return c.begin("allgather").like(&shape).allgather(send, recv).run(ctx)
}

// Iallgather is [Iallgather] of Buffers.
func (c *Comm) Iallgather(send, recv Buffer) (Request, error) {
	return c.beginRequest("iallgather").allgather(send, recv).launch()
}

// AllgatherInit is [AllgatherInit] of Buffers.
func (c *Comm) AllgatherInit(send, recv Buffer) (Request, error) {
	return c.beginRequest("allgather_init").allgather(send, recv).keep()
}

// Alltoall is [Alltoall] of Buffers.
func (c *Comm) Alltoall(ctx context.Context, send, recv Buffer) error {
	shape := shapeOf(coll.AllToAll, &send, &recv, Op{}, 0)
	if done, err := c.again(ctx, &shape, send.run(), recv.run()); done {
		return err
	}
	return c.begin("alltoall").like(&shape).alltoall(send, recv).run(ctx)
}

// Ialltoall is [Ialltoall] of Buffers.
func (c *Comm) Ialltoall(send, recv Buffer) (Request, error) {
	return c.beginRequest("ialltoall").alltoall(send, recv).launch()
}

// AlltoallInit is [AlltoallInit] of Buffers.
func (c *Comm) AlltoallInit(send, recv Buffer) (Request, error) {
	return c.beginRequest("alltoall_init").alltoall(send, recv).keep()
}
