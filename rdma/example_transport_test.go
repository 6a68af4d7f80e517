package rdma_test

import (
	"fmt"
	"os"

	"github.com/gorun-mpi/gorun/rdma"
)

// A reliable connection writes into the peer's memory, reads out of it, and sends
// to where the peer has posted a receive. The peer's program does nothing for the
// first two.
func Example_rc() {
	l := open()
	defer l.close()
	a, b := l.pair(rdma.RC)
	mine, yours := l.memory(64, "written"), l.memory(64, "")

	post(a, write(piece(mine, 0, 7), yours, 0))
	finish(l.cq, 1)
	fmt.Println(text(yours))

	copy(yours.Bytes(), "to be read")
	post(a, rdma.SendWR{Opcode: rdma.WRRDMARead, Flags: signaled, SGL: []rdma.SGE{piece(mine, 0, 10)}, RemoteAddr: yours.Addr(), RKey: yours.RKey()})
	finish(l.cq, 1)
	fmt.Println(text(mine))

	receive(b, rdma.RecvWR{WRID: 7, SGL: []rdma.SGE{piece(yours, 16, 32)}})
	post(a, rdma.SendWR{Opcode: rdma.WRSendWithImm, ImmData: 42, SGL: []rdma.SGE{piece(mine, 0, 10)}})
	wc := next(l.cq) // the receive's: the send is not signaled
	fmt.Println(wc.WRID, wc.Status, wc.ByteLen, wc.ImmData)

	// A key that is nobody's fails the request, and with it the queue pair.
	post(a, rdma.SendWR{Opcode: rdma.WRRDMAWrite, SGL: []rdma.SGE{piece(mine, 0, 7)}, RemoteAddr: yours.Addr(), RKey: yours.RKey() + 1})
	fmt.Println(next(l.cq).Status, a.State() == rdma.StateErr)
	// Output:
	// written
	// to be read
	// 7 success 10 42
	// remote access error true
}

// An unreliable connection has writes and sends, and no answers: a message for
// which no receive is posted is lost, and its sender is told of success.
func Example_uc() {
	l := open()
	defer l.close()
	a, b := l.pair(rdma.UC)
	mine, yours := l.memory(64, "first second"), l.memory(64, "")
	send := func(offset, n int) rdma.SendWR {
		return rdma.SendWR{Opcode: rdma.WRSend, Flags: signaled, SGL: []rdma.SGE{piece(mine, offset, n)}}
	}
	post(a, send(0, 5))
	fmt.Println("sent:", next(l.cq).Status)
	receive(b, rdma.RecvWR{SGL: []rdma.SGE{piece(yours, 0, 64)}})
	post(a, send(6, 6))
	finish(l.cq, 2)
	fmt.Println("received:", text(yours))
	// Output:
	// sent: success
	// received: second
}

// A datagram goes to any queue pair whose address, number and key are known. In
// the receiver's buffer a header of 40 bytes comes first, which says who sent it.
func Example_ud() {
	l := open()
	defer l.close()
	a, b := l.queuePair(rdma.UD), l.queuePair(rdma.UD)
	l.connect(a, 0) // to nobody: each request has its own address
	l.connect(b, 0)
	mine, yours := l.memory(64, "hello"), l.memory(128, "")
	receive(b, rdma.RecvWR{SGL: []rdma.SGE{piece(yours, 0, 128)}})
	ah := own(l, must(l.pd.CreateAH(rdma.AV{DGID: l.gid, PortNum: 1, HopLimit: 1})))
	post(a, rdma.SendWR{Opcode: rdma.WRSend, SGL: []rdma.SGE{piece(mine, 0, 5)}, AH: ah, RemoteQPN: b.Num(), RemoteQKey: qkey})
	wc := next(l.cq)
	header := must(rdma.ParseGRH(yours.Bytes()))
	fmt.Println(wc.ByteLen-rdma.GRHLen, "bytes:", cstring(yours.Bytes()[rdma.GRHLen:]))
	fmt.Println("from the queue pair", wc.SrcQP == a.Num(), "of the port", header.SGID == l.gid)
	// Output:
	// 5 bytes: hello
	// from the queue pair true of the port true
}

