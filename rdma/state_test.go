package rdma

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"
)

// needs are the attributes of each step, required and optional, written down a
// second time in the words of the verbs documentation.
var needs = map[QPType]map[string][2]QPAttrMask{
	RC: {
		"RESET INIT": {QPPKeyIndexMask | QPPortMask | QPAccessFlagsMask, 0},
		"INIT INIT":  {0, QPPKeyIndexMask | QPPortMask | QPAccessFlagsMask},
		"INIT RTR": {QPAVMask | QPPathMTUMask | QPDestQPNMask | QPRQPSNMask | QPMaxDestRdAtomicMask | QPMinRNRTimerMask,
			QPPKeyIndexMask | QPAccessFlagsMask},
		"RTR RTS": {QPTimeoutMask | QPRetryCntMask | QPRNRRetryMask | QPSQPSNMask | QPMaxRdAtomicMask,
			QPAccessFlagsMask | QPMinRNRTimerMask},
		"RTS RTS": {0, QPAccessFlagsMask | QPMinRNRTimerMask},
		"RTS SQD": {0, QPSQDAsyncNotifyMask},
		"SQD SQD": {0, QPPortMask | QPAVMask | QPTimeoutMask | QPRetryCntMask | QPRNRRetryMask | QPMaxRdAtomicMask |
			QPMaxDestRdAtomicMask | QPPKeyIndexMask | QPAccessFlagsMask | QPMinRNRTimerMask},
		"SQD RTS": {0, QPAccessFlagsMask | QPMinRNRTimerMask},
		"SQE RTS": {0, QPAccessFlagsMask | QPMinRNRTimerMask},
	},
	UC: {
		"RESET INIT": {QPPKeyIndexMask | QPPortMask | QPAccessFlagsMask, 0},
		"INIT INIT":  {0, QPPKeyIndexMask | QPPortMask | QPAccessFlagsMask},
		"INIT RTR":   {QPAVMask | QPPathMTUMask | QPDestQPNMask | QPRQPSNMask, QPPKeyIndexMask | QPAccessFlagsMask},
		"RTR RTS":    {QPSQPSNMask, QPAccessFlagsMask},
		"RTS RTS":    {0, QPAccessFlagsMask},
		"RTS SQD":    {0, QPSQDAsyncNotifyMask},
		"SQD SQD":    {0, QPAVMask | QPPKeyIndexMask | QPAccessFlagsMask},
		"SQD RTS":    {0, QPAccessFlagsMask},
		"SQE RTS":    {0, QPAccessFlagsMask},
	},
	UD: {
		"RESET INIT": {QPPKeyIndexMask | QPPortMask | QPQKeyMask, 0},
		"INIT INIT":  {0, QPPKeyIndexMask | QPPortMask | QPQKeyMask},
		"INIT RTR":   {0, QPPKeyIndexMask | QPQKeyMask},
		"RTR RTS":    {QPSQPSNMask, QPQKeyMask},
		"RTS RTS":    {0, QPQKeyMask},
		"RTS SQD":    {0, QPSQDAsyncNotifyMask},
		"SQD SQD":    {0, QPPKeyIndexMask | QPQKeyMask},
		"SQD RTS":    {0, QPQKeyMask},
		"SQE RTS":    {0, QPQKeyMask},
	},
	XRCSend: {
		"RESET INIT": {QPPKeyIndexMask | QPPortMask | QPAccessFlagsMask, 0},
		"INIT INIT":  {0, QPPKeyIndexMask | QPPortMask | QPAccessFlagsMask},
		"INIT RTR":   {QPAVMask | QPPathMTUMask | QPDestQPNMask | QPRQPSNMask, QPPKeyIndexMask | QPAccessFlagsMask},
		"RTR RTS":    {QPTimeoutMask | QPRetryCntMask | QPRNRRetryMask | QPSQPSNMask | QPMaxRdAtomicMask, QPAccessFlagsMask},
		"RTS RTS":    {0, QPAccessFlagsMask},
		"RTS SQD":    {0, QPSQDAsyncNotifyMask},
		"SQD SQD": {0, QPPortMask | QPAVMask | QPTimeoutMask | QPRetryCntMask | QPRNRRetryMask | QPMaxRdAtomicMask |
			QPPKeyIndexMask | QPAccessFlagsMask},
		"SQD RTS": {0, QPAccessFlagsMask},
	},
	XRCRecv: {
		"RESET INIT": {QPPKeyIndexMask | QPPortMask | QPAccessFlagsMask, 0},
		"INIT INIT":  {0, QPPKeyIndexMask | QPPortMask | QPAccessFlagsMask},
		"INIT RTR": {QPAVMask | QPPathMTUMask | QPDestQPNMask | QPRQPSNMask | QPMaxDestRdAtomicMask | QPMinRNRTimerMask,
			QPPKeyIndexMask | QPAccessFlagsMask},
		"RTR RTS": {QPTimeoutMask | QPSQPSNMask, QPAccessFlagsMask | QPMinRNRTimerMask},
		"RTS RTS": {0, QPAccessFlagsMask | QPMinRNRTimerMask},
	},
	DCI: {
		"RESET INIT": {QPPKeyIndexMask | QPPortMask, 0},
		"INIT INIT":  {0, QPPKeyIndexMask | QPPortMask},
		"INIT RTR":   {QPPathMTUMask, QPPKeyIndexMask | QPAVMask},
		"RTR RTS":    {QPTimeoutMask | QPRetryCntMask | QPRNRRetryMask | QPSQPSNMask | QPMaxRdAtomicMask, QPMinRNRTimerMask},
		"RTS RTS":    {0, QPMinRNRTimerMask},
	},
	DCT: {
		"RESET INIT": {QPPKeyIndexMask | QPPortMask | QPAccessFlagsMask, 0},
		"INIT INIT":  {0, QPPKeyIndexMask | QPPortMask | QPAccessFlagsMask},
		"INIT RTR":   {QPAVMask | QPPathMTUMask | QPMinRNRTimerMask, 0},
	},
}

