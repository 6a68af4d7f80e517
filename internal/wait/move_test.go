package wait

import (
	"testing"

	"github.com/gorun-mpi/gorun/internal/arch"
	"github.com/gorun-mpi/gorun/internal/testenv"
)

// A move allocates nothing: where other programs keep all CPUs busy a wait may begin one every millisecond.
func TestMoveDoesNotAllocate(t *testing.T) {
	if arch.RaceEnabled {
		return // the detector allocates
	}
	m := newMover()
	move := func() {
		if !m.move(0) {
			t.Fatal("the thread cannot be moved")
		}
		for m.moving.Load() {
			arch.YieldSafe()
		}
	}
	if move(); m.stuck.Load() {
		testenv.Unsupported(t, "the kernel moves no thread here")
	}
	if n := testing.AllocsPerRun(100, move); n != 0 {
		t.Errorf("a move makes %v allocations, want none", n)
	}
}
