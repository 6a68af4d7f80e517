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
	self   *ops
	lines  *failures
	srq    rdma.SRQ // nil: no connection shares yet
	most   int      // chunks
	own    int      // connections that have receive queues of their own, at most
	given  int      // of them, made
	chunks []chunk

	// Slots of the shared queue that are to be posted: they go together.
	freed int
	wrs   [pollBatch]rdma.RecvWR
	sges  [pollBatch]rdma.SGE

	// Scratch, here so that it does not escape anew.
	recvWR  [1]rdma.RecvWR
	recvSGE [1]rdma.SGE
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

// pooled tells whether the next connection takes its receives from the shared queue, which
// is made if there is none.
func (pool *pool) pooled() (bool, error) {
	if pool.given < pool.own || pool.self.pd.Context().Supports(rdma.FeatureSRQ) != nil {
		pool.given++
		return false, nil
	}
	return true, pool.openShared()
}

// openShared makes the shared queue, if there is none.
func (pool *pool) openShared() error {
	if pool.srq != nil {
		return nil
	}
	slots := max(1, min(pool.most-len(pool.chunks), pool.self.size-1)) * pool.self.receives()
	if limit := pool.self.pd.Context().QueryDevice().MaxSRQWR; slots > limit {
		slots = max(1, limit/pool.self.receives()) * pool.self.receives()
	}
	pool.most = len(pool.chunks) + slots/pool.self.receives()
	var err error
	pool.srq, err = pool.self.pd.CreateSRQ(rdma.SRQInitAttr{Attr: rdma.SRQAttr{MaxWR: slots, MaxSGE: 1}})
	return err
}

// bring adds the chunk of a connection, whose slots are posted to qp, or to the shared
// queue unless the pool is as large as it may be.
func (pool *pool) bring(p *peer, qp rdma.QP) error {
	if p.pooled && len(pool.chunks) >= pool.most {
		return nil
	}
	bytes := pool.self.receives() * pool.self.slotSize()
	mr, err := pool.self.pd.AllocMR(bytes, rdma.AccessLocalWrite)
	if err != nil {
		return fmt.Errorf("%d bytes for its receives: %w", bytes, err)
	}
	first := len(pool.chunks) * pool.self.receives()
	pool.chunks = append(pool.chunks, chunk{mr, mr.Bytes()})
	for slot := first; slot < first+pool.self.receives() && err == nil; slot++ {
		if p.pooled {
			err = pool.free(slot)
		} else {
			err = pool.postRecv(p.rank, qp, slot)
		}
	}
	if err == nil {
		err = pool.refill()
	}
	return err
}

// slot is the memory of a receive slot.
func (pool *pool) slot(n int) (c *chunk, at int) {
	return &pool.chunks[n/pool.self.receives()], n % pool.self.receives() * pool.self.slotSize()
}

// fill makes a receive of a slot.
func (pool *pool) fill(wr *rdma.RecvWR, sge *rdma.SGE, peer int32, slot int) {
	c, at := pool.slot(slot)
	sge.Addr, sge.Length, sge.LKey = c.mr.Addr()+uint64(at), uint32(pool.self.slotSize()), c.mr.LKey()
	wr.WRID = sendq.WRID(idOf(whatRecv, peer, uint32(slot)), 0)
}

// postRecv posts a slot for a peer on its queue pair.
func (pool *pool) postRecv(peer int32, qp rdma.QP, slot int) error {
	pool.recvWR[0].SGL = pool.recvSGE[:]
	pool.fill(&pool.recvWR[0], &pool.recvSGE[0], peer, slot)
	if _, err := qp.PostRecv(pool.recvWR[:]); err != nil {
		return fmt.Errorf("post_recv: %w", err)
	}
	return nil
}

// free has a slot posted to the shared queue, with the next ones.
func (pool *pool) free(slot int) error {
	if pool.freed == len(pool.wrs) {
		if err := pool.refill(); err != nil {
			return err
		}
	}
	pool.wrs[pool.freed].SGL = pool.sges[pool.freed : pool.freed+1]
	pool.fill(&pool.wrs[pool.freed], &pool.sges[pool.freed], nobody, slot)
	pool.freed++
	return nil
}

// refill posts the slots that were freed. It is called before anybody is told that
// there is room.
func (pool *pool) refill() error {
	if pool.freed == 0 {
		return nil
	}
	n := pool.freed
	pool.freed = 0
	if _, err := pool.srq.PostRecv(pool.wrs[:n]); err != nil {
		return fmt.Errorf("post_srq_recv: %w", err)
	}
	return nil
}
