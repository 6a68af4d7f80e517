package rank

import (
	"slices"
	"testing"

	"github.com/gorun-mpi/gorun/rank/internal/topology"
)

// Blocks sent in the order of destinations and received in that of arrival, each
// the earliest of its source, come to the places where a shift by one would have
// brought them, also where a rank is a neighbour twice, or its own.
func TestNeighboursOfGrids(t *testing.T) {
	for _, dims := range [][]int{{1}, {2}, {3}, {1, 1}, {2, 1}, {2, 2}, {2, 3}, {3, 2, 1}, {4, 4}, {}} {
		for mask := range 1 << len(dims) {
			periods := make([]bool, len(dims))
			for i := range periods {
				periods[i] = mask>>i&1 != 0
			}
			grid, n, err := topology.New(dims, periods)
			if err != nil {
				t.Fatal(err)
			}
			type block struct{ from, place int }
			underway := make(map[[2]int][]block) // by source and destination
			at := make([]*neighbourhood, n)
			for r := range n {
				c := &Comm{rank: r, size: n}
				c.setGrid(grid)
				if at[r], err = c.neighbours(); err != nil {
					t.Fatal(err)
				}
				for place, to := range at[r].destinations {
					if to != ProcNull {
						underway[[2]int{r, to}] = append(underway[[2]int{r, to}], block{r, place})
					}
				}
			}
			for r := range n {
				if sorted := slices.Sorted(slices.Values(at[r].arrival)); !slices.Equal(sorted, upTo(2*len(dims))) {
					t.Fatalf("%v, %v: rank %d receives in the order %v", dims, periods, r, at[r].arrival)
				}
				for _, place := range at[r].arrival {
					dim, steps := place/2, 1 // what comes from below was sent upwards
					if place%2 == 1 {
						steps = -1
					}
					from, _ := grid.Shift(r, dim, steps)
					if from != at[r].sources[place] {
						t.Fatalf("%v, %v: source %d of rank %d is %d, want %d", dims, periods, place, r, at[r].sources[place], from)
					}
					if from == ProcNull {
						continue
					}
					line := underway[[2]int{from, r}]
					if len(line) == 0 || line[0] != (block{from, place ^ 1}) {
						t.Fatalf("%v, %v: rank %d takes %v of %d at place %d, want its block %d", dims, periods, r, line, from, place, place^1)
					}
					underway[[2]int{from, r}] = line[1:]
				}
			}
			for who, line := range underway {
				if len(line) > 0 {
					t.Fatalf("%v, %v: nobody takes %v of %v", dims, periods, line, who)
				}
			}
		}
	}
}
