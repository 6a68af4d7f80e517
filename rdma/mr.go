package rdma

import "strings"

// Access is a set of access rights of a region or a queue pair (enum ibv_access_flags).
type Access uint32

// The access rights, with libibverbs' values. Local read is always permitted.
const (
	AccessLocalWrite   Access = 1 << 0
	AccessRemoteWrite  Access = 1 << 1
	AccessRemoteRead   Access = 1 << 2
	AccessRemoteAtomic Access = 1 << 3
	AccessMWBind       Access = 1 << 4
	AccessZeroBased    Access = 1 << 5
	AccessOnDemand     Access = 1 << 6
)

// String is the names of the rights, joined by "|".
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

// A PD is a protection domain: its queue pairs can access only its regions (struct ibv_pd).
type PD interface {
	Context() Context
	// RegMR registers memory that the caller owns (ibv_reg_mr). The region keeps buf alive,
	// and on the heap, until Close. Memory that is not mapped, or that is read-only with
	// AccessLocalWrite, is EFAULT; for an on-demand region, the request that accesses it fails
	// instead. AccessRemoteWrite and AccessRemoteAtomic without AccessLocalWrite are EINVAL.
	//
	// A nil buf with AccessOnDemand registers the whole address space, if
	// DeviceAttr.ODP is true. A program that posts an address in it must keep
	// that memory alive, and on the heap, until the request is complete.
	RegMR(buf []byte, access Access) (MR, error)
	// AllocMR allocates and registers zeroed memory that peers access fastest. Close frees it.
	AllocMR(length int, access Access) (MR, error)
	// RegMRIOVA is RegMR with addresses that begin at iova (ibv_reg_mr_iova): the byte at address
	// x is buf[x-iova]. iova and buf must have the same offset in a page, else it is EINVAL.
	RegMRIOVA(buf []byte, iova uint64, access Access) (MR, error)
	// RegDMABufMR registers length bytes of the dma-buf fd from offset on,
	// with addresses that begin at iova (ibv_reg_dmabuf_mr). Its Bytes is nil.
	RegDMABufMR(offset, length, iova uint64, fd int, access Access) (MR, error)
	// AdviseMR prefetches pages of on-demand regions (ibv_advise_mr).
	AdviseMR(advice Advice, flags AdviseFlags, sgl []SGE) error
	// ShareVA gives the device access to the address space of the process. Memory
	// is not registered or pinned; SVA.Protect says which memory may be accessed.
	ShareVA() (SVA, error)
	// AllocMW allocates an unbound memory window (ibv_alloc_mw).
	AllocMW(typ MWType) (MW, error)
	// CreateMkey creates a key for layouts with at most entries pieces (mlx5dv_create_mkey).
	CreateMkey(entries int) (Mkey, error)
	// CreateAH creates an address handle (ibv_create_ah).
	CreateAH(av AV) (AH, error)
	// CreateSRQ creates a shared receive queue (ibv_create_srq_ex).
	CreateSRQ(attr SRQInitAttr) (SRQ, error)
	CreateQP(attr QPInitAttr) (QP, error)
	// Close frees the domain. It fails with ErrBusy while objects are left.
	Close() error
}

// An MR is a registered memory region (struct ibv_mr).
type MR interface {
	PD() PD
	// Addr is the address of the first byte for SGEs and remote addresses; 0 for a zero-based region.
	Addr() uint64
	Len() uint64
	LKey() uint32
	RKey() uint32
	Access() Access
	// Bytes is the region's memory, or nil for an implicit on-demand region.
	// After Close, memory of AllocMR must not be used.
	Bytes() []byte
	// Rereg changes the protection domain, the memory or the rights, as flags say
	// (ibv_rereg_mr). The keys may change. After an error that wraps ErrInvalid, ErrBusy or
	// ErrNotSupported the region is unchanged. After any other error it can only be closed.
	Rereg(flags ReregFlags, pd PD, buf []byte, access Access) error
	// Close deregisters the region (ibv_dereg_mr). It fails with ErrBusy while a memory window is bound
	// to it. After it has returned no operation of a peer accesses the memory, and the keys are invalid.
	Close() error
}

// ReregFlags say what [MR].Rereg changes (enum ibv_rereg_mr_flags).
type ReregFlags uint8

// The flags, with libibverbs' values.
const (
	ReregTranslation ReregFlags = 1 << 0
	ReregPD          ReregFlags = 1 << 1
	ReregAccess      ReregFlags = 1 << 2
)

// Advice is a request of AdviseMR (enum ib_uverbs_advise_mr_advice).
type Advice uint8

// The kinds of advice, with libibverbs' values.
const (
	AdvisePrefetch        Advice = iota // for reading
	AdvisePrefetchWrite                 // for writing; fails if the region does not permit it
	AdvisePrefetchNoFault               // only pages that are already in memory
)

// AdviseFlags modify AdviseMR.
type AdviseFlags uint8

// AdviseFlush makes AdviseMR wait until the prefetch is complete, and return its errors.
const AdviseFlush AdviseFlags = 1

// An SVA is the whole address space of the process under one key (shared
// virtual addressing). Protect says which addresses may be accessed.
type SVA interface {
	PD() PD
	LKey() uint32
	RKey() uint32
	// Protect sets the rights for length bytes at addr and replaces earlier rights; 0
	// forbids all access. A request that accesses memory that is not mapped fails. The
	// caller keeps memory of the Go heap alive, and on the heap, while access is permitted.
	Protect(addr, length uint64, access Access) error
	Close() error
}
