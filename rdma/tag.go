package rdma

import "encoding/binary"

// OpsOpcode is an operation on a tag list (enum ibv_ops_wr_opcode).
type OpsOpcode uint8

// The operations, with libibverbs' values.
const (
	OpAdd  OpsOpcode = iota // add an entry at the end
	OpDel                   // remove an entry; WCTMErr if a message has already taken it
	OpSync                  // report the number of unexpected messages that were consumed
)

// An OpsWR is an operation on the tag list of an [SRQTagMatching] (struct ibv_ops_wr). The
// rules are those of ibv_post_srq_ops(3) and of rdma-core's Documentation/tag_matching.md.
//
// A message takes the first entry of the list that matches its tag, on whichever queue pair it
// arrives. Its payload, without headers, is stored in the entry's memory. It completes as [WCTMRecv]
// with the entry's RecvWRID and the flags [WCFlagTMMatch] and [WCFlagTMDataValid], together in one
// completion or the first one earlier. A message without a matching entry is unexpected: it takes an
// ordinary receive of the SRQ, including its headers, and completes as WCTMRecv without these flags.
// A message of [TMNoTag] or [TMFin] also takes an ordinary receive, and completes as [WCTMNoTag].
// Completions are in the order in which messages were matched or found unexpected.
//
// Software that receives an unexpected message looks for an entry that would have matched it. In the
// meantime more such messages may arrive. Therefore, after an unexpected message, new entries match
// nothing until software has reported in UnexpectedCnt that it has consumed all unexpected messages that
// the device has delivered. [WCFlagTMSyncReq] in the completion of an operation asks for this report.
//
// The device completes a rendezvous request ([TMRndv]) that matches: it reads the payload through the queue
// pair on which the request arrived, which must be in RTS and permitted to read, completes the entry, and
// sends a TMFin with the request's TMH and RVH. The sender must not change its memory before that. If the
// payload is longer than the entry's memory, the request completes with [WCTMRndvIncomplete]: its headers
// are in that memory, and software reads the payload and sends the TMFin, as for an unexpected request.
//
// An operation occupies a slot until its completion, or the completion of a later
// operation, was polled. An entry occupies a slot until the completion of its message,
// or of its removal, was polled. Without a free slot the post fails with ErrNoMemory.
type OpsWR struct {
	WRID   uint64
	Opcode OpsOpcode
	Flags  SendFlags // SendSignaled: create a WC also on success; OpsTMSync
	// UnexpectedCnt is the number of unexpected messages that software has
	// consumed so far, modulo 1<<16. It is valid with OpsTMSync.
	UnexpectedCnt uint32
	Handle        uint32 // the entry: PostOps sets it for OpAdd, the program sets it for OpDel

	RecvWRID uint64 // OpAdd: the WRID in the completion of the matching message
	SGL      []SGE
	Tag      uint64 // matches a message when (message's tag & Mask) == (Tag & Mask)
	Mask     uint64
}

// OpsTMSync says that OpsWR.UnexpectedCnt is set (IBV_OPS_TM_SYNC).
const OpsTMSync SendFlags = 1 << 5

// TMOpcode is the kind of a tag-matching message (enum ibv_tmh_op).
type TMOpcode uint8

// The kinds of message, with libibverbs' values.
const (
	TMNoTag TMOpcode = iota // takes an ordinary receive
	TMRndv                  // a rendezvous request: an RVH follows
	TMFin                   // a rendezvous is complete: the sender may reuse its buffer
	TMEager                 // the payload follows
)

// TMHLen is the length of a tag-matching header in bytes, RVHLen that of a
// rendezvous header behind it.
const (
	TMHLen = 16
	RVHLen = 16
)

// A TMH is a tag-matching header, the beginning of every message to a tag-matching SRQ (struct ibv_tmh).
type TMH struct {
	Opcode TMOpcode
	AppCtx uint32 // passed to the receiver, and back to the sender in a TMFin
	Tag    uint64
}

// Append appends the header in wire format.
func (h TMH) Append(b []byte) []byte {
	b = append(b, byte(h.Opcode), 0, 0, 0)
	b = binary.BigEndian.AppendUint32(b, h.AppCtx)
	return binary.BigEndian.AppendUint64(b, h.Tag)
}

// ParseTMH reads the header at the beginning of b, which has at least [TMHLen] bytes.
func ParseTMH(b []byte) TMH {
	return TMH{TMOpcode(b[0]), binary.BigEndian.Uint32(b[4:]), binary.BigEndian.Uint64(b[8:])}
}

// An RVH is a rendezvous header: where to read the payload (struct ibv_rvh).
type RVH struct {
	Addr   uint64
	RKey   uint32
	Length uint32
}

// Append appends the header in wire format.
func (h RVH) Append(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, h.Addr)
	b = binary.BigEndian.AppendUint32(b, h.RKey)
	return binary.BigEndian.AppendUint32(b, h.Length)
}

// ParseRVH reads the header at the beginning of b, which has at least [RVHLen] bytes.
func ParseRVH(b []byte) RVH {
	return RVH{binary.BigEndian.Uint64(b), binary.BigEndian.Uint32(b[8:]), binary.BigEndian.Uint32(b[12:])}
}
