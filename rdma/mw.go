package rdma

import "strconv"

// MWType is the type of a memory window (enum ibv_mw_type).
type MWType uint8

// The types, with libibverbs' values. A window of type 1 is bound by [QP].BindMW, is valid for the
// whole protection domain, can be bound again at any time, and is unbound by a bind of length 0. A
// window of type 2 is bound by [WRBindMW], which requires that it is not bound. It is valid only for
// the queue pair on which it was bound, and [WRLocalInv] or a peer's [WRSendWithInv] unbinds it.
const (
	MWType1 MWType = 1
	MWType2 MWType = 2
)

// String is the name of the type.
func (t MWType) String() string { return "MW type " + strconv.Itoa(int(t)) }

// An MW is a memory window: a key with its own rights for a part of a
// region, which is bound without the cost of a registration (struct ibv_mw).
type MW interface {
	PD() PD
	Type() MWType
	// RKey is the current key. For type 1 it is that of the last successful
	// bind. For type 2, pass it to IncRKey, and the result to the next bind.
	RKey() uint32
	// Close frees the window, whether it is bound or not (ibv_dealloc_mw).
	Close() error
}

// An MWBind is the memory that a window gives access to (struct ibv_mw_bind_info).
// The region must have AccessMWBind and must not be zero-based. A window with
// write or atomic access needs a region with AccessLocalWrite.
type MWBind struct {
	MR     MR
	Addr   uint64
	Length uint64
	Access Access // REMOTE_WRITE, REMOTE_READ, REMOTE_ATOMIC, ZERO_BASED
}

// IncRKey returns the next key of the same window (ibv_inc_rkey): the program chooses the low 8 bits.
func IncRKey(rkey uint32) uint32 { return rkey&^0xff | (rkey+1)&0xff }
