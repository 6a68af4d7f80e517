//go:build cgo

package verbs_test

import (
	"errors"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rdma"
	"github.com/gorun-mpi/gorun/rdma/verbs"
)

// The tests below run against a library that fails on demand (testdata/fake.c).

func fakeProvider(t testing.TB) *verbs.Provider {
	t.Helper()
	return verbs.New(verbs.Config{Library: fakeLibrary(t)})
}

func fakeLibrary(t testing.TB) string {
	t.Helper()
	return buildLibrary(t, "fake.c")
}

func fakeDevice(t testing.TB, p *verbs.Provider) rdma.Device {
	t.Helper()
	devices, err := p.Devices()
	if err != nil || len(devices) != 1 || devices[0].Name() != "fake0" {
		t.Fatalf("Devices: %v, %v", devices, err)
	}
	return devices[0]
}

// A bench is an open fake device with what a test of posts needs.
type bench struct {
	ctx rdma.Context
	pd  rdma.PD
	cq  rdma.CQ
	qp  rdma.QP
	mr  rdma.MR
}

func newBench(t testing.TB) *bench {
	t.Helper()
	b := &bench{ctx: openDevice(t, fakeDevice(t, fakeProvider(t)))}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	closing := func(c interface{ Close() error }) {
		t.Cleanup(func() {
			if err := c.Close(); err != nil {
				t.Errorf("close a %T: %v", c, err)
			}
		})
	}
	var err error
	b.pd, err = b.ctx.AllocPD()
	must(err)
	closing(b.pd)
	b.cq, err = b.ctx.CreateCQ(1000)
	must(err)
	closing(b.cq)
	b.mr, err = b.pd.AllocMR(4096, rdma.AccessLocalWrite)
	must(err)
	closing(b.mr)
	b.qp = b.queue(t)
	return b
}

// queue makes a queue pair of the bench, in RTS.
func (b *bench) queue(t testing.TB) rdma.QP {
	t.Helper()
	qp, err := b.pd.CreateQP(rdma.QPInitAttr{SendCQ: b.cq, RecvCQ: b.cq, Type: rdma.RC,
		Cap: rdma.QPCap{MaxSendWR: 64, MaxRecvWR: 64, MaxSendSGE: 2, MaxRecvSGE: 2, MaxInlineData: 64}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := qp.Close(); err != nil {
			t.Errorf("close a %T: %v", qp, err)
		}
	})
	for _, step := range []struct {
		to   rdma.QPState
		mask rdma.QPAttrMask
	}{
		{rdma.StateInit, rdma.QPPKeyIndexMask | rdma.QPPortMask | rdma.QPAccessFlagsMask},
		{rdma.StateRTR, rdma.QPAVMask | rdma.QPPathMTUMask | rdma.QPDestQPNMask | rdma.QPRQPSNMask | rdma.QPMaxDestRdAtomicMask | rdma.QPMinRNRTimerMask},
		{rdma.StateRTS, rdma.QPTimeoutMask | rdma.QPRetryCntMask | rdma.QPRNRRetryMask | rdma.QPSQPSNMask | rdma.QPMaxRdAtomicMask},
	} {
		if err := qp.Modify(rdma.QPAttr{State: step.to, PortNum: 1, AV: rdma.AV{PortNum: 1}, PathMTU: rdma.MTU1024, DestQPNum: 99}, step.mask|rdma.QPStateMask); err != nil {
			t.Fatal(err)
		}
	}
	return qp
}

func (b *bench) write(id uint64) rdma.SendWR {
	return rdma.SendWR{WRID: id, Opcode: rdma.WRRDMAWrite, Flags: rdma.SendSignaled, SGL: []rdma.SGE{{Addr: b.mr.Addr(), Length: 8, LKey: b.mr.LKey()}}}
}

// pollError is the error of a Poll that must fail, and go on failing.
func pollError(t *testing.T, cq rdma.CQ) error {
	t.Helper()
	var wc [4]rdma.WC
	n, err := cq.Poll(wc[:])
	if n != 0 || err == nil {
		t.Fatalf("Poll: %d, %v, want an error", n, err)
	}
	if _, again := cq.Poll(wc[:]); again == nil {
		t.Error("a queue that failed works again")
	}
	return err
}

