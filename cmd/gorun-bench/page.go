package main

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"maps"
	"slices"
	"strings"
)

//go:embed page.html
var pageText string

// page is what the template shows.
type page struct {
	Title    string
	Header   *header
	Memory   string
	Versions []string
	Caveats  []string
	Wrong    bool
	// Judged rows have an aim, and some of them miss it.
	Judged, Missed int
	Rates          string
	Summary        string
	// Ratios are the panels of bars, which share the scale of Ticks.
	Ratios []panel
	Ticks  []tick
	Scale  string
	Curves []figureOf
	Legend []legendEntry
	Peers  []string
	Lines  []pageLine
	Notes  []string
}

type panel struct {
	Title string
	Bars  []bar
}

type figureOf struct {
	name   string // of its file
	Title  string
	Count  int // of the curves
	SVG    template.HTML
	Legend []legendEntry // of its own curves
}

type legendEntry struct {
	Name, Mark string
	// Both come from a table of this program; the template would take "var(" and lists apart.
	Variable, Dashes template.CSS
}

type pageLine struct {
	Benchmark, Bytes, Memory, Unit string
	NP                             int
	Gorun                          pageCell
	P10, P90, P99                  string
	Peers                          []pageCell
	Ratio, Spread, Class           string
	Aim, Missed                    string
}

type pageCell struct {
	Median, Spread, Settings string
	Bad                      bool
}

// Within is how many rows are within their aims.
func (p *page) Within() int { return p.Judged - p.Missed }

// fullNames of the systems, for people.
var fullNames = map[string]string{gorun: "gorun", mpich: "MPICH", mpich + "-async": "MPICH with progress threads", openmpi: "Open MPI", limit: "limit"}

// writePage writes a page that needs nothing but itself: the plots are in it, no
// script, no font, no link.
func writePage(w io.Writer, h *header, rows []row) error {
	parsed, err := template.New("page").Parse(pageText)
	if err != nil {
		return err
	}
	return parsed.Execute(w, newPage(h, rows))
}

func newPage(h *header, rows []row) *page {
	p := &page{Header: h, Memory: sizeOfMemory(h.Machine.Memory), Title: "gorun"}
	columns := columnsOf(rows)
	for i, name := range columns {
		p.Peers = append(p.Peers, fullNames[name])
		p.Title += []string{" beside ", " and "}[min(i, 1)] + fullNames[name]
	}
	for _, name := range slices.Sorted(maps.Keys(h.Versions)) {
		text := h.Versions[name]
		if name == "gorun" && h.Commit != "" {
			text += " (" + h.Commit + ")"
		}
		p.Versions = append(p.Versions, name+" "+text)
	}
	p.Judged, p.Missed = judged(rows)
	p.Rates = ratesText(rows)
	p.Caveats = h.caveats(rows)
	p.plot(rows)
	for _, l := range linesOf(rows) {
		p.Lines = append(p.Lines, newLine(l, columns))
	}
	for i := range rows {
		r := &rows[i]
		p.Wrong = p.Wrong || !r.Verified
		what := fmt.Sprintf("%s on %d ranks, %s", r.label(), r.NP, fullNames[r.column()])
		if r.Failed != "" {
			p.Notes = append(p.Notes, what+": failed: "+strings.SplitN(r.Failed, "\n", 2)[0])
		}
		if r.Overlap != nil && r.Honest != nil {
			p.Notes = append(p.Notes, fmt.Sprintf("%s, %s: %s", what, r.settings(), r.overlapText()))
		}
	}
	return p
}

func sizeOfMemory(bytes int64) string {
	return fmt.Sprintf("%.1f GiB of memory", float64(bytes)/(1<<30))
}

