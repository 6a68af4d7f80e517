//go:build cgo

package verbs

import "github.com/gorun-mpi/gorun/rdma"

// PostSend lays the requests out in C memory and posts up to batchLimit of them
// by one call of C.
func (q *queuePair) PostSend(wrs []rdma.SendWR) (int, error) {
	const op = "post_send"
	if len(wrs) == 0 {
		return 0, nil
	}
	if q.send == nil {
		return 0, invalid(op, "%v has no send queue", q.init.Type)
	}
	q.sendMu.Lock()
	taken, err := 0, error(nil)
	switch l, b := q.send, &q.sends; {
	case !q.sendOK:
		err = q.refused(op)
	case len(wrs) <= len(b.wrs) && len(wrs) <= l.free() && layOutData(l, b, q.plain, 0, wrs) == len(wrs):
		taken, err = q.commit(wrs) // as most are
	default:
		for taken < len(wrs) && err == nil {
			var n int
			n, err = q.postSends(wrs[taken:])
			taken += n
		}
	}
	if taken > 0 {
		q.batches.Add(1)
	}
	q.sendMu.Unlock()
	return taken, err
}

// commit posts requests that were laid out in the batch and in the ring.
func (q *queuePair) commit(wrs []rdma.SendWR) (taken int, err error) {
	// The entries must be there before the device can complete one.
	head := q.send.head.Load()
	q.send.head.Store(head + uint64(len(wrs)))
	taken, rc := q.submit(&q.sends, len(wrs), wrs)
	if rc != 0 {
		q.send.head.Store(head + uint64(taken))
		err = failed("post_send", rc, "")
	}
	return taken, err
}

// refused is the error of a post in a state that does not take it.
func (q *queuePair) refused(op string) error {
	return invalid(op, "the queue pair is closed, or its state does not permit it")
}

// postSends posts as many of wrs as fit into one batch. Without an error it took
// one at least.
func (q *queuePair) postSends(wrs []rdma.SendWR) (int, error) {
	l, b := q.send, &q.sends
	limit := min(len(wrs), batchLimit, l.free())
	if limit == 0 {
		return 0, errFull("post_send")
	}
	if !b.reserve(limit) {
		return 0, errFull("post_send: batch")
	}
	head := l.head.Load()
	var bad error
	n := 0
	for {
		if n = layOutData(l, b, q.plain, n, wrs[:limit]); n == limit {
			break
		}
		if bad = q.layOut(n, head+uint64(n), &wrs[n]); bad != nil {
			break
		}
		if n++; n == limit || wrs[n-1].Opcode.Operation().Needs&(rdma.NeedsWindow|rdma.NeedsLayout) != 0 {
			break // what follows may need the window's new key, or room for another layout
		}
	}
	if n == 0 {
		return 0, bad
	}
	var w *window
	if wrs[n-1].Opcode.Operation().Needs&rdma.NeedsWindow != 0 {
		w = wrs[n-1].MW.(*window)
		w.mu.Lock()
		b.wrs[n-1].mw = uint64(w.h)
	}
	taken, err := q.commit(wrs[:n])
	if w != nil {
		if taken == n {
			w.bound(q, wrs[n-1].RKey)
		}
		w.mu.Unlock()
	}
	if err != nil {
		return taken, err
	}
	return taken, bad
}

// plainOps are the operations whose requests a connected queue pair of a type lays out
// alike: they need no more than remote memory and an immediate. Bit n is opcode n.
func plainOps(typ rdma.QPType) (plain uint32) {
	for _, op := range rdma.Opcodes() {
		if o := op.Operation(); o.GoesOut() && o.OnType(typ) && o.Needs&^(rdma.NeedsRemote|rdma.NeedsImm) == 0 {
			plain |= 1 << op
		}
	}
	return plain
}

