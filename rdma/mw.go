package rdma

import "strconv"

// MWType is the type of a memory window (enum ibv_mw_type).
type MWType uint8

// The types, with libibverbs' values. A window of type 1 is bound by
// QP.BindMW, is good for the whole protection domain, can be bound anew at any
// time and is unbound by a length of 0. One of type 2 is bound by WRBindMW, must
// be free then, is good only through the queue pair that it was bound on, and is
// freed by WRLocalInv or by a peer's WRSendWithInv.
const (
	MWType1 MWType = 1
	MWType2 MWType = 2
)

// String names the type.
func (t MWType) String() string { return "MW type " + strconv.Itoa(int(t)) }

// An MW is a memory window: a key of its own for a part of a region, with rights
// of its own, bound without the cost of a registration (struct ibv_mw).
type MW interface {
	PD() PD
	Type() MWType
	// RKey is the key in force: for type 1 that of the last successful bind,
	// for type 2 the one to pass, advanced by IncRKey, to the next bind.
	RKey() uint32
	// Close frees the window, bound or not (ibv_dealloc_mw).
	Close() error
}

// An MWBind says what a window shows (struct ibv_mw_bind_info). The region must
// give AccessMWBind and not be zero-based; a window that may be written needs a
// region with AccessLocalWrite.
type MWBind struct {
	MR     MR
	Addr   uint64
	Length uint64
	Access Access // REMOTE_WRITE, REMOTE_READ, REMOTE_ATOMIC, ZERO_BASED
}

// IncRKey is the next key of the same window (ibv_inc_rkey): its low 8 bits
// are free for the program to choose.
func IncRKey(rkey uint32) uint32 {
	return rkey&^0xff | (rkey+1)&0xff
}
