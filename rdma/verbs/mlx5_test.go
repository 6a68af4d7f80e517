//go:build cgo

package verbs_test

import (
	"debug/elf"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rdma"
)

// The tests below run against testdata/model.c, but where they say else.

// A dcBench is an initiator and a target of one context, both ready.
type dcBench struct {
	ctx    rdma.Context
	pd     rdma.PD
	cq     rdma.CQ
	srq    rdma.SRQ
	mr     rdma.MR
	ah     rdma.AH
	dci    rdma.QP
	target rdma.QP
}

const dcKey = 0xfeed_0123_4567_89ab

func made[T interface{ Close() error }](t testing.TB) func(T, error) T {
	return func(made T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatalf("make a %T: %v", made, err)
		}
		t.Cleanup(func() {
			if err := made.Close(); err != nil {
				t.Errorf("close a %T: %v", made, err)
			}
		})
		return made
	}
}

func modify(t testing.TB, qp rdma.QP, to rdma.QPState, mask rdma.QPAttrMask) {
	t.Helper()
	attr := rdma.QPAttr{State: to, PortNum: 1, AV: rdma.AV{PortNum: 1}, PathMTU: rdma.MTU1024, AccessFlags: rdma.AccessRemoteWrite | rdma.AccessRemoteRead | rdma.AccessRemoteAtomic,
		Timeout: 8, RetryCnt: 1}
	if err := qp.Modify(attr, mask|rdma.QPStateMask); err != nil {
		t.Fatalf("modify to %v: %v", to, err)
	}
}

func newDCBench(t testing.TB) *dcBench {
	t.Helper()
	b := &dcBench{ctx: openDevice(t, modelDevice(t))}
	b.pd = made[rdma.PD](t)(b.ctx.AllocPD())
	b.cq = made[rdma.CQ](t)(b.ctx.CreateCQ(1000))
	b.srq = made[rdma.SRQ](t)(b.pd.CreateSRQ(rdma.SRQInitAttr{Attr: rdma.SRQAttr{MaxWR: 64, MaxSGE: 2}}))
	b.mr = made[rdma.MR](t)(b.pd.AllocMR(4096, rdma.AccessLocalWrite|rdma.AccessRemoteWrite|rdma.AccessRemoteRead))
	b.ah = made[rdma.AH](t)(b.pd.CreateAH(rdma.AV{PortNum: 1}))
	b.target = made[rdma.QP](t)(b.pd.CreateQP(rdma.QPInitAttr{Type: rdma.DCT, RecvCQ: b.cq, SRQ: b.srq, DCAccessKey: dcKey}))
	b.dci = made[rdma.QP](t)(b.pd.CreateQP(rdma.QPInitAttr{Type: rdma.DCI, SendCQ: b.cq, Cap: rdma.QPCap{MaxSendWR: 64, MaxSendSGE: 2, MaxInlineData: 64}}))
	modify(t, b.target, rdma.StateInit, rdma.QPPKeyIndexMask|rdma.QPPortMask|rdma.QPAccessFlagsMask)
	if n := b.target.Num(); n != 0 {
		t.Errorf("a target in INIT has the number %#x", n)
	}
	if got := b.target.State(); got != rdma.StateInit {
		t.Errorf("a target in INIT says that it is in %v", got)
	}
	modify(t, b.target, rdma.StateRTR, rdma.QPAVMask|rdma.QPPathMTUMask|rdma.QPMinRNRTimerMask)
	modify(t, b.dci, rdma.StateInit, rdma.QPPKeyIndexMask|rdma.QPPortMask)
	modify(t, b.dci, rdma.StateRTR, rdma.QPPathMTUMask)
	modify(t, b.dci, rdma.StateRTS, rdma.QPTimeoutMask|rdma.QPRetryCntMask|rdma.QPRNRRetryMask|rdma.QPMaxRdAtomicMask|rdma.QPSQPSNMask)
	return b
}

func (b *dcBench) write(id uint64, to uint64) rdma.SendWR {
	return rdma.SendWR{WRID: id, Opcode: rdma.WRRDMAWrite, Flags: rdma.SendSignaled, SGL: []rdma.SGE{{Addr: b.mr.Addr(), Length: 8, LKey: b.mr.LKey()}},
		RemoteAddr: b.mr.Addr() + to, RKey: b.mr.RKey(), AH: b.ah, RemoteQPN: b.target.Num(), DCAccessKey: dcKey}
}

