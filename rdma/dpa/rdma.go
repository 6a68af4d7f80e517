package dpa

import (
	"context"
	"encoding/binary"

	"github.com/gorun-mpi/gorun/internal/sendq"
	"github.com/gorun-mpi/gorun/rdma"
)

// An RDMA is a queue pair in the hands of the device (a DOCA RDMA context on the DPA data path). One
// thread at a time uses it, and its completion context.
//
// It keeps account of its send queue: Post waits for room, and requests that ask for no completion of
// their own are signalled often enough. The first request that fails is the RDMA's error for good.
type RDMA struct {
	queue sendq.Queue
	done  *CompletionContext
	num   uint32
	word  [wordBytes]byte
	sink  rdma.SGE // where an atomic leaves the old value, which nobody reads
	wr    [1]rdma.SendWR
	sge   [1]rdma.SGE
	wait  queueCondition
}

const (
	wordBytes = 8
	// told marks, in the id of a request, that the program wants its completion.
	told = 1 << 47
	// MaxID is the greatest id of a request.
	MaxID = told - 1
)

// NewRDMA hands a queue pair to the device, whose send requests complete in done. The queue pair must
// be of done's and the Context's domain, take inline data of 8 bytes, and done's queue have room for all requests of its queue pairs.
// The program closes the queue pair after the Context.
func (c *Context) NewRDMA(qp rdma.QP, done *CompletionContext) (*RDMA, error) {
	_, init := qp.Query()
	switch {
	case done == nil || done.ctx != c:
		return nil, bad("rdma", "a completion context of another Context")
	case init.SendCQ != done.cq:
		return nil, bad("rdma", "the queue pair's send queue completes elsewhere: create it with SendCQ: done.CQ()")
	case init.RecvCQ == done.cq:
		return nil, bad("rdma", "the queue pair's receives complete in the same completion context: expected another")
	case init.Cap.MaxInlineData < wordBytes:
		return nil, bad("rdma", "the queue pair takes %d bytes of inline data, signals need %d", init.Cap.MaxInlineData, wordBytes)
	}
	s, err := c.takeSlot()
	if err != nil {
		return nil, err
	}
	h := &RDMA{done: done, num: qp.Num(), sink: rdma.SGE{Addr: s.addr, Length: wordBytes, LKey: s.lkey}}
	h.queue.Open(qp, init.Cap.MaxSendWR)
	return h, done.adopt(h, init.Cap.MaxSendWR)
}

// Err is the first error of the queue pair; nil: it is up.
func (h *RDMA) Err() error { return h.queue.Err() }

// Post posts requests in order (doca_dpa_dev_verbs post). The last may have SendSignaled: its completion
// is handed to Poll with the id, at most MaxID; the other requests ask for none. It waits while the queue has no
// room for all of them. The caller may reuse the slices after the call, and the memory that they name after the completion, or Synchronize.
func (t *Thread) Post(h *RDMA, id uint64, wrs []rdma.SendWR) error {
	if len(wrs) == 0 {
		return nil
	}
	last := len(wrs) - 1
	for i := range wrs[:last] {
		if wrs[i].Flags&rdma.SendSignaled != 0 {
			return bad("post", "request %d of %d asks for a completion, only the last may", i, len(wrs))
		}
	}
	if id > MaxID {
		return bad("post", "an id of %#x, expected at most %#x", id, uint64(MaxID))
	}
	signal := wrs[last].Flags&rdma.SendSignaled != 0
	if signal {
		id |= told
	}
	return t.post(h, id, signal, wrs)
}

func (t *Thread) post(h *RDMA, id uint64, signal bool, wrs []rdma.SendWR) error {
	if err := t.room(h, len(wrs)); err != nil {
		return err
	}
	before := h.queue.Posted()
	err := h.queue.Post(wrs, id, signal)
	t.d.group.ctx.counts.posted.Add(h.queue.Posted() - before)
	if err != nil {
		h.queue.Fail(err)
	}
	return err
}

