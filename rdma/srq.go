package rdma

import "os"

// An SRQ is a shared receive queue (struct ibv_srq): many queue pairs take their
// receives from it. Receives are posted only through it, not through its queue
// pairs. When a queue pair fails, what is in the SRQ stays there, and the event
// EventQPLastWQEReached says when the queue pair takes no more of it.
type SRQ interface {
	PD() PD
	// Num is the number by which XRC requests name it (ibv_get_srq_num).
	Num() uint32
	// PostRecv appends receives (ibv_post_srq_recv).
	PostRecv(wrs []RecvWR) (n int, err error)
	// PostOps changes the list of tags of an SRQTagMatching (ibv_post_srq_ops).
	// It sets Handle of every OpAdd that it took.
	PostOps(ops []OpsWR) (n int, err error)
	// Modify arms the limit, or resizes the queue where the device can
	// (ibv_modify_srq; DeviceAttr.SRQResize, else ErrNotSupported). EventSRQLimitReached comes once when fewer than
	// attr.Limit receives remain; then the limit is 0 until it is set again. A
	// limit above MaxWR is EINVAL.
	Modify(attr SRQAttr, mask SRQAttrMask) error
	// Query gives the attributes in force (ibv_query_srq).
	Query() SRQAttr
	// Close destroys the queue; with queue pairs attached it fails with ErrBusy.
	Close() error
}

// SRQAttr holds the attributes of a shared receive queue (struct ibv_srq_attr).
type SRQAttr struct {
	MaxWR, MaxSGE int
	Limit         int
}

// SRQAttrMask says which fields of an SRQAttr are set (enum ibv_srq_attr_mask).
type SRQAttrMask uint8

// The bits, with libibverbs' values.
const (
	SRQMaxWRMask SRQAttrMask = 1 << 0
	SRQLimitMask SRQAttrMask = 1 << 1
)

// SRQType says what a shared receive queue is for (enum ibv_srq_type).
type SRQType uint8

// The types, with libibverbs' values.
const (
	SRQBasic SRQType = iota
	SRQXRC
	SRQTagMatching
)

// SRQInitAttr describes a shared receive queue to create (struct
// ibv_srq_init_attr_ex). Striding makes it one that takes many messages a
// receive.
type SRQInitAttr struct {
	Attr SRQAttr
	Type SRQType
	XRCD XRCD // SRQXRC: the domain whose target queue pairs reach it
	CQ   CQ   // SRQXRC and SRQTagMatching: where its receives and operations complete

	MaxTags int // SRQTagMatching: entries in the list of tags
	MaxOps  int // SRQTagMatching: operations outstanding

	Striding StridingRQ
}

// StridingRQ makes a receive queue one of strides, where each receive request
// is a buffer of Strides times StrideBytes that takes many messages. A message
// occupies whole strides and never spans two requests. Each gives a completion
// with the request's WRID and, in WCEx.Offset, where its bytes begin; the last of
// a request has WCFlagLastStride. One of no bytes takes a stride too. When a message
// does not fit into what is left of a request, the rest is passed by: that makes a
// completion with WCFlagLastStride of no bytes and from queue pair 0. One longer
// than a whole request is an error as with any receive, and like every failed
// completion the last of its request. A write with immediate takes one stride, and
// a flush completes once for each request that was not returned. The zero value is
// an ordinary queue.
//
// In a shared receive queue (SRQBasic) messages of several queue pairs lie in one
// request, and the last of them to complete has WCFlagLastStride, wherever it lies. Room
// that a sender which died has claimed, and not filled, is passed by too. A completion
// that failed never returns a request: another does.
type StridingRQ struct {
	StrideBytes int // a power of two
	Strides     int // a power of two
}

// An XRCD is an XRC domain (struct ibv_xrcd): target queue pairs and SRQs of one
// domain work together, also between processes that opened it by one file.
type XRCD interface {
	// Close leaves the domain; with objects of this context in it it fails with
	// ErrBusy. The last to close it frees it.
	Close() error
}

// XRCDInitAttr names an XRC domain (struct ibv_xrcd_init_attr).
type XRCDInitAttr struct {
	// File is the inode by which processes share the domain; nil makes one for
	// this context alone.
	File *os.File
	// Flags are O_CREAT and O_EXCL as open(2) has them.
	Flags int
}
