package shm

import (
	"errors"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

var smallGeometry = Geometry{Ranks: 4, ArenaSize: 1 << 20, World: 130}

// kinds are the two ways to a segment; both must behave alike.
var kinds = []struct {
	name string
	make func(Geometry) (*Segment, error)
}{
	{"shared", Create},
	{"local", NewLocal},
}

// newSegment makes one that ends with the test.
func newSegment(t testing.TB, make func(Geometry) (*Segment, error), g Geometry) *Segment {
	t.Helper()
	s, err := make(g)
	if errors.Is(err, errors.ErrUnsupported) {
		testenv.Unsupported(t, "memfd_create is Linux's")
	}
	if err != nil {
		t.Fatalf("make segment %+v: %v", g, err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close segment: %v", err)
		}
	})
	return s
}

func arena(t testing.TB, s *Segment, rank int) []byte {
	t.Helper()
	a, err := s.Arena(rank)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestArenas(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			testenv.NoLeaks(t)
			s := newSegment(t, k.make, smallGeometry)
			if s.Ranks() != smallGeometry.Ranks || s.ArenaSize() != smallGeometry.ArenaSize {
				t.Errorf("got %d ranks with %d bytes, want %+v", s.Ranks(), s.ArenaSize(), smallGeometry)
			}
			for r := range s.Ranks() {
				a := arena(t, s, r)
				if uint64(len(a)) != s.ArenaSize() || cap(a) != len(a) {
					t.Errorf("arena %d: got length %d capacity %d, want %d", r, len(a), cap(a), s.ArenaSize())
				}
				for _, i := range []int{0, len(a) - 1} {
					if a[i] != 0 {
						t.Errorf("arena %d: byte %d is %d at first, want 0", r, i, a[i])
					}
					a[i] = byte(r + 1)
				}
			}
			for r := range s.Ranks() {
				a := arena(t, s, r)
				if got, want := [2]byte{a[0], a[len(a)-1]}, [2]byte{byte(r + 1), byte(r + 1)}; got != want {
					t.Errorf("arena %d: ends hold %v, want %v", r, got, want)
				}
			}
			for _, r := range []int{-1, s.Ranks(), math.MaxInt} {
				if _, err := s.Arena(r); err == nil {
					t.Errorf("Arena(%d) of %d: got no error", r, s.Ranks())
				}
			}
		})
	}
}

func TestArenaFromManyGoroutines(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			s := newSegment(t, k.make, smallGeometry)
			var wg sync.WaitGroup
			var first [8]*byte
			for i := range first {
				wg.Go(func() {
					if a, err := s.Arena(2); err == nil {
						first[i] = &a[0]
					}
				})
			}
			wg.Wait()
			for i, p := range first {
				if p == nil || p != first[0] {
					t.Errorf("goroutine %d: arena begins at %p, goroutine 0 has %p, want the same", i, p, first[0])
				}
			}
		})
	}
}

func TestClose(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			testenv.NoLeaks(t)
			s := newSegment(t, k.make, smallGeometry)
			arena(t, s, 0)
			if err := s.Close(); err != nil {
				t.Errorf("Close: got error %v", err)
			}
			if err := s.Close(); err != nil {
				t.Errorf("second Close: got error %v", err)
			}
			if fd := s.FD(); fd != -1 {
				t.Errorf("FD after Close: got %d, want -1", fd)
			}
			if _, err := s.Arena(0); !errors.Is(err, os.ErrClosed) {
				t.Errorf("Arena after Close: got error %v, want os.ErrClosed", err)
			}
		})
	}
}

func TestDead(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			s := newSegment(t, k.make, smallGeometry)
			s.Bell(1).Prepare()
			if s.MarkDead(2); sleeps(s.Bell(1), 1) != 1 {
				t.Error("MarkDead woke a rank that was about to sleep")
			}
			s.Bell(1).Prepare()
			s.SetDead(2)
			for r := range s.Ranks() {
				if got, want := s.Dead(r), r == 2; got != want {
					t.Errorf("Dead(%d): got %v, want %v", r, got, want)
				}
			}
			if n := sleeps(s.Bell(1), 5); n == 5 {
				t.Errorf("SetDead did not wake a rank that was about to sleep: 5 sleeps of 5 ran to their end")
			}
		})
	}
}

func TestDeadElsewhere(t *testing.T) {
	dead := []int{0, 63, 64, 129}
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			s := newSegment(t, k.make, smallGeometry)
			s.Bell(1).Prepare()
			s.SetDeadElsewhere(append([]int{-1, 130, math.MaxInt, math.MinInt}, dead...))
			for r := -1; r <= 192; r++ {
				if got, want := s.DeadElsewhere(r), slices.Contains(dead, r); got != want {
					t.Errorf("DeadElsewhere(%d): got %v, want %v", r, got, want)
				}
			}
			for r := range s.Ranks() {
				if s.Dead(r) {
					t.Errorf("rank %d of this host is dead", r)
				}
			}
			if n := sleeps(s.Bell(1), 5); n == 5 {
				t.Errorf("SetDeadElsewhere did not wake a rank that was about to sleep: 5 sleeps of 5 ran to their end")
			}
			none := smallGeometry
			none.World = 0
			s = newSegment(t, k.make, none)
			if s.SetDeadElsewhere(dead); s.DeadElsewhere(0) {
				t.Error("a segment without marks has one")
			}
		})
	}
}

// sleeps counts how many of at most n sleeps in a row run out of time, and stops
// at the first that does not: signals of the runtime end a few early, so the
// absence of a wake-up is seen only in the long run.
func sleeps(b *Bell, n int) int {
	for i := range n {
		start := time.Now()
		b.Sleep(int64(nap))
		if time.Since(start) < nap {
			return i
		}
	}
	return n
}

func TestInvalidGeometry(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			testenv.NoLeaks(t)
			for _, g := range []Geometry{{}, {Ranks: -1, ArenaSize: 4096}, {Ranks: 1, ArenaSize: 1}, {Ranks: 4, ArenaSize: 1 << 62}} {
				if s, err := k.make(g); err == nil {
					t.Errorf("%+v: got a segment, want an error", g)
					s.Close()
				} else if !strings.Contains(err.Error(), "geometry") {
					t.Errorf("%+v: got error %q, want one that names the geometry", g, err)
				}
			}
		})
	}
}
