package main

import (
	"bytes"
	"fmt"
	"html"
	"image/color"
	"math"
	"regexp"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// The plots are drawn by gonum's plot, as SVG. The page gives them their colours,
// since these depend on whether it is read in light or dark: what is drawn here
// in one of these colours becomes a CSS variable.
var inks = []struct {
	ink      color.RGBA
	variable string
}{
	{color.RGBA{1, 1, 1, 255}, "--fg"},
	{color.RGBA{2, 2, 2, 255}, "--grid"},
	{color.RGBA{11, 1, 1, 255}, "--s-registered"},
	{color.RGBA{12, 1, 1, 255}, "--s-ordinary"},
	{color.RGBA{13, 1, 1, 255}, "--s-mpich"},
	{color.RGBA{14, 1, 1, 255}, "--s-openmpi"},
}

func ink(variable string) color.Color {
	for _, i := range inks {
		if i.variable == variable {
			return i.ink
		}
	}
	panic("no ink for " + variable)
}

// A style tells a series from the others by more than its colour.
type style struct {
	name     string // in the legend
	variable string
	dashes   []vg.Length
	glyph    draw.GlyphDrawer
	mark     string // the glyph, around (0,0), as an SVG path for the legend
}

// styles are the series there are, in the order of the legend.
var styles = []style{
	{"gorun, registered memory", "--s-registered", nil, draw.CircleGlyph{}, "M-4,0a4,4 0 1,0 8,0a4,4 0 1,0 -8,0z"},
	{"gorun, ordinary memory", "--s-ordinary", []vg.Length{6, 2}, draw.BoxGlyph{}, "M-3.5,-3.5h7v7h-7z"},
	{"MPICH", "--s-mpich", []vg.Length{2, 2}, draw.PyramidGlyph{}, "M-4,3.5L4,3.5L0,-4z"},
	{"Open MPI", "--s-openmpi", []vg.Length{6, 2, 2, 2}, diamond{}, "M-4.5,0L0,-4.5L4.5,0L0,4.5z"},
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

// diamond is the glyph that the library lacks.
type diamond struct{}

func (diamond) DrawGlyph(c *draw.Canvas, s draw.GlyphStyle, p vg.Point) {
	r := s.Radius * 1.2
	var path vg.Path
	path.Move(vg.Point{X: p.X - r, Y: p.Y})
	path.Line(vg.Point{X: p.X, Y: p.Y + r})
	path.Line(vg.Point{X: p.X + r, Y: p.Y})
	path.Line(vg.Point{X: p.X, Y: p.Y - r})
	path.Close()
	c.SetColor(s.Color)
	c.Fill(path)
}

const fontSize = 11

// newPlot is an empty plot in the page's inks.
func newPlot() *plot.Plot {
	p := plot.New()
	p.BackgroundColor = color.Transparent
	fg := ink("--fg")
	sans := font.Font{Variant: "Sans", Size: fontSize}
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.Color, axis.Tick.Color = fg, fg
		for _, t := range []*text.Style{&axis.Label.TextStyle, &axis.Tick.Label} {
			t.Color, t.Font = fg, sans
		}
		axis.Label.Padding = 4
		axis.Padding = 6
	}
	return p
}

// render is the SVG of a plot, with what it shows in words for who cannot see it.
func render(p *plot.Plot, width, height vg.Length, title string) (string, error) {
	c := vgsvg.New(width, height)
	p.Draw(draw.New(c))
	var b bytes.Buffer
	if _, err := c.WriteTo(&b); err != nil {
		return "", err
	}
	_, svg, ok := strings.Cut(b.String(), "<svg ")
	if !ok {
		return "", fmt.Errorf("plot %q: no SVG came of it", title)
	}
	svg = `<svg role="img" aria-label="` + html.EscapeString(title) + `" ` + sizes.ReplaceAllString(svg, `style="max-width:${1}pt"`)
	for _, i := range inks {
		svg = strings.ReplaceAll(svg, fmt.Sprintf("#%02X%02X%02X", i.ink.R, i.ink.G, i.ink.B), "var("+i.variable+")")
	}
	return strings.ReplaceAll(svg, "font-family:Liberation Sans;", "font-family:Liberation Sans,Arial,Helvetica,sans-serif;"), nil
}

// sizes is how large the library makes the picture; on the page it shrinks with the window.
var sizes = regexp.MustCompile(`width="([0-9.]+)pt" height="[0-9.]+pt"`)

// axisNames are the units in full.
var axisNames = map[string]string{"us": "microseconds", "MB/s": "MB/s", "M/s": "million messages/s"}

// curves plots the figures of a benchmark over the sizes, both logarithmic.
func curves(b *benchmark, np int, rows []row) (string, error) {
	p := newPlot()
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	unit := axisNames[b.unit()]
	p.X.Label.Text, p.Y.Label.Text = "bytes", unit
	p.Y.Tick.Marker = decades{}
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = ink("--grid"), ink("--grid")
	grid.Vertical.Width, grid.Horizontal.Width = 0.75, 0.75
	p.Add(grid)
	var all []int
	for i, s := range styles {
		var points plotter.XYs
		for k := range rows {
			if r := &rows[k]; styleOf(r) == i && r.Runs > 0 && r.Bytes > 0 {
				points = append(points, plotter.XY{X: float64(r.Bytes), Y: b.in(r.Median, r.Bytes)})
				all = append(all, r.Bytes)
			}
		}
		if len(points) < 2 {
			continue
		}
		line, glyphs, err := plotter.NewLinePoints(points)
		if err != nil {
			return "", err
		}
		line.Color, line.Width, line.Dashes = ink(s.variable), 1.8, s.dashes
		glyphs.Shape, glyphs.Color, glyphs.Radius = s.glyph, ink(s.variable), 3
		p.Add(line, glyphs)
	}
	slices.Sort(all)
	p.X.Tick.Marker = sizeTicks(slices.Compact(all))
	return render(p, 400, 260, fmt.Sprintf("%s on %d ranks: %s over bytes, both logarithmic; the table has the figures", b.title, np, unit))
}

// sizeTicks are the sizes that were measured, eight names at most.
type sizeTicks []int

func (s sizeTicks) Ticks(_, _ float64) []plot.Tick {
	var list []plot.Tick
	every := (len(s) + 7) / 8
	for i, n := range s {
		t := plot.Tick{Value: float64(n)}
		if i%every == 0 {
			t.Label = sizeName(n)
		}
		list = append(list, t)
	}
	return list
}

// decades are 1, 2 and 5 times the powers of ten, named where there is room.
type decades struct{}

func (decades) Ticks(low, high float64) []plot.Tick {
	var list []plot.Tick
	few := high/low < 1000
	for e := math.Floor(math.Log10(low)); math.Pow(10, e) <= high; e++ {
		for _, digit := range []float64{1, 2, 5} {
			v := digit * math.Pow(10, e)
			if v < low || v > high {
				continue
			}
			t := plot.Tick{Value: v}
			if digit == 1 || few {
				t.Label = fmt.Sprintf("%g", v)
			}
			list = append(list, t)
		}
	}
	return list
}

// widest is the end of the ratios' axis, in powers of two: what is beyond is
// drawn as long, and has its number beside it like all.
const widest = 5

// bars plots ratios as bars to the left (faster) and to the right of 1.
func bars(np int, rows []*row) (string, error) {
	p := newPlot()
	p.X.Label.Text = "time of gorun / time of the better MPI (left of 1: gorun is faster)"
	chart := &barChart{rows: rows}
	p.Add(chart)
	// The bars of both kinds of memory share a name, in their middle.
	var names []plot.Tick
	for i := 0; i < len(rows); {
		first := i
		for i++; i < len(rows) && rows[i].label() == rows[first].label(); i++ {
		}
		names = append(names, plot.Tick{Value: (chart.y(first) + chart.y(i-1)) / 2, Label: rows[first].label()})
	}
	p.Y.Tick.Marker = plot.ConstantTicks(names)
	p.Y.Tick.Length, p.Y.LineStyle.Width = 0, 0
	p.X.Tick.Marker = powers{}
	return render(p, 620, vg.Length(60+14*chart.height()), fmt.Sprintf("Ratios on %d ranks: gorun's time by the better MPI's, a bar each; the table has the figures", np))
}

// label is the place of a row among the bars.
func (r *row) label() string {
	if find(r.Benchmark).how&sizeless != 0 {
		return r.Benchmark
	}
	return r.Benchmark + " " + sizeName(r.Bytes)
}

// barChart draws a bar for each row, from the top down, with a gap where the
// name changes.
type barChart struct{ rows []*row }

// gap is between groups of bars, in bars.
const gap = 0.5

func (c *barChart) height() float64 { return c.depth(len(c.rows)-1) + 1 }

// depth is how many bars and gaps are above the i-th.
func (c *barChart) depth(i int) float64 {
	d := 0.0
	for k := 1; k <= i; k++ {
		if d++; c.rows[k].label() != c.rows[k-1].label() {
			d += gap
		}
	}
	return d
}

func (c *barChart) y(i int) float64 { return c.height() - c.depth(i) }

func (c *barChart) DataRange() (xmin, xmax, ymin, ymax float64) {
	xmin, xmax = -1, 1
	for _, r := range c.rows {
		// Room for the number beyond the end.
		xmin, xmax = min(xmin, length(r.Ratio)-0.8), max(xmax, length(r.Ratio)+0.8)
	}
	return xmin, xmax, 0.4, c.height() + 0.6
}

// length of a ratio's bar, in powers of two.
func length(ratio float64) float64 {
	return max(-widest, min(widest, math.Log2(ratio)))
}

func (c *barChart) Plot(canvas draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&canvas)
	_, _, low, high := c.DataRange()
	for v := -widest; v <= widest; v++ {
		if float64(v) >= p.X.Min && float64(v) <= p.X.Max {
			s := draw.LineStyle{Color: ink("--grid"), Width: 0.75}
			if v == 0 {
				s = draw.LineStyle{Color: ink("--fg"), Width: 1.2}
			}
			canvas.StrokeLine2(s, x(float64(v)), y(low), x(float64(v)), y(high))
		}
	}
	label := p.X.Tick.Label
	label.YAlign = text.YCenter
	for i, r := range c.rows {
		end, middle := x(length(r.Ratio)), y(c.y(i))
		canvas.FillPolygon(ink(styles[styleOf(r)].variable), []vg.Point{
			{X: x(0), Y: middle - 5}, {X: end, Y: middle - 5}, {X: end, Y: middle + 5}, {X: x(0), Y: middle + 5}})
		aim, _, aimed := r.aim()
		at := vg.Point{X: max(end, x(0)) + 3, Y: middle}
		label.XAlign = text.XLeft
		if r.Ratio < 1 && !(aimed && aim < r.Ratio) { // else the aim's stroke would cross it
			at.X, label.XAlign = end-3, text.XRight
		}
		canvas.FillText(label, at, figure(r.Ratio))
		if aimed {
			at := x(length(aim))
			canvas.StrokeLine2(draw.LineStyle{Color: ink("--fg"), Width: 1.6}, at, middle-6, at, middle+6)
		}
	}
}

// powers names the powers of two: 1/4, 1/2, 1, 2, 4.
type powers struct{}

func (powers) Ticks(low, high float64) []plot.Tick {
	var list []plot.Tick
	for v := -widest; v <= widest; v++ {
		if float64(v) < low || float64(v) > high {
			continue
		}
		label := fmt.Sprint(1 << max(v, 0))
		if v < 0 {
			label = fmt.Sprintf("1/%d", 1<<-v)
		}
		list = append(list, plot.Tick{Value: float64(v), Label: label})
	}
	return list
}
