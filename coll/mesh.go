package coll

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/gorun-mpi/gorun/rdma"
)

// A MeshConfig describes a process's queue pairs.
type MeshConfig struct {
	PD rdma.PD
	// CQ is the send queue of all QPs. The mesh polls it and expects nothing
	// else there. Two entries a queue pair are enough, more are better.
	CQ rdma.CQ
	// QPs are RC queue pairs in RTS, by the mesh's own numbering of peers; nil
	// where there is none (the process itself). The mesh posts no receives.
	// They allow remote reads and writes, and have resources for a read or more in
	// both directions. They need 64 bytes of inline data and 8 send requests or more; messages
	// longer than the inline data are copied once more, so 2048 are good to have,
	// and with 64 requests completions are rare.
	QPs []rdma.QP
	// Peers is the memory of the peers, by the same numbers: to those that have
	// some here, headers and small data are stores into their control regions,
	// and data for registered memory is copied into it; nil entries, or nil:
	// queue pairs only. A team looks at it when it has exchanged its cards.
	// If there are Peers, the PD's context is a Mapper that knows itself too.
	Peers []rdma.PeerMemory
	// OnDemand, in place of QPs, makes connections when a call first needs them.
	// Entries of Peers are not looked at then, but Peers is not nil where some are
	// mapped. All teams of the mesh are used by one goroutine at a time.
	OnDemand Dialer
}

// A Dialer connects a process with its peers.
type Dialer interface {
	// Size is how many processes there are, this one included.
	Size() int
	// Inline is the inline data that each queue pair of Queue has at least, and
	// math.MaxInt where all peers are mapped.
	Inline() int
	// Maps tells whether Memory gives a peer's memory. It is asked when a team has
	// exchanged its cards.
	Maps(peer int) bool
	// Memory gives what a PeerMemory of MeshConfig.Peers is, or an error for good.
	Memory(peer int) (rdma.PeerMemory, error)
	// Queue gives what a QP of MeshConfig.QPs is, nil while the connection is being
	// made: it is asked again. An error is for good.
	Queue(peer int) (rdma.QP, error)
}

// A Mesh is the queue pairs of one process, shared by all its teams. It keeps
// what a closed or broken team must not free yet.
type Mesh struct {
	pd    rdma.PD
	cq    rdma.CQ
	links []link
	room  int32        // completions the CQ holds
	owed  atomic.Int32 // completions under way
	hurt  atomic.Bool  // some link has failed
	used  atomic.Bool  // something was posted, ever

	peers  []rdma.PeerMemory
	dialer Dialer
	debts  []debt          // to peers that are not connected yet
	self   rdma.PeerMemory // nil: nothing of this process is mappable

	polling sync.Mutex // one poller at a time; guards wcs
	wcs     [16]rdma.WC

	mu     sync.Mutex
	kept   []rdma.MR // of teams that are gone, until Close
	pinned [][]byte  // operands of broken calls that a peer's late write may reach
}

// A link is one queue pair with the account of its send queue.
//
//	done <= signaled <= posted <= done + depth
type link struct {
	qp     rdma.QP
	index  int
	depth  uint64
	inline int
	mover  rdma.Mover // nil: everything is posted

	done   atomic.Uint64 // requests completed, written by the poller
	status atomic.Uint32 // first error status, 0 while there is none

	mu       sync.Mutex // guards what follows; taken before Mesh.polling
	posted   uint64     // requests, ever
	signaled uint64     // up to this one completions tell
	*requests
}

// requests are the scratch of a link with a queue pair: most have none.
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
	// wridBits hold a link's request count in a work request's id.
	wridBits = 40
)

// NewMesh takes the queue pairs over for collectives. They stay their owner's to
// close, after the mesh.
func NewMesh(cfg MeshConfig) (*Mesh, error) {
	size := len(cfg.QPs)
	if cfg.OnDemand != nil {
		size = cfg.OnDemand.Size()
	}
	if cfg.PD == nil || cfg.CQ == nil && size > 1 {
		return nil, errors.New("mesh: needs a PD and a CQ")
	}
	m := &Mesh{pd: cfg.PD, cq: cfg.CQ, links: make([]link, size), peers: cfg.Peers, dialer: cfg.OnDemand}
	for i := range m.links {
		m.links[i].index = i
	}
	if cfg.Peers != nil {
		if err := m.findSelf(); err != nil {
			return nil, fmt.Errorf("mesh: %w", err)
		}
	}
	if cfg.CQ != nil {
		m.room = int32(cfg.CQ.Cap())
	}
	for i, qp := range cfg.QPs {
		if qp == nil {
			continue
		}
		if err := m.links[i].take(qp); err != nil {
			return nil, fmt.Errorf("mesh: %w", err)
		}
	}
	return m, nil
}

