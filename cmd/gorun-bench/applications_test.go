package main

import (
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestApplicationCommands(t *testing.T) {
	p := point{"alltoall", "byte", 400}
	for _, c := range []struct {
		name  string
		point point
		want  string
	}{
		{"a2a --engine dpa", p, "-np 3 PROGRAM -m 1200 --print none -l 30 --output-json FILE --engine dpa"},
		{"allreduce -m non-offloaded", point{"iallreduce_x16", "double", 400}, "-np 1 PROGRAM -s 50 -d double -o sum -b 16 -i 16 -l 30 -r client -m non-offloaded --output-json FILE" +
			" : -np 2 PROGRAM -s 50 -d double -o sum -b 16 -i 16 -l 30 -r client -m non-offloaded"},
		{"allreduce -m offloaded", point{"iallreduce_x16", "float", 400}, "-np 3 PROGRAM -s 100 -d float -o sum -b 16 -i 16 -l 30 -r daemon" +
			" : -np 1 PROGRAM -s 100 -d float -o sum -b 16 -i 16 -l 30 -r client -m offloaded --output-json FILE" +
			" : -np 2 PROGRAM -s 100 -d float -o sum -b 16 -i 16 -l 30 -r client -m offloaded"},
	} {
		for _, a := range applications {
			if a.name != c.name {
				continue
			}
			if got := strings.Join(a.command("PROGRAM", 3, c.point, "FILE"), " "); got != c.want || !a.takes(c.point) {
				t.Errorf("%s: %s\nwant %s", a.name, got, c.want)
			}
			for _, other := range []point{{"alltoall", "byte", 6}, {"iallreduce_x16", "long", 8}, {"iallreduce_x16", "char", 8}, {"barrier", "byte", 0}} {
				if a.takes(other) {
					t.Errorf("%s takes %v of %s", a.name, other, other.typ)
				}
			}
		}
	}
}

func TestApplicationFigures(t *testing.T) {
	s, err := readA2A([]byte(`{"ranks": 2, "steady_state": {"iterations": 1000, "min_us": 1, "median_us": 2.5, "p99_us": 9}}`))
	if want := (sample{batch: 1000, count: 1, p10: 2.5, p50: 2.5, p90: 2.5, p99: 2.5}); err != nil || s != want {
		t.Errorf("a2a: %+v, %v, want %+v", s, err, want)
	}
	s, err = readAllreduce([]byte(`{"num_batches": 16, "run_avg_s": 0.0015, "compute_s": 0.001, "network_s": 0.001}`))
	if err != nil || s.validate() != nil || s.honest() != 50 || s.overlap() != 50 || s.p50 != 1000 {
		t.Errorf("allreduce: %+v, %v, want half of 1000 us hidden", s, err)
	}
}

// An application that is not there spoils its own rows, and names itself.
func TestMissingApplication(t *testing.T) {
	t.Setenv("PATH", "")
	file := filepath.Join(t.TempDir(), "plan")
	if err := writePlan(file, &plan{limit: time.Minute, quota: time.Minute, points: []point{{"alltoall", "byte", 8}}}); err != nil {
		t.Fatal(err)
	}
	c := applications[0].contender(filepath.Join(t.TempDir(), "gorun-bench"), &scratch{dir: t.TempDir(), marker: markerName + "=missing"})
	err := c.run(t.Context(), 2, file, io.Discard, io.Discard)
	if err == nil || !strings.HasPrefix(err.Error(), "a2a --engine inline: ") || !strings.Contains(err.Error(), "executable file not found") {
		t.Errorf("%v, want that it is not found", err)
	}
}
