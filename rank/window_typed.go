package rank

import (
	"math/bits"

	"github.com/gorun-mpi/gorun/internal/kernel"
	"github.com/gorun-mpi/gorun/rank/internal/rma"
)

// Accesses with datatypes on both sides. The target's items are count of type t, the
// first of which has its origin at displacement disp; the sequence of numbers is the
// same on both sides, as in messages. What T is plays no part.

// PutTyped is Put of a Buffer into items of a type (MPI_Put).
func (w *window) PutTyped(src Buffer, target, disp, count int, t *Datatype) error {
	return w.typed(&transfer{op: "put", src: src, reads: true}, target, disp, count, t)
}

// GetTyped is Get of items of a type into a Buffer (MPI_Get).
func (w *window) GetTyped(dst Buffer, target, disp, count int, t *Datatype) error {
	return w.typed(&transfer{op: "get", result: dst, writes: true}, target, disp, count, t)
}

// AccumulateTyped is Accumulate of a Buffer into items of a type
// (MPI_Accumulate). Both types consist of one number type, or of adjacent pairs.
func (w *window) AccumulateTyped(src Buffer, target, disp, count int, t *Datatype, op Op) error {
	return w.typed(&transfer{op: "accumulate", src: src, reads: true, by: op, combines: true}, target, disp, count, t)
}

// GetAccumulateTyped is AccumulateTyped that also copies the earlier values
// to result (MPI_Get_accumulate). With NoOp src may be the zero Buffer.
func (w *window) GetAccumulateTyped(src, result Buffer, target, disp, count int, t *Datatype, op Op) error {
	return w.typed(&transfer{op: "get_accumulate", src: src, result: result, reads: true, writes: true, by: op, combines: true}, target, disp, count, t)
}

// RputTyped is PutTyped with a request (MPI_Rput).
func (w *window) RputTyped(src Buffer, target, disp, count int, t *Datatype) (Request, error) {
	return w.typedRequest(&transfer{op: "rput", src: src, reads: true}, target, disp, count, t)
}

// RgetTyped is GetTyped with a request (MPI_Rget).
func (w *window) RgetTyped(dst Buffer, target, disp, count int, t *Datatype) (Request, error) {
	return w.typedRequest(&transfer{op: "rget", result: dst, writes: true}, target, disp, count, t)
}

// RaccumulateTyped is AccumulateTyped with a request (MPI_Raccumulate).
func (w *window) RaccumulateTyped(src Buffer, target, disp, count int, t *Datatype, op Op) (Request, error) {
	return w.typedRequest(&transfer{op: "raccumulate", src: src, reads: true, by: op, combines: true}, target, disp, count, t)
}

// RgetAccumulateTyped is GetAccumulateTyped with a request (MPI_Rget_accumulate).
func (w *window) RgetAccumulateTyped(src, result Buffer, target, disp, count int, t *Datatype, op Op) (Request, error) {
	return w.typedRequest(&transfer{op: "rget_accumulate", src: src, result: result, reads: true, writes: true, by: op, combines: true}, target, disp, count, t)
}

// CompareAndSwapTyped is CompareAndSwap of one item of a basic type in each Buffer, whose earlier value goes to result
// (MPI_Compare_and_swap).
func (w *window) CompareAndSwapTyped(value, compare, result Buffer, target, disp int) error {
	const op = "compare_and_swap"
	off, null, err := w.begin(op, target, disp, false)
	if null || err != nil {
		return err
	}
	return w.end(op, target, swap(w, &value, &compare, &result, target, off))
}

func swap(w *window, value, compare, result *Buffer, target int, off uint64) error {
	world := w.comm.world
	for _, o := range [...]struct {
		b *Buffer
		u use
	}{{value, toRead}, {compare, toRead}, {result, toWrite}} {
		if err := o.b.check(world, o.u); err != nil {
			return err
		}
		if _, n, ok := o.b.t.core.Uniform(); o.b.count != 1 || !ok || n != 1 || o.b.t != value.t {
			return badClass(ClassType, "%d items of %v: expected one number, of the same type in all buffers", o.b.count, o.b.t)
		}
	}
	return w.in.CompareAndSwap(target, off, value.bytes(), compare.bytes(), result.bytes())
}

// A transfer is an access with datatypes.
type transfer struct {
	op            string
	src, result   Buffer
	reads, writes bool // it has a src, a result
	by            Op
	combines      bool
}

