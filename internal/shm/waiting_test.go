package shm

import (
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestWaits(t *testing.T) {
	s, err := NewLocal(Geometry{Ranks: 2, ArenaSize: 1 << 16})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if w, ok := s.Waits(1, time.Hour); ok {
		t.Errorf("before any was told: %+v", w)
	}
	for _, text := range []string{"in recv", "x", strings.Repeat("abcdefgh", 40), "in a call of another kind"} {
		s.TellWait(1, time.Second, 3*time.Second, []byte(text))
		want := Wait{Text: text[:min(len(text), WaitTextMost)], Since: 4 * time.Second, Looked: 2 * time.Second}
		if w, ok := s.Waits(1, 5*time.Second); !ok || w != want {
			t.Errorf("got %+v, %v; want %+v", w, ok, want)
		}
	}
	if _, ok := s.Waits(0, time.Hour); ok {
		t.Error("the other rank has told nothing")
	}
}

// What a rank has scribbled is refused, or shown as text that harms no terminal.
func TestWaitsRefusesScribble(t *testing.T) {
	s, err := NewLocal(Geometry{Ranks: 1, ArenaSize: 1 << 16})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	tell := func() { s.TellWait(0, time.Second, 2*time.Second, []byte("a\x1b[31m\n\xffb")) }
	tell()
	if w, ok := s.Waits(0, time.Hour); !ok || w.Text != "a?[31m??b" {
		t.Errorf("got %q, %v", w.Text, ok)
	}
	for word, values := range map[int][]uint64{
		waitSeq:    {0, 1, math.MaxUint64},
		waitSince:  {math.MaxUint64, uint64(3 * time.Second)},
		waitLooked: {0, math.MaxUint64, uint64(2 * time.Hour)},
		waitLength: {0, WaitTextMost + 1, math.MaxUint64},
	} {
		for _, value := range values {
			tell()
			atomic.StoreUint64(&s.entries[0].wait[word], value)
			if w, ok := s.Waits(0, time.Hour); ok {
				t.Errorf("word %d is %d: %+v", word, value, w)
			}
			s.entries[0].wait = [waitWords]uint64{}
		}
	}
}
