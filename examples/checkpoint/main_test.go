package main

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rank"
)

// A start that ends on its way leaves a state with which another number of ranks comes to the same end.
func TestComputeGoesOn(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state")
	run := func(ctx context.Context, ranks int) error {
		return rank.RunConfig{}.Run(ctx, ranks, func(ctx context.Context, c *rank.Comm) error { return compute(ctx, c, file) })
	}
	read := func() (s state) {
		text, err := os.ReadFile(file)
		if err == nil {
			err = json.Unmarshal(text, &s)
		}
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		return s
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, 3) }()
	testenv.Await(t, time.Minute, "some steps", func() bool { return read().Step >= 3 })
	cancel()
	if err := <-ended; err == nil {
		t.Log("the first start came to its end")
	}
	if err := run(t.Context(), 2); err != nil {
		t.Fatal(err)
	}
	if s := read(); s.Step != steps || math.Abs(4*s.Sum-math.Pi) > 1e-6 {
		t.Errorf("%+v, want %d steps and a quarter of pi", s, steps)
	}
	// One that cannot be read is not taken for none.
	if err := os.WriteFile(file, []byte("{"), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := run(t.Context(), 2); err == nil {
		t.Error("half a state was taken")
	}
}
