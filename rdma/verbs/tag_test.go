//go:build cgo

package verbs_test

import (
	"errors"
	"strconv"
	"syscall"
	"testing"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rdma"
)

// The tests below run against testdata/model.c, which matches eager messages as
// libmlx5 tells it: a match and its bytes are two completions.

// A tagBench is two connected queue pairs, of which the second has its receives from
// a queue that matches tags.
type tagBench struct {
	t      testing.TB
	ctx    rdma.Context
	pd     rdma.PD
	scq    rdma.CQ
	cq     rdma.CQ // of the queue
	srq    rdma.SRQ
	mr     rdma.MR
	sender rdma.QP
	getter rdma.QP
}

const tagOps = 8

func newTagBench(t testing.TB) *tagBench {
	t.Helper()
	t.Setenv("FAKE_SPLIT", "1")
	b := &tagBench{t: t, ctx: openDevice(t, modelDevice(t))}
	if err := b.ctx.Supports(rdma.FeatureTagMatching); err != nil {
		t.Fatal(err)
	}
	b.pd = made[rdma.PD](t)(b.ctx.AllocPD())
	b.scq = made[rdma.CQ](t)(b.ctx.CreateCQ(64))
	b.cq = made[rdma.CQ](t)(b.ctx.CreateCQEx(rdma.CQInitAttr{CQE: 256}))
	b.mr = made[rdma.MR](t)(b.pd.AllocMR(4096, rdma.AccessLocalWrite))
	b.srq = made[rdma.SRQ](t)(b.pd.CreateSRQ(rdma.SRQInitAttr{Attr: rdma.SRQAttr{MaxWR: 16, MaxSGE: 1}, Type: rdma.SRQTagMatching, CQ: b.cq, MaxTags: 4, MaxOps: tagOps}))
	capacity := rdma.QPCap{MaxSendWR: 16, MaxSendSGE: 1, MaxInlineData: 128}
	b.sender = made[rdma.QP](t)(b.pd.CreateQP(rdma.QPInitAttr{Type: rdma.RC, SendCQ: b.scq, RecvCQ: b.scq, Cap: capacity}))
	b.getter = made[rdma.QP](t)(b.pd.CreateQP(rdma.QPInitAttr{Type: rdma.RC, SendCQ: b.scq, RecvCQ: b.cq, SRQ: b.srq, Cap: capacity}))
	for i, qp := range []rdma.QP{b.sender, b.getter} {
		for to := rdma.StateInit; to <= rdma.StateRTS; to++ {
			attr := rdma.QPAttr{State: to, PortNum: 1, AV: rdma.AV{PortNum: 1}, PathMTU: rdma.MTU1024, RNRRetry: 7, DestQPNum: []rdma.QP{b.getter, b.sender}[i].Num()}
			if err := qp.Modify(attr, rdma.Required(rdma.RC, to-1, to)); err != nil {
				t.Fatal(err)
			}
		}
	}
	return b
}

func (b *tagBench) send(op rdma.TMOpcode, tag uint64, app uint32, payload string) {
	b.t.Helper()
	message := append(rdma.TMH{Opcode: op, AppCtx: app, Tag: tag}.Append(nil), payload...)
	if n, err := b.sender.PostSend([]rdma.SendWR{{Opcode: rdma.WRSend, Flags: rdma.SendInline | rdma.SendSignaled, Inline: message}}); n != 1 || err != nil {
		b.t.Fatalf("PostSend: %d, %v", n, err)
	}
	var wc [2]rdma.WC
	if n, err := b.scq.Poll(wc[:]); n != 1 || err != nil || wc[0].Status != rdma.WCSuccess {
		b.t.Fatalf("Poll of what was sent: %d, %v, %+v", n, err, wc[0])
	}
}

func (b *tagBench) slotOf(i int) rdma.SGE {
	return rdma.SGE{Addr: b.mr.Addr() + uint64(64*i), Length: 64, LKey: b.mr.LKey()}
}

