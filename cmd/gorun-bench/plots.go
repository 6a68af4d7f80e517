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
	name     string // in the legend
	variable string
	dashes   string
	mark     string // around (0,0), as an SVG path
}

// styles are the series there are, in the order of the legend.
var styles = []style{
	{"gorun, registered memory", "--s-registered", "none", "M-4,0a4,4 0 1,0 8,0a4,4 0 1,0 -8,0z"},
	{"gorun, ordinary memory", "--s-ordinary", "6,2", "M-3.5,-3.5h7v7h-7z"},
	{"MPICH", "--s-mpich", "2,2", "M-4,3.5L4,3.5L0,-4z"},
	{"Open MPI", "--s-openmpi", "6,2,2,2", "M-4.5,0L0,-4.5L4.5,0L0,4.5z"},
}

// styleOf is the style of a row's series.
func styleOf(r *row) int {
	switch {
	case r.System == mpich:
		return 2
	case r.System == openmpi:
		return 3
	case r.Memory == ordinary:
		return 1
	}
	return 0
}

// A scale is logarithmic, from low to high.
type scale struct{ low, high float64 }

// with widens the scale for a value.
func (s *scale) with(v float64) {
	if s.low == 0 {
		*s = scale{v, v}
	}
	s.low, s.high = min(s.low, v), max(s.high, v)
}

// at is where a value is, from 0 to 1; beyond the ends it is at the end.
func (s scale) at(v float64) float64 {
	if s.high <= s.low {
		return 0.5
	}
	return max(0, min(1, math.Log(v/s.low)/math.Log(s.high/s.low)))
}

// widest is the end of the quotients' scale: what is beyond is drawn there, and has
// its number beside it like all.
const widest = 32

// ratioScale holds all quotients of the page, with their spread, between powers of two.
func ratioScale(rows []*row) scale {
	s := scale{0.5, 2}
	for _, r := range rows {
		for _, v := range []float64{r.Ratio, r.RatioLow, r.RatioHigh} {
			if v > 0 {
				s.with(max(1.0/widest, min(widest, v)))
			}
		}
	}
	return scale{math.Exp2(math.Floor(math.Log2(s.low))), math.Exp2(math.Ceil(math.Log2(s.high)))}
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

// curves draws the figures of a benchmark over the sizes, both logarithmic, with the
// spread of the rounds, and counts the lines. Plots of a unit have the same scales.
func curves(b *benchmark, np int, rows []row, sizes []int, bytes, value scale) (svg string, lines int) {
	unit := axisNames[b.unit()]
	x := func(n int) float64 { return left + 10 + (right-left-20)*bytes.at(float64(n)) }
	y := func(v float64) float64 { return bottom - 8 - (bottom-top-16)*value.at(v) }
	var s strings.Builder
	fmt.Fprintf(&s, `<svg role="img" viewBox="0 0 %d %d" aria-label="%s">`, curvesWidth, curvesHeight,
		html.EscapeString(fmt.Sprintf("%s on %d ranks: %s over bytes, both logarithmic; the table has the figures", b.title, np, unit)))
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
				at, v := x(r.Bytes), y(b.in(r.Median, r.Bytes))
				fmt.Fprintf(&points, "%.1f,%.1f ", at, v)
				fmt.Fprintf(&marks, `<path d="%s" transform="translate(%.1f,%.1f)"/>`, style.mark, at, v)
				fmt.Fprintf(&spread, "M%.1f,%.1fV%.1f", at, y(b.in(r.Least, r.Bytes)), y(b.in(r.Most, r.Bytes)))
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

// decades are the powers of ten of a scale, and 2 and 5 times those of a short one.
func (s scale) decades() []float64 {
	var list []float64
	for e := math.Floor(math.Log10(s.low)); math.Pow(10, e) <= s.high; e++ {
		for _, digit := range []float64{1, 2, 5} {
			if v := digit * math.Pow(10, e); v >= s.low && v <= s.high && (digit == 1 || s.high/s.low < 1000) {
				list = append(list, v)
			}
		}
	}
	return list
}
