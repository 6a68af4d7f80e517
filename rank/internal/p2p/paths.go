package p2p

import (
	"sync/atomic"

	"github.com/gorun-mpi/gorun/rdma"
)

// This is what is different with peers over paths (package dc).
//
// A path is there when it is first needed, and what the peer sends comes to the one target,
// whose receives are the shared ones: so there are no offers. Who has sent a message is what
// it says: whoever knows the access key is of this job.
//
// A peer that has failed here still sends, and still reads here: the
// target is that of others too. What comes is dropped, and the peer is told by mail. As for
// an announced message that was given up, its receiver finds out by itself: when it
// has read the message it reads the announcement's word too,
//
//	opened[peer][k] = announced | number of the operation
//
// which holds as long as the message is where it was announced, and says finished or
// keeps the message only then. Reads of one path are executed in their order.

const (
	// openWords is how many announcements to a peer are unanswered at most.
	openWords = rendezvousMax
	announced = 1 << 32
)

// firstChunks is what the target begins with.
const firstChunks = 8

// isPath tells whether what is posted to a peer goes over a path.
func (l *links) isPath(p *peer) bool { return l.self.set.IsPath(int(p.rank)) }

// answers makes the target with its first receives.
func (l *links) answers() error {
	if !l.self.set.Paths() {
		return nil
	}
	if err := l.pool.openShared(); err != nil {
		return err
	}
	// For those that send before this rank has had to do with them.
	for range min(firstChunks, l.self.size-1) {
		if err := l.pool.bring(&peer{pooled: true}, nil); err != nil {
			return err
		}
	}
	var err error
	l.target, err = l.self.set.Target(l.pool.srq, l.cq)
	return err
}

// Target is the queue pair that dynamically connected peers send to, nil where there are none.
func (e *Engine) Target() rdma.QP { return e.wire.target }

// path makes the path to a peer, which is its queue pair from then on.
func (l *links) path(p *peer) (rdma.QP, error) {
	if !p.mapped {
		p.pooled = true
		if err := l.pool.bring(p, nil); err != nil {
			return nil, err
		}
	}
	return l.self.set.Path(int(p.rank), l.in, l.self.queue)
}

// hold notes an announcement, and gives its word as an offset in the engine's region; false:
// there are too many.
func (m *memory) hold(p *peer, number uint32) (word uint32, ok bool) {
	for k := range openWords {
		if at := int(p.rank)*openWords + k; m.opened[at] == 0 {
			// Before the announcement leaves.
			atomic.StoreUint64(&m.opened[at], announced|uint64(number))
			return uint32(m.openOff + 8*at), true
		}
	}
	return 0, false
}

// letGo takes the word of an announcement back; number noNumber: all of the peer's.
func (m *memory) letGo(p *peer, number uint32) {
	if m.opened == nil || p.mapped {
		return
	}
	for k := range openWords {
		if w := &m.opened[int(p.rank)*openWords+k]; number == noNumber || *w == announced|uint64(number) {
			atomic.StoreUint64(w, 0)
		}
	}
}

// wordOf is where among checked the word of a message comes. The peer has openWords of them
// behind each other.
func (m *memory) wordOf(o *Op) int { return int(o.peer.rank)*openWords + int(o.word)/8%openWords }

// held tells whether a message that was read had not been given up until then.
func (m *memory) held(o *Op) bool {
	return atomic.LoadUint64(&m.checked[m.wordOf(o)]) == announced|uint64(o.id)
}

// readWord posts the read of the word of a message that was read.
func (cs *chores) readWord(p *peer, o *Op) {
	at := cs.self.openOff + 8*(len(cs.self.opened)+cs.self.wordOf(o))
	cs.links.sge[0] = rdma.SGE{Addr: cs.self.mr.Addr() + uint64(at), Length: 8, LKey: cs.self.mr.LKey()}
	cs.links.wr[0] = rdma.SendWR{Opcode: rdma.WRRDMARead, SGL: cs.links.sge[:], RemoteAddr: p.control - 8*uint64(cs.self.rank) + uint64(o.word), RKey: p.controlKey}
	o.pending++
	cs.links.post(p, whatRead, o.number) // a failure fails the peer, and o with it
}