// "Cannot", with the reason, is told from "could not be found out", which is asked
// again.
func TestMlx5FeaturesSayWhy(t *testing.T) {
	testenv.Part(t, testenv.Tools)
	both := []rdma.Feature{rdma.FeatureDC, rdma.FeatureUMR}
	model := buildLibrary(t, "model.c")
	for _, c := range []struct {
		name     string
		device   func(t *testing.T) rdma.Device
		env      [2]string
		features []rdma.Feature
		want     error // rdma.ErrNotSupported: it is known; else it is asked again
		says     string
	}{
		{"another driver", func(t *testing.T) rdma.Device { return fakeDevice(t, fakeProvider(t)) }, [2]string{}, both,
			rdma.ErrNotSupported, "only mlx5 devices have it, and the driver of this one is in libfake.so"},
		{"another device of the driver", nil, [2]string{"FAKE_NOT_MLX5", "1"}, both, rdma.ErrNotSupported, "only mlx5 devices have it"},
		{"an old library", func(t *testing.T) rdma.Device { return deviceOf(t, buildLibrary(t, "model.c", "-DOLD")) }, [2]string{}, both[1:],
			rdma.ErrNotSupported, "libmlx5 is too old: it has no mlx5dv_create_mkey"},
		{"no answer", nil, [2]string{"FAKE_FAIL", "mlx5dv_query_device:1"}, both, syscall.EPERM, "mlx5dv_query_device"},
		{"an answer of no", nil, [2]string{"FAKE_FAIL", "mlx5dv_query_device:95"}, both, rdma.ErrNotSupported, "libmlx5 says"},
		{"no right to a queue pair", nil, [2]string{"FAKE_FAIL", "mlx5dv_create_qp:1"}, both, syscall.EPERM, "mlx5dv_create_qp: no right to"},
		{"no memory for a queue pair", nil, [2]string{"FAKE_FAIL", "mlx5dv_create_qp:12"}, both, syscall.ENOMEM, "mlx5dv_create_qp: out of device objects"},
		{"a card without DC", nil, [2]string{"FAKE_FAIL", "mlx5dv_create_qp:95"}, both, rdma.ErrNotSupported, "tried: mlx5dv_create_qp"},
		{"a kernel that refuses", nil, [2]string{"FAKE_FAIL", "mlx5dv_create_qp:22"}, both, rdma.ErrNotSupported, "tried, and the device answers: mlx5dv_create_qp"},
		{"no shared receive queue", nil, [2]string{"FAKE_FAIL", "create_srq:12"}, both[:1], syscall.ENOMEM, "create_srq"},
		{"no DEVX", nil, [2]string{"FAKE_FAIL", "mlx5dv_create_mkey:95"}, both[1:], rdma.ErrNotSupported, "tried: mlx5dv_create_mkey"},
		{"no right to a key", nil, [2]string{"FAKE_FAIL", "mlx5dv_create_mkey:1"}, both[1:], syscall.EPERM, "mlx5dv_create_mkey"},
	} {
		t.Run(c.name, func(t *testing.T) {
			device := c.device
			if device == nil {
				device = func(t *testing.T) rdma.Device { return deviceOf(t, model) }
			}
			ctx := openDevice(t, device(t))
			if c.env[0] != "" {
				t.Setenv(c.env[0], c.env[1])
			}
			for _, f := range c.features {
				if err := ctx.Supports(f); !errors.Is(err, c.want) || !strings.Contains(fmt.Sprint(err), c.says) ||
					errors.Is(err, rdma.ErrNotSupported) != (c.want == rdma.ErrNotSupported) {
					t.Errorf("%v: %v, want an error wrapping %q with %q in it", f, err, c.want, c.says)
				}
			}
			if c.env[0] == "" {
				return
			}
			if err := os.Unsetenv(c.env[0]); err != nil {
				t.Fatal(err)
			}
			for _, f := range c.features {
				if err := ctx.Supports(f); (err == nil) == (c.want == rdma.ErrNotSupported) {
					t.Errorf("%v, asked again when all is well: %v", f, err)
				}
			}
		})
	}
}

