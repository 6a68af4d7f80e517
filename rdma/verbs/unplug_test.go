//go:build cgo

package verbs_test

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rdma"
	"github.com/gorun-mpi/gorun/rdma/verbs"
)

// unplugVar says that the machine is made for the tests below: it names the
// interface under the last of the devices to be tested, which is taken down.
const unplugVar = "GORUN_TEST_UNPLUG"

// unplug gives the two devices and the interface of the second one; made is
// false on a machine that was not made for it.
func unplug(t *testing.T) (here, there rdma.Device, netif string, made bool) {
	t.Helper()
	if netif = os.Getenv(unplugVar); netif == "" {
		return nil, nil, "", false
	}
	devices := testDevices(t)
	if len(devices) != 2 {
		t.Fatalf("%s is set, and %s names %d devices, not two", unplugVar, devicesVar, len(devices))
	}
	return devices[0], devices[1], netif, true
}

func command(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
}

// An end is one side of a connection.
type end struct {
	t   *testing.T
	ctx rdma.Context
	cq  rdma.CQ
	mr  rdma.MR
	qp  rdma.QP
}

func newEnd(t *testing.T, d rdma.Device) *end {
	t.Helper()
	e := &end{t: t, ctx: openDevice(t, d)}
	own := func(c interface{ Close() error }, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := c.Close(); err != nil {
				t.Errorf("close a %T: %v", c, err)
			}
		})
	}
	pd, err := e.ctx.AllocPD()
	own(pd, err)
	e.cq, err = e.ctx.CreateCQ(16)
	own(e.cq, err)
	e.mr, err = pd.AllocMR(4096, rdma.AccessLocalWrite|rdma.AccessRemoteWrite)
	own(e.mr, err)
	e.qp, err = pd.CreateQP(rdma.QPInitAttr{SendCQ: e.cq, RecvCQ: e.cq, Type: rdma.RC,
		Cap: rdma.QPCap{MaxSendWR: 8, MaxRecvWR: 8, MaxSendSGE: 1, MaxRecvSGE: 1}})
	own(e.qp, err)
	return e
}

// connect takes the queue pair to RTS. Its requests are tried for a second or two.
func (e *end) connect(to *end) {
	e.t.Helper()
	gid, err := to.ctx.QueryGID(1, 0)
	if err != nil {
		e.t.Fatal(err)
	}
	attr := rdma.QPAttr{PortNum: 1, AccessFlags: rdma.AccessRemoteWrite, AV: rdma.AV{DGID: gid, PortNum: 1, HopLimit: 1}, PathMTU: rdma.MTU1024,
		DestQPNum: to.qp.Num(), MaxDestRdAtomic: 1, MaxRdAtomic: 1, MinRNRTimer: 12, Timeout: 16, RetryCnt: 5, RNRRetry: 5}
	for _, step := range []struct {
		to   rdma.QPState
		mask rdma.QPAttrMask
	}{
		{rdma.StateInit, rdma.QPPKeyIndexMask | rdma.QPPortMask | rdma.QPAccessFlagsMask},
		{rdma.StateRTR, rdma.QPAVMask | rdma.QPPathMTUMask | rdma.QPDestQPNMask | rdma.QPRQPSNMask | rdma.QPMaxDestRdAtomicMask | rdma.QPMinRNRTimerMask},
		{rdma.StateRTS, rdma.QPTimeoutMask | rdma.QPRetryCntMask | rdma.QPRNRRetryMask | rdma.QPSQPSNMask | rdma.QPMaxRdAtomicMask},
	} {
		attr.State = step.to
		if err := e.qp.Modify(attr, step.mask|rdma.QPStateMask); err != nil {
			e.t.Fatal(err)
		}
	}
}

func (e *end) write(id uint64, to *end) {
	e.t.Helper()
	wr := rdma.SendWR{WRID: id, Opcode: rdma.WRRDMAWrite, Flags: rdma.SendSignaled, RemoteAddr: to.mr.Addr(), RKey: to.mr.RKey(),
		SGL: []rdma.SGE{{Addr: e.mr.Addr(), Length: 8, LKey: e.mr.LKey()}}}
	if _, err := e.qp.PostSend([]rdma.SendWR{wr}); err != nil {
		e.t.Fatal(err)
	}
}

