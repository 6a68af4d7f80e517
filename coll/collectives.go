package coll

import (
	"context"
	"math"

	"github.com/gorun-mpi/gorun/coll/kernel"
)

// blocks checks that mem holds n blocks.
func blocks(name string, mem []byte, n, block int) error {
	if block < 0 || block > math.MaxInt/n {
		return badf("%d blocks of %d bytes", n, block)
	}
	if len(mem) < n*block {
		return badf("%s buffer has %d bytes, %d are needed", name, len(mem), n*block)
	}
	return nil
}

// inPlace tells whether a call's input is where its output goes: no send buffer,
// or one that begins where it should. They must not overlap otherwise.
func inPlace(send, recv, place []byte) (bool, error) {
	if send == nil {
		return true, nil
	}
	if _, same := overlap(send, place); same {
		return true, nil
	}
	if shared, _ := overlap(send, recv); shared {
		return false, badf("send and receive buffers overlap")
	}
	return false, nil
}

// Barrier returns when all members have called it.
func (t *Team) Barrier(ctx context.Context) error {
	if err := t.enter(Barrier); err != nil {
		return err
	}
	return t.collective(ctx, Call{Kind: Barrier, Elem: 1}, Buffer{}, Buffer{}, kernel.Reduction{})
}

// Bcast gives all members the first n bytes of the root's buffer.
func (t *Team) Bcast(ctx context.Context, buf Buffer, n, root int) error {
	if err := t.enter(Bcast); err != nil {
		return err
	}
	if err := t.checkRoot(root); err != nil {
		return t.refuse(Bcast, err)
	}
	if err := blocks("broadcast", buf.Mem, 1, n); err != nil {
		return t.refuse(Bcast, err)
	}
	buf.Mem = buf.Mem[:n]
	return t.collective(ctx, Call{Kind: Bcast, Root: root, Bytes: n, Elem: 1}, Buffer{}, buf, kernel.Reduction{})
}

func (t *Team) checkRoot(root int) error {
	if root < 0 || root >= t.size {
		return badf("root %d in a team of %d", root, t.size)
	}
	return nil
}

// vector checks the operands of a reduction of blocks vectors of count elements
// into one (blocks 1), or into one of them each.
func (t *Team) vector(send, recv Buffer, blocksIn, count int, r kernel.Reduction) (in, out Buffer, here bool, err error) {
	if r.Func == nil || r.Elem < 1 || r.Elem > math.MaxUint16 {
		return in, out, false, badf("no reduction")
	}
	if count < 0 || count > math.MaxInt/r.Elem/blocksIn {
		return in, out, false, badf("%d elements of %d bytes", count, r.Elem)
	}
	n := count * r.Elem
	if err := blocks("receive", recv.Mem, 1, n); err != nil {
		return in, out, false, err
	}
	if here, err = inPlace(send.Mem, recv.Mem, recv.Mem); err != nil {
		return in, out, false, err
	}
	if here {
		if err := blocks("receive (in place)", recv.Mem, blocksIn, n); err != nil {
			return in, out, false, err
		}
		recv.Mem = recv.Mem[:blocksIn*n]
		return Buffer{}, recv, true, nil
	}
	if err := blocks("send", send.Mem, blocksIn, n); err != nil {
		return in, out, false, err
	}
	send.Mem, recv.Mem = send.Mem[:blocksIn*n], recv.Mem[:n]
	return send, recv, false, nil
}

// AllReduce combines the members' vectors of count elements and gives all of
// them the result, the same bits to each. A nil send.Mem means in place.
func (t *Team) AllReduce(ctx context.Context, send, recv Buffer, count int, r kernel.Reduction) error {
	if err := t.enter(AllReduce); err != nil {
		return err
	}
	in, out, here, err := t.vector(send, recv, 1, count, r)
	if err != nil {
		return t.refuse(AllReduce, err)
	}
	return t.collective(ctx, Call{Kind: AllReduce, InPlace: here, Bytes: count * r.Elem, Elem: r.Elem}, in, out, r)
}

