package coll

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/arch"
	"github.com/gorun-mpi/gorun/internal/shm"
	"github.com/gorun-mpi/gorun/internal/testenv"
	"golang.org/x/sys/unix"
)

// What a team of 64 has of the segment, when it has made every call by every
// algorithm with few and with many bytes, is little: it does not grow with the
// ranks squared, and not with the calls.
func TestMemoryOfLargeTeams(t *testing.T) {
	testenv.Part(t, testenv.Large)
	if arch.RaceEnabled {
		return // the segment is on the heap then
	}
	testenv.NoLeaks(t)
	const n, most = 64, 512 << 10
	nw := network{n: n, create: shm.Create}
	nw.open(t)
	blocks := func() int64 {
		var st unix.Stat_t
		if err := unix.Fstat(nw.segments[0].FD(), &st); err != nil {
			t.Fatal(err)
		}
		return st.Blocks * 512
	}
	before := blocks()
	rng := rand.New(rand.NewPCG(64, 1))
	var list []*job
	for _, w := range ways() {
		for _, bytes := range []int{8, 20 << 10} {
			if w.Algorithm == TwoLevel && bytes > 8 {
				continue // the rules take two levels only where a leader needs little
			}
			list = append(list, newJob(rng, w.Kind, w.Algorithm, n, bytes))
		}
	}
	ctx := testenv.Deadline(t, time.Minute)
	var come atomic.Int32
	nw.each(t, func(m *member) error {
		var err error
		if m.team, err = NewTeam(ctx, nw.config(m, nw.meeting.exchange(m.rank))); err != nil {
			return err
		}
		for i, j := range list {
			if err := m.check(ctx, j, false); err != nil {
				return fmt.Errorf("call %d: %w", i, err)
			}
		}
		come.Add(1)
		return m.team.Barrier(ctx)
	})
	if come.Load() != n {
		return
	}
	if per := (blocks() - before) / n; per > most {
		t.Errorf("the team has %d KiB of the segment for each of %d ranks, want at most %d", per>>10, n, most>>10)
	}
	nw.each(t, func(m *member) error { return m.team.Free(ctx) })
}