// Every verb that fails is named with its errno, and leaves what it stood on
// free to be closed.
func TestFailedVerbsAreNamed(t *testing.T) {
	testenv.Part(t, testenv.Tools)
	b := newBench(t)
	init := rdma.QPInitAttr{SendCQ: b.cq, RecvCQ: b.cq, Type: rdma.RC, Cap: rdma.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}}
	if err := b.ctx.Supports(rdma.FeatureRC); err != nil {
		t.Fatal(err)
	}
	closeOf := func(c interface{ Close() error }, err error) error {
		if err == nil {
			return c.Close()
		}
		return err
	}
	for _, c := range []struct {
		verb string
		call func() error
	}{
		{"alloc_pd", func() error { pd, err := b.ctx.AllocPD(); return closeOf(pd, err) }},
		{"create_cq", func() error { cq, err := b.ctx.CreateCQ(1); return closeOf(cq, err) }},
		{"create_qp", func() error { qp, err := b.pd.CreateQP(init); return closeOf(qp, err) }},
		{"reg_mr", func() error { mr, err := b.pd.AllocMR(64, 0); return closeOf(mr, err) }},
		{"reg_mr", func() error { mr, err := b.pd.RegMR(make([]byte, 64), 0); return closeOf(mr, err) }},
		{"create_ah", func() error { ah, err := b.pd.CreateAH(rdma.AV{PortNum: 1}); return closeOf(ah, err) }},
		{"query_port", func() error { _, err := b.ctx.QueryPort(1); return err }},
		{"query_gid", func() error { _, err := b.ctx.QueryGID(1, 0); return err }},
		{"modify_qp", func() error {
			return b.qp.Modify(rdma.QPAttr{AccessFlags: rdma.AccessRemoteRead}, rdma.QPAccessFlagsMask)
		}},
		{"post_send", func() error { _, err := b.qp.PostSend([]rdma.SendWR{b.write(1)}); return err }},
		{"post_recv", func() error { _, err := b.qp.PostRecv([]rdma.RecvWR{{WRID: 1}}); return err }},
		{"open_device", func() error { ctx, err := b.ctx.Device().Open(); return closeOf(ctx, err) }},
	} {
		for _, errno := range []syscall.Errno{syscall.ENOMEM, syscall.EPERM, syscall.EINVAL, syscall.EOPNOTSUPP, syscall.ENODEV} {
			t.Setenv("FAKE_FAIL", c.verb+":"+strconv.Itoa(int(errno)))
			err := c.call()
			var op *rdma.OpError
			if !errors.As(err, &op) || op.Op != c.verb || !errors.Is(err, errno) {
				t.Errorf("%s failing with %v: %v", c.verb, errno, err)
			}
		}
		t.Setenv("FAKE_FAIL", "")
	}
	// Everything closes, so nothing counts a child that was not made.
}

// A verb of destruction that fails leaves the object as it was.
func TestFailedCloseCanBeTriedAgain(t *testing.T) {
	testenv.Part(t, testenv.Tools)
	b := newBench(t)
	mr, err := b.pd.AllocMR(64, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("FAKE_FAIL", "dereg_mr:16,destroy_qp:5")
	if err := mr.Close(); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("dereg_mr that fails with EBUSY: %v", err)
	}
	if err := b.qp.Close(); !errors.Is(err, syscall.EIO) {
		t.Errorf("destroy_qp that fails with EIO: %v", err)
	}
	t.Setenv("FAKE_FAIL", "")
	if n, err := b.qp.PostSend([]rdma.SendWR{b.write(1)}); n != 1 || err != nil {
		t.Errorf("a post after the refused close: %d, %v", n, err)
	}
	if err := mr.Close(); err != nil {
		t.Errorf("dereg_mr once more: %v", err)
	}
}

