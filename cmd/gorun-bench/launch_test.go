package main

import (
	"strings"
	"testing"
	"time"
)

// What is launched for whom; "" where a system has no part in a benchmark.
func TestLaunchCommands(t *testing.T) {
	foreign := map[string]string{mpich: "/b/mpich", openmpi: "/b/openmpi"}
	system := func(name string) *contender {
		c := &contender{system: name, plain: "/b/limit", foreign: foreign, self: foreign[name]}
		c.launch = func(int) []string { return []string{"run", name} }
		if name == gorun || name == limit {
			c.self = "/b/bench"
		}
		return c
	}
	for _, c := range []struct {
		benchmark string
		np        int
		want      [4]string // of gorun, mpich, openmpi, limit
	}{
		{"launch", 4, [4]string{"run gorun true", "run mpich true", "run openmpi true", ""}},
		{"launch", 64, [4]string{"run gorun true", "run mpich true", "", ""}},
		{"launch_limit", 64, [4]string{"run gorun true", "", "", "/b/limit start 64 true"}},
		{"init", 16, [4]string{"run gorun /b/bench --worker init", "run mpich /b/mpich init", "run openmpi /b/openmpi init", ""}},
		{"init", 64, [4]string{"run gorun /b/bench --worker init", "", "", ""}},
		{"init_limit", 64, [4]string{"run gorun /b/bench --worker init", "", "", "run limit true"}},
		{"init_mpich", 4, [4]string{"run gorun /b/mpich init", "run mpich /b/mpich init", "", ""}},
		{"init_openmpi", 4, [4]string{"run gorun /b/openmpi init", "", "run openmpi /b/openmpi init", ""}},
		{"output", 4, [4]string{"run gorun /b/limit write 250000000", "run mpich /b/limit write 250000000", "run openmpi /b/limit write 250000000", ""}},
	} {
		for i, name := range []string{gorun, mpich, openmpi, limit} {
			if got := strings.Join(system(name).command(find(c.benchmark), c.np), " "); got != c.want[i] {
				t.Errorf("%s on %d ranks, %s: %q, want %q", c.benchmark, c.np, name, got, c.want[i])
			}
		}
	}
	none := system(gorun)
	none.plain, none.foreign = "", nil
	for _, b := range []string{"init_mpich", "init_openmpi", "output"} {
		if got := none.command(find(b), 4); got != nil {
			t.Errorf("%s without its program: %q", b, got)
		}
	}
}

// A launch counts what is written, all of it, and a failure is told.
func TestLaunchOnce(t *testing.T) {
	s, _ := scripted(t, 1)
	s.scratch.marker = markerName + "=test"
	s.lateness = 20 * time.Second
	took, wrote, err := s.launchOnce(t.Context(), []string{"sh", "-c", "head -c 1000001 /dev/zero"})
	if err != nil || wrote != 1000001 || took <= 0 {
		t.Errorf("%v, %d bytes, %v", took, wrote, err)
	}
	if _, _, err = s.launchOnce(t.Context(), []string{"sh", "-c", "echo no such thing >&2; exit 3"}); err == nil || !strings.Contains(err.Error(), "no such thing") {
		t.Errorf("a failure gave %v", err)
	}
}

// The limit's rows have no aim but where one is set, and each round launches as
// often as -i says.
func TestLaunchAims(t *testing.T) {
	for _, c := range []struct {
		benchmark string
		np        int
		want      string
	}{
		{"launch", 1, "0.80"}, {"launch", 16, "0.80"}, {"launch", 64, "1.00"}, {"launch", 8, ""}, {"launch_limit", 64, "1.30"}, {"launch_limit", 16, ""},
		{"init_limit", 4, "2.50"}, {"init_limit", 64, "2.50"}, {"init_mpich", 4, "1.00"}, {"output", 4, "1.00"}, {"init_openmpi", 4, ""},
	} {
		r := row{Benchmark: c.benchmark, System: gorun, NP: c.np, Type: "byte", Memory: registered}
		if got := r.aimText(); got != c.want {
			t.Errorf("%s on %d ranks: aim %q, want %q", c.benchmark, c.np, got, c.want)
		}
	}
	s := &session{params: &params{iterations: 1}}
	if s.enough(0, time.Hour) || !s.enough(1, 0) {
		t.Error("-i 1 is not one launch a round")
	}
}
