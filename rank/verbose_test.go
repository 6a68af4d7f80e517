package rank_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rank"
)

// Rank 0 tells each way at its first use, in words that name the call, the
// communicator, the algorithm and the reason.
func TestVerbose(t *testing.T) {
	testenv.NoLeaks(t)
	for _, verbose := range []bool{false, true} {
		var mu sync.Mutex
		var lines []string
		cfg := rank.Config{Verbose: verbose, Log: func(line string) {
			mu.Lock()
			defer mu.Unlock()
			lines = append(lines, line)
		}}
		err := rank.RunConfig{Config: cfg}.Run(t.Context(), 2, func(ctx context.Context, c *rank.Comm) error {
			peer := 1 - c.Rank()
			for range 3 {
				if err := rank.Allreduce(ctx, c, nil, make([]int64, 1), rank.Sum); err != nil {
					return err
				}
				q, err := rank.Iallgather(c, make([]byte, 5000), make([]byte, 10000))
				if err != nil {
					return err
				}
				if _, err := q.Wait(ctx); err != nil {
					return err
				}
				if err := rank.Alltoallv(ctx, c, []int{1, 2}, []int{1, 1}, nil, make([]int, 2), []int{1, 1}, nil); err != nil {
					return err
				}
				for _, n := range []int{8, 1 << 20} {
					if _, err := rank.Sendrecv(ctx, c, make([]byte, n), peer, 0, make([]byte, n), peer, 0); err != nil {
						return err
					}
				}
				if q, err = rank.Isend(c, []byte{1}, c.Rank(), 1); err != nil {
					return err
				}
				if _, err := rank.Recv(ctx, c, make([]byte, 1), c.Rank(), 1); err != nil {
					return err
				}
				if _, err := q.Wait(ctx); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		all := strings.Join(lines, "\n")
		want := 0
		if verbose {
			want = 1
		}
		for r := range 2 { // a fact of the start-up
			if says := fmt.Sprintf("rank %d: queue pairs are reliable connections, made when they are needed: up to ", r); strings.Count(all, says) != 1 {
				t.Errorf("verbose %v: want one line that says %q:\n%s", verbose, says, all)
			}
		}
		for _, says := range []string{
			"allreduce on world: allreduce of 8 bytes on 2 ranks: ",
			"iallgather on world: allgather of 5000 bytes on 2 ranks: ",
			"alltoallv on world: exchange on 2 ranks: ",
			"sendrecv of 8 bytes to rank 1 of world: eager, through mapped memory (up to ",
			"sendrecv of 1048576 bytes to rank 1 of world: rendezvous: announced through mapped memory, and ",
			"isend of 1 bytes to rank 0 of world: copied within the rank",
		} {
			if got := strings.Count(all, says); got != want {
				t.Errorf("verbose %v: %d lines say %q, want %d:\n%s", verbose, got, says, want, all)
			}
		}
	}
}

func TestVerboseFromEnviron(t *testing.T) {
	for value, want := range map[string]string{"1": "true <nil>", "0": "false <nil>", "": "false <nil>",
		"loud": "false GORUN_VERBOSE=loud: expected 1 or 0"} {
		env, err := rank.FromEnviron([]string{"GORUN_VERBOSE=" + value})
		if got := fmt.Sprint(env.Verbose, " ", err); got != want {
			t.Errorf("GORUN_VERBOSE=%s: %s, want %s", value, got, want)
		}
	}
}
