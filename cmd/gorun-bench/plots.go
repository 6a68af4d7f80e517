package main

import (
	"cmp"
	"fmt"
	"html"
	"html/template"
	"math"
	"slices"
	"strconv"
	"strings"
)

// A style tells a series from the others by more than its colour, which is a CSS
// variable: it depends on whether the page is read in light or dark.
type style struct {
	of       series
	name     string // in the legend
	variable string
	dashes   string
	mark     string // around (0,0), as an SVG path
}

// styles are the series there are, in the order of the legend.
var styles = []style{
	{series{gorun, registered, "", "", ""}, "gorun, registered memory", "--s-registered", "none", "M-4,0a4,4 0 1,0 8,0a4,4 0 1,0 -8,0z"},
	{series{gorun, ordinary, "", "", ""}, "gorun, ordinary memory", "--s-ordinary", "6,2", "M-3.5,-3.5h7v7h-7z"},
	{series{gorun, registered, "off", "", ""}, "gorun, registered memory, progress off", "--s-registered", "2,3", "M-4,0a4,4 0 1,0 8,0a4,4 0 1,0 -8,0z"},
	{series{gorun, registered, progressOn, "", ""}, "gorun, registered memory, progress on", "--s-registered", "none", "M-4,-3.5L4,-3.5L0,4z"},
	{series{gorun, registered, "auto", "", ""}, "gorun, registered memory, progress auto", "--s-registered", "8,3", "M-4,-1.3H4V1.3H-4z"},
	{series{gorun, ordinary, "off", "", ""}, "gorun, ordinary memory, progress off", "--s-ordinary", "2,3", "M-3.5,-3.5h7v7h-7z"},
	{series{gorun, ordinary, progressOn, "", ""}, "gorun, ordinary memory, progress on", "--s-ordinary", "none", "M-4.5,0L0,-4.5L4.5,0L0,4.5z"},
	{series{gorun, ordinary, "auto", "", ""}, "gorun, ordinary memory, progress auto", "--s-ordinary", "8,3", "M-1.3,-4H1.3V4H-1.3z"},
	{series{gorun, registered, "", "", engineInline}, "gorun, registered memory, engine " + engineInline, "--s-registered", "none", "M-4,0a4,4 0 1,0 8,0a4,4 0 1,0 -8,0z"},
	{series{gorun, registered, "", "", engineThread}, "gorun, registered memory, engine " + engineThread, "--s-registered", "2,3", "M-4,-3.5L4,-3.5L0,4z"},
	{series{gorun, registered, "", "", engineDPA}, "gorun, registered memory, engine " + engineDPA, "--s-registered", "8,3", "M-4,-1.3H4V1.3H-4z"},
	{series{gorun, registered, "", "", engineDaemon}, "gorun, registered memory, engine " + engineDaemon, "--s-registered", "6,2,2,2", "M-4.5,0L0,-4.5L4.5,0L0,4.5z"},
	{series{gorun, ordinary, "", "", engineInline}, "gorun, ordinary memory, engine " + engineInline, "--s-ordinary", "none", "M-4,0a4,4 0 1,0 8,0a4,4 0 1,0 -8,0z"},
	{series{gorun, ordinary, "", "", engineThread}, "gorun, ordinary memory, engine " + engineThread, "--s-ordinary", "2,3", "M-4,-3.5L4,-3.5L0,4z"},
	{series{gorun, ordinary, "", "", engineDPA}, "gorun, ordinary memory, engine " + engineDPA, "--s-ordinary", "8,3", "M-4,-1.3H4V1.3H-4z"},
	{series{mpich, ordinary, "", "", ""}, "MPICH", "--s-mpich", "2,2", "M-4,3.5L4,3.5L0,-4z"},
	{series{mpich, ordinary, progressOn, "", ""}, "MPICH with progress threads", "--s-mpich", "none", "M-4,-3.5L4,-3.5L0,4z"},
	{series{openmpi, ordinary, "", "", ""}, "Open MPI", "--s-openmpi", "6,2,2,2", "M-4.5,0L0,-4.5L4.5,0L0,4.5z"},
	{series{mpich, registered, "", "", ""}, "MPICH, its own memory", "--s-mpich", "6,2", "M-4,-3.5L4,-3.5L0,4z"},
	{series{mpich, registered, progressOn, "", ""}, "MPICH with progress threads, its own memory", "--s-mpich", "8,3", "M-4,3.5L4,3.5L0,-4z"},
	{series{openmpi, registered, "", "", ""}, "Open MPI, its own memory", "--s-openmpi", "none", "M-3.5,-3.5h7v7h-7z"},
}

