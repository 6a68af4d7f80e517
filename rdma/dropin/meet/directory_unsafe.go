package meet

import (
	"sync/atomic"
	"unsafe"

	"github.com/gorun-mpi/gorun/rdma"
)

const (
	// Places is the most processes that a fabric serves while one of them lives on.
	Places = 1023
	// Blocks is the most processes that are in a fabric at a time: each has its own queue pair numbers.
	Blocks = 64

	directoryMagic = 0x31594d45_45544d4d // "MMTEEMY1"
	lidMost        = 0xbfff              // the last that names one port
	cardMost       = 384
	recordsAt      = 4096
)

// header begins the directory. All but magic changes under the lock of the fabric.
type header struct {
	magic uint64
	clock uint64 // counts joins and ends
	lids  uint64 // LIDs ever given
}

// A record is a place. All changes are under the lock, but for what its member announces.
type record struct {
	pid    uint32 // 0: nobody has it
	state  uint32 // announced: what follows number is valid; stored last, with release
	start  uint64 // of the process, in clock ticks since boot
	joined uint64 // by the clock
	ended  uint64 // by the clock; 0: it was never used
	lid    uint32
	block  uint32
	gids   [2]rdma.GID
	length uint32
	_      uint32
	card   [cardMost]byte
	_      [48]byte
}

const recordSize = 512

var _ [recordSize]byte = [unsafe.Sizeof(record{})]byte{}

// directory is a view of the last arena. Other members may write anything into it: lengths are checked where they are read.
type directory struct {
	*header
	records *[Places]record
}

// directoryIn needs an arena of recordsAt + Places * recordSize bytes, page aligned.
func directoryIn(arena []byte) directory {
	base := unsafe.Pointer(unsafe.SliceData(arena[:recordsAt+Places*recordSize]))
	return directory{(*header)(base), (*[Places]record)(unsafe.Add(base, recordsAt))}
}

func (d directory) formatted() bool { return atomic.LoadUint64(&d.magic) == directoryMagic }
