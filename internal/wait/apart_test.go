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
		waits int
		want  []int
	}{
		{"shares its CPU", Config{CPU: 3}, 3, 2 * vainWaits, []int{3}},
		{"not for long", Config{CPU: 3}, 3, vainWaits - 1, nil},
		{"waits longer", Config{CPU: 3}, vainYields + 3, 2 * vainWaits, nil},
		{"oversubscribed", Config{CPU: 3, Oversubscribed: true}, 3, 2 * vainWaits, nil},
		{"goroutines", Config{CPU: 3, Scheduler: true}, 3, 2 * vainWaits, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []int
			w := New(c.cfg)
			w.spins = 0 // the spin is in vain anyway
			w.moved = time.Now().Add(-time.Hour)
			w.move = func(cpu int) bool {
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
