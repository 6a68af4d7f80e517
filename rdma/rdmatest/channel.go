package rdmatest

import (
	"context"
	"errors"

	"github.com/gorun-mpi/gorun/rdma"
)

func channelCases() []testCase {
	return append(needing([]testCase{
		{name: "channel/event_with_the_next_completion", nodes: 2, run: pair(channelNext)},
		{name: "channel/one_event_for_a_request", nodes: 2, run: channelOnce},
		{name: "channel/solicited_only", nodes: 2, run: channelSolicited},
		{name: "channel/failed_completions_are_solicited", nodes: 2, run: channelFailed},
		{name: "channel/what_is_there_counts_for_nothing", nodes: 2, run: channelStale},
		{name: "channel/says_which_queue", nodes: 2, run: channelWhich},
		{name: "channel/wait_ends_with_its_context_and_with_close", nodes: 2, run: channelEnds},
		{name: "channel/close_in_use_is_EBUSY", nodes: 1, run: single(channelBusy)},
		{name: "channel/no_wake_up_is_lost", nodes: 2, run: channelPingPong},
	}, rdma.FeatureCompChannel), append(needing([]testCase{
		{name: "cq_ex/timestamps_in_order", nodes: 2, run: pair(cqExTimestamps)},
		{name: "cq_ex/fields_as_with_poll", nodes: 2, run: pair(cqExFields)},
	}, rdma.FeatureExtendedCQ), testCase{name: "cq/resize", nodes: 2, run: pair(cqResize), when: func(f Fabric) bool { return !f.Inexact }})...)
}

func (s *side) newChannel() rdma.CompChannel {
	s.r.Helper()
	return result(s.ctx.CreateCompChannel()).owned(s.r, "CreateCompChannel")
}

func (s *side) newCQEx(attr rdma.CQInitAttr) rdma.CQ {
	s.r.Helper()
	return result(s.ctx.CreateCQEx(attr)).owned(s.r, "CreateCQEx(%+v)", attr)
}

// notify asks for an event.
func (r *rig) notify(cq rdma.CQ, solicitedOnly bool) {
	r.Helper()
	r.must(cq.ReqNotify(solicitedOnly), "ReqNotify(%v)", solicitedOnly)
}

// get waits for the next event of the channel, which must be for want.
func (r *rig) get(ch rdma.CompChannel, want rdma.CQ) {
	r.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), r.f.Patience)
	defer cancel()
	cq := result(ch.Get(ctx)).must(r, "Get")
	if cq != want {
		r.Fatalf("the event is for another queue")
	}
}

// A bell is a link whose messages notify side 1, on a queue of its own.
type bell struct {
	*link
	cq  rdma.CQ
	src Region
	dst Region
	id  uint64
}

func (r *rig) bell(ch rdma.CompChannel) *bell {
	r.Helper()
	a, b := r.sides[0], r.sides[1]
	x := &bell{cq: b.newCQEx(rdma.CQInitAttr{CQE: 64, Channel: ch}), src: a.memory(64), dst: b.memory(64)}
	x.link = r.link(ownCQs(1, nil, x.cq))
	return x
}

// ring sends a message and waits until it is sent.
func (x *bell) ring(flags rdma.SendFlags) {
	x.r.Helper()
	x.id++
	x.recv(receive(x.id, x.dst.sge(0, 8)))
	wr := send(x.id, x.src.sge(0, 8))
	wr.Flags |= flags
	x.send(wr)
	x.a.done(x.a.scq, x.id)
}

func (x *bell) took(n uint64) {
	x.r.Helper()
	for id := x.id - n + 1; id <= x.id; id++ {
		x.b.done(x.cq, id)
	}
}

func channelNext(r *rig, a, b *side) {
	ch := b.newChannel()
	x := r.bell(ch)
	for range 5 {
		r.notify(x.cq, false)
		x.ring(0)
		r.get(ch, x.cq)
		x.took(1)
	}
	// A completion of the program's own does it too.
	mine := a.newChannel()
	scq := a.newCQEx(rdma.CQInitAttr{CQE: 8, Channel: mine})
	l := r.link(ownCQs(0, scq, nil))
	r.notify(scq, false)
	l.send(write(1, x.dst, 0, x.src.sge(0, 8)))
	r.get(mine, scq)
	a.done(scq, 1)
}

// channelOnce: the second completion behind a request makes no event.
func channelOnce(r *rig) {
	ch := r.sides[1].newChannel()
	x, y := r.bell(ch), r.bell(ch)
	r.notify(x.cq, false)
	x.ring(0)
	x.ring(0)
	r.get(ch, x.cq)
	x.took(2)
	x.ring(0)
	x.took(1)
	r.notify(y.cq, false)
	y.ring(0)
	r.get(ch, y.cq)
	y.took(1)
}

