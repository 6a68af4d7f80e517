package shm

import (
	"fmt"
	"math"
	"math/bits"
	"os"

	"github.com/gorun-mpi/gorun/internal/arch"
)

const (
	// MaxRanks is the most ranks that one segment serves.
	MaxRanks = 1 << 16
	// MaxWorld is the largest Geometry.World.
	MaxWorld = 1 << 24
)

const (
	// arenaDefault is sparse: only what is touched takes memory.
	arenaDefault = 1 << 30
	// arenaDefault32 leaves room in an address space of 32 bits.
	arenaDefault32 = 16 << 20
	// arenaDefaultRace is smaller because the race detector's arenas are on
	// the Go heap, where reuse means clearing all of it.
	arenaDefaultRace = 32 << 20
	// arenaLeast is what DefaultGeometry never goes below.
	arenaLeast = 64 << 10
	// arenasMost bounds the sum of the default arenas, well inside the 128
	// TiB of a 48-bit address space.
	arenasMost = 8 << 40
	// goReserve is address space that a Go process takes beside the arenas: 1.17
	// GiB before it does anything, two heap arenas of 64 MiB (the first begins at
	// random inside one), and with cgo stacks of 8 MiB for a dozen threads. glibc's
	// arenas of 64 MiB a thread are not in it: launchers set MALLOC_ARENA_MAX. Of what
	// a limit leaves beyond it the arenas take three quarters.
	goReserve = 1440 << 20
	// rankLeast is the smallest arena in which a rank of package rank begins.
	rankLeast = 2 << 20
)

// A Geometry says how large a segment is.
type Geometry struct {
	Ranks     int    // local ranks, 1 to MaxRanks
	ArenaSize uint64 // bytes for each, a multiple of the page size
	// World is how many ranks the job has on all hosts, where each has a mark here that says it has
	// died on another one; 0: there are no such marks.
	World int
}

// DefaultGeometry is the usual geometry for ranks local ranks: 1 GiB of sparse
// arena for each, less where they would not fit what rlimitAS leaves a Go
// process. rlimitAS is what the processes' address space is limited to in bytes
// ([Limit]; the largest uint64 is no limit).
func DefaultGeometry(ranks int, rlimitAS uint64) Geometry {
	arena := uint64(arenaDefault)
	switch {
	case bits.UintSize == 32:
		arena = arenaDefault32
	case arch.RaceEnabled:
		arena = arenaDefaultRace
	}
	n := uint64(max(ranks, 1))
	arena = min(arena, arenasMost/n)
	if rlimitAS != math.MaxUint64 {
		arena = min(arena, (max(rlimitAS, goReserve)-goReserve)/4*3/n)
	}
	page := uint64(os.Getpagesize())
	return Geometry{Ranks: ranks, ArenaSize: max(arena, arenaLeast) / page * page}
}

// Needs is the limit of address space in bytes from which on ranks local ranks of package rank run.
func Needs(ranks int) uint64 { return goReserve + uint64(ranks)*rankLeast*4/3 }

// Suffices tells whether ranks of package rank can begin, or which limit has made the arenas too small for them.
func (s *Segment) Suffices() error {
	if s.layout.ArenaSize >= rankLeast || Limit() == math.MaxUint64 {
		return nil
	}
	return fmt.Errorf("%s, too little for the Go ranks of a host, which reserve more than they use: raise it to %d (kB) or more",
		limitText(), Needs(s.Ranks())>>10+1)
}

// layout is a geometry worked out to offsets in the file.
type layout struct {
	Geometry
	header uint64 // bytes before the first arena
	total  uint64
}

// lay works out a geometry, from wherever it came: every product and sum is
// checked, and all results fit an int and a file offset.
func (g Geometry) lay(page uint64) (layout, error) {
	if g.Ranks < 1 || g.Ranks > MaxRanks {
		return layout{}, fmt.Errorf("geometry with %d ranks, expected 1 to %d", g.Ranks, MaxRanks)
	}
	if g.World < 0 || g.World > MaxWorld {
		return layout{}, fmt.Errorf("geometry with marks for %d ranks, expected 0 to %d", g.World, MaxWorld)
	}
	if g.ArenaSize == 0 || g.ArenaSize%page != 0 {
		return layout{}, fmt.Errorf("geometry with arenas of %d bytes, expected a multiple of the page size %d", g.ArenaSize, page)
	}
	header := (uint64(g.marksAt()+8*g.markWords()) + page - 1) / page * page
	over, arenas := bits.Mul64(g.ArenaSize, uint64(g.Ranks))
	total, carry := bits.Add64(arenas, header, 0)
	if over != 0 || carry != 0 || total > math.MaxInt64 || g.ArenaSize > math.MaxInt || header > math.MaxInt {
		return layout{}, fmt.Errorf("geometry with %d arenas of %d bytes does not fit an address space", g.Ranks, g.ArenaSize)
	}
	return layout{Geometry: g, header: header, total: total}, nil
}

// marksAt is where the marks of the ranks of other hosts begin in the file, and markWords how many words of 64 they are.
func (g Geometry) marksAt() int   { return headerFixed + g.Ranks*entrySize }
func (g Geometry) markWords() int { return (g.World + 63) / 64 }

// arena is where a rank's arena begins in the file.
func (l layout) arena(rank int) int64 { return int64(l.header + uint64(rank)*l.ArenaSize) }
