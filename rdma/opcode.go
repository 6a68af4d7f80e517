package rdma

import "strconv"

// WROpcode is the operation of a send work request (enum ibv_wr_opcode).
type WROpcode uint8

// The send operations, with libibverbs' values.
const (
	WRRDMAWrite WROpcode = iota
	WRRDMAWriteWithImm
	WRSend
	WRSendWithImm
	WRRDMARead
	WRAtomicCmpAndSwp
	WRAtomicFetchAndAdd
	WRLocalInv    // invalidate a local key: a window of type 2 or an Mkey
	WRBindMW      // bind a window of type 2
	WRSendWithInv // a send that also invalidates a key of the receiver
)

// The operations that libibverbs has no number for begin at 16. WRRegMkey stands for
// IBV_WR_DRIVER1 of mlx5; those behind it are the software device's only.
const (
	WRRegMkey WROpcode = 16 + iota // set the layout of an Mkey
)

// Native tells whether libibverbs has the operation: package verbs refuses others.
func (op WROpcode) Native() bool { return op <= WRRegMkey }

// WCOpcode says which operation completed (enum ibv_wc_opcode).
type WCOpcode uint8

// The completed operations.
const (
	WCSend WCOpcode = iota
	WCRDMAWrite
	WCRDMARead
	WCCompSwap
	WCFetchAdd
	WCBindMW
	WCLocalInv
	WCRegMkey         WCOpcode = 16 // libibverbs has IBV_WC_DRIVER1 instead
	WCRecv            WCOpcode = 128
	WCRecvRDMAWithImm WCOpcode = 129
	WCTMAdd           WCOpcode = 130
	WCTMDel           WCOpcode = 131
	WCTMSync          WCOpcode = 132
	WCTMRecv          WCOpcode = 133
	WCTMNoTag         WCOpcode = 134
)

// operations is the one table of the send operations. Providers post, answer, count
// and complete by it; nothing else asks which opcode it has. A test fails on a hole in a row, and on code that compares
// opcodes elsewhere.
//
// To add an operation, name it above and give it a row; a new way to move bytes also
// needs its case in the responder of package soft.
var operations = [256]Operation{
	WRRDMAWrite: {Name: "RDMA write", Moves: MovesToMemory, Needs: NeedsRemote, Access: AccessRemoteWrite,
		On: reliable | 1<<UC, Entry: 32, Done: WCRDMAWrite},
	WRRDMAWriteWithImm: {Name: "RDMA write with immediate", Moves: MovesToMemory, Needs: NeedsRemote | NeedsImm, Access: AccessRemoteWrite,
		On: reliable | 1<<UC, Entry: 32, Done: WCRDMAWrite, Received: WCRecvRDMAWithImm, Flags: WCFlagWithImm},
	WRSend: {Name: "send", Moves: MovesToReceive,
		On: reliable | 1<<UC | 1<<UD, Entry: 16, Done: WCSend, Received: WCRecv},
	WRSendWithImm: {Name: "send with immediate", Moves: MovesToReceive, Needs: NeedsImm,
		On: reliable | 1<<UC | 1<<UD, Entry: 16, Done: WCSend, Received: WCRecv, Flags: WCFlagWithImm},
	WRSendWithInv: {Name: "send with invalidate", Moves: MovesToReceive, Needs: NeedsKey,
		On: reliable, Entry: 16, Done: WCSend, Received: WCRecv, Flags: WCFlagWithInv},
	WRRDMARead: {Name: "RDMA read", Moves: MovesFromMemory, Needs: NeedsRemote, Access: AccessRemoteRead,
		On: reliable, Entry: 32, Done: WCRDMARead},
	WRAtomicCmpAndSwp: {Name: "compare and swap", Moves: MovesWord, Word: WordSwap, Needs: NeedsRemote | NeedsOperands, Access: AccessRemoteAtomic,
		On: reliable, Bytes: 8, Entry: 48, Done: WCCompSwap},
	WRAtomicFetchAndAdd: {Name: "fetch and add", Moves: MovesWord, Word: WordAdd, Needs: NeedsRemote | NeedsOperands, Access: AccessRemoteAtomic,
		On: reliable, Bytes: 8, Entry: 48, Done: WCFetchAdd},
	WRLocalInv: {Name: "local invalidate", Moves: MovesKey, Needs: NeedsKey,
		On: reliable | 1<<UC, Entry: 128, Done: WCLocalInv},
	WRBindMW: {Name: "bind window", Moves: MovesKey, Needs: NeedsWindow,
		On: reliable | 1<<UC, Entry: 128 + 64, Done: WCBindMW},
	WRRegMkey: {Name: "register Mkey", Moves: MovesKey, Needs: NeedsLayout,
		On: reliable | 1<<UC, Entry: 128, Done: WCRegMkey},
}

