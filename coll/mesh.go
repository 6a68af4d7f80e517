package coll

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/gorun-mpi/gorun/internal/sendq"
	"github.com/gorun-mpi/gorun/rdma"
)

// A MeshConfig configures a mesh.
type MeshConfig struct {
	PD rdma.PD
	// CQ is the CQ for the send queues of all queue pairs. Only the mesh polls it, and
	// nothing else may use it. It has at least two entries per queue pair; more are better.
	CQ rdma.CQ
	// Peers connects the process with its peers; nil: there are none.
	Peers Dialer
}

// A Dialer connects a process with its peers, which it numbers. A mesh asks it
// for a connection when a call first needs one, and again until it has one.
type Dialer interface {
	// Size is the number of processes, including this one.
	Size() int
	// Inline is the smallest MaxInlineData of the queue pairs of Queue, or
	// math.MaxInt if all peers are mapped.
	Inline() int
	// Mapping reports whether memory of peers may be mapped. If so, the PD's
	// context is a Mapper that can also map its own memory.
	Mapping() bool
	// Maps reports whether Memory returns a peer's memory. It is called
	// after the members of a team have exchanged their intros.
	Maps(peer int) bool
	// Memory returns the mapped memory of a peer, or a permanent error. Headers and small data are
	// then stores into the peer's control region, and data for registered memory is copied into it.
	Memory(peer int) (rdma.PeerMemory, error)
	// Queue returns an RC queue pair in RTS, or nil while the connection is being made; then it is called
	// again. An error is permanent. The mesh posts no receives. The queue pair permits remote reads and
	// writes, and at least one outstanding read in both directions. It needs 64 bytes of inline data and
	// 8 send requests. Messages longer than the inline data are copied once more, so 2048 bytes are
	// better; with 64 requests completions are rare. The owner closes queue pairs, after the mesh.
	Queue(peer int) (rdma.QP, error)
}

// A Mesh has the connections of a process, which all its teams share. It
// owns memory of closed and broken teams that peers may still access.
type Mesh struct {
	pd       rdma.PD
	cq       rdma.CQ
	queues   []queue
	room     int32        // completions the CQ holds
	owed     atomic.Int32 // completions under way
	hurt     atomic.Bool  // some queue has failed
	used     atomic.Bool  // something was posted, ever
	oneSided bool         // writes of peers get here although this process does not poll

	dialer Dialer          // nil: there are no peers
	debts  []debt          // to peers that are not connected yet
	self   rdma.PeerMemory // nil: nothing of this process is mappable

	polling sync.Mutex // one poller at a time; guards wcs
	wcs     [16]rdma.WC

	mu     sync.Mutex
	spares []rdma.MR // control regions for teams to come, the shortest first: no peer writes to them
	kept   []rdma.MR // of teams that are gone, until Close
	pinned [][]byte  // operands of broken calls that a peer's late write may reach
}

// A queue is the queue pair to a peer, with what posting to it takes.
type queue struct {
	mu sync.Mutex // guards posting; taken before Mesh.polling
	sendq.Queue
	at     int        // the peer
	inline int        // longest inline data
	mover  rdma.Mover // nil: everything is posted
	*requests
}

// requests are the scratch of a queue with a queue pair: most have none.
type requests struct {
	wrs  [3]rdma.SendWR
	sges [2]rdma.SGE
	word [8]byte
}

const (
	// leastInline is what control messages need: the fault record.
	leastInline = 64
	leastDepth  = 8
	// longestWrite bounds one request's payload, below the 2 GiB of InfiniBand.
	longestWrite = 1 << 30
)

// NewMesh makes a mesh over the connections of cfg.
func NewMesh(cfg MeshConfig) (*Mesh, error) {
	size := 0
	if cfg.Peers != nil {
		size = cfg.Peers.Size()
	}
	if cfg.PD == nil || cfg.CQ == nil && size > 1 {
		return nil, errors.New("mesh: needs a PD and a CQ")
	}
	m := &Mesh{pd: cfg.PD, cq: cfg.CQ, queues: make([]queue, size), dialer: cfg.Peers, oneSided: cfg.PD.Context().QueryDevice().OneSided}
	for i := range m.queues {
		m.queues[i].at = i
	}
	if size > 0 && cfg.Peers.Mapping() {
		if err := m.findSelf(); err != nil {
			return nil, fmt.Errorf("mesh: %w", err)
		}
	}
	if cfg.CQ != nil {
		m.room = int32(cfg.CQ.Cap())
	}
	return m, nil
}

// take gives a queue its queue pair.
func (q *queue) take(qp rdma.QP) error {
	_, init := qp.Query()
	if init.Cap.MaxInlineData < leastInline || init.Cap.MaxSendWR < leastDepth {
		return fmt.Errorf("queue pair %d has %d bytes of inline data and %d send requests: collectives need %d and %d",
			q.at, init.Cap.MaxInlineData, init.Cap.MaxSendWR, leastInline, leastDepth)
	}
	q.Open(qp, init.Cap.MaxSendWR)
	q.requests, q.inline = new(requests), init.Cap.MaxInlineData
	q.mover, _ = qp.(rdma.Mover)
	return nil
}

