package p2p

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/gorun-mpi/gorun/internal/arch"
	"github.com/gorun-mpi/gorun/rank/internal/match"
	"github.com/gorun-mpi/gorun/rank/internal/peers"
	"github.com/gorun-mpi/gorun/rdma"
)

// failures is what has failed, and ends all that waits for it.
type failures struct {
	rings
	dead   func(peer int) error // Config.Dead
	failed int                  // peers that have failed
	err    error                // the engine itself is broken
}

// queueOf is a peer's queue pair, connected or not.
func (f *failures) queueOf(p *peer) rdma.QP {
	if p.QP != nil {
		return p.QP
	}
	return f.self.set.Begun(int(p.rank), peers.Messages)
}

func (f *failures) isDead(peer int) bool {
	return f.self.peers[peer].Err() != nil && !f.self.peers[peer].wasCut() || f.dead != nil && f.dead(peer) != nil
}

func (f *failures) damaged(p *peer) { f.fail(p, errors.New("it sent a damaged message")) }

// fail ends the traffic with a peer: what waits for it fails, now and later. Memory that is
// its owner's again when those calls return is safe: in ERR the queue pair reads
// into none and answers no read.
func (f *failures) fail(p *peer, err error) {
	if !p.Fail(&PeerError{Peer: int(p.rank), Err: err, lost: !errors.Is(err, ErrCut) && !errors.Is(err, ErrStill)}) {
		return
	}
	f.self.letGo(p, noNumber)
	todo := p.todo
	p.todo = nil
	f.failed++
	if qp := f.queueOf(p); qp != nil {
		// A failure to say so means that it is in ERR or gone.
		_ = qp.Modify(rdma.QPAttr{State: rdma.StateErr}, rdma.QPStateMask)
	}
	p.reading = 0
	if p.far != nil {
		f.rings.abandonFar(p)
	}
	f.self.set.Cut(int(p.rank))
	for i := range f.self.rows {
		o := f.self.rows[i].value
		if o == nil || o.peer != p || o.state == queued {
			continue // ship looks after a queued one
		}
		f.helpless(o)
		f.self.remove(o.number)
		f.rings.freeTicket(o)
		_ = o.drop() // the peer's error comes first
		f.self.complete(o, p.Err())
	}
	for _, c := range todo {
		if c.read != nil && c.read.state != done {
			_ = c.read.drop()
			f.self.complete(c.read, p.Err())
		}
	}
	for o := p.queue.pop(); o != nil; o = p.queue.pop() {
		f.self.complete(o, p.Err())
	}
	hopeless := func(r *match.Receive[*Op]) {
		if err := f.hopeless(r.Envelope, r.Value.group); err != nil {
			f.self.matches.Cancel(r)
			f.self.complete(r.Value, err)
		}
	}
	f.self.matches.Posted(p.rank, hopeless)
	f.self.matches.Posted(match.Any, hopeless)
}

// broken ends the engine, as a device that refuses what it has to take does.
func (f *failures) broken(err error) {
	if err != nil && f.err == nil {
		f.err = err
	}
}

// helpless ends the help with an operation that fails. It returns when the peer does
// not write into the memory any more.
func (f *failures) helpless(o *Op) {
	s := &o.split
	switch {
	case s.of == nil:
		return
	case o.ticket > 0: // the own send
		atomic.StoreUint64(&s.of.claim, 0) // no piece is taken any more
		arch.StoreRelease64(&s.of.moved, helpFailed)
		return
	}
	for begin := time.Now(); ; {
		w, first, end := s.free()
		if first < end && !atomic.CompareAndSwapUint64(&s.of.claim, w, claimWord(s.generation, end, end)) {
			continue
		}
		moved := atomic.LoadUint64(&s.of.moved)
		if uint32(w>>32) != s.generation || moved >= uint64(s.pieces-end) || time.Since(begin) > helpLimit || f.dead != nil && f.dead(int(o.peer.rank)) != nil {
			return
		}
		time.Sleep(helpPoll)
	}
}

// hopeless is why no message that fits want can come any more, nil while one
// can. A peer that has died ends a receive that it might have been meant for. One
// that only took its connection back (ErrCut) does when nobody else is left.
func (f *failures) hopeless(want match.Envelope, group []int32) (err error) {
	if want.Source >= 0 {
		return f.self.peers[want.Source].Err()
	}
	someone := false
	f.among(group, func(p *peer) {
		switch {
		case int(p.rank) == f.self.rank:
		case p.Err() == nil:
			someone = true
		case !p.wasCut():
			err = p.Err()
		}
	})
	if err != nil || someone {
		return err
	}
	f.among(group, func(p *peer) {
		if p.Err() != nil {
			err = p.Err()
		}
	})
	return err
}

// among calls visit for the peers of a group, of all for nil.
func (f *failures) among(group []int32, visit func(*peer)) {
	if group == nil {
		for i := range f.self.peers {
			visit(&f.self.peers[i])
		}
		return
	}
	for _, peer := range group {
		visit(&f.self.peers[peer])
	}
}