func (w *window) typed(a *transfer, target, disp, count int, t *Datatype) error {
	off, null, err := w.begin(a.op, target, disp, false)
	if null || err != nil {
		return err
	}
	return w.end(a.op, target, a.apply(w, target, off, count, t))
}

func (w *window) typedRequest(a *transfer, target, disp, count int, t *Datatype) (Request, error) {
	off, null, err := w.begin(a.op, target, disp, true)
	if null || err != nil {
		return Request{}, err
	}
	return w.request(a.op, target, a.apply(w, target, off, count, t))
}

// apply does an access whose target and displacement are good.
func (a *transfer) apply(w *window, target int, off uint64, count int, t *Datatype) error {
	if t == nil {
		return errNoType
	}
	if over, size := bits.Mul64(uint64(max(count, 0)), uint64(t.core.Size())); count < 0 || over != 0 || size > mostData {
		return badClass(ClassCount, "%d items of %v do not fit into the target's memory", count, t)
	}
	world := w.comm.world
	if a.combines && a.by.user == nil && a.by.code == kernel.NoOp {
		a.reads = false
	}
	for _, o := range [...]struct {
		b   *Buffer
		has bool
		u   use
	}{{&a.src, a.reads, toRead}, {&a.result, a.writes, toWrite}} {
		if !o.has {
			continue
		}
		if err := o.b.check(world, o.u); err != nil {
			return err
		}
		if o.b.size() != count*t.core.Size() || o.b.core().Signature(o.b.count) != t.core.Signature(count) {
			return badClass(ClassType, "%d items of %v here and %d of %v at the target are not the same sequence of numbers", o.b.count, o.b.t, count, t)
		}
	}
	// Both sides may write where the target's items are stored into.
	if a.reads && t.core.Overlaps(count) {
		return badClass(ClassType, "%d items of %v overlap each other, so they cannot be written", count, t)
	}
	at := rma.Items{Type: t.core, Count: count}
	switch {
	case a.combines:
		return combine(w, a, target, off, at, t)
	case a.reads:
		return w.in.PutTyped(target, off, at, items(&a.src))
	}
	return w.in.GetTyped(target, off, at, items(&a.result))
}

func items(b *Buffer) rma.Items { return rma.Items{Mem: b.mem, Type: b.core(), Count: b.count} }

// combine is an accumulate with datatypes.
func combine(w *window, a *transfer, target int, off uint64, at rma.Items, t *Datatype) error {
	element, uniform := t.reducible()
	if !uniform && t.core.Size()*at.Count > 0 {
		return badClass(ClassOp, "accumulate is not defined for %v, which has numbers of several types", t)
	}
	if a.by.user != nil {
		return badClass(ClassOp, "accumulate with %v is not possible: MPI permits only predefined operations", a.by)
	}
	r, ok := kernel.For(element, a.by.code)
	if !uniform {
		return nil // there is no number to combine
	}
	if !ok {
		return badClass(ClassOp, "accumulate with %v is not defined for %v", a.by, t)
	}
	if t.pair != 0 {
		return combinePairs(w, a, target, off, r)
	}
	world := w.comm.world
	var src, result []byte
	if a.reads {
		data, packed := world.packings.outgoing(&a.src)
		defer world.packings.put(packed)
		src = data
	}
	if !a.writes {
		return w.in.AccumulateTyped(target, off, at, src, nil, r)
	}
	result, packed := world.packings.incoming(&a.result)
	err := w.in.AccumulateTyped(target, off, at, src, result, r)
	if err != nil {
		world.packings.put(packed)
		return err
	}
	world.packings.arrived(&a.result, packed, len(result))
	return nil
}

// combinePairs is combine of pairs, which are combined with their padding.
func combinePairs(w *window, a *transfer, target int, off uint64, r kernel.Reduction) error {
	var src, result []byte
	for _, o := range [...]struct {
		b   *Buffer
		has bool
		mem *[]byte
	}{{&a.src, a.reads, &src}, {&a.result, a.writes, &result}} {
		if !o.has {
			continue
		}
		if o.b.t.pair == 0 {
			return badClass(ClassType, "the buffer holds %v, but the target holds pairs", o.b.t)
		}
		*o.mem = o.b.mem[:o.b.count*r.Elem]
	}
	return w.in.Accumulate(target, off, src, result, r)
}