// One connection serves all queues of a domain: the request names the queue, so p
// processes of a node need one connection to each other node, not p.
func Example_xrc() {
	l := open()
	defer l.close()
	domain := own(l, must(l.ctx.OpenXRCD(rdma.XRCDInitAttr{Flags: os.O_CREATE})))
	from := l.queuePair(rdma.XRCSend, func(init *rdma.QPInitAttr) { init.RecvCQ, init.Cap.MaxRecvWR, init.Cap.MaxRecvSGE = nil, 0, 0 })
	to := l.queuePair(rdma.XRCRecv, func(init *rdma.QPInitAttr) { *init = rdma.QPInitAttr{Type: rdma.XRCRecv, XRCD: domain} })
	l.connect(from, to.Num())
	l.connect(to, from.Num())
	mine, yours := l.memory(64, "hello"), l.memory(64, "")
	for i, who := range []string{"first", "second"} {
		cq := own(l, must(l.ctx.CreateCQ(8)))
		srq := own(l, must(l.pd.CreateSRQ(rdma.SRQInitAttr{Type: rdma.SRQXRC, XRCD: domain, CQ: cq, Attr: rdma.SRQAttr{MaxWR: 4, MaxSGE: 1}})))
		receive(srq, rdma.RecvWR{SGL: []rdma.SGE{piece(yours, 16*i, 16)}})
		post(from, rdma.SendWR{Opcode: rdma.WRSend, SGL: []rdma.SGE{piece(mine, 0, 5)}, SRQNum: srq.Num()})
		wc := next(cq)
		fmt.Println(who, "process:", cstring(yours.Bytes()[16*i:]), wc.QPNum == to.Num())
	}
	// Output:
	// first process: hello true
	// second process: hello true
}

// An initiator names a target in each request and connects to it by itself: one
// reaches any number of them. Each change costs a connection, so a pool keeps to
// the initiator that a target's last request went through.
func Example_dc() {
	l := open()
	defer l.close()
	const key = 0xfeed
	srq := own(l, must(l.pd.CreateSRQ(rdma.SRQInitAttr{Attr: rdma.SRQAttr{MaxWR: 8, MaxSGE: 1}})))
	ah := own(l, must(l.pd.CreateAH(rdma.AV{DGID: l.gid, PortNum: 1, HopLimit: 1})))
	var targets []rdma.DCTarget
	for range 3 {
		target := l.queuePair(rdma.DCT, func(init *rdma.QPInitAttr) { init.SRQ, init.DCAccessKey = srq, key })
		l.connect(target, 0)
		targets = append(targets, rdma.DCTarget{AH: ah, Num: target.Num(), Key: key})
	}
	a, b := l.queuePair(rdma.DCI), l.queuePair(rdma.DCI)
	l.connect(a, 0)
	l.connect(b, 0)
	pool := rdma.NewDCIPool(a, b)
	mine, yours := l.memory(64, "hello"), l.memory(64, "")
	for _, i := range []int{0, 1, 0, 1, 2, 1} {
		_, _, err := pool.PostSend(targets[i], []rdma.SendWR{write(piece(mine, 0, 5), yours, 8*i)})
		check(err)
		finish(l.cq, 1)
	}
	fmt.Printf("%.21q\n", yours.Bytes()[:21])
	fmt.Println("connections:", l.ctx.Counters().DCConnects)

	stranger := targets[0]
	stranger.Key++
	_, _, err := pool.PostSend(stranger, []rdma.SendWR{write(piece(mine, 0, 5), yours, 0)})
	check(err)
	fmt.Println("without the key:", next(l.cq).Status)
	// Output:
	// "hello\x00\x00\x00hello\x00\x00\x00hello"
	// connections: 3
	// without the key: remote access error
}

// Two queue pairs take their receives from one queue. When fewer than the limit
// are left there, an event says so, once.
func Example_srq() {
	l := open()
	defer l.close()
	srq := own(l, must(l.pd.CreateSRQ(rdma.SRQInitAttr{Attr: rdma.SRQAttr{MaxWR: 8, MaxSGE: 1}})))
	shared := func(init *rdma.QPInitAttr) { init.SRQ = srq }
	a1, b1 := l.pair(rdma.RC, shared)
	a2, b2 := l.pair(rdma.RC, shared)
	mine, yours := l.memory(64, "onetwo"), l.memory(64, "")
	for i := range 3 {
		receive(srq, rdma.RecvWR{WRID: uint64(i), SGL: []rdma.SGE{piece(yours, 16*i, 16)}})
	}
	check(srq.Modify(rdma.SRQAttr{Limit: 2}, rdma.SRQLimitMask))
	for i, from := range []rdma.QP{a1, a2} {
		post(from, rdma.SendWR{Opcode: rdma.WRSend, SGL: []rdma.SGE{piece(mine, 3*i, 3)}})
		wc := next(l.cq)
		fmt.Println("receive", wc.WRID, cstring(yours.Bytes()[16*wc.WRID:][:wc.ByteLen]), wc.QPNum == []rdma.QP{b1, b2}[i].Num())
	}
	event := must(l.ctx.GetAsyncEvent(background()))
	fmt.Println(event.Type, event.SRQ == srq, srq.Query().Limit)
	// Output:
	// receive 0 one true
	// receive 1 two true
	// SRQ limit reached true 0
}