// styleOf is the style of a row's series. The limit, which has none, is never drawn.
func styleOf(r *row) int {
	return max(0, slices.IndexFunc(styles, func(s style) bool { return s.of == r.series() }))
}

// A scale is logarithmic, or linear, from low to high.
type scale struct {
	low, high float64
	linear    bool
}

// perCent is the scale of overlaps.
var perCent = scale{0, 100, true}

// with widens a logarithmic scale for a value.
func (s *scale) with(v float64) {
	if s.low == 0 {
		s.low, s.high = v, v
	}
	s.low, s.high = min(s.low, v), max(s.high, v)
}

// at is where a value is, from 0 to 1; beyond the ends it is at the end.
func (s scale) at(v float64) float64 {
	if s.high <= s.low {
		return 0.5
	}
	if s.linear {
		return max(0, min(1, (v-s.low)/(s.high-s.low)))
	}
	return max(0, min(1, math.Log(v/s.low)/math.Log(s.high/s.low)))
}

// widest is the end of the quotients' scale: what is beyond is drawn there, and has
// its number beside it like all.
const widest = 32

// ratioScale holds all quotients of the page, with their spread, between powers of two.
func ratioScale(rows []*row) scale {
	s := scale{low: 0.5, high: 2}
	for _, r := range rows {
		for _, v := range []float64{r.Ratio, r.RatioLow, r.RatioHigh} {
			if v > 0 {
				s.with(max(1.0/widest, min(widest, v)))
			}
		}
	}
	return scale{low: math.Exp2(math.Floor(math.Log2(s.low))), high: math.Exp2(math.Ceil(math.Log2(s.high)))}
}

// A tick is a line of a scale with its name.
type tick struct {
	Name string
	At   template.CSS
}

// powers are the powers of two of a scale: 1/4, 1/2, 1, 2, 4.
func (s scale) powers() []tick {
	var list []tick
	for v := s.low; v <= s.high; v *= 2 {
		name := fmt.Sprint(v)
		if v < 1 {
			name = fmt.Sprintf("1/%g", 1/v)
		}
		list = append(list, tick{name, percent(s.at(v))})
	}
	return list
}

func percent(part float64) template.CSS { return template.CSS(fmt.Sprintf("%.2f%%", 100*part)) }

// A bar is a row's quotient, from 1 to the left (faster) or to the right (slower).
type bar struct {
	Name, Memory, Value  string
	Slower               bool
	Colour               template.CSS
	Left, Width          template.CSS
	SpreadLeft, SpreadTo template.CSS // the rounds' spread; "" for one round
	Aim                  template.CSS // "" for none
}

// bars are the quotients on a number of ranks, the slowest first.
func bars(rows []*row, s scale) []bar {
	rows = slices.Clone(rows)
	slices.SortStableFunc(rows, func(a, b *row) int { return cmp.Compare(b.Ratio, a.Ratio) })
	var list []bar
	for _, r := range rows {
		one, end := s.at(1), s.at(r.Ratio)
		b := bar{Name: r.label(), Memory: r.memoryName(), Value: figure(r.Ratio), Slower: r.Ratio > 1, Colour: template.CSS(styles[styleOf(r)].variable),
			Left: percent(min(one, end)), Width: percent(math.Abs(end - one))}
		if b.Slower {
			b.Colour = template.CSS(strings.Replace(string(b.Colour), "--s-", "--slower-", 1))
		}
		if r.Pairs > 1 {
			b.SpreadLeft, b.SpreadTo = percent(s.at(r.RatioLow)), percent(s.at(r.RatioHigh)-s.at(r.RatioLow))
		}
		if aim, _, ok := r.aim(); ok {
			b.Aim = percent(s.at(aim))
		}
		list = append(list, b)
	}
	return list
}

