package soft

import (
	"math/rand/v2"
	"testing"
)

// Random allocations against a map of what is taken.
func TestAllocator(t *testing.T) {
	const start, end = 4096, 4096 + 1<<20
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 0))
		a := newAllocator(start, end, start)
		taken := make([]bool, end/grain)
		used := make([]bool, end/grain)
		type block struct{ at, n uint64 }
		var live []block
		for range 2000 {
			if len(live) > 0 && rng.IntN(5) < 2 {
				i := rng.IntN(len(live))
				b := live[i]
				live[i] = live[len(live)-1]
				live = live[:len(live)-1]
				a.give(b.at, b.n)
				for g := b.at / grain; g < (b.at+b.n+grain-1)/grain; g++ {
					taken[g] = false
				}
				continue
			}
			n := 1 + rng.Uint64N(1<<rng.IntN(17))
			at, clean, ok := a.alloc(n)
			if !ok {
				continue
			}
			if at < start || at+n > end || at%grain != 0 || n >= pageSize && at%pageSize != 0 {
				t.Fatalf("seed %d: alloc(%d) = %d", seed, n, at)
			}
			for g := at / grain; g < (at+n+grain-1)/grain; g++ {
				if taken[g] {
					t.Fatalf("seed %d: alloc(%d) = %d is taken", seed, n, at)
				}
				if clean && used[g] {
					t.Fatalf("seed %d: alloc(%d) = %d is not clean", seed, n, at)
				}
				taken[g], used[g] = true, true
			}
			live = append(live, block{at, n})
		}
		for _, b := range live {
			a.give(b.at, b.n)
		}
		if len(a.free) != 1 || a.free[0] != (extent{start, end - start}) || a.inUse != 0 {
			t.Errorf("seed %d: %v free and %d in use after all was given back", seed, a.free, a.inUse)
		}
	}
}

func TestAllocatorRefuses(t *testing.T) {
	a := newAllocator(0, 1<<16, 0)
	for _, n := range []uint64{0, 1<<16 + 1, ^uint64(0), ^uint64(0) - 10} {
		if at, _, ok := a.alloc(n); ok {
			t.Errorf("alloc(%d) = %d, want none", n, at)
		}
	}
}

func TestIndexes(t *testing.T) {
	x := newIndexes(40)
	seen := make(map[int]bool)
	for range 40 {
		i, ok := x.take()
		if !ok || seen[i] {
			t.Fatalf("take() = %d, %v", i, ok)
		}
		seen[i] = true
	}
	if i, ok := x.take(); ok {
		t.Errorf("take() from none = %d", i)
	}
	x.give(5)
	x.give(3)
	if i, _ := x.take(); i != 5 {
		t.Errorf("take() = %d, want 5, free for longest", i)
	}
}

func TestLayout(t *testing.T) {
	for _, size := range []uint64{0, minArena - 1, minArena, 64 << 10, 1 << 20, 1<<20 + pageSize, 1 << 30} {
		l, err := layoutFor(size)
		if size < minArena {
			if err == nil {
				t.Errorf("layoutFor(%d) is no error", size)
			}
			continue
		}
		if err != nil || l.heapAt >= size || l.heapAt > size*3/4+pageSize*4 {
			t.Errorf("layoutFor(%d): heap at %d, %v", size, l.heapAt, err)
		}
	}
}
