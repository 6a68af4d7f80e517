package place

import (
	"cmp"
	"slices"

	"github.com/gorun-mpi/gorun/internal/topo"
)

// number puts the processes of a program in the order of their ranks.
//
// Every order is a sort: by host, by the object on it, and by how many came
// before on the same object, in one sequence or another. What ties stays as it
// was mapped.
func number(procs []proc, r Rank, d *dealer) {
	if r.By == RankMapped {
		return
	}
	type key struct{ host, object, turn int }
	type seat struct{ host, object int }
	keys := make([]key, len(procs))
	turns := map[seat]int{}
	for i, p := range procs {
		s := seat{p.host, p.object}
		switch r.By {
		case RankNode:
			s.object = 0
		case RankObject:
			s.object = d.within(p, r.Kind)
		}
		if s.object == alone {
			keys[i] = key{s.host, p.object, 0}
			continue
		}
		keys[i] = key{s.host, s.object, turns[s]}
		turns[s]++
	}
	order := make([]int, len(procs))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int {
		a, b := keys[i], keys[j]
		switch {
		case r.By == RankSlot:
			return cmp.Compare(a.host, b.host)
		case r.By == RankFill:
			return cmp.Or(cmp.Compare(a.host, b.host), cmp.Compare(a.object, b.object))
		case r.By == RankObject && !r.Span:
			return cmp.Or(cmp.Compare(a.host, b.host), cmp.Compare(a.turn, b.turn), cmp.Compare(a.object, b.object))
		}
		return cmp.Or(cmp.Compare(a.turn, b.turn), cmp.Compare(a.host, b.host), cmp.Compare(a.object, b.object))
	})
	sorted := make([]proc, len(procs))
	for i, from := range order {
		sorted[i] = procs[from]
	}
	copy(procs, sorted)
}

// alone stands for an object that no other process has.
const alone = -2

// within is the object of a kind that a process's own lies in. Of smaller kinds
// there is no telling yet which it will be bound to: each process is alone in
// its own then, and they follow one another, object after object.
func (d *dealer) within(p proc, k topo.Kind) int {
	b := d.hosts[p.host]
	if p.object < 0 || b.Machine == nil {
		return alone
	}
	own := b.objects[p.object]
	for _, o := range b.Machine.Objects(k) {
		if o.CPUs.Contains(own.cpus) {
			return o.Index
		}
	}
	return alone
}
