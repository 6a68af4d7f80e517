package host

import (
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
)

func TestCPUSharings(t *testing.T) {
	for _, c := range []struct {
		name  string
		ranks [][]int // CPUs
		most  int
		want  string // CPUs and ranks that share them
	}{
		{"nobody is bound", [][]int{nil, nil, nil}, 2, "[{2 3} {2 3} {2 3}]"},
		{"each has its own", [][]int{{0}, {1}, {2, 3}}, 4, "[{1 1} {1 1} {2 1}]"},
		{"two share", [][]int{{0}, {1}, {0}}, 4, "[{1 2} {1 1} {1 2}]"},
		{"chained", [][]int{{0, 1}, {1, 2}, {2, 3}, {9}}, 10, "[{4 3} {4 3} {4 3} {1 1}]"},
		{"chained by the last", [][]int{{0}, {1}, {2}, {0, 1, 2}}, 10, "[{3 4} {3 4} {3 4} {3 4}]"},
		{"one may run anywhere", [][]int{{0}, nil}, 4, "[{4 2} {4 2}]"},
		{"a quota of one CPU", [][]int{{0}, {1}, {2}}, 1, "[{1 3} {1 3} {1 3}]"},
		{"a quota of two, for two", [][]int{{0, 1}, {2, 3}}, 2, "[{2 1} {2 1}]"},
		{"none", nil, 2, "[]"},
	} {
		var ranks []RankSpec
		for i, cpus := range c.ranks {
			ranks = append(ranks, RankSpec{Rank: i, CPUs: cpus})
		}
		if got := fmt.Sprint(cpuSharings(ranks, c.most)); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}

func TestBinderOfMissingCPUs(t *testing.T) {
	own := unix.NewCPUSet(cpusMax)
	if err := unix.SchedGetaffinityDynamic(0, own); err != nil {
		t.Fatal(err)
	}
	var b binder
	if err := b.bind([]int{cpusMax - 1}); err == nil {
		t.Errorf("CPU %d: got no error", cpusMax-1)
	}
	if err := b.bind(nil); err != nil || b.bound != nil {
		t.Errorf("unbound: %v, %v", err, b.bound)
	}
}
