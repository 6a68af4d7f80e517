package rank

import (
	"fmt"
	"math"

	"github.com/gorun-mpi/gorun/rdma"
)

// Alloc returns n zeroed elements of memory that is registered with the device (MPI_Alloc_mem),
// so that peers read and write it in place. It belongs to the world of c, and is valid until
// [Free] or [World.Finalize]. It is not garbage collected and must not be used afterwards.
func Alloc[T Element](c *Comm, n int) ([]T, error) {
	if err := c.exists(); err != nil {
		return nil, c.fail("alloc", -1, err)
	}
	if n < 0 {
		return nil, c.fail("alloc", -1, badArgument("%d elements: expected 0 or more", n))
	}
	if err := checkElement[T](c, "alloc"); err != nil {
		return nil, err
	}
	mem, err := c.world.alloc(n, sizeOf[T]())
	if err != nil {
		return nil, c.fail("alloc", -1, fmt.Errorf("%d elements of %d bytes: %w", n, sizeOf[T](), err))
	}
	return elementsOf[T](mem)[:n], nil
}

// Free frees memory of [Alloc] (MPI_Free_mem). s is the slice that Alloc
// returned, or any slice with the same first element.
func Free[T Element](c *Comm, s []T) error {
	err := c.exists()
	if err == nil {
		err = c.world.free(bytesOf(s))
	}
	if err != nil {
		return c.fail("free", -1, err)
	}
	return nil
}

// alloc is Alloc in bytes.
func (w *World) alloc(n, size int) ([]byte, error) {
	if err := w.enter(); err != nil {
		return nil, err
	}
	defer w.leave()
	if n > (math.MaxInt-cacheLine)/size {
		return nil, badArgument("too large for memory")
	}
	const access = rdma.AccessLocalWrite | rdma.AccessRemoteWrite | rdma.AccessRemoteRead | rdma.AccessRemoteAtomic
	// Not less than a line, so that an empty slice has an address of its own.
	mr, err := w.device.PD.AllocMR(max(n*size, cacheLine), access)
	if err != nil {
		return nil, err
	}
	w.regions.add(mr, false)
	return mr.Bytes()[:n*size], nil
}

const cacheLine = 64

// free is Free in bytes.
func (w *World) free(mem []byte) error {
	if err := w.enter(); err != nil {
		return err
	}
	defer w.leave()
	mr := w.regions.remove(address(mem), false)
	if mr == nil {
		return badArgument("the slice is not memory of Alloc, or was already freed")
	}
	return mr.Close()
}

// regions are the memory regions of Alloc and those that windows have allocated, sorted by address, so that an
// operand that lies in one is recognised.
type regions struct {
	list []region
	// recent are the indices of the last two hits: a call has two operands.
	recent [2]int
}

type region struct {
	addr, end uint64
	mr        rdma.MR
	window    bool // a window's, which closes it
}

// find gives the region that holds all of b, nil when none does. It neither
// allocates nor locks.
func (r *regions) find(b []byte) rdma.MR {
	if len(r.list) == 0 || len(b) == 0 {
		return nil
	}
	addr := address(b)
	end := addr + uint64(len(b))
	if addr < r.list[0].addr || addr >= r.list[len(r.list)-1].end {
		return nil // most operands are on the heap, outside them all
	}
	for _, i := range r.recent {
		if i < len(r.list) && r.list[i].addr <= addr && end <= r.list[i].end {
			return r.list[i].mr
		}
	}
	i := r.search(addr)
	if i < 0 || end > r.list[i].end {
		return nil
	}
	r.recent[1], r.recent[0] = r.recent[0], i
	return r.list[i].mr
}

// search is the index of the last region that begins at addr or before, -1
// when there is none.
func (r *regions) search(addr uint64) int {
	lo, hi := 0, len(r.list)
	for lo < hi {
		if mid := (lo + hi) / 2; r.list[mid].addr <= addr {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo - 1
}

func (r *regions) add(mr rdma.MR, window bool) {
	at := r.search(mr.Addr()) + 1
	r.list = append(r.list, region{})
	copy(r.list[at+1:], r.list[at:])
	r.list[at] = region{addr: mr.Addr(), end: mr.Addr() + mr.Len(), mr: mr, window: window}
	r.recent = [2]int{}
}

// remove takes the region that begins at addr out and gives it, nil when there
// is none of that kind.
func (r *regions) remove(addr uint64, window bool) rdma.MR {
	i := r.search(addr)
	if i < 0 || r.list[i].addr != addr || r.list[i].window != window {
		return nil
	}
	mr := r.list[i].mr
	r.list = append(r.list[:i], r.list[i+1:]...)
	r.recent = [2]int{}
	return mr
}
