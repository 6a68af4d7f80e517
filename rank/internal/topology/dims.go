// Package topology is the arithmetic of MPI's process topologies: grids and the
// choice of their dimensions. It knows no communicator and does no input or
// output.
package topology

import (
	"fmt"
	"math"
	"slices"
)

// Dims fills the zeros of dims so that the product of all is nodes
// (MPI_Dims_create). The dimensions that it chooses are as close to each other as
// can be, the largest first: of all ways it is the one whose largest dimension is
// the smallest, then the second largest, and so on.
func Dims(nodes int, dims []int) error {
	if nodes < 1 || nodes > math.MaxInt32 {
		return fmt.Errorf("%d nodes", nodes)
	}
	free, rest := 0, nodes
	for i, d := range dims {
		switch {
		case d < 0:
			return fmt.Errorf("dimension %d is %d", i, d)
		case d == 0:
			free++
		case rest%d != 0:
			return fmt.Errorf("%d nodes are not a multiple of the dimensions %v", nodes, dims)
		default:
			rest /= d
		}
	}
	if free == 0 {
		if rest != 1 {
			return fmt.Errorf("%d nodes do not fill the dimensions %v", nodes, dims)
		}
		return nil
	}
	chosen, _ := factors(rest, free, divisors(rest))
	for i, d := range dims {
		if d == 0 {
			dims[i], chosen = chosen[0], chosen[1:]
		}
	}
	return nil
}

// divisors are those of n, in order.
func divisors(n int) []int {
	var low, high []int
	for d := 1; d*d <= n; d++ {
		if n%d == 0 {
			low = append(low, d)
			if d*d < n {
				high = append(high, n/d)
			}
		}
	}
	slices.Reverse(high)
	return append(low, high...)
}

// factors are k numbers whose product is n, each one of those that are allowed,
// in falling order, the first as small as can be, then the second, and so on.
func factors(n, k int, allowed []int) ([]int, bool) {
	if k == 1 {
		_, ok := slices.BinarySearch(allowed, n)
		return []int{n}, ok
	}
	for i, d := range allowed {
		// The largest of k is at least the k-th root.
		if n%d != 0 || power(d, k) < n {
			continue
		}
		if rest, ok := factors(n/d, k-1, allowed[:i+1]); ok {
			return append([]int{d}, rest...), true
		}
	}
	return nil, false
}

// power is d to the k, or more than any number of nodes.
func power(d, k int) int {
	p := 1
	for range k {
		if p *= d; p > math.MaxInt32 {
			break
		}
	}
	return p
}