func (b *tagBench) add(recv, tag, mask uint64, slotOf int, flags rdma.SendFlags) rdma.OpsWR {
	return rdma.OpsWR{WRID: recv + 1000, Opcode: rdma.OpAdd, Flags: flags, RecvWRID: recv, Tag: tag, Mask: mask, SGL: []rdma.SGE{b.slotOf(slotOf)}}
}

func (b *tagBench) ops(ops ...rdma.OpsWR) []rdma.OpsWR {
	b.t.Helper()
	if n, err := b.srq.PostOps(ops); n != len(ops) || err != nil {
		b.t.Fatalf("PostOps took %d of %d: %v", n, len(ops), err)
	}
	return ops
}

// wants polls all that has completed and holds it to a list.
func (b *tagBench) wants(what string, want ...rdma.WCEx) {
	b.t.Helper()
	var wc [64]rdma.WCEx
	n, err := b.cq.PollEx(wc[:])
	if err != nil || n != len(want) {
		b.t.Fatalf("%s: PollEx gave %d, %v, want %d: %+v", what, n, err, len(want), wc[:n])
	}
	for i, got := range wc[:n] {
		got.QPNum = 0
		if got.Status != rdma.WCSuccess {
			got = rdma.WCEx{WC: rdma.WC{WRID: got.WRID, Status: got.Status}}
		}
		if got != want[i] {
			b.t.Errorf("%s: completion %d is %+v, want %+v", what, i, got, want[i])
		}
	}
}

func (b *tagBench) matched(id uint64, tag uint64, app uint32, bytes int) []rdma.WCEx {
	wc := rdma.WC{WRID: id, Opcode: rdma.WCTMRecv, Flags: rdma.WCFlagTMMatch, SrcQP: b.sender.Num()}
	there := wc
	there.Flags, there.ByteLen = rdma.WCFlagTMDataValid, uint32(bytes)
	return []rdma.WCEx{{WC: wc, TMTag: tag, TMAppCtx: app}, {WC: there, TMTag: tag, TMAppCtx: app}}
}

func op(id uint64, opcode rdma.WCOpcode, flags rdma.WCFlags) rdma.WCEx {
	return rdma.WCEx{WC: rdma.WC{WRID: id, Opcode: opcode, Flags: flags}}
}

func TestTagsMatchInOrder(t *testing.T) {
	testenv.Part(t, testenv.Tools)
	b := newTagBench(t)
	ops := b.ops(b.add(1, 0x10, ^uint64(0), 1, rdma.SendSignaled), b.add(2, 0x20, 0xf0, 2, 0), b.add(3, 0x20, 0xff, 3, rdma.SendSignaled))
	if ops[0].Handle == ops[1].Handle || ops[1].Handle == ops[2].Handle {
		t.Errorf("the handles are %#x, %#x, %#x", ops[0].Handle, ops[1].Handle, ops[2].Handle)
	}
	b.wants("added", op(1001, rdma.WCTMAdd, 0), op(1003, rdma.WCTMAdd, 0))
	b.send(rdma.TMEager, 0x20, 7, "second") // the earliest that matches
	b.wants("a match", b.matched(2, 0x20, 7, 6)...)
	b.send(rdma.TMEager, 0x20, 8, "third")
	b.wants("the next match", b.matched(3, 0x20, 8, 5)...)
	b.send(rdma.TMEager, 0x10, 9, "first")
	b.wants("the exact match", b.matched(1, 0x10, 9, 5)...)
	for i, want := range []string{"", "first", "second", "third"} {
		if got := string(b.mr.Bytes()[64*i:][:len(want)]); got != want {
			t.Errorf("in place %d is %q, want %q", i, got, want)
		}
	}
}