// "Cannot" is kept, "could not be found out" is not.
func TestProbesKeepOnlyWhatIsConclusive(t *testing.T) {
	testenv.Part(t, testenv.Tools)
	for _, c := range []struct {
		errno      syscall.Errno
		conclusive bool
	}{{syscall.EPERM, false}, {syscall.ENOMEM, false}, {syscall.EINVAL, true}, {syscall.EOPNOTSUPP, true}} {
		t.Run(c.errno.Error(), func(t *testing.T) {
			ctx := openDevice(t, fakeDevice(t, fakeProvider(t)))
			t.Setenv("FAKE_FAIL", "create_qp:"+strconv.Itoa(int(c.errno)))
			err := ctx.Supports(rdma.FeatureUD)
			if errors.Is(err, rdma.ErrNotSupported) != c.conclusive || err == nil {
				t.Errorf("a trial that fails with %v: %v", c.errno, err)
			}
			if !c.conclusive && !errors.Is(err, c.errno) {
				t.Errorf("%v is not in %v", c.errno, err)
			}
			inline := ctx.QueryDevice().MaxInlineData
			t.Setenv("FAKE_FAIL", "")
			if err := ctx.Supports(rdma.FeatureUD); (err == nil) == c.conclusive {
				t.Errorf("asked again when it works: %v", err)
			}
			if c.errno == syscall.EPERM && (inline != 0 || ctx.QueryDevice().MaxInlineData != 128) {
				t.Errorf("inline data: %d while it could not be tried, then %d, want 0, then 128", inline, ctx.QueryDevice().MaxInlineData)
			}
		})
	}
}

func TestNoRDMAInTheKernel(t *testing.T) {
	testenv.Part(t, testenv.Tools)
	t.Setenv("FAKE_FAIL", "get_device_list:"+strconv.Itoa(int(syscall.ENOSYS)))
	_, err := fakeProvider(t).Devices()
	if !errors.Is(err, rdma.ErrNotSupported) || !strings.Contains(err.Error(), "ib_uverbs") {
		t.Errorf("Devices: %v, want a word about ib_uverbs", err)
	}
}

// A device that fails is an error of every CQ, behind what had completed.
func TestDeviceFatalEndsPolls(t *testing.T) {
	testenv.Part(t, testenv.Tools)
	for _, how := range []string{"FAKE_EVENT", "FAKE_GONE"} {
		t.Run(how, func(t *testing.T) {
			testenv.NoLeaks(t)
			b := newBench(t)
			idle, err := b.ctx.CreateCQ(1)
			if err != nil {
				t.Fatal(err)
			}
			defer idle.Close()
			t.Setenv(how, strconv.Itoa(int(rdma.EventDeviceFatal)))
			if n, err := b.qp.PostSend([]rdma.SendWR{b.write(7)}); n != 1 || err != nil {
				t.Fatalf("post: %d, %v", n, err)
			}
			event, err := b.ctx.GetAsyncEvent(testenv.Deadline(t, 10*time.Second))
			if err != nil || event.Type != rdma.EventDeviceFatal {
				t.Errorf("GetAsyncEvent: %+v, %v", event, err)
			}
			if err := pollError(t, idle); !errors.Is(err, rdma.ErrNoDevice) {
				t.Errorf("Poll of an idle queue: %v, want ENODEV", err)
			}
			var wc [4]rdma.WC
			if n, err := b.cq.Poll(wc[:]); n != 1 || err != nil || wc[0].WRID != 7 {
				t.Errorf("Poll of what had completed: %d, %v, %+v", n, err, wc[0])
			}
			if err := pollError(t, b.cq); !errors.Is(err, rdma.ErrNoDevice) {
				t.Errorf("Poll afterwards: %v, want ENODEV", err)
			}
		})
	}
}

