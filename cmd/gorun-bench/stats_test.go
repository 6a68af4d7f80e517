package main

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// Against the definition, counted out.
func TestQuantile(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for n := 1; n < 60; n++ {
		samples := make([]float64, n)
		for i := range samples {
			samples[i] = float64(r.IntN(20))
		}
		slices.Sort(samples)
		for _, percent := range []int{10, 50, 90, 99} {
			got := quantile(samples, percent)
			for _, candidate := range samples { // sorted: the first that fits is the answer
				below := 0
				for _, s := range samples {
					if s <= candidate {
						below++
					}
				}
				if below*100 >= percent*n {
					if got != candidate {
						t.Fatalf("%d %% of %v: got %v, want %v", percent, samples, got, candidate)
					}
					break
				}
			}
		}
	}
}

func TestMedian(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{4, 1}, 2.5}, {[]float64{9, 1, 2}, 2}, {[]float64{4, 3, 2, 1}, 2.5}} {
		if got := median(c.values); got != c.want {
			t.Errorf("median of %v: got %v, want %v", c.values, got, c.want)
		}
	}
}

func TestRatioOfPairsRounds(t *testing.T) {
	ours := map[int]float64{0: 1, 1: 2, 2: 30, 4: 5}
	theirs := map[int]float64{0: 2, 1: 4, 2: 10, 3: 1}
	got, ok := ratioOf(ours, theirs)
	want := ratio{median: 0.5, low: 0.5, high: 3, pairs: 3}
	got.median = digits(got.median)
	if !ok || got != want {
		t.Errorf("got %+v, %t; want %+v", got, ok, want)
	}
	if got, _ := ratioOf(map[int]float64{0: 4, 1: 1}, map[int]float64{0: 1, 1: 4}); digits(got.median) != 1 {
		t.Errorf("four times slower and four times faster: got %+v, want 1", got)
	}
	if got, ok := ratioOf(ours, map[int]float64{7: 1}); ok {
		t.Errorf("without a common round: got %+v", got)
	}
}

// The honest overlap judges by the work alone and the blocking call, OSU's by the work beside.
func TestOverlap(t *testing.T) {
	for _, c := range []struct {
		name            string
		s               sample
		overlap, honest float64
	}{
		{"all of it", sample{p50: 20, compute: 100, total: 100, alone: 100, comm: 10}, 100, 100},
		{"half of it", sample{p50: 20, compute: 100, total: 110, alone: 100, comm: 20}, 50, 50},
		{"the work takes longer beside the call", sample{p50: 20, compute: 120, total: 120, alone: 100, comm: 20}, 100, 0},
		{"worse than one after the other", sample{p50: 20, compute: 100, total: 150, alone: 100, comm: 20}, 0, 0},
	} {
		if o, h := c.s.overlap(), c.s.honest(); o != c.overlap || h != c.honest {
			t.Errorf("%s: got %v by OSU's formula and %v, want %v and %v", c.name, o, h, c.overlap, c.honest)
		}
	}
}
