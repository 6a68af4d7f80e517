package place

import (
	"fmt"
	"testing"

	"github.com/gorun-mpi/gorun/internal/topo"
)

// Processes that join others on a host go where the fewest are.
func TestBindMore(t *testing.T) {
	m := topo.Flat(topo.SetOf(0, 1, 2, 3))
	core := Bind{To: BindObject, Kind: topo.Core}
	for name, c := range map[string]struct {
		machine *topo.Machine
		p       Policy
		b       Bind
		live    []topo.Set
		n       int
		want    string
	}{
		"free cores":     {&m, Policy{}, core, []topo.Set{topo.SetOf(0), topo.SetOf(2)}, 2, "[1 3]"},
		"nobody is left": {&m, Policy{}, core, nil, 3, "[0 1 2]"},
		"two cores each": {&m, Policy{Map: Map{PE: 2}}, core, []topo.Set{topo.SetOf(0, 1)}, 1, "[2-3]"},
		"some CPUs":      {&m, Policy{CPUs: topo.SetOf(1, 3)}, core, []topo.Set{topo.SetOf(1)}, 1, "[3]"},
		"the machine":    {&m, Policy{}, Bind{To: BindObject, Kind: topo.Whole}, []topo.Set{topo.SetOf(0, 1, 2, 3)}, 2, "[0-3 0-3]"},
		"too many":       {&m, Policy{}, core, []topo.Set{topo.SetOf(0), topo.SetOf(1)}, 3, "[]"},
		"overload":       {&m, Policy{}, Bind{To: BindObject, Kind: topo.Core, Overload: true}, []topo.Set{topo.SetOf(0), topo.SetOf(1)}, 3, "[2 3 0]"},
		"not bound":      {&m, Policy{}, Bind{To: BindNone}, nil, 2, "[]"},
		"unknown":        {nil, Policy{}, core, nil, 2, "[]"},
		"a rankfile":     {&m, Policy{Map: Map{By: Ranks}}, core, nil, 2, "[]"},
	} {
		if got := fmt.Sprint(BindMore(c.machine, c.p, c.b, c.live, c.n)); got != c.want {
			t.Errorf("%s: got %s, want %s", name, got, c.want)
		}
	}
}
