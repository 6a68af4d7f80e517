// Rank is what runs on the hosts of e2e/hosts: "rank busy" reduces all the time, "rank idle"
// waits for nothing but the end. Each writes a file up.RANK when all have met, and
// finalizes when there is a file over, in the directory that it runs in. "rank survive CALL" waits
// for a rank that dies, and goes on without it.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/gorun-mpi/gorun/rank"
)

func main() { rank.Main(run) }

func run(ctx context.Context, c *rank.Comm) error {
	if len(os.Args) == 3 {
		return survive(ctx, c, os.Args[2])
	}
	if err := c.Barrier(ctx); err != nil {
		return err
	}
	if err := os.WriteFile(fmt.Sprintf("up.%d", c.Rank()), nil, 0o644); err != nil {
		return err
	}
	busy := len(os.Args) > 1 && os.Args[1] == "busy"
	for {
		_, err := os.Stat("over")
		over := err == nil
		if busy {
			all, err := rank.AllreduceOne(ctx, c, toInt(over), rank.Min)
			if err != nil {
				return err
			}
			over = all == 1
		} else if !over {
			time.Sleep(20 * time.Millisecond)
		}
		if over || ctx.Err() != nil {
			return c.Barrier(ctx)
		}
	}
}

func toInt(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
