package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

// committed reads the results of a run in testdata/bench.
func committed(t *testing.T, name string) (*header, []row) {
	t.Helper()
	f, err := os.Open(filepath.Join("..", "..", "testdata", "bench", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	h, rows, err := readJSON(f)
	if err != nil {
		t.Fatal(err)
	}
	return h, slices.DeleteFunc(rows, func(r row) bool { return r.System != gorun || r.Peer == "" })
}

// TestBenchmarksPage holds the tables in docs/benchmarks.md to testdata/bench.
func TestBenchmarksPage(t *testing.T) {
	page := filepath.Join("..", "..", "docs", "benchmarks.md")
	var summary strings.Builder
	summary.WriteString("| run | rows | gorun is slower | rows with an aim | that miss it |\n|---|---|---|---|---|\n")
	for _, run := range []struct {
		name, title, part string
		text              func([]row) string
	}{
		{"quick", "the quick run", "quick run", func(rows []row) string { return slowest(rows) + bySize(rows) }},
		{"full", "the longer run", "longer run", slowest},
		{"launch", "starting jobs", "starts", starts},
	} {
		h, rows := committed(t, run.name)
		if run.name == "quick" {
			testenv.Page(t, page, "machine", machineLine(h), *update)
		}
		testenv.Page(t, page, run.part, run.text(rows), *update)
		count := func(title string, rows []row) {
			aimed, missed := judged(rows)
			if len(rows) > 0 {
				fmt.Fprintf(&summary, "| [%s](../testdata/bench/%s.txt) | %d | %d | %d | %d |\n", title, run.name, len(rows), len(slower(rows)), aimed, missed)
			}
		}
		bound := func(r row) bool { return r.Peer == limit }
		count(run.title, slices.DeleteFunc(slices.Clone(rows), bound))
		count(run.title+", beside a lower bound", slices.DeleteFunc(rows, func(r row) bool { return !bound(r) }))
	}
	testenv.Page(t, page, "runs", summary.String(), *update)
}

func machineLine(h *header) string {
	return fmt.Sprintf("%d cores of an %s, %.0f GiB, %s, %s; MPICH %s, Open MPI %s; gorun %s at commit %s, built by %s.\n",
		h.Machine.Cores, h.Machine.CPU, float64(h.Machine.Memory)/(1<<30), h.Machine.Kernel, h.Machine.System,
		h.Versions[mpich], h.Versions[openmpi], h.Versions[gorun], h.Commit, h.Versions["go"])
}

// slower are the rows in which gorun takes more time than what it is compared with.
func slower(rows []row) []*row {
	return chosen(rows, func(r *row) bool { return r.Ratio > 1 })
}

// chosen are the rows that choose wants, the slowest first.
func chosen(rows []row, choose func(*row) bool) []*row {
	var list []*row
	for i := range rows {
		if choose(&rows[i]) {
			list = append(list, &rows[i])
		}
	}
	slices.SortFunc(list, func(a, b *row) int {
		return cmp.Or(cmp.Compare(b.Ratio, a.Ratio), cmp.Compare(a.Benchmark, b.Benchmark), cmp.Compare(a.NP, b.NP), cmp.Compare(a.Bytes, b.Bytes))
	})
	return list
}

// slowest is the table of all rows in which gorun is slower or misses its aim.
func slowest(rows []row) string {
	list := chosen(rows, func(r *row) bool { return r.Ratio > 1 || r.missed() })
	var b strings.Builder
	fmt.Fprintf(&b, "gorun is slower in %d of %d rows, and misses its aim in %d of the others. All of these, the slowest first:\n\n",
		len(slower(rows)), len(rows), len(list)-len(slower(rows)))
	b.WriteString("| benchmark | ranks | memory | quotient | aim |\n|---|---|---|---|---|\n")
	for _, r := range list {
		fmt.Fprintf(&b, "| %s | %d | %s | %.2f | %s |\n", r.label(), r.NP, r.Memory, r.Ratio, aimCell(r))
	}
	return b.String()
}

// aimCell is a row's aim, with "missed" where it is.
func aimCell(r *row) string {
	aim := cmp.Or(r.aimText(), "none")
	if _, rate, _ := r.aim(); rate > 0 {
		aim += fmt.Sprintf(", %.0f M/s", rate/1e6)
	}
	if r.missed() {
		aim += ", missed"
	}
	return aim
}

// bySize is the table of all rows: a line for each benchmark and number of ranks,
// those with the slowest row first, and a column for each size.
func bySize(rows []row) string {
	type line struct {
		benchmark string
		np        int
	}
	worst := map[line]float64{}
	cells := map[line]map[int][]string{}
	var sizes []int
	for i := range rows {
		r := &rows[i]
		l := line{r.Benchmark, r.NP}
		if cells[l] == nil {
			cells[l] = map[int][]string{}
		}
		worst[l] = max(worst[l], r.Ratio)
		cells[l][r.Bytes] = append(cells[l][r.Bytes], fmt.Sprintf("%.2f", r.Ratio))
		sizes = append(sizes, r.Bytes)
	}
	slices.Sort(sizes)
	sizes = slices.DeleteFunc(slices.Compact(sizes), func(n int) bool { return n == 0 })
	var lines []line
	for l := range cells {
		lines = append(lines, l)
	}
	slices.SortFunc(lines, func(a, b line) int {
		return cmp.Or(cmp.Compare(worst[b], worst[a]), cmp.Compare(a.benchmark, b.benchmark), cmp.Compare(a.np, b.np))
	})
	var b strings.Builder
	b.WriteString("\nAll rows, in registered / ordinary memory, the benchmark with the slowest row first:\n\n| benchmark | ranks |")
	for _, n := range sizes {
		fmt.Fprintf(&b, " %s |", sizeName(n))
	}
	b.WriteString(" without a size |\n|---|---|---|" + strings.Repeat("---|", len(sizes)) + "\n")
	for _, l := range lines {
		fmt.Fprintf(&b, "| %s | %d |", l.benchmark, l.np)
		for _, n := range append(sizes, 0) {
			fmt.Fprintf(&b, " %s |", strings.Join(cells[l][n], " / "))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// starts is the table of launches, the slowest first.
func starts(rows []row) string {
	var b strings.Builder
	b.WriteString("| benchmark | ranks | beside | quotient | aim |\n|---|---|---|---|---|\n")
	for _, r := range chosen(rows, func(*row) bool { return true }) {
		fmt.Fprintf(&b, "| %s | %d | %s | %.2f | %s |\n", r.label(), r.NP, r.Peer, r.Ratio, aimCell(r))
	}
	return b.String()
}