// Every call of libmlx5 that fails is an error of the verb, with the errno, and
// leaves nothing behind: the model refuses to be closed with objects in it.
func TestMlx5FailuresAreNamed(t *testing.T) {
	testenv.Part(t, testenv.Tools)
	b := newDCBench(t)
	for _, f := range []rdma.Feature{rdma.FeatureDC, rdma.FeatureUMR} {
		if err := b.ctx.Supports(f); err != nil {
			t.Fatal(err)
		}
	}
	close := func(c interface{ Close() error }, err error) error {
		if err != nil {
			return err
		}
		return c.Close()
	}
	capacity := rdma.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}
	for _, c := range []struct {
		verb, fails string
		call        func() error
	}{
		{"create_qp", "mlx5dv_create_qp", func() error {
			qp, err := b.pd.CreateQP(rdma.QPInitAttr{Type: rdma.RC, SendCQ: b.cq, RecvCQ: b.cq, Cap: capacity})
			return close(qp, err)
		}},
		{"create_qp", "mlx5dv_create_qp", func() error {
			qp, err := b.pd.CreateQP(rdma.QPInitAttr{Type: rdma.DCI, SendCQ: b.cq, Cap: capacity})
			return close(qp, err)
		}},
		{"create_qp", "mlx5dv_create_qp", func() error {
			qp, err := b.pd.CreateQP(rdma.QPInitAttr{Type: rdma.DCT, RecvCQ: b.cq, SRQ: b.srq})
			return close(qp, err)
		}},
		{"create_mkey", "mlx5dv_create_mkey", func() error { k, err := b.pd.CreateMkey(4); return close(k, err) }},
		{"destroy_mkey", "mlx5dv_destroy_mkey", func() error {
			k, err := b.pd.CreateMkey(4)
			if err != nil {
				return err
			}
			defer func() { // which is as it was
				t.Setenv("FAKE_FAIL", "")
				if err := k.Close(); err != nil {
					t.Errorf("destroy_mkey once more: %v", err)
				}
			}()
			return k.Close()
		}},
		{"post_send", "wr_complete", func() error { _, err := b.dci.PostSend([]rdma.SendWR{b.write(1, 0)}); return err }},
		{"advise_mr", "advise_mr", func() error { return b.pd.AdviseMR(rdma.AdvisePrefetch, rdma.AdviseFlush, []rdma.SGE{{}}) }},
	} {
		for _, errno := range []syscall.Errno{syscall.ENOMEM, syscall.EINVAL, syscall.EOPNOTSUPP, syscall.EIO, syscall.ENODEV} {
			t.Setenv("FAKE_FAIL", c.fails+":"+strconv.Itoa(int(errno)))
			err := c.call()
			var op *rdma.OpError
			if !errors.As(err, &op) || op.Op != c.verb || !errors.Is(err, errno) {
				t.Errorf("%s failing with %v: %v", c.fails, errno, err)
			}
		}
		t.Setenv("FAKE_FAIL", "")
	}
}

// A batch that libmlx5 refuses whole is taken up to the request that is wrong.
func TestDCBatchIsTakenUpToTheBadRequest(t *testing.T) {
	testenv.Part(t, testenv.Tools)
	b := newDCBench(t)
	for bad := range 4 {
		list := []rdma.SendWR{b.write(10, 0), b.write(11, 8), b.write(12, 16), b.write(13, 24)}
		t.Setenv("FAKE_REFUSE", strconv.FormatUint(list[bad].RemoteAddr, 10))
		n, err := b.dci.PostSend(list)
		if n != bad || !errors.Is(err, rdma.ErrInvalid) {
			t.Errorf("request %d is refused: took %d, %v", bad, n, err)
		}
		var wc [8]rdma.WC
		got, err := b.cq.Poll(wc[:])
		if err != nil || got != bad {
			t.Fatalf("Poll gave %d, %v, want %d", got, err, bad)
		}
		for i := range got {
			if wc[i].WRID != 10+uint64(i) || wc[i].Status != rdma.WCSuccess || wc[i].Opcode != rdma.WCRDMAWrite {
				t.Errorf("completion %d is %+v", i, wc[i])
			}
		}
	}
	if c := b.ctx.Counters(); c.Writes != 6 || c.DCConnects != 1 {
		t.Errorf("counted %+v, want 6 writes and one connection", c)
	}
}