// An unexpected message takes a receive, headers and all, and what is added then
// matches nothing until it was consumed.
func TestUnexpectedMessagesHoldTheListBack(t *testing.T) {
	testenv.Part(t, testenv.Tools)
	b := newTagBench(t)
	for i := range uint64(3) {
		if _, err := b.srq.PostRecv([]rdma.RecvWR{{WRID: 50 + i, SGL: []rdma.SGE{b.slotOf(10 + int(i))}}}); err != nil {
			t.Fatal(err)
		}
	}
	recv := func(id uint64, opcode rdma.WCOpcode, tag uint64, app uint32, n int) rdma.WCEx {
		return rdma.WCEx{WC: rdma.WC{WRID: id, Opcode: opcode, ByteLen: uint32(rdma.TMHLen + n), SrcQP: b.sender.Num()}, TMTag: tag, TMAppCtx: app}
	}
	b.send(rdma.TMEager, 5, 1, "nobody")
	b.wants("unexpected", recv(50, rdma.WCTMRecv, 5, 1, 6))
	b.send(rdma.TMNoTag, 0, 2, "plain")
	b.wants("without a tag", recv(51, rdma.WCTMNoTag, 0, 2, 5))
	b.ops(b.add(1, 5, ^uint64(0), 1, rdma.SendSignaled))
	b.wants("added too early", op(1001, rdma.WCTMAdd, rdma.WCFlagTMSyncReq))
	b.send(rdma.TMEager, 5, 3, "again")
	b.wants("unexpected still", recv(52, rdma.WCTMRecv, 5, 3, 5))
	b.ops(rdma.OpsWR{WRID: 2000, Opcode: rdma.OpSync, Flags: rdma.SendSignaled | rdma.OpsTMSync, UnexpectedCnt: 2})
	b.wants("told", op(2000, rdma.WCTMSync, 0))
	b.send(rdma.TMEager, 5, 4, "late")
	b.wants("now it matches", b.matched(1, 5, 4, 4)...)
}

// Entries are removed by their handle, and their places are free again, without end:
// also those of operations that tell of nothing.
func TestTagPlacesComeBack(t *testing.T) {
	testenv.Part(t, testenv.Tools)
	b := newTagBench(t)
	for round := range uint64(100) {
		ops := b.ops(b.add(1, round, ^uint64(0), 1, 0), b.add(2, round, ^uint64(0), 2, 0), b.add(3, 1<<63, ^uint64(0), 3, 0))
		b.ops(rdma.OpsWR{WRID: 9, Opcode: rdma.OpDel, Handle: ops[0].Handle}, rdma.OpsWR{WRID: 10, Opcode: rdma.OpDel, Handle: ops[2].Handle, Flags: rdma.SendSignaled})
		b.wants("removed", op(10, rdma.WCTMDel, 0))
		b.send(rdma.TMEager, round, 1, "x")
		b.wants("the other", b.matched(2, round, 1, 1)...)
	}
	if n, err := b.srq.PostOps([]rdma.OpsWR{{Opcode: rdma.OpDel, Handle: 1}}); n != 0 || !errors.Is(err, rdma.ErrInvalid) {
		t.Errorf("removing what is no more: %d, %v", n, err)
	}
	// A message that came first: the removal fails, and the message is the program's.
	ops := b.ops(b.add(4, 7, ^uint64(0), 1, 0))
	b.send(rdma.TMEager, 7, 1, "y")
	b.ops(rdma.OpsWR{WRID: 11, Opcode: rdma.OpDel, Handle: ops[0].Handle})
	b.wants("removed too late", append(b.matched(4, 7, 1, 1), rdma.WCEx{WC: rdma.WC{WRID: 11, Status: rdma.WCTMErr}})...)
}

