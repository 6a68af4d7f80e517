package rdma

import (
	"fmt"
	"strings"
	"time"
)

// A ModifyError says why a modification of a queue pair was refused. It
// wraps EINVAL. The queue pair is unchanged.
type ModifyError struct {
	Type     QPType
	From, To QPState
	Missing  QPAttrMask // attributes that the transition requires, but the mask lacks
	Extra    QPAttrMask // attributes in the mask that the transition does not permit
	Detail   string     // another reason: the transition or a value is invalid
}

func (e *ModifyError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "modify_qp %s %s to %s", e.Type, e.From, e.To)
	if e.Missing != 0 {
		fmt.Fprintf(&b, ": missing %s", e.Missing)
	}
	if e.Extra != 0 {
		fmt.Fprintf(&b, ": not allowed here %s", e.Extra)
	}
	if e.Detail != "" {
		b.WriteString(": " + e.Detail)
	}
	fmt.Fprintf(&b, ": %v", ErrInvalid)
	return b.String()
}

func (e *ModifyError) Unwrap() error { return ErrInvalid }

var attrNames = [...]string{
	0: "STATE", 2: "EN_SQD_ASYNC_NOTIFY", 3: "ACCESS_FLAGS", 4: "PKEY_INDEX", 5: "PORT", 6: "QKEY", 7: "AV", 8: "PATH_MTU", 9: "TIMEOUT",
	10: "RETRY_CNT", 11: "RNR_RETRY", 12: "RQ_PSN", 13: "MAX_QP_RD_ATOMIC", 15: "MIN_RNR_TIMER", 16: "SQ_PSN",
	17: "MAX_DEST_RD_ATOMIC", 20: "DEST_QPN",
}

// String is the names of the attributes, joined by "|".
func (m QPAttrMask) String() string {
	if m == 0 {
		return "0"
	}
	var on []string
	for i := range 32 {
		if m&(1<<i) == 0 {
			continue
		}
		if i < len(attrNames) && attrNames[i] != "" {
			on = append(on, attrNames[i])
		} else {
			on = append(on, fmt.Sprintf("bit %d", i))
		}
	}
	return strings.Join(on, "|")
}

// A transition is one permitted step, with the attributes it needs and those
// it may carry besides (man ibv_modify_qp).
type transition struct {
	from, to           QPState
	required, optional QPAttrMask
}

// Groups of attributes that several transports need alike.
const (
	initMask   = QPPKeyIndexMask | QPPortMask | QPAccessFlagsMask
	initUDMask = QPPKeyIndexMask | QPPortMask | QPQKeyMask
	pathMask   = QPAVMask | QPPathMTUMask | QPDestQPNMask | QPRQPSNMask
	answerMask = QPMaxDestRdAtomicMask | QPMinRNRTimerMask
	retryMask  = QPTimeoutMask | QPRetryCntMask | QPRNRRetryMask | QPMaxRdAtomicMask
	liveMask   = QPAccessFlagsMask | QPMinRNRTimerMask // what may change on the way
	drainMask  = QPPortMask | QPAVMask | retryMask | QPMaxDestRdAtomicMask | QPPKeyIndexMask
)

