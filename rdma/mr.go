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
	// keeps buf alive, and on the heap, until it is closed. Memory that is not
	// mapped, or read-only memory with AccessLocalWrite, is EFAULT, unless it is
	// on demand: then the request that touches it fails. Without
	// AccessLocalWrite, AccessRemoteWrite and AccessRemoteAtomic are EINVAL.
	//
	// A nil buf with AccessOnDemand registers the whole address space, where
	// DeviceAttr.ODP says so: whoever posts an address inside it keeps that
	// memory alive and on the heap until the work is complete.
	RegMR(buf []byte, access Access) (MR, error)
	// AllocMR registers fresh zeroed memory of the device's own choice,
	// which peers reach fastest. It is given back by Close.
	AllocMR(length int, access Access) (MR, error)
	// RegMRIOVA is RegMR with the region's addresses counted from iova on
	// (ibv_reg_mr_iova): the byte at address x is buf[x-iova]. iova and the
	// memory lie alike in their pages, else it is EINVAL.
	RegMRIOVA(buf []byte, iova uint64, access Access) (MR, error)
	// RegDMABufMR registers length bytes of the dma-buf fd, from offset on,
	// with addresses from iova on (ibv_reg_dmabuf_mr). Bytes of it is nil.
	RegDMABufMR(offset, length, iova uint64, fd int, access Access) (MR, error)
	// AdviseMR prefetches pages of on-demand regions (ibv_advise_mr).
	AdviseMR(advice Advice, flags AdviseFlags, sgl []SGE) error
	// ShareVA gives the device the process's own address space: nothing is
	// registered or pinned, only what may be touched is noted.
	ShareVA() (SVA, error)
	// AllocMW makes an unbound memory window (ibv_alloc_mw).
	AllocMW(typ MWType) (MW, error)
	// CreateMkey makes a key for layouts of at most entries pieces
	// (mlx5dv_create_mkey).
	CreateMkey(entries int) (Mkey, error)
	// CreateAH makes an address handle (ibv_create_ah).
	CreateAH(av AV) (AH, error)
	// CreateSRQ makes a shared receive queue (ibv_create_srq_ex).
	CreateSRQ(attr SRQInitAttr) (SRQ, error)
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
	// Rereg changes what flags name: the domain, the memory, the rights
	// (ibv_rereg_mr). The keys may change. A failure is either harmless, when
	// it wraps ErrInvalid, ErrBusy or ErrNotSupported, or leaves a region that
	// can only be closed.
	Rereg(flags ReregFlags, pd PD, buf []byte, access Access) error
	// Close deregisters the region; while a memory window is bound to it, it
	// fails with ErrBusy. When it returns no operation of a peer
	// touches the memory any more, and its keys are stale.
	Close() error
}

// ReregFlags say what MR.Rereg changes (enum ibv_rereg_mr_flags).
type ReregFlags uint8

// The flags, with libibverbs' values.
const (
	ReregTranslation ReregFlags = 1 << 0
	ReregPD          ReregFlags = 1 << 1
	ReregAccess      ReregFlags = 1 << 2
)

// Advice is what AdviseMR asks for (enum ib_uverbs_advise_mr_advice).
type Advice uint8

// The advice, with libibverbs' values.
const (
	AdvisePrefetch        Advice = iota // for reading
	AdvisePrefetchWrite                 // for writing: without the right it fails
	AdvisePrefetchNoFault               // only what is in memory already
)

// AdviseFlags qualify AdviseMR.
type AdviseFlags uint8

// AdviseFlush makes AdviseMR wait until it is done, and report errors.
const AdviseFlush AdviseFlags = 1

// An SVA is the whole address space of the process under one key (shared
// virtual addressing). An address may be touched as far as Protect allows.
type SVA interface {
	PD() PD
	LKey() uint32
	RKey() uint32
	// Protect allows access to the length bytes at addr, in place of what was
	// allowed there; no rights at all take it back. Memory that is not mapped
	// when it is touched fails the request. The caller keeps memory of the Go
	// heap alive and in its place while it is allowed.
	Protect(addr, length uint64, access Access) error
	Close() error
}
