package verbs

/*
#include "shim.h"
*/
import "C"

import (
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/gorun-mpi/gorun/rdma"
)

// A completionQueue is a CQ.
type completionQueue struct {
	c          *deviceContext
	h          handle
	node       node
	channel    *channel
	extended   bool
	timestamps bool
	tags       bool // it tells of tags
	broken     atomic.Pointer[rdma.OpError]

	mu      sync.Mutex // guards what follows, and tail and count of the work queues that complete here
	gone    bool
	entries int
	harvest harvest
}

var _ rdma.CQ = (*completionQueue)(nil)

func (c *deviceContext) CreateCQ(cqe int) (rdma.CQ, error) {
	return c.createCQ("create_cq", rdma.CQInitAttr{CQE: cqe}, false)
}

// CreateCQEx makes an extended queue where something asks for one.
func (c *deviceContext) CreateCQEx(attr rdma.CQInitAttr) (rdma.CQ, error) {
	return c.createCQ("create_cq_ex", attr, attr.Timestamps || attr.IgnoreOverrun || c.matchesTags())
}

func (c *deviceContext) createCQ(op string, attr rdma.CQInitAttr, extended bool) (rdma.CQ, error) {
	if attr.CQE < 1 || attr.CQE > c.attr.MaxCQE {
		return nil, invalid(op, "%d entries: the device has 1 to %d", attr.CQE, c.attr.MaxCQE)
	}
	q := &completionQueue{c: c, extended: extended, timestamps: attr.Timestamps, tags: extended && c.matchesTags()}
	init := C.gv_cq_init{cqe: C.int(attr.CQE), extended: truth(extended), timestamps: truth(attr.Timestamps), tags: truth(q.tags), ignore_overrun: truth(attr.IgnoreOverrun)}
	parents := []*node{&c.node}
	if attr.Channel != nil {
		ch, ok := attr.Channel.(*channel)
		if !ok || ch.c != c {
			return nil, invalid(op, "the channel is of another context")
		}
		q.channel, init.channel = ch, ch.h
		parents = append(parents, &ch.node)
	}
	if !q.harvest.reserve(1) {
		return nil, failed(op, C.int(syscall.ENOMEM), "")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	err := check(op, parents...)
	if err == nil {
		err = failed(op, C.gv_create_cq(&c.lib.c, c.h, &init), strconv.Itoa(attr.CQE)+" entries")
	}
	if err != nil {
		q.harvest.free()
		return nil, err
	}
	q.node.adopt(parents...)
	q.h, q.entries = init.handle, int(init.cqe)
	c.name(q.h, q)
	return q, nil
}

// Poll moves completions out in one call of C for up to batchLimit of them.
func (q *completionQueue) Poll(wc []rdma.WC) (int, error) {
	q.mu.Lock()
	got, more, err := 0, true, q.usable()
	if q.extended && err == nil {
		got, err = q.pollExtended(len(wc), func(i int, e *rdma.WCEx) { wc[i] = e.WC })
		more = false
	}
	for more && err == nil && got < len(wc) {
		ask := q.room(len(wc) - got)
		n := q.harvest.poll(q.h, ask)
		if n < 0 {
			err = q.fail(n)
			break
		}
		got += q.translateAll(q.harvest.wcs[:n], wc[got:])
		more = n == ask
	}
	if got == 0 && err == nil {
		_, err = q.found(0)
	}
	q.mu.Unlock()
	return got, err
}

// found is the end of a poll: one that found nothing tells of a device that is no more.
func (q *completionQueue) found(got int) (int, error) {
	if got == 0 {
		if err := q.c.dead.Load(); err != nil {
			return 0, err
		}
	}
	return got, nil
}

// room is how many completions the next call may bring.
func (q *completionQueue) room(want int) int {
	if want <= len(q.harvest.wcs) {
		return want
	}
	q.harvest.reserve(want) // without memory it stays as it is
	return min(want, len(q.harvest.wcs))
}

func (q *completionQueue) usable() error {
	if q.gone {
		return invalid("poll_cq", "the queue is closed")
	}
	if err := q.broken.Load(); err != nil {
		return err
	}
	return nil
}

// fail is for a library that cannot poll: what it says once holds for good.
func (q *completionQueue) fail(rc int) error {
	e := &rdma.OpError{Op: "poll_cq", Detail: "the library returned " + strconv.Itoa(rc), Err: syscall.EIO}
	q.broken.CompareAndSwap(nil, e)
	return q.broken.Load()
}

// translateAll makes completions what the program knows and gives how many that are.
// Most are of requests that were executed: those are retired here, queue by queue, as
// workQueue.retire does it one by one.
func (q *completionQueue) translateAll(raws []rawWC, wc []rdma.WC) (got int) {
	var l *workQueue
	var next, tail, outstanding uint64 // of the work queue: the next's identity, its number, and how many there are
	for i := range raws {
		raw, to := &raws[i], &wc[got]
		behind := raw.wrID - next // what it is behind, in units of an identity
		if l == nil || behind&queueMask != 0 {
			if l != nil {
				l.tail.Store(tail)
			}
			if l = q.c.workQueues.of(raw.wrID); l != nil {
				tail = l.tail.Load()
				next, outstanding = l.id(tail), l.head.Load()-tail
				behind = raw.wrID - next
			}
		}
		if l == nil || !l.send || raw.status != uint32(rdma.WCSuccess) || raw.opcode >= uint32(rdma.WCRecv) {
			if l != nil {
				l.tail.Store(tail)
				l = nil
			}
			if q.translate(raw, to) {
				got++
			}
			continue
		}
		behind >>= queueBits
		if behind >= outstanding {
			continue
		}
		outstanding -= behind + 1
		next += (behind + 1) << queueBits
		for ; behind > 0; behind-- {
			l.count.add(l.at(tail))
			tail++
		}
		e := l.at(tail)
		l.count.add(e)
		tail++
		*to = rdma.WC{}
		to.WRID, to.Opcode, to.VendorErr, to.ByteLen, to.QPNum = e.wrid, rdma.WCOpcode(raw.opcode), raw.vendorErr, raw.byteLen, raw.qpNum
		got++
	}
	if l != nil {
		l.tail.Store(tail) // the entries may be overwritten from here on
	}
	return got
}

// translate makes a completion what the program knows. It is false for one of a
// queue that is no more.
func (q *completionQueue) translate(raw *rawWC, wc *rdma.WC) bool {
	l := q.c.workQueues.of(raw.wrID)
	if l == nil {
		return false
	}
	status := rdma.WCStatus(raw.status)
	*wc = rdma.WC{Status: status, VendorErr: raw.vendorErr, QPNum: raw.qpNum}
	pair := l.pair
	if l.shared != nil && l.shared.tags != nil {
		return l.shared.tagged(l, raw, wc)
	}
	if l.shared != nil {
		wrid, ok := l.shared.take(raw.wrID)
		if !ok {
			return false
		}
		wc.WRID = wrid
		// The receive is used up, but its queue pair is gone, or was reset, and
		// the completion with it.
		if pair = q.c.numbered(raw.qpNum); pair == nil {
			if l.shared.xrcd == nil {
				return false
			}
			pair = q.c.elsewhere
		}
	} else {
		wrid, ok := l.retire(raw.wrID, status == rdma.WCSuccess)
		if !ok {
			return false
		}
		wc.WRID = wrid
	}
	if status != rdma.WCSuccess {
		// A failed send of a datagram or of UC stops only the send queue (SQE).
		if !l.send || pair.init.Type == rdma.RC {
			pair.failed.Store(true)
		}
		return true
	}
	if raw.opcode == wcDriver1 {
		wc.Opcode = rdma.WCRegMkey
		return true
	}
	wc.Opcode, wc.ByteLen = rdma.WCOpcode(raw.opcode), raw.byteLen
	if wc.Opcode < rdma.WCRecv { // some drivers leave flags of the request here
		return true
	}
	// Of a connection the sender is known, and there is no header.
	if raw.flags&rxeWithInv != 0 && q.c.attr.VendorID == rxeVendor {
		raw.flags |= uint32(rdma.WCFlagWithInv)
	}
	wc.SrcQP, wc.Flags = raw.srcQP, rdma.WCFlags(raw.flags)&knownFlags
	switch pair.init.Type {
	case rdma.UD:
	case rdma.DCT: // whose initiators are many
		wc.Flags &^= rdma.WCFlagGRH
	default:
		wc.SrcQP, wc.Flags = pair.peer.Load(), wc.Flags&^rdma.WCFlagGRH
	}
	switch {
	case wc.Flags&rdma.WCFlagWithImm != 0:
		wc.ImmData = network(raw.imm)
	case wc.Flags&rdma.WCFlagWithInv != 0:
		wc.ImmData = raw.imm
	}
	return true
}

const knownFlags = rdma.WCFlagGRH | rdma.WCFlagWithImm | rdma.WCFlagWithInv

// rxeWithInv is where Soft-RoCE has IBV_WC_WITH_INV: at the kernel's bit of that
// name, which libibverbs calls IBV_WC_IP_CSUM_OK.
const rxeWithInv = 1 << 2

// PollEx polls an extended queue, or an ordinary one without its extras.
func (q *completionQueue) PollEx(wc []rdma.WCEx) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.usable(); err != nil {
		return 0, err
	}
	if !q.extended {
		clear(wc)
		got := 0
		for got < len(wc) {
			ask := q.room(len(wc) - got)
			n := q.harvest.poll(q.h, ask)
			if n < 0 {
				return got, q.fail(n)
			}
			for i := range n {
				if q.translate(&q.harvest.wcs[i], &wc[got].WC) {
					got++
				}
			}
			if n < ask {
				break
			}
		}
		return q.found(got)
	}
	return q.pollExtended(len(wc), func(i int, e *rdma.WCEx) { wc[i] = *e })
}

