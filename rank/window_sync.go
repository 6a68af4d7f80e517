package rank

import (
	"context"
	"runtime"
	"sync/atomic"

	"github.com/gorun-mpi/gorun/rank/internal/rma"
)

// An Assert tells a synchronisation call what the program guarantees
// (MPI's assertions). The result of a wrong assertion is undefined.
type Assert uint8

// The assertions. A call ignores those that do not concern it.
const (
	ModeNoCheck   Assert = 1 << iota // Lock, LockAll: no rank holds a conflicting lock; Start: all targets have called Post
	ModeNoStore                      // Fence, Post: this rank has not stored into its own window memory since the last synchronisation
	ModeNoPut                        // Fence, Post: no rank will put or accumulate into this rank's memory
	ModeNoPrecede                    // Fence: this rank has started no accesses before this call
	ModeNoSucceed                    // Fence: this rank will start no accesses after this call
)

// A LockType says whether other ranks may hold the lock at the same time.
type LockType uint8

// The lock types.
const (
	LockShared    LockType = iota + 1 // MPI_LOCK_SHARED: other ranks may hold a shared lock too
	LockExclusive                     // MPI_LOCK_EXCLUSIVE
	lockUnchecked                     // ModeNoCheck: nothing is held
)

// epochs are the epochs that are open. An access epoch is of one kind:
//
//	none -> fenced -> none | fenced
//	none or fenced without accesses -> started -> none
//	none or fenced without accesses -> locked (rank by rank, or all) -> none
//
// An exposure epoch, of Post, may be open beside it.
type epochs struct {
	fenced  bool
	used    bool // there were accesses since the fence
	started bool
	all     LockType // of LockAll
	exposed bool
	targets []bool // of Start
	begun   []int  // the same as a list
	posted  []int  // the origins of Post
}

// errSync is an error of class RMA_SYNC.
func errSync(format string, args ...any) error { return badClass(ClassRMASync, format, args...) }

func errExposed() error { return errSync("the epoch of Post is open: call Wait first") }

// allows tells why a rank must not be accessed now.
func (w *window) allows(target int, passive bool) error {
	switch {
	case w.all != 0 || w.locks[target] != 0:
	case passive:
		return errSync("the call needs a lock of the target: call Lock or LockAll first")
	case w.fenced:
		w.used = true
	case w.started && w.targets[target]:
	case w.started:
		return errSync("the target is not in the group of Start")
	default:
		return errSync("no epoch is open: call Fence, Start, Lock or LockAll first")
	}
	return nil
}

// closed tells why an access epoch cannot begin: another one is open.
func (w *window) closed() error {
	switch {
	case w.started:
		return errSync("the epoch of Start is open: call Complete first")
	case w.all != 0:
		return errSync("the epoch of LockAll is open: call UnlockAll first")
	case w.locked > 0:
		return errSync("%d ranks are locked: call Unlock first", w.locked)
	}
	return nil
}

// openable is closed, and ends an epoch of Fence without accesses.
func (w *window) openable() error {
	if w.fenced && w.used {
		return errSync("the epoch of Fence is open and has accesses: call Fence with ModeNoSucceed first")
	}
	if err := w.closed(); err != nil {
		return err
	}
	w.fenced = false
	return nil
}

// call does a call of synchronisation towards a rank, -1 for nobody in particular.
func (w *window) call(op string, target int, f func() error) error {
	err := w.enter()
	if err != nil {
		return w.fail(op, -1, err)
	}
	if target < -1 || target >= w.comm.size {
		err, target = noRank(w, target), -1
	} else {
		err = f()
	}
	w.comm.world.leave()
	if err != nil {
		return w.fail(op, target, err)
	}
	return nil
}

// Fence completes all accesses of all ranks since the last Fence, and begins an
// epoch in which each rank may access all others (MPI_Win_fence). All ranks call it.
func (w *window) Fence(ctx context.Context, assert Assert) error {
	const op = "win_fence"
	err := w.enter()
	if err != nil {
		return w.fail(op, -1, err)
	}
	defer w.comm.world.leave()
	if err = w.closed(); err == nil && w.exposed {
		err = errExposed()
	}
	if err != nil {
		return w.fail(op, -1, err)
	}
	// Others wait in the barrier, also for a rank whose accesses have failed.
	err = w.in.FlushAll(ctx)
	if met := w.comm.team.Barrier(ctx); met != nil {
		return w.comm.failCollective(op, met)
	}
	w.fenced, w.used = assert&ModeNoSucceed == 0, false
	if err != nil {
		return w.fail(op, -1, err)
	}
	return nil
}

