package rank_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rank"
	"github.com/gorun-mpi/gorun/rank/ranktest"
)

func TestCart(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Each(t, groupSizes(), func(ctx context.Context, c *rank.Comm) error {
		for n, periods := range [][]bool{{true, false}, {false, true, true}, {true}, {}} {
			dims := make([]int, len(periods))
			points := max(1, c.Size()-n) // so that there are some left over
			if len(dims) == 0 {
				points = 1
			}
			if err := rank.DimsCreate(points, dims); err != nil {
				return err
			}
			g, err := c.CartCreate(ctx, dims, periods, true)
			if err != nil {
				return err
			}
			if (g == nil) != (c.Rank() >= points) {
				return fmt.Errorf("a grid of %v is %v on rank %d", dims, g, c.Rank())
			}
			if g == nil {
				continue
			}
			if err := onGrid(ctx, g, dims, periods); err != nil {
				return fmt.Errorf("grid of %v, periods %v: %w", dims, periods, err)
			}
			d, err := g.Dup(ctx)
			if err != nil {
				return err
			}
			if err := onGrid(ctx, d, dims, periods); err != nil {
				return fmt.Errorf("dup of a grid of %v, periods %v: %w", dims, periods, err)
			}
		}
		return nil
	})
}

func onGrid(ctx context.Context, g *rank.Comm, dims []int, periods []bool) error {
	gotDims, gotPeriods, coords, err := g.CartGet()
	if err != nil {
		return err
	}
	if g.Topology() != rank.Cartesian || !slices.Equal(gotDims, dims) || !slices.Equal(gotPeriods, periods) {
		return fmt.Errorf("topology %d: %v, %v", g.Topology(), gotDims, gotPeriods)
	}
	for r := range g.Size() {
		at, err := g.CartCoords(r)
		if err != nil {
			return err
		}
		if back, err := g.CartRank(at); err != nil || back != r || r == g.Rank() && !slices.Equal(at, coords) {
			return fmt.Errorf("rank %d is at %v, where rank %d is (%v)", r, at, back, err)
		}
	}
	for dim := range dims {
		// Everybody passes its rank on; what comes is who should have sent it.
		source, dest, err := g.CartShift(dim, 1)
		if err != nil {
			return err
		}
		if dest != rank.ProcNull {
			if err := rank.Send(ctx, g, []int{g.Rank()}, dest, dim); err != nil {
				return err
			}
		}
		at := slices.Clone(coords)
		at[dim]--
		if want, err := g.CartRank(at); source == rank.ProcNull != (err != nil) || err == nil && want != source {
			return fmt.Errorf("the source in dimension %d of %v is %d, want %d", dim, coords, source, want)
		}
		if source != rank.ProcNull {
			got := []int{-1}
			if _, err := rank.Recv(ctx, g, got, source, dim); err != nil || got[0] != source {
				return fmt.Errorf("got %d, %v from %d", got[0], err, source)
			}
		}
		// The line in this dimension, and what is left without it.
		for _, along := range []bool{true, false} {
			keep := make([]bool, len(dims))
			for i := range keep {
				keep[i] = (i == dim) == along
			}
			s, err := g.CartSub(ctx, keep)
			if err != nil {
				return err
			}
			all := make([]int, s.Size())
			if err := rank.Allgather(ctx, s, []int{g.Rank()}, all); err != nil {
				return err
			}
			for i, r := range all {
				theirs, err := g.CartCoords(r)
				if err != nil {
					return err
				}
				place, err := s.CartCoords(i)
				if err != nil {
					return err
				}
				var want []int
				for j := range theirs {
					if keep[j] {
						want = append(want, theirs[j])
					} else if theirs[j] != coords[j] {
						return fmt.Errorf("%v keeping %v has a rank at %v", coords, keep, theirs)
					}
				}
				if !slices.Equal(place, want) {
					return fmt.Errorf("%v keeping %v: the rank at %v is at %v, want %v", coords, keep, theirs, place, want)
				}
			}
			if err := s.Free(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

func TestTopologyArguments(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Run(t, 4, func(ctx context.Context, c *rank.Comm) error {
		g, err := c.CartCreate(ctx, []int{2, 2}, []bool{true, false}, false)
		if err != nil {
			return err
		}
		mine := c.Rank()
		for _, tt := range []struct {
			name  string
			call  func() error
			class rank.Class
		}{
			{"dims", func() error { return rank.DimsCreate(7, []int{2, 0}) }, rank.ClassDims},
			{"too large", func() error { _, err := c.CartCreate(ctx, []int{5}, []bool{true}, false); return err }, rank.ClassDims},
			{"negative", func() error { _, err := c.CartCreate(ctx, []int{-4}, []bool{true}, false); return err }, rank.ClassDims},
			{"no period", func() error { _, err := c.CartCreate(ctx, []int{4}, nil, false); return err }, rank.ClassDims},
			{"different", func() error { _, err := c.CartCreate(ctx, []int{1 + mine%2, 2}, []bool{true, true}, false); return err }, rank.ClassArg},
			{"no grid", func() error { _, _, _, err := c.CartGet(); return err }, rank.ClassTopology},
			{"no graph", func() error { _, _, err := g.GraphGet(); return err }, rank.ClassTopology},
			{"no dist graph", func() error { _, _, _, _, err := g.DistGraphNeighbors(); return err }, rank.ClassTopology},
			{"nil", func() error { _, err := (*rank.Comm)(nil).CartRank(nil); return err }, rank.ClassComm},
			{"coords", func() error { _, err := g.CartRank([]int{0, 2}); return err }, rank.ClassArg},
			{"coords of", func() error { _, err := g.CartCoords(4); return err }, rank.ClassRank},
			{"dimension", func() error { _, _, err := g.CartShift(2, 1); return err }, rank.ClassDims},
			{"sub", func() error { _, err := g.CartSub(ctx, []bool{true}); return err }, rank.ClassDims},
			{"index", func() error { _, err := c.GraphCreate(ctx, []int{1, 0}, []int{1}, false); return err }, rank.ClassArg},
			{"edges", func() error { _, err := c.GraphCreate(ctx, []int{1, 2}, []int{1, 2}, false); return err }, rank.ClassRank},
			{"source", func() error { _, err := c.DistGraphCreateAdjacent(ctx, []int{4}, nil, nil, nil, false); return err }, rank.ClassRank},
			{"weights", func() error {
				_, err := c.DistGraphCreateAdjacent(ctx, []int{mine}, []int{1}, []int{mine}, nil, false)
				return err
			}, rank.ClassArg},
			{"one-sided", func() error {
				d, err := c.DistGraphCreateAdjacent(ctx, nil, nil, []int{(mine + 1) % 4}, nil, false)
				if err != nil {
					return err
				}
				if _, _, to, _, err := d.DistGraphNeighbors(); err != nil || len(to) != 1 {
					return fmt.Errorf("%d destinations, want 1: %w", len(to), err)
				}
				return rank.NeighborAllgather(ctx, d, []int{mine}, nil)
			}, rank.ClassTopology},
			{"degrees", func() error { _, err := c.DistGraphCreate(ctx, []int{0}, []int{2}, []int{1}, nil, false); return err }, rank.ClassArg},
		} {
			if err := tt.call(); !errors.Is(err, tt.class) {
				return fmt.Errorf("%s: %v is %v, want %v", tt.name, err, rank.ClassOf(err), tt.class)
			}
		}
		return rank.Barrier(ctx, g)
	})
}

func TestGraph(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Each(t, []int{1, 3, 8}, func(ctx context.Context, c *rank.Comm) error {
		// A star of all ranks but the last, if there are more than one.
		n := max(1, c.Size()-1)
		var index, edges []int
		for r := range n {
			if r > 0 {
				edges = append(edges, 0)
			} else {
				for other := 1; other < n; other++ {
					edges = append(edges, other)
				}
			}
			index = append(index, len(edges))
		}
		g, err := c.GraphCreate(ctx, index, edges, false)
		if err != nil {
			return err
		}
		if c.Rank() >= n {
			if g != nil {
				return fmt.Errorf("rank %d is in a graph of %d", c.Rank(), n)
			}
			return nil
		}
		gotIndex, gotEdges, err := g.GraphGet()
		if err != nil || g.Topology() != rank.Graph || !slices.Equal(gotIndex, index) || !slices.Equal(gotEdges, edges) {
			return fmt.Errorf("the graph is %v, %v (%v)", gotIndex, gotEdges, err)
		}
		got, err := g.GraphNeighbors(n - 1)
		want := []int{0}
		if n == 1 {
			want = nil
		}
		if err != nil || !slices.Equal(got, want) {
			return fmt.Errorf("neighbours of rank %d: %v, %v; want %v", n-1, got, err, want)
		}
		return roll(ctx, g)
	})
}

// Random edges, doubles and loops too, given by ranks that they do not concern,
// come out at their ends; and the same graph can be made of them from there.
func TestDistGraph(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Each(t, groupSizes(), func(ctx context.Context, c *rank.Comm) error {
		for seed := range uint64(4) {
			rnd := rand.New(rand.NewPCG(seed, 5)) // the same on all ranks
			n := c.Size()
			var sources, degrees, destinations, weights []int // what this rank gives
			var in, out, inWeights, outWeights []int          // what concerns it
			for giver := range n {
				for range rnd.IntN(3) {
					from, degree := rnd.IntN(n), rnd.IntN(4)
					if giver == c.Rank() {
						sources, degrees = append(sources, from), append(degrees, degree)
					}
					for range degree {
						to, weight := rnd.IntN(n), rnd.IntN(100)
						if giver == c.Rank() {
							destinations, weights = append(destinations, to), append(weights, weight)
						}
						if from == c.Rank() {
							out, outWeights = append(out, to), append(outWeights, weight)
						}
						if to == c.Rank() {
							in, inWeights = append(in, from), append(inWeights, weight)
						}
					}
				}
			}
			g, err := c.DistGraphCreate(ctx, sources, degrees, destinations, weights, false)
			if err != nil {
				return err
			}
			check := func(g *rank.Comm) error {
				s, sw, d, dw, err := g.DistGraphNeighbors()
				if err != nil || g.Topology() != rank.DistGraph || !slices.Equal(s, in) || !slices.Equal(sw, inWeights) || !slices.Equal(d, out) || !slices.Equal(dw, outWeights) {
					return fmt.Errorf("seed %d: neighbours %v %v, %v %v (%v); want %v %v, %v %v", seed, s, sw, d, dw, err, in, inWeights, out, outWeights)
				}
				return nil
			}
			if err := check(g); err != nil {
				return err
			}
			h, err := c.DistGraphCreateAdjacent(ctx, in, inWeights, out, outWeights, false)
			if err != nil {
				return err
			}
			if err := check(h); err != nil {
				return err
			}
			u, err := c.DistGraphCreate(ctx, sources, degrees, destinations, nil, false)
			if err != nil {
				return err
			}
			if _, sw, _, dw, err := u.DistGraphNeighbors(); err != nil || sw != nil || dw != nil {
				return fmt.Errorf("weights %v, %v of a graph without (%v)", sw, dw, err)
			}
			for _, x := range []*rank.Comm{g, h, u} {
				if err := x.Free(ctx); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// The maps say what the creation of the same topology does, and ask nobody.
func TestMaps(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Each(t, []int{1, 5}, func(ctx context.Context, c *rank.Comm) error {
		n := c.Size()/2 + 1
		want := rank.Undefined
		d, err := c.CartCreate(ctx, []int{n}, []bool{true}, true)
		if err != nil {
			return err
		}
		if d != nil {
			want = d.Rank()
		}
		cart, err := c.CartMap([]int{n}, []bool{true})
		graph, err2 := c.GraphMap(make([]int, n), nil)
		if err := errors.Join(err, err2); err != nil || cart != want || graph != want {
			return fmt.Errorf("rank %d in the grid and %d in the graph, %w, want %d", cart, graph, err, want)
		}
		if c.Rank() == 0 {
			_, err = c.CartMap([]int{2, 3}, []bool{true})
			_, err2 = c.CartMap([]int{c.Size() + 1}, []bool{true})
			_, err3 := c.GraphMap([]int{1}, []int{5})
			if !errors.Is(err, rank.ClassDims) || !errors.Is(err2, rank.ClassDims) || !errors.Is(err3, rank.ErrArgument) {
				return fmt.Errorf("wrong arguments: %v, %v, %v", err, err2, err3)
			}
		}
		return nil
	})
}
