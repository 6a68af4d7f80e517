//go:build cgo && linux

package main

import "github.com/gorun-mpi/gorun/rank"

// A groupOf is MPI_Group.
type groupOf struct {
	rank.Group
	handle  uintptr
	session *session // it stems from
}

var (
	groups = newTable[*groupOf](kindGroup)
	empty  = &groupOf{handle: c_GROUP_EMPTY}
)

func groupAt(h uintptr) *groupOf {
	if h == c_GROUP_EMPTY {
		return empty
	}
	if g := groups.find(h); g != nil {
		return *g
	}
	return nil
}

func (f *frame) putGroup(to ptr, of *session, g rank.Group, err error) error {
	switch {
	case err != nil:
		return err
	case to == nil:
		return errNull
	case g.Size() == 0:
		f.putHandle(to, c_GROUP_EMPTY)
		return nil
	}
	h, slot := groups.enter()
	*slot = &groupOf{g, h, of}
	f.putHandle(to, h)
	return nil
}

func undefined(n int) int {
	if n < 0 {
		return c_UNDEFINED
	}
	return n
}

func mpiGroupSize(f *frame, g *groupOf, to ptr) error {
	f.put(to, g.Size())
	return nil
}

func mpiGroupRank(f *frame, g *groupOf, to ptr) error {
	f.put(to, undefined(g.Rank()))
	return nil
}

func mpiGroupFree(f *frame, at ptr) error {
	h := f.handleAt(at)
	g := groupAt(h)
	if g == nil {
		return badHandle(c_ERR_GROUP, "group", h)
	}
	if g != empty {
		groups.leave(h)
	}
	f.putHandle(at, c_GROUP_NULL)
	return nil
}

// comparisons are package rank's in MPI's numbers.
var comparisons = map[rank.Comparison]int{rank.Ident: c_IDENT, rank.Congruent: c_CONGRUENT, rank.Similar: c_SIMILAR, rank.Unequal: c_UNEQUAL}

func mpiGroupCompare(f *frame, a, b *groupOf, to ptr) error {
	f.put(to, comparisons[a.Compare(b.Group)])
	return nil
}

func mpiGroupUnion(f *frame, a, b *groupOf, to ptr) error {
	return f.putGroup(to, a.session, a.Union(b.Group), nil)
}

func mpiGroupIntersection(f *frame, a, b *groupOf, to ptr) error {
	return f.putGroup(to, a.session, a.Intersection(b.Group), nil)
}

func mpiGroupDifference(f *frame, a, b *groupOf, to ptr) error {
	return f.putGroup(to, a.session, a.Difference(b.Group), nil)
}

// ranksOf is a list of ranks in a group.
func ranksOf(g *groupOf, at ptr, n int, nobody bool) ([]int, error) {
	list := ints(at, n)
	if err := checkList(list, n, 0); err != nil {
		return nil, err
	}
	for i, r := range list {
		if nobody && r == c_PROC_NULL {
			list[i] = rank.ProcNull
		} else if r < 0 || r >= g.Size() {
			return nil, wrong(c_ERR_RANK, "rank %d in a group of %d", r, g.Size())
		}
	}
	return list, nil
}

func mpiGroupIncl(f *frame, g *groupOf, n int, at, to ptr) error {
	list, err := ranksOf(g, at, n, false)
	if err != nil {
		return err
	}
	fresh, err := g.Incl(list)
	return f.putGroup(to, g.session, fresh, err)
}

func mpiGroupExcl(f *frame, g *groupOf, n int, at, to ptr) error {
	list, err := ranksOf(g, at, n, false)
	if err != nil {
		return err
	}
	fresh, err := g.Excl(list)
	return f.putGroup(to, g.session, fresh, err)
}

func ranges(at ptr, n int) ([]rank.Range, error) {
	list := ints(at, 3*n)
	if err := checkList(list, 3*n, 0); err != nil {
		return nil, err
	}
	all := make([]rank.Range, n)
	for i := range all {
		all[i] = rank.Range{First: list[3*i], Last: list[3*i+1], Stride: list[3*i+2]}
	}
	return all, nil
}

func mpiGroupRangeIncl(f *frame, g *groupOf, n int, at, to ptr) error {
	list, err := ranges(at, n)
	if err != nil {
		return err
	}
	fresh, err := g.RangeIncl(list)
	return f.putGroup(to, g.session, fresh, err)
}

func mpiGroupRangeExcl(f *frame, g *groupOf, n int, at, to ptr) error {
	list, err := ranges(at, n)
	if err != nil {
		return err
	}
	fresh, err := g.RangeExcl(list)
	return f.putGroup(to, g.session, fresh, err)
}

func mpiGroupTranslateRanks(f *frame, g *groupOf, n int, at ptr, other *groupOf, to ptr) error {
	list, err := ranksOf(g, at, n, true)
	if err != nil {
		return err
	}
	found, err := g.Translate(list, other.Group)
	if err != nil {
		return err
	}
	out := intsAt(to, n)
	if n > 0 && out == nil {
		return errNull
	}
	for i, r := range found {
		switch r {
		case rank.ProcNull:
			r = c_PROC_NULL
		case rank.Undefined:
			r = c_UNDEFINED
		}
		out[i] = int32(r)
	}
	return nil
}