func (q *completionQueue) pollExtended(limit int, put func(int, *rdma.WCEx)) (int, error) {
	got := 0
	for got < limit {
		ask := q.room(limit - got)
		n := q.harvest.pollEx(q.h, ask, q.timestamps, q.tags)
		if n < 0 {
			return got, q.fail(n)
		}
		for i := range q.harvest.ex[:n] {
			e := &q.harvest.ex[i]
			var wc rdma.WCEx
			if q.translate(&rawWC{wrID: uint64(e.wr_id), status: uint32(e.status), opcode: uint32(e.opcode), vendorErr: uint32(e.vendor_err),
				byteLen: uint32(e.byte_len), imm: uint32(e.imm), qpNum: uint32(e.qp_num), srcQP: uint32(e.src_qp), flags: uint32(e.flags)}, &wc.WC) {
				wc.Timestamp = uint64(e.timestamp)
				wc.TMTag, wc.TMAppCtx = uint64(e.tag), uint32(e.app_ctx)
				put(got, &wc)
				got++
			}
		}
		if n < ask {
			break
		}
	}
	return q.found(got)
}

// broke is called when the device says that the queue was overrun: completions
// are lost, so the queue pairs that complete here go to ERR.
func (q *completionQueue) broke() {
	q.broken.CompareAndSwap(nil, &rdma.OpError{Op: "poll_cq", Detail: "the queue was overrun", Err: syscall.EOVERFLOW})
	q.c.mu.Lock()
	var victims []*queuePair
	for p := range q.c.queues {
		if p.sendCQ == q || p.recvCQ == q {
			victims = append(victims, p)
		}
	}
	q.c.mu.Unlock()
	for _, p := range victims {
		p.kill()
	}
}

