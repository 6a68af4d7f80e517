package coll

import (
	"encoding/binary"
	"math/rand/v2"

	"github.com/gorun-mpi/gorun/coll/kernel"
)

// A job is one collective call of all members, with their data.
type job struct {
	call    Call // Rank is not set
	inPlace []bool
	typ     kernel.Type
	r       kernel.Reduction
	given   [][]byte // what each member contributes
}

// elements are the element types of the tests' reductions, exact whatever the
// order.
var elements = []kernel.Type{kernel.Uint8, kernel.Int32, kernel.Uint64}

// contribution is the length of what a member gives.
func (j *job) contribution() int {
	switch j.call.Kind {
	case AllToAll, ReduceScatter:
		return j.call.Size * j.call.Bytes
	}
	return j.call.Bytes
}

// newJob makes a job with random data; bytes is rounded down to whole elements.
func newJob(rng *rand.Rand, kind Kind, algorithm Algorithm, n, bytes int) *job {
	j := &job{call: Call{Kind: kind, Algorithm: algorithm, Size: n, Elem: 1}, inPlace: make([]bool, n)}
	switch kind {
	case Bcast, Reduce:
		j.call.Root = rng.IntN(n)
	}
	switch kind {
	case Reduce, AllReduce, ReduceScatter:
		j.typ = elements[rng.IntN(len(elements))]
		j.r, _ = kernel.For(j.typ, []kernel.Op{kernel.Sum, kernel.Max, kernel.Prod}[rng.IntN(3)])
		j.call.Elem = j.r.Elem
	}
	j.call.Bytes = bytes / j.call.Elem * j.call.Elem
	if kind == Barrier {
		j.call.Bytes = 0
	}
	for r := range n {
		switch kind {
		case Barrier, Bcast:
		case Reduce:
			j.inPlace[r] = r == j.call.Root && rng.IntN(3) == 0
		default:
			j.inPlace[r] = rng.IntN(3) == 0
		}
		data := make([]byte, j.contribution())
		for i := range data {
			data[i] = byte(rng.Uint32())
		}
		j.given = append(j.given, data)
	}
	return j
}

// operands are member r's buffers for the call, nil for one that it has not.
func (j *job) operands(r int) (in, out []byte) {
	c := &j.call
	in = append([]byte{}, j.given[r]...)
	switch c.Kind {
	case Barrier:
		return nil, nil
	case Bcast:
		if r == c.Root {
			return nil, in
		}
		return nil, junk(c.Bytes)
	case Reduce:
		if r != c.Root {
			return in, nil
		}
		out = junk(c.Bytes)
	case AllReduce, ReduceScatter:
		out = junk(c.Bytes)
	case AllGather:
		out = junk(c.Size * c.Bytes)
		if j.inPlace[r] {
			copy(out[r*c.Bytes:], in)
			return nil, out
		}
	case AllToAll:
		out = junk(c.Size * c.Bytes)
	}
	if j.inPlace[r] {
		return nil, in
	}
	return in, out
}

func junk(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = 0xa5
	}
	return b
}

// want is what member r must find in the first bytes of its output.
func (j *job) want(r int) []byte {
	c := &j.call
	var out []byte
	switch c.Kind {
	case Bcast:
		return j.given[c.Root]
	case Reduce:
		if r == c.Root {
			return j.fold(0, c.Bytes)
		}
	case AllReduce:
		return j.fold(0, c.Bytes)
	case ReduceScatter:
		return j.fold(r*c.Bytes, c.Bytes)
	case AllGather:
		for _, g := range j.given {
			out = append(out, g...)
		}
	case AllToAll:
		for _, g := range j.given {
			out = append(out, g[r*c.Bytes:(r+1)*c.Bytes]...)
		}
	}
	return out
}

// fold combines n bytes at off of all members, the slow and obvious way.
func (j *job) fold(off, n int) []byte {
	out := append([]byte{}, j.given[0][off:off+n]...)
	op := kernel.Op(j.r.ID & 15)
	for _, g := range j.given[1:] {
		for i := 0; i < n; i += j.call.Elem {
			a, b := out[i:], g[off+i:]
			switch j.typ {
			case kernel.Uint8:
				a[0] = byte(apply(op, uint64(a[0]), uint64(b[0])))
			case kernel.Int32:
				x, y := int32(binary.NativeEndian.Uint32(a)), int32(binary.NativeEndian.Uint32(b))
				binary.NativeEndian.PutUint32(a, uint32(apply(op, x, y)))
			case kernel.Uint64:
				binary.NativeEndian.PutUint64(a, apply(op, binary.NativeEndian.Uint64(a), binary.NativeEndian.Uint64(b)))
			}
		}
	}
	return out
}

func apply[T int32 | uint64](op kernel.Op, a, b T) T {
	switch op {
	case kernel.Sum:
		return a + b
	case kernel.Prod:
		return a * b
	case kernel.Min:
		return min(a, b)
	}
	return max(a, b)
}