// A completion of a target's receive names the target and the initiator.
func TestDCReceiveNamesBothHalves(t *testing.T) {
	testenv.Part(t, testenv.Tools)
	b := newDCBench(t)
	if _, err := b.srq.PostRecv([]rdma.RecvWR{{WRID: 5, SGL: []rdma.SGE{{Addr: b.mr.Addr() + 64, Length: 64, LKey: b.mr.LKey()}}}}); err != nil {
		t.Fatal(err)
	}
	wr := b.write(1, 0)
	wr.Opcode, wr.ImmData, wr.Flags, wr.Inline, wr.SGL = rdma.WRSendWithImm, 9, rdma.SendInline, []byte("inline"), nil
	if n, err := b.dci.PostSend([]rdma.SendWR{wr}); n != 1 || err != nil {
		t.Fatalf("PostSend: %d, %v", n, err)
	}
	var wc [2]rdma.WC
	n, err := b.cq.Poll(wc[:])
	want := rdma.WC{WRID: 5, Opcode: rdma.WCRecv, ByteLen: 6, ImmData: 9, Flags: rdma.WCFlagWithImm, QPNum: b.target.Num(), SrcQP: b.dci.Num()}
	if n != 1 || err != nil || wc[0] != want {
		t.Errorf("Poll: %d, %v, %+v, want %+v", n, err, wc[0], want)
	}
	if got := string(b.mr.Bytes()[64:70]); got != "inline" {
		t.Errorf("received %q", got)
	}
}

// Posts through an initiator allocate nothing.
func TestDCPostAllocatesNothing(t *testing.T) {
	testenv.Part(t, testenv.Tools)
	b := newDCBench(t)
	list := []rdma.SendWR{b.write(1, 0), b.write(2, 8), b.write(3, 16)}
	var wc [4]rdma.WC
	if n := testing.AllocsPerRun(100, func() {
		if n, err := b.dci.PostSend(list); n != 3 || err != nil {
			t.Fatalf("PostSend: %d, %v", n, err)
		}
		if n, err := b.cq.Poll(wc[:]); n != 3 || err != nil {
			t.Fatalf("Poll: %d, %v", n, err)
		}
	}); n != 0 {
		t.Errorf("%v allocations a round, want 0", n)
	}
}

