package main

import (
	"fmt"

	"github.com/gorun-mpi/gorun/rank"
)

// byteOf is byte i of what rank from has for rank to.
func byteOf(from, to, i int) byte { return byte(from*131 + to*29 + i*7 + i>>8 + 1) }

// elementOf is element i of rank from in a reduction, in elements of so many
// bytes. Sums of small elements fit into a byte: some MPIs saturate there.
func elementOf(elem, from, i int) int {
	modulus := 101
	if elem == 1 {
		modulus = 2
	}
	return (i*7+from*13)%modulus + 1
}

// fillBlock writes what rank from has for rank to.
func fillBlock(mem []byte, from, to int) {
	for i := range mem {
		mem[i] = byteOf(from, to, i)
	}
}

// wrongByte names the first byte that rank from did not send to rank to; "" when all are right.
func wrongByte(mem []byte, from, to int) string {
	for i, got := range mem {
		if want := byteOf(from, to, i); got != want {
			return fmt.Sprintf("byte %d from rank %d, %d instead of %d,", i, from, got, want)
		}
	}
	return ""
}

// fillElements writes the vector of rank from.
func fillElements[T rank.Number](mem []T, elem, from int) {
	for i := range mem {
		mem[i] = T(elementOf(elem, from, i))
	}
}

// wrongElement names the first element that is not the sum over the ranks
// first..last-1 of their elements base+i; "" when all are right.
func wrongElement[T rank.Number](mem []T, elem, base, first, last int) string {
	for i, got := range mem {
		want := 0
		for r := first; r < last; r++ {
			want += elementOf(elem, r, base+i)
		}
		if got != T(want) {
			return fmt.Sprintf("element %d, %v instead of %v,", i, got, T(want))
		}
	}
	return ""
}
