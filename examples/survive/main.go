// Command survive solves a system of equations by Jacobi's method, and goes on when ranks die: the survivors share
// its rows anew. With a rank and a step as arguments that rank kills itself there.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"github.com/gorun-mpi/gorun/rank"
)

func main() {
	var victim, at int
	_, _ = fmt.Sscan(strings.Join(os.Args[1:], " "), &victim, &at)
	rank.Main(func(ctx context.Context, world *rank.Comm) error {
		x, c, err := solve(ctx, world, func(step int) {
			if step == at && at > 0 && world.Rank() == victim {
				_ = syscall.Kill(syscall.Getpid(), syscall.SIGKILL)
			}
		})
		if err == nil && c.Rank() == 0 {
			fmt.Printf("%d of %d ranks have the solution, %.3f in the middle\n", c.Size(), world.Size(), x[len(x)/2])
		}
		return err
	})
}

// solve gives the solution and the communicator of those that have it.
func solve(ctx context.Context, c *rank.Comm, each func(step int)) (x []float64, of *rank.Comm, err error) {
	x = make([]float64, 20)
	for step := 0; ; {
		err := iterate(ctx, c, x, &step, each)
		done := 1
		if errors.Is(err, rank.ErrProcFailed) || errors.Is(err, rank.ErrRevoked) {
			done, err = 0, c.Revoke() // so that the others come here
		}
		if err != nil {
			return nil, nil, err
		}
		// Some may have ended where others could not: all hear the same. The error is of deaths, which Shrink heeds.
		if done, _ = c.Agree(ctx, done); done == 1 {
			return x, c, nil
		}
		if c, err = c.Shrink(ctx); err != nil {
			return nil, nil, err
		}
	}
}

// iterate goes on from what rank 0 has: ranks may be a step apart.
func iterate(ctx context.Context, c *rank.Comm, x []float64, step *int, each func(step int)) (err error) {
	if *step, err = rank.BcastOne(ctx, c, *step, 0); err != nil {
		return err
	}
	if err := rank.Bcast(ctx, c, x, 0); err != nil {
		return err
	}
	counts, begin := make([]int, c.Size()), func(r int) int { return len(x) * r / c.Size() }
	for r := range counts {
		counts[r] = begin(r+1) - begin(r)
	}
	for ; *step < 60; *step++ {
		each(*step)
		old := append(append([]float64{0}, x...), 0)
		for i := begin(c.Rank()); i < begin(c.Rank()+1); i++ { // 4x[i] - x[i-1] - x[i+1] = 1
			x[i] = (1 + old[i] + old[i+2]) / 4
		}
		if err := rank.Allgatherv(ctx, c, nil, x, counts, nil); err != nil {
			return err
		}
	}
	return nil
}
