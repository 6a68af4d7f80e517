// Package group is the arithmetic of ordered sets of ranks, by MPI's rules.
//
// A [Set] gives each of its members, which are ranks of the world, a place,
// counted from 0. Sets are values: no function changes one, so they are shared
// freely, by goroutines too. The package does no input or output.
package group

import (
	"fmt"
	"slices"
)

// None is the place of a rank that is no member.
const None = -1

// A Set is an ordered set of ranks. The zero Set is empty.
type Set struct {
	n     int
	ranks []int32 // by place; nil in a set of All
	index []entry // sorted by rank; nil in a set of All
}

type entry struct{ rank, place int32 }

// All is the set of the ranks 0 to n-1, in this order. It takes no memory.
func All(n int) Set { return Set{n: n} }

// New is the set of these ranks, in their order. It keeps the slice. A rank that
// is negative or comes twice is an error.
func New(ranks []int32) (Set, error) {
	if len(ranks) == 0 {
		return Set{}, nil
	}
	s := Set{n: len(ranks), ranks: ranks, index: make([]entry, len(ranks))}
	for place, rank := range ranks {
		if rank < 0 {
			return Set{}, fmt.Errorf("rank %d", rank)
		}
		s.index[place] = entry{rank, int32(place)}
	}
	slices.SortFunc(s.index, func(a, b entry) int { return int(a.rank - b.rank) })
	for i := 1; i < len(s.index); i++ {
		if s.index[i].rank == s.index[i-1].rank {
			return Set{}, fmt.Errorf("rank %d is given twice", s.index[i].rank)
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

// Rank is the member at a place, which must be one of the set's.
func (s *Set) Rank(place int) int {
	if s.ranks == nil {
		return place
	}
	return int(s.ranks[place])
}

// Place is where a rank is, None when it is no member. Cost: a binary search.
func (s *Set) Place(rank int) int {
	if s.ranks == nil {
		if rank < 0 || rank >= s.n {
			return None
		}
		return rank
	}
	i, found := slices.BinarySearchFunc(s.index, int32(rank), func(e entry, r int32) int { return int(e.rank - r) })
	if !found {
		return None
	}
	return int(s.index[i].place)
}

// Ranks are the members by place, nil for a set of All. They must not be changed.
func (s *Set) Ranks() []int32 { return s.ranks }

// list are the members by place, to be kept and changed.
func (s *Set) list() []int32 {
	ranks := make([]int32, s.n)
	for place := range ranks {
		ranks[place] = int32(s.Rank(place))
	}
	return ranks
}

// Incl is the set of the members at these places, in their order.
func (s *Set) Incl(places []int) (Set, error) {
	if err := s.check(places); err != nil {
		return Set{}, err
	}
	ranks := make([]int32, len(places))
	for i, place := range places {
		ranks[i] = int32(s.Rank(place))
	}
	return made(ranks), nil
}

// Excl is the set without the members at these places, the others in their order.
func (s *Set) Excl(places []int) (Set, error) {
	if err := s.check(places); err != nil {
		return Set{}, err
	}
	out := make([]bool, s.n)
	for _, place := range places {
		out[place] = true
	}
	return s.filter(func(place int) bool { return !out[place] }), nil
}

// check tells whether these are places of the set, none twice.
func (s *Set) check(places []int) error {
	seen := make([]bool, s.n)
	for _, place := range places {
		if place < 0 || place >= s.n {
			return fmt.Errorf("rank %d in a group of %d", place, s.n)
		}
		if seen[place] {
			return fmt.Errorf("rank %d is given twice", place)
		}
		seen[place] = true
	}
	return nil
}

// filter is the set of the members whose places are kept.
func (s *Set) filter(keep func(place int) bool) Set {
	ranks := make([]int32, 0, s.n)
	for place := range s.n {
		if keep(place) {
			ranks = append(ranks, int32(s.Rank(place)))
		}
	}
	return made(ranks)
}

// Union is a, then those of b that are not in a.
func Union(a, b *Set) Set {
	ranks := a.list()
	for place := range b.n {
		if rank := b.Rank(place); a.Place(rank) == None {
			ranks = append(ranks, int32(rank))
		}
	}
	return made(ranks)
}

// Intersection is those of a that are in b, in the order of a.
func Intersection(a, b *Set) Set {
	return a.filter(func(place int) bool { return b.Place(a.Rank(place)) != None })
}

// Difference is those of a that are not in b, in the order of a.
func Difference(a, b *Set) Set {
	return a.filter(func(place int) bool { return b.Place(a.Rank(place)) == None })
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

// Compare tells whether two sets have the same members, and those the same places.
func Compare(a, b *Set) (members, places bool) {
	if a.n != b.n {
		return false, false
	}
	places = true
	for place := range a.n {
		rank := a.Rank(place)
		if rank == b.Rank(place) {
			continue
		}
		places = false
		if b.Place(rank) == None {
			return false, false
		}
	}
	return true, places
}

// Disjoint tells whether no rank is in both sets.
func Disjoint(a, b *Set) bool {
	for place := range a.n {
		if b.Place(a.Rank(place)) != None {
			return false
		}
	}
	return true
}

// A Range is First, First+Stride, First+2*Stride and so on until Last, which is
// met or not. Stride may be negative.
type Range struct{ First, Last, Stride int }

// Expand lists the places of ranges, in order, of a set of n members.
func Expand(ranges []Range, n int) ([]int, error) {
	var places []int
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
		for place := r.First; ; place += r.Stride {
			places = append(places, place)
			if place == last {
				break
			}
		}
		if len(places) > n {
			return nil, fmt.Errorf("the ranges have more than the group's %d ranks: some are given twice", n)
		}
	}
	return places, nil
}
