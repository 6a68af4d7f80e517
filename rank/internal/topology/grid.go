package topology

import (
	"fmt"
	"math"
)

// Null is a neighbour that does not exist, beyond an open border.
const Null = -2

// A Grid numbers the points of a grid by rows: the last coordinate changes
// fastest. It is not changed after New.
type Grid struct {
	Dims    []int
	Periods []bool // by dimension: the last point's neighbour is the first
}

// New checks a grid and counts its points. Without dimensions it has one.
func New(dims []int, periods []bool) (g Grid, points int, err error) {
	if len(periods) != len(dims) {
		return g, 0, fmt.Errorf("%d dimensions and %d periods: expected as many of each", len(dims), len(periods))
	}
	points = 1
	for i, d := range dims {
		if d < 1 {
			return g, 0, fmt.Errorf("dimension %d is %d", i, d)
		}
		if d > math.MaxInt32/points {
			return g, 0, fmt.Errorf("a grid of %v is too large", dims)
		}
		points *= d
	}
	return Grid{dims, periods}, points, nil
}

// Coords writes the coordinates of a point into into.
func (g *Grid) Coords(point int, into []int) {
	for i := len(g.Dims) - 1; i >= 0; i-- {
		into[i] = point % g.Dims[i]
		point /= g.Dims[i]
	}
}

// Point is the number of the point at coords. In a periodic dimension any
// coordinate will do.
func (g *Grid) Point(coords []int) (int, error) {
	if len(coords) != len(g.Dims) {
		return 0, fmt.Errorf("%d coordinates for a grid of %d dimensions", len(coords), len(g.Dims))
	}
	point := 0
	for i, at := range coords {
		d := g.Dims[i]
		if at < 0 || at >= d {
			if !g.Periods[i] {
				return 0, fmt.Errorf("coordinate %d is %d, outside of 0 to %d", i, at, d-1)
			}
			at = ((at % d) + d) % d
		}
		point = point*d + at
	}
	return point, nil
}

// Shift gives the points so many steps away in one dimension: from where a shift
// comes to point, and where it goes. Null is beyond an open border.
func (g *Grid) Shift(point, dim, steps int) (from, to int) {
	below := 1 // points from one to the next in this dimension
	for _, d := range g.Dims[dim+1:] {
		below *= d
	}
	d := g.Dims[dim]
	at := point / below % d
	move := func(by int) int {
		if g.Periods[dim] {
			return point + ((at+by+d)%d-at)*below
		}
		// Compared this way round nothing overflows.
		if by < -at || by >= d-at {
			return Null
		}
		return point + by*below
	}
	if g.Periods[dim] {
		steps %= d
	}
	return move(max(-steps, -math.MaxInt)), move(steps)
}

// Sub is the grid of the dimensions that are kept, and where a point is: in which
// of the grids, and as which point of it.
func (g *Grid) Sub(keep []bool, point int) (sub Grid, which, index int) {
	coords := make([]int, len(g.Dims))
	g.Coords(point, coords)
	for i, d := range g.Dims {
		if keep[i] {
			sub.Dims, sub.Periods = append(sub.Dims, d), append(sub.Periods, g.Periods[i])
			index = index*d + coords[i]
		} else {
			which = which*d + coords[i]
		}
	}
	return sub, which, index
}
