package rdma

import "os"

// An SRQ is a shared receive queue (struct ibv_srq): several queue pairs take their receives from
// it. Receives are posted to it, not to its queue pairs. When a queue pair fails, the receives
// stay in the SRQ, and [EventQPLastWQEReached] reports that the queue pair takes no more of them.
type SRQ interface {
	PD() PD
	// Num is the number that XRC requests give to select it (ibv_get_srq_num).
	Num() uint32
	// PostRecv appends receives (ibv_post_srq_recv).
	PostRecv(wrs []RecvWR) (n int, err error)
	// PostOps changes the tag list of an SRQTagMatching (ibv_post_srq_ops).
	// It sets Handle in every OpAdd that it accepted.
	PostOps(ops []OpsWR) (n int, err error)
	// Modify sets the limit, or the number of receives if the device can
	// (ibv_modify_srq); if DeviceAttr.SRQResize is false that is ErrNotSupported.
	// EventSRQLimitReached comes once, when fewer than attr.Limit receives remain;
	// then the limit is 0 until it is set again. A limit above MaxWR is EINVAL.
	Modify(attr SRQAttr, mask SRQAttrMask) error
	// Query returns the current attributes (ibv_query_srq).
	Query() SRQAttr
	// Close destroys the queue. It fails with ErrBusy while queue pairs use it.
	Close() error
}

// SRQAttr are the attributes of a shared receive queue (struct ibv_srq_attr).
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

// SRQType is the kind of a shared receive queue (enum ibv_srq_type).
type SRQType uint8

// The types, with libibverbs' values.
const (
	SRQBasic SRQType = iota
	SRQXRC
	SRQTagMatching
)

// SRQInitAttr are the attributes for creating a shared receive queue (struct
// ibv_srq_init_attr_ex). With Striding, one receive takes several messages.
type SRQInitAttr struct {
	Attr SRQAttr
	Type SRQType
	XRCD XRCD // SRQXRC: the domain whose target queue pairs may use it
	CQ   CQ   // SRQXRC and SRQTagMatching: the CQ for its receives and operations

	MaxTags int // SRQTagMatching: entries in the tag list
	MaxOps  int // SRQTagMatching: outstanding operations

	Striding StridingRQ
}

// A StridingRQ describes a striding receive queue: each receive request is a buffer of Strides *
// StrideBytes bytes that takes several messages. A message occupies whole strides and never
// spans two requests; a message of length 0 takes one stride. Each message creates a completion
// with the request's WRID and, in [WCEx].Offset, the position of its first byte. The last
// completion of a request has [WCFlagLastStride]. When a message does not fit into the rest of a
// request, that rest is skipped, which creates a completion with WCFlagLastStride, length 0 and
// queue pair number 0. A message longer than a whole request is an error, as for any receive. A
// failed completion is always the last of its request. A write with immediate takes one stride.
// A flush completes each unfinished request once. The zero value is an ordinary queue.
//
// In a shared receive queue ([SRQBasic]) the messages of several queue pairs share a request;
// the one that completes last has WCFlagLastStride, wherever it lies. Strides that a dead sender
// had claimed are skipped too. There a failed completion never has WCFlagLastStride; another one has.
type StridingRQ struct {
	StrideBytes int // a power of two
	Strides     int // a power of two
}

// An XRCD is an XRC domain (struct ibv_xrcd). Target queue pairs and SRQs of one domain
// belong together, also those of several processes that opened it with the same file.
type XRCD interface {
	// Close closes the domain. It fails with ErrBusy while objects of this
	// context are in it. The last close frees the domain.
	Close() error
}

// XRCDInitAttr selects an XRC domain (struct ibv_xrcd_init_attr).
type XRCDInitAttr struct {
	// File is the inode that identifies the domain for several processes.
	// nil creates a domain for this context only.
	File *os.File
	// Flags are O_CREAT and O_EXCL, as for open(2).
	Flags int
}
