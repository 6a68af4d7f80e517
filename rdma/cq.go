package rdma

import "strconv"

// A CQ is a completion queue (struct ibv_cq).
type CQ interface {
	// Poll moves up to len(wc) completions into wc and returns how many. It
	// never blocks. An error means that the queue itself is broken (overrun).
	Poll(wc []WC) (int, error)
	// Cap is the number of entries the queue holds.
	Cap() int
	// Close destroys the queue; with queue pairs attached it fails with ErrBusy.
	Close() error
}

// A WC is a work completion (struct ibv_wc). When Status is not WCSuccess only
// WRID, Status, QPNum and VendorErr are valid.
type WC struct {
	WRID      uint64
	Status    WCStatus
	Opcode    WCOpcode
	VendorErr uint32
	ByteLen   uint32 // bytes moved: receives, reads and atomics
	ImmData   uint32 // as posted by the sender, valid with WCFlagWithImm
	QPNum     uint32 // the local queue pair
	SrcQP     uint32 // the sender's, for receives
	Flags     WCFlags
}

// WCFlags qualify a completion.
type WCFlags uint8

// WCFlagWithImm says that ImmData is valid.
const WCFlagWithImm WCFlags = 1

// WCOpcode says which operation completed (enum ibv_wc_opcode).
type WCOpcode uint8

// The completed operations.
const (
	WCSend WCOpcode = iota
	WCRDMAWrite
	WCRDMARead
	WCCompSwap
	WCFetchAdd
	WCRecv            WCOpcode = 128
	WCRecvRDMAWithImm WCOpcode = 129
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
)

var wcStatusNames = [...]string{
	"success", "local length error", "local QP operation error", "local EE context operation error",
	"local protection error", "Work Request Flushed Error", "memory management operation error",
	"bad response error", "local access error", "remote invalid request error", "remote access error",
	"remote operation error", "transport retry counter exceeded", "RNR retry counter exceeded",
	"local RDD violation error", "remote invalid RD request", "aborted error", "invalid EE context number",
	"invalid EE context state", "fatal error", "response timeout error", "general error",
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
