package soft

import (
	"fmt"
	"testing"

	"github.com/gorun-mpi/gorun/internal/arch"
	"github.com/gorun-mpi/gorun/rdma"
)

func TestHotPathAllocatesNothing(t *testing.T) {
	n := nodes(t, 2, Config{})
	a, b := n[0], n[1]
	qa, qb := pair(t, a, b, attrs())
	src, dst := a.alloc(4096, all), b.alloc(4096, all)
	ordinary := b.reg(make([]byte, 4096), all)
	wc := make([]rdma.WC, 4)
	word := make([]byte, 8)
	// Through an interface a slice escapes, so callers keep theirs.
	write := []rdma.SendWR{{Flags: rdma.SendSignaled, SGL: []rdma.SGE{sge(src, 0, 64)}, RemoteAddr: dst.Addr(), RKey: dst.RKey()}}
	other := []rdma.SendWR{{Flags: rdma.SendSignaled, SGL: []rdma.SGE{sge(src, 0, 64)}, RemoteAddr: ordinary.Addr(), RKey: ordinary.RKey()}}
	send := []rdma.SendWR{{Opcode: rdma.WRSend, Flags: rdma.SendSignaled, SGL: []rdma.SGE{sge(src, 0, 64)}}}
	recv := []rdma.RecvWR{{SGL: []rdma.SGE{sge(dst, 0, 64)}}}
	shared, toShared := a.intoSRQ(b)
	toDatagrams, datagrams := a.datagrams(b)
	room := b.alloc(256, all)
	recvGRH := []rdma.RecvWR{{SGL: []rdma.SGE{sge(room, 0, 256)}}}
	datagram := []rdma.SendWR{{Opcode: rdma.WRSend, Flags: rdma.SendSignaled, SGL: []rdma.SGE{sge(src, 0, 64)},
		AH: must[rdma.AH](t)(a.pd.CreateAH(rdma.AV{DGID: b.p.gids[0], PortNum: 1})), RemoteQPN: datagrams.num, RemoteQKey: 7}}
	defer datagram[0].AH.Close()
	near, far := n[0].laid(qa, src), n[1].laid(qb, dst)
	laid := []rdma.SendWR{{Flags: rdma.SendSignaled, SGL: []rdma.SGE{{Length: 1024, LKey: near}}, RKey: far}}
	for _, c := range []struct {
		name string
		do   func()
	}{
		{"layout to layout", func() {
			post(t, qa, laid...)
			if k, _ := a.cq.Poll(wc); k != 1 || wc[0].Status != rdma.WCSuccess {
				t.Fatal(wc[0])
			}
		}},
		{"write and poll", func() {
			post(t, qa, write...)
			if k, _ := a.cq.Poll(wc); k != 1 {
				t.Fatal("no completion")
			}
		}},
		{"inline batch", func() {
			wrs := [2]rdma.SendWR{
				{Flags: rdma.SendInline, Inline: word, RemoteAddr: dst.Addr(), RKey: dst.RKey()},
				{Flags: rdma.SendInline | rdma.SendSignaled, Inline: word, RemoteAddr: dst.Addr() + 8, RKey: dst.RKey()}}
			if k, err := qa.PostSend(wrs[:]); k != 2 {
				t.Fatal(err)
			}
			a.cq.Poll(wc)
		}},
		{"ordinary memory", func() {
			post(t, qa, other...)
			a.cq.Poll(wc)
		}},
		{"send and receive", func() {
			postRecv(t, qb, recv...)
			post(t, qa, send...)
			k, _ := a.cq.Poll(wc)
			if j, _ := b.cq.Poll(wc); k != 1 || j != 1 {
				t.Fatal("no completion")
			}
		}},
		{"send to a shared queue", func() {
			if _, err := shared.PostRecv(recv); err != nil {
				t.Fatal(err)
			}
			post(t, toShared, send...)
			k, _ := a.cq.Poll(wc)
			if j, _ := b.cq.Poll(wc); k != 1 || j != 1 {
				t.Fatal("no completion")
			}
		}},
		{"datagram", func() {
			postRecv(t, datagrams, recvGRH...)
			post(t, toDatagrams, datagram...)
			k, _ := a.cq.Poll(wc)
			if j, _ := b.cq.Poll(wc); k != 1 || j != 1 {
				t.Fatal("no completion")
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := testing.AllocsPerRun(200, c.do); got != 0 {
				t.Errorf("%v allocations, want 0", got)
			}
		})
	}
}

// laid makes a key for every other 8 bytes of a region.
func (n *node) laid(q *queuePair, mr rdma.MR) uint32 {
	n.t.Helper()
	k := must[rdma.Mkey](n.t)(n.pd.CreateMkey(1))
	blocks := uint32(mr.Len() / 16)
	post(n.t, q, rdma.SendWR{Opcode: rdma.WRRegMkey, Flags: rdma.SendSignaled, Mkey: k,
		Layout: &rdma.MkeyLayout{Access: all, Repeat: blocks, Interleaved: []rdma.MkeyPiece{{Addr: mr.Addr(), Count: 8, Skip: 8, LKey: mr.LKey()}}}})
	if got := n.poll(1)[0]; got.Status != rdma.WCSuccess {
		n.t.Fatalf("set a layout: %v", got.Status)
	}
	return k.RKey()
}

// BenchmarkLayout moves blocks of 64 bytes out of every second cache line.
func BenchmarkLayout(b *testing.B) {
	const blocks = 1024
	n := nodes(b, 2, Config{})
	qa, qb := pair(b, n[0], n[1], attrs())
	src, dst := n[0].alloc(128*blocks, all), n[1].alloc(128*blocks, all)
	key := func(n *node, q *queuePair, mr rdma.MR) uint32 {
		k := must[rdma.Mkey](b)(n.pd.CreateMkey(1))
		post(b, q, rdma.SendWR{Opcode: rdma.WRRegMkey, Flags: rdma.SendSignaled, Mkey: k,
			Layout: &rdma.MkeyLayout{Access: all, Repeat: blocks, Interleaved: []rdma.MkeyPiece{{Addr: mr.Addr(), Count: 64, Skip: 64, LKey: mr.LKey()}}}})
		n.poll(1)
		return k.RKey()
	}
	near, far := key(n[0], qa, src), key(n[1], qb, dst)
	wc := make([]rdma.WC, 1)
	for name, wr := range map[string]rdma.SendWR{
		"strided to flat":    {SGL: []rdma.SGE{{Length: 64 * blocks, LKey: near}}, RemoteAddr: dst.Addr(), RKey: dst.RKey()},
		"flat to strided":    {SGL: []rdma.SGE{sge(src, 0, 64*blocks)}, RKey: far},
		"strided to strided": {SGL: []rdma.SGE{{Length: 64 * blocks, LKey: near}}, RKey: far},
	} {
		b.Run(name, func(b *testing.B) {
			wr.Flags = rdma.SendSignaled
			wrs := []rdma.SendWR{wr}
			b.SetBytes(64 * blocks)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := qa.PostSend(wrs); err != nil {
					b.Fatal(err)
				}
				if k, _ := n[0].cq.Poll(wc); k != 1 || wc[0].Status != rdma.WCSuccess {
					b.Fatal(wc[0])
				}
			}
		})
	}
}

