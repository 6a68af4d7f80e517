package host

import (
	"fmt"
	"slices"
	"testing"

	"github.com/gorun-mpi/gorun/internal/topo"
	"github.com/gorun-mpi/gorun/launcher/hosting"
)

// Progress threads get cores that no rank and no other job has. The numbers are above
// those of any machine, since the locks are the machine's.
func TestSpareCPUs(t *testing.T) {
	cpus := topo.SetOf(9001, 9002, 9003, 9004)
	machine := func() topo.Machine {
		m := topo.Flat(cpus)
		m.Allowed = cpus
		return m
	}
	bound := func(cpus ...int) *Spec {
		s := &Spec{Hosting: hosting.Settings{AsyncProgress: "on"}}
		for i, c := range cpus {
			s.Ranks = append(s.Ranks, RankSpec{Rank: i, CPUs: []int{c}})
		}
		return s
	}
	off, free, alone, unsaid := bound(9001), bound(9001, 9002), bound(9001), bound(9001, 9003)
	off.Hosting.AsyncProgress, free.Ranks[1].CPUs, alone.NP, unsaid.Hosting.AsyncProgress = "off", nil, 1, ""
	for _, c := range []struct {
		name string
		spec *Spec
		want []int
	}{
		{"off", off, nil},
		{"a rank that is not bound", free, nil},
		{"the job's only rank", alone, nil},
		{"auto, as nothing is said", unsaid, []int{9002, 9004}},
		{"a core for each", bound(9001, 9003), []int{9002, 9004}},
		{"a core for some", bound(9001, 9002, 9003), []int{9004, -1, -1}},
		{"none", bound(9001, 9002, 9003, 9004), []int{-1, -1, -1, -1}},
		{"two ranks of one CPU", bound(9002, 9002), []int{9001, 9003}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := spareCPUs(c.spec, machine)
			defer s.release()
			if !slices.Equal(s.cpus, c.want) {
				t.Errorf("got %v, want %v", s.cpus, c.want)
			}
		})
	}
	t.Run("two jobs", func(t *testing.T) {
		first := spareCPUs(bound(9001), machine)
		second := spareCPUs(bound(9001), machine)
		defer second.release()
		if !slices.Equal(first.cpus, []int{9002}) || !slices.Equal(second.cpus, []int{9003}) {
			t.Errorf("got %v and %v, want [9002] and [9003]", first.cpus, second.cpus)
		}
		said := ""
		if second.tell(func(format string, args ...any) { said = fmt.Sprintf(format, args...) }); said != "CPUs of the progress threads, by local rank (-1: no core is spare): [9003]; other programs have 1 cores" {
			t.Errorf("the second says %q", said)
		}
		first.release()
		third := spareCPUs(bound(9001), machine)
		defer third.release()
		if !slices.Equal(third.cpus, []int{9002}) {
			t.Errorf("after the first has ended: got %v, want [9002]", third.cpus)
		}
	})
}
