package rdmatest

import (
	"errors"
	"fmt"

	"github.com/gorun-mpi/gorun/rdma"
)

func stateCases() []testCase {
	return []testCase{
		{name: "state/every_transition", nodes: 2, run: stateEvery},
		{name: "state/missing_attribute_is_EINVAL", nodes: 2, run: stateMissing},
		{name: "state/extra_attribute_is_EINVAL", nodes: 2, run: stateExtra},
		{name: "state/optional_attributes", nodes: 2, run: stateOptional},
		{name: "state/bad_values_are_EINVAL", nodes: 2, run: stateValues},
		{name: "state/query_gives_what_was_set", nodes: 2, run: stateQuery},
		{name: "state/access_flags_change_in_RTS", nodes: 2, run: pair(stateAccessInRTS)},
		{name: "state/reset_forgets_work", nodes: 2, run: pair(stateReset)},
		{name: "state/error_reset_and_reuse", nodes: 2, run: pair(stateReuse)},
	}
}

// A transition of an RC queue pair, as verbs defines it.
type transition struct {
	from, to           rdma.QPState
	required, optional rdma.QPAttrMask
}

var rcStates = []rdma.QPState{rdma.StateReset, rdma.StateInit, rdma.StateRTR, rdma.StateRTS, rdma.StateSQD, rdma.StateErr}

// transitions lists every legal one. SQE is no state of RC.
func transitions() []transition {
	const (
		state   = rdma.QPStateMask
		inInit  = rdma.QPPKeyIndexMask | rdma.QPPortMask | rdma.QPAccessFlagsMask
		inReady = rdma.QPAccessFlagsMask | rdma.QPMinRNRTimerMask
		// SQD to SQD, where the send queue rests, may change the most.
		inSQD = inInit | rdma.QPAVMask | rdma.QPTimeoutMask | rdma.QPRetryCntMask | rdma.QPRNRRetryMask |
			rdma.QPMaxRdAtomicMask | rdma.QPMaxDestRdAtomicMask | rdma.QPMinRNRTimerMask
	)
	all := []transition{
		{rdma.StateReset, rdma.StateInit, initMask, 0},
		{rdma.StateInit, rdma.StateInit, state, inInit},
		{rdma.StateInit, rdma.StateRTR, rtrMask, rdma.QPPKeyIndexMask | rdma.QPAccessFlagsMask},
		{rdma.StateRTR, rdma.StateRTS, rtsMask, inReady},
		{rdma.StateRTS, rdma.StateRTS, state, inReady},
		{rdma.StateRTS, rdma.StateSQD, state, 0},
		{rdma.StateSQD, rdma.StateRTS, state, inReady},
		{rdma.StateSQD, rdma.StateSQD, state, inSQD},
	}
	for _, from := range rcStates {
		all = append(all, transition{from, rdma.StateReset, state, 0})
		if from != rdma.StateReset {
			all = append(all, transition{from, rdma.StateErr, state, 0})
		}
	}
	return all
}

// eachBit calls f for every attribute bit that this model knows.
func eachBit(f func(rdma.QPAttrMask)) {
	for _, bit := range []rdma.QPAttrMask{rdma.QPAccessFlagsMask, rdma.QPPKeyIndexMask, rdma.QPPortMask, rdma.QPAVMask,
		rdma.QPPathMTUMask, rdma.QPTimeoutMask, rdma.QPRetryCntMask, rdma.QPRNRRetryMask, rdma.QPRQPSNMask,
		rdma.QPMaxRdAtomicMask, rdma.QPMinRNRTimerMask, rdma.QPSQPSNMask, rdma.QPMaxDestRdAtomicMask, rdma.QPDestQPNMask} {
		f(bit)
	}
}

// in brings a queue pair of a fresh link to the state and gives it with the
// attributes of every step.
func (r *rig) in(state rdma.QPState) (rdma.QP, rdma.QPAttr) {
	r.Helper()
	l := r.link(func(u *setup) {
		u.until = [2]rdma.QPState{state, rdma.StateInit}
		if state > rdma.StateRTS {
			u.until[0] = rdma.StateRTS
		}
		if state == rdma.StateReset {
			u.until[0] = 0
			u.each = nil
		}
	})
	if state == rdma.StateReset {
		r.move(l.qa, rdma.StateReset)
	}
	if state > rdma.StateRTS {
		r.move(l.qa, state)
	}
	equal(r, l.qa.State(), state, "the queue pair is in")
	return l.qa, l.attrs(0, defaults())
}