// next waits for a completion, or the end of the device, for half a minute.
func (e *end) next() (rdma.WC, error) {
	e.t.Helper()
	var wc [1]rdma.WC
	var err error
	testenv.Await(e.t, 30*time.Second, "a completion", func() bool {
		var n int
		n, err = e.cq.Poll(wc[:])
		return n > 0 || err != nil
	})
	return wc[0], err
}

// want waits for a completion of a status.
func (e *end) want(id uint64, status rdma.WCStatus) {
	e.t.Helper()
	if wc, err := e.next(); err != nil || wc.WRID != id || wc.Status != status {
		e.t.Fatalf("completion %d %q, %v, want %d %q", wc.WRID, wc.Status, err, id, status)
	}
}

// hears waits for an event of the device.
func (e *end) hears(want rdma.EventType) {
	e.t.Helper()
	for limit := testenv.Deadline(e.t, 30*time.Second); ; {
		event, err := e.ctx.GetAsyncEvent(limit)
		if err != nil {
			e.t.Fatalf("waiting for %v: %v", want, err)
		}
		if event.Type == want {
			return
		}
	}
}

func (e *end) portIs(want rdma.PortState) {
	e.t.Helper()
	if p, err := e.ctx.QueryPort(1); err != nil || p.State != want {
		e.t.Errorf("the port is in state %v, %v, want %v", p.State, err, want)
	}
}

// A port that goes down is an event and a state, and what is sent over it an error.
func TestPortDown(t *testing.T) {
	testenv.Part(t, testenv.Tools)
	near, far, netif, made := unplug(t)
	if !made {
		return
	}
	a, b := newEnd(t, near), newEnd(t, far)
	a.connect(b)
	b.connect(a)
	a.write(1, b)
	a.want(1, rdma.WCSuccess)
	command(t, "ip", "link", "set", netif, "down")
	b.hears(rdma.EventPortErr)
	b.portIs(rdma.PortDown)
	a.write(2, b)
	a.write(3, b)
	a.want(2, rdma.WCRetryExcErr)
	a.want(3, rdma.WCWRFlushErr)
	if got := a.qp.State(); got != rdma.StateErr {
		t.Errorf("the queue pair is in %v, want ERR", got)
	}
	command(t, "ip", "link", "set", netif, "up")
	b.hears(rdma.EventPortActive)
	b.portIs(rdma.PortActive)
}

// A device that is removed while it is used ends every wait, if its driver gives
// it up at once. Soft-RoCE's does not: the device is no longer listed, works on
// for who has it open, and goes when the last one closes it.
func TestRemovedWhileInUse(t *testing.T) {
	testenv.Part(t, testenv.Tools)
	near, far, _, made := unplug(t)
	if !made {
		return
	}
	removed := make(chan error, 1)
	t.Run("in use", func(t *testing.T) {
		a, b := newEnd(t, near), newEnd(t, far)
		a.connect(b)
		b.connect(a)
		go func() { removed <- exec.Command("rdma", "link", "delete", far.Name()).Run() }()
		testenv.Await(t, 30*time.Second, "the device is no longer listed", func() bool { return !listed(t, far.Name()) })
		b.write(1, a)
		switch wc, err := b.next(); {
		case errors.Is(err, rdma.ErrNoDevice):
		case err != nil || wc.WRID != 1 || wc.Status != rdma.WCSuccess:
			t.Errorf("completion %d %q, %v", wc.WRID, wc.Status, err)
		}
	})
	select {
	case err := <-removed:
		if err != nil {
			t.Errorf("remove the device: %v", err)
		}
	case <-testenv.Deadline(t, 30*time.Second).Done():
		t.Fatal("the device is still there")
	}
	if _, err := far.Open(); !errors.Is(err, rdma.ErrNoDevice) {
		t.Errorf("Open of a device that is gone: %v", err)
	}
}

func listed(t *testing.T, name string) bool {
	t.Helper()
	devices, err := verbs.New(verbs.Config{}).Devices()
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(devices, func(d rdma.Device) bool { return d.Name() == name })
}
