package rdma

import "strconv"

// A CQ is a completion queue (struct ibv_cq).
type CQ interface {
	// Poll stores up to len(wc) completions in wc and returns their number. It
	// never blocks. An error means that the queue has overrun and is unusable.
	Poll(wc []WC) (int, error)
	// PollEx is Poll with the extended fields (ibv_start_poll).
	PollEx(wc []WCEx) (int, error)
	// ReqNotify requests one event on the queue's channel for the next completion, or
	// with solicitedOnly for the next solicited or failed one (ibv_req_notify_cq).
	// Completions that are already in the queue cause no event: poll again afterwards.
	ReqNotify(solicitedOnly bool) error
	// Resize changes the number of entries (ibv_resize_cq). Fewer entries
	// than there are outstanding completions is EINVAL.
	Resize(cqe int) error
	// Cap is the number of entries.
	Cap() int
	// Close destroys the queue. It fails with ErrBusy while queue pairs use it.
	Close() error
}

// CQInitAttr are the attributes for creating a completion queue (struct ibv_cq_init_attr_ex).
type CQInitAttr struct {
	CQE     int
	Channel CompChannel // for ReqNotify; nil for a queue that is only polled
	// Timestamps: PollEx returns the device's time of each completion.
	Timestamps bool
	// IgnoreOverrun: the device does not check for overrun; the program counts completions itself.
	IgnoreOverrun bool
}

// A WCEx is a work completion of an extended completion queue.
type WCEx struct {
	WC
	Timestamp uint64 // the device's time, in units of 1/DeviceAttr.ClockHz; with CQInitAttr.Timestamps
	Offset    uint32 // striding receive: position of the message in the request's buffer
	TMTag     uint64 // tag matching: the message's tag
	TMAppCtx  uint32 // tag matching: the message's AppCtx (IBV_WC_EX_WITH_TM_INFO)
}

// A WC is a work completion (struct ibv_wc). If Status is not WCSuccess only WRID,
// Status, QPNum and VendorErr are valid; with WCTMRndvIncomplete all fields are.
type WC struct {
	WRID      uint64
	Status    WCStatus
	Opcode    WCOpcode
	VendorErr uint32
	ByteLen   uint32 // bytes transferred, for receives, reads and atomics
	ImmData   uint32 // with WCFlagWithImm the sender's value; with WCFlagWithInv the key that was invalidated
	QPNum     uint32 // the local queue pair
	SrcQP     uint32 // the sender's queue pair, for receives
	Flags     WCFlags
}

// WCFlags qualify a completion.
type WCFlags uint8

// The flags, with libibverbs' values; WCFlagLastStride is mlx5's.
const (
	WCFlagGRH         WCFlags = 1 << 0 // the datagram's buffer begins with a valid GRH
	WCFlagWithImm     WCFlags = 1 << 1 // ImmData is the sender's immediate data
	WCFlagWithInv     WCFlags = 1 << 3 // ImmData is the local key that the sender has invalidated
	WCFlagTMSyncReq   WCFlags = 1 << 4 // the device needs the number of consumed unexpected messages (OpSync)
	WCFlagTMMatch     WCFlags = 1 << 5 // the message matched an entry of the tag list
	WCFlagTMDataValid WCFlags = 1 << 6 // the message's data is in the entry's memory
	WCFlagLastStride  WCFlags = 1 << 7 // striding receive: the program may reuse the request's buffer
)

// WCStatus is the result of a work request (enum ibv_wc_status). It is an error unless it is WCSuccess.
type WCStatus uint8

// The statuses, with libibverbs' values.
const (
	WCSuccess WCStatus = iota
	WCLocLenErr
	WCLocQPOpErr
	WCLocEECOpErr
	WCLocProtErr
	WCWRFlushErr
	WCMWBindErr
	WCBadRespErr
	WCLocAccessErr
	WCRemInvReqErr
	WCRemAccessErr
	WCRemOpErr
	WCRetryExcErr
	WCRNRRetryExcErr
	WCLocRDDViolErr
	WCRemInvRDReqErr
	WCRemAbortErr
	WCInvEECNErr
	WCInvEECStateErr
	WCFatalErr
	WCRespTimeoutErr
	WCGeneralErr
	WCTMErr            // OpDel of an entry that a message has already taken
	WCTMRndvIncomplete // software has to complete the rendezvous: its headers are in the entry's memory
)

var wcStatusNames = [...]string{
	"success", "local length error", "local QP operation error", "local EE context operation error",
	"local protection error", "Work Request Flushed Error", "memory management operation error",
	"bad response error", "local access error", "remote invalid request error", "remote access error",
	"remote operation error", "transport retry counter exceeded", "RNR retry counter exceeded",
	"local RDD violation error", "remote invalid RD request", "aborted error", "invalid EE context number",
	"invalid EE context state", "fatal error", "response timeout error", "general error", "TM error", "TM software rendezvous",
}

// String is the text of ibv_wc_status_str.
func (s WCStatus) String() string {
	if int(s) < len(wcStatusNames) {
		return wcStatusNames[s]
	}
	return "status " + strconv.Itoa(int(s))
}

// Error makes a WCStatus an error.
func (s WCStatus) Error() string { return s.String() }
