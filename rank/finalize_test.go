package rank_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/coll"
	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rank"
	"github.com/gorun-mpi/gorun/rank/internal/p2p"
	"github.com/gorun-mpi/gorun/rank/ranktest"
)

// A rank that has called Finalize receives nothing more, and holds nobody up.
func TestFinalizeWithUnreceived(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Each(t, []int{2, 3}, func(ctx context.Context, c *rank.Comm) error {
		if c.Rank() == 0 {
			return nil
		}
		for range 2000 { // more than there is credit for, in messages and in bytes
			if err := rank.Send(ctx, c, make([]byte, 1000), 0, 1); err != nil {
				return err
			}
		}
		err := rank.Send(ctx, c, make([]byte, 1<<20), 0, 1)
		if e, ok := errors.AsType[*rank.Error](err); !ok || e.Peer != 0 || !errors.Is(err, p2p.ErrRefused) {
			return fmt.Errorf("long send to a rank in Finalize: %v, want %v by rank 0", err, p2p.ErrRefused)
		}
		return nil
	})
}

// A long message that came before its receiver's Finalize is refused too.
func TestFinalizeRefusesWhatCameBefore(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Run(t, 2, func(ctx context.Context, c *rank.Comm) error {
		if c.Rank() == 1 {
			if err := rank.Send(ctx, c, make([]byte, 1<<20), 0, 1); !errors.Is(err, p2p.ErrRefused) {
				return fmt.Errorf("long send: %v, want %v", err, p2p.ErrRefused)
			}
			return rank.Send(ctx, c, []int{1}, 0, 2)
		}
		short, cancel := context.WithTimeout(ctx, 60*time.Millisecond)
		defer cancel()
		if _, err := rank.Recv(short, c, make([]int, 1), 1, 2); !errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("receive of a message behind the long one: %v, want %v", err, context.DeadlineExceeded)
		}
		return nil
	})
}

// Collectives that need no answer succeed, and do not match all the same.
func TestFinalizeFindsMismatch(t *testing.T) {
	testenv.NoLeaks(t)
	for name, last := range map[string]func(context.Context, *rank.Comm) error{
		"roots": func(ctx context.Context, c *rank.Comm) error {
			return rank.Bcast(ctx, c, make([]int, 3), c.Rank())
		},
		"nothing and something": func(ctx context.Context, c *rank.Comm) error {
			return rank.Allreduce(ctx, c, nil, make([]int, c.Rank()), rank.Sum)
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), ranktest.Limit)
			defer cancel()
			err := rank.RunConfig{}.Run(ctx, 2, last)
			if !errors.Is(err, coll.ErrMismatch) {
				t.Fatalf("error %v, want %v", err, coll.ErrMismatch)
			}
		})
	}
}

// A gather that fails at the root alone is known to all ranks in their next call.
func TestGatherFailureRevokes(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Run(t, 3, func(ctx context.Context, c *rank.Comm) error {
		err := rank.Gather(ctx, c, make([]int, 1+c.Rank()%2), make([]int, 3), 0)
		if e, ok := errors.AsType[*rank.Error](err); c.Rank() == 0 && (!ok || e.Peer != 1) {
			return fmt.Errorf("gather: %v, want an error that names rank 1", err)
		}
		if c.Rank() != 0 && err != nil {
			return err
		}
		for call, err := range map[string]error{"barrier": rank.Barrier(ctx, c), "gather": rank.Gather(ctx, c, []int{1}, make([]int, 3), 0)} {
			if !errors.Is(err, rank.ErrRevoked) && !errors.Is(err, coll.ErrMismatch) {
				return fmt.Errorf("%s after a gather that failed: %v, want %v or its cause", call, err, rank.ErrRevoked)
			}
		}
		return nil
	})
}

// A rank that calls Finalize while the others are in a collective finds out, whether they
// have sent it something or only wait for it. A barrier of theirs is as good as the one
// in Finalize.
func TestFinalizeAlone(t *testing.T) {
	testenv.NoLeaks(t)
	for _, tt := range []struct {
		name string
		call func(context.Context, *rank.Comm) error
		want error
	}{
		{"allreduce", func(ctx context.Context, c *rank.Comm) error {
			return rank.Allreduce(ctx, c, nil, []int{1}, rank.Sum)
		}, coll.ErrMismatch},
		{"barrier", rank.Barrier, nil},
	} {
		for job := range 4 {
			n, continuous := 2+job&2, job%2 > 0
			for alone := range n {
				t.Run(fmt.Sprintf("%s/n=%d/continuous=%v/rank=%d", tt.name, n, continuous, alone), func(t *testing.T) {
					ctx, cancel := context.WithTimeout(t.Context(), ranktest.Limit)
					defer cancel()
					comms := make([]*rank.Comm, n)
					err := rank.RunConfig{Continuous: continuous}.Run(ctx, n, func(ctx context.Context, c *rank.Comm) error {
						comms[c.Rank()] = c
						if c.Rank() == alone {
							return nil
						}
						return tt.call(ctx, c)
					})
					if !errors.Is(err, tt.want) {
						t.Fatalf("rank %d of %d in Finalize and the others in %s: %v, want %v", alone, n, tt.name, err, tt.want)
					}
					// It joins the other's barrier; in another one it would be alone, as that one agrees and leaves.
					if signals := rank.Signals(comms[alone]); continuous && n == 2 && tt.want == nil && signals != 1 {
						t.Errorf("rank %d sent %d signals of barriers, want 1", alone, signals)
					}
				})
			}
		}
	}
}
