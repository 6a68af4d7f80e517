package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rank"
)

// The progress thread makes every step of every call, as many as the ranks make inline.
func TestProgressThreadExecutesTheSteps(t *testing.T) {
	testenv.NoLeaks(t)
	for _, ranks := range []int{1, 2, 4} {
		for _, per := range []int{4, 100_000} {
			t.Run(fmt.Sprintf("%dx%d", ranks, per), func(t *testing.T) {
				p := params{msgsize: ranks * per, iterations: 5, warmup: 1, print: printFull, seed: 5}
				inline, matrices, _ := exchangeOn(t, ranks, p)
				p.engine = engineThread
				r, got, _ := exchangeOn(t, ranks, p)
				if got != matrices {
					t.Errorf("the threads brought\n%s\nthe ranks\n%s", got, matrices)
				}
				by, want := callCounts(r.counted), callCounts(inline.counted)
				if by.Writes != want.Writes || by.WriteBytes != want.WriteBytes || by.Copies != want.Copies {
					t.Errorf("one call counts %+v, inline %+v", by, want)
				}
			})
		}
	}
}

// A rank that helps its thread is found out.
func TestThreadEngineFailsWhenTheRankHelps(t *testing.T) {
	testenv.NoLeaks(t)
	p := params{op: "alltoall", engine: engineThread, msgsize: 8, iterations: 1, print: printNone}
	p.settle(2, threadsMost)
	cfg := rank.RunConfig{Config: rank.Config{Progress: rank.ProgressOff}} // not what the engine asks for
	err := cfg.Run(testenv.Deadline(t, time.Minute), 2, func(ctx context.Context, c *rank.Comm) error {
		_, err := (&exchange{ctx: ctx, world: c.World(), comm: c, params: p, started: time.Now()}).run()
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "the progress thread has run 0 of 1 calls") {
		t.Errorf("got %v, want that the thread has run no call", err)
	}
}
