package rank

import (
	"context"

	"github.com/gorun-mpi/gorun/coll"
)

// Reduce is [Reduce] of Buffers.
func (c *Comm) Reduce(ctx context.Context, send, recv Buffer, op Op, root int) error {
	shape := shapeOf(coll.Reduce, &send, &recv, op, root)
	if done, err := c.again(ctx, &shape, send.run(), recv.run()); done {
		return err
	}
	return c.begin("reduce").like(&shape).reduce(send, recv, op, root).run(ctx)
}

// Ireduce is [Ireduce] of Buffers.
func (c *Comm) Ireduce(send, recv Buffer, op Op, root int) (Request, error) {
	return c.beginRequest("ireduce").reduce(send, recv, op, root).launch()
}

// ReduceInit is [ReduceInit] of Buffers.
func (c *Comm) ReduceInit(send, recv Buffer, op Op, root int) (Request, error) {
	return c.beginRequest("reduce_init").reduce(send, recv, op, root).keep()
}

// Allreduce is [Allreduce] of Buffers.
func (c *Comm) Allreduce(ctx context.Context, send, recv Buffer, op Op) error {
	shape := shapeOf(coll.AllReduce, &send, &recv, op, 0)
	if done, err := c.again(ctx, &shape, send.run(), recv.run()); done {
		return err
	}
	return c.begin("allreduce").like(&shape).allreduce(send, recv, op).run(ctx)
}

// Iallreduce is [Iallreduce] of Buffers.
func (c *Comm) Iallreduce(send, recv Buffer, op Op) (Request, error) {
	return c.beginRequest("iallreduce").allreduce(send, recv, op).launch()
}

// AllreduceInit is [AllreduceInit] of Buffers.
func (c *Comm) AllreduceInit(send, recv Buffer, op Op) (Request, error) {
	return c.beginRequest("allreduce_init").allreduce(send, recv, op).keep()
}

// ReduceScatterBlock is [ReduceScatterBlock] of Buffers.
func (c *Comm) ReduceScatterBlock(ctx context.Context, send, recv Buffer, op Op) error {
	shape := shapeOf(coll.ReduceScatter, &send, &recv, op, 0)
	if done, err := c.again(ctx, &shape, send.run(), recv.run()); done {
		return err
	}
	return c.begin("reduce_scatter_block").like(&shape).scatterBlock(send, recv, op).run(ctx)
}

// IreduceScatterBlock is [IreduceScatterBlock] of Buffers.
func (c *Comm) IreduceScatterBlock(send, recv Buffer, op Op) (Request, error) {
	return c.beginRequest("ireduce_scatter_block").scatterBlock(send, recv, op).launch()
}

// ReduceScatterBlockInit is [ReduceScatterBlockInit] of Buffers.
func (c *Comm) ReduceScatterBlockInit(send, recv Buffer, op Op) (Request, error) {
	return c.beginRequest("reduce_scatter_block_init").scatterBlock(send, recv, op).keep()
}

// ReduceScatter is [ReduceScatter] of Buffers.
func (c *Comm) ReduceScatter(ctx context.Context, send, recv Buffer, counts []int, op Op) error {
	return c.begin("reduce_scatter").reduceScatter(send, recv, counts, op).run(ctx)
}

// IreduceScatter is [IreduceScatter] of Buffers.
func (c *Comm) IreduceScatter(send, recv Buffer, counts []int, op Op) (Request, error) {
	return c.beginRequest("ireduce_scatter").reduceScatter(send, recv, counts, op).launch()
}

// ReduceScatterInit is [ReduceScatterInit] of Buffers.
func (c *Comm) ReduceScatterInit(send, recv Buffer, counts []int, op Op) (Request, error) {
	return c.beginRequest("reduce_scatter_init").reduceScatter(send, recv, counts, op).keep()
}

// Scan is [Scan] of Buffers.
func (c *Comm) Scan(ctx context.Context, send, recv Buffer, op Op) error {
	shape := shapeOf(coll.Scan, &send, &recv, op, 0)
	if done, err := c.again(ctx, &shape, send.run(), recv.run()); done {
		return err
	}
	return c.begin("scan").like(&shape).scan(coll.Scan, send, recv, op).run(ctx)
}

// Iscan is [Iscan] of Buffers.
func (c *Comm) Iscan(send, recv Buffer, op Op) (Request, error) {
	return c.beginRequest("iscan").scan(coll.Scan, send, recv, op).launch()
}

// ScanInit is [ScanInit] of Buffers.
func (c *Comm) ScanInit(send, recv Buffer, op Op) (Request, error) {
	return c.beginRequest("scan_init").scan(coll.Scan, send, recv, op).keep()
}

// Exscan is [Exscan] of Buffers.
func (c *Comm) Exscan(ctx context.Context, send, recv Buffer, op Op) error {
	shape := shapeOf(coll.ExScan, &send, &recv, op, 0)
	if done, err := c.again(ctx, &shape, send.run(), recv.run()); done {
		return err
	}
	return c.begin("exscan").like(&shape).scan(coll.ExScan, send, recv, op).run(ctx)
}

// Iexscan is [Iexscan] of Buffers.
func (c *Comm) Iexscan(send, recv Buffer, op Op) (Request, error) {
	return c.beginRequest("iexscan").scan(coll.ExScan, send, recv, op).launch()
}

// ExscanInit is [ExscanInit] of Buffers.
func (c *Comm) ExscanInit(send, recv Buffer, op Op) (Request, error) {
	return c.beginRequest("exscan_init").scan(coll.ExScan, send, recv, op).keep()
}
