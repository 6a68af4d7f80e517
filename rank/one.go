package rank

import "context"

// The functions below are collectives of one value a rank, without slices around it.

// BcastOne is Bcast of one value. It returns the value of rank root on every rank.
func BcastOne[T Element](ctx context.Context, c *Comm, v T, root int) (T, error) {
	buf := []T{v}
	err := Bcast(ctx, c, buf, root)
	return buf[0], err
}

// ReduceOne is Reduce of one value. Only rank root gets the result.
func ReduceOne[T Element](ctx context.Context, c *Comm, v T, op Op, root int) (T, error) {
	buf := []T{v, *new(T)}
	err := Reduce(ctx, c, buf[:1], buf[1:], op, root)
	return buf[1], err
}

// AllreduceOne is [Allreduce] of one value.
func AllreduceOne[T Element](ctx context.Context, c *Comm, v T, op Op) (T, error) {
	buf := []T{v, *new(T)}
	err := Allreduce(ctx, c, buf[:1], buf[1:], op)
	return buf[1], err
}

// ScanOne is [Scan] of one value.
func ScanOne[T Element](ctx context.Context, c *Comm, v T, op Op) (T, error) {
	buf := []T{v, *new(T)}
	err := Scan(ctx, c, buf[:1], buf[1:], op)
	return buf[1], err
}

// ExscanOne is Exscan of one value. Rank 0 gets the zero value.
func ExscanOne[T Element](ctx context.Context, c *Comm, v T, op Op) (T, error) {
	buf := []T{v, *new(T)}
	err := Exscan(ctx, c, buf[:1], buf[1:], op)
	return buf[1], err
}

// GatherOne is Gather of one value. Rank root gets one value per rank, other ranks get nil.
func GatherOne[T Element](ctx context.Context, c *Comm, v T, root int) ([]T, error) {
	var all []T
	if c.Rank() == root {
		all = make([]T, c.Size())
	}
	return all, Gather(ctx, c, []T{v}, all, root)
}

// AllgatherOne is Allgather of one value. The result has one value per rank.
func AllgatherOne[T Element](ctx context.Context, c *Comm, v T) ([]T, error) {
	all := make([]T, c.Size())
	return all, Allgather(ctx, c, []T{v}, all)
}
