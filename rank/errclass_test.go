package rank_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rank"
	"github.com/gorun-mpi/gorun/rank/ranktest"
)

func TestClassNames(t *testing.T) {
	seen := make(map[string]rank.Class)
	for c := rank.ClassSuccess; c <= rank.ClassRevoked; c++ {
		name := c.String()
		if other, twice := seen[name]; twice || c > 0 && (!strings.HasPrefix(name, "MPI_ERR_") || len(name) < len("MPI_ERR_")+2) {
			t.Errorf("class %d is %q, as is %d", uint8(c), name, uint8(other))
		}
		seen[name] = c
	}
	for c, name := range map[rank.Class]string{rank.ClassSuccess: "MPI_SUCCESS", rank.ClassTruncate: "MPI_ERR_TRUNCATE",
		rank.ClassProcFailed: "MPI_ERR_PROC_FAILED", rank.ClassRevoked: "MPI_ERR_REVOKED", 99: "MPI error class 99"} {
		if got := c.String(); got != name {
			t.Errorf("class %d is %q, want %q", uint8(c), got, name)
		}
	}
}

func TestClasses(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Run(t, 2, func(ctx context.Context, c *rank.Comm) error {
		ended, cancel := context.WithCancel(ctx)
		cancel()
		freed, err := c.Dup(ctx)
		if err != nil {
			return err
		}
		if err := freed.Free(ctx); err != nil {
			return err
		}
		broken, err := c.Dup(ctx)
		if err != nil {
			return err
		}
		if err := rank.Send(ctx, c, make([]int, 3), 1-c.Rank(), 0); err != nil {
			return err
		}
		buf := make([]int, 2)
		var none *rank.Comm
		for _, tt := range []struct {
			name  string
			call  func() error
			class rank.Class
		}{
			{"rank", func() error { return rank.Send(ctx, c, buf, 2, 0) }, rank.ClassRank},
			{"tag", func() error { return rank.Send(ctx, c, buf, 0, -5) }, rank.ClassTag},
			{"freed", func() error { return rank.Barrier(ctx, freed) }, rank.ClassComm},
			{"nil", func() error { return rank.Barrier(ctx, none) }, rank.ClassComm},
			{"nil alloc", func() error { _, err := rank.Alloc[int](none, 1); return err }, rank.ClassComm},
			{"nil free of memory", func() error { return rank.Free(none, buf) }, rank.ClassComm},
			{"nil send", func() error { return rank.Send(ctx, none, buf, 0, 0) }, rank.ClassComm},
			{"nil dup", func() error { _, err := none.Dup(ctx); return err }, rank.ClassComm},
			{"nil group", func() error { _, err := none.CreateGroup(ctx, c.Group(), 0); return err }, rank.ClassComm},
			{"nil create", func() error { _, err := none.Create(ctx, c.Group()); return err }, rank.ClassComm},
			{"nil grid", func() error { _, err := none.CartCreate(ctx, nil, nil, false); return err }, rank.ClassComm},
			{"nil graph", func() error { _, err := none.DistGraphCreate(ctx, nil, nil, nil, nil, false); return err }, rank.ClassComm},
			{"nil free", func() error { return none.Free(ctx) }, rank.ClassComm},
			{"nil merge", func() error { _, err := none.Merge(ctx, true); return err }, rank.ClassComm},
			{"truncate", func() error { _, err := rank.Recv(ctx, c, buf, 1-c.Rank(), 0); return err }, rank.ClassTruncate},
			{"context", func() error { _, err := rank.Recv(ended, c, buf, 0, 0); return err }, rank.ClassOther},
			{"context of a collective", func() error { return rank.Barrier(ended, broken) }, rank.ClassOther},
			{"revoked", func() error { return twice(ctx, broken) }, rank.ClassRevoked},
			{"other", func() error { return errors.New("from elsewhere") }, rank.ClassOther},
			{"none", func() error { return nil }, rank.ClassSuccess},
		} {
			if tt.name == "context of a collective" && c.Rank() != 0 {
				// Not before that of rank 0 has failed, or it might succeed.
				if _, err := rank.Recv(ctx, c, buf, 0, 1); err != nil {
					return err
				}
				continue
			}
			err := tt.call()
			if tt.name == "context of a collective" {
				if err := rank.Send(ctx, c, buf, 1, 1); err != nil {
					return err
				}
			}
			if got := rank.ClassOf(err); got != tt.class {
				return fmt.Errorf("%s: %v is %v, want %v", tt.name, err, got, tt.class)
			}
			if e, ok := errors.AsType[*rank.Error](err); ok {
				if e.Class() != tt.class || !errors.Is(err, tt.class) || errors.Is(err, rank.ClassIntern) {
					return fmt.Errorf("%s: %v has class %v, want %v", tt.name, err, e.Class(), tt.class)
				}
			}
		}
		return rank.Barrier(ctx, c)
	})
}