// label is the place of a row among the bars.
func (r *row) label() string {
	if find(r.Benchmark).how&sizeless != 0 {
		return r.Benchmark
	}
	return r.Benchmark + " " + sizeName(r.Bytes)
}

// axisNames are the units in full.
var axisNames = map[string]string{"us": "microseconds", "MB/s": "MB/s", "M/s": "million messages/s"}

// The picture of curves, and the field of it that the axes bound.
const (
	curvesWidth, curvesHeight = 400, 260
	left, right, top, bottom  = 56, 390, 22, 222
)

// A picture is what is shown of its rows over the sizes: which figure, in what unit.
type picture struct {
	name        string // of its file, without the extension
	title, unit string
	value       scale
	// of is a row's figure with the least and the most of the rounds.
	of func(r *row) (middle, least, most float64)
}

// times draws a benchmark's figures.
func times(b *benchmark, np int, value scale) picture {
	return picture{fmt.Sprintf("%s-%d", b.name, np), fmt.Sprintf("%s, %d ranks", b.title, np), axisNames[b.unit()], value,
		func(r *row) (middle, least, most float64) {
			return b.in(r.Median, r.Bytes), b.in(r.Least, r.Bytes), b.in(r.Most, r.Bytes)
		}}
}

// honestOverlap draws how much of a non-blocking call was hidden.
func honestOverlap(b *benchmark, np int) picture {
	return picture{fmt.Sprintf("%s-%d-overlap", b.name, np), fmt.Sprintf("%s, %d ranks: honest overlap", b.title, np), "per cent", perCent,
		func(r *row) (middle, least, most float64) {
			if r.Honest == nil {
				return 0, 0, 0
			}
			return *r.Honest, r.HonestLeast, r.HonestMost
		}}
}

// curves draws figures over the sizes, which are on a logarithmic scale, with the
// spread of the rounds, and counts the lines. Plots of a unit have the same scales.
func curves(d picture, rows []row, sizes []int, bytes scale) (svg string, lines int) {
	unit, value := d.unit, d.value
	kind := "both logarithmic"
	if value.linear {
		kind = "these logarithmic"
	}
	x := func(n int) float64 { return left + 10 + (right-left-20)*bytes.at(float64(n)) }
	y := func(v float64) float64 { return bottom - 8 - (bottom-top-16)*value.at(v) }
	var s strings.Builder
	fmt.Fprintf(&s, `<svg role="img" viewBox="0 0 %d %d" aria-label="%s">`, curvesWidth, curvesHeight,
		html.EscapeString(fmt.Sprintf("%s: %s over bytes, %s; the table has the figures", d.title, unit, kind)))
	for i, n := range sizes {
		fmt.Fprintf(&s, `<path class="grid" d="M%.1f,%dV%d"/>`, x(n), top, bottom)
		if i%((len(sizes)+7)/8) == 0 {
			fmt.Fprintf(&s, `<text x="%.1f" y="%d" text-anchor="middle">%s</text>`, x(n), bottom+15, sizeName(n))
		}
	}
	for _, v := range value.decades() {
		fmt.Fprintf(&s, `<path class="grid" d="M%d,%.1fH%d"/><text x="%d" y="%.1f" text-anchor="end">%s</text>`, left, y(v), right,
			left-5, y(v)+4, strconv.FormatFloat(v, 'f', -1, 64))
	}
	fmt.Fprintf(&s, `<path class="axis" d="M%d,%dV%dH%d"/><text x="4" y="13">%s</text><text x="%d" y="%d" text-anchor="end">bytes</text>`,
		left, top, bottom, right, unit, right, bottom+32)
	for i, style := range styles {
		var points, spread, marks strings.Builder
		n := 0
		for k := range rows {
			if r := &rows[k]; styleOf(r) == i && r.Runs > 0 && r.Bytes > 0 {
				middle, least, most := d.of(r)
				at, v := x(r.Bytes), y(middle)
				fmt.Fprintf(&points, "%.1f,%.1f ", at, v)
				fmt.Fprintf(&marks, `<path d="%s" transform="translate(%.1f,%.1f)"/>`, style.mark, at, v)
				fmt.Fprintf(&spread, "M%.1f,%.1fV%.1f", at, y(least), y(most))
				n++
			}
		}
		if n > 1 {
			lines++
			fmt.Fprintf(&s, `<g class="series" style="stroke:var(%[1]s);fill:var(%[1]s)"><path class="whisker" d="%s"/><polyline points="%s" style="stroke-dasharray:%s"/>%s</g>`,
				style.variable, spread.String(), strings.TrimSpace(points.String()), style.dashes, marks.String())
		}
	}
	s.WriteString("</svg>")
	return s.String(), lines
}

