package main

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/gorun-mpi/gorun/internal/topo"
	"github.com/gorun-mpi/gorun/internal/topo/topotest"
)

// A record is a topology in the form of testdata/topo: it makes the same machine.
func TestRecordIsTheMachine(t *testing.T) {
	for _, name := range topotest.Names(t) {
		t.Run(name, func(t *testing.T) {
			text := record(topotest.Files(t, name))
			want := topotest.Machine(t, name)
			if got := topo.Read(topotest.Parse(t, name, text)); !reflect.DeepEqual(got, want) {
				t.Errorf("got  %+v\nwant %+v\nof\n%s", got, want, text)
			}
		})
	}
	// This machine, too; and it tells nothing of this process.
	status, text, _ := info(t, "topo", "--record")
	got, want := topo.Read(topotest.Parse(t, "here", text)), topo.Here()
	if status != 0 || !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v\nof\n%s", got, want, text)
	}
	for _, secret := range []string{"Uid:", "Groups:", "VmPeak:"} {
		if strings.Contains(text, secret) {
			t.Errorf("the record has %s", secret)
		}
	}
}

func TestTree(t *testing.T) {
	for name, wants := range map[string][]string{
		"laptop":    {"package 0", "core 0"},
		"xeon":      {"package 1", "numa 1"},
		"epyc":      {"l3cache 0"},
		"container": {"quota: 1.5 CPUs"},
		"batch":     {"(not allowed)"},
		"sandbox":   {"4 CPUs, 1 package\n"},
	} {
		m := topotest.Machine(t, name)
		var b strings.Builder
		writeTree(&b, &m)
		for _, want := range wants {
			if !strings.Contains(b.String(), want) {
				t.Errorf("%s: got\n%s\nwant %q", name, b.String(), want)
			}
		}
		// Every CPU is in a leaf, once.
		var leaves topo.Set
		n := 0
		var visit func(p *part)
		visit = func(p *part) {
			if len(p.parts) == 0 {
				leaves, n = leaves.Or(p.cpus), n+p.cpus.Len()
			}
			for _, q := range p.parts {
				visit(q)
			}
		}
		visit(tree(&m))
		if n != len(m.CPUs) || leaves.Len() != n {
			t.Errorf("%s: the leaves have %d CPUs, %d different ones, want %d", name, n, leaves.Len(), len(m.CPUs))
		}
		var back machineJSON
		if text, err := json.Marshal(describe(&m)); err != nil || json.Unmarshal(text, &back) != nil || len(back.CPUs) != len(m.CPUs) || back.Usable != m.Usable() {
			t.Errorf("%s: got %+v, %v", name, back, err)
		}
	}
}
