package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/gorun-mpi/gorun/coll"
)

// The table takes what was fastest, keeps what is as good, and leaves alone what
// was not measured.
func TestTuned(t *testing.T) {
	p := &params{counts: []int{2, 4}, memories: []string{registered, ordinary}}
	for _, n := range []int{8, 4096, 1 << 20} {
		p.points = append(p.points, point{"allgather", "byte", n})
	}
	algorithms := candidates(coll.AllGather)
	times := map[coll.Algorithm][3]float64{ // by size
		coll.Direct: {2, 4, 800},
		coll.Bruck:  {1, 3.95, 900},
		coll.Ring:   {3, 9, 400},
	}
	r := &results{}
	for n, a := range algorithms {
		took, ok := times[a]
		if !ok {
			took = [3]float64{5, 9, 800}
		}
		for _, memory := range p.memories {
			for i, pt := range p.points {
				j := &job{contender: &contender{system: gorun, memory: memory, variant: tableName(n)}, np: 2}
				s := sample{batch: 1, count: 9, p10: took[i], p50: took[i], p90: took[i], p99: took[i]}
				s.wrong = a == coll.Ring && i == 0 // a wrong result is never the fastest
				r.add(j, pt, 0, s)
			}
		}
	}
	table, changes, err := r.tuned(p)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []coll.Algorithm{coll.Bruck, coll.Direct, coll.Ring} {
		_, rules := table.Rules(coll.AllGather, 2)
		if got := ruleFor(rules, p.points[i].bytes); got != want {
			t.Errorf("%v: got %v, want %v", p.points[i], got, want)
		}
	}
	if len(changes) != 2 || !strings.Contains(changes[0], "allgather on 2 ranks, 8 bytes: bruck, 1.00 us, instead of direct, 2.00 us") {
		t.Errorf("changes %q", changes)
	}
	builtIn := coll.DefaultTable()
	for _, k := range coll.Kinds() {
		if k == coll.AllGather {
			continue
		}
		for _, np := range []int{2, 4, 64} {
			_, got := table.Rules(k, np)
			_, want := builtIn.Rules(k, np)
			for n := 1; n < 1<<24; n *= 2 {
				if ruleFor(got, n) != ruleFor(want, n) {
					t.Errorf("%v on %d ranks, %d bytes: got %v, want the built-in %v", k, np, n, ruleFor(got, n), ruleFor(want, n))
				}
			}
		}
	}
	if _, err := coll.ParseTable(table.Bytes()); err != nil {
		t.Errorf("the table cannot be read: %v", err)
	}
}

// Every collective that comes in several ways has a benchmark, by which it is tuned.
func TestTuningMeasuresEveryCollective(t *testing.T) {
	for _, k := range coll.Kinds() {
		if len(candidates(k)) > 1 && !slices.ContainsFunc(benchmarkNames(), func(name string) bool {
			b := find(name)
			return b.kind == k && b.how&overlaps == 0
		}) {
			t.Errorf("%v has %d algorithms, and no benchmark", k, len(candidates(k)))
		}
	}
}