// PostRecv posts receives.
func (t *Thread) PostRecv(h *RDMA, wrs []rdma.RecvWR) (int, error) { return h.queue.QP.PostRecv(wrs) }

// Write posts an RDMA write of a piece of local memory (doca_dpa_dev_rdma_write). Synchronize waits for it.
func (t *Thread) Write(h *RDMA, local rdma.SGE, addr uint64, rkey uint32) error {
	h.sge[0] = local
	h.wr[0] = rdma.SendWR{Opcode: rdma.WRRDMAWrite, SGL: h.sge[:], RemoteAddr: addr, RKey: rkey}
	return t.post(h, 0, false, h.wr[:])
}

// SignalSet posts a write of a value into a peer's event, behind all earlier requests of the
// queue pair (doca_dpa_dev_rdma_signal_set).
func (t *Thread) SignalSet(h *RDMA, e RemoteEvent, value uint64) error {
	binary.NativeEndian.PutUint64(h.word[:], value)
	h.wr[0] = rdma.SendWR{Opcode: rdma.WRRDMAWrite, Flags: rdma.SendInline, Inline: h.word[:], RemoteAddr: e.Addr, RKey: e.RKey}
	return t.post(h, 0, true, h.wr[:])
}

// SignalAdd is SignalSet that adds atomically (doca_dpa_dev_rdma_signal_add).
func (t *Thread) SignalAdd(h *RDMA, e RemoteEvent, value uint64) error {
	h.sge[0] = h.sink
	h.wr[0] = rdma.SendWR{Opcode: rdma.WRAtomicFetchAndAdd, SGL: h.sge[:], RemoteAddr: e.Addr, RKey: e.RKey, CompareAdd: value}
	return t.post(h, 0, true, h.wr[:])
}

// Synchronize waits until all requests that were posted are complete (doca_dpa_dev_rdma_synchronize). The error is
// the queue pair's, or why the launch is over.
func (t *Thread) Synchronize(h *RDMA) error {
	if h.queue.Flying() > 0 && !h.queue.Tells() {
		// A write of nothing completes behind all others, and needs no memory.
		h.wr[0] = rdma.SendWR{Opcode: rdma.WRRDMAWrite}
		if err := t.post(h, 0, true, h.wr[:]); err != nil {
			return err
		}
	}
	return t.drained(h, 0)
}

// room waits until n more requests fit.
func (t *Thread) room(h *RDMA, n int) error {
	if err := h.Err(); err != nil {
		return err
	}
	if h.queue.Room() >= n {
		return nil
	}
	depth := h.queue.Room() + int(h.queue.Flying())
	if n > depth {
		return bad("post", "%d requests at once, the queue pair takes %d", n, depth)
	}
	// Up to a quarter of them, the last ones, tell nothing (internal/sendq): where they are in the
	// way it takes one behind them that does.
	if n > depth-depth/4 {
		return t.Synchronize(h)
	}
	return t.drained(h, uint64(depth-n))
}

// drained waits until at most so many requests are under way.
func (t *Thread) drained(h *RDMA, most uint64) error {
	h.wait = queueCondition{h: h, most: most, launch: t.launch}
	if !h.wait.Ready() {
		_ = t.d.waiter.naps.Wait(context.Background(), &h.wait) // this context does not end
	}
	switch err := h.Err(); {
	case err != nil:
		return err
	case h.queue.Flying() <= most:
		return nil
	}
	return t.Err()
}

// A queueCondition is what a thread waits for that has requests under way.
type queueCondition struct {
	h      *RDMA
	most   uint64
	launch *launch
}

func (c *queueCondition) Ready() bool {
	if err := c.h.done.pump(); err != nil {
		c.h.queue.Fail(err)
	}
	return c.h.queue.Flying() <= c.most || c.h.Err() != nil || c.launch.over.Load() != nil
}
