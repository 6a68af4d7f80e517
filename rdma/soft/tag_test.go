package soft_test

import (
	"fmt"
	"testing"

	"github.com/gorun-mpi/gorun/rdma"
	"github.com/gorun-mpi/gorun/rdma/soft"
)

// BenchmarkTags is a message of 8 bytes that finds its entry behind others that it
// does not match: the send, the poll of its completion, and the entry added anew.
func BenchmarkTags(b *testing.B) {
	for _, behind := range []int{0, 15, 127, 1023} {
		b.Run(fmt.Sprint(behind), func(b *testing.B) {
			t := newTagPair(b, behind+1)
			for i := range behind {
				t.add(b, 1<<40+uint64(i), 0)
			}
			t.add(b, 7, 0)
			b.ReportAllocs()
			for b.Loop() {
				t.send(b, 7)
				if wc := t.wait(b); wc.Opcode != rdma.WCTMRecv || wc.Flags&rdma.WCFlagTMDataValid == 0 {
					b.Fatalf("completion %+v", wc)
				}
				t.add(b, 7, 0)
			}
		})
	}
}

// A message that matches allocates nothing, nor does a rendezvous, and neither does
// an entry.
func TestTagAllocs(t *testing.T) {
	p := newTagPair(t, 8)
	p.add(t, 7, 0)
	round := func() {
		p.send(t, 7)
		p.wait(t)
		p.add(t, 7, 0)
	}
	round()
	if n := testing.AllocsPerRun(200, round); n != 0 {
		t.Errorf("an eager message: %v allocations", n)
	}
	head := rdma.RVH{Addr: p.mine.Addr(), RKey: p.mine.RKey(), Length: 64}.Append(rdma.TMH{Opcode: rdma.TMRndv, Tag: 7}.Append(nil))
	copy(p.mine.Bytes()[128:], head)
	recv := []rdma.RecvWR{{SGL: []rdma.SGE{{Addr: p.mine.Addr() + 256, Length: 64, LKey: p.mine.LKey()}}}}
	request := []rdma.SendWR{{Opcode: rdma.WRSend, Flags: rdma.SendSignaled, SGL: []rdma.SGE{{Addr: p.mine.Addr() + 128, Length: uint32(len(head)), LKey: p.mine.LKey()}}}}
	var wc [1]rdma.WC
	announced := func() {
		if _, err := p.a.PostRecv(recv); err != nil {
			t.Fatal(err)
		}
		if _, err := p.a.PostSend(request); err != nil {
			t.Fatal(err)
		}
		for p.wait(t).Flags&rdma.WCFlagTMDataValid == 0 {
		}
		for k := 0; k < 2; { // the request and its end
			n, err := p.cq.Poll(wc[:])
			if err != nil {
				t.Fatal(err)
			}
			k += n
		}
		p.add(t, 7, 0)
	}
	announced()
	if n := testing.AllocsPerRun(200, announced); n != 0 {
		t.Errorf("a rendezvous: %v allocations", n)
	}
}

// A tagPair is two queue pairs of one context, of which the second takes what it
// receives from a queue with tags.
type tagPair struct {
	a, b        rdma.QP
	cq, tagCQ   rdma.CQ
	srq         rdma.SRQ
	mine, other rdma.MR
	op          []rdma.OpsWR
	wr          []rdma.SendWR
	wcs         [1]rdma.WCEx
	sent        [1]rdma.WC
}

