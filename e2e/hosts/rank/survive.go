package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/gorun-mpi/gorun/rank"
)

// survive has rank 1 do nothing until it dies, in whatever way, and the others wait for it in a call. They go on
// by Shrink, and print when, in nanoseconds since 1970, that call has failed and they were done with the next. Each
// leaves its pid, and its agent's, in up.RANK.
func survive(ctx context.Context, c *rank.Comm, call string) error {
	wait, ok := waits[call]
	if !ok {
		return fmt.Errorf("no call %q", call)
	}
	pids := fmt.Sprintln(os.Getpid(), os.Getppid())
	if err := os.WriteFile(fmt.Sprintf("new.%d", c.Rank()), []byte(pids), 0o644); err != nil {
		return err
	}
	if err := os.Rename(fmt.Sprintf("new.%d", c.Rank()), fmt.Sprintf("up.%d", c.Rank())); err != nil {
		return err
	}
	if c.Rank() == 1 && call != "busy" {
		time.Sleep(time.Hour)
	}
	err := wait(ctx, c)
	failed := time.Now()
	e, ok := errors.AsType[*rank.Error](err)
	if !ok || !errors.Is(err, rank.ErrProcFailed) && !errors.Is(err, rank.ErrRevoked) {
		return fmt.Errorf("%s has ended with %w", call, err)
	}
	if err := c.Revoke(); err != nil {
		return err
	}
	d, err := c.Shrink(ctx)
	if err != nil {
		return err
	}
	n, err := rank.AllreduceOne(ctx, d, 1, rank.Sum)
	if err != nil || n != d.Size() {
		return fmt.Errorf("%d of %d survivors: %w", n, d.Size(), err)
	}
	fmt.Printf("rank %d: %d survivors, failed %d, shrunk %d: %v\n", c.Rank(), n, failed.UnixNano(), time.Now().UnixNano(), e)
	return nil
}

// waits are calls that need rank 1, by name. In all but busy no rank has talked with it before.
var waits = map[string]func(context.Context, *rank.Comm) error{
	"busy": func(ctx context.Context, c *rank.Comm) error {
		for {
			if _, err := rank.AllreduceOne(ctx, c, 1, rank.Sum); err != nil {
				return err
			}
		}
	},
	"allreduce": func(ctx context.Context, c *rank.Comm) error {
		_, err := rank.AllreduceOne(ctx, c, 1, rank.Sum)
		return err
	},
	"recv": func(ctx context.Context, c *rank.Comm) error {
		_, err := rank.Recv(ctx, c, make([]int, 1), 1, 0)
		return err
	},
	"recv from any": func(ctx context.Context, c *rank.Comm) error {
		_, err := rank.Recv(ctx, c, make([]int, 1), rank.AnySource, 0)
		return err
	},
	"send": func(ctx context.Context, c *rank.Comm) error {
		return rank.Send(ctx, c, make([]int, 1<<20), 1, 0)
	},
	"agree": func(ctx context.Context, c *rank.Comm) error {
		_, err := c.Agree(ctx, 1)
		return err
	},
	// It cannot be seen to fail: it makes the communicator of those that live.
	"shrink": func(ctx context.Context, c *rank.Comm) error {
		d, err := c.Shrink(ctx)
		if err == nil && d.Size() == c.Size()-1 {
			return &rank.Error{Op: "shrink", Peer: 1, Err: rank.ErrProcFailed}
		}
		return fmt.Errorf("%v: %w", d, err)
	},
	// A rank has heard of the death when it begins to wait.
	"late recv": func(ctx context.Context, c *rank.Comm) error {
		for {
			if _, err := os.Stat("struck"); err == nil {
				break
			}
			time.Sleep(time.Millisecond)
		}
		_, err := rank.Recv(ctx, c, make([]int, 1), 1, 0)
		return err
	},
}