// A CQ that is overrun is broken, and its queue pairs with it.
func TestCQErrorKillsItsQueuePairs(t *testing.T) {
	testenv.Part(t, testenv.Tools)
	b := newBench(t)
	t.Setenv("FAKE_EVENT", "0")
	if n, err := b.qp.PostSend([]rdma.SendWR{b.write(1)}); n != 1 || err != nil {
		t.Fatalf("post: %d, %v", n, err)
	}
	event, err := b.ctx.GetAsyncEvent(testenv.Deadline(t, 10*time.Second))
	if err != nil || event.Type != rdma.EventCQErr || event.CQ != b.cq {
		t.Errorf("GetAsyncEvent: %+v, %v", event, err)
	}
	_ = pollError(t, b.cq)
	if got := b.qp.State(); got != rdma.StateErr {
		t.Errorf("the queue pair is in %v, want ERR", got)
	}
}

func TestPollThatFails(t *testing.T) {
	testenv.Part(t, testenv.Tools)
	b := newBench(t)
	t.Setenv("FAKE_FAIL", "poll_cq:-1")
	if err := pollError(t, b.cq); !strings.Contains(err.Error(), "-1") {
		t.Errorf("Poll: %v", err)
	}
}

// A post that the library cut short: what it took completes under its own
// identity, what it did not never does, and the queue goes on.
func TestPostTakesAPart(t *testing.T) {
	testenv.Part(t, testenv.Tools)
	b := newBench(t)
	list := []rdma.SendWR{b.write(10), b.write(11), b.write(12)}
	for round := range uint64(200) { // round the ring some times
		t.Setenv("FAKE_TAKE", strconv.Itoa(int(round%3)))
		n, err := b.qp.PostSend(list)
		if n != int(round%3) || !errors.Is(err, syscall.ENOMEM) {
			t.Fatalf("round %d: took %d, %v", round, n, err)
		}
		var wc [8]rdma.WC
		t.Setenv("FAKE_STALE", "1") // which is dropped
		got, err := b.cq.Poll(wc[:])
		if err != nil || got != n {
			t.Fatalf("round %d: Poll gave %d, %v", round, got, err)
		}
		for i := range got {
			if wc[i].WRID != 10+uint64(i) || wc[i].Status != rdma.WCSuccess || wc[i].Opcode != rdma.WCRDMAWrite {
				t.Fatalf("round %d: completion %d is %+v", round, i, wc[i])
			}
		}
	}
	if c := b.ctx.Counters(); c.Writes != 199 || c.WriteBytes != 8*199 || c.Errors != 0 {
		t.Errorf("counted %+v", c)
	}
}

// Posts and polls allocate nothing.
func TestPostAndPollAllocateNothing(t *testing.T) {
	testenv.Part(t, testenv.Tools)
	b := newBench(t)
	inline := b.write(1)
	inline.Flags |= rdma.SendInline
	inline.SGL, inline.Inline = nil, make([]byte, 64)
	list := []rdma.SendWR{b.write(1), inline, b.write(2), b.write(3)}
	receives := []rdma.RecvWR{{WRID: 1, SGL: list[0].SGL}, {WRID: 2}}
	var wc [16]rdma.WC
	round := func() {
		if n, err := b.qp.PostSend(list); n != len(list) || err != nil {
			t.Fatalf("PostSend: %d, %v", n, err)
		}
		if n, err := b.qp.PostRecv(receives); n != len(receives) || err != nil {
			t.Fatalf("PostRecv: %d, %v", n, err)
		}
		if n, err := b.cq.Poll(wc[:]); n != 6 || err != nil {
			t.Fatalf("Poll: %d, %v", n, err)
		}
	}
	if n := testing.AllocsPerRun(200, round); n != 0 {
		t.Errorf("%v allocations a round, want 0", n)
	}
}

// BenchmarkPostAndPoll is the cost of the way into C and back: the library below
// does nothing.
func BenchmarkPostAndPoll(b *testing.B) {
	for _, size := range []int{1, 16} {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			f := newBench(b)
			list := make([]rdma.SendWR, size)
			for i := range list {
				list[i] = f.write(uint64(i))
			}
			wc := make([]rdma.WC, size)
			b.ReportAllocs()
			for b.Loop() {
				if n, err := f.qp.PostSend(list); n != size || err != nil {
					b.Fatal(n, err)
				}
				if n, err := f.cq.Poll(wc); n != size || err != nil {
					b.Fatal(n, err)
				}
			}
		})
	}
}
