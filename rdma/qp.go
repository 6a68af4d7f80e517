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
	// State is the state it is in now; a failed operation moves it to ERR.
	State() QPState
	// Modify moves the queue pair through its states (ibv_modify_qp): mask
	// says which fields of attr are set, and must hold QPStateMask for a
	// transition. A missing or an extra attribute is EINVAL (a *ModifyError)
	// and changes nothing.
	Modify(attr QPAttr, mask QPAttrMask) error
	// Query gives the attributes in force (ibv_query_qp).
	Query() (QPAttr, QPInitAttr)
	// PostSend appends requests to the send queue in order and returns how
	// many it took; err says what was wrong with wrs[n] (ibv_post_send). The
	// slices inside wrs are the caller's again when it returns.
	PostSend(wrs []SendWR) (n int, err error)
	// BindMW binds a window of type 1 (ibv_bind_mw): a request like those of
	// PostSend, of which flags has SendSignaled and SendFence. The window's key
	// changes at once.
	BindMW(mw MW, wrid uint64, flags SendFlags, bind MWBind) error
	// PostRecv appends requests to the receive queue (ibv_post_recv).
	PostRecv(wrs []RecvWR) (n int, err error)
	// Close destroys the queue pair. Work that is queued gets no completion.
	Close() error
}

// A QPCloser is a context that closes many queue pairs cheaper than one after
// the other. It is an optional ability of a Context.
type QPCloser interface {
	// CloseQPs closes all of qps, which are of this context. The error joins
	// those of the ones that failed.
	CloseQPs(qps []QP) error
}

// CloseQPs closes queue pairs of one context in whatever way is cheapest there,
// leaves out those that are nil, and joins their errors.
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

// The transports, with libibverbs' values where it has them; the two halves of
// the dynamically connected one are its IBV_QPT_DRIVER.
const (
	RC      QPType = 2  // reliable connected
	UC      QPType = 3  // unreliable connected: no acks, lost messages are lost
	UD      QPType = 4  // unreliable datagram
	XRCSend QPType = 9  // extended reliable connected, initiator: no receive queue
	XRCRecv QPType = 10 // its target: no send queue, receives from the SRQ that a request names
	DCI     QPType = 14 // dynamically connected, initiator: every request has its target
	DCT     QPType = 15 // its target: an SRQ and an access key
)

var typeNames = [...]string{RC: "RC", UC: "UC", UD: "UD", XRCSend: "XRC_SEND", XRCRecv: "XRC_RECV", DCI: "DCI", DCT: "DCT"}

// String names the transport.
func (t QPType) String() string {
	if int(t) < len(typeNames) && typeNames[t] != "" {
		return typeNames[t]
	}
	return "QP type " + strconv.Itoa(int(t))
}

// QPState is the state of a queue pair (enum ibv_qp_state).
type QPState uint8

// The states, with libibverbs' values:
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

// QPCap holds the sizes of a queue pair's queues (struct ibv_qp_cap).
type QPCap struct {
	MaxSendWR, MaxRecvWR   int
	MaxSendSGE, MaxRecvSGE int
	MaxInlineData          int // bytes
	MaxInlineRecv          int // bytes of a message that travel in its completion
}

// QPInitAttr describes a queue pair to create (struct ibv_qp_init_attr).
type QPInitAttr struct {
	SendCQ, RecvCQ CQ
	Cap            QPCap
	Type           QPType
	SigAll         bool // every send request completes as if signaled (sq_sig_all)

	SRQ         SRQ        // where receives come from, in place of a receive queue
	XRCD        XRCD       // XRCRecv: its domain
	DCAccessKey uint64     // DCT: what initiators must know
	Striding    StridingRQ // of the queue pair's own receive queue
}

// AV is the address vector of the peer's port (struct ibv_ah_attr with a GRH).
type AV struct {
	DGID     GID
	SGIDIdx  uint8
	HopLimit uint8
	PortNum  uint8
}

// QPAttr holds a queue pair's attributes (struct ibv_qp_attr).
type QPAttr struct {
	State           QPState
	PKeyIndex       uint16
	PortNum         uint8
	AccessFlags     Access // what peers may do: AccessRemoteWrite, AccessRemoteRead, AccessRemoteAtomic
	AV              AV
	PathMTU         MTU
	DestQPNum       uint32
	RQPSN           uint32
	SQPSN           uint32
	MaxDestRdAtomic uint8  // reads and atomics of the peer answered at a time; 0 refuses them
	MaxRdAtomic     uint8  // own reads and atomics outstanding
	MinRNRTimer     uint8  // code of the wait asked of a peer that finds no receive: see RNRTimer
	Timeout         uint8  // ack timeout is 4.096 us * 2^Timeout; 0 waits for ever
	RetryCnt        uint8  // 0..7
	RNRRetry        uint8  // 0..6; 7 retries for ever
	QKey            uint32 // UD: what datagrams must carry
	SQDAsyncNotify  bool   // RTS to SQD: EventSQDrained when the last request is complete
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
