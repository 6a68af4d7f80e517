package rdma

import (
	"context"
	"fmt"
)

// A Provider names the devices of one kind that this machine has.
type Provider interface {
	// Name is the provider's short name: "soft", "verbs".
	Name() string
	// Devices lists what there is now. An empty list is no error.
	Devices() ([]Device, error)
}

// A Device is an RDMA device that can be opened (struct ibv_device).
type Device interface {
	// Name is what -d takes: "mlx5_0", "soft0".
	Name() string
	// Open gives a new context, whose objects are apart from every other
	// context's (ibv_open_device).
	Open() (Context, error)
}

// A Context is an opened device (struct ibv_context) and makes all its objects.
type Context interface {
	Device() Device
	// QueryDevice gives the device's limits (ibv_query_device).
	QueryDevice() DeviceAttr
	// QueryPort gives a port's attributes; ports count from 1 (ibv_query_port).
	QueryPort(port uint8) (PortAttr, error)
	// QueryGID gives entry index of the port's GID table (ibv_query_gid).
	QueryGID(port uint8, index int) (GID, error)
	AllocPD() (PD, error)
	// CreateCQ makes a completion queue of at least cqe entries (ibv_create_cq).
	CreateCQ(cqe int) (CQ, error)
	// CreateCQEx makes one with a channel or extended fields (ibv_create_cq_ex).
	CreateCQEx(attr CQInitAttr) (CQ, error)
	CreateCompChannel() (CompChannel, error)
	// OpenXRCD opens an XRC domain (ibv_open_xrcd).
	OpenXRCD(attr XRCDInitAttr) (XRCD, error)
	// OpenQP shares the XRC target queue pair num of the domain, which another
	// process may have made (ibv_open_qp). Closing it leaves it to the others.
	OpenQP(num uint32, xrcd XRCD) (QP, error)
	// GetAsyncEvent waits for the context's next asynchronous event
	// (ibv_get_async_event). When ctx ends first the error is its cause.
	GetAsyncEvent(ctx context.Context) (AsyncEvent, error)
	// Supports tells whether the device can do f: nil, an error wrapping
	// ErrNotSupported with the reason, or any other error when it could not
	// be found out (no right to try, no memory for it).
	Supports(f Feature) error
	// Counters reads what the device has done for this context so far.
	Counters() Counters
	// Close destroys the context; with objects left it fails with ErrBusy.
	Close() error
}

// DeviceAttr holds a device's limits, after struct ibv_device_attr.
type DeviceAttr struct {
	MaxQP           int
	MaxQPWR         int // outstanding work requests in one queue
	MaxSGE          int
	MaxCQ           int
	MaxCQE          int
	MaxMR           int
	MaxMRSize       uint64
	MaxPD           int
	MaxQPRdAtom     int // outstanding reads and atomics a QP can answer
	MaxQPInitRdAtom int // outstanding reads and atomics a QP can start
	MaxInlineData   int
	MaxInlineRecv   int
	MaxSRQ          int
	MaxSRQWR        int
	MaxSRQSGE       int
	SRQResize       bool // SRQ.Modify changes how many receives it holds (IBV_DEVICE_SRQ_RESIZE)
	MaxMW           int
	MaxAH           int
	MaxTags         int // entries in the list of one tag-matching SRQ (struct ibv_tm_caps; so are the three below)
	MaxTagOps       int // operations on its list that may be outstanding
	MaxTagSGE       int // scatter entries of one tag
	MaxRndvHdr      int // bytes of a rendezvous request, its headers among them
	MaxMkeyEntries  int // pieces in the layout of one Mkey
	// ClockHz is the rate of WCEx.Timestamp, 0 where there is none.
	ClockHz uint64
	// Firmware and Vendor say what the device is.
	Firmware string
	VendorID uint32
	NodeGUID uint64
	// OneSided: a read, write or atomic completes without the target process
	// running. Providers for which it depends on the peer answer for the worst.
	OneSided bool
	// ODP: a nil slice may be registered with AccessOnDemand and then names
	// the whole address space of the process (implicit on-demand paging).
	ODP bool
}

