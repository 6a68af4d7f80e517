package rdmatest

import (
	"context"
	"errors"
	"slices"

	"github.com/gorun-mpi/gorun/rdma"
)

func eventCases() []testCase {
	exact := func(f Fabric) bool { return !f.Inexact }
	return needing([]testCase{
		{name: "event/wait_ends_with_its_context", nodes: 2, run: eventContext},
		{name: "event/send_overrun_is_CQ_ERR", nodes: 2, run: pair(eventSendOverrun)},
		{name: "event/receive_overrun_is_CQ_ERR", nodes: 2, run: pair(eventRecvOverrun), when: exact},
		{name: "event/responder_tells_its_program_why", nodes: 2, run: eventResponder, when: exact},
		{name: "event/completed_error_is_no_event", nodes: 2, run: pair(eventNone), when: exact},
		{name: "event/SQ_drained_when_asked", nodes: 2, run: pair(eventDrained)},
		{name: "event/first_message_in_RTR_is_COMM_EST", nodes: 2, run: pair(eventEstablished), when: exact},
		{name: "event/of_closed_objects_are_gone", nodes: 2, run: pair(eventClosed), when: exact},
	}, rdma.FeatureAsyncEvents)
}

// event waits for the side's next asynchronous event, which must be of a type.
// Events of the types before may come before it.
func (s *side) event(want rdma.EventType, before ...rdma.EventType) rdma.AsyncEvent {
	s.r.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), s.r.f.Patience)
	defer cancel()
	e := result(s.ctx.GetAsyncEvent(ctx)).must(s.r, "side %d: waiting for event %q", s.index, want)
	for e.Type != want && slices.Contains(before, e.Type) {
		e = result(s.ctx.GetAsyncEvent(ctx)).must(s.r, "side %d: waiting for event %q", s.index, want)
	}
	if e.Type != want {
		s.r.Fatalf("side %d: event %q, want %q", s.index, e.Type, want)
	}
	return e
}

// sentinel makes an event of its own on the side. What is not there before it
// has not happened.
func (s *side) sentinel() {
	s.r.Helper()
	l := s.r.connect(s, s)
	drain(s.r, l.qa)
	if e := s.event(rdma.EventSQDrained); e.QP != l.qa {
		s.r.Errorf("side %d: an event of another queue pair than the one that was drained last", s.index)
	}
}

func drain(r *rig, qp rdma.QP) {
	r.Helper()
	r.must(qp.Modify(rdma.QPAttr{State: rdma.StateSQD, SQDAsyncNotify: true}, rdma.QPStateMask|rdma.QPSQDAsyncNotifyMask), "modify to SQD")
}

func eventContext(r *rig) {
	for i, s := range r.sides {
		ended, cancel := context.WithCancelCause(context.Background())
		why := errors.New("nobody wants to know")
		cancel(why)
		result(s.ctx.GetAsyncEvent(ended)).refused(r, "GetAsyncEvent with a context that has ended", why)
		waiting, cancel := context.WithCancelCause(context.Background())
		got := make(chan error, 1)
		go func() {
			_, err := s.ctx.GetAsyncEvent(waiting)
			got <- err
		}()
		cancel(why)
		if err := <-got; !errors.Is(err, why) {
			r.Errorf("side %d: GetAsyncEvent whose context ends: %v, want %v", i, err, why)
		}
		s.sentinel() // and the wait has eaten nothing
	}
}

func eventSendOverrun(r *rig, a, _ *side) {
	src, dst := a.memory(64), r.sides[1].memory(64)
	scq := a.newCQ(4)
	if scq.Cap() > 60 {
		r.Logf("a queue of 4 holds %d: not overrun here", scq.Cap())
		return
	}
	l := r.link(ownCQs(0, scq, nil))
	for i := range scq.Cap() + 2 {
		l.send(write(uint64(i), dst, 0, src.sge(0, 8)))
	}
	equal(r, a.event(rdma.EventCQErr).CQ, scq, "the event is of")
}

