package rdma

import "strings"

// Access says what may be done with a region, or on a queue pair (enum ibv_access_flags).
type Access uint32

// The access rights, with libibverbs' values. Local read is always granted.
const (
	AccessLocalWrite   Access = 1 << 0
	AccessRemoteWrite  Access = 1 << 1
	AccessRemoteRead   Access = 1 << 2
	AccessRemoteAtomic Access = 1 << 3
	AccessMWBind       Access = 1 << 4
	AccessZeroBased    Access = 1 << 5
	AccessOnDemand     Access = 1 << 6
)

// String names the rights, joined by "|".
func (a Access) String() string {
	names := []string{"LOCAL_WRITE", "REMOTE_WRITE", "REMOTE_READ", "REMOTE_ATOMIC", "MW_BIND", "ZERO_BASED", "ON_DEMAND"}
	var on []string
	for i, n := range names {
		if a&(1<<i) != 0 {
			on = append(on, n)
		}
	}
	if on == nil {
		return "0"
	}
	return strings.Join(on, "|")
}

// A PD is a protection domain: a queue pair reaches only regions of its own (struct ibv_pd).
type PD interface {
	Context() Context
	// RegMR registers memory that the caller owns (ibv_reg_mr). The region
	// keeps buf alive, and on the heap, until it is closed. Without
	// AccessLocalWrite, AccessRemoteWrite and AccessRemoteAtomic are EINVAL.
	//
	// A nil buf with AccessOnDemand registers the whole address space, where
	// DeviceAttr.ODP says so: whoever posts an address inside it keeps that
	// memory alive and on the heap until the work is complete.
	RegMR(buf []byte, access Access) (MR, error)
	// AllocMR registers fresh zeroed memory of the device's own choice,
	// which peers reach fastest. It is given back by Close.
	AllocMR(length int, access Access) (MR, error)
	CreateQP(attr QPInitAttr) (QP, error)
	// Close frees the domain; with objects left it fails with ErrBusy.
	Close() error
}

// An MR is a registered memory region (struct ibv_mr).
type MR interface {
	PD() PD
	// Addr is the address of the region's first byte, as SGEs and remote
	// addresses name it (0 for a zero-based region).
	Addr() uint64
	Len() uint64
	LKey() uint32
	RKey() uint32
	Access() Access
	// Bytes is the region's memory, nil for an implicit on-demand region.
	// It must not be used after Close when it came from AllocMR.
	Bytes() []byte
	// Close deregisters the region: when it returns no operation of a peer
	// touches the memory any more, and its keys are stale.
	Close() error
}
