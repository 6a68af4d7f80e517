package rank

import (
	"fmt"
	"math/bits"
	"reflect"
	"sync/atomic"

	"github.com/gorun-mpi/gorun/internal/arch"
	"github.com/gorun-mpi/gorun/internal/kernel"
	"github.com/gorun-mpi/gorun/rank/internal/rma"
)

// quick begins an access to mapped memory of a rank that does not wait, and out ends it: all that has
// to be checked in one place, and without the barrier of enter (see World.enterShort). After false
// begin goes on, or tells what is wrong.
func (w *window) quick(target int) bool {
	if w.in == nil || uint(target) >= uint(len(w.locks)) ||
		w.all == 0 && w.locks[target] == 0 && !(w.fenced && w.used) && !(w.started && w.targets[target]) {
		return false
	}
	world := w.comm.world
	if world.recorder != nil || world.turns != nil || atomic.LoadUint32(&world.inside.by) != busyNot {
		return false
	}
	if world.beside != nil {
		return quickBeside(w)
	}
	if w.comm.barred {
		return false
	}
	arch.StoreRelease32(&world.inside.by, busyCall)
	return true
}

// quickBeside is the rest of quick beside a progress thread, which must not be inside. It does not
// hush the thread's bell for so short a time.
func quickBeside(w *window) bool {
	world := w.comm.world
	if !atomic.CompareAndSwapUint32(&world.inside.by, busyNot, busyCall) {
		return false
	}
	if world.beside.called = true; w.comm.barred || world.beside.failed.Load() != nil {
		w.out()
		return false
	}
	return true
}

func (w *window) out() {
	world := w.comm.world
	arch.StoreRelease32(&world.inside.by, busyNot)
	if world.beside != nil {
		world.beside.left()
	}
}

// begin checks an access to a rank: the epoch, the rank and the displacement.
// null: there is nothing to do. After an error the call is left already.
func (w *window) begin(op string, target, disp int, passive bool) (off uint64, null bool, err error) {
	if err := w.enter(); err != nil {
		return 0, false, w.fail(op, -1, err)
	}
	peer := -1
	switch {
	case target == ProcNull:
		w.comm.world.leave()
		return 0, true, nil
	case target < 0 || target >= w.comm.size:
		err = noRank(w, target)
	default:
		peer = target
		if err = w.allows(target, passive); err == nil {
			var over uint64
			if over, off = bits.Mul64(uint64(max(disp, 0)), w.in.Unit(target)); disp < 0 || over != 0 {
				err = badClass(ClassRMARange, "displacement %d is outside of the window", disp)
			}
		}
	}
	if err != nil {
		w.comm.world.leave()
		return 0, false, w.fail(op, peer, err)
	}
	return off, false, nil
}

// end ends an access.
func (w *window) end(op string, target int, err error) error {
	w.comm.world.leave()
	if err != nil {
		return w.fail(op, target, err)
	}
	return nil
}

// Put copies src to displacement disp of the target (MPI_Put).
func (w *Win[T]) Put(src []T, target, disp int) error {
	if w.quick(target) {
		mem := w.in.At(target, disp, len(src)*w.elem)
		arch.Copy(mem, bytesOf(src))
		if w.out(); mem != nil {
			return nil
		}
	}
	off, null, err := w.begin("put", target, disp, false)
	if null || err != nil {
		return err
	}
	return w.end("put", target, w.in.Put(target, off, bytesOf(src)))
}

// Get copies the elements at displacement disp of the target to dst (MPI_Get).
func (w *Win[T]) Get(dst []T, target, disp int) error {
	if w.quick(target) {
		mem := w.in.At(target, disp, len(dst)*w.elem)
		arch.Copy(bytesOf(dst), mem)
		if w.out(); mem != nil {
			return nil
		}
	}
	off, null, err := w.begin("get", target, disp, false)
	if null || err != nil {
		return err
	}
	return w.end("get", target, w.in.Get(target, off, bytesOf(dst)))
}

