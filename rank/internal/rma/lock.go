package rma

import (
	"context"
	"encoding/binary"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/gorun-mpi/gorun/internal/arch"
	"github.com/gorun-mpi/gorun/rdma"
)

// A lock word names its holder: a free word is turn << 32, a held one has the
// holder's rank + 1 in the low half. Taking it, and taking it from the dead, is
// one compare-and-swap, so that only one succeeds.
//
// The passive-target lock of a member is such a word and a word for each reader.
// Either side announces itself before it looks at the other:
//
//	reader                             writer
//	                                   a living reader wants? wait
//	readers[own] = holds               exclusive: free -> own
//	exclusive held? want, wait         wait until no living reader holds
//
// Both stores are full barriers (atomics), so one of the two sees the other.
// Writers go before readers that come later, and readers that met a writer go before
// the next one: neither can keep the others out by coming again and again. The word
// wanting spares writers the look at all readers. Who sleeps until a lock is free sets
// the word waiting, looks once more, and is woken by the rank that releases it; between
// hosts no rank is woken, and one that waits asks again and again.

// held is a lock word with the next turn taken by rank.
func held(free uint64, rank int) uint64 { return (free>>32+1)<<32 | uint64(rank+1) }

// try takes a lock word. When a member has it, holder says which.
func (w *Window) try(l *remote, word int, seen *uint64) (ok bool, holder int, err error) {
	if l.words != nil {
		p := &l.words[word]
		for {
			v := atomic.LoadUint64(p)
			if v&holderMask != 0 {
				*seen = v &^ holderMask
				return false, int(v&holderMask) - 1, nil
			}
			if atomic.CompareAndSwapUint64(p, v, held(v, w.g.Rank)) {
				*seen = v + 1<<32
				return true, 0, nil
			}
		}
	}
	for {
		v := *seen
		old, err := w.e.atomic(l.target, rdma.WRAtomicCmpAndSwp, l.ctl+8*uint64(word), l.ctlKey, v, held(v, w.g.Rank))
		if err != nil {
			return false, 0, err
		}
		if old == v {
			*seen = v + 1<<32
			return true, 0, nil
		}
		*seen = old &^ holderMask
		if old&holderMask != 0 {
			return false, int(old&holderMask) - 1, nil
		}
	}
}

// bury frees the lock word of a member that has died. It does nothing when
// the word has changed.
func (w *Window) bury(l *remote, word, holder int) error {
	if l.words != nil {
		p := &l.words[word]
		if v := atomic.LoadUint64(p); int(v&holderMask) == holder+1 {
			atomic.CompareAndSwapUint64(p, v, v&^holderMask)
		}
		return nil
	}
	v, err := w.e.load(l.target, l.ctl+8*uint64(word), l.ctlKey)
	if err == nil && int(v&holderMask) == holder+1 {
		_, err = w.e.atomic(l.target, rdma.WRAtomicCmpAndSwp, l.ctl+8*uint64(word), l.ctlKey, v, v&^holderMask)
	}
	return err
}

// set sets a word of a member's control region, after all that was done before.
func (w *Window) set(l *remote, word int, v uint64) error {
	if l.words != nil {
		// A full barrier: the look at waiting comes after it.
		atomic.StoreUint64(&l.words[word], v)
		return nil
	}
	return w.e.store(l.target, l.ctl+8*uint64(word), l.ctlKey, v)
}

// wake wakes those that wait for a lock of the member.
func (w *Window) wake(l *remote) {
	if l.words == nil || atomic.LoadUint64(&l.words[wordWaiting]) == 0 {
		return
	}
	atomic.StoreUint64(&l.words[wordWaiting], 0)
	for i := range w.remotes {
		if p := w.remotes[i].peer; p != nil {
			p.Notify()
		}
	}
}

// dead tells whether a member is known not to be there any more. A number that
// is no member's was scribbled.
func (w *Window) dead(member int) bool {
	return member < 0 || member >= w.g.Size || member != w.g.Rank && w.e.cfg.Dead(w.remotes[member].world) != nil
}

