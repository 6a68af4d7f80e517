package coll

import (
	"context"
	"testing"

	"github.com/gorun-mpi/gorun/internal/kernel"
)

// BenchmarkPath is the processor's work in a call of both of two ranks, without
// the time a cache line takes between two processors: one goroutine steps both
// ranks' machines in turn.
func BenchmarkPath(b *testing.B) {
	sum, _ := kernel.For(kernel.Float32, kernel.Sum)
	for _, c := range []struct {
		name string
		call Call
		r    kernel.Reduction
	}{
		{"barrier", Call{Kind: Barrier, Elem: 1}, kernel.Reduction{}},
		{"alltoall-8", Call{Kind: AllToAll, Bytes: 8, Elem: 1}, kernel.Reduction{}},
		{"allreduce-8", Call{Kind: AllReduce, Bytes: 8, Elem: 4}, sum},
		{"alltoall-64K", Call{Kind: AllToAll, Bytes: 64 << 10, Elem: 1}, kernel.Reduction{}},
	} {
		b.Run(c.name, func(b *testing.B) {
			nw := network{n: 2}
			nw.run(b, func(context.Context, *member) error { return nil })
			// The teams of run are closed; these are made one after the
			// other, which the meeting needs two goroutines for.
			nw.meeting = newMeeting(2)
			nw.each(b, func(m *member) (err error) {
				m.team, err = NewTeam(b.Context(), nw.config(m, nw.meeting.exchange(m.rank)))
				return err
			})
			in, out := Buffer{Mem: make([]byte, 256<<10)}, Buffer{Mem: make([]byte, 256<<10)}
			for b.Loop() {
				for r, m := range nw.members {
					t := m.team
					call := c.call
					call.Rank, call.Size = r, 2
					call.Algorithm, _, _ = t.selection.algorithm(&call)
					t.call.call, t.call.in, t.call.out, t.call.reduction = call, in, out, c.r
					if err := t.bind(t.cache.plan(&call, t.tuning)); err != nil {
						b.Fatal(err)
					}
				}
				for over := 0; over < 2; {
					over = 0
					for _, m := range nw.members {
						if m.team.machine.run(anyNumber) == ended {
							over++
						}
					}
				}
				for _, m := range nw.members {
					if err := m.team.finish(); err != nil {
						b.Fatal(err)
					}
				}
			}
			nw.each(b, func(m *member) error { return m.team.Close() })
		})
	}
}
