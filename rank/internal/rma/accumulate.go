package rma

import (
	"github.com/gorun-mpi/gorun/internal/arch"
	"github.com/gorun-mpi/gorun/internal/kernel"
	"github.com/gorun-mpi/gorun/rdma"
)

// Accumulates of a member's memory exclude each other by a lock in its control
// region, whichever member asks for them, also of single words: some members may reach the
// memory by loads and stores only, and others by requests only. Where all members
// map it, an element of 4 or 8 bytes takes no lock: see single.go. Under an exclusive
// lock of the member there is nobody to exclude. They are complete
// when they return, so those of one origin keep their order.
//
// Cost: mapped, one compare-and-swap and one store beside the arithmetic for each
// 64 KiB; by requests 4 round trips. An element is never divided: a rank that gets
// it gets it whole.

// Accumulate sets n bytes at off of a member's memory to themselves op src, and
// gives what was there before in result, unless that is nil. src is not read for
// NoOp, and may be empty then.
func (w *Window) Accumulate(member int, off uint64, src, result []byte, op kernel.Reduction) error {
	n := max(len(src), len(result))
	p, err := w.find(member, off, n)
	if err != nil || n == 0 {
		return err
	}
	return w.accumulate(member, p, n, src, result, op)
}

// TryAccumulate is Accumulate at a displacement in mapped memory of a living member, where no lock
// has to be waited for, and tells whether that was so. If not nothing was done.
func (w *Window) TryAccumulate(member, disp int, src, result []byte, op *kernel.Reduction) bool {
	l, n := &w.remotes[member], max(len(src), len(result))
	mem := w.At(member, disp, n)
	if mem == nil || n > poolSize || l.words == nil || !l.lives() {
		return false
	}
	if n == op.Elem && w.allMapped {
		if done, _ := w.accumulateOne(member, mem, src, result, op); done {
			return true
		}
	}
	if !l.owned && !w.seize(l) {
		return false
	}
	combine(mem, src, result, op)
	if !l.owned {
		arch.StoreRelease64(&l.words[wordAccumulate], l.accumulate)
	}
	return true
}

// seize takes the accumulate lock of a member whose words are mapped, if it is free and no member
// is at a single element.
func (w *Window) seize(l *remote) bool {
	if ok, _, _ := w.try(l, wordAccumulate, &l.accumulate); !ok {
		return false
	}
	if w.allMapped {
		if ok, _ := w.quiet(l, false); !ok {
			arch.StoreRelease64(&l.words[wordAccumulate], l.accumulate)
			return false
		}
	}
	return true
}

// stepOf is how many bytes of whole elements are combined under one lock, so that
// others come in between.
func stepOf(op kernel.Reduction) int { return max(poolSize/op.Elem, 1) * op.Elem }

func (w *Window) accumulate(member int, p location, n int, src, result []byte, op kernel.Reduction) error {
	if n == op.Elem && w.direct(p.mem) {
		if done, err := w.accumulateOne(member, p.mem, src, result, &op); done || err != nil {
			return err
		}
	}
	step := stepOf(op)
	for at := 0; at < n; at += step {
		k := min(step, n-at)
		from, to := piece(src, at, k), piece(result, at, k)
		if p.mem == nil {
			if err := w.remotely(member, p.part(at, k), k, from, to, op); err != nil {
				return err
			}
			continue
		}
		if err := w.acquire(member); err != nil {
			return err
		}
		combine(p.mem[at:at+k], from, to, &op)
		if err := w.release(member); err != nil {
			return err
		}
	}
	return nil
}

// combine sets mem to itself op src, and result to what it was.
func combine(mem, src, result []byte, op *kernel.Reduction) {
	copy(result, mem)
	if len(src) > 0 {
		op.Func(mem, mem, src)
	}
}

// remotely does a piece of an accumulate by requests, under the lock. Only an
// element that does not fit into the pool goes in several steps; there is no
// arithmetic for those, so it does not matter where they are divided.
func (w *Window) remotely(member int, p location, n int, src, result []byte, op kernel.Reduction) error {
	e, l := w.e, w.remotes[member].target
	if err := w.acquire(member); err != nil {
		return err
	}
	var err error
	for at := 0; at < n && err == nil; at += poolSize {
		k, addr := min(poolSize, n-at), p.addr+uint64(at)
		if err = e.pooled(l, rdma.WRRDMARead, poolBuffer, k, addr, p.key); err != nil {
			break
		}
		b := e.buffer(k)
		if result != nil {
			copy(result[at:], b)
		}
		if len(src) > 0 {
			op.Func(b, b, src[at:at+k])
			err = e.pooled(l, rdma.WRRDMAWrite, poolBuffer, k, addr, p.key)
		}
	}
	if unlocking := w.release(member); err == nil {
		err = unlocking
	}
	return err
}

// TryCompareAndSwap is CompareAndSwap at a displacement where TryAccumulate would use an atomic.
func (w *Window) TryCompareAndSwap(member, disp int, value, compare, result []byte) bool {
	mem := w.At(member, disp, len(value))
	if !w.direct(mem) || !w.remotes[member].lives() {
		return false
	}
	done, _ := w.swapOne(member, mem, value, compare, result)
	return done
}

// CompareAndSwap gives the element at off in result and sets it to value when it
// is the same as compare, bit by bit. All three are as long as the element.
func (w *Window) CompareAndSwap(member int, off uint64, value, compare, result []byte) error {
	n := len(value)
	p, err := w.find(member, off, n)
	if err != nil {
		return err
	}
	if w.direct(p.mem) {
		if done, err := w.swapOne(member, p.mem, value, compare, result); done || err != nil {
			return err
		}
	}
	if err := w.acquire(member); err != nil {
		return err
	}
	e, l := w.e, w.remotes[member].target
	if p.mem != nil {
		copy(result, p.mem)
	} else {
		err = e.staged(l, rdma.WRRDMARead, result, p.addr, p.key)
	}
	if err == nil && string(result) == string(compare) {
		if p.mem != nil {
			copy(p.mem, value)
		} else {
			err = e.staged(l, rdma.WRRDMAWrite, value, p.addr, p.key)
		}
	}
	if unlocking := w.release(member); err == nil {
		err = unlocking
	}
	return err
}
