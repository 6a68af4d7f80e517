package wait

import (
	"context"
	"runtime"
	"time"

	"github.com/gorun-mpi/gorun/internal/arch"
)

// Turns are those of several goroutines that use what they wait for one at a time, and may wait
// at the same time. A goroutine that calls Wait has its turn, and has it again when Wait
// returns; Conditions are polled in it.
type Turns interface {
	// Leave ends the caller's turn.
	Leave()
	// Enter returns when it is the caller's turn again. slept: it was away for long.
	Enter(slept bool)
	// Alone tells whether nobody else waits, or wants a turn. A goroutine that comes to want one may wake the Sleeper,
	// or let it sleep on, for Config.SleepMost at most.
	Alone() bool
}

// turnNap bounds the sleeps of a wait that takes turns, and with it how late it may find what
// another goroutine has completed for it.
const turnNap = time.Millisecond

// A lonely condition is over when its caller is not alone any more, too.
type lonely struct {
	c     Condition
	turns Turns
	ready bool // c is
}

func (l *lonely) Ready() bool {
	l.ready = l.c.Ready()
	return l.ready || !l.turns.Alone()
}

// waitAlone is Wait for as long as the caller is the only one: it keeps its turn.
func (w *Waiter) waitAlone(ctx context.Context, c Condition) (ready bool, err error) {
	outer, before := w.lonely, w.KeepTurn(true) // c may wait itself
	w.lonely = lonely{c: c, turns: w.turns}
	err = w.Wait(ctx, &w.lonely)
	ready, w.lonely = w.lonely.ready, outer
	w.KeepTurn(before)
	return ready, err
}

// waitInTurns is Wait where the caller leaves between its polls while there are others. Then it uses no
// Sleeper, which has one user.
func (w *Waiter) waitInTurns(ctx context.Context, c Condition) error {
	start := time.Now()
	for n := 1; ; n++ {
		if w.turns.Alone() {
			if ready, err := w.waitAlone(ctx, c); ready || err != nil {
				return err
			}
			n, start = 1, time.Now()
		}
		w.turns.Leave()
		slept := w.between(n, start)
		w.turns.Enter(slept)
		w.thorough = n > w.spins || n%thoroughEvery == 0
		ready := poll(c)
		w.thorough = false
		switch {
		case ready:
			return nil
		case slept || n%lookEvery == 0:
			if err := ctx.Err(); err != nil {
				return err
			}
		}
	}
}

// between is what a goroutine does between two of its polls.
func (w *Waiter) between(n int, start time.Time) (slept bool) {
	switch {
	case n < w.spins/turnSpins && !w.scheduler:
		arch.Pause()
		return false
	case n%lookEvery == 0 && time.Since(start) >= w.idle:
		time.Sleep(min(max(time.Since(start)/napDivisor, napLeast), turnNap))
		return true
	}
	runtime.Gosched() // to those whose turn it is
	if !w.scheduler {
		w.yield()
	}
	return false
}

// turnSpins is how many times fewer polls are made without a yield than where nobody waits for
// the turn.
const turnSpins = 8
