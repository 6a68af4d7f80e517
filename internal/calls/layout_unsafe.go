package calls

import (
	"fmt"
	"unsafe"
)

const (
	magic   = 0x31534c4c4143524f // "ORCALLS1" as a number: it tells the order of bytes, too
	version = 1

	// Sites is the number of call sites that are told apart; what further ones call is added up in site 0.
	Sites = 512
	// Ring is the number of events that a rank keeps.
	Ring = 1 << 14
	// Sizes is the number of classes of sizes: class k is of operations with less than 1<<k bytes.
	Sizes = 40

	textMost  = 240
	ranksMost = 1 << 20 // of a world whose peers are told apart
)

// header begins the file. Times are nanoseconds of the clock that the processes of a machine share (CLOCK_MONOTONIC).
type header struct {
	magic      uint64
	version    uint32
	size       uint32 // of the world
	rank       uint32
	concurrent uint32 // calls of several goroutines are not recorded
	begin      int64
	end        int64    // of MPI_Finalize; 0: it has not been
	events     uint64   // written to the ring
	current    uint64   // 1 and the site of the call that the rank is in; 0: in none
	since      int64    // of that call
	sites      uint64   // in use; site 0 is all further ones
	device     [64]byte // with which the rank has worked, ended by a zero byte; none: that is not known
	rdma       [rdmaCounts]uint64
	_          [4096 - 80 - 64 - 8*rdmaCounts]byte
}

// site is the text of a call site: the call, the function and the place in its source, each ended by a newline. Without a function, the place is
// the file of a program or library in C, and the address in it in place of the line.
type site struct {
	length uint64
	text   [textMost]byte
}

// sum is what was called at a site.
type sum struct {
	count, out, in uint64 // calls, and bytes of them
	total, longest int64
}

// peer is what went to and came from a rank of the world, by messages and by v forms.
type peer struct{ sent, sentBytes, got, gotBytes uint64 }

// event is a call in the ring.
type event struct {
	start, took int64
	site        uint16
	kind        Kind
	_           byte
	group       uint32 // the communicator of a collective, the tag of a message
	to, from    int32
	out, in     uint32 // bytes
	sent, got   uint32 // which message to, or from, that rank it is; which collective of the communicator
}

// file is the memory of a record. abi/profile/record.h is the same in C, for programs of other MPIs.
type file struct {
	head  *header
	texts *[Sites]site
	sums  *[Sites]sum
	sizes *[Sizes]uint64
	peers []peer
	ring  *[Ring]event
}

const headerSize, siteSize = int(unsafe.Sizeof(header{})), int(unsafe.Sizeof(site{}))

// headOf and siteOf lay a part of a file over that much memory.
func headOf(mem []byte) *header { return (*header)(unsafe.Pointer(&mem[:headerSize][0])) }

func siteOf(mem []byte) *site { return (*site)(unsafe.Pointer(&mem[:siteSize][0])) }

// length is that of the file of a rank of a world of so many.
func length(size int) int {
	return int(unsafe.Sizeof(header{})+unsafe.Sizeof([Sites]site{})+unsafe.Sizeof([Sites]sum{})+unsafe.Sizeof([Sizes]uint64{})+unsafe.Sizeof([Ring]event{})) + size*int(unsafe.Sizeof(peer{}))
}

// view lays a file over memory, which is that of a world of so many ranks.
func view(mem []byte, size int) (f file, err error) {
	if len(mem) != length(size) {
		return f, fmt.Errorf("a record of %d bytes, expected %d for a world of %d ranks", len(mem), length(size), size)
	}
	at := unsafe.Pointer(&mem[0])
	next := func(n uintptr) unsafe.Pointer {
		p := at
		at = unsafe.Add(at, n)
		return p
	}
	f.head = (*header)(next(unsafe.Sizeof(header{})))
	f.texts = (*[Sites]site)(next(unsafe.Sizeof([Sites]site{})))
	f.sums = (*[Sites]sum)(next(unsafe.Sizeof([Sites]sum{})))
	f.sizes = (*[Sizes]uint64)(next(unsafe.Sizeof([Sizes]uint64{})))
	f.ring = (*[Ring]event)(next(unsafe.Sizeof([Ring]event{})))
	f.peers = unsafe.Slice((*peer)(unsafe.Pointer(unsafe.SliceData(mem[len(mem)-size*int(unsafe.Sizeof(peer{})):]))), size)
	return f, nil
}