// refused checks that a modification is EINVAL, a *rdma.ModifyError where it
// shows, and changed nothing.
func (r *rig) refused(what string, qp rdma.QP, attr rdma.QPAttr, mask rdma.QPAttrMask) {
	r.Helper()
	before, state := query(qp), qp.State()
	err := qp.Modify(attr, mask)
	if !errors.Is(err, rdma.ErrInvalid) {
		r.Errorf("%s: Modify: %v, want EINVAL", what, err)
	}
	if after := query(qp); after != before || qp.State() != state {
		r.Errorf("%s: the refused Modify changed %+v (%v) to %+v (%v)", what, before, state, after, qp.State())
	}
}

func query(qp rdma.QP) rdma.QPAttr {
	attr, _ := qp.Query()
	return attr
}

func stateEvery(r *rig) {
	legal := map[[2]rdma.QPState]transition{}
	for _, t := range transitions() {
		legal[[2]rdma.QPState{t.from, t.to}] = t
	}
	for _, from := range rcStates {
		for _, to := range append([]rdma.QPState{rdma.StateSQE, rdma.QPState(77)}, rcStates...) {
			if from == rdma.StateSQD && to == rdma.StateSQD {
				continue // some devices have it, some have not
			}
			qp, attr := r.in(from)
			attr.State = to
			t, ok := legal[[2]rdma.QPState{from, to}]
			what := fmt.Sprintf("%v to %v", from, to)
			if !ok {
				// With every mask that might tempt the device.
				for _, mask := range []rdma.QPAttrMask{rdma.QPStateMask, initMask, rtrMask, rtsMask} {
					r.refused(fmt.Sprintf("%s with mask %#x", what, uint32(mask)), qp, attr, mask)
				}
				continue
			}
			if err := qp.Modify(attr, t.required); err != nil {
				r.Errorf("%s: Modify: %v", what, err)
			} else if got := qp.State(); got != to {
				r.Errorf("%s: the state is %v", what, got)
			} else if got := query(qp).State; got != to {
				r.Errorf("%s: Query says the state is %v", what, got)
			}
		}
	}
}

func stateMissing(r *rig) {
	for _, t := range transitions() {
		if t.required == rdma.QPStateMask {
			continue
		}
		qp, attr := r.in(t.from)
		attr.State = t.to
		eachBit(func(bit rdma.QPAttrMask) {
			if t.required&bit != 0 {
				r.refused(fmt.Sprintf("%v to %v without attribute %#x", t.from, t.to, uint32(bit)), qp, attr, t.required&^bit)
			}
		})
		r.refused(fmt.Sprintf("%v to %v with the state alone", t.from, t.to), qp, attr, rdma.QPStateMask)
		// After all refusals the right call still works.
		r.must(qp.Modify(attr, t.required), "%v to %v", t.from, t.to)
	}
}

func stateExtra(r *rig) {
	for _, t := range transitions() {
		if t.from == rdma.StateSQD && t.to == rdma.StateSQD {
			continue
		}
		qp, attr := r.in(t.from)
		attr.State = t.to
		eachBit(func(bit rdma.QPAttrMask) {
			if (t.required|t.optional)&bit == 0 {
				r.refused(fmt.Sprintf("%v to %v with the extra attribute %#x", t.from, t.to, uint32(bit)), qp, attr, t.required|bit)
			}
		})
		for _, bit := range []rdma.QPAttrMask{1 << 27, 1 << 31} {
			r.refused(fmt.Sprintf("%v to %v with the unknown attribute %#x", t.from, t.to, uint32(bit)), qp, attr, t.required|bit)
		}
	}
}

