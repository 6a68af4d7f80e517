package rank

import (
	"reflect"

	"github.com/gorun-mpi/gorun/internal/kernel"
)

// An Op is an operation of a reduction (MPI_Op). A reduction combines in the same
// order on every rank and in every run, so that all ranks get the same bits.
type Op struct {
	code kernel.Op
	user *userOp // nil: code says it all
}

// The predefined operations. Arrays and structs of one number type are
// combined number by number. MinLoc and MaxLoc take a [Pair], the bitwise
// operations take integers, and the logical operations take integers and bool.
var (
	Sum     = Op{code: kernel.Sum}     // MPI_SUM
	Prod    = Op{code: kernel.Prod}    // MPI_PROD
	Min     = Op{code: kernel.Min}     // MPI_MIN
	Max     = Op{code: kernel.Max}     // MPI_MAX
	LAnd    = Op{code: kernel.LAnd}    // MPI_LAND
	LOr     = Op{code: kernel.LOr}     // MPI_LOR
	LXor    = Op{code: kernel.LXor}    // MPI_LXOR
	BAnd    = Op{code: kernel.BAnd}    // MPI_BAND
	BOr     = Op{code: kernel.BOr}     // MPI_BOR
	BXor    = Op{code: kernel.BXor}    // MPI_BXOR
	MinLoc  = Op{code: kernel.MinLoc}  // MPI_MINLOC
	MaxLoc  = Op{code: kernel.MaxLoc}  // MPI_MAXLOC
	Replace = Op{code: kernel.Replace} // MPI_REPLACE, of windows above all
	NoOp    = Op{code: kernel.NoOp}    // MPI_NO_OP, of windows above all
)

// A Pair is the element of MinLoc and MaxLoc: a value and its location, usually a rank.
type Pair[V kernel.PairValue] = kernel.Pair[V]

// A userOp is the operation of a function of the program.
type userOp struct {
	elem      reflect.Type
	t         *Datatype // of elem, nil where that is none
	items     *Datatype // elem is nil: what the function takes items of, as they lie
	reduction kernel.Reduction
}

// OpFunc is an operation defined by a function (MPI_Op_create). f sets dst[i] to a[i]
// op b[i] for all i; dst may be the same slice as a or b. op must be associative. If
// it is not commutative, a holds the data of lower ranks. The name appears in errors
// and identifies the operation: all ranks give the same. f must not call this package.
func OpFunc[T Element](name string, commutative bool, f func(dst, a, b []T)) Op {
	bytewise := func(dst, a, b []byte) {
		if aligned[T](dst) && aligned[T](a) && aligned[T](b) {
			f(elementsOf[T](dst), elementsOf[T](a), elementsOf[T](b))
			return
		}
		// Data that travelled packed may begin anywhere.
		n := len(dst) / sizeOf[T]()
		d, x, y := make([]T, n), make([]T, n), make([]T, n)
		copy(bytesOf(x), a)
		copy(bytesOf(y), b)
		f(d, x, y)
		copy(dst, bytesOf(d))
	}
	t, _ := TypeFor[T]() // what is no element is refused in the call
	return Op{user: &userOp{elem: reflect.TypeFor[T](), t: t, reduction: kernel.User(name, sizeOf[T](), !commutative, bytewise)}}
}

// OpOn is [OpFunc] for the items of a datatype, as the Buffers of the call have them: a, b and dst hold whole items as
// they lie in memory, gaps and padding included. Items must not have data outside of their extent, and begin at their origin.
func OpOn(name string, commutative bool, t *Datatype, f func(dst, a, b []byte)) (Op, error) {
	if t == nil {
		return Op{}, errNoType
	}
	lb, extent := t.core.Extent()
	from, span := t.core.TrueExtent()
	if lb != 0 || from < 0 || extent < from+span || extent == 0 {
		return Op{}, badClass(ClassType, "items of %v lie outside of their extent, or have none", t)
	}
	return Op{user: &userOp{items: t, reduction: kernel.User(name, extent, !commutative, f)}}, nil
}

// String is the operation's name.
func (o Op) String() string {
	if o.user != nil {
		return o.user.reduction.Name
	}
	return o.code.String()
}

// reduction finds the arithmetic of an operation on the data of a checked buffer.
// raw: it takes the elements as they lie in memory, padding included.
func (o Op) reduction(b *Buffer) (r kernel.Reduction, raw bool, err error) {
	if o.user != nil {
		raw, ok := o.user.takes(b)
		if !ok {
			if o.user.items != nil {
				return r, false, badClass(ClassOp, "operation %v takes items of %v, but the buffer holds %v", o, o.user.items, b.t)
			}
			return r, false, badClass(ClassOp, "operation %v takes elements of type %v, but the buffer holds %v", o, o.user.elem, b.t)
		}
		return o.user.reduction, raw, nil
	}
	element, uniform := b.t.reducible()
	if !uniform && b.t.core.Size() == 0 {
		r, _ = kernel.For(kernel.Uint8, kernel.Sum) // there is nothing to combine
		return r, false, nil
	}
	if !uniform {
		return r, false, badClass(ClassOp, "operation %v is not defined for %v, which has numbers of several types", o, b.t)
	}
	r, ok := kernel.For(element, o.code)
	if !ok {
		return r, false, badClass(ClassOp, "operation %v is not defined for %v", o, b.t)
	}
	return r, b.t.pair != 0, nil
}

// takes tells whether the data of a buffer are elements of a function's type. Items
// of a datatype may be several, and travel packed, which those with padding cannot:
// these are taken as they lie, as are those of a slice.
func (u *userOp) takes(b *Buffer) (raw, ok bool) {
	if u.items != nil {
		return true, b.typed && (b.t == u.items || b.count == 0)
	}
	if !b.typed {
		return true, b.elem == u.elem
	}
	if u.t == nil {
		return false, false
	}
	own, core := u.t.core, b.t.core
	if !own.Solid() {
		lb, extent := core.Extent()
		return true, b.elem == u.elem && lb == 0 && extent == int(u.elem.Size()) && core.Signature(1) == own.Signature(1)
	}
	n := core.Size() / own.Size()
	return false, core.Size() == n*own.Size() && core.Signature(1) == own.Signature(n)
}
