package rank_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rank"
	"github.com/gorun-mpi/gorun/rank/ranktest"
)

// Revoke ends every kind of call that waits on the communicator, and all later ones. The world's
// communicator is as it was.
func TestRevokeEndsCalls(t *testing.T) {
	testenv.NoLeaks(t)
	started := func(ctx context.Context, q rank.Request, err error) error {
		if err == nil {
			_, err = q.Wait(ctx)
		}
		return err
	}
	for name, wait := range map[string]func(context.Context, *rank.Comm) error{
		"recv": func(ctx context.Context, d *rank.Comm) error {
			_, err := rank.Recv(ctx, d, make([]int, 1), 0, 3)
			return err
		},
		"recv from any": func(ctx context.Context, d *rank.Comm) error {
			_, err := rank.Recv(ctx, d, make([]int, 1), rank.AnySource, 3)
			return err
		},
		"irecv": func(ctx context.Context, d *rank.Comm) error {
			q, err := rank.Irecv(d, make([]int, 1), 0, 3)
			return started(ctx, q, err)
		},
		"test": func(ctx context.Context, d *rank.Comm) error {
			q, err := rank.Irecv(d, make([]int, 1), 0, 3)
			for done := false; !done && err == nil; {
				_, done, err = q.Test()
			}
			return err
		},
		"probe": func(ctx context.Context, d *rank.Comm) error {
			_, err := rank.Probe(ctx, d, 0, 3)
			return err
		},
		"iprobe": func(ctx context.Context, d *rank.Comm) error {
			for {
				if _, found, err := rank.Iprobe(d, rank.AnySource, 3); found || err != nil {
					return err
				}
			}
		},
		"long send": func(ctx context.Context, d *rank.Comm) error {
			return rank.Send(ctx, d, make([]byte, 1<<20), 0, 3)
		},
		"ssend": func(ctx context.Context, d *rank.Comm) error {
			return rank.Ssend(ctx, d, make([]byte, 1), 0, 3)
		},
		"many sends": func(ctx context.Context, d *rank.Comm) error {
			for {
				if err := rank.Send(ctx, d, make([]byte, 1000), 0, 3); err != nil {
					return err
				}
			}
		},
		"barrier": func(ctx context.Context, d *rank.Comm) error { return rank.Barrier(ctx, d) },
		"allreduce": func(ctx context.Context, d *rank.Comm) error {
			return rank.Allreduce(ctx, d, nil, make([]int, 30000), rank.Sum)
		},
		"ialltoall": func(ctx context.Context, d *rank.Comm) error {
			q, err := rank.Ialltoall(d, nil, make([]int, 10*d.Size()))
			return started(ctx, q, err)
		},
		"dup": func(ctx context.Context, d *rank.Comm) error { _, err := d.Dup(ctx); return err },
	} {
		t.Run(name, func(t *testing.T) {
			ranktest.Each(t, []int{2, 3, 6}, func(ctx context.Context, c *rank.Comm) error {
				d, err := c.Dup(ctx)
				if err != nil {
					return err
				}
				if c.Rank() > 0 {
					if err := rank.Send(ctx, c, []int{1}, 0, 0); err != nil {
						return err
					}
					if err := wait(ctx, d); !errors.Is(err, rank.ErrRevoked) {
						return fmt.Errorf("%s: %v, want %v", name, err, rank.ErrRevoked)
					}
				} else {
					for r := 1; r < c.Size(); r++ { // they are about to wait
						if _, err := rank.Recv(ctx, c, make([]int, 1), r, 0); err != nil {
							return err
						}
					}
					if err := d.Revoke(); err != nil {
						return err
					}
				}
				if name != "dup" { // which its collective may have ended before the word came
					if err := revoked(ctx, d); err != nil {
						return err
					}
				}
				if err := rank.Barrier(ctx, c); err != nil {
					return err
				}
				if err := d.Free(ctx); err != nil {
					return err
				}
				if err := d.Revoke(); !errors.Is(err, rank.ErrFreed) {
					return fmt.Errorf("revoke of a freed communicator: %v, want %v", err, rank.ErrFreed)
				}
				return rank.Barrier(ctx, c)
			})
		})
	}
}

// revoked waits until the word has come, and tells whether all calls are refused then.
func revoked(ctx context.Context, d *rank.Comm) error {
	if _, err := rank.Recv(ctx, d, make([]int, 1), rank.AnySource, 4); !errors.Is(err, rank.ErrRevoked) {
		return fmt.Errorf("recv: %v, want %v", err, rank.ErrRevoked)
	}
	if !d.Revoked() {
		return errors.New("not revoked")
	}
	_, dup := d.Dup(ctx)
	_, irecv := rank.Irecv(d, make([]int, 1), 0, 0)
	_, ibarrier := rank.Ibarrier(d)
	for i, err := range []error{rank.Send(ctx, d, []int{1}, 0, 0), rank.Barrier(ctx, d), dup, irecv, ibarrier} {
		if e, ok := errors.AsType[*rank.Error](err); !ok || e.Class() != rank.ClassRevoked {
			return fmt.Errorf("call %d: %v, want %v", i, err, rank.ErrRevoked)
		}
	}
	if err := d.Revoke(); err != nil {
		return fmt.Errorf("again: %w", err)
	}
	g, err := d.Failed()
	if err != nil || g.Size() != 0 {
		return fmt.Errorf("%d failed, %v, want none", g.Size(), err)
	}
	return nil
}

// A communicator may be revoked before all members have returned from the call that makes it.
func TestRevokeWhileOthersMakeIt(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Each(t, []int{2, 5}, func(ctx context.Context, c *rank.Comm) error {
		for i := range 5 { // each keeps its memory: others may write to it
			d, err := c.Split(ctx, 0, -c.Rank())
			if err != nil {
				return err
			}
			if c.Rank() == i%c.Size() {
				if err := d.Revoke(); err != nil {
					return err
				}
			}
			if err := revoked(ctx, d); err != nil {
				return err
			}
			if err := d.Free(ctx); err != nil {
				return err
			}
		}
		return rank.Barrier(ctx, c)
	})
}