// MTU is a path MTU, counted like enum ibv_mtu: MTU256 is 1, MTU4096 is 5.
type MTU uint8

// The path MTUs.
const (
	MTU256 MTU = iota + 1
	MTU512
	MTU1024
	MTU2048
	MTU4096
)

// Bytes is the MTU in bytes, 0 for none of the five.
func (m MTU) Bytes() int {
	if m < MTU256 || m > MTU4096 {
		return 0
	}
	return 128 << m
}

// PortState is the state of a port (enum ibv_port_state).
type PortState uint8

// The port states a user meets.
const (
	PortDown   PortState = 1
	PortActive PortState = 4
)

// PortAttr describes a port, after struct ibv_port_attr.
type PortAttr struct {
	State     PortState
	MaxMTU    MTU
	ActiveMTU MTU
	LID       uint16 // 0 on Ethernet
	GIDTblLen int
	MaxMsgSz  uint32 // bytes of the longest message
}

// A GID is a 128-bit global identifier of a port, in network byte order.
type GID [16]byte

// String prints the GID as eight groups of four hexadecimal digits.
func (g GID) String() string {
	return fmt.Sprintf("%02x%02x:%02x%02x:%02x%02x:%02x%02x:%02x%02x:%02x%02x:%02x%02x:%02x%02x",
		g[0], g[1], g[2], g[3], g[4], g[5], g[6], g[7], g[8], g[9], g[10], g[11], g[12], g[13], g[14], g[15])
}

// Counters count what a context's queue pairs did as requester, since Open.
// They count work requests that were executed, not those still queued.
type Counters struct {
	Writes, WriteBytes     uint64 // RDMA write, with and without immediate
	Reads, ReadBytes       uint64
	Sends, SendBytes       uint64 // send, with and without immediate
	Atomics                uint64
	Inline                 uint64 // of all of them, those posted inline
	Batches                uint64 // PostSend calls that took at least one request
	Errors                 uint64 // completions with a status other than success
	RNRRetries, AckRetries uint64
	DCConnects, DCCNAKs    uint64 // of dynamically connected initiators
	// With FeatureDoorbellCounts, what a device would have done on its bus for the
	// requests posted: the provider's page has the rule.
	Doorbells  uint64 // writes of a producer index
	WQEFetches uint64 // DMA reads of work queue entries
	DirectWQEs uint64 // entries that came with the doorbell
	DMAReads   uint64 // DMA reads of payload
}

// An Endpointer is a context whose GIDs cannot be reached by themselves: peers
// need its endpoint, carried beside the GID on whatever brings the GID across.
// It is an optional ability of a Context.
type Endpointer interface {
	// Endpoint is the address to hand to peers, opaque to all but the provider.
	Endpoint() []byte
	// AddEndpoint tells how to reach gid. It must precede the modification
	// to RTR of a queue pair whose address vector names gid.
	AddEndpoint(gid GID, endpoint []byte) error
}

// A Progresser is a context that advances only when its program calls it (or,
// more slowly, by itself): polling a CQ does this too. It is an optional
// ability of a Context, for programs that watch memory instead of a CQ.
type Progresser interface {
	// Progress does what can be done without waiting and tells whether it
	// did anything. It is cheap when there is nothing to do.
	Progress() bool
}

// A Sleeper is a context that can wake its program when a peer's operation
// has touched the program's memory or queues. It is an optional ability of a
// Context. The order is: Prepare, look at the condition once more, then Sleep
// or Cancel. A Sleeper serves one waiting goroutine at a time.
type Sleeper interface {
	// Prepare makes operations of peers from now on end the next Sleep.
	Prepare()
	// Sleep waits until a peer's operation has come since Prepare, or for at
	// most nanoseconds, and tells whether one has come; it may also return early
	// without a reason.
	Sleep(nanoseconds int64) (woken bool)
	// Cancel takes Prepare back.
	Cancel()
}