// acquire takes the accumulate lock of a member. Holders have it for the time of
// some copies, so contexts are not asked: only their death, and whether one keeps it
// for so long that its process must have been stopped.
func (w *Window) acquire(member int) error {
	l := &w.remotes[member]
	if err := w.missed(l); err != nil || l.owned {
		return err // the rank that has locked the member is alone there
	}
	ok, _, err := w.try(l, wordAccumulate, &l.accumulate)
	if !ok && err == nil {
		err = w.until(context.Background(), forAccumulate, member)
	}
	if err != nil || !w.allMapped {
		return err
	}
	if ok, _ := w.quiet(l, false); ok {
		return nil
	}
	if err = w.until(context.Background(), forSingles, member); err != nil {
		arch.StoreRelease64(&l.words[wordAccumulate], l.accumulate)
	}
	return err
}

// release gives it back, behind what was done under it, and complete. It wakes
// no rank: one that sleeps over this lock has met a holder that lost its CPU, and looks
// again by itself in some milliseconds.
func (w *Window) release(member int) error {
	l := &w.remotes[member]
	if l.owned {
		return nil
	}
	if l.words != nil {
		arch.StoreRelease64(&l.words[wordAccumulate], l.accumulate)
		return nil // what went by requests has been waited for
	}
	if err := w.set(l, wordAccumulate, l.accumulate); err != nil {
		return err
	}
	return w.e.await(context.Background(), l.target, l.target.Posted())
}

// Lock takes the passive-target lock of a member (MPI_Win_lock).
func (w *Window) Lock(ctx context.Context, member int, exclusive bool) error {
	l := &w.remotes[member]
	if !exclusive {
		err := w.until(ctx, forShared, member)
		if err != nil {
			_ = w.set(l, w.at.readers()+w.g.Rank, 0) // the error is told
			w.wake(l)
		}
		return err
	}
	if err := w.until(ctx, forExclusive, member); err != nil {
		return err
	}
	if err := w.until(ctx, forReaders, member); err != nil {
		_ = w.set(l, wordExclusive, l.exclusive) // the error is told
		w.wake(l)
		return err
	}
	l.owned = true
	return nil
}

// Unlock gives it back, when all accesses to the member are complete
// (MPI_Win_unlock). When ctx ends before, the lock is not given back.
func (w *Window) Unlock(ctx context.Context, member int, exclusive bool) error {
	l := &w.remotes[member]
	err := w.Flush(ctx, member)
	if err != nil && err == ctx.Err() {
		return err
	}
	word, v := w.at.readers()+w.g.Rank, uint64(0)
	if exclusive {
		word, v = wordExclusive, l.exclusive
		l.owned = false
	}
	if failed := w.set(l, word, v); err == nil {
		err = failed
	}
	w.wake(l)
	if err == nil {
		err = w.Flush(context.Background(), member)
	}
	return err
}

// What a word of readers says.
const (
	readerHolds = 1
	readerWants = 2 // and has met a writer
)

// tryShared tries to take the lock shared. Who has tried before looks for the
// writer first: readers that announce themselves again and again would keep it out.
func (w *Window) tryShared(l *remote, again bool) (ok bool, holder int, err error) {
	mine := w.at.readers() + w.g.Rank
	var v uint64
	if l.words != nil {
		if v = atomic.LoadUint64(&l.words[wordExclusive]); v&holderMask == 0 {
			atomic.StoreUint64(&l.words[mine], readerHolds)
			v = atomic.LoadUint64(&l.words[wordExclusive])
			if v&holderMask == 0 {
				return true, 0, nil
			}
		}
		if atomic.LoadUint64(&l.words[mine]) != readerWants {
			atomic.StoreUint64(&l.words[mine], readerWants)
			w.wake(l) // the writer
		}
		if atomic.LoadUint64(&l.words[wordWanting]) == 0 {
			atomic.StoreUint64(&l.words[wordWanting], 1)
		}
		return false, int(v&holderMask) - 1, nil
	}
	// An atomic, because a device may let a read pass a write of memory that
	// its own processor has to see in order.
	at, before := l.ctl+8*uint64(mine), uint64(0)
	if again {
		before = readerWants
		if v, err = w.e.load(l.target, l.ctl+8*wordExclusive, l.ctlKey); err != nil {
			return false, 0, err
		}
	}
	if v&holderMask == 0 {
		if _, err = w.e.atomic(l.target, rdma.WRAtomicCmpAndSwp, at, l.ctlKey, before, readerHolds); err != nil {
			return false, 0, err
		}
		if v, err = w.e.load(l.target, l.ctl+8*wordExclusive, l.ctlKey); err != nil || v&holderMask == 0 {
			return err == nil, 0, err
		}
		if err = w.e.store(l.target, at, l.ctlKey, readerWants); err != nil {
			return false, 0, err
		}
	}
	return false, int(v&holderMask) - 1, w.e.store(l.target, l.ctl+8*wordWanting, l.ctlKey, 1)
}

