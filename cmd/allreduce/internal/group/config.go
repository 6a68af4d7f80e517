package group

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gorun-mpi/gorun/internal/kernel"
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
	bytes int
}

var elements = []element{{"byte", kernel.Uint8, 1}, {"int", kernel.Int32, 4}, {"float", kernel.Float32, 4}, {"double", kernel.Float64, 8}}

type operation struct {
	name string
	op   kernel.Op
}

var operations = []operation{{"sum", kernel.Sum}, {"prod", kernel.Prod}, {"min", kernel.Min}, {"max", kernel.Max}}

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

// Reduction is the arithmetic.
func (c *Config) Reduction() kernel.Reduction {
	i := slices.IndexFunc(operations, func(o operation) bool { return o.name == c.Operation })
	r, ok := kernel.For(c.element().of, operations[i].op)
	if !ok {
		panic("group: no reduction for " + c.String()) // Types and Operations all go together
	}
	return r
}

// String is the configuration as messages show it.
func (c *Config) String() string {
	return fmt.Sprintf("size %d, type %s, %d batches, batch size %d, operation %s, algorithm %s", c.Size, c.Type, c.Batches, c.Batch, c.Operation, c.Algorithm)
}

// The operations of a run, by number:
//
//	0              barrier
//	1 ...          NetworkBatches batches
//	               barrier
//	...            Batches batches
//	last           barrier, with the digests of the results
func (c *Config) middle() uint64 { return uint64(NetworkBatches*c.Batch) + 1 }
func (c *Config) last() uint64   { return c.middle() + uint64(c.Batches)*uint64(c.Batch) + 1 }

func (c *Config) barrier(op uint64) bool { return op == 0 || op == c.middle() || op == c.last() }
