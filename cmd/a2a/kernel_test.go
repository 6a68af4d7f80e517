package main

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rank"
	"github.com/gorun-mpi/gorun/rdma/dpa"
)

// The device threads run the kernel once each, and post all there is: a write and a signal for each ordered pair of ranks and for each with
// itself. The ranks themselves post nothing, neither in the collective nor to the device.
func TestDeviceThreadsExecuteTheSteps(t *testing.T) {
	testenv.NoLeaks(t)
	for _, ranks := range []int{1, 2, 4, 7} {
		for _, threads := range []int{1, ranks} {
			for _, per := range []int{4, 1024, 100_000} {
				t.Run(fmt.Sprintf("%dx%d by %d", ranks, per, threads), func(t *testing.T) {
					r, _, _ := exchangeOn(t, ranks, params{engine: engineDPA, threads: threads, msgsize: ranks * per, iterations: 3, warmup: 1, print: printNone, seed: 5})
					pairs := uint64(ranks * ranks)
					want := callCount{Writes: pairs, WriteBytes: pairs * uint64(per), Signals: pairs,
						DeviceWrites: 2 * pairs, Kernels: uint64(ranks * threads), PostedByThreads: 2 * pairs}
					if got := callCounts(r.counted); got != want {
						t.Errorf("one call counts %+v, want %+v", got, want)
					}
				})
			}
		}
	}
}

// And no thread executes a step of the inline engine.
func TestInlineEngineHasNoThreads(t *testing.T) {
	r, _, _ := exchangeOn(t, 3, params{msgsize: 24, iterations: 1, print: printNone})
	if got := callCounts(r.counted); got.Kernels != 0 || got.PostedByThreads != 0 || got.DeviceWrites == 0 {
		t.Errorf("one call counts %+v, want all by the ranks", got)
	}
}

// What arrives by the device threads is what arrives by the ranks, also what is left over and stays 0.
func TestEnginesPrintTheSame(t *testing.T) {
	for _, size := range []int{36, 4096} {
		p := params{msgsize: size, iterations: 1, seed: 3, print: printFull}
		_, inline, _ := exchangeOn(t, 4, p)
		p.engine = engineDPA
		if _, got, _ := exchangeOn(t, 4, p); got != inline {
			t.Errorf("%d bytes: the device threads brought\n%s\nthe ranks\n%s", size, got, inline)
		}
	}
}

// On a device that executes late, out of order and in pieces a signal still comes behind its block.
func TestKernelOnAdversary(t *testing.T) {
	testenv.NoLeaks(t)
	for seed := range uint64(3) {
		for _, size := range []int{16, 400_000} {
			exchangeWith(t, rank.RunConfig{Seed: seed + 1}, 4, params{engine: engineDPA, threads: 2, msgsize: size, iterations: 5, warmup: 1, print: printNone})
		}
	}
}

// The two halves of a call, again and again: the rank is free in between, and a second start before the wait is refused.
func TestRequestIsUsedAgain(t *testing.T) {
	testenv.NoLeaks(t)
	const ranks, calls = 2, 50
	cfg := rank.RunConfig{Config: rank.Config{Verbs: true}}
	err := cfg.Run(testenv.Deadline(t, time.Minute), ranks, func(ctx context.Context, c *rank.Comm) (err error) {
		e, err := newKernelEngine(ctx, c, &params{op: "alltoall", engine: engineDPA, threads: 1, msgsize: ranks * intSize})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, e.close(ctx, err == nil)) }()
		send, recv, err := e.buffers(ctx, ranks*calls)
		if err != nil {
			return err
		}
		for i := range send {
			send[i] = int32(i*10 + c.Rank())
		}
		if err := rank.Barrier(ctx, c); err != nil {
			return err
		}
		for i := range calls {
			if err := e.start(slot{at: i * ranks}); err != nil {
				return err
			}
			if err := e.start(slot{}); !errors.Is(err, errStarted) {
				return fmt.Errorf("start before wait: %v, want %v", err, errStarted)
			}
			if err := e.wait(ctx); err != nil {
				return err
			}
			for from := range ranks {
				if got, want := recv[i*ranks+from], int32((i*ranks+c.Rank())*10+from); got != want {
					return fmt.Errorf("call %d brought rank %d the number %d from rank %d, want %d", i, c.Rank(), got, from, want)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A kernel that fails is the call's error, not the end of the process.
func TestFailedKernelIsTheCallsError(t *testing.T) {
	testenv.NoLeaks(t)
	err := (rank.RunConfig{Config: rank.Config{Verbs: true}}).Run(testenv.Deadline(t, time.Minute), 1, func(ctx context.Context, c *rank.Comm) error {
		e, err := newKernelEngine(ctx, c, &params{op: "alltoall", engine: engineDPA, threads: 1, msgsize: intSize})
		if err != nil {
			return err
		}
		if _, _, err := e.buffers(ctx, 1); err != nil {
			return err
		}
		e.peers[0].rkey++
		err = e.call(ctx, slot{})
		var failed *dpa.KernelError
		if !errors.As(err, &failed) || failed.Kernel != "all-to-all" {
			t.Errorf("a call with a wrong key: %v, want the kernel's error", err)
		}
		return e.close(ctx, false)
	})
	if err != nil {
		t.Fatal(err)
	}
}