// Reduce combines the members' vectors of count elements and gives the root the
// result. Only the root's recv is used; at the root a nil send.Mem means in place.
func (t *Team) Reduce(ctx context.Context, send, recv Buffer, count int, r kernel.Reduction, root int) error {
	if err := t.enter(Reduce); err != nil {
		return err
	}
	if err := t.checkRoot(root); err != nil {
		return t.refuse(Reduce, err)
	}
	here := false
	var err error
	if t.rank == root {
		send, recv, here, err = t.vector(send, recv, 1, count, r)
	} else {
		recv = Buffer{}
		switch {
		case r.Func == nil || r.Elem < 1 || r.Elem > math.MaxUint16:
			err = badf("no reduction")
		case count < 0 || count > math.MaxInt/r.Elem:
			err = badf("%d elements of %d bytes", count, r.Elem)
		default:
			err = blocks("send", send.Mem, 1, count*r.Elem)
		}
	}
	if err != nil {
		return t.refuse(Reduce, err)
	}
	return t.collective(ctx, Call{Kind: Reduce, InPlace: here, Root: root, Bytes: count * r.Elem, Elem: r.Elem}, send, recv, r)
}

// ReduceScatter combines the members' vectors of Size blocks of count elements,
// and gives each member its block of the result. A nil send.Mem means in place:
// recv holds all blocks, of which the first is replaced and the others are left.
func (t *Team) ReduceScatter(ctx context.Context, send, recv Buffer, count int, r kernel.Reduction) error {
	if err := t.enter(ReduceScatter); err != nil {
		return err
	}
	in, out, here, err := t.vector(send, recv, t.size, count, r)
	if err != nil {
		return t.refuse(ReduceScatter, err)
	}
	return t.collective(ctx, Call{Kind: ReduceScatter, InPlace: here, Bytes: count * r.Elem, Elem: r.Elem}, in, out, r)
}

// AllGather gives all members the blocks of all, by rank. A nil send.Mem means in
// place: the member's block is at its place in recv.
func (t *Team) AllGather(ctx context.Context, send, recv Buffer, block int) error {
	if err := t.enter(AllGather); err != nil {
		return err
	}
	if err := blocks("receive", recv.Mem, t.size, block); err != nil {
		return t.refuse(AllGather, err)
	}
	recv.Mem = recv.Mem[:t.size*block]
	here, err := inPlace(send.Mem, recv.Mem, recv.Mem[t.rank*block:])
	if err == nil && !here {
		err = blocks("send", send.Mem, 1, block)
	}
	if err != nil {
		return t.refuse(AllGather, err)
	}
	if here {
		send = Buffer{}
	} else {
		send.Mem = send.Mem[:block]
	}
	return t.collective(ctx, Call{Kind: AllGather, InPlace: here, Bytes: block, Elem: 1}, send, recv, kernel.Reduction{})
}

// AllToAll moves block k of member i to block i of member k. A nil send.Mem means
// in place. The algorithm is selected if it is Auto.
func (t *Team) AllToAll(ctx context.Context, send, recv Buffer, block int, algorithm Algorithm) error {
	if err := t.enter(AllToAll); err != nil {
		return err
	}
	if !fits(AllToAll, algorithm) {
		return t.refuse(AllToAll, badf("alltoall does not come as %v", algorithm))
	}
	if err := blocks("receive", recv.Mem, t.size, block); err != nil {
		return t.refuse(AllToAll, err)
	}
	recv.Mem = recv.Mem[:t.size*block]
	here, err := inPlace(send.Mem, recv.Mem, recv.Mem)
	if err == nil && !here {
		err = blocks("send", send.Mem, t.size, block)
	}
	if err != nil {
		return t.refuse(AllToAll, err)
	}
	if here {
		send = Buffer{}
	} else {
		send.Mem = send.Mem[:t.size*block]
	}
	return t.collective(ctx, Call{Kind: AllToAll, Algorithm: algorithm, InPlace: here, Bytes: block, Elem: 1}, send, recv, kernel.Reduction{})
}