// tryExclusive tries to take the lock's word, unless it is some reader's turn. holder
// is the member that has it, or that reader.
func (w *Window) tryExclusive(l *remote, looking bool) (ok bool, holder int, err error) {
	var wanting uint64
	if l.words != nil {
		wanting = atomic.LoadUint64(&l.words[wordWanting])
	} else if wanting, err = w.e.load(l.target, l.ctl+8*wordWanting, l.ctlKey); err != nil {
		return false, 0, err
	}
	if wanting != 0 {
		none, reader, err := w.drained(l, readerWants, looking)
		if err != nil || !none {
			return false, reader, err
		}
		// A reader that comes in between says so again when it looks again.
		if err := w.set(l, wordWanting, 0); err != nil {
			return false, 0, err
		}
	}
	return w.try(l, wordExclusive, &l.exclusive)
}

// drained tells whether the word of no living reader is state, else whose is.
func (w *Window) drained(l *remote, state uint64, bury bool) (ok bool, holder int, err error) {
	for i := range w.g.Size {
		var v uint64
		if l.words != nil {
			v = atomic.LoadUint64(&l.words[w.at.readers()+i])
		} else {
			if i%readAtOnce == 0 {
				if err := w.readReaders(l, i, min(readAtOnce, w.g.Size-i)); err != nil {
					return false, 0, err
				}
			}
			v = binary.NativeEndian.Uint64(w.e.buffer(poolSize)[8*(i%readAtOnce):])
		}
		if v == state && !(bury && w.dead(i)) {
			return false, i, nil
		}
	}
	return true, 0, nil
}

// readAtOnce is how many words of readers the pool takes.
const readAtOnce = poolSize / 8

// readReaders reads n words of readers into the pool. Each is a request of its
// own, for only single words are read in one piece; they do not wait for each other.
func (w *Window) readReaders(l *remote, first, n int) error {
	e := w.e
	for i := range n {
		e.sge[0] = rdma.SGE{Addr: e.pool.Addr() + poolBuffer + 8*uint64(i), Length: 8, LKey: e.pool.LKey()}
		e.wr[0] = rdma.SendWR{Opcode: rdma.WRRDMARead, SGL: e.sge[:], RemoteAddr: l.ctl + 8*uint64(w.at.readers()+first+i), RKey: l.ctlKey}
		if err := e.post(l.target, nil); err != nil {
			return err
		}
	}
	return e.await(context.Background(), l.target, l.target.Posted())
}

// What a wait is for.
type purpose uint8

const (
	forAccumulate purpose = iota
	forSingles            // of which none is to be left
	forExclusive
	forReaders // of which none is to be left
	forShared
	forPosted    // exposure epochs of all targets of the access epoch
	forCompleted // access epochs of all origins of the exposure epoch
)

// A waiting is what a call of the window waits for: the one that runs, unless calls take turns.
type waiting struct {
	w      *Window
	what   purpose
	member int
	again  bool // it was tried before
	idle   uint32
	err    error
	turn   uint64    // of the accumulate lock, at the last look after its holder
	since  time.Time // the first look at this turn
}

