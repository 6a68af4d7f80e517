package rank

import (
	"cmp"
	"testing"

	"github.com/gorun-mpi/gorun/rank/internal/peers/wireup"
)

// Hosts that are one machine share its CPUs: each rank has a seat of its own there.
func TestSeatsOfOneMachine(t *testing.T) {
	hosts := func(kernels ...string) (all []wireup.Greeting) {
		for _, k := range kernels {
			all = append(all, wireup.Greeting{Kernel: k})
		}
		return all
	}
	// Both of the first kernel.
	on := func(cpus, limits [2]string) []wireup.Greeting {
		return []wireup.Greeting{{Kernel: "k", CPUs: cpus[0], Limit: limits[0]}, {Kernel: "k", CPUs: cpus[1], Limit: limits[1]}}
	}
	none := [2]string{}
	cases := []struct {
		name          string
		all           []wireup.Greeting
		rank          int
		p             place
		seat, sharers int
	}{
		{"two hosts of one machine", hosts("k", "k"), 1, place{size: 1}, 1, 2},
		{"two machines", hosts("k", "l"), 1, place{size: 1}, 0, 0},
		{"two hosts of one machine and another machine", hosts("k", "l", "k", "l", "k"), 4, place{size: 1}, 2, 3},
		{"one host with all ranks of the machine", hosts("k", "k", "l"), 1, place{size: 2, local: 1, seat: 1}, 1, 0},
		{"containers with CPUs of their own", on([2]string{"0-1", "2-3"}, none), 1, place{size: 1}, 0, 0},
		{"containers with a CPU in common", on([2]string{"0-2", "2-3"}, none), 1, place{size: 1}, 1, 2},
		{"containers with a quota each", on([2]string{"0-3", "0-3"}, [2]string{"a", "b"}), 1, place{size: 1}, 0, 0},
		{"a container with a quota beside one without", on([2]string{"0-3", "0-3"}, [2]string{"", "b"}), 1, place{size: 1}, 0, 0},
		{"two hosts under one quota", on([2]string{"0-3", "0-3"}, [2]string{"a", "a"}), 1, place{size: 1}, 1, 2},
		{"CPUs not known", on([2]string{"", "2-3"}, none), 1, place{size: 1}, 1, 2},
		{"two hosts of two ranks on two CPUs", hosts("k", "k", "k", "k"), 1, place{size: 2, local: 1, seat: 1, cpus: 2}, 0, 4},
		{"the other of them", hosts("k", "k", "k", "k"), 2, place{size: 2, cpus: 2}, 1, 4},
		{"kernels not known", hosts("", ""), 1, place{size: 1}, 0, 0},
		{"bound by the launcher", hosts("k", "k", "k"), 2, place{size: 3, seat: 2, sharers: 1}, 2, 1},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			p := c.p
			p.cpus = cmp.Or(p.cpus, 4)
			if p.shareCPUs(c.all, c.rank); p.seat != c.seat || p.sharers != c.sharers {
				t.Errorf("got seat %d of %d sharers, want %d of %d", p.seat, p.sharers, c.seat, c.sharers)
			}
		})
	}
}