// take gives a link its queue pair.
func (l *link) take(qp rdma.QP) error {
	_, init := qp.Query()
	if init.Cap.MaxInlineData < leastInline || init.Cap.MaxSendWR < leastDepth {
		return fmt.Errorf("queue pair %d has %d bytes of inline data and %d send requests: collectives need %d and %d",
			l.index, init.Cap.MaxInlineData, init.Cap.MaxSendWR, leastInline, leastDepth)
	}
	l.qp, l.requests = qp, new(requests)
	l.mover, _ = qp.(rdma.Mover)
	l.depth, l.inline = uint64(init.Cap.MaxSendWR), init.Cap.MaxInlineData
	return nil
}

// connected tells whether a link has its queue pair, and sees to it that it gets one. An
// error shows in status.
func (m *Mesh) connected(l *link) bool {
	if l.qp != nil || m.dialer == nil || l.failure() != nil {
		return l.qp != nil
	}
	qp, err := m.dialer.Queue(l.index)
	if err == nil && qp != nil {
		err = l.take(qp)
	}
	if err != nil {
		m.fail(l, rdma.WCRetryExcErr)
	}
	return l.qp != nil
}

// A debt is what a broken team has to tell a peer that it is not connected with.
type debt struct {
	team *Team
	peer int
	what fault
}

// Settle tells peers what they are owed, as far as they are connected by now. Where
// connections are made on demand it is called whenever one may have come about: the call
// that owes it is over.
func (m *Mesh) Settle() {
	if len(m.debts) == 0 {
		return
	}
	kept := m.debts[:0]
	for _, d := range m.debts {
		l := d.team.peers[d.peer].link
		switch {
		case m.connected(l):
			d.team.write(d.peer, d.what)
		case l.failure() == nil:
			kept = append(kept, d)
		}
	}
	clear(m.debts[len(kept):])
	m.debts = kept
}

// Close frees what closed and broken teams left behind. It waits for nothing:
// the caller sees to it that all members are done, by a barrier of its own or by
// closing the queue pairs first.
func (m *Mesh) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var errs []error
	for _, mr := range m.kept {
		errs = append(errs, mr.Close())
	}
	m.kept, m.pinned = nil, nil
	return errors.Join(errs...)
}

// keep puts a region aside until Close.
func (m *Mesh) keep(mr rdma.MR) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.kept = append(m.kept, mr)
}

// pin keeps memory alive until Close.
func (m *Mesh) pin(mem []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pinned = append(m.pinned, mem)
}

// post posts the link's first n requests, the last one signaled if asked or if
// it is time. It returns the count to wait for in done; ok is false if there is
// no room now. An error shows in status. l.mu is held.
func (m *Mesh) post(l *link, n int, signal bool) (count uint64, ok bool) {
	if l.posted+uint64(n)-l.done.Load() > l.depth {
		m.poll()
		if l.posted+uint64(n)-l.done.Load() > l.depth {
			return 0, false
		}
	}
	if !m.used.Load() {
		m.used.Store(true)
	}
	last := &l.wrs[n-1]
	if signal || l.posted+uint64(n)-l.signaled > l.depth/4 {
		if m.owed.Add(1) > m.room {
			m.owed.Add(-1)
			m.poll()
			return 0, false
		}
		last.Flags |= rdma.SendSignaled
		l.signaled = l.posted + uint64(n)
	}
	l.posted += uint64(n)
	last.WRID = uint64(l.index)<<wridBits | l.posted&(1<<wridBits-1)
	for i := range n - 1 {
		l.wrs[i].WRID = uint64(l.index)<<wridBits | l.posted&(1<<wridBits-1)
	}
	if took, err := l.qp.PostSend(l.wrs[:n]); took != n || err != nil {
		// The queue pair refused: its state is no longer RTS, or a request
		// is invalid. Both end the link.
		m.fail(l, rdma.WCWRFlushErr)
	}
	return l.posted, true
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
			for i := range m.links {
				m.fail(&m.links[i], rdma.WCFatalErr)
			}
			return
		}
		if n < len(m.wcs) {
			return
		}
	}
}

func (m *Mesh) complete(wc *rdma.WC) {
	index := wc.WRID >> wridBits
	if index >= uint64(len(m.links)) {
		return // not ours
	}
	l := &m.links[index]
	if wc.Status != rdma.WCSuccess {
		m.fail(l, wc.Status)
		return
	}
	m.owed.Add(-1)
	// The id has the low bits of the count; no link is 2^40 requests behind.
	done := l.done.Load()
	done += (wc.WRID - done) & (1<<wridBits - 1)
	l.done.Store(done)
}

// fail notes a link's first error. It stays so.
func (m *Mesh) fail(l *link, status rdma.WCStatus) {
	l.status.CompareAndSwap(0, uint32(status))
	m.hurt.Store(true)
}

// failure is the link's error, nil while there is none.
func (l *link) failure() error {
	if s := l.status.Load(); s != 0 {
		return rdma.WCStatus(s)
	}
	return nil
}