// Fetch-and-add and compare-and-swap of 8 aligned bytes give back what was there.
func Example_atomics() {
	l := open()
	defer l.close()
	a, _ := l.pair(rdma.RC)
	old, counter := l.memory(8, ""), l.memory(8, "")
	counter.Bytes()[0] = 40
	for _, wr := range []rdma.SendWR{
		{Opcode: rdma.WRAtomicFetchAndAdd, CompareAdd: 2},
		{Opcode: rdma.WRAtomicCmpAndSwp, CompareAdd: 42, Swap: 7},
		{Opcode: rdma.WRAtomicCmpAndSwp, CompareAdd: 42, Swap: 8}, // it is 7
	} {
		wr.Flags, wr.SGL = signaled, []rdma.SGE{piece(old, 0, 8)}
		wr.RemoteAddr, wr.RKey = counter.Addr(), counter.RKey()
		post(a, wr)
		finish(l.cq, 1)
		fmt.Println("was", old.Bytes()[0], "is", counter.Bytes()[0])
	}
	// Output:
	// was 40 is 42
	// was 42 is 7
	// was 7 is 7
}

// An inline payload is copied by the post: no region is needed, and the buffer is
// free at once.
func Example_inlineSend() {
	l := open()
	defer l.close()
	a, _ := l.pair(rdma.RC)
	yours := l.memory(64, "")
	buffer := []byte("inline")
	post(a, rdma.SendWR{Opcode: rdma.WRRDMAWrite, Flags: signaled | rdma.SendInline, Inline: buffer, RemoteAddr: yours.Addr(), RKey: yours.RKey()})
	clear(buffer)
	finish(l.cq, 1)
	fmt.Println(text(yours))
	_, err := a.PostSend([]rdma.SendWR{{Opcode: rdma.WRSend, Flags: rdma.SendInline, Inline: make([]byte, 1<<20)}})
	fmt.Println("a megabyte:", err != nil)
	// Output:
	// inline
	// a megabyte: true
}

// A small message travels in its completion, and is in the receive's memory when
// that was polled, not before.
func Example_inlineRecv() {
	l := open()
	defer l.close()
	a, b := l.pair(rdma.RC, func(init *rdma.QPInitAttr) { init.Cap.MaxInlineRecv = 32 })
	mine, yours := l.memory(64, "small"), l.memory(64, "")
	receive(b, rdma.RecvWR{SGL: []rdma.SGE{piece(yours, 0, 64)}})
	post(a, rdma.SendWR{Opcode: rdma.WRSend, SGL: []rdma.SGE{piece(mine, 0, 5)}})
	fmt.Printf("before the poll %q\n", text(yours))
	finish(l.cq, 1)
	fmt.Printf("after the poll %q\n", text(yours))
	// Output:
	// before the poll ""
	// after the poll "small"
}

// A receive of eight strides takes many messages, each with a completion that says
// where it begins. What is left when the next message does not fit is passed by.
func Example_stridingRQ() {
	l := open()
	defer l.close()
	cq := own(l, must(l.ctx.CreateCQEx(rdma.CQInitAttr{CQE: 64}))) // deeper than the receive queue
	a, b := l.pair(rdma.RC, func(init *rdma.QPInitAttr) {
		init.RecvCQ, init.Striding = cq, rdma.StridingRQ{StrideBytes: 64, Strides: 8}
	})
	mine, yours := l.memory(1024, ""), l.memory(1024, "")
	receive(b, rdma.RecvWR{WRID: 1, SGL: []rdma.SGE{piece(yours, 0, 512)}}, rdma.RecvWR{WRID: 2, SGL: []rdma.SGE{piece(yours, 512, 512)}})
	for _, n := range []int{10, 100, 200, 100} { // 1, 2, 4 strides, and 2 where 1 is left
		post(a, rdma.SendWR{Opcode: rdma.WRSend, Flags: signaled, SGL: []rdma.SGE{piece(mine, 0, n)}})
		finish(l.cq, 1)
	}
	var wc [8]rdma.WCEx
	for _, c := range wc[:must(cq.PollEx(wc[:]))] {
		fmt.Println("receive", c.WRID, "offset", c.Offset, "bytes", c.ByteLen, "last", c.Flags&rdma.WCFlagLastStride != 0)
	}
	// Output:
	// receive 1 offset 0 bytes 10 last false
	// receive 1 offset 64 bytes 100 last false
	// receive 1 offset 192 bytes 200 last false
	// receive 1 offset 448 bytes 0 last true
	// receive 2 offset 0 bytes 100 last false
}

