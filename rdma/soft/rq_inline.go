package soft

import "github.com/gorun-mpi/gorun/rdma"

// Inline receive. A message of at most QPCap.MaxInlineRecv bytes is written into
// the slot of its receive request, behind the scatter list, and not to the memory
// that the list names: for ordinary memory of another process that saves a system
// call. The receiver copies it when a poll takes the completion in. It is the
// ability of a connected queue pair's own receive queue; with an SRQ, and for
// datagrams, MaxInlineRecv becomes 0.

// payload is the room in the slot for a message of n bytes, nil for one that
// goes to memory.
func (tk *ticket) payload(n uint64) []byte {
	if n == 0 || n > uint64(tk.inline) || n > maxInlineRecv {
		return nil
	}
	return tableAt[byte](tk.s.arena, tk.at+slotHeader+uint64(tk.most)*slotSGESize, int(n))
}

// unpack copies a payload out of slot i and spoils the completion when it cannot:
// the memory was there when the message came. Called with recv.mu held.
func (r *receiveRing) unpack(i uint32, sl *recvSlot, wc *rdma.WC) {
	q := r.q
	if wc.Status != rdma.WCSuccess {
		return
	}
	size := q.init.Cap
	tk := ticket{s: q.p.self, sl: sl, at: r.slotAt(i), most: uint32(size.MaxRecvSGE), inline: uint32(size.MaxInlineRecv), pd: q.pd.id}
	b := tk.payload(uint64(wc.ByteLen))
	list := tk.entries()
	ok := b != nil
	for k := 0; k < len(list) && ok && len(b) > 0; k++ {
		n := min(len(b), int(list[k].length))
		var sp span
		if n == 0 {
			continue
		}
		if ok = tk.s.resolve(&sp, list[k].lkey, tk.pd, list[k].addr, uint64(n), rdma.AccessLocalWrite); ok {
			ok = sp.store(0, b[:n], false) == rdma.WCSuccess
		}
		b = b[n:]
	}
	if !ok || len(b) > 0 {
		*wc = rdma.WC{WRID: wc.WRID, Status: rdma.WCLocProtErr, QPNum: wc.QPNum}
		tk.s.fault(q.own, faultTold)
	}
}
