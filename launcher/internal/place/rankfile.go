package place

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/gorun-mpi/gorun/internal/topo"
)

// Line is a line of a rankfile.
type Line struct {
	Rank  int
	Host  string // or +nK: the Kth host
	Slots string // where on it; "": anywhere
}

// ParseRankFile reads "rank N=HOST slot=SLOTS" lines; # begins a comment.
func ParseRankFile(text string) ([]Line, error) {
	var lines []Line
	seen := map[int]bool{}
	number := 0
	for line := range strings.Lines(text) {
		number++
		line, _, _ = strings.Cut(line, "#")
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		bad := func(why string) error { return fmt.Errorf("line %d, %q: %s", number, line, why) }
		rest, ok := strings.CutPrefix(line, "rank")
		if !ok {
			return nil, bad("want rank N=HOST slot=SLOTS")
		}
		rank, rest, ok := strings.Cut(rest, "=")
		n, err := strconv.ParseInt(strings.TrimSpace(rank), 10, 24)
		if !ok || err != nil || n < 0 {
			return nil, bad("want a rank of 0 or more and a host, as rank 0=a slot=0")
		}
		if seen[int(n)] {
			return nil, bad(fmt.Sprintf("rank %d has a line already", n))
		}
		seen[int(n)] = true
		rest = strings.TrimSpace(rest)
		host, slots := rest, ""
		if i := strings.IndexAny(rest, " \t"); i >= 0 {
			host = rest[:i]
			word, list, is := strings.Cut(strings.Join(strings.Fields(rest[i:]), ""), "=")
			slots, ok = list, is && (word == "slot" || word == "slots") // Open MPI takes both
			if !ok || slots == "" {
				return nil, bad("want slot=SLOTS behind the host, as slot=0:0-2")
			}
		}
		if host == "" {
			return nil, bad("want a host")
		}
		if _, err := parseSlots(slots); err != nil {
			return nil, bad(err.Error())
		}
		lines = append(lines, Line{int(n), host, slots})
	}
	if len(lines) == 0 {
		return nil, fmt.Errorf("no line: want rank N=HOST slot=SLOTS for each rank")
	}
	for i := range lines {
		if !seen[i] {
			return nil, fmt.Errorf("rank %d has no line, though higher ones have", i)
		}
	}
	return lines, nil
}

// slotItem is a part of SLOTS: logical cores, of a package or of the machine.
type slotItem struct {
	pkg      topo.Set // empty: of the machine
	all      bool     // every package
	physical bool     // the kernel's CPU numbers
	cores    topo.Set
	allCores bool
}

// parseSlots reads SLOTS: cores (0-2,4), cores of packages (1:0,2 or 0-1:*), the
// kernel's CPUs (p0-3). A package holds until the next one.
func parseSlots(text string) ([]slotItem, error) {
	if text == "" {
		return nil, nil
	}
	var items []slotItem
	var current slotItem
	for part := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ',' || r == ';' }) {
		item := slotItem{pkg: current.pkg, all: current.all}
		if p, ok := strings.CutPrefix(part, "p"); ok {
			item = slotItem{physical: true}
			part = p
		}
		if pkg, cores, ok := strings.Cut(part, ":"); ok && !item.physical {
			item.pkg, item.all = nil, pkg == "*"
			if !item.all {
				var err error
				if item.pkg, err = topo.ParseSet(pkg); err != nil || item.pkg.Len() == 0 {
					return nil, fmt.Errorf("slot=%s: want a package before the colon, as 0:1-2", text)
				}
			}
			part = cores
		}
		part = strings.TrimPrefix(part, "core") // as of Open MPI, core0 is 0
		var err error
		if part == "*" {
			item.allCores = true
		} else if item.cores, err = topo.ParseSet(part); err != nil || item.cores.Len() == 0 {
			return nil, fmt.Errorf("slot=%s: want cores, as 0-2,4, packages and cores, as 1:0-2, or CPUs, as p0-3", text)
		}
		items = append(items, item)
		current = item
	}
	if len(items) == 0 {
		return nil, fmt.Errorf("slot=%s: want cores", text)
	}
	return items, nil
}

// slots are the CPUs of SLOTS on a machine.
func slots(m *topo.Machine, text string, threads bool) (topo.Set, error) {
	items, err := parseSlots(text)
	if err != nil {
		return nil, err
	}
	kind := topo.Core
	if threads {
		kind = topo.Thread
	}
	packages := m.Objects(topo.Package)
	var all topo.Set
	for _, item := range items {
		if item.physical {
			all = all.Or(item.cores)
			continue
		}
		var within []topo.Set
		for _, p := range packages {
			if item.all || item.pkg.Has(p.Index) {
				within = append(within, p.CPUs)
			}
		}
		switch {
		case !item.all && item.pkg.Len() == 0:
			within = []topo.Set{topo.SetOf(numbers(m)...)}
		case !item.all && len(within) < item.pkg.Len():
			return nil, fmt.Errorf("slot=%s: there is no such package: the machine has %d", text, len(packages))
		}
		for _, set := range within {
			var units []topo.Set
			for _, u := range m.Objects(kind) {
				if set.Contains(u.CPUs) {
					units = append(units, u.CPUs)
				}
			}
			for i, u := range units {
				if item.allCores || item.cores.Has(i) {
					all = all.Or(u)
				}
			}
			for _, i := range item.cores.List() {
				if i >= len(units) {
					return nil, fmt.Errorf("slot=%s: there is no %s %d: there are %d", text, kind, i, len(units))
				}
			}
		}
	}
	return all, nil
}

// numbers are the CPUs of a machine.
func numbers(m *topo.Machine) []int {
	list := make([]int, len(m.CPUs))
	for i, c := range m.CPUs {
		list[i] = c.Number
	}
	return list
}
