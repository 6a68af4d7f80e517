package soft

import (
	"sync/atomic"

	"github.com/gorun-mpi/gorun/rdma"
)

// Rendezvous. A request that has matched an entry is turned into two of the
// queue pair that it came in on: a read into the entry's memory, and behind it,
// fenced, a message that says that it is over. They stand in its send queue as its
// program's own do, with their timers, retries and ends, but hold no place in it and
// complete as the entry. The owner of the list makes them: when it polls, or else on
// the goroutine of watch, which a queue with tags keeps running.

// A rendezvous is one that is under way, of one entry.
type rendezvous struct {
	rdma.AH // is none: the mark by which a request of the device's own is known
	t       *tagList
	index   uint32
	num     uint32 // of the queue pair
	srcQP   uint32
	info    tagInfo
	sgl     [maxTagSGE]rdma.SGE
	fin     [rdma.TMHLen + rdma.RVHLen]byte
}

// fetch notes a rendezvous to begin. Called with the queue's mu held.
func (t *tagList) fetch(a arrival, sl *recvSlot, info *tagInfo) {
	e := &t.entries[a.index]
	e.phase = tagFetching
	e.fetch = rendezvous{t: t, index: a.index, num: sl.qp, srcQP: sl.srcQP, info: *info}
	t.fetches = append(t.fetches, &e.fetch)
	t.waiting.Store(true)
	// The caller may not begin it: it may hold a queue pair's lock.
	atomic.StoreUint32(&t.h.recv.head.attention, 1)
	t.h.p.self.alarm.Ring()
}

// beginFetches begins what fetch has noted. Called without locks.
func (t *tagList) beginFetches() {
	if !t.waiting.Load() {
		return
	}
	t.turn.Lock()
	defer t.turn.Unlock()
	t.h.mu.Lock()
	list := t.fetches
	t.fetches, t.begun = t.begun[:0], list
	t.waiting.Store(false)
	t.h.mu.Unlock()
	for _, r := range list {
		q := t.h.p.byQPN.get(r.num & (maxQueues - 1))
		if q == nil || q.num != r.num || q.shared != t.h {
			r.over(rdma.WCWRFlushErr, 0)
			continue
		}
		q.mu.Lock()
		q.fetch(r)
		q.mu.Unlock()
	}
}

// endFetches waits until no process is beginning any, and none is left. Called when no
// queue pair is attached.
func (t *tagList) endFetches() {
	t.beginFetches()
	t.turn.Lock()
	t.turn.Unlock() //nolint:staticcheck // SA2001: taking the lock is the wait
}

// fetch puts a rendezvous into the send queue. Called with mu held.
func (q *queuePair) fetch(r *rendezvous) {
	if st := q.state(); q.ending.closed || !live(st) || st == rdma.StateSQE {
		r.over(rdma.WCWRFlushErr, 0)
		return
	}
	sgl, ok := r.memory()
	if !ok {
		r.over(rdma.WCGeneralErr, 0) // scribbled: the process that matched it has seen that it fits
		return
	}
	r.fin = finOf(&r.info)
	q.keep(&rdma.SendWR{Opcode: rdma.WRRDMARead, SGL: sgl, RemoteAddr: r.info.addr, RKey: r.info.rkey, AH: r})
	q.keep(&rdma.SendWR{Opcode: rdma.WRSend, Flags: rdma.SendInline | rdma.SendFence, Inline: r.fin[:], AH: r})
	q.advance()
}

// memory is that of the entry, as far as the payload goes.
func (r *rendezvous) memory() ([]rdma.SGE, bool) {
	e := &r.t.entries[r.index]
	left, sgl := r.info.length, r.sgl[:0]
	for _, s := range e.sgl[:e.sges] {
		if s.Length = min(s.Length, left); s.Length > 0 {
			sgl = append(sgl, s)
		}
		left -= s.Length
	}
	return sgl, left == 0
}

// over completes the entry.
func (r *rendezvous) over(st rdma.WCStatus, n uint32) {
	t, i := r.t, r.index
	t.h.mu.Lock()
	defer t.h.mu.Unlock()
	e := &t.entries[i]
	c := entry{kind: entryTag, wc: rdma.WC{WRID: e.recvWRID, Status: st, QPNum: r.num}}
	if st == rdma.WCSuccess {
		c.wc.Opcode, c.wc.ByteLen, c.wc.SrcQP, c.wc.Flags = rdma.WCTMRecv, n, r.srcQP, rdma.WCFlagTMDataValid
	}
	info := r.info
	t.give(i)
	t.complete(&c, 0, false, &info)
}

// ofDevice gives the rendezvous that a request is of, nil for one of the program's.
func ofDevice(wr *rdma.SendWR) *rendezvous {
	r, _ := wr.AH.(*rendezvous)
	return r
}

// fetched is finish for a request of a rendezvous.
func (q *queuePair) fetched(r *rendezvous, wr *rdma.SendWR, st rdma.WCStatus, n uint32) {
	if wr.Opcode.Operation().Fetches() {
		r.over(st, n)
	} else if st != rdma.WCSuccess && st != rdma.WCWRFlushErr {
		q.tell(rdma.EventQPFatal) // no completion says it
	}
	if st != rdma.WCSuccess && st != rdma.WCWRFlushErr {
		q.enterErr()
	}
}