// Accumulate combines src into the elements at displacement disp of the
// target with op (MPI_Accumulate). Replace and NoOp are permitted.
func (w *Win[T]) Accumulate(src []T, target, disp int, op Op) error {
	return w.accumulateNow("accumulate", target, disp, bytesOf(src), nil, op)
}

// GetAccumulate is Accumulate that also copies the earlier values to result
// (MPI_Get_accumulate). result has the length of src; with NoOp src may be nil.
func (w *Win[T]) GetAccumulate(src, result []T, target, disp int, op Op) error {
	return w.accumulateNow("get_accumulate", target, disp, bytesOf(src), bytesOf(result), op)
}

func (w *Win[T]) accumulateNow(name string, target, disp int, src, result []byte, op Op) error {
	if w.quick(target) {
		done := w.try(target, disp, src, result, op)
		if w.out(); done {
			return nil
		}
	}
	off, null, err := w.begin(name, target, disp, false)
	if null || err != nil {
		return err
	}
	return w.end(name, target, w.accumulate(target, off, src, result, op))
}

// FetchAndOp combines value into one element with op, and returns the
// element's earlier value (MPI_Fetch_and_op).
func (w *Win[T]) FetchAndOp(value T, target, disp int, op Op) (before T, err error) {
	if w.quick(target) {
		w.value[0] = value
		done := w.try(target, disp, bytesOf(w.value[:]), bytesOf(w.result[:]), op)
		old := w.result[0]
		if w.out(); done {
			return old, nil
		}
	}
	off, null, err := w.begin("fetch_and_op", target, disp, false)
	if null || err != nil {
		return before, err
	}
	w.value[0] = value
	if err = w.accumulate(target, off, bytesOf(w.value[:]), bytesOf(w.result[:]), op); err == nil {
		before = w.result[0]
	}
	return before, w.end("fetch_and_op", target, err)
}

// CompareAndSwap sets one element to value if it equals compare in all
// bits, and returns its earlier value (MPI_Compare_and_swap).
func (w *Win[T]) CompareAndSwap(value, compare T, target, disp int) (before T, err error) {
	if w.quick(target) {
		w.value[0], w.other[0] = value, compare
		done := w.in.TryCompareAndSwap(target, disp, bytesOf(w.value[:]), bytesOf(w.other[:]), bytesOf(w.result[:]))
		old := w.result[0]
		if w.out(); done {
			return old, nil
		}
	}
	off, null, err := w.begin("compare_and_swap", target, disp, false)
	if null || err != nil {
		return before, err
	}
	w.value[0], w.other[0] = value, compare
	err = w.in.CompareAndSwap(target, off, bytesOf(w.value[:]), bytesOf(w.other[:]), bytesOf(w.result[:]))
	before = w.result[0] // another call may use it when this one has ended
	return before, w.end("compare_and_swap", target, err)
}

// try is accumulate where nothing has to be waited for.
func (w *Win[T]) try(target, disp int, src, result []byte, op Op) bool {
	src, err := w.operands(src, result, op)
	return err == nil && w.in.TryAccumulate(target, disp, src, result, &w.arithmetic)
}

// accumulate is what the accumulates have in common.
func (w *Win[T]) accumulate(target int, off uint64, src, result []byte, op Op) error {
	src, err := w.operands(src, result, op)
	if err != nil {
		return err
	}
	return w.in.Accumulate(target, off, src, result, w.arithmetic)
}

