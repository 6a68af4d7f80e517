package rma

import (
	"encoding/binary"
	"sync/atomic"

	"github.com/gorun-mpi/gorun/internal/arch"
	"github.com/gorun-mpi/gorun/internal/kernel"
)

// Single elements of 4 and 8 bytes, in windows that all members map: the processor's
// atomics keep them whole, and no rank waits for one that has lost its CPU. What still
// has to keep out is the arithmetic of whole vectors, under the accumulate lock. Each
// side announces itself before it looks at the other:
//
//	single                                vector
//	singles[own] = 1                      accumulate: free -> own
//	accumulate held? take back, and       wait until no living single is there
//	do as a vector does
//
// A word of singles has a cache line to itself, which only vectors share with its
// owner. Cost: an exchange, the atomic and a store.

// direct tells whether all members load and store mem.
func (w *Window) direct(mem []byte) bool { return w.allMapped && mem != nil }

// announce keeps vectors out of a member's memory, unless one is there.
func (w *Window) announce(l *remote) bool {
	mine := &l.words[w.at.single(w.g.Rank)]
	atomic.StoreUint64(mine, 1) // a full barrier
	if atomic.LoadUint64(&l.words[wordAccumulate])&holderMask == 0 {
		return true
	}
	arch.StoreRelease64(mine, 0)
	return false
}

// retract lets them in again, behind what was done.
func (w *Window) retract(l *remote) { arch.StoreRelease64(&l.words[w.at.single(w.g.Rank)], 0) }

// quiet tells whether no member is at a single element of the member of l, and which is.
// What the dead announced is taken back when there is time to look.
func (w *Window) quiet(l *remote, looking bool) (ok bool, member int) {
	for i := range w.g.Size {
		p := &l.words[w.at.single(i)]
		if i == w.g.Rank || atomic.LoadUint64(p) == 0 {
			continue
		}
		if !looking || !w.dead(i) {
			return false, i
		}
		atomic.StoreUint64(p, 0)
	}
	return true, 0
}

// whole tells whether mem is an element that the processor's atomics keep whole.
func whole(mem []byte) bool {
	n := uint64(len(mem))
	return (n == 4 || n == 8) && address(mem)%n == 0
}

// accumulateOne is accumulate of one element, if that can be done here.
func (w *Window) accumulateOne(member int, mem, src, result []byte, op *kernel.Reduction) (done bool, err error) {
	l := &w.remotes[member]
	if l.owned || !whole(mem) {
		return false, nil
	}
	if err := w.missed(l); err != nil {
		return false, err
	}
	if !w.announce(l) {
		return false, nil
	}
	if len(mem) == 8 {
		old := w.fetch64(wordAt(mem), src, op)
		if result != nil {
			binary.NativeEndian.PutUint64(result, old)
		}
	} else {
		old := w.fetch32(halfAt(mem), src, op)
		if result != nil {
			binary.NativeEndian.PutUint32(result, old)
		}
	}
	w.retract(l)
	return true, nil
}

// fetch64 sets a word to itself op src and gives what it was before. Without src that
// is all.
func (w *Window) fetch64(p *uint64, src []byte, op *kernel.Reduction) uint64 {
	if len(src) == 0 {
		return atomic.LoadUint64(p)
	}
	v := binary.NativeEndian.Uint64(src)
	switch t, by := kernel.Type(op.ID>>4), kernel.Op(op.ID&15); {
	case by == kernel.Replace:
		return atomic.SwapUint64(p, v)
	case by == kernel.Sum && (t == kernel.Int64 || t == kernel.Uint64):
		return atomic.AddUint64(p, v) - v
	}
	one := &w.one
	for {
		old := atomic.LoadUint64(p)
		binary.NativeEndian.PutUint64(one.old[:], old)
		op.Func(one.result[:8], one.old[:8], src)
		if atomic.CompareAndSwapUint64(p, old, binary.NativeEndian.Uint64(one.result[:])) {
			return old
		}
	}
}

// fetch32 is fetch64 of half a word.
func (w *Window) fetch32(p *uint32, src []byte, op *kernel.Reduction) uint32 {
	if len(src) == 0 {
		return atomic.LoadUint32(p)
	}
	v := binary.NativeEndian.Uint32(src)
	switch t, by := kernel.Type(op.ID>>4), kernel.Op(op.ID&15); {
	case by == kernel.Replace:
		return atomic.SwapUint32(p, v)
	case by == kernel.Sum && (t == kernel.Int32 || t == kernel.Uint32):
		return atomic.AddUint32(p, v) - v
	}
	one := &w.one
	for {
		old := atomic.LoadUint32(p)
		binary.NativeEndian.PutUint32(one.old[:], old)
		op.Func(one.result[:4], one.old[:4], src)
		if atomic.CompareAndSwapUint32(p, old, binary.NativeEndian.Uint32(one.result[:])) {
			return old
		}
	}
}

// swapOne is CompareAndSwap, if that can be done here.
func (w *Window) swapOne(member int, mem, value, compare, result []byte) (done bool, err error) {
	l := &w.remotes[member]
	if l.owned || !whole(mem) {
		return false, nil
	}
	if err := w.missed(l); err != nil {
		return false, err
	}
	if !w.announce(l) {
		return false, nil
	}
	if len(mem) == 8 {
		p, expected, v := wordAt(mem), binary.NativeEndian.Uint64(compare), binary.NativeEndian.Uint64(value)
		old := expected
		for !atomic.CompareAndSwapUint64(p, expected, v) {
			if old = atomic.LoadUint64(p); old != expected {
				break
			}
		}
		binary.NativeEndian.PutUint64(result, old)
	} else {
		p, expected, v := halfAt(mem), binary.NativeEndian.Uint32(compare), binary.NativeEndian.Uint32(value)
		old := expected
		for !atomic.CompareAndSwapUint32(p, expected, v) {
			if old = atomic.LoadUint32(p); old != expected {
				break
			}
		}
		binary.NativeEndian.PutUint32(result, old)
	}
	w.retract(l)
	return true, nil
}