// Lock begins an epoch of accesses to the target, which makes no call itself
// (MPI_Win_lock). It waits while another rank holds a conflicting lock.
func (w *window) Lock(ctx context.Context, kind LockType, target int, assert Assert) error {
	if target == ProcNull {
		return nil
	}
	return w.call("win_lock", target, func() error {
		if target < 0 {
			return noRank(w, target)
		}
		if kind != LockShared && kind != LockExclusive {
			return badClass(ClassLockType, "lock type %d: expected LockShared or LockExclusive", kind)
		}
		if w.locks[target] != 0 {
			return errSync("this rank already holds a lock of the target")
		}
		if w.locked == 0 {
			if err := w.openable(); err != nil {
				return err
			}
		}
		if assert&ModeNoCheck != 0 {
			kind = lockUnchecked
		} else if err := w.in.Lock(ctx, target, kind == LockExclusive); err != nil {
			return err
		}
		w.locks[target] = kind
		w.locked++
		return nil
	})
}

// Unlock ends the epoch of Lock: all accesses to the target are complete on
// both sides (MPI_Win_unlock). When ctx ends first, the lock is still held.
func (w *window) Unlock(ctx context.Context, target int) error {
	if target == ProcNull {
		return nil
	}
	return w.call("win_unlock", target, func() error {
		if target < 0 {
			return noRank(w, target)
		}
		kind := w.locks[target]
		if kind == 0 {
			return errSync("this rank holds no lock of the target: call Lock first")
		}
		err := unlock(w, ctx, target, kind)
		if err == nil || err != ctx.Err() {
			w.locks[target] = 0
			w.locked--
		}
		return err
	})
}

func unlock(w *window, ctx context.Context, target int, kind LockType) error {
	if kind == lockUnchecked {
		return w.in.Flush(ctx, target)
	}
	return w.in.Unlock(ctx, target, kind == LockExclusive)
}

// LockAll locks all ranks with shared locks (MPI_Win_lock_all).
func (w *window) LockAll(ctx context.Context, assert Assert) error {
	return w.call("win_lock_all", -1, func() error {
		if err := w.openable(); err != nil {
			return err
		}
		if assert&ModeNoCheck != 0 {
			w.all = lockUnchecked
			return nil
		}
		for target := range w.comm.size {
			if err := w.in.Lock(ctx, target, false); err != nil {
				for t := range target {
					_ = w.in.Unlock(context.Background(), t, false) // the first error is told
				}
				return &rma.MemberError{Member: target, Err: err}
			}
		}
		w.all = LockShared
		return nil
	})
}

// UnlockAll ends the epoch of LockAll (MPI_Win_unlock_all).
func (w *window) UnlockAll(ctx context.Context) error {
	return w.call("win_unlock_all", -1, func() error {
		if w.all == 0 {
			return errSync("no epoch of LockAll is open")
		}
		err := w.in.FlushAll(ctx)
		if err != nil && ctx.Err() != nil {
			return err
		}
		if w.all == LockShared {
			for t := range w.comm.size {
				if failed := unlock(w, context.Background(), t, w.all); failed != nil && err == nil {
					err = &rma.MemberError{Member: t, Err: failed}
				}
			}
		}
		w.all = 0
		return err
	})
}

// Flush returns when all earlier accesses to the target are complete on
// both sides (MPI_Win_flush). The target must be locked.
func (w *window) Flush(ctx context.Context, target int) error {
	if w.quick(target) {
		settled := (w.all != 0 || w.locks[target] != 0) && w.in.Settled(target)
		barrier()
		if w.out(); settled {
			return nil
		}
	}
	_, null, err := w.begin("win_flush", target, 0, true)
	if null || err != nil {
		return err
	}
	return w.end("win_flush", target, w.in.Flush(ctx, target))
}

