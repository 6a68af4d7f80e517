// Package ports has ranges of ports, out of which those that listen take theirs.
package ports

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"syscall"
)

// A Range is the ports from First to Last. The zero value stands for any port that is free.
type Range struct{ First, Last int }

// Parse reads a range, as 40000-40100 or 40000:40100; "": any port.
func Parse(text string) (Range, error) {
	if text == "" {
		return Range{}, nil
	}
	first, last, ok := strings.Cut(strings.Replace(text, ":", "-", 1), "-")
	var r Range
	var err, bad error
	r.First, err = strconv.Atoi(first)
	r.Last, bad = strconv.Atoi(last)
	if !ok || err != nil || bad != nil || r.First < 1 || r.Last > 65535 || r.First > r.Last {
		return Range{}, fmt.Errorf("found the ports %q, expected FIRST-LAST with 1 <= FIRST <= LAST <= 65535, as 40000-40100", text)
	}
	return r, nil
}

// Len is how many ports it has; 0: any.
func (r Range) Len() int {
	if r.First == 0 {
		return 0
	}
	return r.Last - r.First + 1
}

func (r Range) String() string {
	if r.First == 0 {
		return ""
	}
	return fmt.Sprintf("%d-%d", r.First, r.Last)
}

// Bind has bind take one of the ports, 0 for any. It tries those that are in use no more than once, from one that is chosen by
// chance, so that processes that start together seldom meet.
func (r Range) Bind(bind func(port int) error) error {
	n := r.Len()
	if n == 0 {
		return bind(0)
	}
	first := rand.IntN(n)
	for i := range n {
		if err := bind(r.First + (first+i)%n); err == nil || !inUse(err) {
			return err
		}
	}
	return fmt.Errorf("all %d ports of %v are in use; a host needs one for each rank and three for gorun: give more, as --tcp-ports %d-%d", n, r, r.First, min(r.First+max(2*n, 100), 65535))
}

// inUse tells whether an error is that a port is in use. memberlist wraps none.
func inUse(err error) bool {
	return errors.Is(err, syscall.EADDRINUSE) || strings.Contains(err.Error(), "address already in use")
}