var every = []QPAttrMask{
	QPAccessFlagsMask, QPPKeyIndexMask, QPPortMask, QPAVMask, QPPathMTUMask, QPTimeoutMask, QPRetryCntMask, QPRNRRetryMask,
	QPRQPSNMask, QPMaxRdAtomicMask, QPMinRNRTimerMask, QPSQPSNMask, QPMaxDestRdAtomicMask, QPDestQPNMask,
	QPQKeyMask, QPSQDAsyncNotifyMask,
}

var good = QPAttr{PortNum: 1, AccessFlags: AccessRemoteWrite, AV: AV{PortNum: 1}, PathMTU: MTU1024, DestQPNum: 17, MinRNRTimer: 12, Timeout: 14, RetryCnt: 7, RNRRetry: 7}

func TestCheckModify(t *testing.T) {
	for typ, steps := range needs {
		for from := StateReset; from <= StateErr; from++ {
			for to := StateReset; to <= StateErr+1; to++ {
				want, ok := steps[fmt.Sprintf("%v %v", from, to)]
				if to == StateReset || to == StateErr && from != StateReset {
					ok = true
				}
				t.Run(fmt.Sprintf("%v/%v to %v", typ, from, to), func(t *testing.T) {
					checkStep(t, typ, from, to, ok, want[0], want[1])
				})
			}
		}
	}
}

// checkStep tries one step with every attribute in turn left out or put in.
func checkStep(t *testing.T, typ QPType, from, to QPState, ok bool, required, optional QPAttrMask) {
	attr := good
	attr.State = to
	check := func(mask QPAttrMask, wantOK bool, missing, extra QPAttrMask) {
		t.Helper()
		err := CheckModify(typ, from, attr, mask|QPStateMask)
		if wantOK {
			if err != nil {
				t.Errorf("mask %v: got %v, want no error", mask, err)
			}
			return
		}
		var m *ModifyError
		if !errors.As(err, &m) || !errors.Is(err, syscall.EINVAL) || m.From != from || m.To != to || m.Missing != missing || m.Extra != extra {
			t.Errorf("mask %v: got %v, want EINVAL with missing %v, extra %v", mask, err, missing, extra)
		}
	}
	if !ok {
		check(required, false, 0, 0)
		return
	}
	check(required, true, 0, 0)
	check(required|optional, true, 0, 0)
	for _, bit := range every {
		switch {
		case required&bit != 0:
			check(required&^bit, false, bit, 0)
		case optional&bit != 0:
			check(required|bit, true, 0, 0)
		default:
			check(required|bit, false, 0, bit)
		}
	}
}

func TestCheckModifyWithoutState(t *testing.T) {
	attr := good
	attr.State = StateErr // not in the mask
	if err := CheckModify(RC, StateRTS, attr, QPMinRNRTimerMask); err != nil {
		t.Errorf("RTS with MIN_RNR_TIMER alone: got %v, want no error", err)
	}
	if err := CheckModify(RC, StateRTS, attr, QPAVMask); err == nil {
		t.Error("RTS with AV alone: got no error")
	}
	if err := CheckModify(QPType(1), StateReset, attr, QPStateMask); err == nil {
		t.Error("QP type 1: got no error")
	}
}

