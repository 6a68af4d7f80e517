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
	b, err := operand(at, count, t, o.function != nil || t != nil && t.sort >= long)
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
	switch {
	case f.err != nil:
		return o.op
	case o.last == t:
		return o.on
	case o.function == nil && t.sort >= long && canLong(o.handle, t.sort):
		return f.longOp(o, t)
	case o.function == nil && (t.opaque || !t.fits(o.handle)):
		f.bad(wrong(c_ERR_OP, "%v is not defined for %s", o.op, t.called()))
		return o.op
	case o.function == nil:
		return o.op
	}
	if lb, _ := t.Extent(); lb != 0 || t.at < 0 || t.extent < t.at+t.span {
		f.bad(wrong(c_ERR_TYPE, "an operation of the program takes no type whose data is outside of its extent, as %s", t.Datatype))
		return o.op
	}
	handle, extent := t.handle, t.extent
	var in, inout scratchpad
	op, err := rank.OpOn("a function of the program", o.commutative, t.Datatype, func(dst, a, b []byte) {
		to := inout.copy(b, extent)
		callOp(o.function, o.wide, in.aligned(a, extent), to, len(dst)/extent, handle)
		copy(dst, to)
	})
	if err != nil {
		f.bad(err)
		return o.op
	}
	o.last, o.on = t, op
	return op
}

// A scratchpad is memory for operands of functions in C, which take them to be aligned: those that have travelled may begin
// anywhere. It is as large as the largest so far.
type scratchpad struct{ mem []byte }

// aligned is b, or a copy of it where C's compiler would expect items of so many bytes elsewhere.
func (s *scratchpad) aligned(b []byte, extent int) []byte {
	if uintptr(addressOf(b))%alignment(extent) == 0 {
		return b
	}
	return s.copy(b, extent)
}

// alignment is the largest that items of some bytes may need.
func alignment(extent int) uintptr { return min(16, uintptr(extent&-extent)) }

func (s *scratchpad) copy(b []byte, extent int) []byte {
	if len(s.mem) < len(b)+16 {
		s.mem = make([]byte, len(b)+16)
	}
	from := -uintptr(addressOf(s.mem)) % alignment(extent)
	return s.mem[from : int(from)+copy(s.mem[from:], b)]
}

// fits tells whether a named type has an operation of MPI's; what package rank refuses is not looked at.
func (t *datatype) fits(op uintptr) bool {
	switch t.sort {
	case noNumber:
		return false
	case bits8:
		return op == c_BAND || op == c_BOR || op == c_BXOR
	case truth:
		return op == c_LAND || op == c_LOR || op == c_LXOR
	}
	return true
}

// called is a type's name, or how it was made.
func (t *datatype) called() string {
	if t.name != "" {
		return t.name
	}
	return t.Datatype.String()
}

// canLong tells whether C calculates with a sort of long doubles, or of pairs.
func canLong(op uintptr, s sort) bool {
	switch s {
	case long:
		return op >= c_SUM && op <= c_PROD
	case longComplex:
		return op == c_SUM || op == c_PROD
	}
	return op == c_MINLOC || op == c_MAXLOC
}

// longOp is an operation of MPI's that C calculates.
func (f *frame) longOp(o *operation, t *datatype) rank.Op {
	handle, extent, of := o.handle, t.extent, t.sort
	var in, inout scratchpad
	op, err := rank.OpOn(o.op.String()+" of "+t.name, true, t.Datatype, func(dst, a, b []byte) {
		to := inout.copy(b, extent)
		callLong(handle, of, in.aligned(a, extent), to, len(dst)/extent)
		copy(dst, to)
	})
	if err != nil {
		f.bad(err)
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