func channelSolicited(r *rig) {
	ch := r.sides[1].newChannel()
	x, y := r.bell(ch), r.bell(ch)
	r.notify(x.cq, true)
	x.ring(0)
	x.ring(0)
	x.took(2)
	r.notify(y.cq, true)
	y.ring(rdma.SendSolicited)
	r.get(ch, y.cq) // x's messages have made none
	y.took(1)
	x.ring(rdma.SendSolicited)
	r.get(ch, x.cq)
	x.took(1)
	// Of both requests the wider one counts.
	r.notify(x.cq, true)
	r.notify(x.cq, false)
	r.notify(x.cq, true)
	x.ring(0)
	r.get(ch, x.cq)
	x.took(1)
}

func channelFailed(r *rig) {
	ch := r.sides[1].newChannel()
	x := r.bell(ch)
	x.recv(receive(1, x.dst.sge(0, 8)))
	r.notify(x.cq, true)
	r.move(x.qb, rdma.StateErr)
	r.get(ch, x.cq)
	x.b.want(x.cq, 1, rdma.WCWRFlushErr)
}

// channelStale: a completion that came before the request makes no event,
// though nobody has polled it.
func channelStale(r *rig) {
	ch := r.sides[1].newChannel()
	x, y := r.bell(ch), r.bell(ch)
	x.ring(0)
	r.notify(x.cq, false)
	r.notify(y.cq, false)
	y.ring(0)
	r.get(ch, y.cq)
	y.took(1)
	x.took(1)
	x.ring(0)
	r.get(ch, x.cq)
	x.took(1)
}

func channelWhich(r *rig) {
	ch, other := r.sides[1].newChannel(), r.sides[1].newChannel()
	x, y, z := r.bell(ch), r.bell(ch), r.bell(other)
	for _, b := range []*bell{z, y, x, y, z, z, x} {
		r.notify(b.cq, false)
		b.ring(0)
		if b == z {
			r.get(other, b.cq)
		} else {
			r.get(ch, b.cq)
		}
		b.took(1)
	}
}

func channelEnds(r *rig) {
	for _, s := range r.sides {
		ch := s.newChannel()
		why := errors.New("nobody wants to know")
		waiting, cancel := context.WithCancelCause(context.Background())
		got := make(chan error, 1)
		wait := func(ctx context.Context) {
			_, err := ch.Get(ctx)
			got <- err
		}
		go wait(waiting)
		cancel(why)
		r.wantErr("Get whose context ends", <-got, why)
		go wait(context.Background())
		r.close(ch)
		if err := <-got; err == nil {
			r.Error("Get of a channel that is closed: no error")
		}
	}
}

func channelBusy(r *rig, s *side) {
	ch := s.newChannel()
	cq := s.newCQEx(rdma.CQInitAttr{CQE: 4, Channel: ch})
	r.wantErr("closing a channel with a queue", ch.Close(), rdma.ErrBusy)
	r.wantErr("ReqNotify without a channel", s.scq.ReqNotify(false), rdma.ErrInvalid)
	r.close(cq, ch)
}

// channelPingPong hands one message to and fro between programs that sleep in
// Get whenever there is nothing.
func channelPingPong(r *rig) {
	rounds := unlessBrief[uint64](r, 600, 60)
	var ends [2]struct {
		ch rdma.CompChannel
		cq rdma.CQ
		m  Region
	}
	for i := range ends {
		e, s := &ends[i], r.sides[i]
		e.ch = s.newChannel()
		e.cq, e.m = s.newCQEx(rdma.CQInitAttr{CQE: 64, Channel: e.ch}), s.memory(64)
	}
	l := r.link(func(u *setup) {
		u.init = func(i int, a *rdma.QPInitAttr) { a.RecvCQ = ends[i].cq }
	})
	failed := make(chan error, 2)
	play := func(i int, qp rdma.QP) error {
		e := &ends[i]
		ctx, cancel := context.WithTimeout(context.Background(), 4*r.f.Patience)
		defer cancel()
		var wc [1]rdma.WC
		send := []rdma.SendWR{unsignaled(send(1, e.m.sge(0, 8)))}
		for n := range rounds {
			// One in sixteen is signaled, so that the send queue is emptied.
			send[0].Flags = 0
			if n%16 == 15 {
				send[0].Flags = rdma.SendSignaled
				for k, err := r.sides[i].scq.Poll(wc[:]); k > 0 || err != nil; k, err = r.sides[i].scq.Poll(wc[:]) {
					if err != nil {
						return err
					}
				}
			}
			if i == 0 {
				if _, err := qp.PostSend(send); err != nil {
					return err
				}
			}
			for {
				k, err := e.cq.Poll(wc[:])
				if err == nil && k == 0 {
					if err = e.cq.ReqNotify(false); err == nil {
						k, err = e.cq.Poll(wc[:])
					}
				}
				if err != nil {
					return err
				}
				if k == 1 {
					break
				}
				if _, err := e.ch.Get(ctx); err != nil {
					return err
				}
			}
			if wc[0].Status != rdma.WCSuccess {
				return wc[0].Status
			}
			if _, err := qp.PostRecv([]rdma.RecvWR{receive(n, e.m.sge(8, 8))}); err != nil {
				return err
			}
			if i == 1 {
				if _, err := qp.PostSend(send); err != nil {
					return err
				}
			}
		}
		return nil
	}
	for i, qp := range []rdma.QP{l.qa, l.qb} {
		for id := range uint64(2) {
			postRecv(r, qp, receive(id, ends[i].m.sge(8, 8)))
		}
	}
	for i, qp := range []rdma.QP{l.qa, l.qb} {
		go func() { failed <- play(i, qp) }()
	}
	for range 2 {
		r.must(<-failed, "ping-pong")
	}
}