// A queue of tags has its messages sorted by the device: each goes to the memory of the
// earliest entry that its tag matches, whichever queue pair it comes in on. What is
// too long to be sent at once is announced, and the device reads it and tells the
// sender when it has.
func Example_tagMatching() {
	l := open()
	defer l.close()
	cq := own(l, must(l.ctx.CreateCQEx(rdma.CQInitAttr{CQE: 64})))
	srq := own(l, must(l.pd.CreateSRQ(rdma.SRQInitAttr{Type: rdma.SRQTagMatching, Attr: rdma.SRQAttr{MaxWR: 8, MaxSGE: 1}, CQ: cq, MaxTags: 8, MaxOps: 8})))
	ends := own(l, must(l.ctx.CreateCQ(8)))
	a := l.queuePair(rdma.RC, func(init *rdma.QPInitAttr) { init.RecvCQ = ends })
	b := l.queuePair(rdma.RC, func(init *rdma.QPInitAttr) { init.SRQ = srq })
	l.connect(a, b.Num())
	l.connect(b, a.Num())
	mine, yours := l.memory(256, ""), l.memory(256, "")

	must(srq.PostRecv([]rdma.RecvWR{{WRID: 100, SGL: []rdma.SGE{piece(yours, 128, 64)}}})) // for what no entry matches
	must(srq.PostOps([]rdma.OpsWR{
		{Opcode: rdma.OpAdd, RecvWRID: 1, Tag: 0x0100, Mask: 0xff00, SGL: []rdma.SGE{piece(yours, 0, 32)}}, // 0x01 and anything
		{Opcode: rdma.OpAdd, RecvWRID: 2, Tag: 0x0107, Mask: 0xffff, SGL: []rdma.SGE{piece(yours, 32, 32)}},
		{Opcode: rdma.OpAdd, RecvWRID: 3, Tag: 0x0300, Mask: 0xffff, SGL: []rdma.SGE{piece(yours, 64, 32)}},
	}))
	send := func(h rdma.TMH, rest string) {
		n := copy(mine.Bytes(), append(h.Append(nil), rest...))
		post(a, rdma.SendWR{Opcode: rdma.WRSend, Flags: signaled, SGL: []rdma.SGE{piece(mine, 0, n)}})
		finish(l.cq, 1)
	}
	send(rdma.TMH{Opcode: rdma.TMEager, Tag: 0x0107}, "the first that matches")
	send(rdma.TMH{Opcode: rdma.TMEager, Tag: 0x0107}, "the next")
	send(rdma.TMH{Opcode: rdma.TMEager, Tag: 0x0200}, "unexpected")

	copy(mine.Bytes()[128:], "announced, and read")
	receive(a, rdma.RecvWR{WRID: 7, SGL: []rdma.SGE{piece(mine, 192, 64)}})
	send(rdma.TMH{Opcode: rdma.TMRndv, Tag: 0x0300}, string(rdma.RVH{Addr: mine.Addr() + 128, RKey: mine.RKey(), Length: 19}.Append(nil)))
	end := next(ends) // the memory is the sender's again
	fmt.Println("receive", end.WRID, "ends a rendezvous:", rdma.ParseTMH(mine.Bytes()[192:]).Opcode == rdma.TMFin)

	for n := 0; n < 4; {
		var wc [1]rdma.WCEx
		if must(cq.PollEx(wc[:])) == 0 || wc[0].Flags&rdma.WCFlagTMMatch != 0 && wc[0].Flags&rdma.WCFlagTMDataValid == 0 {
			continue // a match ahead of its data
		}
		n++
		fmt.Printf("%d: tag %#04x, %d bytes, in place %v\n", wc[0].WRID, wc[0].TMTag, wc[0].ByteLen, wc[0].Flags&rdma.WCFlagTMDataValid != 0)
	}
	memory := yours.Bytes()
	fmt.Println(cstring(memory), cstring(memory[32:]), cstring(memory[128+rdma.TMHLen:]), cstring(memory[64:]))
	// Output:
	// receive 7 ends a rendezvous: true
	// 1: tag 0x0107, 22 bytes, in place true
	// 2: tag 0x0107, 8 bytes, in place true
	// 100: tag 0x0200, 26 bytes, in place false
	// 3: tag 0x0300, 19 bytes, in place true
	// the first that matches the next unexpected announced, and read
}
