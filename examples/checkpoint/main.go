// Command checkpoint computes pi in steps and keeps what it has in a file, so that a job that starts again goes on,
// also with another number of ranks:
//
//	gorun --elastic 2:8 --discover-hosts ./hosts.sh ./checkpoint /shared/pi.json
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/gorun-mpi/gorun/rank"
)

// steps of so many terms each.
const steps, terms = 200, 1 << 18

// A state is all that a start needs to go on where another one has stopped.
type state struct {
	Step int // the next one
	Sum  float64
}

func main() {
	rank.Main(func(ctx context.Context, c *rank.Comm) error {
		if len(os.Args) != 2 {
			return errors.New("usage: checkpoint FILE")
		}
		return compute(ctx, c, os.Args[1])
	})
}

func compute(ctx context.Context, c *rank.Comm, file string) error {
	var s state
	if text, err := os.ReadFile(file); err == nil {
		if err := json.Unmarshal(text, &s); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	} else if !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if c.Rank() == 0 {
		fmt.Printf("%d ranks begin at step %d\n", c.Size(), s.Step)
	}
	// Every rank has read the file before one writes it.
	if err := c.Barrier(ctx); err != nil {
		return err
	}
	for ; s.Step < steps; s.Step++ {
		part := 0.0
		for i := s.Step*terms + c.Rank(); i < (s.Step+1)*terms; i += c.Size() {
			part += float64(1-2*(i%2)) / float64(2*i+1)
		}
		part, err := rank.AllreduceOne(ctx, c, part, rank.Sum)
		if err == nil && c.Rank() == 0 {
			err = save(file, state{s.Step + 1, s.Sum + part})
		}
		if err != nil {
			return err
		}
		s.Sum += part
	}
	if c.Rank() == 0 {
		fmt.Printf("pi is about %.6f\n", 4*s.Sum)
	}
	return nil
}

// save replaces the file at once: a start that ends meanwhile leaves the last state or this one.
func save(file string, s state) error {
	text, _ := json.Marshal(s)
	if err := os.WriteFile(file+".new", text, 0o666); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}
