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

// isPath tells whether what is posted to a peer goes over a path.
func (e *Engine) isPath(p *peer) bool { return e.set.IsPath(int(p.rank)) }

// answers makes the target with its first receives.
func (e *Engine) answers() error {
	if !e.set.Paths() {
		return nil
	}
	if err := e.openShared(); err != nil {
		return err
	}
	// For those who send before this rank has had to do with them.
	for range min(firstChunks, e.size-1) {
		if err := e.bring(&peer{shares: true}, nil); err != nil {
			return err
		}
	}
	var err error
	e.target, err = e.set.Target(e.pool.srq, e.cq)
	return err
}

// firstChunks is what the target begins with.
const firstChunks = 8

// Target is the queue pair that dynamically connected peers send to, nil where there are none.
func (e *Engine) Target() rdma.QP { return e.target }

// path makes the path to a peer, which is its queue pair from then on.
func (e *Engine) path(p *peer) (rdma.QP, error) {
	if !p.mapped {
		p.shares = true
		if err := e.bring(p, nil); err != nil {
			return nil, err
		}
	}
	return e.set.Path(int(p.rank), e.in, e.queue)
}

// hold notes an announcement, and gives its word as an offset in the engine's region; false:
// there are too many.
func (e *Engine) hold(p *peer, number uint32) (word uint32, ok bool) {
	for k := range openWords {
		if at := int(p.rank)*openWords + k; e.opened[at] == 0 {
			// Before the announcement leaves.
			atomic.StoreUint64(&e.opened[at], announced|uint64(number))
			return uint32(e.openOff + 8*at), true
		}
	}
	return 0, false
}

// letGo takes the word of an announcement back; number noNumber: all of the peer's.
func (e *Engine) letGo(p *peer, number uint32) {
	if e.opened == nil || p.mapped {
		return
	}
	for k := range openWords {
		if w := &e.opened[int(p.rank)*openWords+k]; number == noNumber || *w == announced|uint64(number) {
			atomic.StoreUint64(w, 0)
		}
	}
}

// readWord posts the read of the word of a message that was read.
func (e *Engine) readWord(p *peer, o *Op) {
	at := e.openOff + 8*(len(e.opened)+e.wordOf(o))
	e.sge[0] = rdma.SGE{Addr: e.mr.Addr() + uint64(at), Length: 8, LKey: e.mr.LKey()}
	e.wr[0] = rdma.SendWR{Opcode: rdma.WRRDMARead, SGL: e.sge[:], RemoteAddr: p.control - 8*uint64(e.rank) + uint64(o.word), RKey: p.controlKey}
	o.pending++
	e.post(p, whatRead, o.number) // a failure fails the peer, and o with it
}

// wordOf is where among checked the word of a message comes. The peer has openWords of them
// behind each other.
func (e *Engine) wordOf(o *Op) int { return int(o.peer.rank)*openWords + int(o.word)/8%openWords }

// held tells whether a message that was read had not been given up until then.
func (e *Engine) held(o *Op) bool {
	return atomic.LoadUint64(&e.checked[e.wordOf(o)]) == announced|uint64(o.id)
}