// connected tells whether a queue has its queue pair, and sees to it that it gets one. An
// error shows in Err.
func (m *Mesh) connected(q *queue) bool {
	if q.QP != nil || q.Err() != nil {
		return q.QP != nil
	}
	qp, err := m.dialer.Queue(q.at)
	if err != nil {
		err = rdma.WCRetryExcErr
	} else if qp != nil {
		err = q.take(qp)
	}
	if err != nil {
		m.fail(q, err)
	}
	return q.QP != nil
}

// A debt is what a broken team has to tell a peer that it is not connected with.
type debt struct {
	team *Team
	peer int
	what fault
}

// Settle sends the credits and notices of completed calls that peers still need, as
// far as they are connected. Call it when a connection may have been established.
func (m *Mesh) Settle() {
	if len(m.debts) == 0 {
		return
	}
	kept := m.debts[:0]
	for _, d := range m.debts {
		q := d.team.peers[d.peer].queue
		switch {
		case m.connected(q):
			d.team.faults.write(d.peer, d.what)
		case q.Err() == nil:
			kept = append(kept, d)
		}
	}
	clear(m.debts[len(kept):])
	m.debts = kept
}

// Close frees the memory that closed and broken teams left. It does not wait: the caller makes sure
// that all members have finished, by a barrier of its own or by closing the queue pairs first.
func (m *Mesh) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var errs []error
	for _, mr := range append(m.kept, m.spares...) {
		errs = append(errs, mr.Close())
	}
	m.spares, m.kept, m.pinned = nil, nil, nil
	return errors.Join(errs...)
}

// keep puts a region aside until Close.
func (m *Mesh) keep(mr rdma.MR) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.kept = append(m.kept, mr)
}

// mostSpares is one region for the team that comes and one for a team that comes before the last is over (StartFree).
const mostSpares = 2

// spare takes the control region of a team that is over for one that comes: to register memory
// and to take its registration back costs more than the rest of a new team. The longest stay.
func (m *Mesh) spare(mr rdma.MR) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.spares = append(m.spares, mr)
	slices.SortFunc(m.spares, func(a, b rdma.MR) int { return cmp.Compare(a.Len(), b.Len()) })
	if len(m.spares) <= mostSpares {
		return nil
	}
	mr = m.spares[0]
	m.spares = slices.Delete(m.spares, 0, 1)
	return mr.Close()
}

// reuse gives a control region of at least length bytes, of which these are zero, or nil.
func (m *Mesh) reuse(length int) rdma.MR {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, mr := range m.spares {
		if mr.Len() >= uint64(length) {
			m.spares = slices.Delete(m.spares, i, i+1)
			clear(mr.Bytes()[:length])
			return mr
		}
	}
	return nil
}

// pin keeps memory alive until Close.
func (m *Mesh) pin(mem []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pinned = append(m.pinned, mem)
}

// post posts the queue's first n requests, the last one signalled if asked or if
// it is time. It returns the count to wait for in Done; ok is false if there is
// no room now. An error shows in Err. q.mu is held.
func (m *Mesh) post(q *queue, n int, signal bool) (count uint64, ok bool) {
	if q.Room() < n {
		m.poll()
		if q.Room() < n {
			return 0, false
		}
	}
	if !m.used.Load() {
		m.used.Store(true)
	}
	if signal = signal || q.Due(n); signal && m.owed.Add(1) > m.room {
		m.owed.Add(-1)
		m.poll()
		return 0, false
	}
	count = q.Posted() + uint64(n)
	if q.Post(q.wrs[:n], uint64(q.at), signal) != nil {
		// The queue pair refused: its state is no longer RTS, or a request
		// is invalid. Both end the queue.
		m.fail(q, rdma.WCWRFlushErr)
	}
	return count, true
}

// poll takes completions in. If another goroutine does that just now it returns
// at once.
func (m *Mesh) poll() {
	if m.cq == nil || !m.polling.TryLock() {
		return
	}
	defer m.polling.Unlock()
	for {
		n, err := m.cq.Poll(m.wcs[:])
		for i := range m.wcs[:n] {
			m.complete(&m.wcs[i])
		}
		if err != nil {
			for i := range m.queues {
				m.fail(&m.queues[i], rdma.WCFatalErr)
			}
			return
		}
		if n < len(m.wcs) {
			return
		}
	}
}

func (m *Mesh) complete(wc *rdma.WC) {
	at, mark := sendq.Split(wc.WRID)
	if at >= uint64(len(m.queues)) {
		return // not ours
	}
	q := &m.queues[at]
	if wc.Status != rdma.WCSuccess {
		m.fail(q, wc.Status) // what has failed is never done: no call takes it for moved
		return
	}
	m.owed.Add(-1)
	q.Completed(mark)
}

// fail notes a queue's first error. It stays so.
func (m *Mesh) fail(q *queue, err error) {
	q.Fail(err)
	m.hurt.Store(true)
}
