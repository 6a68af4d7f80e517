package doctor

import (
	"context"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/gorun-mpi/gorun/internal/topo"
)

// Machine is a topology in one line.
func Machine(m *topo.Machine) string {
	parts := []string{count(len(m.CPUs), "CPU")}
	if cores := len(m.Objects(topo.Core)); cores < len(m.CPUs) {
		parts = append(parts, fmt.Sprintf("%s of %d threads", count(cores, "core"), len(m.CPUs)/max(1, cores)))
	}
	parts = append(parts, count(max(1, len(m.Objects(topo.Package))), "package"))
	if nodes := len(m.Objects(topo.NUMA)); nodes > 0 {
		parts = append(parts, count(nodes, "NUMA node"))
	}
	if m.Restricted() {
		parts = append(parts, fmt.Sprintf("of which %d may be used", m.Usable()))
	}
	return strings.Join(parts, ", ")
}

func cpus(_ context.Context, v *View) Finding {
	m := topo.Read(v.Root)
	if v.Ranks > m.Usable() {
		return note(fmt.Sprintf("gorun -np %d, or more CPUs", m.Usable()), "%s; %s share them, and yield while they wait", Machine(&m), count(v.Ranks, "rank"))
	}
	return ok("%s", Machine(&m))
}

func smt(_ context.Context, v *View) Finding {
	m := topo.Read(v.Root)
	cores := len(m.Objects(topo.Core))
	switch {
	case cores == len(m.CPUs):
		return ok("a CPU is a core")
	case v.Ranks > cores:
		return note(fmt.Sprintf("gorun -np %d --bind-to core", cores), "%s on %s", count(v.Ranks, "rank"), count(cores, "core"))
	}
	return ok("%s of %d threads; --bind-to core keeps ranks apart", count(cores, "core"), len(m.CPUs)/max(1, cores))
}

func governor(_ context.Context, v *View) Finding {
	const dir = "sys/devices/system/cpu/cpufreq"
	entries, err := fs.ReadDir(v.Root, dir)
	if err != nil || len(entries) == 0 {
		return ok("none here: the hypervisor or the firmware sets the frequency")
	}
	var words []string
	for _, e := range entries {
		if word := v.text(path.Join(dir, e.Name(), "scaling_governor")); word != "" && !slices.Contains(words, word) {
			words = append(words, word)
		}
	}
	if len(words) == 0 {
		return ok("not known")
	}
	if len(words) == 1 && words[0] == "performance" {
		return ok("performance")
	}
	return note("cpupower frequency-set -g performance", "%s", strings.Join(words, ", "))
}
