package rdma

import (
	"errors"
	"strconv"
)

// A QP is a queue pair (struct ibv_qp).
type QP interface {
	PD() PD
	// Num is the queue pair number, 24 bits.
	Num() uint32
	// State is the current state. A failed request changes it to ERR (UC and UD senders: SQE).
	State() QPState
	// Modify changes attributes and the state (ibv_modify_qp). mask says which
	// fields of attr are set; a transition needs QPStateMask. A missing or
	// extra attribute is EINVAL (a *ModifyError), and then nothing has changed.
	Modify(attr QPAttr, mask QPAttrMask) error
	// Query returns the current attributes (ibv_query_qp).
	Query() (QPAttr, QPInitAttr)
	// PostSend appends requests to the send queue in order and returns how many it accepted; err says
	// why wrs[n] was refused (ibv_post_send). The caller may reuse the slices inside wrs after the call.
	PostSend(wrs []SendWR) (n int, err error)
	// BindMW binds a window of type 1 (ibv_bind_mw). It is a request as those of PostSend;
	// flags may be SendSignaled and SendFence. The window's key changes at once.
	BindMW(mw MW, wrid uint64, flags SendFlags, bind MWBind) error
	// PostRecv appends requests to the receive queue (ibv_post_recv).
	PostRecv(wrs []RecvWR) (n int, err error)
	// Close destroys the queue pair (ibv_destroy_qp). Queued requests get no completion.
	Close() error
}

// A QPCloser is a Context that can close several queue pairs at lower
// cost than one by one. It is an optional interface of a [Context].
type QPCloser interface {
	// CloseQPs closes qps, which belong to this context, and joins their errors.
	CloseQPs(qps []QP) error
}

// CloseQPs closes queue pairs of one context in the cheapest way that it
// has. It skips nil entries and joins the errors.
func CloseQPs(qps []QP) error {
	list := make([]QP, 0, len(qps))
	for _, qp := range qps {
		if qp != nil {
			list = append(list, qp)
		}
	}
	if len(list) == 0 {
		return nil
	}
	if c, ok := list[0].PD().Context().(QPCloser); ok {
		return c.CloseQPs(list)
	}
	var errs []error
	for _, qp := range list {
		errs = append(errs, qp.Close())
	}
	return errors.Join(errs...)
}

// QPType is the transport of a queue pair (enum ibv_qp_type).
type QPType uint8

// The types, with libibverbs' values where it has them. It has one
// value, IBV_QPT_DRIVER, for both DCI and DCT.
const (
	RC      QPType = 2  // reliable connected
	UC      QPType = 3  // unreliable connected: no acknowledgements, no retransmission
	UD      QPType = 4  // unreliable datagram
	XRCSend QPType = 9  // extended reliable connected, initiator: no receive queue
	XRCRecv QPType = 10 // its target: no send queue; a request names the SRQ that it takes a receive from
	DCI     QPType = 14 // dynamically connected, initiator: every request names its target
	DCT     QPType = 15 // its target: with an SRQ and an access key
)

var typeNames = [...]string{RC: "RC", UC: "UC", UD: "UD", XRCSend: "XRC_SEND", XRCRecv: "XRC_RECV", DCI: "DCI", DCT: "DCT"}

// String is the name of the type.
func (t QPType) String() string {
	if int(t) < len(typeNames) && typeNames[t] != "" {
		return typeNames[t]
	}
	return "QP type " + strconv.Itoa(int(t))
}

// QPState is the state of a queue pair (enum ibv_qp_state).
type QPState uint8

// The states, with libibverbs' values. The transitions (InfiniBand
// Architecture volume 1, section 10.3.1) are:
//
//	RESET -> INIT -> RTR -> RTS <-> SQD
//	any but RESET -> ERR or RESET; ERR -> RESET
const (
	StateReset QPState = iota
	StateInit
	StateRTR
	StateRTS
	StateSQD
	StateSQE
	StateErr
)

var stateNames = [...]string{"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"}

// String is the state's name in the InfiniBand specification.
func (s QPState) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return "state " + strconv.Itoa(int(s))
}

// QPCap are the capacities of a queue pair (struct ibv_qp_cap).
type QPCap struct {
	MaxSendWR, MaxRecvWR   int
	MaxSendSGE, MaxRecvSGE int
	MaxInlineData          int // bytes
	MaxInlineRecv          int // bytes of a received message that its completion can carry
}

// QPInitAttr are the attributes for creating a queue pair (struct ibv_qp_init_attr).
type QPInitAttr struct {
	SendCQ, RecvCQ CQ
	Cap            QPCap
	Type           QPType
	SigAll         bool // every send request creates a completion, as with SendSignaled (sq_sig_all)

	SRQ         SRQ        // shared receive queue, in place of a receive queue
	XRCD        XRCD       // XRCRecv: its domain
	DCAccessKey uint64     // DCT: the key that initiators must give
	Striding    StridingRQ // for the queue pair's own receive queue
}

// AV is the address vector of the peer's port (struct ibv_ah_attr with a GRH).
type AV struct {
	DGID     GID
	SGIDIdx  uint8
	HopLimit uint8
	PortNum  uint8
}

// QPAttr are a queue pair's attributes (struct ibv_qp_attr).
type QPAttr struct {
	State           QPState
	PKeyIndex       uint16
	PortNum         uint8
	AccessFlags     Access // rights of peers: AccessRemoteWrite, AccessRemoteRead, AccessRemoteAtomic
	AV              AV
	PathMTU         MTU
	DestQPNum       uint32
	RQPSN           uint32
	SQPSN           uint32
	MaxDestRdAtomic uint8  // incoming reads and atomics processed at a time; 0 refuses them
	MaxRdAtomic     uint8  // outgoing reads and atomics outstanding at a time
	MinRNRTimer     uint8  // how long a sender waits when this side has no receive posted: a code of RNRTimer
	Timeout         uint8  // time-out of acknowledgements, 4.096 us * 2^Timeout; 0 waits for ever
	RetryCnt        uint8  // 0..7
	RNRRetry        uint8  // 0..6; 7 retries for ever
	QKey            uint32 // UD: the key that datagrams must carry
	SQDAsyncNotify  bool   // RTS to SQD: send EventSQDrained when the last request is complete
}

// QPAttrMask says which fields of a QPAttr are set (enum ibv_qp_attr_mask).
type QPAttrMask uint32

// The attribute bits, with libibverbs' values.
const (
	QPStateMask           QPAttrMask = 1 << 0
	QPSQDAsyncNotifyMask  QPAttrMask = 1 << 2
	QPAccessFlagsMask     QPAttrMask = 1 << 3
	QPPKeyIndexMask       QPAttrMask = 1 << 4
	QPPortMask            QPAttrMask = 1 << 5
	QPQKeyMask            QPAttrMask = 1 << 6
	QPAVMask              QPAttrMask = 1 << 7
	QPPathMTUMask         QPAttrMask = 1 << 8
	QPTimeoutMask         QPAttrMask = 1 << 9
	QPRetryCntMask        QPAttrMask = 1 << 10
	QPRNRRetryMask        QPAttrMask = 1 << 11
	QPRQPSNMask           QPAttrMask = 1 << 12
	QPMaxRdAtomicMask     QPAttrMask = 1 << 13
	QPMinRNRTimerMask     QPAttrMask = 1 << 15
	QPSQPSNMask           QPAttrMask = 1 << 16
	QPMaxDestRdAtomicMask QPAttrMask = 1 << 17
	QPDestQPNMask         QPAttrMask = 1 << 20
)