// FlushAll is Flush for all ranks (MPI_Win_flush_all).
func (w *window) FlushAll(ctx context.Context) error {
	err := w.enter()
	if err != nil {
		return w.fail("win_flush_all", -1, err)
	}
	if w.all == 0 && w.locked == 0 {
		err = errSync("no rank is locked")
	} else {
		err = w.in.FlushAll(ctx)
	}
	return w.end("win_flush_all", -1, err)
}

// FlushLocal returns when the program may reuse the memory of all
// earlier accesses to the target (MPI_Win_flush_local).
func (w *window) FlushLocal(ctx context.Context, target int) error { return w.Flush(ctx, target) }

// FlushLocalAll is FlushLocal for all ranks (MPI_Win_flush_local_all).
func (w *window) FlushLocalAll(ctx context.Context) error { return w.FlushAll(ctx) }

// Sync orders this rank's loads and stores of window memory before the
// call and those after it (MPI_Win_sync).
func (w *window) Sync() error {
	return w.call("win_sync", -1, func() error {
		barrier()
		return nil
	})
}

// barrier orders all loads and stores before it and all behind it.
func barrier() {
	var word uint32
	atomic.AddUint32(&word, 1)
	runtime.KeepAlive(&word)
}

// members are the ranks of a group in the window.
func members(w *window, g Group, list []int) ([]int, error) {
	list = list[:0]
	for i := range g.Size() {
		r := w.comm.rankOf(g.set.Rank(i))
		if r < 0 {
			return nil, badClass(ClassGroup, "rank %d of the group (rank %d of the world) is not in the window's group", i, g.set.Rank(i))
		}
		list = append(list, r)
	}
	return list, nil
}

// Post begins an epoch in which the ranks of a group may access this
// rank's memory (MPI_Win_post). It does not wait for them.
func (w *window) Post(origins Group, _ Assert) error {
	return w.call("win_post", -1, func() error {
		if w.exposed {
			return errSync("the epoch of the last Post is open: call Wait first")
		}
		list, err := members(w, origins, w.posted)
		if err != nil {
			return err
		}
		w.posted, w.exposed = list, true
		return w.in.Post(list)
	})
}

// Start begins an epoch of accesses to the ranks of a group (MPI_Win_start).
// It waits until each of them has called Post with this rank in its group.
func (w *window) Start(ctx context.Context, targets Group, _ Assert) error {
	return w.call("win_start", -1, func() error {
		if err := w.openable(); err != nil {
			return err
		}
		list, err := members(w, targets, w.begun)
		if err != nil {
			return err
		}
		w.begun = list
		if err := w.in.Start(ctx, list); err != nil {
			return err
		}
		w.started = true
		for _, t := range list {
			w.targets[t] = true
		}
		return nil
	})
}

// Complete ends the epoch of Start (MPI_Win_complete): all accesses are complete on this side, and
// will be complete at the targets when Wait returns there. When ctx ends first, the epoch stays open.
func (w *window) Complete(ctx context.Context) error {
	return w.call("win_complete", -1, func() error {
		if !w.started {
			return errSync("no epoch of Start is open")
		}
		err := w.in.Complete(ctx)
		if err == nil || err != ctx.Err() {
			w.started = false
			clear(w.targets)
		}
		return err
	})
}

// Wait ends the epoch of Post (MPI_Win_wait). It waits until all ranks of the group have called Complete.
func (w *window) Wait(ctx context.Context) error {
	return w.call("win_wait", -1, func() error {
		if !w.exposed {
			return errSync("no epoch of Post is open")
		}
		if err := w.in.Wait(ctx); err != nil {
			return err
		}
		w.exposed = false
		return nil
	})
}

// Test is Wait that does not block: it returns false when Wait would have to wait (MPI_Win_test).
func (w *window) Test() (done bool, err error) {
	err = w.call("win_test", -1, func() error {
		if !w.exposed {
			return errSync("no epoch of Post is open")
		}
		w.comm.world.progress()
		done, err = w.in.Test()
		if done {
			w.exposed = false
		}
		return err
	})
	return done, err
}