func (q *completionQueue) ReqNotify(solicitedOnly bool) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.gone:
		return invalid("req_notify_cq", "the queue is closed")
	case q.channel == nil:
		return invalid("req_notify_cq", "the queue has no channel")
	}
	return failed("req_notify_cq", C.gv_req_notify_cq(q.h, truth(solicitedOnly)), "")
}

func (q *completionQueue) Resize(cqe int) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.gone {
		return invalid("resize_cq", "the queue is closed")
	}
	if cqe < 1 || cqe > q.c.attr.MaxCQE {
		return invalid("resize_cq", "%d entries: the device has 1 to %d", cqe, q.c.attr.MaxCQE)
	}
	n := C.int(cqe)
	if err := failed("resize_cq", C.gv_resize_cq(&q.c.lib.c, q.h, &n), strconv.Itoa(cqe)+" entries"); err != nil {
		return err
	}
	q.entries = int(n)
	return nil
}

func (q *completionQueue) Cap() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.entries
}

func (q *completionQueue) Close() error {
	return q.c.shut("destroy_cq", &q.node, func() error {
		q.c.unname(q.h)
		q.mu.Lock()
		defer q.mu.Unlock()
		if err := failed("destroy_cq", C.gv_destroy_cq(&q.c.lib.c, q.h), ""); err != nil {
			q.c.name(q.h, q)
			return err
		}
		q.gone = true
		q.harvest.free()
		return nil
	})
}
