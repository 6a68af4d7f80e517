package p2p

import (
	"sync/atomic"

	"github.com/gorun-mpi/gorun/internal/arch"
)

// An inbox is a ring of lines that all peers write. The word of the line at a
// position, which counts on, with its lap (position / lines):
//
//	free{lap} --claim: one compare-and-swap--> claimed{lap, who}
//	    ^                                          | store, release
//	    |                                          v
//	free{lap+1} <---taken out: store, release--- kind{lap, who}
//
// A claim says whose it is, so that the line of a peer that dies before it has
// filled it in is passed over. hint is a position near the first that is free:
// the sender that claimed one stores the next. It only saves steps: positions are claimed
// without gaps, because a peer passes over a line only when it sees it claimed, by
// others or by itself. Zero memory is an empty inbox.

// stuckLooks is how many looks at a claimed line there are to one at its owner.
const stuckLooks = 1 << 12

// putInbox sends a line through a peer's inbox; false: it is full.
func (s *rings) putInbox(p *peer, what kind, route, id uint64, data []byte) bool {
	f := p.far
	at, ok := s.claim(f)
	if !ok {
		return false
	}
	ln := &f.inbox[at%inboxLines]
	ln.route, ln.id = route, id
	copy(ln.data[:], data)
	arch.StoreRelease64(&ln.word, pack(uint32(at/inboxLines), what, len(data), s.self.rank))
	f.memory.Notify()
	if f.messages++; f.messages >= hotAfter && !f.asked && what < wantRing {
		f.asked = s.putInbox(p, wantRing, 0, 0, nil)
	}
	return true
}

// claim claims the first free line.
func (s *rings) claim(f *far) (at uint64, ok bool) {
	at = f.next
	if hint := atomic.LoadUint64(f.hint); hint > at {
		// The line before was claimed when the hint was stored, unless
		// a process scribbles.
		if lap, what, _, _ := unpack(atomic.LoadUint64(&f.inbox[(hint-1)%inboxLines].word)); uint64(lap) > (hint-1)/inboxLines || uint64(lap) == (hint-1)/inboxLines && what != free {
			at = hint
		}
	}
	for range 3 * inboxLines {
		ln := &f.inbox[at%inboxLines]
		w := atomic.LoadUint64(&ln.word)
		lap, what, _, _ := unpack(w)
		mine := uint32(at / inboxLines)
		switch {
		case lap == mine && what == free:
			if atomic.CompareAndSwapUint64(&ln.word, w, pack(mine, claimed, 0, s.self.rank)) {
				f.next = at + 1
				if atomic.LoadUint64(f.hint) <= at {
					atomic.StoreUint64(f.hint, at+1) // may go back a little; see above
				}
				return at, true
			}
		case lap == mine:
			at++
		case lap > mine && lap-mine < 1<<31:
			// The line has been taken out in the lap before its own, and so
			// has all that came before it. What comes after may be free.
			at += uint64(lap-mine-1)*inboxLines + 1
		default:
			return 0, false // not taken out since the lap before
		}
	}
	return 0, false
}
