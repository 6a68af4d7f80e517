package group

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// The slow obvious version: a group is a list of ranks.

func dumbUnion(a, b []int) []int {
	u := slices.Clone(a)
	for _, r := range b {
		if !slices.Contains(a, r) {
			u = append(u, r)
		}
	}
	return u
}

func dumbIntersection(a, b []int) []int {
	return slices.DeleteFunc(slices.Clone(a), func(r int) bool { return !slices.Contains(b, r) })
}

func dumbDifference(a, b []int) []int {
	return slices.DeleteFunc(slices.Clone(a), func(r int) bool { return slices.Contains(b, r) })
}

func members(s Set) []int {
	list := make([]int, s.Size())
	for i := range list {
		list[i] = s.Rank(i)
	}
	return list
}

func setOf(t *testing.T, list []int) Set {
	t.Helper()
	ranks := make([]int32, len(list))
	for i, r := range list {
		ranks[i] = int32(r)
	}
	s, err := New(ranks)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func some(rnd *rand.Rand, world int) []int { return rnd.Perm(world)[:rnd.IntN(world+1)] }

func TestSetsAgainstObviousVersion(t *testing.T) {
	for seed := range uint64(500) {
		rnd := rand.New(rand.NewPCG(seed, 7))
		world := 1 + rnd.IntN(12)
		la, lb := some(rnd, world), some(rnd, world)
		switch rnd.IntN(4) {
		case 0:
			lb = slices.Clone(la)
			rnd.Shuffle(len(lb), func(i, j int) { lb[i], lb[j] = lb[j], lb[i] })
		case 1:
			lb = slices.Clone(la)
		}
		a, b := setOf(t, la), setOf(t, lb)
		if rnd.IntN(5) == 0 {
			a, la = All(world), members(All(world))
		}
		check := func(what string, got Set, want []int) {
			t.Helper()
			if !slices.Equal(members(got), want) {
				t.Fatalf("seed %d: %s of %v and %v is %v, want %v", seed, what, la, lb, members(got), want)
			}
			for r := -1; r <= world; r++ {
				if index, want := got.Index(r), slices.Index(want, r); index != want {
					t.Fatalf("seed %d: rank %d of %s %v has index %d, want %d", seed, r, what, members(got), index, want)
				}
			}
		}
		check("the first", a, la)
		check("union", Union(&a, &b), dumbUnion(la, lb))
		check("intersection", Intersection(&a, &b), dumbIntersection(la, lb))
		check("difference", Difference(&a, &b), dumbDifference(la, lb))
		sorted := slices.Clone(la)
		slices.Sort(sorted)
		check("the first sorted", a.Sorted(), sorted)
		same, ident := Compare(&a, &b)
		if want := slices.Equal(la, lb); ident != want {
			t.Fatalf("seed %d: %v and %v are the same: %v, want %v", seed, la, lb, ident, want)
		}
		if want := len(la) == len(lb) && len(dumbIntersection(la, lb)) == len(la); same != want {
			t.Fatalf("seed %d: %v and %v have the same members: %v, want %v", seed, la, lb, same, want)
		}
		if got, want := Disjoint(&a, &b), len(dumbIntersection(la, lb)) == 0; got != want {
			t.Fatalf("seed %d: %v and %v are disjoint: %v, want %v", seed, la, lb, got, want)
		}
		indices := rnd.Perm(a.Size())[:rnd.IntN(a.Size()+1)]
		incl, err := a.Incl(indices)
		if err != nil {
			t.Fatal(err)
		}
		var in, ex []int
		for _, p := range indices {
			in = append(in, la[p])
		}
		for p, r := range la {
			if !slices.Contains(indices, p) {
				ex = append(ex, r)
			}
		}
		check("incl", incl, in)
		excl, err := a.Excl(indices)
		if err != nil {
			t.Fatal(err)
		}
		check("excl", excl, ex)
	}
}

func TestExpandAgainstObviousVersion(t *testing.T) {
	for seed := range uint64(2000) {
		rnd := rand.New(rand.NewPCG(seed, 8))
		n := 1 + rnd.IntN(10)
		r := Range{rnd.IntN(14) - 2, rnd.IntN(14) - 2, rnd.IntN(7) - 3}
		var want []int
		good := r.Stride != 0
		if good {
			for p := r.First; r.Stride > 0 && p <= r.Last || r.Stride < 0 && p >= r.Last; p += r.Stride {
				want = append(want, p)
				good = good && p >= 0 && p < n
			}
		}
		good = good && len(want) > 0
		got, err := Expand([]Range{r}, n)
		if good != (err == nil) || good && !slices.Equal(got, want) {
			t.Fatalf("%+v of %d: %v, %v; want %v, good: %v", r, n, got, err, want, good)
		}
	}
}

func TestBadPlaces(t *testing.T) {
	s := All(4)
	for _, tt := range []struct {
		name, says string
		call       func() error
	}{
		{"incl beyond", "rank 4 in a group of 4", func() error { _, err := s.Incl([]int{0, 4}); return err }},
		{"incl negative", "rank -1", func() error { _, err := s.Incl([]int{-1}); return err }},
		{"incl twice", "rank 2 is given twice", func() error { _, err := s.Incl([]int{2, 1, 2}); return err }},
		{"excl beyond", "rank 9", func() error { _, err := s.Excl([]int{9}); return err }},
		{"excl twice", "rank 0 is given twice", func() error { _, err := s.Excl([]int{0, 0}); return err }},
		{"new twice", "rank 7 is given twice", func() error { _, err := New([]int32{7, 3, 7}); return err }},
		{"new negative", "rank -2", func() error { _, err := New([]int32{-2}); return err }},
		{"range of billions", "rank 9223372036854775807", func() error { _, err := Expand([]Range{{0, math.MaxInt, 1}}, 4); return err }},
		{"ranges twice", "twice", func() error { _, err := Expand([]Range{{0, 3, 1}, {0, 3, 1}}, 4); return err }},
	} {
		if err := tt.call(); err == nil || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: error %v, want one that says %q", tt.name, err, tt.says)
		}
	}
}
