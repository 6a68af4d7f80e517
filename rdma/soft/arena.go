package soft

import (
	"fmt"
	"math/bits"
)

// What a rank's arena holds, in this order. Its size alone decides where each
// part lies and how long it is, so that nobody has to believe a header that
// somebody else may have scribbled on.
//
//	arenaHeader | lockWord x lockWords | regionEntry x regions | queueContext x queues |
//	ready uint32 x queues | queueHeader x completions | heap: receive queues, AllocMR memory
type layout struct {
	size                                                     uint64
	regions, queues, completions                             int
	lockAt, regionAt, queueAt, readyAt, completionAt, heapAt uint64
}

const (
	arenaMagic   = 0x31415241_54464f53 // "SOFTARA1"
	pageSize     = 4096
	lockWords    = 64
	minArena     = 48 << 10
	maxRegions   = 64 << 10
	maxQueues    = 16 << 10 // also the low bits of a queue pair number
	queueBits    = 14
	maxCompletes = 4 << 10
)

// layoutFor divides an arena of size bytes.
func layoutFor(size uint64) (layout, error) {
	if size < minArena {
		return layout{}, fmt.Errorf("an arena of %d bytes, at least %d are needed", size, minArena)
	}
	l := layout{size: size}
	l.regions = clampPow2(size/2048, 64, maxRegions)
	l.queues = clampPow2(size/2048, 32, maxQueues)
	l.completions = clampPow2(size/8192, 32, maxCompletes)
	at := uint64(pageSize)
	take := func(n, each int) uint64 {
		start := at
		at += (uint64(n)*uint64(each) + pageSize - 1) &^ (pageSize - 1)
		return start
	}
	l.lockAt = take(lockWords, lockSize)
	l.regionAt = take(l.regions, regionSize)
	l.queueAt = take(l.queues, contextSize)
	l.readyAt = take(l.queues, 4)
	l.completionAt = take(l.completions, headerSize)
	l.heapAt = at
	return l, nil
}

func clampPow2(v uint64, low, high int) int {
	if v < uint64(low) {
		return low
	}
	if v > uint64(high) {
		return high
	}
	return 1 << (bits.Len64(v) - 1)
}

// arenaHeader stands at the start of an arena. Only the owner writes it.
type arenaHeader struct {
	magic   uint64 // stored last, with release
	owner   uint32 // process id, to tell a leftover from a double use; 0: given back
	_       uint32
	base    uint64   // address of the arena in the owner's process
	nonce   [16]byte // of this life of the arena; the endpoint repeats it
	touched touched
}

// touched says how much of the arena was ever used, so that its next owner
// clears that and leaves the rest sparse.
type touched struct {
	regions, queues, completions, _ uint32
	heap                            uint64
}

// A lockWord serialises atomics on memory outside the segment: those that hash
// to it. 0 is free, else holder rank+1 in the low half and a turn above it, so
// that taking the lock, and taking it from the dead, is one compare-and-swap.
type lockWord struct {
	word uint64
	_    [56]byte
}

// The kinds of region.
const (
	kindSegment  uint32 = 1 + iota // memory in the owner's arena
	kindOrdinary                   // memory of the owner's process
	kindImplicit                   // the whole address space of the owner's process
)

// A regionEntry is a line of the protection table. The owner fills it in while
// state is 0 and publishes state with release. Who looks at it as an initiator
// has marked it before (queueContext.mark), so it is not filled in anew under
// his eyes: see memoryRegion.Close.
type regionEntry struct {
	state  uint64 // key | regionLive; 0 when free or being deregistered
	addr   uint64 // as remote addresses name it; 0 for zero-based and implicit
	length uint64
	va     uint64 // address of the first byte in the owner's process
	offset uint64 // in the arena, kindSegment
	pd     uint32
	access uint32
	kind   uint32
	_      [12]byte
}

const regionLive = 1 << 32

// A queueContext is what others may know of a queue pair: three cache lines,
// by writer. A connected initiator works on line 0 (reading) and line 2.
type queueContext struct {
	// Line 0, written by the owner; word also by the initiator, by
	// compare-and-swap, to put the queue pair into ERR.
	word     uint32 // rdma.QPState | queueFault
	num      uint32
	dest     uint64 // connected peer: rank+1 << 32 | queue pair number
	rights   uint32 // access | maxDestRdAtomic << 8 | minRNRTimer << 16
	pd       uint32
	slotsAt  uint64 // offset of the receive queue in the arena
	slots    uint32 // its length, a power of two
	slotSize uint32
	slotSGEs uint32
	sendCQ   uint32
	recvCQ   uint32
	_        [8]byte

	// Line 1, written by the owner as initiator.
	mark uint64 // turn << 32 | what he is at: region index + 1, markQueue, 0 when idle
	_    [56]byte

	// Line 2, written by the connected initiator as the responder's hand, and
	// by the owner when he leaves RESET.
	expect      uint32 // PSN of the next request
	head        uint32 // next receive slot to fill, counted for ever
	atomicPSN   uint32 // the last atomic executed, for duplicates
	atomicValid uint32
	atomicOld   uint64
	starved     uint32 // the initiator found no receive and would like to hear of one
	_           [36]byte
}

const (
	queueFault uint32 = 1 << 8     // an initiator moved the queue pair to ERR
	queueState uint32 = 0xff       // the rdma.QPState in word
	markQueue  uint64 = 0xffffffff // any region of the target
	markTurn   uint64 = 1 << 32    // one turn
	markWhat   uint64 = 0xffffffff // the low half
)

// The states of a receive slot:
//
//	FREE -> POSTED (owner) -> DONE (initiator: payload placed, fields below written) -> FREE (owner)
//
// A reliable connection has one initiator, so POSTED needs no claim, and an
// initiator that dies in between leaves a slot that is still POSTED.
const (
	slotFree uint32 = iota
	slotPosted
	slotDone
)

// A recvSlot is a receive request; its scatter list follows it in the arena.
type recvSlot struct {
	state   uint32
	sges    uint32
	status  uint32
	opcode  uint32
	byteLen uint32
	imm     uint32
	flags   uint32
	srcQP   uint32
}

// slotSGE is a scatter entry in the arena.
type slotSGE struct {
	addr   uint64
	length uint32
	lkey   uint32
}

// A queueHeader is the shared part of a completion queue.
type queueHeader struct {
	attention uint32 // an initiator has set a ready word of an attached queue pair
	_         [60]byte
}

const (
	lockSize    = 64
	regionSize  = 64
	contextSize = 192
	headerSize  = 64
	slotHeader  = 32
	slotSGESize = 16
)

// slotStride is the size of a receive slot with room for n scatter entries.
func slotStride(n int) int { return (slotHeader + n*slotSGESize + 63) &^ 63 }
