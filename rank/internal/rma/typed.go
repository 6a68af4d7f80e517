package rma

import (
	"fmt"

	"github.com/gorun-mpi/gorun/internal/kernel"
	"github.com/gorun-mpi/gorun/rank/internal/datatype"
	"github.com/gorun-mpi/gorun/rdma"
)

// Accesses with datatypes on both sides. In mapped memory they are packed and unpacked
// at once; by requests each run of bytes that lies in one piece on both sides is a
// request of its own, from where it lies to where it belongs: nothing is packed that
// would have to be kept until a flush.

// Items are count items of a type: at the target, or the origin's, whose first one has
// its origin at Mem[0]. All data of the origin's lies in Mem.
type Items struct {
	Mem   []byte
	Type  *datatype.Type
	Count int
}

func (i *Items) size() int { return i.Count * i.Type.Size() }

// reach finds what items at off of a member's memory touch. lo is where that begins,
// from their origin on.
func (w *Window) reach(member int, off uint64, at *Items) (p location, lo int, err error) {
	lo, hi, ok := at.Type.Span(at.Count)
	begin := off + uint64(lo)
	if !ok || lo < 0 && off < uint64(-lo) || lo > 0 && begin < off {
		return location{}, 0, fmt.Errorf("%w: %d items of %v at %d of rank %d", ErrRange, at.Count, at.Type, off, member)
	}
	p, err = w.find(member, begin, hi-lo)
	return p, lo, err
}

// PutTyped stores the origin's items as those at off of a member's memory, which have as
// much data.
func (w *Window) PutTyped(member int, off uint64, at, from Items) error {
	return w.moveTyped(rdma.WRRDMAWrite, member, off, &at, &from)
}

// GetTyped fills the origin's items from those at off of a member's memory.
func (w *Window) GetTyped(member int, off uint64, at, into Items) error {
	return w.moveTyped(rdma.WRRDMARead, member, off, &at, &into)
}

func (w *Window) moveTyped(op rdma.WROpcode, member int, off uint64, at, own *Items) error {
	p, lo, err := w.reach(member, off, at)
	n := at.size()
	if err != nil || n == 0 {
		return err
	}
	if p.mem == nil {
		return w.requests(op, member, p, lo, at, own)
	}
	if own.Type.Solid() {
		if op == rdma.WRRDMAWrite {
			at.Type.UnpackAt(p.mem, own.Mem[:n], -lo, 0)
		} else {
			at.Type.PackAt(own.Mem[:n], p.mem, -lo, 0)
		}
		return nil
	}
	// Even where the target's items are one run the origin's are copied by way of the
	// buffer: it stays in the cache.
	if w.e.scratch == nil {
		w.e.scratch = make([]byte, poolSize)
	}
	for pos := 0; pos < n; pos += poolSize {
		b := w.e.scratch[:min(poolSize, n-pos)]
		if op == rdma.WRRDMAWrite {
			own.Type.Pack(b, own.Mem, pos)
			at.Type.UnpackAt(p.mem, b, -lo, pos)
		} else {
			at.Type.PackAt(b, p.mem, -lo, pos)
			own.Type.Unpack(own.Mem, b, pos)
		}
	}
	return nil
}

// requests posts a request for each run that lies in one piece on both sides.
func (w *Window) requests(op rdma.WROpcode, member int, p location, lo int, at, own *Items) error {
	l, pos := w.remotes[member].target, 0
	return at.Type.Runs(0, at.size(), func(far, n int) error {
		addr := p.addr + uint64(far-lo)
		err := own.Type.Runs(pos, n, func(near, n int) error {
			err := w.e.move(l, op, own.Mem[near:near+n], addr, p.key)
			addr += uint64(n)
			return err
		})
		pos += n
		return err
	})
}

// AccumulateTyped is Accumulate to items of a type whose basic types are all op's
// element. src and result are packed.
func (w *Window) AccumulateTyped(member int, off uint64, at Items, src, result []byte, op kernel.Reduction) error {
	p, lo, err := w.reach(member, off, &at)
	n := at.size()
	if err != nil || n == 0 {
		return err
	}
	if p.mem == nil {
		pos := 0
		return at.Type.Runs(0, n, func(far, k int) error {
			err := w.accumulate(member, p.part(far-lo, k), k, piece(src, pos, k), piece(result, pos, k), op)
			pos += k
			return err
		})
	}
	step := stepOf(op)
	for pos := 0; pos < n; pos += step {
		if err := w.acquire(member); err != nil {
			return err
		}
		next := pos
		_ = at.Type.Runs(pos, min(step, n-pos), func(far, k int) error { // f gives no error
			combine(p.mem[far-lo:far-lo+k], piece(src, next, k), piece(result, next, k), &op)
			next += k
			return nil
		})
		if err := w.release(member); err != nil {
			return err
		}
	}
	return nil
}

// piece is n bytes of b from off on, nothing of nothing.
func piece(b []byte, off, n int) []byte {
	if len(b) == 0 {
		return nil
	}
	return b[off : off+n]
}
