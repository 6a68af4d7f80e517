// Gorun-bench-init is the smallest program that is a rank: it joins the job and leaves
// it. gorun-bench starts it to time rank.Init and Finalize, since a rank of gorun-bench
// itself would spend as long on starting what draws its plots.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/gorun-mpi/gorun/rank"
)

func main() { os.Exit(run(context.Background(), os.Environ())) }

func run(ctx context.Context, environ []string) int {
	env, err := rank.FromEnviron(environ)
	if err == nil {
		var world *rank.World
		if world, err = rank.Init(ctx, rank.Config{Environment: &env}); err == nil {
			err = world.Finalize(ctx)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "gorun-bench-init:", err)
		return 1
	}
	return 0
}
