package soft

import (
	"fmt"
	"math/bits"
)

// What a rank's arena holds, in this order. Its size alone decides where each
// part lies and how long it is, so that no process has to believe a header that
// another process may have scribbled on.
//
//	arenaHeader | lockWord x lockWords | regionEntry x regions | queueContext x queues |
//	ready uint32 x queues | queueHeader x completions | sharedHeader x shared |
//	responder x responders | heap: receive queues, AllocMR memory
type layout struct {
	size                                                                            uint64
	regions, queues, completions, shared, responders                                int
	lockAt, regionAt, queueAt, readyAt, completionAt, sharedAt, responderAt, heapAt uint64
}

const (
	arenaMagic   = 0x34415241_54464f53 // "SOFTARA4"
	pageSize     = 4096
	lockWords    = 64
	minArena     = 48 << 10
	maxRegions   = 64 << 10
	maxQueues    = 16 << 10 // also the low bits of a queue pair number
	queueBits    = 14
	maxCompletes = 4 << 10
	maxShared    = 4 << 10
	maxAnswers   = 1 << 10
)

// layoutFor divides an arena of size bytes.
func layoutFor(size uint64) (layout, error) {
	if size < minArena {
		return layout{}, fmt.Errorf("found an arena of %d bytes, expected at least %d", size, minArena)
	}
	l := layout{size: size}
	l.regions = clampPow2(size/2048, 64, maxRegions)
	l.queues = clampPow2(size/2048, 32, maxQueues)
	l.completions = clampPow2(size/8192, 32, maxCompletes)
	l.shared = clampPow2(size/16384, 16, maxShared)
	l.responders = clampPow2(size/16384, 16, maxAnswers)
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
	l.sharedAt = take(l.shared, sharedSize)
	l.responderAt = take(l.responders, responderSize)
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

// arenaHeader stands at the start of an arena. Only the owner writes it, but for wanted.
type arenaHeader struct {
	magic      uint64 // stored last, with release
	owner      uint32 // process id, to tell a leftover from a double use; 0: given back
	_          uint32
	base       uint64   // address of the arena in the owner's process
	nonce      [16]byte // of this life of the arena; the endpoint repeats it
	touched    touched
	responders uint32 // how many initiators the owner's targets answer at a time
	_          uint32
	domains    [xrcDomains]uint64 // XRC domains that the owner has open; 0 for none
	_          [48]byte

	// A line of its own: how a peer that the kernel keeps from the owner's memory
	// gets a TCP link, where the configuration has no secret for links.
	wanted  uint32   // 1: such a peer asks the owner to listen; the owner takes it back to 0
	port    uint32   // where the owner listens, on 127.0.0.1; 0: not yet, or portNone
	secret  [32]byte // of links to it; port is stored behind it, with release
	refused uint32   // 1: the kernel lets the owner read, or write, no process at all
	_       uint32
	network uint64 // the owner's network namespace: its 127.0.0.1 is another's elsewhere; 0: not known
	_       [8]byte
}

// portNone in arenaHeader.port: the owner cannot listen.
const portNone = 1 << 16

// tables are the views of an arena, its own or a peer's.
type tables struct {
	arena      []byte
	regions    []regionEntry
	queues     []queueContext
	ready      []uint32
	cqs        []queueHeader
	shared     []sharedHeader
	responders []responder
}

func tablesOf(arena []byte, l layout) tables {
	return tables{
		arena:      arena,
		regions:    tableAt[regionEntry](arena, l.regionAt, l.regions),
		queues:     tableAt[queueContext](arena, l.queueAt, l.queues),
		ready:      tableAt[uint32](arena, l.readyAt, l.queues),
		cqs:        tableAt[queueHeader](arena, l.completionAt, l.completions),
		shared:     tableAt[sharedHeader](arena, l.sharedAt, l.shared),
		responders: tableAt[responder](arena, l.responderAt, l.responders),
	}
}

// xrcDomains is how many XRC domains a provider can have open.
const xrcDomains = 64

// touched says how much of the arena was ever used, so that its next owner
// clears that and leaves the rest sparse.
type touched struct {
	regions, queues, completions, shared uint32
	responders                           uint32 // by the process that claims one
	_                                    uint32
	heap                                 uint64
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
	kindShared                     // the same, as far as a table allows it
	kindMkey                       // what a layout names

	// kindPrivate, with another kind: for regionEntry.queue alone.
	kindPrivate uint32 = 1 << 8
)

// A regionEntry is a line of the protection table. The owner fills it in while
// state is 0 and publishes state with release. An initiator
// marks it (queueContext.mark) before it looks, so the entry is not filled in anew
// meanwhile: see memoryRegion.Close.
type regionEntry struct {
	state  uint64 // key | regionLive; 0 when free or being deregistered; to 0 also by a peer's send with invalidate
	addr   uint64 // as remote addresses name it; 0 for zero-based and implicit
	length uint64
	va     uint64 // address of the first byte in the owner's process
	offset uint64 // in the arena, kindSegment; of the table, kindShared; of the layout, kindMkey
	pd     uint32
	access uint32
	kind   uint32
	queue  uint32 // kindPrivate: the owner's queue pair through which it is good
	_      [8]byte
}

const regionLive = 1 << 32

// A lastAtomic is the last atomic that a responder has executed, for duplicates.
type lastAtomic struct {
	psn   uint32
	valid uint32
	old   uint64
}

// A queueContext is what others may know of a queue pair: four cache lines,
// by writer. A connected initiator works on line 0 (reading) and line 2, which
// no other process looks at meanwhile.
type queueContext struct {
	// Line 0, written by the owner; word also by the initiator, by
	// compare-and-swap, to put the queue pair into ERR.
	word     uint32 // rdma.QPState | why an initiator moved it to ERR << faultShift
	num      uint32
	dest     uint64 // connected peer: rank+1 << 32 | queue pair number
	rights   uint32 // access | maxDestRdAtomic << 8 | minRNRTimer << 16 | rdma.QPType << 24
	pd       uint32
	slotsAt  uint64 // offset of the receive queue in the arena
	slots    uint32 // its length, a power of two
	slotSize uint32
	slotSGEs uint16
	inline   uint16 // bytes of a message that travel in its completion, at most: QPCap.MaxInlineRecv
	sendCQ   uint32
	recvCQ   uint32
	shared   uint32 // index + 1 of the shared queue that receives come from; 0: of the slots above
	scope    uint64 // UD: the Q_Key; XRC target: its domain; DC target: its access key

	// Line 1, written by the owner as initiator.
	mark uint64 // turn << 32 | what the owner is at: region index + 1, markQueue, 0 when idle
	_    [56]byte

	// Line 2, written by the connected initiator as the responder's hand, and
	// by the owner when the queue pair leaves RESET.
	expect uint32 // PSN of the next request
	head   uint32 // next receive slot to fill, counted for ever
	last   lastAtomic
	_      [40]byte

	// Line 3, rarely written.
	starved     uint32 // the initiator found no receive and would like to hear of one
	established uint32 // a message has come in RTR: establishedNow, then establishedTold
	opens       uint32 // XRC target: how often it was opened by its number, by any process that opens it
	_           [52]byte
}

const (
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
	state   uint32 // of a queue pair's own receive queue; see sharedHeader for others
	sges    uint8
	status  uint8
	opcode  uint8
	flags   uint8 // rdma.WCFlags | slotSolicited
	byteLen uint32
	imm     uint32
	srcQP   uint32
	qp      uint32 // the queue pair that took it, in a shared queue
	stamp   uint64 // when, for a completion queue with timestamps
}

// slotSolicited is in recvSlot.flags, on a bit that is no rdma.WCFlags: the
// sender asked for the receiver's attention.
const slotSolicited = 1 << 2

// slotSGE is a scatter entry in the arena.
type slotSGE struct {
	addr   uint64
	length uint32
	lkey   uint32
}

// A queueHeader is the shared part of a completion queue: what every message
// looks at is on another cache line than what the owner's polls take back.
type queueHeader struct {
	armed  uint32 // the owner waits for completions: armedSolicited, armedAny, or 0
	stamps uint32 // 1: the owner wants their times
	_      [56]byte

	attention uint32 // an initiator has set a ready word of an attached queue pair
	_         [60]byte
}

// What a waiting owner wants to be woken for.
const (
	armedSolicited uint32 = 1 + iota // solicited and failed completions
	armedAny
)

// A sharedHeader is what others may know of a receive queue that many take from
// at once: an SRQ, and the receive queue of an unreliable datagram queue pair. Its
// memory, at the offset at, holds
//
//	claim uint64 x slots | order uint64 x slots | recvSlot and scatter list x slots
//
// order says in which order slots are taken: entry n holds n << 32 | slot for
// the n-th receive ever posted. A claim is the state of a slot:
//
//	FREE -> POSTED (owner) -> CLAIMED (initiator) -> DONE (the same) -> FREE (owner)
//	              ^---- (owner) ----'
//
// with n in its high half, so that it changes hands by one compare-and-swap that
// records which process has it. The claimant of one that stays CLAIMED may have died: the
// owner finds out and posts the slot anew, as the next (sharedQueue.repair).
// head is a hint that every claimant moves on: entries before it are not POSTED,
// but for one that was given back, which its owner posts anew.
//
// The memory of a queue that is destroyed serves only other shared queues of the
// same shape, and n goes on. So an initiator that was about to claim when the queue went finds
// no claim that it could mistake for one that it has read.
type sharedHeader struct {
	// Line 0, written by the owner.
	num      uint32 // of the queue; 0: there is none
	pd       uint32
	scope    uint64 // SRQXRC: the domain; else 0
	at       uint64
	slots    uint32 // a power of two
	slotSize uint32
	slotSGEs uint32
	cq       uint32 // of a queue with one of its own: where its receives complete; else that of the queue pair
	tagsAt   uint64 // SRQTagMatching: the list of tags, see tag.go
	tags     uint32 // entries; 0: it has none
	log      uint32 // words, a power of two
	strides  uint64 // as packStrides has it; 0: a receive is for one message

	// Line 1, written by the owner.
	tail uint32 // receives ever posted
	used uint32 // entries of the list of tags that there may be something in
	_    [56]byte

	// Line 2, written by claimants and by the owner.
	head    uint32
	limit   uint32 // armed by the owner; the process that leaves fewer than this takes it back to 0
	fired   uint32 // and sets this to 1
	starved uint32 // an initiator found no receive and would like to hear of one
	ready   uint32 // an initiator has set a claim to DONE, or back to POSTED behind head
	end     uint32 // about where the log of decisions ends
	stand   uint64 // entries of the list of tags before this position match
	_       [32]byte
}

// The states in the low 8 bits of a claim. Above them is the claimant's rank + 1
// for CLAIMED and DONE, and then n.
const (
	claimFree uint64 = iota
	claimPosted
	claimTaken
	claimDone
	claimState    uint64 = 0xff
	claimRank            = 8 // the shift of the rank
	claimRankBits        = 24
)

const (
	lockSize      = 64
	regionSize    = 64
	contextSize   = 256
	headerSize    = 128
	sharedSize    = 192
	responderSize = 64
	slotHeader    = 32
	slotSGESize   = 16
	tagKeySize    = 32
	tagInfoSize   = 32
)

// slotInline is in recvSlot.opcode, on a bit that is of no rdma.WCOpcode: the
// payload lies in the slot, behind the scatter list.
const slotInline = 1 << 6

// slotStride is the size of a receive slot with room for n scatter entries.
func slotStride(n int) int { return (slotHeader + n*slotSGESize + 63) &^ 63 }