func TestCheckModifyValues(t *testing.T) {
	for name, spoil := range map[string]func(*QPAttr) (from, to QPState){
		"port 0":           func(a *QPAttr) (QPState, QPState) { a.PortNum = 0; return StateReset, StateInit },
		"access flags":     func(a *QPAttr) (QPState, QPState) { a.AccessFlags = 1 << 20; return StateReset, StateInit },
		"MTU 0":            func(a *QPAttr) (QPState, QPState) { a.PathMTU = 0; return StateInit, StateRTR },
		"MTU 6":            func(a *QPAttr) (QPState, QPState) { a.PathMTU = 6; return StateInit, StateRTR },
		"AV port 0":        func(a *QPAttr) (QPState, QPState) { a.AV.PortNum = 0; return StateInit, StateRTR },
		"destination":      func(a *QPAttr) (QPState, QPState) { a.DestQPNum = 1 << 24; return StateInit, StateRTR },
		"receive PSN":      func(a *QPAttr) (QPState, QPState) { a.RQPSN = 1 << 24; return StateInit, StateRTR },
		"RNR timer":        func(a *QPAttr) (QPState, QPState) { a.MinRNRTimer = 32; return StateInit, StateRTR },
		"send PSN":         func(a *QPAttr) (QPState, QPState) { a.SQPSN = 1 << 24; return StateRTR, StateRTS },
		"timeout":          func(a *QPAttr) (QPState, QPState) { a.Timeout = 32; return StateRTR, StateRTS },
		"retry count":      func(a *QPAttr) (QPState, QPState) { a.RetryCnt = 8; return StateRTR, StateRTS },
		"RNR retry count":  func(a *QPAttr) (QPState, QPState) { a.RNRRetry = 8; return StateRTR, StateRTS },
		"transition alone": func(a *QPAttr) (QPState, QPState) { return StateReset, StateRTR },
	} {
		t.Run(name, func(t *testing.T) {
			attr := good
			from, to := spoil(&attr)
			attr.State = to
			want := needs[RC][fmt.Sprintf("%v %v", from, to)]
			err := CheckModify(RC, from, attr, want[0]|QPStateMask)
			var m *ModifyError
			if !errors.As(err, &m) || m.Detail == "" {
				t.Errorf("got %v, want a ModifyError with a reason", err)
			}
		})
	}
}

func TestTimers(t *testing.T) {
	for code, want := range map[uint8]time.Duration{
		0: 655360 * time.Microsecond, 1: 10 * time.Microsecond, 7: 120 * time.Microsecond,
		14: 1280 * time.Microsecond, 18: 5120 * time.Microsecond, 31: 491520 * time.Microsecond,
	} {
		if got := RNRTimer(code); got != want {
			t.Errorf("RNRTimer(%d) = %v, want %v", code, got, want)
		}
	}
	for code, want := range map[uint8]time.Duration{0: 0, 1: 8192 * time.Nanosecond, 14: 67108864 * time.Nanosecond, 31: 4096 << 31} {
		if got := AckTimeout(code); got != want {
			t.Errorf("AckTimeout(%d) = %v, want %v", code, got, want)
		}
	}
}

func TestCheckAccess(t *testing.T) {
	for _, c := range []struct {
		access Access
		ok     bool
	}{
		{0, true}, {AccessLocalWrite, true}, {AccessRemoteRead, true}, {AccessRemoteWrite, false}, {AccessRemoteAtomic, false},
		{AccessLocalWrite | AccessRemoteWrite | AccessRemoteAtomic, true}, {AccessOnDemand | AccessZeroBased, true}, {1 << 9, false},
	} {
		if err := CheckAccess(c.access); (err == nil) != c.ok || err != nil && !errors.Is(err, syscall.EINVAL) {
			t.Errorf("CheckAccess(%v) = %v, want ok %v", c.access, err, c.ok)
		}
	}
}

func TestApply(t *testing.T) {
	src := QPAttr{StateRTS, 1, 2, 3, AV{PortNum: 4}, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, true}
	var a QPAttr
	mask := QPStateMask
	for _, bit := range every {
		mask |= bit
	}
	a.Apply(src, 0)
	if a != (QPAttr{}) {
		t.Errorf("Apply with no mask: got %+v", a)
	}
	a.Apply(src, mask)
	if a != src {
		t.Errorf("Apply with every mask: got %+v, want %+v", a, src)
	}
}

// What Required says is enough, and no bit of it can be left out.
func TestRequired(t *testing.T) {
	attr := QPAttr{PortNum: 1, PathMTU: MTU1024, AV: AV{PortNum: 1}}
	for typ := QPType(0); typ < 20; typ++ {
		for from := StateReset; from <= StateErr; from++ {
			for to := StateReset; to <= StateErr; to++ {
				attr.State = to
				mask := Required(typ, from, to)
				if err := CheckModify(typ, from, attr, mask|QPStateMask); (err == nil) != (mask != 0) {
					t.Errorf("%v, %v to %v: Required says %v, CheckModify of that %v", typ, from, to, mask, err)
				}
				for bit := QPAttrMask(1); bit <= mask; bit <<= 1 {
					if bit != QPStateMask && mask&bit != 0 && CheckModify(typ, from, attr, mask&^bit) == nil {
						t.Errorf("%v, %v to %v: Required says %v, but %v is not needed", typ, from, to, mask, bit)
					}
				}
			}
		}
	}
}
