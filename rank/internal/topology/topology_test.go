package topology

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// dumbFactors tries all falling lists of k factors of n, the first ones small.
func dumbFactors(n, k, most int) (best []int) {
	if k == 0 {
		if n == 1 {
			return []int{}
		}
		return nil
	}
	for d := 1; d <= min(n, most); d++ {
		if n%d != 0 {
			continue
		}
		if rest := dumbFactors(n/d, k-1, d); rest != nil {
			return append([]int{d}, rest...)
		}
	}
	return nil
}

func TestDims(t *testing.T) {
	for n := 1; n <= 400; n++ {
		for k := 1; k <= 4; k++ {
			dims := make([]int, k)
			if err := Dims(n, dims); err != nil {
				t.Fatal(err)
			}
			if want := dumbFactors(n, k, n); !slices.Equal(dims, want) {
				t.Fatalf("%d nodes in %d dimensions: %v, want %v", n, k, dims, want)
			}
		}
	}
	for _, tt := range []struct {
		nodes      int
		dims, want []int
	}{
		{6, []int{0, 0}, []int{3, 2}}, // the first four are the standard's
		{7, []int{0, 0}, []int{7, 1}},
		{6, []int{0, 3, 0}, []int{2, 3, 1}},
		{7, []int{0, 3, 0}, nil},
		{math.MaxInt32, []int{0, 0, 0}, []int{math.MaxInt32, 1, 1}},
		{1 << 30, []int{0, 0, 0}, []int{1024, 1024, 1024}},
		{12, []int{3, 4}, []int{3, 4}},
		{12, []int{3, 3}, nil},
		{1, []int{}, []int{}},
		{2, []int{}, nil},
		{0, []int{0}, nil},
		{4, []int{-1, 0}, nil},
	} {
		dims := slices.Clone(tt.dims)
		err := Dims(tt.nodes, dims)
		if (err == nil) != (tt.want != nil) || err == nil && !slices.Equal(dims, tt.want) {
			t.Errorf("%d nodes in %v: %v, %v; want %v", tt.nodes, tt.dims, dims, err, tt.want)
		}
	}
}

// The obvious version counts through all points and walks.
func TestGridAgainstObviousVersion(t *testing.T) {
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		dims, periods := make([]int, rnd.IntN(4)), []bool{}
		for i := range dims {
			dims[i] = 1 + rnd.IntN(4)
			periods = append(periods, rnd.IntN(2) == 0)
		}
		g, points, err := New(dims, periods)
		if err != nil {
			t.Fatal(err)
		}
		where := make(map[string]int)
		at := make([]int, len(dims))
		var all [][]int
		for point := range points {
			got := make([]int, len(dims))
			g.Coords(point, got)
			if !slices.Equal(got, at) {
				t.Fatalf("%+v: point %d is at %v, want %v", g, point, got, at)
			}
			where[fmt.Sprint(at)] = point
			all = append(all, slices.Clone(at))
			for i := len(at) - 1; i >= 0; i-- {
				if at[i]++; at[i] < dims[i] {
					break
				}
				at[i] = 0
			}
		}
		find := func(coords []int) int {
			coords = slices.Clone(coords)
			for i := range coords {
				for periods[i] && coords[i] < 0 {
					coords[i] += dims[i]
				}
				for periods[i] && coords[i] >= dims[i] {
					coords[i] -= dims[i]
				}
			}
			if point, ok := where[fmt.Sprint(coords)]; ok {
				return point
			}
			return Null
		}
		keep := make([]bool, len(dims))
		for i := range keep {
			keep[i] = rnd.IntN(2) == 0
		}
		taken := make(map[[2]int]bool)
		for point, coords := range all {
			moved := slices.Clone(coords)
			for i := range moved {
				moved[i] += rnd.IntN(9) - 4
			}
			got, err := g.Point(moved)
			if want := find(moved); err == nil && got != want || (err != nil) != (want == Null) {
				t.Fatalf("%+v: %v is point %d, %v; want %d", g, moved, got, err, want)
			}
			for dim := range dims {
				steps := rnd.IntN(9) - 4
				from, to := g.Shift(point, dim, steps)
				there, back := slices.Clone(coords), slices.Clone(coords)
				there[dim] += steps
				back[dim] -= steps
				if from != find(back) || to != find(there) {
					t.Fatalf("%+v: point %d moved by %d in dimension %d: %d, %d; want %d, %d", g, point, steps, dim, from, to, find(back), find(there))
				}
				for _, far := range []int{math.MinInt, math.MaxInt} {
					from, to := g.Shift(point, dim, far)
					if !periods[dim] && (from != Null || to != Null) || periods[dim] && (from < 0 || from >= points || to < 0 || to >= points) {
						t.Fatalf("%+v: point %d moved by %d in dimension %d: %d, %d", g, point, far, dim, from, to)
					}
				}
			}
			sub, which, index := g.Sub(keep, point)
			var kept []int
			for i, k := range keep {
				if k {
					kept = append(kept, coords[i])
				}
			}
			want, err := sub.Point(kept)
			if err != nil || index != want || taken[[2]int{which, index}] {
				t.Fatalf("%+v keeping %v: point %d is %d of grid %d, %v; want %d, and nobody else there", g, keep, point, index, which, err, want)
			}
			taken[[2]int{which, index}] = true
		}
	}
}

func TestBadGrids(t *testing.T) {
	for _, tt := range []struct {
		dims    []int
		periods []bool
	}{{[]int{2}, nil}, {[]int{0}, []bool{true}}, {[]int{2, -1}, []bool{true, true}}, {[]int{1 << 20, 1 << 20}, []bool{true, true}}} {
		if g, n, err := New(tt.dims, tt.periods); err == nil {
			t.Errorf("%v is %+v of %d points", tt, g, n)
		}
	}
}