func benchmarkWrite(b *testing.B, size int, where string) {
	n := nodes(b, 2, Config{})
	qa, _ := pair(b, n[0], n[1], attrs())
	if !arch.RaceEnabled && !arch.RegisterMembarrier() {
		b.Log("no membarrier: marks are full-barrier stores")
	}
	n[0].p.checkQuiet()
	src := n[0].alloc(size, all)
	dst := memories(n[1], size)[where]
	wrs := []rdma.SendWR{{SGL: []rdma.SGE{sge(src, 0, size)}, RemoteAddr: dst.Addr(), RKey: dst.RKey()}}
	wc := make([]rdma.WC, 4)
	b.SetBytes(int64(size))
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		wrs[0].Flags = 0
		if i++; i%32 == 0 {
			wrs[0].Flags = rdma.SendSignaled
		}
		if _, err := qa.PostSend(wrs); err != nil {
			b.Fatal(err)
		}
		if i%32 == 0 {
			n[0].cq.Poll(wc)
		}
	}
}

func BenchmarkWrite(b *testing.B) {
	b.Run("8B segment", func(b *testing.B) { benchmarkWrite(b, 8, "segment") })
	b.Run("8B ordinary same process", func(b *testing.B) { benchmarkWrite(b, 8, "ordinary") })
	b.Run("64KiB segment", func(b *testing.B) { benchmarkWrite(b, 64<<10, "segment") })
	b.Run("64KiB memcpy", func(b *testing.B) {
		src, dst := make([]byte, 64<<10), make([]byte, 64<<10)
		b.SetBytes(64 << 10)
		for b.Loop() {
			copy(dst, src)
		}
	})
}

func BenchmarkInlineWriteBatchOfTwo(b *testing.B) {
	n := nodes(b, 2, Config{})
	qa, _ := pair(b, n[0], n[1], attrs())
	arch.RegisterMembarrier()
	n[0].p.checkQuiet()
	dst := n[1].alloc(4096, all)
	word := make([]byte, 8)
	wrs := []rdma.SendWR{
		{Flags: rdma.SendInline, Inline: word, RemoteAddr: dst.Addr(), RKey: dst.RKey()},
		{Flags: rdma.SendInline, Inline: word, RemoteAddr: dst.Addr() + 64, RKey: dst.RKey()}}
	wc := make([]rdma.WC, 4)
	i := 0
	for b.Loop() {
		wrs[1].Flags = rdma.SendInline
		if i++; i%16 == 0 {
			wrs[1].Flags |= rdma.SendSignaled
		}
		if _, err := qa.PostSend(wrs); err != nil {
			b.Fatal(err)
		}
		if i%16 == 0 {
			n[0].cq.Poll(wc)
		}
	}
}

func BenchmarkEmptyPoll(b *testing.B) {
	n := nodes(b, 1, Config{})
	wc := make([]rdma.WC, 4)
	var cq rdma.CQ = n[0].cq
	for b.Loop() {
		cq.Poll(wc)
	}
}

func BenchmarkSendRecv8B(b *testing.B) {
	n := nodes(b, 2, Config{})
	qa, qb := pair(b, n[0], n[1], attrs())
	arch.RegisterMembarrier()
	n[0].p.checkQuiet()
	src, dst := n[0].alloc(8, all), n[1].alloc(8, all)
	send := []rdma.SendWR{{Opcode: rdma.WRSend, Flags: rdma.SendSignaled, SGL: []rdma.SGE{sge(src, 0, 8)}}}
	recv := []rdma.RecvWR{{SGL: []rdma.SGE{sge(dst, 0, 8)}}}
	wc := make([]rdma.WC, 4)
	b.ReportAllocs()
	for b.Loop() {
		qb.PostRecv(recv)
		if _, err := qa.PostSend(send); err != nil {
			b.Fatal(err)
		}
		n[0].cq.Poll(wc)
		n[1].cq.Poll(wc)
	}
}

func BenchmarkRegMR(b *testing.B) {
	n := nodes(b, 2, Config{})
	for _, size := range []int{4 << 10, 16 << 20} {
		mem := make([]byte, size)
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				mr, err := n[0].pd.RegMR(mem, all)
				if err != nil {
					b.Fatal(err)
				}
				if err := mr.Close(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