func stateOptional(r *rig) {
	for _, t := range transitions() {
		if t.optional == 0 || t.from == rdma.StateSQD && t.to == rdma.StateSQD {
			continue
		}
		eachBit(func(bit rdma.QPAttrMask) {
			if t.optional&bit == 0 {
				return
			}
			qp, attr := r.in(t.from)
			attr.State, attr.AccessFlags, attr.MinRNRTimer = t.to, rdma.AccessRemoteRead, 9
			if err := qp.Modify(attr, t.required|bit); err != nil {
				r.Errorf("%v to %v with the optional attribute %#x: %v", t.from, t.to, uint32(bit), err)
				return
			}
			got := query(qp)
			if bit == rdma.QPAccessFlagsMask && got.AccessFlags != rdma.AccessRemoteRead {
				r.Errorf("%v to %v: access flags are %v, want REMOTE_READ", t.from, t.to, got.AccessFlags)
			}
			if bit == rdma.QPMinRNRTimerMask && got.MinRNRTimer != 9 {
				r.Errorf("%v to %v: the RNR timer is %d, want 9", t.from, t.to, got.MinRNRTimer)
			}
		})
	}
}

func stateValues(r *rig) {
	d := r.sides[0].ctx.QueryDevice()
	port := result(r.sides[0].ctx.QueryPort(1)).must(r, "QueryPort")
	for _, bad := range []struct {
		name   string
		to     rdma.QPState
		change func(*rdma.QPAttr)
	}{
		{"port 0", rdma.StateInit, func(a *rdma.QPAttr) { a.PortNum = 0 }},
		{"port 200", rdma.StateInit, func(a *rdma.QPAttr) { a.PortNum = 200 }},
		{"pkey index 60000", rdma.StateInit, func(a *rdma.QPAttr) { a.PKeyIndex = 60000 }},
		{"unknown access flag", rdma.StateInit, func(a *rdma.QPAttr) { a.AccessFlags = 1 << 30 }},
		{"MTU 0", rdma.StateRTR, func(a *rdma.QPAttr) { a.PathMTU = 0 }},
		{"MTU 6", rdma.StateRTR, func(a *rdma.QPAttr) { a.PathMTU = 6 }},
		{"queue pair number of 25 bits", rdma.StateRTR, func(a *rdma.QPAttr) { a.DestQPNum |= 1 << 24 }},
		{"RNR timer 32", rdma.StateRTR, func(a *rdma.QPAttr) { a.MinRNRTimer = 32 }},
		{"AV port 0", rdma.StateRTR, func(a *rdma.QPAttr) { a.AV.PortNum = 0 }},
		{"AV source GID outside the table", rdma.StateRTR, func(a *rdma.QPAttr) { a.AV.SGIDIdx = uint8(min(255, port.GIDTblLen)) }},
		{"more answered reads than the device can", rdma.StateRTR, func(a *rdma.QPAttr) { a.MaxDestRdAtomic = over(d.MaxQPRdAtom) }},
		{"timeout 32", rdma.StateRTS, func(a *rdma.QPAttr) { a.Timeout = 32 }},
		{"retry count 8", rdma.StateRTS, func(a *rdma.QPAttr) { a.RetryCnt = 8 }},
		{"RNR retry 8", rdma.StateRTS, func(a *rdma.QPAttr) { a.RNRRetry = 8 }},
		{"more started reads than the device can", rdma.StateRTS, func(a *rdma.QPAttr) { a.MaxRdAtomic = over(d.MaxQPInitRdAtom) }},
	} {
		qp, attr := r.in(bad.to - 1)
		good := attr
		bad.change(&attr)
		if attr == good {
			continue // the device's limit is the field's
		}
		attr.State = bad.to
		r.refused(bad.name, qp, attr, maskOf(bad.to))
		good.State = bad.to
		r.must(qp.Modify(good, maskOf(bad.to)), "%s: afterwards the good values", bad.name)
	}
}

// over is one more than a limit, or a valid value where the field cannot say it.
func over(limit int) uint8 {
	if limit >= 255 {
		return defaults().attr.MaxRdAtomic
	}
	return uint8(limit + 1)
}

