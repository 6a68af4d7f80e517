package rdma_test

import (
	"context"
	"fmt"

	"github.com/gorun-mpi/gorun/rdma"
)

func background() context.Context { return context.Background() }

// With a completion channel a program waits instead of polling. It asks for an
// event, looks once more, and waits.
func Example_compChannel() {
	l := open()
	defer l.close()
	channel := own(l, must(l.ctx.CreateCompChannel()))
	cq := own(l, must(l.ctx.CreateCQEx(rdma.CQInitAttr{CQE: 16, Channel: channel})))
	a, b := l.pair(rdma.RC, func(init *rdma.QPInitAttr) { init.RecvCQ = cq })
	mine, yours := l.memory(64, "wake up"), l.memory(64, "")
	receive(b, rdma.RecvWR{SGL: []rdma.SGE{piece(yours, 0, 64)}})

	check(cq.ReqNotify(false))
	var wc [1]rdma.WC
	fmt.Println("before:", must(cq.Poll(wc[:])))
	post(a, rdma.SendWR{Opcode: rdma.WRSend, SGL: []rdma.SGE{piece(mine, 0, 7)}})
	which := must(channel.Get(background()))
	fmt.Println("after:", must(which.Poll(wc[:])), text(yours))
	// Output:
	// before: 0
	// after: 1 wake up
}

// What happens to an object beside any request is an event. Here a queue pair is
// drained: it holds new requests back, and says when the old ones are complete.
func Example_asyncEvents() {
	l := open()
	defer l.close()
	a, _ := l.pair(rdma.RC)
	check(a.Modify(rdma.QPAttr{State: rdma.StateSQD, SQDAsyncNotify: true}, rdma.QPStateMask|rdma.QPSQDAsyncNotifyMask))
	event := must(l.ctx.GetAsyncEvent(background()))
	fmt.Println(event.Type, event.QP == a)
	// Output:
	// send queue drained true
}

// An extended completion has the device's time.
func Example_extendedCQ() {
	l := open()
	defer l.close()
	cq := own(l, must(l.ctx.CreateCQEx(rdma.CQInitAttr{CQE: 16, Timestamps: true})))
	a, _ := l.pair(rdma.RC, func(init *rdma.QPInitAttr) { init.SendCQ = cq })
	mine, yours := l.memory(64, "x"), l.memory(64, "")
	var times []uint64
	for range 2 {
		post(a, write(piece(mine, 0, 1), yours, 0))
		var wc [1]rdma.WCEx
		for must(cq.PollEx(wc[:])) == 0 {
		}
		times = append(times, wc[0].Timestamp)
	}
	fmt.Println(times[0] > 0, times[1] >= times[0], l.ctx.QueryDevice().ClockHz)
	// Output:
	// true true 1000000000
}

// What posting costs on a device's bus: eight writes posted one by one ring eight
// doorbells; in a batch one, and the entries come in two fetches. A small inline
// write comes with its doorbell: nothing is fetched at all.
func Example_doorbellCounts() {
	l := open()
	defer l.close()
	a, _ := l.pair(rdma.RC)
	mine, yours := l.memory(64, "x"), l.memory(64, "")
	count := func(what string, posts func()) {
		before := l.ctx.Counters()
		posts()
		after := l.ctx.Counters()
		fmt.Printf("%-10s %d doorbells, %d fetches of entries, %d direct, %d reads of payload\n", what,
			after.Doorbells-before.Doorbells, after.WQEFetches-before.WQEFetches, after.DirectWQEs-before.DirectWQEs, after.DMAReads-before.DMAReads)
		finish(l.cq, 8)
	}
	one := write(piece(mine, 0, 8), yours, 0)
	batch := []rdma.SendWR{one, one, one, one, one, one, one, one}
	inline := rdma.SendWR{Opcode: rdma.WRRDMAWrite, Flags: signaled | rdma.SendInline, Inline: []byte("12345678"), RemoteAddr: yours.Addr(), RKey: yours.RKey()}
	count("one by one", func() {
		for range 8 {
			post(a, one)
		}
	})
	count("a batch", func() { post(a, batch...) })
	count("inline", func() {
		for range 8 {
			post(a, inline)
		}
	})
	// Output:
	// one by one 8 doorbells, 8 fetches of entries, 0 direct, 8 reads of payload
	// a batch    1 doorbells, 2 fetches of entries, 0 direct, 8 reads of payload
	// inline     8 doorbells, 0 fetches of entries, 8 direct, 0 reads of payload
}
