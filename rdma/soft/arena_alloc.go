package soft

import (
	"slices"
	"sort"
)

// An extent is a range of an arena.
type extent struct{ at, size uint64 }

// An allocator hands out ranges of one arena's heap: first fit, in multiples
// of 64 bytes, page aligned from a page on, neighbours joined when freed. It
// lives in the owner's Go heap; what others scribble into the arena cannot
// reach it. It is not safe for concurrent use.
type allocator struct {
	free  []extent // by address, no two adjacent
	dirty uint64   // memory below was handed out before and may not be zero
	inUse uint64
}

const grain = 64

func newAllocator(start, end, dirty uint64) *allocator {
	return &allocator{free: []extent{{start, end - start}}, dirty: max(dirty, start)}
}

// alloc finds room for n bytes. clean says that the memory was never used.
func (a *allocator) alloc(n uint64) (at uint64, clean, ok bool) {
	align := uint64(grain)
	if n >= pageSize {
		align = pageSize
	}
	size := (n + grain - 1) &^ (grain - 1)
	if size < n || size == 0 {
		return 0, false, false
	}
	if n >= pageSize {
		// Whole pages, so that they can be given back to the kernel.
		if size = (n + pageSize - 1) &^ (pageSize - 1); size < n {
			return 0, false, false
		}
	}
	for i, e := range a.free {
		start := (e.at + align - 1) &^ (align - 1)
		skip := start - e.at
		if e.size < skip || e.size-skip < size {
			continue
		}
		rest := extent{start + size, e.size - skip - size}
		switch {
		case skip == 0 && rest.size == 0:
			a.free = slices.Delete(a.free, i, i+1)
		case skip == 0:
			a.free[i] = rest
		case rest.size == 0:
			a.free[i].size = skip
		default:
			a.free[i].size = skip
			a.free = slices.Insert(a.free, i+1, rest)
		}
		clean = start >= a.dirty
		a.dirty = max(a.dirty, start+size)
		a.inUse += size
		return start, clean, true
	}
	return 0, false, false
}

// give takes back what alloc(n) returned.
func (a *allocator) give(at, n uint64) {
	unit := uint64(grain)
	if n >= pageSize {
		unit = pageSize
	}
	e := extent{at, (n + unit - 1) &^ (unit - 1)}
	a.inUse -= e.size
	i := sort.Search(len(a.free), func(i int) bool { return a.free[i].at > at })
	if i > 0 && a.free[i-1].at+a.free[i-1].size == e.at {
		i--
		a.free[i].size += e.size
	} else {
		a.free = slices.Insert(a.free, i, e)
	}
	if i+1 < len(a.free) && a.free[i].at+a.free[i].size == a.free[i+1].at {
		a.free[i].size += a.free[i+1].size
		a.free = slices.Delete(a.free, i+1, i+2)
	}
}
