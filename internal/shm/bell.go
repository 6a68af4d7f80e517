package shm

import (
	"sync/atomic"
	"time"

	"github.com/gorun-mpi/gorun/internal/arch"
)

const (
	// sleepMost bounds every sleep, so that a wake-up lost to a peer's death
	// or to a scribbled word costs no more than this. Callers sleep for less where they
	// have not waited for long.
	sleepMost = 100 * time.Millisecond
	// sleepUncertain bounds sleeps where the kernel has no membarrier and a
	// wake-up can be lost in the ordinary course of things.
	sleepUncertain = time.Millisecond
)

// A Bell lets its owner, a rank, sleep until a peer rings. Its word:
//
//	        Prepare                      Ring (and wake)
//	0 awake ---------> 1 about to sleep -----------------> 0
//	   ^                     |  ^ |
//	   +------ Cancel -------+  +-+ Sleep that runs out of time
//
// The owner calls Prepare, looks once more at what it waits for, then calls
// Sleep or Cancel. A peer makes what the owner waits for visible (a release
// store is enough), then calls Ring. No wake-up is lost, because either the
// owner sees the store or the peer sees the word:
//
//	owner                      peer
//	word = 1                   data = new
//	barrier of all peers       (nothing, or its own barrier)
//	look at data               look at word
//
// The peer's half is where the hot path is. On amd64 its look may overtake its
// store, which sits in the store buffer; a barrier in each Ring would drain it
// at 20-125 ns a message. So the owner's [arch.Membarrier] has every registered
// process pass the barrier: a peer whose store came before it is seen by the
// owner's look, one whose store comes after it looks after it too and sees
// the word. A peer whose process is not registered yet has its own barrier in
// Ring. A process that becomes registered after the owner's membarrier went by
// is one whose looks come after that membarrier, hence after word = 1: until it is,
// Ring has its own barrier, so it does not matter when a process registers, or how it
// has mapped the segment. Where the kernel leaves a CPU out for a while (see
// [arch.RegisterMembarrier]) a wake-up can be lost, and costs one bounded sleep.
//
// It has the method set of rdma.Sleeper.
type Bell struct {
	word    *uint32 // in the rank entry
	second  *uint32 // the word of beside, one that stays 0 where that is nil
	covered *coverage
	beside  *Bell                // is rung too
	wake    chan struct{}        // local segments: capacity 1; nil: a futex on word
	timer   *time.Timer          // owner's, local segments
	longest time.Duration        // owner's: how long a sleep may be; 0 before Prepare
	keep    bool                 // owner's: KeepProcessor
	_       [arch.CacheLine]byte // what the owner writes stays off the next bell's line
}

// Prepare makes every Ring from now on end the next Sleep. Owner only.
func (b *Bell) Prepare() {
	if b.longest != 0 && atomic.LoadUint32(b.word) == listening {
		// The last Sleep ran out of time and nobody has rung: the word has
		// been 1 since the barrier behind it, which still holds.
		return
	}
	b.drain()
	atomic.StoreUint32(b.word, listening)
	if arch.Membarrier() == nil {
		b.longest = sleepMost
	} else {
		b.longest = sleepUncertain
	}
}

// drain takes what a Ring after the last Cancel or Sleep left.
func (b *Bell) drain() {
	if b.wake != nil {
		select {
		case <-b.wake:
		default:
		}
	}
}

// Sleep waits for a Ring since Prepare, for at most nanoseconds and never more
// than 100 ms, and tells whether there was one. It may return early without a reason.
// Owner only. Other goroutines run meanwhile.
func (b *Bell) Sleep(nanoseconds int64) (rung bool) {
	if d := min(time.Duration(nanoseconds), b.longest); d > 0 {
		b.sleep(d)
	}
	return atomic.LoadUint32(b.word) == 0
}

// KeepProcessor has the owner's thread keep its processor of Go's scheduler in the sleeps from now on. It
// is for a thread that has one of its own ([arch.AddProcessors]), and no other goroutine is kept from running.
//
// Go's monitor takes the processor of a thread that it finds in a system call for long, and looks every 20 us
// for a millisecond from then on. A thread that sleeps again and again has it do so for ever, some 60 timer
// interrupts for each sleep. A sleep that keeps its processor is ended by the signal by which the runtime
// stops a goroutine, so that a collection need not wait for it; under GODEBUG=asyncpreemptoff=1 there is no such
// signal, and it waits for the end of the sleep. Owner only.
func (b *Bell) KeepProcessor(keep bool) { b.keep = keep }

func (b *Bell) sleep(d time.Duration) {
	word := atomic.LoadUint32(b.word)
	if word == 0 {
		return
	}
	if b.wake == nil {
		futexWait(b.word, word, d, b.keep)
		return
	}
	if b.timer == nil {
		b.timer = time.NewTimer(d)
	} else {
		b.timer.Reset(d)
	}
	select {
	case <-b.wake:
	case <-b.timer.C:
	}
	b.timer.Stop()
}

// Cancel takes Prepare back. Owner only.
func (b *Bell) Cancel() { atomic.StoreUint32(b.word, 0) }

// Ring wakes the owner if it sleeps or is about to. Any peer, after its stores.
// It costs a load while the owner is awake.
func (b *Bell) Ring() {
	if !b.covered.on.Load() {
		fence()
	}
	if atomic.LoadUint32(b.word) != 0 || atomic.LoadUint32(b.second) == listening {
		b.ring()
	}
}

func (b *Bell) ring() {
	b.Wake()
	if b.beside != nil && atomic.LoadUint32(b.second) == listening {
		b.beside.Wake()
	}
}

// The words of a bell: its owner is awake if neither.
const (
	listening = 1 // about to sleep, or asleep
	dozing    = 2 // the same, and no peer need ring: the second thread's
)

// Doze is Prepare for a sleep that no peer's Ring ends, but [Bell.Wake] alone does. It is
// for the bell of a second thread. Owner only.
func (b *Bell) Doze() {
	b.drain()
	atomic.StoreUint32(b.word, dozing)
	b.longest = sleepMost
}

// Hush has a Sleep that peers' Rings would have ended, and that goes on or is about to,
// be one of Doze, and tells whether there is one. Another thread of the owner may call it. It
// costs a load if there is none.
func (b *Bell) Hush() (hushed bool) {
	return atomic.LoadUint32(b.word) == listening && atomic.CompareAndSwapUint32(b.word, listening, dozing)
}

// Wake ends the Sleep of Prepare and of Doze. It takes a full barrier between what the
// owner is to see and Wake: an atomic read-modify-write of it is one. It costs a load while
// the owner is awake.
func (b *Bell) Wake() {
	// Whoever takes the word back to 0 does the waking. Any value is taken
	// back, whatever was scribbled there.
	word := atomic.LoadUint32(b.word)
	if word == 0 || !atomic.CompareAndSwapUint32(b.word, word, 0) {
		return
	}
	if b.wake == nil {
		futexWake(b.word)
		return
	}
	select {
	case b.wake <- struct{}{}:
	default: // a token is there already
	}
}

// fence is a full memory barrier: every atomic read-modify-write is one in Go's
// memory model as its compilers implement it (LOCK XADD, LDADDAL).
func fence() {
	var word uint32
	atomic.AddUint32(&word, 1)
}
