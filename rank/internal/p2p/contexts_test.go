package p2p

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestContextsAgainstObviousVersion(t *testing.T) {
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 9))
		base := uint32(0)
		if seed%2 == 1 {
			base = math.MaxUint32 - 40
		}
		var s contexts
		in := map[uint32]bool{}
		for range rnd.IntN(60) {
			c := base + rnd.Uint32N(41)
			s.add(c)
			in[c] = true
			runs := 0
			for d := base; ; d++ {
				if s.has(d) != in[d] {
					t.Fatalf("seed %d: %d is in %v: %v, want %v", seed, d, s, s.has(d), in[d])
				}
				if in[d] && (d == base || !in[d-1]) {
					runs++
				}
				if d == base+40 {
					break
				}
			}
			if len(s) != runs {
				t.Fatalf("seed %d: %v are %d runs, want %d", seed, s, len(s), runs)
			}
		}
	}
}