func cqExTimestamps(r *rig, a, b *side) {
	src, dst := a.memory(64), b.memory(64)
	if b.ctx.QueryDevice().ClockHz == 0 {
		r.Log("this device has no clock")
		return
	}
	cq := b.newCQEx(rdma.CQInitAttr{CQE: 64, Timestamps: true})
	l := r.link(ownCQs(1, cq, cq))
	last := uint64(0)
	for id := range uint64(20) {
		if id%2 == 0 {
			l.recv(receive(id, dst.sge(0, 8)))
			l.do(send(id, src.sge(0, 8)))
		} else {
			post(r, l.qb, write(id, src, 0, dst.sge(0, 8)))
		}
		var wc [4]rdma.WCEx
		r.until("a completion", func() bool {
			n, err := cq.PollEx(wc[:])
			if err != nil || n > 1 {
				r.Fatalf("PollEx: %d, %v", n, err)
			}
			return n == 1
		})
		if wc[0].WRID != id || wc[0].Status != rdma.WCSuccess || wc[0].Timestamp == 0 || wc[0].Timestamp < last {
			r.Fatalf("completion %d at %d, after one at %d: %+v", id, wc[0].Timestamp, last, wc[0])
		}
		last = wc[0].Timestamp
	}
}

func cqExFields(r *rig, a, b *side) {
	src, dst := a.memory(64), b.memory(64)
	cq := b.newCQEx(rdma.CQInitAttr{CQE: 16})
	l := r.link(ownCQs(1, nil, cq))
	l.recv(receive(1, dst.sge(0, 64)), receive(2, dst.sge(0, 64)))
	l.do(sendImm(1, 5, src.sge(0, 24)), sendImm(2, 6, src.sge(0, 23)))
	first := b.done(cq, 1)
	var wc [1]rdma.WCEx
	r.until("a completion", func() bool {
		n := result(cq.PollEx(wc[:])).must(r, "PollEx")
		return n == 1
	})
	first.WRID, first.ImmData, first.ByteLen = 2, 6, 23
	equal(r, wc[0].WC, first, "PollEx gave")
	if n, err := cq.PollEx(wc[:]); n != 0 || err != nil {
		r.Errorf("PollEx of an empty queue: %d, %v", n, err)
	}
}

// cqResize: fewer than are outstanding is refused, more is more.
func cqResize(r *rig, a, _ *side) {
	src, dst := a.memory(64), r.sides[1].memory(64)
	scq := a.newCQ(4)
	l := r.link(ownCQs(0, scq, nil))
	r.must(scq.Resize(32), "Resize to 32")
	if scq.Cap() < 32 {
		r.Fatalf("resized to 32, it holds %d", scq.Cap())
	}
	before := a.ctx.Counters().Writes
	for id := range uint64(20) {
		l.send(write(id, dst, 0, src.sge(0, 8)))
	}
	r.until("20 writes", func() bool { return a.ctx.Counters().Writes-before >= 20 })
	r.wantErr("Resize to fewer than are outstanding", scq.Resize(19), rdma.ErrInvalid)
	r.wantErr("Resize to nothing", scq.Resize(0), rdma.ErrInvalid)
	r.must(scq.Resize(20), "Resize to what is outstanding")
	a.done(scq, ids(0, 20)...)
	a.none(scq)
}
