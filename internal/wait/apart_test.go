package wait

import (
	"slices"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

// A rank whose spins are in vain and whose yields are not moves to its place, not
// at once and not all the time.
func TestRanksOnOneCPUGoApart(t *testing.T) {
	ctx := testenv.Deadline(t, time.Minute)
	for _, c := range []struct {
		name  string
		cfg   Config
		poll  int // at which it is ready; the spin has none here
		yield time.Duration
		waits int
		want  []int
	}{
		{"shares its CPU", Config{CPU: 3}, 3, 0, 2 * vainWaits, []int{3}},
		{"not for long", Config{CPU: 3}, 3, 0, vainWaits - 1, nil},
		{"waits longer", Config{CPU: 3}, vainYields + 3, 0, 2 * vainWaits, nil},
		{"shares its CPU and waits longer", Config{CPU: 3}, vainYields + 3, vainTime, 2 * vainWaits, []int{3}},
		{"oversubscribed", Config{CPU: 3, Oversubscribed: true}, 3, vainTime, 2 * vainWaits, nil},
		{"goroutines", Config{CPU: 3, Scheduler: true}, 3, vainTime, 2 * vainWaits, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []int
			w := New(c.cfg)
			w.spins = 0 // the spin is in vain anyway
			w.moved = time.Now().Add(-time.Hour)
			w.home.at = func(int) bool { return true }
			clock := time.Now()
			w.now = func() time.Time { return clock }
			w.yield = func() { clock = clock.Add(c.yield) }
			w.home.move = func(cpu int) bool {
				got = append(got, cpu)
				w.moved = time.Now().Add(time.Hour)
				return true
			}
			for range c.waits {
				if err := w.Wait(ctx, &after{n: c.poll}); err != nil {
					t.Fatal(err)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("moved to %v, want %v", got, c.want)
			}
		})
	}
}

// Waits that end with the first polls of their spin, between those in vain, do not hide
// that the CPU is shared; a spin that brings something from elsewhere does.
func TestShortSpinsSayNothing(t *testing.T) {
	ctx := testenv.Deadline(t, time.Minute)
	for _, c := range []struct{ between, moves int }{{soonPolls, 1}, {soonPolls + 1, 0}} {
		w, moves := New(Config{CPU: 3}), 0
		w.spins = 10
		w.moved = time.Now().Add(-time.Hour)
		w.yield = func() {}
		w.home.move = func(int) bool {
			moves++
			w.moved = time.Now().Add(time.Hour)
			return true
		}
		for range 2 * vainWaits {
			for _, n := range []int{w.spins + 2, c.between} {
				if err := w.Wait(ctx, &after{n: n}); err != nil {
					t.Fatal(err)
				}
			}
		}
		if moves != c.moves {
			t.Errorf("with waits for %d polls in between: %d moves, want %d", c.between, moves, c.moves)
		}
	}
}

// An oversubscribed rank returns to its place where it is away when it looks, and
// looks less often where it does not stay there.
func TestOversubscribedRanksReturn(t *testing.T) {
	ctx := testenv.Deadline(t, time.Minute)
	w := New(Config{CPU: 5, Oversubscribed: true})
	away, moves, looks := true, 0, 0
	clock := time.Now()
	w.now = func() time.Time { return clock }
	w.yield = func() {}
	w.home.at = func(cpu int) bool {
		if cpu != 5 {
			t.Errorf("looks for CPU %d, want 5", cpu)
		}
		looks++
		return !away
	}
	w.home.move = func(cpu int) bool {
		moves++
		return cpu == 5
	}
	again := func(stay time.Duration) {
		t.Helper()
		w.home.looked = clock.Add(-w.home.stay)
		if err := w.Wait(ctx, &after{n: 3}); err != nil {
			t.Fatal(err)
		}
		if w.home.stay != stay {
			t.Fatalf("the next look is after %v, want %v", w.home.stay, stay)
		}
		w.home.looked = clock.Add(time.Hour) // too early for a look
		if err := w.Wait(ctx, &after{n: 3}); err != nil {
			t.Fatal(err)
		}
	}
	for stay := 2 * homeLeast; stay <= homeMost; stay *= 2 {
		again(stay)
	}
	again(homeMost)
	if moves != 8 || looks != 8 {
		t.Errorf("%d looks and %d moves, want 8 of each", looks, moves)
	}
	away = false
	for stay := homeMost / 2; stay >= homeLeast; stay /= 2 {
		again(stay)
	}
	again(homeLeast)
	if moves != 8 || looks != 16 {
		t.Errorf("at home: %d looks and %d moves, want 16 and 8", looks, moves)
	}
}
