package soft

import (
	"sync"
	"sync/atomic"
)

const chunkBits = 8

// A table maps small indexes to objects. Looking up takes no lock; memory is
// taken as indexes are used.
type table[T any] struct {
	chunks [maxRegions >> chunkBits]atomic.Pointer[[1 << chunkBits]atomic.Pointer[T]]
	mu     sync.Mutex // guards making a chunk
}

func (t *table[T]) get(i uint32) *T {
	if i>>chunkBits >= uint32(len(t.chunks)) {
		return nil
	}
	c := t.chunks[i>>chunkBits].Load()
	if c == nil {
		return nil
	}
	return c[i&(1<<chunkBits-1)].Load()
}

func (t *table[T]) set(i uint32, v *T) {
	slot := &t.chunks[i>>chunkBits]
	c := slot.Load()
	if c == nil {
		t.mu.Lock()
		if c = slot.Load(); c == nil {
			c = new([1 << chunkBits]atomic.Pointer[T])
			slot.Store(c)
		}
		t.mu.Unlock()
	}
	c[i&(1<<chunkBits-1)].Store(v)
}

// indexes hands out the numbers 0..n-1: new ones as long as few are free, else
// the one that has been free for longest, so that a stale name stays stale.
type indexes struct {
	n    int
	next int
	free []int // oldest first
}

const restBefore = 16 // how many are free before one is used again

func newIndexes(n int) indexes { return indexes{n: n} }

func (x *indexes) take() (int, bool) {
	if len(x.free) > 0 && (len(x.free) > restBefore || x.next == x.n) {
		i := x.free[0]
		x.free = x.free[1:]
		return i, true
	}
	if x.next == x.n {
		return 0, false
	}
	x.next++
	return x.next - 1, true
}

func (x *indexes) give(i int) { x.free = append(x.free, i) }
