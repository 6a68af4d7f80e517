package rdma

import (
	"context"
	"fmt"
)

// A Provider lists the devices of one kind on this machine.
type Provider interface {
	// Name is the provider's short name: "soft", "verbs".
	Name() string
	// Devices returns the devices that exist now. An empty list is no error.
	Devices() ([]Device, error)
}

// A Device is an RDMA device that can be opened (struct ibv_device).
type Device interface {
	// Name is the name for option -d, such as "mlx5_0" or "soft0".
	Name() string
	// Open returns a new context (ibv_open_device). It shares no objects with other contexts.
	Open() (Context, error)
}

// A Context is an open device (struct ibv_context). It creates all other objects.
type Context interface {
	Device() Device
	// QueryDevice returns the device's limits (ibv_query_device).
	QueryDevice() DeviceAttr
	// QueryPort returns a port's attributes; the first port is 1 (ibv_query_port).
	QueryPort(port uint8) (PortAttr, error)
	// QueryGID returns an entry of the port's GID table (ibv_query_gid).
	QueryGID(port uint8, index int) (GID, error)
	AllocPD() (PD, error)
	// CreateCQ creates a completion queue with at least cqe entries (ibv_create_cq).
	CreateCQ(cqe int) (CQ, error)
	// CreateCQEx creates a completion queue with a channel or extended fields (ibv_create_cq_ex).
	CreateCQEx(attr CQInitAttr) (CQ, error)
	CreateCompChannel() (CompChannel, error)
	// OpenXRCD opens an XRC domain (ibv_open_xrcd).
	OpenXRCD(attr XRCDInitAttr) (XRCD, error)
	// OpenQP opens the XRC target queue pair num of the domain, which another process
	// may have created (ibv_open_qp). Close then closes only this reference to it.
	OpenQP(num uint32, xrcd XRCD) (QP, error)
	// GetAsyncEvent waits for the context's next asynchronous event
	// (ibv_get_async_event). When ctx ends first the error is its cause.
	GetAsyncEvent(ctx context.Context) (AsyncEvent, error)
	// Supports reports whether the device has feature f: nil if it has, an error
	// that wraps ErrNotSupported and gives the reason if it has not, or another
	// error if that could not be found out (for example no permission or no memory).
	Supports(f Feature) error
	// Counters returns what the device has done for this context since Open.
	Counters() Counters
	// Close destroys the context. It fails with ErrBusy while objects are left.
	Close() error
}

// DeviceAttr are a device's limits (struct ibv_device_attr).
type DeviceAttr struct {
	MaxQP           int
	MaxQPWR         int // outstanding work requests of one queue
	MaxSGE          int
	MaxCQ           int
	MaxCQE          int
	MaxMR           int
	MaxMRSize       uint64
	MaxPD           int
	MaxQPRdAtom     int // incoming reads and atomics that a QP can process at a time
	MaxQPInitRdAtom int // outgoing reads and atomics that a QP can have outstanding
	MaxInlineData   int
	MaxInlineRecv   int
	MaxSRQ          int
	MaxSRQWR        int
	MaxSRQSGE       int
	SRQResize       bool // SRQ.Modify can change the number of receives (IBV_DEVICE_SRQ_RESIZE)
	MaxMW           int
	MaxAH           int
	MaxTags         int // entries in the tag list of a tag-matching SRQ (struct ibv_tm_caps, as the next three)
	MaxTagOps       int // outstanding operations on the tag list
	MaxTagSGE       int // scatter entries of a tag
	MaxRndvHdr      int // bytes of a rendezvous request including its headers
	MaxMkeyEntries  int // pieces in the layout of an Mkey
	// ClockHz is the frequency of WCEx.Timestamp, or 0 if the device has no timestamps.
	ClockHz uint64
	// Firmware, VendorID and NodeGUID identify the device.
	Firmware string
	VendorID uint32
	NodeGUID uint64
	// OneSided: a read, write or atomic completes even if the target process
	// does not run. If that depends on the peer, it is false.
	OneSided bool
	// ODP: a nil slice that is registered with AccessOnDemand stands for the
	// whole address space of the process (implicit on-demand paging).
	ODP bool
}

