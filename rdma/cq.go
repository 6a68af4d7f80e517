package rdma

import "strconv"

// A CQ is a completion queue (struct ibv_cq).
type CQ interface {
	// Poll moves up to len(wc) completions into wc and returns how many. It
	// never blocks. An error means that the queue itself is broken (overrun).
	Poll(wc []WC) (int, error)
	// PollEx is Poll for the extended fields (ibv_start_poll).
	PollEx(wc []WCEx) (int, error)
	// ReqNotify asks for one event on the queue's channel when the next
	// completion comes; with solicitedOnly when the next solicited or failed
	// one does (ibv_req_notify_cq). Completions that are there already count
	// for nothing: poll again after asking.
	ReqNotify(solicitedOnly bool) error
	// Resize changes the number of entries (ibv_resize_cq). Fewer than are
	// outstanding is EINVAL.
	Resize(cqe int) error
	// Cap is the number of entries the queue holds.
	Cap() int
	// Close destroys the queue; with queue pairs attached it fails with ErrBusy.
	Close() error
}

// CQInitAttr describes a completion queue to create (struct
// ibv_cq_init_attr_ex).
type CQInitAttr struct {
	CQE     int
	Channel CompChannel // for ReqNotify; nil for a queue that is only polled
	// Timestamps: PollEx gives the device's time of each completion.
	Timestamps bool
	// IgnoreOverrun: the program keeps count itself, the device does not check.
	IgnoreOverrun bool
}

// A WCEx is a work completion with the fields of an extended completion queue.
type WCEx struct {
	WC
	Timestamp uint64 // of the device's clock, DeviceAttr.ClockHz; with CQInitAttr.Timestamps
	Offset    uint32 // striding receive: where in the request's buffer the message begins
	TMTag     uint64 // tag matching: the message's tag
	TMAppCtx  uint32 // and its AppCtx (IBV_WC_EX_WITH_TM_INFO)
}

// A WC is a work completion (struct ibv_wc). When Status is not WCSuccess only
// WRID, Status, QPNum and VendorErr are valid, but for WCTMRndvIncomplete, with
// which all are.
type WC struct {
	WRID      uint64
	Status    WCStatus
	Opcode    WCOpcode
	VendorErr uint32
	ByteLen   uint32 // bytes moved: receives, reads and atomics
	ImmData   uint32 // as posted by the sender, with WCFlagWithImm; the key that was invalidated, with WCFlagWithInv
	QPNum     uint32 // the local queue pair
	SrcQP     uint32 // the sender's, for receives
	Flags     WCFlags
}

// WCFlags qualify a completion.
type WCFlags uint8

// The flags, with libibverbs' values; WCFlagLastStride is mlx5's.
const (
	WCFlagGRH         WCFlags = 1 << 0 // a datagram's buffer begins with its GRH
	WCFlagWithImm     WCFlags = 1 << 1 // ImmData is the sender's
	WCFlagWithInv     WCFlags = 1 << 3 // ImmData is a key of this side that the sender invalidated
	WCFlagTMSyncReq   WCFlags = 1 << 4 // the device waits to be told of consumed messages (OpSync)
	WCFlagTMMatch     WCFlags = 1 << 5 // the message has found its tag
	WCFlagTMDataValid WCFlags = 1 << 6 // and its bytes are in place
	WCFlagLastStride  WCFlags = 1 << 7 // striding receive: the request's buffer is the program's again
)

// WCOpcode says which operation completed (enum ibv_wc_opcode).
type WCOpcode uint8

// The completed operations.
const (
	WCSend WCOpcode = iota
	WCRDMAWrite
	WCRDMARead
	WCCompSwap
	WCFetchAdd
	WCBindMW
	WCLocalInv
	WCRegMkey         WCOpcode = 16 // not libibverbs' own: IBV_WC_DRIVER1 stands for it there
	WCRecv            WCOpcode = 128
	WCRecvRDMAWithImm WCOpcode = 129
	WCTMAdd           WCOpcode = 130
	WCTMDel           WCOpcode = 131
	WCTMSync          WCOpcode = 132
	WCTMRecv          WCOpcode = 133
	WCTMNoTag         WCOpcode = 134
)

// WCStatus tells how a work request ended (enum ibv_wc_status). It is an error
// unless it is WCSuccess.
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
	WCTMErr            // OpDel of an entry that a message has taken
	WCTMRndvIncomplete // the rendezvous is left to software: its headers are in the buffer of the tag
)

var wcStatusNames = [...]string{
	"success", "local length error", "local QP operation error", "local EE context operation error",
	"local protection error", "Work Request Flushed Error", "memory management operation error",
	"bad response error", "local access error", "remote invalid request error", "remote access error",
	"remote operation error", "transport retry counter exceeded", "RNR retry counter exceeded",
	"local RDD violation error", "remote invalid RD request", "aborted error", "invalid EE context number",
	"invalid EE context state", "fatal error", "response timeout error", "general error", "TM error", "TM software rendezvous",
}

// String is what ibv_wc_status_str says.
func (s WCStatus) String() string {
	if int(s) < len(wcStatusNames) {
		return wcStatusNames[s]
	}
	return "status " + strconv.Itoa(int(s))
}

// Error makes a status usable as an error.
func (s WCStatus) Error() string { return s.String() }
