package rdma

import "encoding/binary"

// OpsOpcode is an operation on the list of tags (enum ibv_ops_wr_opcode).
type OpsOpcode uint8

// The operations, with libibverbs' values.
const (
	OpAdd  OpsOpcode = iota // append an entry
	OpDel                   // take one out; WCTMErr when a message has taken it
	OpSync                  // say how many unexpected messages were consumed
)

// An OpsWR is one operation on the list of tags of an SRQTagMatching (struct
// ibv_ops_wr; ibv_post_srq_ops(3) and rdma-core's Documentation/tag_matching.md are
// the source of these rules).
//
// A message takes the earliest entry of the list that its tag matches, whichever
// queue pair it comes in on, and is placed into that entry's memory without its
// headers. It completes as WCTMRecv with the entry's RecvWRID, with WCFlagTMMatch
// and WCFlagTMDataValid, which come together, or the first before the second. One
// that matches none is unexpected: it takes an ordinary receive of the SRQ, headers
// and all, and completes as WCTMRecv without either flag. A message of TMNoTag or
// TMFin takes an ordinary receive too and completes as WCTMNoTag. Completions are in
// the order in which messages matched, or did not.
//
// Software that has been handed an unexpected message looks for an entry that it
// would have matched, had that been there in time; meanwhile others that match it may
// come. So from an unexpected message on, entries that are added match nothing until
// software has said, in UnexpectedCnt, that it has consumed as many unexpected
// messages as the device has delivered. WCFlagTMSyncReq in the completion of an
// operation tells that this is due.
//
// A rendezvous request (TMRndv) that matches is completed by the device: it reads the
// payload through the queue pair that the request came in on, which must be in RTS
// and allowed to read, completes the entry and sends a TMFin with the request's
// TMH and RVH. The sender keeps its memory until then. One that is longer
// than the entry's memory completes with WCTMRndvIncomplete: its headers are in that
// memory, and software reads, and sends the TMFin, as it does for an unexpected one.
//
// An operation has its place until its completion, or that of a later one, has been
// polled; an entry has one until the message that took it, or its removal, has been.
// No place is ErrNoMemory.
type OpsWR struct {
	WRID   uint64
	Opcode OpsOpcode
	Flags  SendFlags // SendSignaled: complete with a WC, as failures always do; OpsTMSync
	// UnexpectedCnt is how many unexpected messages software has consumed so far,
	// modulo 1<<16; valid with OpsTMSync.
	UnexpectedCnt uint32
	Handle        uint32 // OpAdd: set by PostOps; OpDel: which entry

	RecvWRID uint64 // OpAdd: identity of the completion of the message that matches
	SGL      []SGE
	Tag      uint64 // matches a message when (message's tag & Mask) == (Tag & Mask)
	Mask     uint64
}

// OpsTMSync says that OpsWR.UnexpectedCnt is set (IBV_OPS_TM_SYNC).
const OpsTMSync SendFlags = 1 << 5

// TMOpcode says what a tag-matching header is of (enum ibv_tmh_op).
type TMOpcode uint8

// The kinds of message, with libibverbs' values.
const (
	TMNoTag TMOpcode = iota // goes to an ordinary receive
	TMRndv                  // a rendezvous request: an RVH follows
	TMFin                   // the rendezvous is over: the sender's buffer is free
	TMEager                 // the payload follows
)

// TMHLen is the length of a tag-matching header in bytes, RVHLen that of a
// rendezvous header behind it.
const (
	TMHLen = 16
	RVHLen = 16
)

// A TMH begins every message to a tag-matching SRQ (struct ibv_tmh).
type TMH struct {
	Opcode TMOpcode
	AppCtx uint32 // handed through to the receiver, or to the sender in the FIN
	Tag    uint64
}

// Append appends the header as it travels.
func (h TMH) Append(b []byte) []byte {
	b = append(b, byte(h.Opcode), 0, 0, 0)
	b = binary.BigEndian.AppendUint32(b, h.AppCtx)
	return binary.BigEndian.AppendUint64(b, h.Tag)
}

// ParseTMH reads the header at the start of b, which is at least TMHLen long.
func ParseTMH(b []byte) TMH {
	return TMH{TMOpcode(b[0]), binary.BigEndian.Uint32(b[4:]), binary.BigEndian.Uint64(b[8:])}
}

// An RVH says where the payload of a rendezvous is to be read (struct ibv_rvh).
type RVH struct {
	Addr   uint64
	RKey   uint32
	Length uint32
}

// Append appends the header as it travels.
func (h RVH) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, h.Addr)
	b = binary.BigEndian.AppendUint32(b, h.RKey)
	return binary.BigEndian.AppendUint32(b, h.Length)
}

// ParseRVH reads the header at the start of b, which is at least RVHLen long.
func ParseRVH(b []byte) RVH {
	return RVH{binary.BigEndian.Uint64(b), binary.BigEndian.Uint32(b[8:]), binary.BigEndian.Uint32(b[12:])}
}