// eventRecvOverrun: nobody polls; the event comes all the same, and so does
// that of the queue pair.
func eventRecvOverrun(r *rig, a, b *side) {
	src, dst := a.memory(64), b.memory(64)
	rcq := b.newCQ(4)
	l := r.link(ownCQs(1, nil, rcq))
	for i := range rcq.Cap() + 2 {
		l.recv(receive(uint64(i), dst.sge(0, 8)))
	}
	for i := range rcq.Cap() + 1 {
		l.send(unsignaled(send(uint64(i), src.sge(0, 8))))
	}
	equal(r, b.event(rdma.EventCQErr).CQ, rcq, "the event is of")
	equal(r, b.event(rdma.EventQPFatal).QP, l.qb, "the event is of")
}

// eventResponder: a request that the responder refuses completes nothing there;
// an event says what happened, though the program calls nothing but for it.
func eventResponder(r *rig) {
	for _, c := range []struct {
		name   string
		wr     func(src, dst Region) rdma.SendWR
		status rdma.WCStatus
		want   rdma.EventType
	}{
		{"key", func(src, dst Region) rdma.SendWR {
			wr := astray(write(1, dst, 0, src.sge(0, 8)))
			return wr
		}, rdma.WCRemAccessErr, rdma.EventQPAccessErr},
		{"range", func(src, dst Region) rdma.SendWR { return read(1, dst, 60, src.sge(0, 8)) }, rdma.WCRemAccessErr, rdma.EventQPAccessErr},
		{"misaligned", func(src, dst Region) rdma.SendWR { return fetchAdd(1, dst, 4, 1, src.sge(0, 8)) }, rdma.WCRemInvReqErr, rdma.EventQPReqErr},
	} {
		r.sub(c.name, pair(func(r *rig, a, b *side) {
			src, dst := a.memory(64), b.memory(64)
			l := r.link()
			l.send(c.wr(src, dst))
			equal(r, b.event(c.want).QP, l.qb, "the event is of")
			a.want(a.scq, 1, c.status)
			b.sentinel()
			a.sentinel() // the requester has its completion
		}))
	}
}

// eventNone: a receive that completes with the error says it all.
func eventNone(r *rig, a, b *side) {
	src, dst := a.memory(64), b.memory(64)
	l := r.link()
	l.recv(receive(1, dst.sge(0, 4)))
	l.fails(rdma.WCRemInvReqErr, send(2, src.sge(0, 8)))
	b.want(b.rcq, 1, rdma.WCLocLenErr)
	b.sentinel()
	a.sentinel()
}

// eventDrained: the event comes when nothing is under way, and only when it
// was asked for. What is posted meanwhile waits for RTS.
func eventDrained(r *rig, a, b *side) {
	src, dst := a.memory(64<<10), b.memory(64<<10)
	quiet := r.link()
	r.move(quiet.qa, rdma.StateSQD)
	l := r.link()
	for id := range uint64(8) {
		l.send(write(id, dst, 0, src.sge(0, 64<<10)))
	}
	drain(r, l.qa)
	l.send(write(8, dst, 0, src.sge(0, 8)))
	equal(r, a.event(rdma.EventSQDrained).QP, l.qa, "the event is of")
	equal(r, l.qa.State(), rdma.StateSQD, "the queue pair is in")
	r.move(l.qa, rdma.StateRTS)
	a.done(a.scq, ids(0, 9)...)
	a.sentinel()
}

func eventEstablished(r *rig, a, b *side) {
	src, dst := a.memory(64), b.memory(64)
	for name, wr := range map[string]rdma.SendWR{"send": send(1, src.sge(0, 8)), "write": write(1, dst, 0, src.sge(0, 8))} {
		r.sub(name, func(r *rig) {
			l := r.link(func(u *setup) { u.until[1] = rdma.StateRTR })
			l.recv(receive(1, dst.sge(0, 8)), receive(2, dst.sge(0, 8)))
			l.send(wr)
			a.done(a.scq, 1)
			equal(r, b.event(rdma.EventCommEst).QP, l.qb, "the event is of")
			l.send(wr) // once
			a.done(a.scq, 1)
			l.step(1, l.qb, defaults(), rdma.StateRTS)
			l.do(write(2, dst, 0, src.sge(0, 8)))
			b.sentinel()
		})
	}
}

func eventClosed(r *rig, s, _ *side) {
	l := r.connect(s, s)
	drain(r, l.qa)
	r.close(l.qa)
	s.sentinel()
}
