// Command taskfarm counts primes. Rank 0 has the tasks, ranges of numbers, and the
// other ranks work on them: one that is done first gets the next.
package main

import (
	"context"
	"fmt"

	"github.com/gorun-mpi/gorun/rank"
)

// A Span is a task: the numbers from First up to, not with, End.
type Span struct{ First, End int }

// A Found is its result.
type Found struct {
	Primes int
	Rank   int
}

func main() {
	rank.Main(func(ctx context.Context, c *rank.Comm) error {
		primes, by, err := count(ctx, c, 1000000, 100)
		if err == nil && c.Rank() == 0 {
			fmt.Printf("%d primes; tasks by rank: %v\n", primes, by)
		}
		return err
	})
}

// count gives rank 0 the number of primes below n, in so many tasks, and how many
// tasks each rank has done.
func count(ctx context.Context, c *rank.Comm, n, tasks int) (primes int, by map[int]int, err error) {
	var spans []Span
	for i := range tasks {
		spans = append(spans, Span{i * n / tasks, (i + 1) * n / tasks})
	}
	results, err := rank.Pool(ctx, c, spans, func(_ context.Context, s Span) (Found, error) {
		found := Found{Rank: c.Rank()}
		for i := s.First; i < s.End; i++ {
			if prime(i) {
				found.Primes++
			}
		}
		return found, nil
	})
	by = map[int]int{}
	for _, r := range results {
		primes += r.Primes
		by[r.Rank]++
	}
	return primes, by, err
}

func prime(n int) bool {
	for d := 2; d*d <= n; d++ {
		if n%d == 0 {
			return false
		}
	}
	return n > 1
}