// What an initiator's requests name must be there, and what targets and initiators
// lack is refused.
func TestDCRequestsAreJudged(t *testing.T) {
	testenv.Part(t, testenv.Tools)
	b := newDCBench(t)
	other := newDCBench(t)
	closed, err := b.pd.CreateAH(rdma.AV{PortNum: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*rdma.SendWR){
		"no handle":                   func(wr *rdma.SendWR) { wr.AH = nil },
		"another context's handle":    func(wr *rdma.SendWR) { wr.AH = other.ah },
		"a closed handle":             func(wr *rdma.SendWR) { wr.AH = closed },
		"a number of 25 bits":         func(wr *rdma.SendWR) { wr.RemoteQPN = 1 << 24 },
		"too many scatter entries":    func(wr *rdma.SendWR) { wr.SGL = make([]rdma.SGE, 3) },
		"more inline than there is":   func(wr *rdma.SendWR) { wr.Flags, wr.Inline = rdma.SendInline, make([]byte, 4096) },
		"an opcode that is none":      func(wr *rdma.SendWR) { wr.Opcode = 12 },
		"a key through an initiator":  func(wr *rdma.SendWR) { wr.Opcode = rdma.WRRegMkey },
		"an inv through an initiator": func(wr *rdma.SendWR) { wr.Opcode = rdma.WRLocalInv },
	} {
		wr := b.write(1, 0)
		change(&wr)
		if n, err := b.dci.PostSend([]rdma.SendWR{wr}); n != 0 || !errors.Is(err, rdma.ErrInvalid) && !errors.Is(err, rdma.ErrNotSupported) {
			t.Errorf("%s: %d, %v", name, n, err)
		}
	}
	for _, step := range []rdma.QPState{rdma.StateReset, rdma.StateErr} {
		if err := b.target.Modify(rdma.QPAttr{State: step}, rdma.QPStateMask); !errors.Is(err, rdma.ErrNotSupported) {
			t.Errorf("a target to %v: %v", step, err)
		}
	}
}

// What a layout may be is what libmlx5 writes into a request without cutting it
// short, and what the queue pair has room for.
func TestLayoutsFitTheRequest(t *testing.T) {
	testenv.Part(t, testenv.Tools)
	ctx := openDevice(t, modelDevice(t))
	pd := made[rdma.PD](t)(ctx.AllocPD())
	cq := made[rdma.CQ](t)(ctx.CreateCQ(64))
	mr := made[rdma.MR](t)(pd.AllocMR(1<<20, rdma.AccessLocalWrite))
	qp := made[rdma.QP](t)(pd.CreateQP(rdma.QPInitAttr{Type: rdma.RC, SendCQ: cq, RecvCQ: cq, Cap: rdma.QPCap{MaxSendWR: 4, MaxSendSGE: 1}}))
	modify(t, qp, rdma.StateInit, rdma.QPPKeyIndexMask|rdma.QPPortMask|rdma.QPAccessFlagsMask)
	modify(t, qp, rdma.StateRTR, rdma.QPAVMask|rdma.QPPathMTUMask|rdma.QPDestQPNMask|rdma.QPRQPSNMask|rdma.QPMaxDestRdAtomicMask|rdma.QPMinRNRTimerMask)
	modify(t, qp, rdma.StateRTS, rdma.QPTimeoutMask|rdma.QPRetryCntMask|rdma.QPRNRRetryMask|rdma.QPSQPSNMask|rdma.QPMaxRdAtomicMask)
	most := ctx.QueryDevice().MaxMkeyEntries
	if most < 16 {
		t.Fatalf("MaxMkeyEntries is %d", most)
	}
	for _, n := range []int{0, -1, most + 1, 1 << 16} {
		if _, err := pd.CreateMkey(n); !errors.Is(err, rdma.ErrInvalid) {
			t.Errorf("CreateMkey(%d): %v", n, err)
		}
	}
	key := made[rdma.Mkey](t)(pd.CreateMkey(most))
	piece := rdma.MkeyPiece{Addr: mr.Addr(), Count: 8, Skip: 8, LKey: mr.LKey()}
	interleaved := func(n int, p rdma.MkeyPiece) *rdma.MkeyLayout {
		l := &rdma.MkeyLayout{Repeat: 2}
		for range n {
			l.Interleaved = append(l.Interleaved, p)
		}
		return l
	}
	list := func(n int, bytes uint32) *rdma.MkeyLayout {
		l := &rdma.MkeyLayout{}
		for range n {
			l.List = append(l.List, rdma.SGE{Addr: mr.Addr(), Length: bytes, LKey: mr.LKey()})
		}
		return l
	}
	for _, c := range []struct {
		name   string
		layout *rdma.MkeyLayout
		want   error
		says   string
	}{
		{"3 interleaved", interleaved(3, piece), nil, ""},
		{"4 in a list", list(4, 8), nil, ""},
		{"a stride of 65535", interleaved(1, rdma.MkeyPiece{Addr: mr.Addr(), Count: 65000, Skip: 535, LKey: mr.LKey()}), nil, ""},
		{"4 interleaved", interleaved(4, piece), rdma.ErrInvalid, "room for 3; create it with MaxInlineData 76"},
		{"5 in a list", list(5, 8), rdma.ErrInvalid, "room for 4; create it with MaxInlineData 76"},
		{"a stride of 65536", interleaved(1, rdma.MkeyPiece{Addr: mr.Addr(), Count: 65000, Skip: 536, LKey: mr.LKey()}), rdma.ErrNotSupported, "a stride of 65536 bytes"},
		{"a block of 65536", interleaved(1, rdma.MkeyPiece{Addr: mr.Addr(), Count: 65536, LKey: mr.LKey()}), rdma.ErrNotSupported, "65535"},
		{"a list of 2 GiB", list(2, 1<<30), rdma.ErrNotSupported, "a list of 2147483648 bytes"},
	} {
		n, err := qp.PostSend([]rdma.SendWR{{WRID: 1, Opcode: rdma.WRRegMkey, Flags: rdma.SendSignaled, Mkey: key, Layout: c.layout}})
		if (n == 1) != (c.want == nil) || !errors.Is(err, c.want) || !strings.Contains(fmt.Sprint(err), c.says) {
			t.Errorf("%s: %d, %v, want %v, with %q", c.name, n, err, c.want, c.says)
		}
		var wc [2]rdma.WC
		if got, err := cq.Poll(wc[:]); got != n || err != nil || n == 1 && (wc[0].Opcode != rdma.WCRegMkey || wc[0].Status != rdma.WCSuccess) {
			t.Errorf("%s: Poll: %d, %v, %+v", c.name, got, err, wc[0])
		}
	}
	// Room is made by inline data, and 76 bytes make it.
	roomy := made[rdma.QP](t)(pd.CreateQP(rdma.QPInitAttr{Type: rdma.RC, SendCQ: cq, RecvCQ: cq, Cap: rdma.QPCap{MaxSendWR: 4, MaxSendSGE: 1, MaxInlineData: 76}}))
	if _, init := roomy.Query(); init.Cap.MaxInlineData < 76 {
		t.Errorf("a queue pair with 76 bytes inline has %d", init.Cap.MaxInlineData)
	}
	if err := pd.Close(); !errors.Is(err, rdma.ErrBusy) {
		t.Errorf("closing the domain of a key: %v", err)
	}
	if c := ctx.Counters(); c.Writes != 0 {
		t.Errorf("layouts count as writes: %+v", c)
	}
}

// Small messages go where the region's addresses say, not where they would point in
// the process: libmlx5 copies payload out of completions when it may.
func TestSmallMessagesIntoMovedRegions(t *testing.T) {
	testenv.Part(t, testenv.Tools)
	ctx := openDevice(t, modelDevice(t))
	pd := made[rdma.PD](t)(ctx.AllocPD())
	cq := made[rdma.CQ](t)(ctx.CreateCQ(64))
	for _, typ := range []rdma.QPType{rdma.RC, rdma.UC} {
		var qps [2]rdma.QP
		for i := range qps {
			qps[i] = made[rdma.QP](t)(pd.CreateQP(rdma.QPInitAttr{Type: typ, SendCQ: cq, RecvCQ: cq, Cap: rdma.QPCap{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInlineData: 8}}))
		}
		for i, qp := range qps {
			for to := rdma.StateInit; to <= rdma.StateRTS; to++ {
				attr := rdma.QPAttr{State: to, PortNum: 1, AV: rdma.AV{PortNum: 1}, PathMTU: rdma.MTU1024, DestQPNum: qps[1-i].Num()}
				if err := qp.Modify(attr, rdma.Required(typ, to-1, to)); err != nil {
					t.Fatal(err)
				}
			}
		}
		memory := made[rdma.MR](t)(pd.AllocMR(4096, rdma.AccessLocalWrite|rdma.AccessZeroBased))
		if _, err := qps[1].PostRecv([]rdma.RecvWR{{SGL: []rdma.SGE{{Addr: 16, Length: 8, LKey: memory.LKey()}}}}); err != nil {
			t.Fatal(err)
		}
		if _, err := qps[0].PostSend([]rdma.SendWR{{Opcode: rdma.WRSend, Flags: rdma.SendInline, Inline: []byte("small")}}); err != nil {
			t.Fatal(err)
		}
		var wc [2]rdma.WC
		if n, err := cq.Poll(wc[:]); n != 1 || err != nil || wc[0].Status != rdma.WCSuccess {
			t.Fatalf("%v: Poll: %d, %v, %+v", typ, n, err, wc[0])
		}
		if got := string(memory.Bytes()[16:21]); got != "small" {
			t.Errorf("%v: received %q", typ, got)
		}
	}
}

//go:embed mlx5.c
var mlx5Source string

// The machine's libmlx5 has what is asked of it, in the versions that are asked for.
func TestRealLibmlx5HasTheFunctions(t *testing.T) {
	testenv.Part(t, testenv.Tools)
	var lib string
	for _, pattern := range []string{"/usr/lib/*/libmlx5.so.1", "/usr/lib64/libmlx5.so.1", "/usr/lib/libmlx5.so.1"} {
		if found, _ := filepath.Glob(pattern); len(found) > 0 {
			lib = found[0]
			break
		}
	}
	if lib == "" {
		testenv.Unsupported(t, "needs libmlx5.so.1 (ibverbs-providers)")
	}
	file, err := elf.Open(lib)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	symbols, err := file.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	has := map[string]bool{}
	for _, s := range symbols {
		if s.Section != elf.SHN_UNDEF {
			has[s.Name+" "+s.Version] = true
		}
	}
	asked := regexp.MustCompile(`X\((mlx5dv_\w+), .*"(MLX5_[0-9.]+)"\)`).FindAllStringSubmatch(mlx5Source, -1)
	if len(asked) < 6 {
		t.Fatalf("mlx5.c names %d functions of libmlx5", len(asked))
	}
	for _, a := range asked {
		if !has[a[1]+" "+a[2]] {
			t.Errorf("%s has no %s of version %s", lib, a[1], a[2])
		}
	}
}
