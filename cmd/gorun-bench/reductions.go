package main

import "github.com/gorun-mpi/gorun/rank"

// typeSizes are the bytes of an element of the types of reductions, in C's names.
var typeSizes = map[string]int{"char": 1, "int": 4, "long": 8, "float": 4, "double": 8}

// typeNames lists them for messages.
const typeNames = "char, int, long, float or double"

// together is how many all-reduces of iallreduce_x16 are under way at once.
const together = 16

// makeReduction makes any reduction; its operation is the sum.
func makeReduction(w *worker, p point) (call, error) {
	return ofType(p.typ, reduction[int8], reduction[int32], reduction[int64], reduction[float32], reduction[float64])(w, p)
}

// ofType is the maker for a type of elements.
func ofType(typ string, char, int, long, float, double maker) maker {
	return map[string]maker{"char": char, "int": int, "long": long, "float": float, "double": double}[typ]
}

func reduction[T rank.Number](w *worker, p point) (c call, err error) {
	elem := typeSizes[p.typ]
	n := p.bytes / elem // elements of the vector, or of a block
	sent := n
	switch p.benchmark {
	case "reduce_scatter":
		sent = n * w.size
	case "iallreduce_x16":
		n *= together
		sent = n
	}
	in, out, err := buffers[T](w, &c, sent, n)
	if err != nil {
		return c, err
	}
	fillElements(in, elem, w.rank)
	ctx, comm := w.ctx, w.comm
	// The result is the sum over ranks first..last-1 of their elements from base on.
	base, first, last := 0, 0, w.size
	switch p.benchmark {
	case "allreduce":
		c.step = func() error { return rank.Allreduce(ctx, comm, in, out, rank.Sum) }
		c.begin = func() (rank.Request, error) { return rank.Iallreduce(comm, in, out, rank.Sum) }
	case "iallreduce":
		started(w, &c, func() (rank.Request, error) { return rank.Iallreduce(comm, in, out, rank.Sum) })
		c.block = func() error { return rank.Allreduce(ctx, comm, in, out, rank.Sum) }
	case "iallreduce_x16":
		each := n / together
		startedAll(w, &c, together, func(i int) (rank.Request, error) {
			return rank.Iallreduce(comm, in[i*each:(i+1)*each], out[i*each:(i+1)*each], rank.Sum)
		})
		c.block = c.step
	case "scan":
		last = w.rank + 1
		c.step = func() error { return rank.Scan(ctx, comm, in, out, rank.Sum) }
	case "exscan":
		last = w.rank
		if w.rank == 0 {
			n = 0 // what rank 0 gets is undefined
		}
		c.step = func() error { return rank.Exscan(ctx, comm, in, out, rank.Sum) }
	case "reduce":
		if w.rank != 0 {
			out, n = nil, 0
		}
		c.step = func() error { return rank.Reduce(ctx, comm, in, out, rank.Sum, 0) }
		c.begin = func() (rank.Request, error) { return rank.Ireduce(comm, in, out, rank.Sum, 0) }
	case "reduce_scatter":
		base = w.rank * n
		c.step = func() error { return rank.ReduceScatterBlock(ctx, comm, in, out, rank.Sum) }
		c.begin = func() (rank.Request, error) { return rank.IreduceScatterBlock(comm, in, out, rank.Sum) }
	}
	c.check = func() (string, error) { return wrongElement(out[:n], elem, base, first, last), nil }
	return c, nil
}