func TestTagListIsBounded(t *testing.T) {
	testenv.Part(t, testenv.Tools)
	b := newTagBench(t)
	var adds []rdma.OpsWR
	for i := range uint64(5) {
		adds = append(adds, b.add(i, i, ^uint64(0), 1, 0))
	}
	if n, err := b.srq.PostOps(adds); n != 4 || !errors.Is(err, rdma.ErrNoMemory) {
		t.Errorf("five entries into a list of four: %d, %v", n, err)
	}
	var syncs []rdma.OpsWR
	for range tagOps {
		syncs = append(syncs, rdma.OpsWR{Opcode: rdma.OpSync})
	}
	if n, err := b.srq.PostOps(syncs); n != tagOps-4 || !errors.Is(err, rdma.ErrNoMemory) {
		t.Errorf("eight operations behind four, of eight: %d, %v", n, err)
	}
	for name, wr := range map[string]rdma.OpsWR{
		"an operation that is none": {Opcode: 3},
		"a flag that is none":       {Opcode: rdma.OpSync, Flags: rdma.SendFence},
		"too many entries":          {Opcode: rdma.OpAdd, SGL: make([]rdma.SGE, 9)},
	} {
		fresh := newTagBench(t)
		if n, err := fresh.srq.PostOps([]rdma.OpsWR{{Opcode: rdma.OpSync}, wr, {Opcode: rdma.OpSync}}); n != 1 || !errors.Is(err, rdma.ErrInvalid) {
			t.Errorf("%s: %d, %v", name, n, err)
		}
	}
	for name, change := range map[string]func(*rdma.SRQInitAttr){
		"no tags":           func(a *rdma.SRQInitAttr) { a.MaxTags = 0 },
		"too many tags":     func(a *rdma.SRQInitAttr) { a.MaxTags = b.ctx.QueryDevice().MaxTags + 1 },
		"no operations":     func(a *rdma.SRQInitAttr) { a.MaxOps = 0 },
		"no CQ":             func(a *rdma.SRQInitAttr) { a.CQ = nil },
		"a CQ that is none": func(a *rdma.SRQInitAttr) { a.CQ = b.scq },
	} {
		attr := rdma.SRQInitAttr{Attr: rdma.SRQAttr{MaxWR: 16, MaxSGE: 1}, Type: rdma.SRQTagMatching, CQ: b.cq, MaxTags: 4, MaxOps: 4}
		change(&attr)
		if srq, err := b.pd.CreateSRQ(attr); !errors.Is(err, rdma.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
			if err == nil {
				srq.Close()
			}
		}
	}
	plain := made[rdma.SRQ](t)(b.pd.CreateSRQ(rdma.SRQInitAttr{Attr: rdma.SRQAttr{MaxWR: 1, MaxSGE: 1}}))
	if n, err := plain.PostOps([]rdma.OpsWR{{Opcode: rdma.OpSync}}); n != 0 || !errors.Is(err, rdma.ErrNotSupported) {
		t.Errorf("an operation on a queue without a list: %d, %v", n, err)
	}
	if err := b.cq.Close(); !errors.Is(err, rdma.ErrBusy) {
		t.Errorf("closing the CQ of a queue: %v", err)
	}
}

// What fails is named, and a batch that was cut short leaves the places of the rest.
func TestTagFailures(t *testing.T) {
	testenv.Part(t, testenv.Tools)
	b := newTagBench(t)
	for _, errno := range []syscall.Errno{syscall.ENOMEM, syscall.EINVAL, syscall.EOPNOTSUPP, syscall.ENODEV} {
		t.Setenv("FAKE_FAIL", "post_srq_ops:"+strconv.Itoa(int(errno)))
		for range 20 {
			if n, err := b.srq.PostOps([]rdma.OpsWR{b.add(1, 1, 1, 1, 0), {Opcode: rdma.OpSync}}); n != 0 || !errors.Is(err, errno) {
				t.Fatalf("post_srq_ops failing with %v: %d, %v", errno, n, err)
			}
		}
	}
	t.Setenv("FAKE_FAIL", "create_srq:1")
	fresh := openDevice(t, modelDevice(t))
	if err := fresh.Supports(rdma.FeatureTagMatching); !errors.Is(err, syscall.EPERM) || errors.Is(err, rdma.ErrNotSupported) {
		t.Errorf("a trial that fails with EPERM: %v", err)
	}
	t.Setenv("FAKE_FAIL", "")
	if err := fresh.Supports(rdma.FeatureTagMatching); err != nil {
		t.Errorf("tried again: %v", err)
	}
	b.ops(b.add(1, 1, ^uint64(0), 1, rdma.SendSignaled))
	b.wants("added after all", op(1001, rdma.WCTMAdd, 0))
	if err := openDevice(t, fakeDevice(t, fakeProvider(t))).Supports(rdma.FeatureTagMatching); !errors.Is(err, rdma.ErrNotSupported) {
		t.Errorf("a device without tags: %v", err)
	}
}