// operands finds the arithmetic of an accumulate, if it is not that of the last one, and gives src,
// which NoOp does not read, if it is as long as result. Replace and NoOp are for every type, and none
// is a user's.
func (w *Win[T]) operands(src, result []byte, op Op) ([]byte, error) {
	if op != w.op || w.arithmetic.Func == nil {
		r, ok := kernel.Reduction{}, false
		if t, number := kernel.TypeFor[T](); op.user != nil {
		} else if number {
			r, ok = kernel.For(t, op.code)
		} else if ok = op.code == kernel.Replace || op.code == kernel.NoOp; ok {
			r = kernel.Reduction{Func: replace, Elem: w.elem, ID: uint16(op.code)}
		}
		if !ok {
			return nil, badClass(ClassOp, "accumulate with %v is not defined for %v", op, reflect.TypeFor[T]())
		}
		w.op, w.arithmetic = op, r
	}
	if op.code == kernel.NoOp {
		return nil, nil
	}
	if result != nil && len(result) != len(src) {
		return nil, badClass(ClassCount, "src has %d elements, but result has %d", len(src)/w.elem, len(result)/w.elem)
	}
	return src, nil
}

// replace gives b.
func replace(dst, _, b []byte) { copy(dst, b) }

// An access is an access with a request.
type access struct {
	w      *window
	target int
	ticket uint64
	next   *access // free ones
}

func (a *access) done() bool {
	over, _ := a.reached()
	return over
}

// reached: all accesses to a window that is freed are complete.
func (a *access) reached() (over bool, err error) {
	if a.w.in == nil {
		return true, nil
	}
	return a.w.in.Reached(a.target, a.ticket)
}

func (a *access) finish(st *Status) error {
	*st = emptyStatus
	_, err := a.reached()
	w, target := a.w, a.target
	a.next, w.idle = w.idle, a
	if err != nil {
		return w.fail("one-sided access", target, err)
	}
	return nil
}

func (a *access) cancel()      {}
func (a *access) start() error { return fmt.Errorf("the request is not persistent") }
func (a *access) free()        {}

// request ends an access with a request for what has been started.
func (w *window) request(op string, target int, err error) (Request, error) {
	if err != nil {
		return Request{}, w.end(op, target, err)
	}
	a := w.idle
	if a == nil {
		a = &access{w: w}
	} else {
		w.idle = a.next
	}
	a.target, a.ticket = target, w.in.Ticket(target)
	q := w.comm.world.newRequest(w.comm, op).started(a)
	w.comm.world.leave()
	return q, nil
}

// Rput is Put with a request (MPI_Rput). At completion src may be
// reused. Accesses with requests need a lock of the target.
func (w *Win[T]) Rput(src []T, target, disp int) (Request, error) {
	off, null, err := w.begin("rput", target, disp, true)
	if null || err != nil {
		return Request{}, err
	}
	return w.request("rput", target, w.in.Put(target, off, bytesOf(src)))
}

// Rget is Get with a request (MPI_Rget). At completion dst holds the data.
func (w *Win[T]) Rget(dst []T, target, disp int) (Request, error) {
	off, null, err := w.begin("rget", target, disp, true)
	if null || err != nil {
		return Request{}, err
	}
	return w.request("rget", target, w.in.Get(target, off, bytesOf(dst)))
}

// Raccumulate is Accumulate with a request (MPI_Raccumulate).
func (w *Win[T]) Raccumulate(src []T, target, disp int, op Op) (Request, error) {
	off, null, err := w.begin("raccumulate", target, disp, true)
	if null || err != nil {
		return Request{}, err
	}
	return w.request("raccumulate", target, w.accumulate(target, off, bytesOf(src), nil, op))
}

// RgetAccumulate is GetAccumulate with a request (MPI_Rget_accumulate).
func (w *Win[T]) RgetAccumulate(src, result []T, target, disp int, op Op) (Request, error) {
	off, null, err := w.begin("rget_accumulate", target, disp, true)
	if null || err != nil {
		return Request{}, err
	}
	return w.request("rget_accumulate", target, w.accumulate(target, off, bytesOf(src), bytesOf(result), op))
}

var _ pending = (*access)(nil)
var _ advancer = (*rma.Engine)(nil)
