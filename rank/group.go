package rank

import "github.com/gorun-mpi/gorun/rank/internal/group"

// A Group is an ordered set of ranks (MPI_Group). It is immutable, and
// need not be freed. The zero Group is empty (MPI_GROUP_EMPTY).
type Group struct {
	set group.Set
	// self is one more than the caller's rank in the world, so that the zero
	// Group, in which nobody is, needs none.
	self int
}

// A Comparison is the result of comparing two groups or communicators.
type Comparison int

// The results of a comparison, from equal to different.
const (
	Ident     Comparison = iota // MPI_IDENT: the same members in the same order; for communicators, the same communicator
	Congruent                   // MPI_CONGRUENT: different communicators with the same groups
	Similar                     // MPI_SIMILAR: the same members in another order
	Unequal                     // MPI_UNEQUAL
)

// String is MPI's name.
func (c Comparison) String() string {
	switch c {
	case Ident:
		return "MPI_IDENT"
	case Congruent:
		return "MPI_CONGRUENT"
	case Similar:
		return "MPI_SIMILAR"
	}
	return "MPI_UNEQUAL"
}

// A Range is the ranks First, First+Stride, First+2*Stride and so on, up to
// Last at most. Stride may be negative and must lead from First towards Last.
type Range = group.Range

// Group is the group of all ranks.
func (w *World) Group() Group { return w.groupOf(group.All(w.size)) }

func (w *World) groupOf(s group.Set) Group { return Group{set: s, self: w.rank + 1} }

// Size is the number of members (MPI_Group_size).
func (g Group) Size() int { return g.set.Size() }

// Rank is the caller's rank in the group, or [Undefined] if it is not a member (MPI_Group_rank).
func (g Group) Rank() int { return g.rankOf(g.self - 1) }

// rankOf is the rank in the group of one of the world, or Undefined.
func (g Group) rankOf(world int) int {
	if index := g.set.Index(world); index != group.None {
		return index
	}
	return Undefined
}

// Translate returns the ranks in other of the members of g with these ranks (MPI_Group_translate_ranks):
// [Undefined] for members that are not in other, and [ProcNull] for ProcNull.
func (g Group) Translate(ranks []int, other Group) ([]int, error) {
	to := make([]int, len(ranks))
	for i, r := range ranks {
		switch {
		case r == ProcNull:
			to[i] = ProcNull
		case r < 0 || r >= g.set.Size():
			return nil, g.fail("group_translate", badClass(ClassRank, "rank %d in a group of %d", r, g.set.Size()))
		default:
			to[i] = other.rankOf(g.set.Rank(r))
		}
	}
	return to, nil
}

// Incl is the group of the members with these ranks, in this order
// (MPI_Group_incl). A rank that is not in g, or that is given twice, is an error.
func (g Group) Incl(ranks []int) (Group, error) {
	s, err := g.set.Incl(ranks)
	return g.made("group_incl", s, err)
}

// Excl is g without the members with these ranks (MPI_Group_excl). A
// rank that is not in g, or that is given twice, is an error.
func (g Group) Excl(ranks []int) (Group, error) {
	s, err := g.set.Excl(ranks)
	return g.made("group_excl", s, err)
}

// RangeIncl is Incl with the ranks of all ranges (MPI_Group_range_incl).
func (g Group) RangeIncl(ranges []Range) (Group, error) {
	ranks, err := group.Expand(ranges, g.set.Size())
	var s group.Set
	if err == nil {
		s, err = g.set.Incl(ranks)
	}
	return g.made("group_range_incl", s, err)
}

// RangeExcl is Excl with the ranks of all ranges (MPI_Group_range_excl).
func (g Group) RangeExcl(ranges []Range) (Group, error) {
	ranks, err := group.Expand(ranges, g.set.Size())
	var s group.Set
	if err == nil {
		s, err = g.set.Excl(ranks)
	}
	return g.made("group_range_excl", s, err)
}

// Union is the group of the members of g, followed by those of other that are not in g (MPI_Group_union).
func (g Group) Union(other Group) Group { return g.with(other, group.Union(&g.set, &other.set)) }

// Intersection is the group of the members of g that are also in other,
// in the order of g (MPI_Group_intersection).
func (g Group) Intersection(other Group) Group {
	return g.with(other, group.Intersection(&g.set, &other.set))
}

// Difference is the group of the members of g that are not in other, in
// the order of g (MPI_Group_difference).
func (g Group) Difference(other Group) Group {
	return g.with(other, group.Difference(&g.set, &other.set))
}

// Compare compares two groups (MPI_Group_compare): Ident for the same members in
// the same order, Similar for the same members in another order, otherwise Unequal.
func (g Group) Compare(other Group) Comparison { return compareSets(&g.set, &other.set) }

func compareSets(a, b *group.Set) Comparison {
	switch members, order := group.Compare(a, b); {
	case order:
		return Ident
	case members:
		return Similar
	}
	return Unequal
}

// with is a group made of g and other, one of which knows its caller.
func (g Group) with(other Group, s group.Set) Group {
	return Group{set: s, self: max(g.self, other.self)}
}

// made is a new group of the caller of g, or an error of its ranks.
func (g Group) made(op string, s group.Set, err error) (Group, error) {
	if err != nil {
		return Group{}, g.fail(op, badClass(ClassRank, "%v", err))
	}
	return Group{set: s, self: g.self}, nil
}

func (g Group) fail(op string, err error) error {
	return &Error{Op: op, Rank: max(g.self-1, 0), Peer: -1, Err: err}
}
