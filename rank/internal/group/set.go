// Package group is the arithmetic of ordered sets of ranks, by MPI's rules.
//
// A [Set] gives each of its members, which are ranks of the world, an index,
// counted from 0. Sets are values: no function changes one, so they are shared
// freely, by goroutines too. The package does no input or output.
package group

import (
	"fmt"
	"slices"
)

// None is the index of a rank that is no member.
const None = -1

// A Set is an ordered set of ranks. The zero Set is empty.
type Set struct {
	n      int
	ranks  []int32 // by index; nil in a set of All
	byRank []entry // sorted by rank; nil in a set of All
}

type entry struct{ rank, index int32 }

// All is the set of the ranks 0 to n-1, in this order. It takes no memory.
func All(n int) Set { return Set{n: n} }

// New is the set of these ranks, in their order. It keeps the slice. A rank that
// is negative or comes twice is an error.
func New(ranks []int32) (Set, error) {
	if len(ranks) == 0 {
		return Set{}, nil
	}
	s := Set{n: len(ranks), ranks: ranks, byRank: make([]entry, len(ranks))}
	for index, rank := range ranks {
		if rank < 0 {
			return Set{}, fmt.Errorf("rank %d", rank)
		}
		s.byRank[index] = entry{rank, int32(index)}
	}
	slices.SortFunc(s.byRank, func(a, b entry) int { return int(a.rank - b.rank) })
	for i := 1; i < len(s.byRank); i++ {
		if s.byRank[i].rank == s.byRank[i-1].rank {
			return Set{}, fmt.Errorf("rank %d is given twice", s.byRank[i].rank)
		}
	}
	return s, nil
}

// made is a set of ranks that are known to be good.
func made(ranks []int32) Set {
	s, err := New(ranks)
	if err != nil {
		panic("group: " + err.Error())
	}
	return s
}

// Size is the number of members.
func (s *Set) Size() int { return s.n }

// Rank is the member at an index, which must be one of the set's.
func (s *Set) Rank(index int) int {
	if s.ranks == nil {
		return index
	}
	return int(s.ranks[index])
}

// Index is where a rank is, None when it is no member. Cost: a binary search.
func (s *Set) Index(rank int) int {
	if s.ranks == nil {
		if rank < 0 || rank >= s.n {
			return None
		}
		return rank
	}
	i, found := slices.BinarySearchFunc(s.byRank, int32(rank), func(e entry, r int32) int { return int(e.rank - r) })
	if !found {
		return None
	}
	return int(s.byRank[i].index)
}

// Ranks are the members by index, nil for a set of All. They must not be changed.
func (s *Set) Ranks() []int32 { return s.ranks }

// list are the members by index, to be kept and changed.
func (s *Set) list() []int32 {
	ranks := make([]int32, s.n)
	for index := range ranks {
		ranks[index] = int32(s.Rank(index))
	}
	return ranks
}

// Incl is the set of the members at these indices, in their order.
func (s *Set) Incl(indices []int) (Set, error) {
	if err := s.check(indices); err != nil {
		return Set{}, err
	}
	ranks := make([]int32, len(indices))
	for i, index := range indices {
		ranks[i] = int32(s.Rank(index))
	}
	return made(ranks), nil
}

// Excl is the set without the members at these indices, the others in their order.
func (s *Set) Excl(indices []int) (Set, error) {
	if err := s.check(indices); err != nil {
		return Set{}, err
	}
	out := make([]bool, s.n)
	for _, index := range indices {
		out[index] = true
	}
	return s.filter(func(index int) bool { return !out[index] }), nil
}

// check tells whether these are indices of the set, none twice.
func (s *Set) check(indices []int) error {
	seen := make([]bool, s.n)
	for _, index := range indices {
		if index < 0 || index >= s.n {
			return fmt.Errorf("rank %d in a group of %d", index, s.n)
		}
		if seen[index] {
			return fmt.Errorf("rank %d is given twice", index)
		}
		seen[index] = true
	}
	return nil
}

// filter is the set of the members whose indices are kept.
func (s *Set) filter(keep func(index int) bool) Set {
	ranks := make([]int32, 0, s.n)
	for index := range s.n {
		if keep(index) {
			ranks = append(ranks, int32(s.Rank(index)))
		}
	}
	return made(ranks)
}

// Union is a, then those of b that are not in a.
func Union(a, b *Set) Set {
	ranks := a.list()
	for index := range b.n {
		if rank := b.Rank(index); a.Index(rank) == None {
			ranks = append(ranks, int32(rank))
		}
	}
	return made(ranks)
}

// Intersection is those of a that are in b, in the order of a.
func Intersection(a, b *Set) Set {
	return a.filter(func(index int) bool { return b.Index(a.Rank(index)) != None })
}

// Difference is those of a that are not in b, in the order of a.
func Difference(a, b *Set) Set {
	return a.filter(func(index int) bool { return b.Index(a.Rank(index)) == None })
}

// Sorted is the same members in the order of their ranks.
func (s *Set) Sorted() Set {
	if s.ranks == nil {
		return *s
	}
	ranks := s.list()
	slices.Sort(ranks)
	return made(ranks)
}

// Compare tells whether two sets have the same members, and in the same order.
func Compare(a, b *Set) (members, order bool) {
	if a.n != b.n {
		return false, false
	}
	order = true
	for index := range a.n {
		rank := a.Rank(index)
		if rank == b.Rank(index) {
			continue
		}
		order = false
		if b.Index(rank) == None {
			return false, false
		}
	}
	return true, order
}

// Disjoint tells whether no rank is in both sets.
func Disjoint(a, b *Set) bool {
	for index := range a.n {
		if b.Index(a.Rank(index)) != None {
			return false
		}
	}
	return true
}

// A Range is First, First+Stride, First+2*Stride and so on until Last, which is
// met or not. Stride may be negative.
type Range struct{ First, Last, Stride int }

// Expand lists the indices of ranges, in order, of a set of n members.
func Expand(ranges []Range, n int) ([]int, error) {
	var indices []int
	for _, r := range ranges {
		if r.Stride == 0 {
			return nil, fmt.Errorf("range %d to %d: the stride is 0", r.First, r.Last)
		}
		if r.First != r.Last && r.Last > r.First != (r.Stride > 0) {
			return nil, fmt.Errorf("range %d to %d: a stride of %d leads away from the end", r.First, r.Last, r.Stride)
		}
		// Before counting: a range of billions is not walked.
		last := r.First + (r.Last-r.First)/r.Stride*r.Stride
		for _, end := range [...]int{r.First, last} {
			if end < 0 || end >= n {
				return nil, fmt.Errorf("range %d to %d: rank %d in a group of %d", r.First, r.Last, end, n)
			}
		}
		for index := r.First; ; index += r.Stride {
			indices = append(indices, index)
			if index == last {
				break
			}
		}
		if len(indices) > n {
			return nil, fmt.Errorf("the ranges have more than the group's %d ranks: some are given twice", n)
		}
	}
	return indices, nil
}