const reliable = 1<<RC | 1<<XRCSend | 1<<DCI

// An Operation describes an opcode; it is a row of the table of opcodes and must not be changed.
type Operation struct {
	Moves    Moves
	Word     Word // of MovesWord
	Needs    Needs
	Access   Access   // the rights that the responder's queue pair and the key must have; 0: the request names no remote memory
	On       uint16   // the types of queue pairs that accept it in their send queue, as bits 1 << QPType
	Bytes    uint8    // the required length of the local memory; 0: any
	Entry    uint8    // length in bytes of the fixed segments of a work queue entry, as on mlx5
	Done     WCOpcode // the opcode of the requester's completion
	Received WCOpcode // the opcode of the responder's completion, if the operation consumes a receive request there; else 0
	Flags    WCFlags  // the flags of the responder's completion
	Name     string
}

// Moves says where an operation moves bytes.
type Moves uint8

const (
	MovesNot        Moves = iota // there is no such operation
	MovesKey                     // nowhere: it changes a key of the requester
	MovesToMemory                // into the responder's memory that the request names
	MovesToReceive               // into the buffer of a receive request
	MovesFromMemory              // from the responder's memory that the request names
	MovesWord                    // it changes a 64-bit word of the responder, and returns the old value
)

// Word is how an atomic changes a word.
type Word uint8

const (
	WordAdd Word = 1 + iota
	WordSwap
)

// Next is what a word that is old becomes, and whether it is written at all.
func (w Word) Next(old, compareAdd, swap uint64) (next uint64, written bool) {
	switch w {
	case WordAdd:
		return old + compareAdd, true
	case WordSwap:
		return swap, old == compareAdd
	}
	return old, false
}

// Needs are the fields of a [SendWR] that an operation reads, beside
// those for the payload and those for the type of the queue pair.
type Needs uint8

const (
	NeedsRemote   Needs = 1 << iota // RemoteAddr, RKey
	NeedsOperands                   // CompareAdd, Swap
	NeedsImm                        // ImmData
	NeedsKey                        // InvalidateRKey
	NeedsWindow                     // MW, Bind, RKey
	NeedsLayout                     // Mkey, Layout
)

// Operation returns the opcode's row of the table. For an unknown opcode
// it has MovesNot, and no type of queue pair accepts it.
func (op WROpcode) Operation() *Operation { return &operations[op] }

// String is the operation's name.
func (op WROpcode) String() string {
	if o := op.Operation(); o.Moves != MovesNot {
		return o.Name
	}
	return "operation " + strconv.Itoa(int(op))
}

// Opcodes returns the opcodes of all operations.
func Opcodes() (list []WROpcode) {
	for op := range operations {
		if operations[op].Moves != MovesNot {
			list = append(list, WROpcode(op))
		}
	}
	return list
}

// OnType reports whether send queues of this type accept the operation.
func (o *Operation) OnType(typ QPType) bool { return o.On>>typ&1 != 0 }

// GoesOut reports whether another queue pair executes the operation.
func (o *Operation) GoesOut() bool { return o.Moves >= MovesToMemory }

// Fetches reports whether the operation returns bytes to the requester: a read
// or an atomic. It needs MaxRdAtomic, and local memory with write access.
func (o *Operation) Fetches() bool { return o.Moves >= MovesFromMemory }

// Count counts executed requests of an operation.
func (c *Counters) Count(o *Operation, requests, bytes uint64) {
	switch o.Moves {
	case MovesToMemory:
		c.Writes += requests
		c.WriteBytes += bytes
	case MovesToReceive:
		c.Sends += requests
		c.SendBytes += bytes
	case MovesFromMemory:
		c.Reads += requests
		c.ReadBytes += bytes
	case MovesWord:
		c.Atomics += requests
	}
}
