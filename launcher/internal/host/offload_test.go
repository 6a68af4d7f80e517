package host

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/proc"
	"github.com/gorun-mpi/gorun/internal/shm"
	"github.com/gorun-mpi/gorun/launcher/hosting"
)

// A thread of the daemon hangs when it has used CPU time, or has wanted none, without a beat: time alone says nothing,
// for its CPU may be busy.
func TestPulse(t *testing.T) {
	type look struct {
		beat  uint32
		ticks int
		wants bool
		says  string
	}
	const circle, hung = "it ran in a circle", "it hung"
	for name, looks := range map[string][]look{
		"works":                      {{1, 20, true, ""}, {900, 45, true, ""}, {1800, 70, true, ""}, {2700, 95, true, ""}},
		"sleeps":                     {{1, 0, false, ""}, {26, 0, false, ""}, {51, 0, false, ""}, {76, 0, false, ""}},
		"waits for a busy CPU":       {{7, 3, true, ""}, {7, 3, true, ""}, {7, 4, true, ""}, {7, 4, true, ""}, {7, 5, true, ""}, {7, 5, true, ""}, {8, 6, false, ""}},
		"is seen asleep once":        {{7, 3, false, ""}, {7, 3, false, ""}, {7, 3, true, ""}, {7, 3, false, ""}, {8, 3, false, ""}},
		"spins":                      {{7, 3, true, ""}, {7, 28, true, ""}, {7, 53, true, circle}},
		"spins on a busy CPU":        {{7, 3, true, ""}, {7, 13, true, ""}, {7, 23, true, ""}, {7, 33, true, circle}},
		"blocks":                     {{7, 3, false, ""}, {7, 3, false, ""}, {7, 3, false, hung}},
		"spins before it begins":     {{0, 0, true, ""}, {0, 299, true, ""}, {0, 300, true, circle}},
		"never begins":               append(slices.Repeat([]look{{0, 3, false, ""}}, 19), look{0, 3, false, hung}),
		"begins late, after work":    {{0, 0, true, ""}, {0, 30, true, ""}, {0, 31, false, ""}, {0, 31, false, ""}, {0, 31, false, ""}, {1, 32, false, ""}},
		"begins late, on a busy CPU": {{0, 0, true, ""}, {0, 1, true, ""}, {0, 1, true, ""}, {1, 2, false, ""}},
		"blocks after work":          {{7, 30, true, ""}, {8, 60, true, ""}, {8, 60, false, ""}, {8, 60, false, hung}},
	} {
		t.Run(name, func(t *testing.T) {
			var p pulse
			for i, l := range looks {
				if got := p.look(l.beat, time.Duration(l.ticks)*proc.Tick, l.wants); got != l.says {
					t.Fatalf("look %d, %+v: says %q", i, l, got)
				}
			}
		})
	}
}

// What a thread of the daemon waits for says whether it hangs; before its first beat it may be any of them.
func TestThreadThatWantsCPU(t *testing.T) {
	for name, c := range map[string]struct {
		states map[int]byte
		thread int
		want   bool
	}{
		"runs":                              {map[int]byte{1: 'S', 2: 'R'}, 2, true},
		"waits for memory":                  {map[int]byte{1: 'S', 2: 'D'}, 2, true},
		"stopped by a debugger":             {map[int]byte{1: 't', 2: 't'}, 2, true},
		"sleeps beside one that runs":       {map[int]byte{1: 'R', 2: 'S'}, 2, false},
		"sleeps beside many that run":       {map[int]byte{1: 'R', 2: 'S', 3: 'R'}, 2, true},
		"begins on another thread":          {map[int]byte{1: 'S', 2: 'R'}, 0, true},
		"begins, and reads its program":     {map[int]byte{1: 'S', 2: 'D'}, 0, true},
		"begins under a debugger":           {map[int]byte{1: 't', 2: 'S'}, 0, true},
		"does not begin, and wants nothing": {map[int]byte{1: 'S', 2: 'S'}, 0, false},
	} {
		threads := make(map[int]proc.Stat)
		for number, state := range c.states {
			threads[number] = proc.Stat{PID: number, State: state}
		}
		if got := wantsCPU(threads, c.thread, 2); got != c.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

// The number that is kept for a daemon shares what a limit leaves, and refuses no host of as many ranks as a segment serves.
func TestGeometryWithTheNumberOfADaemon(t *testing.T) {
	const limit = 8 << 30
	for _, c := range []struct{ ranks, offload, count int }{
		{1, 0, 1}, {8, 0, 9}, {8, 2, 10}, {shm.MaxRanks, 0, shm.MaxRanks},
	} {
		for _, limit := range []uint64{limit, math.MaxUint64} {
			if got, want := (&Spec{Ranks: make([]RankSpec, c.ranks), Hosting: hosting.Settings{Offload: c.offload}}).geometry(limit), shm.DefaultGeometry(c.count, limit); got != want {
				t.Errorf("%d ranks and %d threads within %d bytes: got %+v, want %+v", c.ranks, c.offload, limit, got, want)
			}
		}
	}
}
