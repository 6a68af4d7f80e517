package group

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gorun-mpi/gorun/coll"
	"github.com/gorun-mpi/gorun/internal/kernel"
	"github.com/gorun-mpi/gorun/rank"
)

// Config is what all members of a group must have in common.
type Config struct {
	Size      int    `msgpack:"size"`      // elements of a vector
	Type      string `msgpack:"type"`      // one of Types
	Operation string `msgpack:"operation"` // one of Operations
	Batch     int    `msgpack:"batch"`     // operations submitted together
	Batches   int    `msgpack:"batches"`
	Algorithm string `msgpack:"algorithm"` // one of Algorithms
}

// MaxVector is the greatest length of a vector in bytes.
const MaxVector = 1 << 30

// NetworkBatches is the number of batches before the measured ones, by which the time of
// the network alone is found.
const NetworkBatches = 3

type element struct {
	name  string
	of    kernel.Type
	typ   *rank.Datatype
	bytes int
}

var elements = []element{
	{"byte", kernel.Uint8, rank.TypeUint8, 1},
	{"int", kernel.Int32, rank.TypeInt32, 4},
	{"float", kernel.Float32, rank.TypeFloat32, 4},
	{"double", kernel.Float64, rank.TypeFloat64, 8},
}

type operation struct {
	name string
	of   kernel.Op
	op   rank.Op
}

var operations = []operation{{"sum", kernel.Sum, rank.Sum}, {"prod", kernel.Prod, rank.Prod}, {"min", kernel.Min, rank.Min}, {"max", kernel.Max, rank.Max}}

// The names of the algorithms.
const (
	// Auto is mesh, or recursive doubling for more than few participants, and reduce-scatter for long vectors.
	Auto = "auto"

	mesh     = "mesh"
	ring     = "ring"
	doubling = "recursive-doubling"
	scatter  = "reduce-scatter"
)

// Algorithms are their names.
func Algorithms() []string { return []string{Auto, mesh, ring, doubling, scatter} }

// algorithms are what package coll calls them.
var algorithms = map[string]coll.Algorithm{mesh: coll.Direct, ring: coll.Ring, doubling: coll.RecursiveDoubling, scatter: coll.ReduceScatterGather}

// few is up to how many participants have short vectors go straight from each to all, and short up to
// how many bytes a vector costs less than a message.
const (
	few   = 4
	short = 16 << 10
)

// choose settles Auto for n participants.
func (c *Config) choose(n int) string {
	switch {
	case c.Algorithm != Auto:
		return c.Algorithm
	case c.Bytes() > short:
		return scatter
	case n <= few:
		return mesh
	}
	return doubling
}

// table has package rank choose as choose does.
func (c *Config) table() (*coll.Table, error) {
	t := coll.DefaultTable()
	if c.Algorithm != Auto {
		return t, t.Always(coll.AllReduce, algorithms[c.Algorithm])
	}
	if err := t.Always(coll.AllReduce, algorithms[c.choose(1)]); err != nil {
		return nil, err
	}
	return t, t.Set(coll.AllReduce, few+1, coll.Rule{Algorithm: algorithms[c.choose(few+1)]})
}

// Types are the names of element types.
func Types() []string {
	var names []string
	for _, e := range elements {
		names = append(names, e.name)
	}
	return names
}

// Operations are the names of reductions.
func Operations() []string {
	var names []string
	for _, o := range operations {
		names = append(names, o.name)
	}
	return names
}

// Validate judges the configuration.
func (c *Config) Validate() error {
	switch {
	case !slices.Contains(Types(), c.Type):
		return fmt.Errorf("found the type %q, expected one of %s", c.Type, strings.Join(Types(), ", "))
	case !slices.Contains(Operations(), c.Operation):
		return fmt.Errorf("found the operation %q, expected one of %s", c.Operation, strings.Join(Operations(), ", "))
	case !slices.Contains(Algorithms(), c.Algorithm):
		return fmt.Errorf("found the algorithm %q, expected one of %s", c.Algorithm, strings.Join(Algorithms(), ", "))
	case c.Size < 1 || c.Size > MaxVector/c.element().bytes:
		return fmt.Errorf("found a size of %d, expected 1 to %d elements", c.Size, MaxVector/c.element().bytes)
	case c.Batch < 1 || c.Batches < 1 || c.Batch > 1<<24 || c.Batches > 1<<24:
		return fmt.Errorf("found %d batches of %d operations, expected 1 to %d of each", c.Batches, c.Batch, 1<<24)
	}
	return nil
}

func (c *Config) element() element {
	return elements[slices.IndexFunc(elements, func(e element) bool { return e.name == c.Type })]
}

// Bytes is the length of a vector in bytes.
func (c *Config) Bytes() int { return c.Size * c.element().bytes }

func (c *Config) operation() operation {
	return operations[slices.IndexFunc(operations, func(o operation) bool { return o.name == c.Operation })]
}

// Reduction is the arithmetic.
func (c *Config) Reduction() kernel.Reduction {
	r, ok := kernel.For(c.element().of, c.operation().of)
	if !ok {
		panic("group: no reduction for " + c.String()) // Types and Operations all go together
	}
	return r
}

// String is the configuration as messages show it.
func (c *Config) String() string {
	return fmt.Sprintf("size %d, type %s, %d batches, batch size %d, operation %s, algorithm %s", c.Size, c.Type, c.Batches, c.Batch, c.Operation, c.Algorithm)
}