// plot draws the bars of each number of ranks, and the curves of each benchmark
// and number of ranks that was measured in several sizes. All bars have one scale, and
// so have all curves of a unit.
func (p *page) plot(rows []row) {
	type section struct {
		benchmark string
		np        int
	}
	ratios, groups := map[int][]*row{}, map[section][]row{}
	var compared []*row
	var sections []section
	var sizes []int
	var bytes scale
	values := map[string]*scale{}
	for i := range rows {
		r := &rows[i]
		if r.Peer != "" {
			compared = append(compared, r)
			ratios[r.NP] = append(ratios[r.NP], r)
		}
		at := section{r.Benchmark, r.NP}
		if r.Application != "" { // it has bars, and no curve
			continue
		}
		if groups[at] == nil {
			sections = append(sections, at)
		}
		groups[at] = append(groups[at], *r)
	}
	drawn := make([]bool, len(styles))
	s := ratioScale(compared)
	p.Ticks, p.Scale = s.powers(), fmt.Sprintf("%s to %g", s.powers()[0].Name, s.high)
	for _, np := range slices.Sorted(maps.Keys(ratios)) {
		p.Ratios = append(p.Ratios, panel{fmt.Sprintf("%d ranks", np), bars(ratios[np], s)})
	}
	// Only what is drawn widens the scales: benchmarks with two sizes and more.
	sections = slices.DeleteFunc(sections, func(at section) bool { return !several(groups[at]) })
	for _, at := range sections {
		b := find(at.benchmark)
		for _, r := range groups[at] {
			if r.Runs > 0 && r.Bytes > 0 {
				sizes = append(sizes, r.Bytes)
				bytes.with(float64(r.Bytes))
				if values[b.unit()] == nil {
					values[b.unit()] = new(scale)
				}
				values[b.unit()].with(b.in(r.Least, r.Bytes))
				values[b.unit()].with(b.in(r.Most, r.Bytes))
				drawn[styleOf(&r)] = true
			}
		}
	}
	slices.Sort(sizes)
	sizes = slices.Compact(sizes)
	for _, at := range sections {
		b := find(at.benchmark)
		pictures := []picture{times(b, at.np, *values[b.unit()])}
		if b.how&overlaps != 0 {
			pictures = append(pictures, honestOverlap(b, at.np))
		}
		own := make([]bool, len(styles))
		for _, r := range groups[at] {
			own[styleOf(&r)] = own[styleOf(&r)] || r.Runs > 0
		}
		for _, d := range pictures {
			svg, lines := curves(d, groups[at], sizes, bytes)
			p.Curves = append(p.Curves, figureOf{d.name, d.title, lines, template.HTML(svg), legend(own)})
		}
	}
	p.Legend = legend(drawn)
	p.Summary = summary(compared)
}

// several tells whether a series of the rows has more than one size.
func several(rows []row) bool {
	points := make([]int, len(styles))
	for i := range rows {
		if r := &rows[i]; r.Runs > 0 && r.Bytes > 0 {
			points[styleOf(r)]++
		}
	}
	return slices.Max(points) > 1
}

// summary says in a line how gorun compares.
func summary(rows []*row) string {
	if len(rows) == 0 {
		return ""
	}
	var ratios []float64
	slowest, slower := rows[0], 0
	for _, r := range rows {
		ratios = append(ratios, r.Ratio)
		if r.Ratio > 1 {
			slower++
		}
		if r.Ratio > slowest.Ratio {
			slowest = r
		}
	}
	return fmt.Sprintf("gorun is faster in %d of %d measurements and slower in %d. Its median time is %s of that of the better system; the slowest measurement is %s on %d ranks, with %s of the time of %s.",
		len(rows)-slower, len(rows), slower, figure(middle(ratios)), slowest.label(), slowest.NP, figure(slowest.Ratio), fullNames[slowest.Peer])
}

// legend are the entries of the series that were drawn.
func legend(drawn []bool) []legendEntry {
	var list []legendEntry
	for i, s := range styles {
		if !drawn[i] {
			continue
		}
		list = append(list, legendEntry{s.name, s.mark, template.CSS(s.variable), template.CSS(s.dashes)})
	}
	return list
}

func newLine(l line, columns []string) pageLine {
	r := l.gorun
	b := find(r.Benchmark)
	one := pageLine{Benchmark: b.title, NP: r.NP, Memory: r.memoryName(), Unit: b.unit(), Gorun: newCell(r)}
	if b.how&sizeless == 0 {
		one.Bytes = sizeName(r.Bytes)
	}
	if r.Runs > 0 {
		one.P10, one.P90, one.P99 = figure(b.in(r.P10, r.Bytes)), figure(b.in(r.P90, r.Bytes)), figure(b.in(r.P99, r.Bytes))
	}
	for _, name := range columns {
		cell := pageCell{Median: "-"}
		if peer := l.peers[name]; peer != nil {
			cell = newCell(peer)
		}
		one.Peers = append(one.Peers, cell)
	}
	if r.Peer != "" {
		one.Ratio, one.Spread = fmt.Sprintf("%.2f", r.Ratio), fmt.Sprintf("[%.2f..%.2f] %s", r.RatioLow, r.RatioHigh, fullNames[r.Peer])
		switch {
		case r.Ratio > 1:
			one.Class = "bad"
		case !r.missed():
			one.Class = "good"
		}
		if one.Aim = r.aimText(); r.missed() {
			one.Missed = "missed"
		}
	}
	return one
}

func newCell(r *row) pageCell {
	median, spread, _ := strings.Cut(r.cell(), " ")
	c := pageCell{Median: median, Spread: spread, Bad: !r.Verified}
	if r.Variant != "" {
		c.Settings = "best settings: " + r.Variant
	}
	return c
}