// layOut writes a request to its place in the batch and in the ring.
func (q *queuePair) layOut(i int, seq uint64, wr *rdma.SendWR) error {
	const op = "post_send"
	b := &q.sends
	to := &b.wrs[i]
	if len(wr.SGL) > b.sge || len(wr.SGL) > q.init.Cap.MaxSendSGE {
		return invalid(op, "%d scatter entries: the queue pair has %d", len(wr.SGL), q.init.Cap.MaxSendSGE)
	}
	*to = sendWR{wrHead: to.wrHead, flags: uint32(wr.Flags)}
	to.wrID, to.opcode, to.numSGE = q.send.id(seq), uint32(wr.Opcode), b.scatter(i, wr.SGL)
	var bytes uint64
	if wr.Flags&rdma.SendInline != 0 && wr.Inline != nil {
		bytes = uint64(len(wr.Inline))
	} else {
		for j := range wr.SGL {
			bytes += uint64(wr.SGL[j].Length)
		}
	}
	if wr.Flags&rdma.SendInline != 0 {
		if bytes > uint64(q.init.Cap.MaxInlineData) {
			return invalid(op, "%d bytes inline: the queue pair has %d", bytes, q.init.Cap.MaxInlineData)
		}
		if wr.Inline != nil {
			to.numSGE = b.payload(i, wr.Inline)
		}
	}
	o := wr.Opcode.Operation()
	if !o.OnType(q.init.Type) {
		return invalid(op, "operation %d is not possible on a queue pair of type %v", uint8(wr.Opcode), q.init.Type)
	}
	if !wr.Opcode.Native() {
		return notSupported(op, "%v: libibverbs has none", wr.Opcode)
	}
	if o.Needs&rdma.NeedsRemote != 0 {
		to.addr = wr.RemoteAddr
		if o.Needs&rdma.NeedsOperands != 0 {
			to.swap, to.atomic = wr.Swap, wr.RKey
			to.setCompareAdd(wr.CompareAdd)
		} else {
			to.rkey[0] = wr.RKey
		}
	}
	if o.Needs&rdma.NeedsImm != 0 {
		to.imm = network(wr.ImmData)
	}
	if o.Needs&rdma.NeedsKey != 0 {
		to.imm = wr.InvalidateRKey
	}
	if o.Needs&rdma.NeedsWindow != 0 {
		if err := layOutBind(to, wr); err != nil {
			return err
		}
	}
	if o.Needs&rdma.NeedsLayout != 0 {
		if err := q.layOutMkey(to, wr); err != nil {
			return err
		}
	}
	switch q.init.Type {
	case rdma.UD:
		ah, ok := wr.AH.(*address)
		if !ok || ah.d.c != q.c {
			return invalid(op, "a datagram needs a send operation and an address handle of this context")
		}
		h := ah.open.Load()
		if h == 0 {
			return invalid(op, "the address handle is closed")
		}
		to.addr, to.rkey = h, [2]uint32{wr.RemoteQPN, wr.RemoteQKey}
	case rdma.XRCSend:
		to.srqNum = wr.SRQNum
	case rdma.DCI:
		if err := q.layOutDC(to, wr); err != nil {
			return err
		}
	}
	e := entry{wrid: wr.WRID, bytes: uint32(bytes), op: opOf(wr.Opcode)}
	if wr.Flags&rdma.SendInline != 0 {
		e.op |= opInline
	}
	*q.send.at(seq) = e
	return nil
}

