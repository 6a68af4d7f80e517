package topo

import (
	"fmt"
	"math/bits"
	"strconv"
	"strings"
)

// MaxCPU is above any CPU number: Linux is built for 8192 at most.
const MaxCPU = 1 << 16

// Set is a set of CPUs by the kernel's numbers, 64 in each word. The zero value
// is empty. Words at the end may be zero.
type Set []uint64

// SetOf is the set of these numbers.
func SetOf(cpus ...int) Set {
	var s Set
	for _, c := range cpus {
		s.Add(c)
	}
	return s
}

// Add puts a number of 0 or more in.
func (s *Set) Add(cpu int) {
	for len(*s) <= cpu/64 {
		*s = append(*s, 0)
	}
	(*s)[cpu/64] |= 1 << (cpu % 64)
}

// Has tells whether a number is in the set.
func (s Set) Has(cpu int) bool { return cpu >= 0 && cpu/64 < len(s) && s[cpu/64]>>(cpu%64)&1 != 0 }

// Len is how many numbers are in the set.
func (s Set) Len() int {
	n := 0
	for _, w := range s {
		n += bits.OnesCount64(w)
	}
	return n
}

// First is the lowest number, -1 of an empty set.
func (s Set) First() int {
	for i, w := range s {
		if w != 0 {
			return i*64 + bits.TrailingZeros64(w)
		}
	}
	return -1
}

// And is what both sets have.
func (s Set) And(t Set) Set {
	u := make(Set, min(len(s), len(t)))
	for i := range u {
		u[i] = s[i] & t[i]
	}
	return u
}

// Or is what either set has.
func (s Set) Or(t Set) Set {
	u := make(Set, max(len(s), len(t)))
	copy(u, s)
	for i, w := range t {
		u[i] |= w
	}
	return u
}

// Contains tells whether all of t is in s.
func (s Set) Contains(t Set) bool { return s.And(t).Len() == t.Len() }

// List is the numbers in ascending order.
func (s Set) List() []int {
	var list []int
	for i, w := range s {
		for ; w != 0; w &= w - 1 {
			list = append(list, i*64+bits.TrailingZeros64(w))
		}
	}
	return list
}

// String is the set in the kernel's words: "0-3,8".
func (s Set) String() string {
	var b strings.Builder
	list := s.List()
	for i := 0; i < len(list); {
		k := i
		for k+1 < len(list) && list[k+1] == list[k]+1 {
			k++
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(list[i]))
		if k > i {
			b.WriteString("-" + strconv.Itoa(list[k]))
		}
		i = k + 1
	}
	return b.String()
}

// ParseSet reads the kernel's words, "0-3,8" or nothing.
func ParseSet(text string) (Set, error) {
	var s Set
	text = strings.TrimSpace(text)
	if text == "" {
		return s, nil
	}
	for item := range strings.SplitSeq(text, ",") {
		low, high, isRange := strings.Cut(item, "-")
		a, err := strconv.Atoi(low)
		b := a
		if err == nil && isRange {
			b, err = strconv.Atoi(high)
		}
		if err != nil || a < 0 || b < a || b >= MaxCPU {
			return nil, fmt.Errorf("%q in %q: want CPU numbers and ranges, as 0-3,8", item, text)
		}
		for ; a <= b; a++ {
			s.Add(a)
		}
	}
	return s, nil
}
