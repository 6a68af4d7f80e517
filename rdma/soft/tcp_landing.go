package soft

import (
	"sync/atomic"

	"github.com/gorun-mpi/gorun/rdma"
)

// A landing is a long frame whose payload is read from the socket into the memory where it belongs, without
// a copy in between: that of a write at its responder, or of a read at its requester. The memory is
// looked up anew, with the queue pair's mu held, for each call that reads into it. So when a
// deregistration returns nothing is placed there any more.
type landing struct {
	active bool
	f      frame
	got    int  // bytes of the payload that have been read
	lost   bool // their memory has gone: the rest is read and thrown away
}

// tail is how much is read at once of what follows a payload: the next header, and little of what belongs to that,
// which may land, too.
const tail = 1 << 10

// landFrom is for how many bytes that are still to come it is worth the look.
const landFrom = 4 << 10

// longest is how many bytes of a request's payload go in a piece: the receiver looks for their memory once for each.
func (l *link) longest(o *rdma.Operation) uint32 {
	if l.sealed == nil && o.Moves == rdma.MovesToMemory && o.Received == 0 {
		return landingSize
	}
	return pieceSize
}

// land begins the landing of a frame of whose payload have has been read. It is false where the
// frame is to be executed when it is there as a whole.
func (l *link) land(f *frame, have []byte) bool {
	if l.sealed != nil || int(f.length)-len(have) < landFrom {
		return false
	}
	q, mem := l.home(f)
	if q == nil {
		return false
	}
	defer q.mu.Unlock()
	if !guarded(mem, have) {
		return false
	}
	l.landing = landing{active: true, f: *f, got: len(have)}
	return true
}

// home finds the memory where a frame's payload belongs, and the queue pair, which is then locked.
// It is nil where that is not one piece of memory, or the frame is not due.
func (l *link) home(f *frame) (*queuePair, []byte) {
	o := f.op.Operation()
	switch {
	case f.kind == frameRequest && o.Moves == rdma.MovesToMemory && o.Received == 0 && f.flags == 0:
		q, in, _, a := l.addressed(f)
		if q == nil {
			return nil, nil
		}
		var sp span
		if a == accepted && (f.offset == 0 || f.offset == in.inside) && permits(atomic.LoadUint32(&q.own.rights), o) &&
			l.n.p.self.open(&sp, q.own, f.key, f.addr, uint64(f.total), o.Access) && sp.mem != nil && sp.key == 0 {
			return q, sp.mem[f.offset : f.offset+f.length]
		}
		q.mu.Unlock()

	case f.kind == frameData:
		q, at := l.asked(f)
		if q == nil {
			return nil, nil
		}
		if at == 0 {
			if mem := q.wire.expects(f); mem != nil {
				return q, mem
			}
		}
		q.mu.Unlock()
	}
	return nil, nil
}

// expects is the memory for a piece of the data of the read that is the head of the backlog; nil where it is
// not one piece of memory. Called with mu held.
func (w *wireState) expects(f *frame) []byte {
	q := w.q
	e := q.sq.pending.first()
	if e.wr.Opcode.Operation().Moves != rdma.MovesFromMemory || f.offset != w.settled {
		return nil
	}
	segs, total, _, ok := q.scratch.mem.gather(q.pd, &e.wr)
	if !ok || q.scratch.mem.laid || uint64(f.total) != total {
		return nil
	}
	off, n := int(f.offset), int(f.length)
	for _, b := range segs {
		if off < len(b) {
			if n > len(b)-off {
				return nil
			}
			return b[off : off+n]
		}
		off -= len(b)
	}
	return nil
}

// readOnto reads what comes next of the payload, and what follows it into the buffer. room is how much
// it would have taken.
func (l *link) readOnto() (k, room int, end bool) {
	g, n := &l.landing, l.n
	left := int(g.f.length) - g.got
	mem := n.buf[tail : tail+left]
	if !g.lost {
		if q, home := l.home(&g.f); q != nil {
			defer q.mu.Unlock()
			mem = home[g.got:]
		} else {
			g.lost = true
		}
	}
	k, end, fault := l.scatterSocket(mem, n.buf[:tail])
	if fault && !g.lost {
		g.lost = true // it is thrown away from the next call on
		return 0, 1, false
	}
	return k, left + tail, end || fault
}

// touchDown notes that k bytes were read, executes the frame when its payload is complete, and gives how
// many bytes behind it are in the buffer.
func (l *link) touchDown(k int) (behind int) {
	g := &l.landing
	if !g.active {
		return k
	}
	left := int(g.f.length) - g.got
	g.got += min(k, left)
	if k < left {
		return 0
	}
	if g.active = false; g.f.kind == frameData {
		l.answered(&g.f, nil)
	} else {
		l.serve(&g.f, nil)
	}
	return k - left
}
