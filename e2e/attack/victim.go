package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/gorun-mpi/gorun/rank"
)

// victim is a rank: it does the same again and again until a peer is lost, which is
// status 1, or until it dies itself. Kind live ends well after -ms.
func victim(args []string) int {
	flags := flag.NewFlagSet("victim", flag.ExitOnError)
	kind := flags.String("kind", "allreduce", "what the ranks do")
	dies := flags.Int("dies", -1, "which of them dies")
	signal := flags.Int("signal", 9, "by which signal")
	agent := flags.Bool("agent", false, "not it but its agent is killed, by signal 9")
	after := flags.Int("after", 0, "when, in microseconds")
	length := flags.Int("m", 100, "numbers of 8 bytes for each rank")
	lives := flags.Int("ms", 600, "how long kind live takes")
	_ = flags.Parse(args)
	ctx := context.Background()
	w, err := rank.Init(ctx, rank.Config{})
	if err != nil {
		fmt.Println("init:", err)
		return 1
	}
	c := w.Comm()
	n, me := c.Size(), c.Rank()
	mem := make([]int64, 2**length*n)
	a, b := mem[:*length*n], mem[*length*n:]
	if err := c.Barrier(ctx); err != nil {
		fmt.Println("first barrier:", err)
		return 1
	}
	if *kind == "live" {
		for end := time.Now().Add(time.Duration(*lives) * time.Millisecond); err == nil; {
			on := []int64{0}
			if time.Now().Before(end) {
				on[0] = 1
			}
			all := []int64{0}
			if err = rank.Allreduce(ctx, c, on, all, rank.Min); err == nil && all[0] == 0 {
				break
			}
		}
		if err == nil {
			err = w.Finalize(ctx)
		}
		if err != nil {
			fmt.Println(err)
			return 1
		}
		return 0
	}
	if me == *dies {
		go func() {
			time.Sleep(time.Duration(*after) * time.Microsecond)
			if *agent {
				parent := os.Getppid()
				_ = syscall.Kill(parent, syscall.SIGKILL)
			} else {
				_ = syscall.Kill(os.Getpid(), syscall.Signal(*signal))
			}
		}()
	}
	for i := 0; ; i++ {
		switch *kind {
		case "allreduce":
			err = rank.Allreduce(ctx, c, a[:*length], b[:*length], rank.Sum)
		case "bcast":
			err = rank.Bcast(ctx, c, a[:*length], i%n)
		case "alltoall":
			err = rank.Alltoall(ctx, c, a, b)
		case "barrier":
			err = c.Barrier(ctx)
		case "ring":
			_, err = rank.Sendrecv(ctx, c, a[:*length], (me+1)%n, 0, b[:*length], (me+n-1)%n, 0)
		case "any":
			if me == 0 {
				_, err = rank.Recv(ctx, c, b[:*length], rank.AnySource, rank.AnyTag)
			} else {
				err = rank.Ssend(ctx, c, a[:*length], 0, me)
			}
		case "finalize":
			if me == *dies {
				select {}
			}
			if err = w.Finalize(ctx); err == nil {
				return 0
			}
		default:
			err = fmt.Errorf("no kind %q", *kind)
		}
		if err != nil {
			fmt.Println(err)
			return 1
		}
	}
}
