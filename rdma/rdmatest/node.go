package rdmatest

import (
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/gorun-mpi/gorun/rdma"
)

// A MemoryKind says where registered memory comes from.
type MemoryKind uint8

// The kinds of memory.
const (
	Allocated MemoryKind = iota // PD.AllocMR
	Ordinary                    // PD.RegMR of memory on the heap
	Implicit                    // memory on the heap, named through a region over the whole address space
	Paged                       // PD.RegMR of pages that are mapped for it and not touched
	Described                   // PD.RegDMABufMR of a file descriptor, at the addresses where the program has it mapped
)

// String names the kind.
func (k MemoryKind) String() string {
	return [...]string{"allocated", "ordinary", "implicit", "paged", "described"}[k]
}

// A Node is one end of a test: an opened context and memory in its process.
type Node interface {
	Context() rdma.Context
	// Memory makes and registers n zeroed bytes, the first of them 64-byte aligned.
	Memory(pd rdma.PD, kind MemoryKind, n int, access rdma.Access) (Region, error)
	// Again registers n bytes of r's memory from off once more. r is Ordinary or Paged.
	Again(pd rdma.PD, r Region, off, n int, access rdma.Access) (Region, error)
	// AgainAt is Again with addresses from iova on.
	AgainAt(pd rdma.PD, r Region, off, n int, iova uint64, access rdma.Access) (Region, error)
	// Rereg changes r's region, with rdma.ReregTranslation to what to says, and gives
	// what it is then.
	Rereg(r Region, flags rdma.ReregFlags, pd rdma.PD, to piece, access rdma.Access) (Region, error)
	// Pages does to n bytes of Paged memory from off, whole pages, what op says.
	Pages(r Region, off, n int, op pageOp) (resident int, err error)
}

// A pageOp is what the program does to its own memory, beside the device.
type pageOp uint8

const (
	pagesCount     pageOp = iota // how many of them are in memory
	pagesDiscard                 // the kernel may reclaim them: madvise(MADV_DONTNEED)
	pagesHide                    // neither read nor written
	pagesReadOnly                // not written
	pagesReadWrite               // as they were made
	pagesUnmap                   // all that was mapped
)

const pageSize = 4096

// A Region is registered memory of a node.
type Region struct {
	rdma.MR
	// Base names the first byte. It is MR.Addr but for an implicit region,
	// which spans more than this memory.
	Base uint64
	Size int
	memory
}

// A piece is n bytes of a region's memory from off on.
type piece struct {
	Region
	off, n int
}

// memory is looked at and changed by the program, not by the device.
type memory interface {
	// Load copies n bytes from off.
	Load(off, n int) []byte
	Store(off int, b []byte)
	// Load64 reads 8 aligned bytes at once, and all the device wrote before them.
	Load64(off int) uint64
}

// store64 sets the 8 bytes at off to v in the machine's order.
func (r Region) store64(off int, v uint64) {
	r.Store(off, binary.NativeEndian.AppendUint64(nil, v))
}

// sge names n bytes from off.
func (r Region) sge(off, n int) rdma.SGE {
	return rdma.SGE{Addr: r.Base + uint64(off), Length: uint32(n), LKey: r.LKey()}
}

// Local is the node of a context opened in this process.
func Local(ctx rdma.Context) Node { return &local{ctx: ctx} }

type local struct {
	ctx rdma.Context

	mu   sync.Mutex
	keep [][]byte // memory that only an address names
}

func (n *local) Context() rdma.Context { return n.ctx }

func (n *local) Memory(pd rdma.PD, kind MemoryKind, size int, access rdma.Access) (Region, error) {
	switch kind {
	case Allocated:
		mr, err := pd.AllocMR(size, access)
		if err != nil {
			return Region{}, err
		}
		if len(mr.Bytes()) != size {
			return Region{}, fmt.Errorf("AllocMR(%d) gave %d bytes", size, len(mr.Bytes()))
		}
		return Region{mr, mr.Addr(), size, bytes(mr.Bytes())}, nil
	case Ordinary:
		buf := aligned(size)
		mr, err := pd.RegMR(buf, access)
		if err != nil {
			return Region{}, err
		}
		return Region{mr, mr.Addr(), size, bytes(buf)}, nil
	case Paged:
		buf, err := mapPages(size)
		if err != nil {
			return Region{}, err
		}
		mr, err := pd.RegMR(buf[:size:size], access)
		if err != nil {
			return Region{}, err
		}
		return Region{mr, mr.Addr(), size, bytes(buf[:size])}, nil
	case Described:
		fd, buf, err := describe(size)
		if err != nil {
			return Region{}, err
		}
		defer closeFD(fd)
		mr, err := pd.RegDMABufMR(0, uint64(size), addressOf(buf), fd, access)
		if err != nil {
			return Region{}, err
		}
		return Region{mr, addressOf(buf), size, bytes(buf[:size])}, nil
	case Implicit:
		mr, err := pd.RegMR(nil, access|rdma.AccessOnDemand)
		if err != nil {
			return Region{}, err
		}
		buf := aligned(size)
		n.mu.Lock()
		n.keep = append(n.keep, buf)
		n.mu.Unlock()
		return Region{mr, addressOf(buf), size, bytes(buf)}, nil
	}
	return Region{}, fmt.Errorf("memory of kind %d", kind)
}

func (n *local) Again(pd rdma.PD, r Region, off, size int, access rdma.Access) (Region, error) {
	buf := r.memory.(bytes)[off : off+size : off+size]
	mr, err := pd.RegMR(buf, access)
	if err != nil {
		return Region{}, err
	}
	return Region{mr, mr.Addr(), size, buf}, nil
}

func (n *local) AgainAt(pd rdma.PD, r Region, off, size int, iova uint64, access rdma.Access) (Region, error) {
	buf := r.memory.(bytes)[off : off+size : off+size]
	mr, err := pd.RegMRIOVA(buf, iova, access)
	if err != nil {
		return Region{}, err
	}
	return Region{mr, mr.Addr(), size, buf}, nil
}

func (n *local) Rereg(r Region, flags rdma.ReregFlags, pd rdma.PD, to piece, access rdma.Access) (Region, error) {
	var buf bytes
	if flags&rdma.ReregTranslation != 0 {
		buf = to.memory.(bytes)[to.off : to.off+to.n : to.off+to.n]
	}
	if err := r.MR.Rereg(flags, pd, buf, access); err != nil {
		return Region{}, err
	}
	r.Base = r.MR.Addr()
	if buf != nil {
		r.memory, r.Size = buf, to.n
	}
	return r, nil
}

func (n *local) Pages(r Region, off, size int, op pageOp) (int, error) {
	b := r.memory.(bytes)[off : off+size]
	if op == pagesUnmap {
		b = b[:cap(b)]
	}
	return turnPages(b, op)
}

// aligned gives n bytes on the heap that begin at a cache line.
func aligned(n int) []byte {
	const line = 64
	buf := make([]byte, n+line)
	skip := int(-addressOf(buf) & (line - 1))
	return buf[skip : skip+n : skip+n]
}

// bytes is memory of this process.
type bytes []byte

func (b bytes) Load(off, n int) []byte     { return append([]byte(nil), b[off:off+n]...) }
func (b bytes) Store(off int, data []byte) { copy(b[off:off+len(data)], data) }
func (b bytes) Load64(off int) uint64      { return load64(b[off:]) }
