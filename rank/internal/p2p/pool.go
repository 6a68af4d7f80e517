package p2p

import (
	"fmt"

	"github.com/gorun-mpi/gorun/internal/sendq"
	"github.com/gorun-mpi/gorun/rdma"
)

// A pool is the receives of a rank's queue pairs: slots of one size, behind each other in
// chunks of registered memory. A connection brings a chunk, with a slot for each message that
// its peer may have under way, so that none of them finds no receive. The first connections
// have receive queues of their own, all others take from a shared one. What a connection
// of these has brought is for those that come later too, and no more is brought when the
// pool is at its largest: memory does not grow with the peers. The messages of very many at once
// may then find no receive. Their queue pairs ask again (RNR, for ever) until the rank takes
// in what has come, in whatever call it is; each still has no more under way than its credit.
//
// Not all share because that takes time: of two processes over soft half a ping-pong of 8
// bytes takes 1.4 us for 1.2, and a message of a stream 0.76 for 0.61. A rank that talks
// with few pays nothing, and one that talks with many has more to wait for. On a device without shared
// receive queues each connection has its own, however many there are.
//
// A slot is in the receive queue, or is being read in [Engine.received], or is freed and
// about to be posted. It belongs to the engine until that closes.
type pool struct {
	srq    rdma.SRQ // nil: no connection shares yet
	most   int      // chunks
	own    int      // connections that have receive queues of their own, at most
	given  int      // of them, made
	chunks []chunk

	// Slots of the shared queue that are to be posted: they go together.
	freed int
	wrs   [pollBatch]rdma.RecvWR
	sges  [pollBatch]rdma.SGE
}

// A chunk is the slots that a connection has brought.
type chunk struct {
	mr  rdma.MR
	mem []byte
}

const (
	// poolMost is how many bytes of receives there are at most: for the peers that a rank
	// talks with at a time, 28 in the smallest jobs and 165 in large ones.
	poolMost = 4 << 20
	// OwnMost is how many connections have receive queues of their own.
	OwnMost = 16
	// nobody stands for the peer in the work request id of a shared receive.
	nobody = peerMask
)

// shares tells whether the next connection takes its receives from the shared queue, which
// is made if there is none.
func (e *Engine) shares() (bool, error) {
	p := &e.pool
	if p.given < p.own || e.pd.Context().Supports(rdma.FeatureSRQ) != nil {
		p.given++
		return false, nil
	}
	return true, e.openShared()
}

// openShared makes the shared queue, if there is none.
func (e *Engine) openShared() error {
	p := &e.pool
	if p.srq != nil {
		return nil
	}
	slots := max(1, min(p.most-len(p.chunks), e.size-1)) * e.receives()
	if limit := e.pd.Context().QueryDevice().MaxSRQWR; slots > limit {
		slots = max(1, limit/e.receives()) * e.receives()
	}
	p.most = len(p.chunks) + slots/e.receives()
	var err error
	p.srq, err = e.pd.CreateSRQ(rdma.SRQInitAttr{Attr: rdma.SRQAttr{MaxWR: slots, MaxSGE: 1}})
	return err
}

// bring adds the chunk of a connection, whose slots are posted to qp, or to the shared
// queue unless the pool is as large as it may be.
func (e *Engine) bring(p *peer, qp rdma.QP) error {
	pool := &e.pool
	if p.shares && len(pool.chunks) >= pool.most {
		return nil
	}
	bytes := e.receives() * e.slotSize()
	mr, err := e.pd.AllocMR(bytes, rdma.AccessLocalWrite)
	if err != nil {
		return fmt.Errorf("%d bytes for its receives: %w", bytes, err)
	}
	first := len(pool.chunks) * e.receives()
	pool.chunks = append(pool.chunks, chunk{mr, mr.Bytes()})
	for slot := first; slot < first+e.receives() && err == nil; slot++ {
		if p.shares {
			err = e.free(slot)
		} else {
			err = e.postRecv(p.rank, qp, slot)
		}
	}
	if err == nil {
		err = e.refill()
	}
	return err
}

// slot is the memory of a receive slot.
func (e *Engine) slot(n int) (c *chunk, at int) {
	return &e.pool.chunks[n/e.receives()], n % e.receives() * e.slotSize()
}

// fill makes a receive of a slot.
func (e *Engine) fill(wr *rdma.RecvWR, sge *rdma.SGE, peer int32, slot int) {
	c, at := e.slot(slot)
	sge.Addr, sge.Length, sge.LKey = c.mr.Addr()+uint64(at), uint32(e.slotSize()), c.mr.LKey()
	wr.WRID = sendq.WRID(idOf(whatRecv, peer, uint32(slot)), 0)
}

// postRecv posts a slot for a peer on its queue pair.
func (e *Engine) postRecv(peer int32, qp rdma.QP, slot int) error {
	e.recvWR[0].SGL = e.recvSGE[:]
	e.fill(&e.recvWR[0], &e.recvSGE[0], peer, slot)
	if _, err := qp.PostRecv(e.recvWR[:]); err != nil {
		return fmt.Errorf("post_recv: %w", err)
	}
	return nil
}

// free has a slot posted to the shared queue, with the next ones.
func (e *Engine) free(slot int) error {
	p := &e.pool
	if p.freed == len(p.wrs) {
		if err := e.refill(); err != nil {
			return err
		}
	}
	p.wrs[p.freed].SGL = p.sges[p.freed : p.freed+1]
	e.fill(&p.wrs[p.freed], &p.sges[p.freed], nobody, slot)
	p.freed++
	return nil
}

// refill posts the slots that were freed. It is called before anybody is told that
// there is room.
func (e *Engine) refill() error {
	p := &e.pool
	if p.freed == 0 {
		return nil
	}
	n := p.freed
	p.freed = 0
	if _, err := p.srq.PostRecv(p.wrs[:n]); err != nil {
		return fmt.Errorf("post_srq_recv: %w", err)
	}
	return nil
}

// broken ends the engine, as a device that refuses what it has to take does.
func (e *Engine) broken(err error) {
	if err != nil && e.err == nil {
		e.err = err
	}
}

// sender is the peer whose queue pair took a shared receive, nil if that is gone.
func (e *Engine) sender(number uint32) *peer {
	for i := range e.peers {
		if p := &e.peers[i]; p.shares && p.number == number {
			return p
		}
	}
	return nil
}
