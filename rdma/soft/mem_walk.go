package soft

import (
	"fmt"
	"sync/atomic"

	"github.com/gorun-mpi/gorun/rdma"
)

// A Step is one check of a request by the responder's device.
type Step struct {
	Name   string        // "index", "tag", "domain" ...
	Found  string        // what the device compares, as text
	Status rdma.WCStatus // WCSuccess, or the status of the request that this check refuses
}

// Walk shows the checks of a request for the queue pair qp of this package before its bytes move, in their
// order, up to the first that fails. It uses the present tables of the device. It reads and writes no data.
//
//	request  the queue pair grants the operation; an atomic is 8 bytes at a multiple of 8
//	index    the upper 24 bits of the key are a line of the protection table (MPT)
//	tag      the line is live, and has the key's low 8 bits
//	domain   the line and the queue pair have the same protection domain
//	range    the bytes lie in the region
//	rights   the region grants what the operation needs
//	binding  of a window of type 2: it is bound for this queue pair
//	entry    the translation table (MTT) has memory for the bytes, for an atomic a word
//	page     the first page is mapped, and so are the others; the offset in it
//
// A read or write of length 0, and an operation that moves bytes to a
// receive buffer, name no remote memory: they have only the first step.
func Walk(qp rdma.QP, op rdma.WROpcode, rkey uint32, addr, length uint64) []Step {
	q := qp.(*queuePair)
	o, p, s := op.Operation(), q.p, q.p.self
	steps, e := walkTables(p.regions, q.own, o, rkey, addr, length)
	if e == nil {
		return steps
	}
	check := func(ok bool, failed rdma.WCStatus, name, format string, args ...any) bool {
		return note(&steps, ok, failed, name, format, args...)
	}
	off := addr - e.addr
	var sp span
	translated := s.open(&sp, q.own, rkey, addr, length, o.Access)
	pieces := []span{sp}
	if translated && sp.key != 0 {
		pieces, translated = s.pieces(&sp, length)
	}
	word := o.Moves != rdma.MovesWord || len(pieces[0].mem) == 8 && addressOf(pieces[0].mem)%8 == 0
	failed := rdma.WCRemAccessErr
	if translated && !word {
		failed = rdma.WCRemInvReqErr
	}
	if !check(translated && word, failed, "entry", "%s, %d of it is %#x of the process", kindNames[e.kind&^kindPrivate], off, addressOf(pieces[0].mem)) {
		return steps
	}
	for _, piece := range pieces {
		at, n := addressOf(piece.mem), uint64(len(piece.mem))
		mapped := !piece.guard || p.touches(piece.mem, o.Access != rdma.AccessRemoteRead)
		if !check(mapped, rdma.WCRemAccessErr, "page", "page %#x, offset %d, %d bytes", at/pageSize, at%pageSize, n) {
			break
		}
	}
	return steps
}

// WalkPeer is Walk as far as binding for a request of the connected queue pair qp: by the tables of its peer, in the same segment,
// which may change meanwhile. nil: qp has none.
func WalkPeer(qp rdma.QP, op rdma.WROpcode, rkey uint32, addr, length uint64) []Step {
	q := qp.(*queuePair)
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.peer == nil || q.remote == nil {
		return nil
	}
	steps, _ := walkTables(q.peer.regions, q.remote, op.Operation(), rkey, addr, length)
	return steps
}

// note appends a step, and tells whether the request goes on.
func note(steps *[]Step, ok bool, failed rdma.WCStatus, name, format string, args ...any) bool {
	if ok {
		failed = rdma.WCSuccess
	}
	*steps = append(*steps, Step{name, fmt.Sprintf(format, args...), failed})
	return ok
}

// walkTables has the steps that the tables of a device tell of a request for its queue pair c, from request to binding. Without an
// entry none follows.
func walkTables(regions []regionEntry, c *queueContext, o *rdma.Operation, rkey uint32, addr, length uint64) (steps []Step, e *regionEntry) {
	denied := func(ok bool, name, format string, args ...any) bool {
		return note(&steps, ok, rdma.WCRemAccessErr, name, format, args...)
	}
	rights := atomic.LoadUint32(&c.rights)
	aligned := o.Moves != rdma.MovesWord || addr%8 == 0 && length == uint64(o.Bytes)
	if !note(&steps, permits(rights, o) && aligned, rdma.WCRemInvReqErr, "request", "%s of %d bytes, queue pair %d grants %v",
		o.Name, length, c.num, rdma.Access(rights&0xff)) || o.Needs&rdma.NeedsRemote == 0 || length == 0 {
		return steps, nil
	}
	index := rkey >> 8
	if !denied(int(index) < len(regions), "index", "key %#x is line %d of %d", rkey, index, len(regions)) {
		return steps, nil
	}
	e = &regions[index]
	state := atomic.LoadUint64(&e.state)
	found := "nothing"
	if state&regionLive != 0 {
		found = fmt.Sprintf("tag %#02x", uint8(state))
	}
	if !denied(state == uint64(rkey)|regionLive, "tag", "tag %#02x, the line has %s", uint8(rkey), found) ||
		!denied(e.pd == c.pd, "domain", "domain %d, the line has %d", c.pd, e.pd) {
		return steps, nil
	}
	off := addr - e.addr
	inside := addr >= e.addr && off <= e.length && length <= e.length-off
	if !denied(inside, "range", "%#x to %#x, the region has %#x to %#x", addr, addr+length, e.addr, e.addr+e.length) ||
		!denied(uint32(o.Access)&^e.access == 0, "rights", "%v, the region grants %v", o.Access, rdma.Access(e.access)) {
		return steps, nil
	}
	if e.kind&kindPrivate != 0 && !denied(e.queue == c.num, "binding", "queue pair %d, the window is for %d", c.num, e.queue) {
		e = nil
	}
	return steps, e
}

var kindNames = map[uint32]string{kindSegment: "memory of the arena", kindOrdinary: "memory of the process",
	kindImplicit: "the whole address space", kindShared: "a list of grants", kindMkey: "a layout of pieces"}

// pieces is the memory behind a place in a layout.
func (s *peer) pieces(t *span, n uint64) (list []span, ok bool) {
	w, ok := s.walk(t.key, t.va, n)
	for ok && w.left > 0 {
		var b block
		var sp span
		if b, ok = w.next(); ok {
			ok = s.resolve(&sp, b.lkey, w.pd, b.addr, b.n, t.need) && sp.key == 0
			list = append(list, sp)
		}
	}
	return append(list, span{})[:max(1, len(list))], ok
}

// touches tells whether memory is mapped, and may be written if asked.
func (p *Provider) touches(mem []byte, write bool) bool {
	if p.maps.check(addressOf(mem), uint64(len(mem)), write) != nil {
		return false
	}
	var b [1]byte
	for i := uint64(0); i < uint64(len(mem)); i += pageSize - (addressOf(mem)+i)%pageSize {
		if !guarded(b[:], mem[i:i+1]) {
			return false
		}
	}
	return true
}
