package p2p

import (
	"math/rand/v2"
	"testing"
)

// Writers whose knowledge of the inbox is of any age, and a hint of any age, claim
// positions without a gap.
func TestClaimsLeaveNoGap(t *testing.T) {
	for seed := range uint64(50) {
		rnd := rand.New(rand.NewPCG(seed, 2))
		lines := make([]line, inboxLines)
		var hint, claims, head uint64
		e := newEngine()
		writers := make([]far, 3)
		for i := range writers {
			writers[i] = far{hint: &hint, inbox: lines}
		}
		for range 5000 {
			if rnd.IntN(8) == 0 {
				hint = rnd.Uint64N(claims + 1) // a late store
			}
			w := &writers[rnd.IntN(10)%3*rnd.IntN(2)] // some seldom
			at, ok := e.lines.claim(w)
			if full := claims-head == inboxLines; ok == full {
				t.Fatalf("seed %d: claim with %d of %d lines in use: %v", seed, claims-head, inboxLines, ok)
			}
			if ok && at != claims {
				t.Fatalf("seed %d: position %d claimed, want %d (hint %d)", seed, at, claims, hint)
			}
			if ok {
				claims++
			}
			for n := rnd.Uint64N(4); n > 0 && head < claims; n-- {
				lines[head%inboxLines].word = pack(uint32(head/inboxLines)+1, free, 0, 0)
				head++
			}
		}
	}
}

// A hint that somebody scribbled on costs steps, and no message.
func TestScribbledHint(t *testing.T) {
	lines := make([]line, inboxLines)
	for _, hint := range []uint64{1, inboxLines, 1 << 40, 1<<64 - 1} {
		clear(lines)
		w := far{hint: &hint, inbox: lines}
		if at, ok := newEngine().lines.claim(&w); !ok || at != 0 {
			t.Errorf("hint %d: claimed %d, %v, want 0", hint, at, ok)
		}
	}
}
