package rank_test

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/gorun-mpi/gorun/rank"
)

// A place is where a rank stands in one of the suite's communicators: ids tell the
// values of ranks apart.
type place struct {
	*rank.Comm
	kind string
	id   int
	own  []int // ids of the own group
	far  []int // of those that messages name
	out  []edge
	in   []edge // nil without neighbours
}

// An edge is a block that goes from one neighbour to another: its sender's id, and
// its place among the sender's; none at an open border.
type edge struct {
	from, block int
	none        bool
}

func (p *place) name() string {
	return fmt.Sprintf("%s of %d", p.kind, p.Size())
}

func offsets(base, n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = base + i
	}
	return list
}

func intra(kind string, c *rank.Comm) *place {
	ids := offsets(0, c.Size())
	return &place{Comm: c, kind: kind, id: c.Rank(), own: ids, far: ids}
}

// kinds are the kinds of communicators.
var kinds = []string{"world", "self", "dup", "split", "created", "intercomm", "grid", "graph"}

// places makes a communicator of each kind; the rank is in none of some.
func places(ctx context.Context, c *rank.Comm, rnd *rand.Rand) ([]*place, error) {
	n, me := c.Size(), c.Rank()
	all := []*place{intra("world", c), intra("self", c.World().Self())}
	add := func(kind string, d *rank.Comm, err error) error {
		if err == nil && d != nil {
			all = append(all, intra(kind, d))
		}
		return err
	}
	d, err := c.Dup(ctx)
	if err := add("dup", d, err); err != nil {
		return nil, err
	}
	d, err = c.Split(ctx, me%3%2, -me) // ragged, backwards
	if err := add("split", d, err); err != nil {
		return nil, err
	}
	group, err := c.Group().Incl(rnd.Perm(n)[:max(1, n-1)])
	if err != nil {
		return nil, err
	}
	d, err = c.Create(ctx, group)
	if err := add("created", d, err); err != nil {
		return nil, err
	}
	if n > 1 {
		p, err := between(ctx, c, 1+rnd.IntN(n-1))
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	if p, err := grid(ctx, c, rnd); err != nil {
		return nil, err
	} else if p != nil {
		all = append(all, p)
	}
	p, err := graph(ctx, c, rnd)
	if err != nil {
		return nil, err
	}
	return append(all, p), nil
}

// between is an intercommunicator of the first k ranks and the others.
func between(ctx context.Context, c *rank.Comm, k int) (*place, error) {
	n, side, leader := c.Size(), 0, k
	if c.Rank() >= k {
		side, leader = 1, 0
	}
	half, err := c.Split(ctx, side, 0)
	if err != nil {
		return nil, err
	}
	d, err := rank.CreateIntercomm(ctx, half, 0, c, leader, 5)
	if err != nil {
		return nil, err
	}
	p := &place{Comm: d, kind: "intercomm", id: c.Rank(), own: offsets(0, k), far: offsets(k, n-k)}
	if side == 1 {
		p.own, p.far = p.far, p.own
	}
	return p, nil
}

// grid is a cartesian communicator, some of whose dimensions are periods.
func grid(ctx context.Context, c *rank.Comm, rnd *rand.Rand) (*place, error) {
	dims := make([]int, 1+rnd.IntN(3))
	if err := rank.DimsCreate(c.Size(), dims); err != nil {
		return nil, err
	}
	periods := make([]bool, len(dims))
	for i := range periods {
		periods[i] = rnd.IntN(2) == 0
	}
	d, err := c.CartCreate(ctx, dims, periods, false)
	if err != nil || d == nil {
		return nil, err
	}
	p := intra("grid", d)
	p.in, p.out = []edge{}, []edge{}
	for dim := range dims {
		below, above, err := d.CartShift(dim, 1)
		if err != nil {
			return nil, err
		}
		for side, who := range []int{below, above} {
			// What comes from below was sent upwards.
			p.in = append(p.in, edge{from: who, block: 2*dim + 1 - side, none: who == rank.ProcNull})
			p.out = append(p.out, edge{from: p.id, block: 2*dim + side, none: who == rank.ProcNull})
		}
	}
	return p, nil
}

// graph is a communicator with random edges, some twice, some to oneself.
func graph(ctx context.Context, c *rank.Comm, rnd *rand.Rand) (*place, error) {
	n, me := c.Size(), c.Rank()
	sources, destinations := []int{}, []int{}
	in, out := []edge{}, []edge{}
	blocks := make([]int, n)
	for range 1 + rnd.IntN(3*n) {
		from, to := rnd.IntN(n), rnd.IntN(n)
		if from == me {
			destinations = append(destinations, to)
			out = append(out, edge{from: me, block: blocks[from]})
		}
		if to == me {
			sources = append(sources, from)
			in = append(in, edge{from: from, block: blocks[from]})
		}
		blocks[from]++
	}
	d, err := c.DistGraphCreateAdjacent(ctx, sources, nil, destinations, nil, false)
	if err != nil {
		return nil, err
	}
	p := intra("graph", d)
	p.in, p.out = in, out
	return p, nil
}
