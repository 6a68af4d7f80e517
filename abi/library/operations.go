//go:build cgo && linux

package main

import "github.com/gorun-mpi/gorun/rank"

// An operation is MPI_Op: one of package rank's, or a function of the program.
type operation struct {
	handle      uintptr
	op          rank.Op
	function    ptr // nil: op says it all
	wide        bool
	commutative bool

	// The function as an operation on the type that was used last.
	last *datatype
	on   rank.Op
}

var (
	ops      = newTable[*operation](kindOp)
	basicOps = map[uintptr]*operation{}
)

func init() {
	for h, op := range map[uintptr]rank.Op{
		c_SUM: rank.Sum, c_PROD: rank.Prod, c_MIN: rank.Min, c_MAX: rank.Max, c_BAND: rank.BAnd, c_BOR: rank.BOr, c_BXOR: rank.BXor, c_LAND: rank.LAnd,
		c_LOR: rank.LOr, c_LXOR: rank.LXor, c_MINLOC: rank.MinLoc, c_MAXLOC: rank.MaxLoc, c_REPLACE: rank.Replace, c_NO_OP: rank.NoOp,
	} {
		basicOps[h] = &operation{handle: h, op: op, commutative: h != c_REPLACE && h != c_NO_OP}
	}
}

func opOf(h uintptr) *operation {
	if h < 0x400 {
		return basicOps[h]
	}
	if o := ops.find(h); o != nil {
		return *o
	}
	return nil
}

// vector is an operand of a reduction. in: MPI_IN_PLACE may stand for it.
func (f *frame) vector(o *operation, at ptr, count int, t *datatype, in bool) rank.Buffer {
	if in && address(at) == inPlace {
		return rank.InPlace
	}
	b, err := operand(at, count, t, o.function != nil)
	if err == nil && (o.handle == c_REPLACE || o.handle == c_NO_OP) {
		err = wrong(c_ERR_OP, "the operation is for windows only")
	}
	if err != nil {
		f.bad(err)
	}
	return b
}

// opOn is the operation on items of a type. Both must be good.
func (f *frame) opOn(o *operation, t *datatype) rank.Op {
	if o.function == nil || f.err != nil {
		return o.op
	}
	if o.last == t {
		return o.on
	}
	if lb, _ := t.Extent(); lb != 0 || t.at < 0 || t.extent < t.at+t.span {
		f.bad(wrong(c_ERR_TYPE, "an operation of the program takes no type whose data is outside of its extent, as %s", t.Datatype))
		return o.op
	}
	handle, extent := t.handle, t.extent
	var room []byte
	op, err := rank.OpOn("a function of the program", o.commutative, t.Datatype, func(dst, a, b []byte) {
		n := len(dst) / extent
		switch {
		case addressOf(dst) == addressOf(b):
		case addressOf(dst) == addressOf(a):
			room = append(room[:0], b...)
			callOp(o.function, o.wide, a, room, n, handle)
			copy(dst, room)
			return
		default:
			copy(dst, b)
		}
		callOp(o.function, o.wide, a, dst, n, handle)
	})
	if err != nil {
		f.bad(err)
		return o.op
	}
	o.last, o.on = t, op
	return op
}

func mpiOpCreate(f *frame, function ptr, commutative int, to ptr) error {
	if function == nil || to == nil {
		return errNull
	}
	h, slot := ops.enter()
	*slot = &operation{handle: h, function: function, wide: f.large, commutative: commutative != 0}
	f.putHandle(to, h)
	return nil
}

func mpiOpFree(f *frame, at ptr) error {
	o := opOf(f.handleAt(at))
	switch {
	case o == nil:
		return badHandle(c_ERR_OP, "operation", f.handleAt(at))
	case o.function == nil:
		return wrong(c_ERR_OP, "%s is MPI's own and cannot be freed", o.op)
	}
	ops.leave(o.handle)
	f.putHandle(at, c_OP_NULL)
	return nil
}

func mpiOpCommutative(f *frame, o *operation, to ptr) error {
	f.putBool(to, o.commutative)
	return nil
}