// decades are the powers of ten of a scale, and 2 and 5 times those of a short one; of a linear one its fifths.
func (s scale) decades() []float64 {
	var list []float64
	for v := s.low; s.linear && v <= s.high; v += (s.high - s.low) / 5 {
		list = append(list, v)
	}
	if s.linear {
		return list
	}
	for e := math.Floor(math.Log10(s.low)); math.Pow(10, e) <= s.high; e++ {
		for _, digit := range []float64{1, 2, 5} {
			if v := digit * math.Pow(10, e); v >= s.low && v <= s.high && (digit == 1 || s.high/s.low < 1000) {
				list = append(list, v)
			}
		}
	}
	return list
}

// plotStyle is what of the page's style the plots need.
func plotStyle() string {
	_, text, _ := strings.Cut(pageText, "<style>\n")
	text, _, _ = strings.Cut(text, "</style>")
	var b strings.Builder
	for line := range strings.Lines(text) {
		for _, begin := range []string{":root", "  --s-", "@media (prefers-color-scheme", ".curves", ".series"} {
			if strings.HasPrefix(line, begin) {
				b.WriteString(line)
			}
		}
	}
	return b.String()
}

// legendStep is the height of a line of a file's legend.
const legendStep = 18

// file is a plot as a file of its own, with its title and a legend.
func (f *figureOf) file() string {
	var b strings.Builder
	height := 22 + curvesHeight + legendStep*len(f.Legend) + 6
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" class="curves" viewBox="0 0 %d %d">`+"\n<title>%s</title>\n<style>\n%s</style>\n",
		curvesWidth, height, html.EscapeString(f.Title), plotStyle())
	fmt.Fprintf(&b, `<rect width="%d" height="%d" style="fill:var(--bg)"/><text x="4" y="15" style="font-weight:600">%s</text>`+"\n",
		curvesWidth, height, html.EscapeString(f.Title))
	b.WriteString(strings.Replace(string(f.SVG), "<svg ", fmt.Sprintf(`<svg y="22" width="%d" height="%d" `, curvesWidth, curvesHeight), 1) + "\n")
	for i, e := range f.Legend {
		fmt.Fprintf(&b, `<g transform="translate(12,%d)"><path d="M0,0H44" style="fill:none;stroke:var(%[2]s);stroke-width:2;stroke-dasharray:%[3]s"/><path d="%[4]s" transform="translate(22,0)" style="fill:var(%[2]s)"/><text x="54" y="4">%[5]s</text></g>`+"\n",
			22+curvesHeight+legendStep*i+8, e.Variable, e.Dashes, e.Mark, html.EscapeString(e.Name))
	}
	b.WriteString("</svg>\n")
	return b.String()
}