// The steps of the transports; those to RESET and ERR, which carry no
// attribute, are in permitted.
var (
	rcTransitions = []transition{
		{StateReset, StateInit, initMask, 0},
		{StateInit, StateInit, 0, initMask},
		{StateInit, StateRTR, pathMask | answerMask, QPPKeyIndexMask | QPAccessFlagsMask},
		{StateRTR, StateRTS, retryMask | QPSQPSNMask, liveMask},
		{StateRTS, StateRTS, 0, liveMask},
		{StateRTS, StateSQD, 0, QPSQDAsyncNotifyMask},
		{StateSQD, StateSQD, 0, drainMask | liveMask},
		{StateSQD, StateRTS, 0, liveMask},
		{StateSQE, StateRTS, 0, liveMask},
	}
	ucTransitions = []transition{
		{StateReset, StateInit, initMask, 0},
		{StateInit, StateInit, 0, initMask},
		{StateInit, StateRTR, pathMask, QPPKeyIndexMask | QPAccessFlagsMask},
		{StateRTR, StateRTS, QPSQPSNMask, QPAccessFlagsMask},
		{StateRTS, StateRTS, 0, QPAccessFlagsMask},
		{StateRTS, StateSQD, 0, QPSQDAsyncNotifyMask},
		{StateSQD, StateSQD, 0, QPAVMask | QPPKeyIndexMask | QPAccessFlagsMask},
		{StateSQD, StateRTS, 0, QPAccessFlagsMask},
		{StateSQE, StateRTS, 0, QPAccessFlagsMask},
	}
	udTransitions = []transition{
		{StateReset, StateInit, initUDMask, 0},
		{StateInit, StateInit, 0, initUDMask},
		{StateInit, StateRTR, 0, QPPKeyIndexMask | QPQKeyMask},
		{StateRTR, StateRTS, QPSQPSNMask, QPQKeyMask},
		{StateRTS, StateRTS, 0, QPQKeyMask},
		{StateRTS, StateSQD, 0, QPSQDAsyncNotifyMask},
		{StateSQD, StateSQD, 0, QPPKeyIndexMask | QPQKeyMask},
		{StateSQD, StateRTS, 0, QPQKeyMask},
		{StateSQE, StateRTS, 0, QPQKeyMask},
	}
	xrcSendTransitions = []transition{
		{StateReset, StateInit, initMask, 0},
		{StateInit, StateInit, 0, initMask},
		{StateInit, StateRTR, pathMask, QPPKeyIndexMask | QPAccessFlagsMask},
		{StateRTR, StateRTS, retryMask | QPSQPSNMask, QPAccessFlagsMask},
		{StateRTS, StateRTS, 0, QPAccessFlagsMask},
		{StateRTS, StateSQD, 0, QPSQDAsyncNotifyMask},
		{StateSQD, StateSQD, 0, QPPortMask | QPAVMask | retryMask | QPPKeyIndexMask | QPAccessFlagsMask},
		{StateSQD, StateRTS, 0, QPAccessFlagsMask},
	}
	xrcRecvTransitions = []transition{
		{StateReset, StateInit, initMask, 0},
		{StateInit, StateInit, 0, initMask},
		{StateInit, StateRTR, pathMask | answerMask, QPPKeyIndexMask | QPAccessFlagsMask},
		{StateRTR, StateRTS, QPTimeoutMask | QPSQPSNMask, liveMask},
		{StateRTS, StateRTS, 0, liveMask},
	}
	// The dynamically connected transports as mlx5 has them: the path is each
	// request's, and a target is ready in RTR.
	dciTransitions = []transition{
		{StateReset, StateInit, QPPKeyIndexMask | QPPortMask, 0},
		{StateInit, StateInit, 0, QPPKeyIndexMask | QPPortMask},
		{StateInit, StateRTR, QPPathMTUMask, QPPKeyIndexMask | QPAVMask},
		{StateRTR, StateRTS, retryMask | QPSQPSNMask, QPMinRNRTimerMask},
		{StateRTS, StateRTS, 0, QPMinRNRTimerMask},
	}
	dctTransitions = []transition{
		{StateReset, StateInit, initMask, 0},
		{StateInit, StateInit, 0, initMask},
		{StateInit, StateRTR, QPAVMask | QPPathMTUMask | QPMinRNRTimerMask, 0},
	}
)

// transitions gives the steps of a transport, nil for none that is known.
func transitions(typ QPType) []transition { return steps[typ] }

var steps = map[QPType][]transition{RC: rcTransitions, UC: ucTransitions, UD: udTransitions, XRCSend: xrcSendTransitions, XRCRecv: xrcRecvTransitions, DCI: dciTransitions, DCT: dctTransitions}

// permitted finds a transport's step from one state to another.
func permitted(steps []transition, from, to QPState) (transition, bool) {
	for _, t := range steps {
		if t.from == from && t.to == to {
			return t, true
		}
	}
	ok := to == StateReset && from <= StateErr || to == StateErr && from != StateReset && from <= StateErr
	return transition{from: from, to: to}, ok
}

// Required returns the attributes that a transition must set, including
// [QPStateMask], or 0 if there is no such transition.
func Required(typ QPType, from, to QPState) QPAttrMask {
	steps := transitions(typ)
	if step, ok := permitted(steps, from, to); ok && steps != nil {
		return step.required | QPStateMask
	}
	return 0
}

// CheckModify checks a modification of a queue pair in state current. The error is nil or a [*ModifyError].
// Without [QPStateMask] the queue pair stays in its state, and the rules are those of a transition to the
// same state. The provider checks whether the values name an existing port, peer or depth.
func CheckModify(typ QPType, current QPState, attr QPAttr, mask QPAttrMask) error {
	next := current
	if mask&QPStateMask != 0 {
		next = attr.State
	}
	e := &ModifyError{Type: typ, From: current, To: next}
	steps := transitions(typ)
	if steps == nil {
		e.Detail = "this transport is not known"
		return e
	}
	step, ok := permitted(steps, current, next)
	if !ok {
		e.Detail = "no such transition"
		return e
	}
	given := mask &^ QPStateMask
	e.Missing = step.required &^ given
	e.Extra = given &^ (step.required | step.optional)
	if e.Missing != 0 || e.Extra != 0 {
		return e
	}
	if e.Detail = checkValues(attr, mask); e.Detail != "" {
		return e
	}
	return nil
}

// qpAccess are the rights that a queue pair may be given; the local ones have
// no effect there and are accepted, as libibverbs does.
const qpAccess = AccessLocalWrite | AccessRemoteWrite | AccessRemoteRead | AccessRemoteAtomic | AccessMWBind