// twice is the barrier after that of a rank that gave up, whose message may have
// come, so that the first one succeeds.
func twice(ctx context.Context, c *rank.Comm) error {
	if err := rank.Barrier(ctx, c); err != nil {
		return err
	}
	return rank.Barrier(ctx, c)
}

func TestErrhandler(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Run(t, 2, func(ctx context.Context, c *rank.Comm) error {
		d, err := c.Dup(ctx)
		if err != nil {
			return err
		}
		var told []error
		d.SetErrhandler(func(on *rank.Comm, err error) {
			e, ok := errors.AsType[*rank.Error](err)
			if !ok || e.Comm != on.Name() {
				err = fmt.Errorf("not an error of %s: %w", on.Name(), err)
			}
			told = append(told, err)
		})
		s, err := d.Split(ctx, 0, 0)
		if err != nil {
			return err
		}
		if err := rank.Send(ctx, s, []int{1}, 5, 0); len(told) != 1 || told[0] != err {
			return fmt.Errorf("told %v, returned %v", told, err)
		}
		ended, cancel := context.WithCancel(ctx)
		cancel()
		if c.Rank() == 0 {
			if err := rank.Barrier(ended, s); len(told) != 2 || told[1] != err {
				return fmt.Errorf("told %v, returned %v", told, err)
			}
			if err := rank.Barrier(ctx, s); len(told) != 3 || told[2] != err {
				return fmt.Errorf("told %v, returned %v", told, err)
			}
			told = told[1:]
			if err := rank.Send(ctx, c, []int{1}, 1, 0); err != nil {
				return err
			}
		} else if _, err := rank.Recv(ctx, c, []int{1}, 0, 0); err != nil {
			return err
		} else if err := twice(ctx, s); len(told) != 2 || told[1] != err {
			return fmt.Errorf("told %v, returned %v", told, err)
		}
		d.SetErrhandler(rank.ErrorsReturn)
		if err := rank.Send(ctx, d, []int{1}, 5, 0); err == nil || len(told) != 2 {
			return fmt.Errorf("told %v", told)
		}
		return rank.Barrier(ctx, c)
	})
}

func TestErrorsAreFatal(t *testing.T) {
	testenv.NoLeaks(t)
	err := rank.Run(2, func(ctx context.Context, c *rank.Comm) error {
		c.SetErrhandler(rank.ErrorsAreFatal)
		if c.Rank() == 0 {
			_ = rank.Send(ctx, c, []int{1}, 7, 0)
			return errors.New("a fatal error did not end the rank")
		}
		return rank.Barrier(ctx, c)
	})
	a, ok := errors.AsType[*rank.AbortError](err)
	if !ok || a.Rank != 0 || a.Code != 1 || !strings.Contains(a.Message, "rank 7 in a communicator of 2") {
		t.Errorf("the run ended with %v", err)
	}
}