func newTagPair(t testing.TB, tags int) *tagPair {
	t.Helper()
	ctx := opened(t, soft.Config{})
	p := &tagPair{}
	var err error
	made := func(what string) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	closes := func(c interface{ Close() error }) {
		t.Cleanup(func() {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	pd, err := ctx.AllocPD()
	made("AllocPD")
	closes(pd)
	p.cq, err = ctx.CreateCQ(64)
	made("CreateCQ")
	closes(p.cq)
	p.tagCQ, err = ctx.CreateCQEx(rdma.CQInitAttr{CQE: 4096})
	made("CreateCQEx")
	closes(p.tagCQ)
	const all = rdma.AccessLocalWrite | rdma.AccessRemoteRead | rdma.AccessRemoteWrite
	p.mine, err = pd.AllocMR(4096, all)
	made("AllocMR")
	closes(p.mine)
	p.other, err = pd.AllocMR(4096, all)
	made("AllocMR")
	closes(p.other)
	p.srq, err = pd.CreateSRQ(rdma.SRQInitAttr{Type: rdma.SRQTagMatching, Attr: rdma.SRQAttr{MaxWR: 16, MaxSGE: 1}, CQ: p.tagCQ, MaxTags: tags, MaxOps: 2 * tags})
	made("CreateSRQ")
	closes(p.srq)
	init := rdma.QPInitAttr{Type: rdma.RC, SendCQ: p.cq, RecvCQ: p.cq, Cap: rdma.QPCap{MaxSendWR: 16, MaxSendSGE: 2, MaxRecvWR: 16, MaxRecvSGE: 1}}
	p.a, err = pd.CreateQP(init)
	made("CreateQP")
	closes(p.a)
	init.SRQ = p.srq
	p.b, err = pd.CreateQP(init)
	made("CreateQP")
	closes(p.b)
	gid, err := ctx.QueryGID(1, 0)
	made("QueryGID")
	for _, q := range [2][2]rdma.QP{{p.a, p.b}, {p.b, p.a}} {
		attr := rdma.QPAttr{PortNum: 1, AccessFlags: all, AV: rdma.AV{DGID: gid, PortNum: 1}, PathMTU: rdma.MTU1024, DestQPNum: q[1].Num(),
			MaxDestRdAtomic: 4, MaxRdAtomic: 4, MinRNRTimer: 1, Timeout: 14, RetryCnt: 7, RNRRetry: 7}
		for attr.State = rdma.StateInit; attr.State <= rdma.StateRTS; attr.State++ {
			err = q[0].Modify(attr, rdma.Required(rdma.RC, attr.State-1, attr.State))
			made("Modify")
		}
	}
	p.op = []rdma.OpsWR{{Opcode: rdma.OpAdd, Mask: ^uint64(0), Flags: rdma.SendSignaled, SGL: []rdma.SGE{{Addr: p.other.Addr(), Length: 64, LKey: p.other.LKey()}}}}
	p.wr = []rdma.SendWR{{Opcode: rdma.WRSend, Flags: rdma.SendSignaled, SGL: []rdma.SGE{{Addr: p.mine.Addr(), Length: rdma.TMHLen + 8, LKey: p.mine.LKey()}}}}
	return p
}

// add appends an entry and takes its completion.
func (p *tagPair) add(t testing.TB, tag, id uint64) {
	t.Helper()
	p.op[0].Tag, p.op[0].RecvWRID = tag, id
	if _, err := p.srq.PostOps(p.op); err != nil {
		t.Fatal(err)
	}
	if wc := p.wait(t); wc.Opcode != rdma.WCTMAdd {
		t.Fatalf("completion of an addition: %+v", wc)
	}
}

// send sends an eager message and takes its completion.
func (p *tagPair) send(t testing.TB, tag uint64) {
	t.Helper()
	rdma.TMH{Opcode: rdma.TMEager, Tag: tag}.Append(p.mine.Bytes()[:0])
	if _, err := p.a.PostSend(p.wr); err != nil {
		t.Fatal(err)
	}
	if n, err := p.cq.Poll(p.sent[:]); n != 1 || err != nil || p.sent[0].Status != rdma.WCSuccess {
		t.Fatalf("completion of a send: %d, %v", n, err)
	}
}

// wait waits for the next completion of the queue with tags.
func (p *tagPair) wait(t testing.TB) rdma.WCEx {
	t.Helper()
	for range 1 << 30 {
		n, err := p.tagCQ.PollEx(p.wcs[:])
		if err != nil {
			t.Fatal(err)
		}
		if n == 1 {
			break
		}
	}
	return p.wcs[0]
}