func stateQuery(r *rig) {
	l := r.link(func(u *setup) {
		u.attr.AccessFlags = rdma.AccessRemoteRead | rdma.AccessRemoteAtomic
		u.attr.PathMTU, u.attr.RQPSN, u.attr.SQPSN = rdma.MTU2048, 0xabcdef, 0x123456
		u.attr.MaxDestRdAtomic, u.attr.MaxRdAtomic = 1, 1
		u.attr.MinRNRTimer, u.attr.Timeout, u.attr.RetryCnt, u.attr.RNRRetry = 13, 15, 3, 5
	})
	for i, qp := range []rdma.QP{l.qa, l.qb} {
		got, want := query(qp), l.attrs(i, setup{attr: rdma.QPAttr{
			State: rdma.StateRTS, PortNum: 1, AccessFlags: rdma.AccessRemoteRead | rdma.AccessRemoteAtomic,
			PathMTU: rdma.MTU2048, RQPSN: 0xabcdef, SQPSN: 0x123456, MaxDestRdAtomic: 1, MaxRdAtomic: 1,
			MinRNRTimer: 13, Timeout: 15, RetryCnt: 3, RNRRetry: 5,
		}})
		if got != want {
			r.Errorf("side %d: Query gives\n%+v, want\n%+v", i, got, want)
		}
	}
}

func stateAccessInRTS(r *rig, a, b *side) {
	src, dst := a.memory(64), b.memory(64)
	l := r.link()
	l.do(write(1, dst, 0, src.sge(0, 8)))
	// Without the state in the mask it is RTS to RTS all the same.
	r.must(l.qb.Modify(rdma.QPAttr{AccessFlags: rdma.AccessRemoteRead}, rdma.QPAccessFlagsMask), "modify the access flags in RTS")
	equal(r, l.qb.State(), rdma.StateRTS, "the state is")
	src.Store(0, pattern(1, 64))
	l.do(read(2, dst, 0, src.sge(0, 8)))
	l.fails(rdma.WCRemInvReqErr, write(3, dst, 0, src.sge(8, 8)))
	r.same("memory", dst.Load(0, 64), make([]byte, 64))
}

// stateReset: work of before RESET neither completes nor is done, and the
// queue pair starts again as if new.
func stateReset(r *rig, a, b *side) {
	mem, far := a.memory(256), b.memory(256)
	l := r.link()
	l.recv(receive(1, far.sge(0, 64)), receive(2, far.sge(64, 64)))
	// Sends wait for receives on a's side that never come.
	post(r, l.qb, send(3, far.sge(128, 8)), send(4, far.sge(128, 8)))
	r.move(l.qa, rdma.StateReset)
	r.move(l.qb, rdma.StateReset)
	u := defaults()
	for _, to := range []rdma.QPState{rdma.StateInit, rdma.StateRTR, rdma.StateRTS} {
		l.step(0, l.qa, u, to)
		l.step(1, l.qb, u, to)
	}
	mem.Store(0, pattern(1, 64))
	l.recv(receive(5, far.sge(192, 64)))
	l.do(send(6, mem.sge(0, 64)))
	b.done(b.rcq, 5)
	r.same("the receive posted after the reset", far.Load(192, 64), pattern(1, 64))
	r.same("the receives posted before it", far.Load(0, 128), make([]byte, 128))
	postRecv(r, l.qa, receive(7, mem.sge(64, 64)))
	far.Store(0, pattern(2, 64))
	l.back().do(send(8, far.sge(0, 64)))
	a.done(a.rcq, 7)
	r.same("what arrives after the reset", mem.Load(64, 64), pattern(2, 64))
	r.quiet()
}

func stateReuse(r *rig, a, b *side) {
	src, dst := a.memory(64), b.memory(64)
	l := r.link()
	u := defaults()
	for round := range 5 {
		id := uint64(10 * round)
		l.recv(receive(id, dst.sge(0, 8)))
		l.fails(rdma.WCRemAccessErr, astray(write(id+1, dst, 0, src.sge(0, 8))))
		b.want(b.rcq, id, rdma.WCWRFlushErr)
		a.state(l.qa, rdma.StateErr)
		b.state(l.qb, rdma.StateErr)
		r.move(l.qa, rdma.StateReset)
		r.move(l.qb, rdma.StateReset)
		for _, to := range []rdma.QPState{rdma.StateInit, rdma.StateRTR, rdma.StateRTS} {
			l.step(1, l.qb, u, to)
			l.step(0, l.qa, u, to)
		}
		src.Store(0, pattern(id, 64))
		l.do(write(id+2, dst, 0, src.sge(0, 64)))
		r.same("a write after the reset", dst.Load(0, 64), pattern(id, 64))
	}
}
