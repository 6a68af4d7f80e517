package rank

import "github.com/gorun-mpi/gorun/internal/kernel"

// ReduceLocal sets inout[i] to in[i] op inout[i] for all i, without communication
// (MPI_Reduce_local). For an operation that is not commutative, in holds the data of the lower rank.
func ReduceLocal[T Element](c *Comm, in, inout []T, op Op) error {
	return c.ReduceLocal(Of(in), Of(inout), op)
}

// ReduceLocal is [ReduceLocal] of Buffers.
func (c *Comm) ReduceLocal(in, inout Buffer, op Op) error {
	const name = "reduce_local"
	if err := c.enter(); err != nil {
		return c.fail(name, -1, err)
	}
	defer c.world.leave()
	if err := c.reduceLocal(&in, &inout, op); err != nil {
		return c.fail(name, -1, err)
	}
	return nil
}

func (c *Comm) reduceLocal(in, inout *Buffer, op Op) error {
	w := c.world
	if err := in.check(w, toRead); err != nil {
		return err
	}
	if err := inout.check(w, toWrite); err != nil {
		return err
	}
	r, raw, err := op.reduction(in)
	if err != nil {
		return err
	}
	other, otherRaw, err := op.reduction(inout)
	if err != nil {
		return err
	}
	if in.size() != inout.size() || r.ID != other.ID || raw != otherRaw {
		return badClass(ClassType, "%d items of %v and %d of %v are not the same sequence of numbers", in.count, in.t, inout.count, inout.t)
	}
	if raw {
		_, extent := in.core().Extent()
		a, b := in.mem[:in.count*extent], inout.mem[:in.count*extent]
		if overlap(a, b) {
			return errOperands
		}
		r.Func(b, a, b)
		return nil
	}
	if in.solid() && inout.solid() && overlap(in.bytes(), inout.bytes()) {
		return errOperands
	}
	a, packed := w.packings.outgoing(in)
	b, combined := w.packings.outgoing(inout)
	r.Func(b, a, b)
	w.packings.arrived(inout, combined, len(b))
	w.packings.put(packed)
	return nil
}

var errOperands = badClass(ClassBuffer, "the two operands overlap")

// Commutative reports whether the operation is commutative (MPI_Op_commutative).
func (o Op) Commutative() bool {
	if o.user != nil {
		return !o.user.reduction.Ordered
	}
	return o.code != kernel.Replace && o.code != kernel.NoOp
}
