package soft

import (
	"encoding/binary"
	"math"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/gorun-mpi/gorun/internal/arch"
	"github.com/gorun-mpi/gorun/rdma"
)

// Atomics are atomic against each other (IBV_ATOMIC_HCA), whichever process asks for
// them. In the arena they are the processor's. Elsewhere, where the processor
// of the initiator may not reach, they are a read and a write under the lock
// word of the owner's arena that the address hashes to.

func wordBytes(v uint64) (b [8]byte) {
	binary.NativeEndian.PutUint64(b[:], v)
	return b
}

// atomic executes an atomic on 8 checked bytes of the peer. rank is the
// initiator's place in the segment.
func (s *peer) atomic(sp *span, word rdma.Word, compareAdd, swap uint64, rank int) (old uint64, status rdma.WCStatus) {
	if sp.key != 0 {
		one, st := sp.word()
		if st != rdma.WCSuccess {
			return 0, st
		}
		sp = &one
	}
	if sp.mem != nil && !sp.guard {
		w := word64(sp.mem)
		if w == nil {
			// A zero-based region need not begin on a multiple of 8.
			return 0, rdma.WCRemInvReqErr
		}
		if word == rdma.WordAdd {
			return atomic.AddUint64(w, compareAdd) - compareAdd, rdma.WCSuccess
		}
		for {
			old = atomic.LoadUint64(w)
			next, written := word.Next(old, compareAdd, swap)
			if !written || atomic.CompareAndSwapUint64(w, old, next) {
				return old, rdma.WCSuccess
			}
		}
	}
	addr := sp.va
	if sp.mem != nil {
		addr = addressOf(sp.mem)
	}
	if addr%8 != 0 {
		return 0, rdma.WCRemInvReqErr
	}
	l := &s.locks[addr/8%lockWords].word
	held := s.lock(l, rank)
	defer s.unlock(l, held)
	var b [8]byte
	if status = sp.load(0, b[:], false); status != rdma.WCSuccess {
		return 0, status
	}
	old = binary.NativeEndian.Uint64(b[:])
	next, written := word.Next(old, compareAdd, swap)
	if !written {
		return old, rdma.WCSuccess
	}
	b = wordBytes(next)
	return old, sp.store(0, b[:], false)
}

// lockPatience is how long one turn of a lock may last before it is taken from
// its holder even if that seems alive: the word may have been scribbled on.
const lockPatience = time.Second

// lock takes a lock word for rank, also from a holder that has died: one
// compare-and-swap of the whole word, so that only one taker succeeds.
func (s *peer) lock(l *uint64, rank int) (held uint64) {
	var waited patience
	var seen uint64
	for i := 1; ; i++ {
		w := atomic.LoadUint64(l)
		next := (w>>32+1)<<32 | uint64(rank+1)
		if uint32(w) == 0 {
			if atomic.CompareAndSwapUint64(l, w, next) {
				return next
			}
			continue
		}
		if i%64 != 0 {
			arch.Pause()
			continue
		}
		runtime.Gosched()
		if w != seen {
			seen, waited = w, patience{}
		}
		if waited.over(lockPatience) || s.p.holderDead(int(uint32(w))-1) {
			if atomic.CompareAndSwapUint64(l, w, next) {
				return next
			}
		}
	}
}

// unlock gives a lock word back, unless it was taken away.
func (s *peer) unlock(l *uint64, held uint64) { atomic.CompareAndSwapUint64(l, held, held&^(1<<32-1)) }

// holderDead tells whether a rank of the segment is known to have ended. The rank
// that holds something here need not have been introduced: a sender of datagrams, an
// initiator of DC, another initiator of the same target. Then holderDead goes by the
// process that the rank's arena names, which is 0 when its provider was closed.
func (p *Provider) holderDead(rank int) bool {
	if rank < 0 || rank >= p.segment.Ranks() {
		return true
	}
	if p.segment.Dead(rank) {
		return true
	}
	if rank == p.cfg.Rank {
		return false
	}
	p.mu.Lock()
	var holder *peer
	for _, s := range p.peers {
		if s.inside && s.rank == rank {
			holder = s
			break
		}
	}
	p.mu.Unlock()
	if holder != nil {
		return holder.checkDead()
	}
	arena, err := p.segment.Arena(rank)
	if err != nil {
		return false
	}
	pid := atomic.LoadUint32(&at[arenaHeader](arena, 0).owner)
	return pid == 0 || pid > math.MaxInt32 || !processAlive(int(pid))
}