// until waits for a lock of a member, or for an epoch.
func (w *Window) until(ctx context.Context, what purpose, member int) error {
	c, waits := &w.wait, w.e.cfg.Hold
	if what >= forExclusive { // what other ranks do may want other calls of this one
		waits = w.e.cfg.Wait
		if w.e.cfg.Turns != nil {
			c = &waiting{w: w}
		}
	}
	c.what, c.member, c.again, c.err, c.idle, c.since = what, member, false, nil, *w.e.cfg.Idle, time.Time{}
	if what < forPosted && w.remotes[member].words == nil {
		return c.ask(ctx)
	}
	if err := waits(ctx, c); err != nil {
		return err
	}
	return c.err
}

// attempt tries once; looking says that the rank has waited for long enough to
// look after the rank that it waits for.
func (c *waiting) attempt(looking bool) (ok bool, err error) {
	w := c.w
	var l *remote
	if c.what < forPosted {
		l = &w.remotes[c.member]
		if looking && w.dead(c.member) { // whoever holds its locks cannot free them, or thinks that it has none
			return false, w.e.cfg.Dead(l.world)
		}
	}
	word, holder := wordExclusive, 0
	switch c.what {
	case forAccumulate:
		word = wordAccumulate
		ok, holder, err = w.try(l, word, &l.accumulate)
	case forSingles:
		ok, holder = w.quiet(l, looking)
		if !ok && looking {
			err = c.stopped(holder, uint64(holder))
		}
		return ok, err
	case forExclusive:
		ok, holder, err = w.tryExclusive(l, looking)
	case forShared:
		ok, holder, err = w.tryShared(l, c.again)
	case forReaders:
		ok, _, err = w.drained(l, readerHolds, looking)
		return ok, err
	case forPosted:
		return w.met(w.started, w.at.posted(), looking)
	case forCompleted:
		return w.met(w.exposed, w.at.completed(), looking)
	}
	c.again = true
	switch {
	case ok || err != nil || !looking:
	case w.dead(holder):
		err = w.bury(l, word, holder)
	case c.what == forAccumulate:
		err = c.stopped(holder, l.accumulate)
	}
	return ok, err
}

// stopped tells whether a holder of the accumulate lock does not go on.
func (c *waiting) stopped(holder int, turn uint64) error {
	now := time.Now()
	if c.since.IsZero() || turn != c.turn {
		c.turn, c.since = turn, now
		return nil
	}
	most := c.w.e.patience
	if now.Sub(c.since) < most {
		return nil
	}
	return &MemberError{holder, fmt.Errorf("%w: it has been in an accumulate to rank %d for %v", ErrStopped, c.member, most)}
}

// Ready is for what lies in mapped memory.
func (c *waiting) Ready() bool {
	looking := *c.w.e.cfg.Idle != c.idle
	c.idle = *c.w.e.cfg.Idle
	ok, err := c.attempt(looking)
	if !ok && err == nil && (c.what == forExclusive || c.what == forReaders || c.what == forShared) {
		if p := &c.w.remotes[c.member].words[wordWaiting]; atomic.LoadUint64(p) == 0 {
			atomic.StoreUint64(p, 1)
			ok, err = c.attempt(false)
		}
	}
	c.err = err
	return ok || err != nil
}

const (
	askSoon  = 32 // attempts before there are pauses between them
	askPause = 20 * time.Microsecond
	askMost  = time.Millisecond
	askLook  = 16 // attempts for each look after the holder
)

// ask is for what requests have to ask for.
func (c *waiting) ask(ctx context.Context) error {
	for n := 1; ; n++ {
		if ok, err := c.attempt(n%askLook == 0); ok || err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		turns := c.w.e.cfg.Turns
		leaves := turns != nil && c.what >= forExclusive
		if leaves {
			turns.Leave()
		}
		if n < askSoon {
			runtime.Gosched()
		} else {
			time.Sleep(min(askPause*time.Duration(n/askSoon), askMost))
		}
		if leaves {
			turns.Enter(n >= askSoon)
		}
	}
}