// layOutBind is for the binding of a window of type 2, whose handle is filled in
// when it is posted.
func layOutBind(to *sendWR, wr *rdma.SendWR) error {
	const op = "post_send"
	w, ok := wr.MW.(*window)
	if !ok || wr.Bind == nil {
		return invalid(op, "a bind needs a window of this provider, and Bind")
	}
	if w.typ != rdma.MWType2 {
		return invalid(op, "WRBindMW binds windows of type 2: call QP.BindMW for type 1")
	}
	r, ok := wr.Bind.MR.(*region)
	if !ok || r.c != w.d.c {
		return invalid(op, "the region of a window of type 2 must be of the window's context")
	}
	if err := w.d.c.alive(op, &w.node, &r.node); err != nil {
		return err
	}
	if wr.Bind.Access&^windowAccess != 0 {
		return invalid(op, "a memory window cannot have the rights %v", wr.Bind.Access)
	}
	to.mwRKey = wr.RKey
	to.bindAddr, to.bindLen, to.bindAcc = wr.Bind.Addr, wr.Bind.Length, uint32(wr.Bind.Access)
	to.bindMR = uint64(r.h)
	return nil
}

// PostRecv posts receives as PostSend does requests.
func (q *queuePair) PostRecv(wrs []rdma.RecvWR) (int, error) {
	const op = "post_recv"
	if len(wrs) == 0 {
		return 0, nil
	}
	if q.recv == nil {
		return 0, invalid(op, "the queue pair has no receive queue of its own")
	}
	q.recvMu.Lock()
	defer q.recvMu.Unlock()
	if !q.recvOK {
		return 0, q.refused(op)
	}
	taken := 0
	for taken < len(wrs) {
		l, b := q.recv, &q.recvs
		limit := min(len(wrs)-taken, batchLimit, l.free())
		if limit == 0 || !b.reserve(limit) {
			return taken, errFull(op)
		}
		head := l.head.Load()
		var bad error
		n := 0
		for n < limit {
			wr := &wrs[taken+n]
			if bad = receive(b, n, l.id(head+uint64(n)), wr.SGL, q.init.Cap.MaxRecvSGE); bad != nil {
				break
			}
			*l.at(head + uint64(n)) = entry{wrid: wr.WRID}
			n++
		}
		if n > 0 {
			l.head.Store(head + uint64(n))
			done, rc := postRecv(q.h, b, n)
			if rc != 0 {
				l.head.Store(head + uint64(done))
				bad = failed(op, rc, "")
			}
			taken += done
		}
		if bad != nil {
			return taken, bad
		}
	}
	if q.failed.Load() {
		return taken, q.flush()
	}
	return taken, nil
}

// windowAccess are the rights that a window may give.
const windowAccess = rdma.AccessRemoteWrite | rdma.AccessRemoteRead | rdma.AccessRemoteAtomic | rdma.AccessZeroBased

// BindMW binds a window of type 1.
func (q *queuePair) BindMW(mw rdma.MW, wrid uint64, flags rdma.SendFlags, bind rdma.MWBind) error {
	const op = "bind_mw"
	w, ok := mw.(*window)
	if !ok || w.d.c != q.c || w.typ != rdma.MWType1 {
		return invalid(op, "the window is not one of type 1 of this context")
	}
	var r *region
	if bind.MR != nil {
		if r, ok = bind.MR.(*region); !ok || r.c != q.c {
			return invalid(op, "the region is of another context")
		}
	}
	if bind.Access&^windowAccess != 0 {
		return invalid(op, "a memory window cannot have the rights %v", bind.Access)
	}
	nodes := []*node{&w.node}
	if r != nil {
		nodes = append(nodes, &r.node)
	}
	if err := q.c.alive(op, nodes...); err != nil {
		return err
	}
	if q.send == nil {
		return invalid(op, "%v has no send queue", q.init.Type)
	}
	q.sendMu.Lock()
	defer q.sendMu.Unlock()
	if !q.sendOK {
		return q.refused(op)
	}
	l := q.send
	if l.free() == 0 {
		return errFull(op)
	}
	seq := l.head.Load()
	*l.at(seq) = entry{wrid: wrid, op: uint8(rdma.WRBindMW)}
	l.head.Store(seq + 1)
	rkey, err := bindMW(q.h, w, l.id(seq), flags, r, &bind)
	if err != nil {
		l.head.Store(seq)
		return err
	}
	w.setRKey(rkey)
	return nil
}
