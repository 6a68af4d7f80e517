package main

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

// TestReadmeChart holds the README's chart and what stands below it to
// testdata/bench.
func TestReadmeChart(t *testing.T) {
	_, rows := committed(t, "quick")
	_, longer := committed(t, "full")
	_, started := committed(t, "launch")
	i := slices.IndexFunc(started, func(r row) bool { return r.Benchmark == "launch" && r.NP == 4 && r.Peer == mpich })
	if i < 0 {
		t.Fatal("found no launch of 4 ranks beside MPICH in testdata/bench")
	}
	root := filepath.Join("..", "..")
	testenv.File(t, filepath.Join(root, "docs", "chart.svg"), chart(rows), "go test ./cmd/gorun-bench -run TestReadmeChart -update", *update)
	testenv.Page(t, filepath.Join(root, "README.md"), "chart", fmt.Sprintf(`![Bars: gorun's time by that of the better MPI, for %d benchmarks](docs/chart.svg)

Go ranks of gorun, beside C programs of the MPIs, on two cores. A bar is the middle one of a benchmark's rows (8 bytes to 1 MiB, two
kinds of memory), the line their range. gorun is faster in %d of these %d rows, and in %d of %d rows of a longer run with eight ranks
and one-sided access. It starts 4 ranks in %.2f of the time of MPICH's mpiexec. [All rows, the slowest first](docs/benchmarks.md).
`, len(chartBars(rows)), faster(rows), len(rows), faster(longer), len(longer), started[i].Ratio), *update)
}

// faster counts the rows in which gorun takes less time.
func faster(rows []row) int {
	return len(chosen(rows, func(r *row) bool { return r.Ratio < 1 }))
}

// A chartBar is the ratios of a benchmark on a number of ranks.
type chartBar struct {
	name           string
	low, mid, high float64
}

// chartBars sums up the rows of each benchmark and number of ranks, the slowest first.
func chartBars(rows []row) []chartBar {
	ratios := map[string][]float64{}
	for i := range rows {
		title, _, _ := strings.Cut(find(rows[i].Benchmark).title, ",")
		name := fmt.Sprintf("%s, %d ranks", title, rows[i].NP)
		ratios[name] = append(ratios[name], rows[i].Ratio)
	}
	var list []chartBar
	for name, r := range ratios {
		list = append(list, chartBar{name, slices.Min(r), median(r), slices.Max(r)})
	}
	slices.SortFunc(list, func(a, b chartBar) int { return cmp.Or(cmp.Compare(b.mid, a.mid), strings.Compare(a.name, b.name)) })
	return list
}

// chart draws a bar for each benchmark: the part of the better MPI's time that
// gorun takes. Its colours follow the reader's light or dark theme.
func chart(rows []row) string {
	const (
		left, width, step, top = 170, 420, 22, 46 // pixels
		most                   = 1.5              // the end of the scale
	)
	list := chartBars(rows)
	x := func(ratio float64) float64 { return left + width*min(ratio, most)/most }
	bottom := top + step*len(list)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" font-family="sans-serif" font-size="13">
<title>gorun's time by that of the better MPI: %d benchmarks</title>
<style>
text { fill: #1f2328 } .grid { stroke: #8c959f; stroke-opacity: .4 } .one { stroke: #1f2328; stroke-width: 1.5 }
.line { stroke: #1f2328; stroke-width: 2 } .faster { fill: #2f81f7 } .slower { fill: #d4730b } .note { font-size: 12px }
@media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .one { stroke: #e6edf3 } .line { stroke: #e6edf3 } }
</style>
<text x="%d" y="16">Time of gorun / time of the better of MPICH and Open MPI</text>
<text class="note" x="%d" y="34">shorter is better; at 1 both take the same time</text>
`, left+width+80, bottom+26, len(list), left, left)
	for i := 0.0; i <= most; i += 0.25 {
		class := "grid"
		if i == 1 {
			class = "one"
		}
		fmt.Fprintf(&b, `<path class="%s" d="M%.1f %dV%d"/><text class="note" x="%.1f" y="%d" text-anchor="middle">%g</text>`+"\n", class, x(i), top, bottom, x(i), bottom+16, i)
	}
	for i, s := range list {
		y, class := top+step*i, "faster"
		if s.mid > 1 {
			class = "slower"
		}
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%s</text><rect class="%s" x="%d" y="%d" width="%.1f" height="14"/>`,
			left-8, y+16, s.name, class, left, y+4, x(s.mid)-left)
		fmt.Fprintf(&b, `<path class="line" d="M%.1f %dH%.1f"/><text x="%d" y="%d">%.2f</text>`+"\n", x(s.low), y+11, x(s.high), left+width+12, y+16, s.mid)
	}
	b.WriteString("</svg>\n")
	return b.String()
}