// MTU is a path MTU, with the values of enum ibv_mtu: MTU256 is 1, MTU4096 is 5.
type MTU uint8

// The path MTUs.
const (
	MTU256 MTU = iota + 1
	MTU512
	MTU1024
	MTU2048
	MTU4096
)

// Bytes is the MTU in bytes, or 0 if the value is invalid.
func (m MTU) Bytes() int {
	if m < MTU256 || m > MTU4096 {
		return 0
	}
	return 128 << m
}

// PortState is the state of a port (enum ibv_port_state).
type PortState uint8

// The states of a port that programs meet.
const (
	PortDown   PortState = 1
	PortActive PortState = 4
)

// PortAttr are a port's attributes (struct ibv_port_attr).
type PortAttr struct {
	State     PortState
	MaxMTU    MTU
	ActiveMTU MTU
	LID       uint16 // 0 on Ethernet
	GIDTblLen int
	MaxMsgSz  uint32 // length of the longest message in bytes
}

// A GID is a port's 128-bit global identifier, in network byte order.
type GID [16]byte

// String prints the GID as eight groups of four hexadecimal digits.
func (g GID) String() string {
	return fmt.Sprintf("%02x%02x:%02x%02x:%02x%02x:%02x%02x:%02x%02x:%02x%02x:%02x%02x:%02x%02x",
		g[0], g[1], g[2], g[3], g[4], g[5], g[6], g[7], g[8], g[9], g[10], g[11], g[12], g[13], g[14], g[15])
}

// Counters count what the queue pairs of a context have done as requester since
// Open: work requests that were executed, not requests that are still queued.
type Counters struct {
	Writes, WriteBytes     uint64 // RDMA write, with and without immediate
	Reads, ReadBytes       uint64
	Sends, SendBytes       uint64 // send, with and without immediate
	Atomics                uint64
	Inline                 uint64 // of all of these, requests that were posted inline
	Batches                uint64 // PostSend calls that accepted at least one request
	Errors                 uint64 // completions with a status other than WCSuccess
	RNRRetries, AckRetries uint64
	DCConnects, DCCNAKs    uint64 // of dynamically connected initiators; a connection that was idle for long is made again
	// With FeatureDoorbellCounts, the bus accesses that a device would have made for the posted
	// requests; the provider's documentation has the rule. Doorbells are writes of a producer index.
	Doorbells  uint64 // writes of a producer index
	WQEFetches uint64 // DMA reads of work queue entries
	DirectWQEs uint64 // work queue entries that were written with the doorbell
	DMAReads   uint64 // DMA reads of payload
}

// An Endpointer is a Context whose GIDs are not enough to reach it. Peers also need its endpoint,
// which programs exchange together with the GID. It is an optional interface of a [Context].
type Endpointer interface {
	// Endpoint is the address to send to peers. Only the provider can interpret it.
	Endpoint() []byte
	// AddEndpoint sets the endpoint of gid. It must be called before a queue
	// pair is modified to RTR with an address vector that contains gid.
	AddEndpoint(gid GID, endpoint []byte) error
}

// A Progresser is a Context that makes progress when its program calls it; without
// calls it progresses more slowly. Polling a CQ also makes progress. It is an
// optional interface of a [Context], for programs that watch memory instead of a CQ.
type Progresser interface {
	// Progress does the work that needs no waiting, and reports whether
	// there was any. It is cheap if there is none.
	Progress() bool
}

// A Sleeper is a Context that can wake its program when a peer's operation has accessed the
// program's memory or queues. It is an optional interface of a [Context]. The order is: Prepare,
// check the condition once more, then Sleep or Cancel. Only one goroutine may wait at a time.
type Sleeper interface {
	// Prepare makes each later operation of a peer end the next Sleep.
	Prepare()
	// Sleep waits at most nanoseconds for an operation of a peer since
	// Prepare, and reports whether there was one. It may also return early, and with 0 does so at once.
	Sleep(nanoseconds int64) (woken bool)
	// Cancel undoes Prepare.
	Cancel()
}
