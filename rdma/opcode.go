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
	WRLocalInv                  // invalidate a key of this side: a window of type 2, an Mkey
	WRBindMW                    // bind a window of type 2
	WRSendWithInv               // a send that invalidates a key of the receiver
	WRRegMkey     WROpcode = 16 // set the layout of an Mkey; not libibverbs' own (IBV_WR_DRIVER1)
)

// operations is the one table of the send operations. Providers post, answer, count
// and complete by it, and the suite of rdmatest draws its cases from it; nothing else
// asks which opcode it has. A test fails on a hole in a row, and on code that compares
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

// An Operation is a row of the table: what there is to know of an opcode. It belongs
// to the table and is never written.
type Operation struct {
	Moves    Moves
	Word     Word // of MovesWord
	Needs    Needs
	Access   Access   // what the responder's queue pair and the key must grant; 0: the request names no memory there
	On       uint16   // the types of queue pairs whose send queues have it: 1 << QPType
	Bytes    uint8    // the length of the local memory; 0: any
	Entry    uint8    // bytes of a work queue entry's segments that do not depend on the request, as mlx5 has them
	Done     WCOpcode // of the requester's completion
	Received WCOpcode // of the responder's, where the operation takes a receive request there; else 0
	Flags    WCFlags  // of that
	Name     string
}

// Moves is what an operation does with bytes.
type Moves uint8

const (
	MovesNot        Moves = iota // there is no such operation
	MovesKey                     // it moves none: it changes a key of the requester's own side
	MovesToMemory                // into the responder's memory that the request names
	MovesToReceive               // into the buffer of a receive request
	MovesFromMemory              // out of the responder's memory
	MovesWord                    // it changes a word there, and brings what that was
)

// Word is what becomes of a word: a sum, or another one where it compares equal.
type Word uint8

const (
	WordAdd Word = 1 + iota
	WordSwap
)

// Needs are the fields of a SendWR that an operation reads, beside those of its queue
// pair's type and those of its payload.
type Needs uint8

const (
	NeedsRemote   Needs = 1 << iota // RemoteAddr, RKey
	NeedsOperands                   // CompareAdd, Swap
	NeedsImm                        // ImmData
	NeedsKey                        // InvalidateRKey
	NeedsWindow                     // MW, Bind, RKey
	NeedsLayout                     // Mkey, Layout
)

// Operation is the opcode's row. That of no operation has MovesNot, and is on no queue
// pair.
func (op WROpcode) Operation() *Operation { return &operations[op] }

// String is the operation's name.
func (op WROpcode) String() string {
	if o := op.Operation(); o.Moves != MovesNot {
		return o.Name
	}
	return "operation " + strconv.Itoa(int(op))
}

// Opcodes are those of all operations.
func Opcodes() (list []WROpcode) {
	for op := range operations {
		if operations[op].Moves != MovesNot {
			list = append(list, WROpcode(op))
		}
	}
	return list
}

// OnType tells whether send queues of a type have it.
func (o *Operation) OnType(typ QPType) bool { return o.On>>typ&1 != 0 }

// GoesOut tells whether another queue pair executes it.
func (o *Operation) GoesOut() bool { return o.Moves >= MovesToMemory }

// Fetches tells whether it brings the requester bytes: a read or an atomic. It needs
// MaxRdAtomic, and memory that may be written to.
func (o *Operation) Fetches() bool { return o.Moves >= MovesFromMemory }

// Count counts requests of the operation that were executed.
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
