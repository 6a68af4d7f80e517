package wait

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

// Spin ends with the word, and in vain after so many polls; a crowded rank yields
// instead, and leaves some waits to Wait.
func TestSpin(t *testing.T) {
	for _, c := range []struct {
		name   string
		cfg    Config
		yields int // before the word is set; -1: it never is
		want   uint64
		polls  int
		given  int // yields, of longEvery Spins in vain
	}{
		{"in vain", Config{}, -1, 0x10, 64, 0},
		{"crowded, in vain", Config{Oversubscribed: true}, -1, 0x10, 64, fewYields * (longEvery - 1)},
		{"crowded", Config{Oversubscribed: true}, 3, 0x10, 64, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			word, yields := uint64(0x5500), 0
			w := New(c.cfg)
			w.yield = func() {
				if yields++; yields == c.yields {
					atomic.StoreUint64(&word, 0x5510)
				}
			}
			rounds := longEvery
			if c.yields > 0 {
				rounds = 1
			}
			for range rounds {
				got := w.Spin(&word, 0xff, c.want, c.polls)
				if want := atomic.LoadUint64(&word); got != want {
					t.Fatalf("Spin: %#x, want the word, %#x", got, want)
				}
			}
			if yields != c.given {
				t.Errorf("%d yields in %d calls, want %d", yields, rounds, c.given)
			}
		})
	}
	t.Run("another sets it", func(t *testing.T) {
		ctx := testenv.Deadline(t, time.Minute)
		var word uint64
		w := New(Config{})
		go atomic.StoreUint64(&word, 7)
		for w.Spin(&word, 7, 7, 64) != 7 {
			if ctx.Err() != nil {
				t.Fatal("Spin never saw the word")
			}
		}
	})
}
