package verbs

/*
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/gorun-mpi/gorun/rdma"
)

// A deviceContext is an open device.
type deviceContext struct {
	device *device
	lib    *library
	h      handle
	attr   rdma.DeviceAttr
	caps   C.gv_device_attr

	workQueues workQueues
	// dead is set when the device is gone or has failed: Poll says so.
	dead  atomic.Pointer[rdma.OpError]
	watch *watcher

	// Locks of the context are taken after those of queue pairs, and in this
	// order; those of CQs between countMu and mu.

	countMu sync.Mutex    // keeps queue pairs from moving to past while their counts are added up
	past    rdma.Counters // of queue pairs that are closed

	mu      sync.Mutex // guards node and that of every object, queues and windows
	node    node
	queues  map[*queuePair]struct{}
	windows map[*window]struct{}

	numbers sync.Map // number -> *queuePair, for receives from shared queues
	// elsewhere stands for the XRC targets of other contexts, and processes, whose
	// messages come into the shared queues of their domain.
	elsewhere *queuePair

	evMu    sync.Mutex     // guards objects; never held across a verb
	objects map[handle]any // which an event of libibverbs means

	retries retryCounters
}

var _ rdma.Context = (*deviceContext)(nil)

// Open opens the device.
func (d *device) Open() (rdma.Context, error) {
	opened, err := d.lib.openDevice(d.name)
	if err != nil {
		return nil, err
	}
	c := &deviceContext{device: d, lib: d.lib, h: opened.handle, queues: make(map[*queuePair]struct{}), windows: make(map[*window]struct{}), objects: make(map[handle]any)}
	if rc := C.gv_query_device(&c.lib.c, c.h, &c.caps); rc != 0 {
		return nil, c.abandon(failed("query_device", rc, d.name))
	}
	c.attr = c.limits()
	c.elsewhere = &queuePair{c: c, init: rdma.QPInitAttr{Type: rdma.XRCRecv}}
	if c.watch, err = newWatcher(c, int(opened.async_fd)); err != nil {
		return nil, c.abandon(err)
	}
	c.retries = newRetryCounters(d.name)
	return c, nil
}

// abandon undoes a half-made Open.
func (c *deviceContext) abandon(err error) error {
	C.gv_close_device(&c.lib.c, c.h)
	return err
}

// limits are what query_device says, but for what only a trial tells.
func (c *deviceContext) limits() rdma.DeviceAttr {
	a := &c.caps
	attr := rdma.DeviceAttr{
		MaxQP: int(a.max_qp), MaxQPWR: int(a.max_qp_wr), MaxSGE: int(a.max_sge), MaxCQ: int(a.max_cq), MaxCQE: int(a.max_cqe),
		MaxMR: int(a.max_mr), MaxMRSize: uint64(a.max_mr_size), MaxPD: int(a.max_pd),
		MaxQPRdAtom: int(a.max_qp_rd_atom), MaxQPInitRdAtom: int(a.max_qp_init_rd_atom),
		MaxSRQ: int(a.max_srq), MaxSRQWR: int(a.max_srq_wr), MaxSRQSGE: int(a.max_srq_sge), MaxMW: int(a.max_mw), MaxAH: int(a.max_ah),
		ClockHz: uint64(a.clock_khz) * 1000, Firmware: C.GoString(&a.fw_ver[0]), VendorID: uint32(a.vendor_id), NodeGUID: uint64(a.node_guid),
		SRQResize: a.cap_flags&capSRQResize != 0,
		OneSided:  true,
		ODP:       a.odp_general&odpImplicit != 0,
	}
	if c.matchesTags() {
		attr.MaxTags, attr.MaxTagOps, attr.MaxTagSGE, attr.MaxRndvHdr = int(a.tm_tags), int(a.tm_ops), int(a.tm_sge), int(a.tm_rndv_hdr)
	}
	// Reads may scatter to less than sends gather from; one limit serves both.
	if n := int(a.max_sge_rd); n > 0 {
		attr.MaxSGE = min(attr.MaxSGE, n)
	}
	return attr
}

func (c *deviceContext) Device() rdma.Device { return c.device }

// QueryDevice gives the limits. The first call tries out how much fits inline,
// which no verb tells.
func (c *deviceContext) QueryDevice() rdma.DeviceAttr {
	attr := c.attr
	attr.MaxInlineData = c.maxInline()
	if c.Supports(rdma.FeatureUMR) == nil {
		attr.MaxMkeyEntries = roomForPieces(attr.MaxInlineData, true)
	}
	return attr
}

func (c *deviceContext) QueryPort(port uint8) (rdma.PortAttr, error) {
	p, err := c.port("query_port", port)
	if err != nil {
		return rdma.PortAttr{}, err
	}
	return rdma.PortAttr{
		State: rdma.PortState(p.state), MaxMTU: rdma.MTU(p.max_mtu), ActiveMTU: rdma.MTU(p.active_mtu),
		LID: uint16(p.lid), GIDTblLen: int(p.gid_tbl_len), MaxMsgSz: uint32(p.max_msg_sz),
	}, nil
}

func (c *deviceContext) port(op string, port uint8) (p C.gv_port_attr, err error) {
	if port == 0 || int(port) > int(c.caps.ports) {
		return p, invalid(op, "port %d: the device has ports 1 to %d", port, int(c.caps.ports))
	}
	err = failed(op, C.gv_query_port(&c.lib.c, c.h, C.uint8_t(port), &p), "port "+strconv.Itoa(int(port)))
	return p, err
}

func (c *deviceContext) QueryGID(port uint8, index int) (gid rdma.GID, err error) {
	p, err := c.port("query_gid", port)
	if err != nil {
		return gid, err
	}
	if index < 0 || index >= int(p.gid_tbl_len) {
		return gid, invalid("query_gid", "index %d of a table of %d", index, int(p.gid_tbl_len))
	}
	var raw [16]C.uint8_t
	if rc := C.gv_query_gid(&c.lib.c, c.h, C.uint8_t(port), C.int(index), &raw[0]); rc != 0 {
		return gid, failed("query_gid", rc, fmt.Sprintf("port %d, index %d", port, index))
	}
	for i, b := range raw {
		gid[i] = byte(b)
	}
	return gid, nil
}

// Counters adds up what completions have told. Retries are the device's own
// counts in sysfs, of all its contexts together, where its driver keeps them.
func (c *deviceContext) Counters() rdma.Counters {
	c.countMu.Lock()
	defer c.countMu.Unlock()
	sum := c.past
	c.mu.Lock()
	queues := make([]*queuePair, 0, len(c.queues))
	for q := range c.queues {
		queues = append(queues, q)
	}
	c.mu.Unlock()
	for _, q := range queues {
		q.counters(&sum)
	}
	sum.RNRRetries, sum.AckRetries = c.retries.since()
	return sum
}

// Close closes the device.
func (c *deviceContext) Close() error {
	return c.shut("close_device", &c.node, func() error {
		c.watch.stop()
		return failed("close_device", C.gv_close_device(&c.lib.c, c.h), "")
	})
}

// name makes an object known to the watcher of events.
func (c *deviceContext) name(h handle, object any) {
	c.evMu.Lock()
	c.objects[h] = object
	c.evMu.Unlock()
}

// unname precedes the object's destruction, behind which its handle may be
// another's.
func (c *deviceContext) unname(h handle) {
	c.evMu.Lock()
	delete(c.objects, h)
	c.evMu.Unlock()
}

func (c *deviceContext) named(h handle) any {
	c.evMu.Lock()
	defer c.evMu.Unlock()
	return c.objects[h]
}

// numbered is the queue pair of that number, nil when it is closed.
func (c *deviceContext) numbered(num uint32) *queuePair {
	if q, ok := c.numbers.Load(num); ok {
		return q.(*queuePair)
	}
	return nil
}

// truth is C's.
func truth(b bool) C.int {
	if b {
		return 1
	}
	return 0
}

func itoa(n int) string { return strconv.Itoa(n) }

// retryCounters reads what drivers count in /sys/class/infiniband.
type retryCounters struct {
	rnr, ack           []string // files, of which the first that is there counts
	rnrBegan, ackBegan uint64
}

func newRetryCounters(device string) retryCounters {
	const pattern = "/sys/class/infiniband/%s/ports/1/hw_counters/%s"
	var r retryCounters
	for _, name := range []string{"rcvd_rnr_err", "rnr_nak_retry_err"} { // rxe, mlx5
		r.rnr = append(r.rnr, fmt.Sprintf(pattern, device, name))
	}
	for _, name := range []string{"completer_retry_err", "local_ack_timeout_err"} {
		r.ack = append(r.ack, fmt.Sprintf(pattern, device, name))
	}
	r.rnrBegan, r.ackBegan = readCount(r.rnr), readCount(r.ack)
	return r
}

func (r *retryCounters) since() (rnr, ack uint64) {
	return readCount(r.rnr) - r.rnrBegan, readCount(r.ack) - r.ackBegan
}

func readCount(files []string) uint64 {
	for _, f := range files {
		if b, err := os.ReadFile(f); err == nil {
			n, _ := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64) // no number counts as none
			return n
		}
	}
	return 0
}

// errGone is what a context says whose device has failed or was removed.
func errGone(t rdma.EventType) *rdma.OpError {
	return &rdma.OpError{Op: "poll_cq", Detail: "the device reported: " + t.String(), Err: syscall.ENODEV}
}