func checkValues(a QPAttr, mask QPAttrMask) string {
	has := func(m QPAttrMask) bool { return mask&m != 0 }
	switch {
	case has(QPPortMask) && a.PortNum == 0:
		return "port 0: ports count from 1"
	case has(QPAccessFlagsMask) && a.AccessFlags&^qpAccess != 0:
		return fmt.Sprintf("access flags %v: a queue pair takes REMOTE_WRITE, REMOTE_READ and REMOTE_ATOMIC", a.AccessFlags)
	case has(QPAVMask) && a.AV.PortNum == 0:
		return "port 0 in the address vector: ports count from 1"
	case has(QPPathMTUMask) && a.PathMTU.Bytes() == 0:
		return fmt.Sprintf("path MTU %d: want 1 (256 bytes) to 5 (4096)", a.PathMTU)
	case has(QPDestQPNMask) && a.DestQPNum >= 1<<24:
		return fmt.Sprintf("destination queue pair %#x has more than 24 bits", a.DestQPNum)
	case has(QPRQPSNMask) && a.RQPSN >= 1<<24:
		return fmt.Sprintf("receive PSN %#x has more than 24 bits", a.RQPSN)
	case has(QPSQPSNMask) && a.SQPSN >= 1<<24:
		return fmt.Sprintf("send PSN %#x has more than 24 bits", a.SQPSN)
	case has(QPMinRNRTimerMask) && a.MinRNRTimer > 31:
		return fmt.Sprintf("RNR timer code %d: want 0 to 31", a.MinRNRTimer)
	case has(QPTimeoutMask) && a.Timeout > 31:
		return fmt.Sprintf("timeout code %d: want 0 to 31", a.Timeout)
	case has(QPRetryCntMask) && a.RetryCnt > 7:
		return fmt.Sprintf("retry count %d: want 0 to 7", a.RetryCnt)
	case has(QPRNRRetryMask) && a.RNRRetry > 7:
		return fmt.Sprintf("RNR retry count %d: want 0 to 7", a.RNRRetry)
	}
	return ""
}

// Apply copies the fields in mask from src to a.
func (a *QPAttr) Apply(src QPAttr, mask QPAttrMask) {
	apply(mask&QPStateMask, &a.State, src.State)
	apply(mask&QPSQDAsyncNotifyMask, &a.SQDAsyncNotify, src.SQDAsyncNotify)
	apply(mask&QPQKeyMask, &a.QKey, src.QKey)
	apply(mask&QPAccessFlagsMask, &a.AccessFlags, src.AccessFlags)
	apply(mask&QPPKeyIndexMask, &a.PKeyIndex, src.PKeyIndex)
	apply(mask&QPPortMask, &a.PortNum, src.PortNum)
	apply(mask&QPAVMask, &a.AV, src.AV)
	apply(mask&QPPathMTUMask, &a.PathMTU, src.PathMTU)
	apply(mask&QPTimeoutMask, &a.Timeout, src.Timeout)
	apply(mask&QPRetryCntMask, &a.RetryCnt, src.RetryCnt)
	apply(mask&QPRNRRetryMask, &a.RNRRetry, src.RNRRetry)
	apply(mask&QPRQPSNMask, &a.RQPSN, src.RQPSN)
	apply(mask&QPMaxRdAtomicMask, &a.MaxRdAtomic, src.MaxRdAtomic)
	apply(mask&QPMinRNRTimerMask, &a.MinRNRTimer, src.MinRNRTimer)
	apply(mask&QPSQPSNMask, &a.SQPSN, src.SQPSN)
	apply(mask&QPMaxDestRdAtomicMask, &a.MaxDestRdAtomic, src.MaxDestRdAtomic)
	apply(mask&QPDestQPNMask, &a.DestQPNum, src.DestQPNum)
}

func apply[T any](on QPAttrMask, to *T, from T) {
	if on != 0 {
		*to = from
	}
}

// rnrHundredths is the RNR timer of each code in hundredths of a millisecond.
var rnrHundredths = [32]int64{
	65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192,
	256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
}

// RNRTimer is the waiting time for an RNR timer code of 5 bits.
func RNRTimer(code uint8) time.Duration {
	return time.Duration(rnrHundredths[code&31]) * 10 * time.Microsecond
}

// AckTimeout is the time to wait for an acknowledgement for a timeout
// code: 4.096 us * 2^code. Code 0 waits for ever, and gives 0.
func AckTimeout(code uint8) time.Duration {
	if code == 0 {
		return 0
	}
	return 4096 * time.Nanosecond << (code & 31)
}

// regionAccess are the rights that a memory region may be given.
const regionAccess = qpAccess | AccessZeroBased | AccessOnDemand

// CheckAccess checks the access rights of a memory region: REMOTE_WRITE and
// REMOTE_ATOMIC need LOCAL_WRITE (ibv_reg_mr(3)). The error wraps EINVAL.
func CheckAccess(access Access) error {
	if access&^regionAccess != 0 {
		return &OpError{"reg_mr", fmt.Sprintf("unknown access rights %#x", uint32(access&^regionAccess)), ErrInvalid}
	}
	if access&(AccessRemoteWrite|AccessRemoteAtomic) != 0 && access&AccessLocalWrite == 0 {
		return &OpError{"reg_mr", fmt.Sprintf("%v without LOCAL_WRITE", access), ErrInvalid}
	}
	return nil
}
