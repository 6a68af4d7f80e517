package rank_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rank"
	"github.com/gorun-mpi/gorun/rank/ranktest"
)

// parted splits c into the first part of its ranks and the others, and makes an
// intercommunicator of the two, whose leaders are the last ranks of each.
func parted(ctx context.Context, c *rank.Comm, first int) (local, inter *rank.Comm, err error) {
	side := 0
	if c.Rank() >= first {
		side = 1
	}
	if local, err = c.Split(ctx, side, 0); err != nil {
		return nil, nil, err
	}
	peer, remote := c, c.Size()-1
	if side == 1 {
		remote = first - 1
	}
	if local.Rank() != local.Size()-1 {
		peer, remote = nil, 99 // which nobody looks at
	}
	inter, err = rank.CreateIntercomm(ctx, local, local.Size()-1, peer, remote, 3)
	return local, inter, err
}

func TestIntercomm(t *testing.T) {
	testenv.NoLeaks(t)
	for _, tt := range []struct{ n, first int }{{2, 1}, {3, 1}, {3, 2}, {5, 2}, {8, 4}, {8, 7}, {16, 5}} {
		t.Run(fmt.Sprintf("first=%d", tt.first), func(t *testing.T) {
			ranktest.Each(t, []int{tt.n}, func(ctx context.Context, c *rank.Comm) error { return useIntercomm(ctx, c, tt.first) })
		})
	}
}

func useIntercomm(ctx context.Context, c *rank.Comm, first int) error {
	local, inter, err := parted(ctx, c, first)
	if err != nil {
		return err
	}
	remote := c.Size() - local.Size()
	if !inter.IsInter() || local.IsInter() || inter.Size() != local.Size() || inter.Rank() != local.Rank() || inter.RemoteSize() != remote || local.RemoteSize() != 0 {
		return fmt.Errorf("rank %d of %d with %d others, want %d of %d with %d", inter.Rank(), inter.Size(), inter.RemoteSize(), local.Rank(), local.Size(), remote)
	}
	both := inter.Group().Union(inter.RemoteGroup())
	if both.Size() != c.Size() || inter.RemoteGroup().Rank() != rank.Undefined || local.RemoteGroup().Size() != 0 {
		return fmt.Errorf("the groups together have %d of %d ranks", both.Size(), c.Size())
	}
	dup, err := inter.Dup(ctx)
	if err != nil {
		return err
	}
	if got := rank.Compare(dup, inter); got != rank.Congruent || rank.Compare(inter, local) != rank.Unequal {
		return fmt.Errorf("a dup is %v", got)
	}
	// Everybody exchanges with all of the other group, short and long messages. In
	// a step the ranks whose sum is the step's number meet.
	steps := max(local.Size(), remote)
	for i, x := range []*rank.Comm{inter, dup} {
		for _, n := range []int{1, 3000} {
			for step := range steps {
				to := (step - inter.Rank() + steps) % steps
				if to >= remote {
					continue
				}
				got := make([]int32, n)
				st, err := rank.Sendrecv(ctx, x, fill(make([]int32, n), c.Rank(), i), to, 5, got, to, 5)
				if err != nil {
					return err
				}
				from := to
				if c.Rank() < first {
					from += first
				}
				if st.Source != to {
					return fmt.Errorf("a message of %d, want %d", st.Source, to)
				}
				if err := diff("message", got, fill(make([]int32, n), from, i)); err != nil {
					return err
				}
			}
		}
		if err := rank.Barrier(ctx, x); err != nil {
			return err
		}
	}
	// Pairs of one rank of each side, and who has no partner gets none.
	pair, err := inter.Split(ctx, inter.Rank(), 0)
	if err != nil {
		return err
	}
	if (pair != nil) != (inter.Rank() < min(local.Size(), remote)) {
		return fmt.Errorf("rank %d of %d with %d others has pair %v", inter.Rank(), inter.Size(), remote, pair)
	}
	if pair != nil {
		got := []int{0}
		if _, err := rank.Sendrecv(ctx, pair, []int{inter.Rank()}, 0, 0, got, rank.AnySource, 0); err != nil || got[0] != inter.Rank() {
			return fmt.Errorf("in pair %d: %d, %v", inter.Rank(), got[0], err)
		}
	}
	// The second part first, and then by the order of the world.
	for i, high := range []bool{c.Rank() < first, true} {
		whole, err := inter.Merge(ctx, high)
		if err != nil {
			return err
		}
		want := c.Rank()
		if i == 0 {
			want = (c.Rank() - first + c.Size()) % c.Size()
		}
		if whole.IsInter() || whole.Size() != c.Size() || whole.Rank() != want {
			return fmt.Errorf("merged with high %v: rank %d of %d, want %d", high, whole.Rank(), whole.Size(), want)
		}
		if err := roll(ctx, whole); err != nil {
			return err
		}
	}
	if err := inter.Free(ctx); err != nil {
		return err
	}
	if err := rank.Barrier(ctx, inter); !errors.Is(err, rank.ErrFreed) {
		return fmt.Errorf("after Free: %v", err)
	}
	return dup.Disconnect(ctx)
}

func TestIntercommFaults(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Each(t, []int{4}, func(ctx context.Context, c *rank.Comm) error {
		local, err := c.Split(ctx, c.Rank()/2, 0)
		if err != nil {
			return err
		}
		other := (c.Rank()/2*2 + 2) % 4 // the other side's first rank
		for _, tt := range []struct {
			name  string
			call  func() (*rank.Comm, error)
			class rank.Class
		}{
			{"leader", func() (*rank.Comm, error) { return rank.CreateIntercomm(ctx, local, 2, c, other, 0) }, rank.ClassRank},
			{"leaders", func() (*rank.Comm, error) { return rank.CreateIntercomm(ctx, local, local.Rank(), c, other, 0) }, rank.ClassArg},
			{"nil", func() (*rank.Comm, error) { return rank.CreateIntercomm(ctx, nil, 0, c, other, 0) }, rank.ClassComm},
			{"overlap", func() (*rank.Comm, error) { return rank.CreateIntercomm(ctx, c, 0, c, 1, 0) }, rank.ClassRank},
			{"no leader", func() (*rank.Comm, error) { return rank.CreateIntercomm(ctx, local, 0, c, rank.ProcNull, 0) }, rank.ClassRank},
			{"merge", func() (*rank.Comm, error) { return c.Merge(ctx, false) }, rank.ClassComm},
		} {
			d, err := tt.call()
			if d != nil || err == nil {
				return fmt.Errorf("%s: %v, %v", tt.name, d, err)
			}
			// Only the leader may know what exactly is wrong.
			if c.Rank() == 0 && !errors.Is(err, tt.class) {
				return fmt.Errorf("%s: %v is %v, want %v", tt.name, err, rank.ClassOf(err), tt.class)
			}
		}
		// Who gives up in a collective is named as the peer on the other side, and in
		// words on its own.
		leader := c.Rank() / 2 * 2
		inter, err := rank.CreateIntercomm(ctx, local, 0, c, (leader+2)%4, 0)
		if err != nil {
			return err
		}
		if c.Rank() == 0 {
			ended, cancel := context.WithCancel(ctx)
			cancel()
			if err := rank.Barrier(ended, inter); !errors.Is(err, context.Canceled) {
				return fmt.Errorf("barrier with an ended context: %v", err)
			}
		}
		if err := rank.Barrier(ctx, c); err != nil {
			return err
		}
		err = twice(ctx, inter)
		e, ok := errors.AsType[*rank.Error](err)
		if !ok || !errors.Is(err, rank.ErrRevoked) {
			return fmt.Errorf("barrier on a revoked intercommunicator: %v", err)
		}
		switch {
		case c.Rank() == 1 && (e.Peer != -1 || !strings.Contains(err.Error(), "rank 0 of the local group")), c.Rank() >= 2 && e.Peer != 0:
			return fmt.Errorf("rank 0 is not named: %v", err)
		}
		// The other side does not come: the leader gives up, and its group with it.
		if c.Rank() < 2 {
			// Long enough for the two to agree among themselves, which they do first.
			if err := rank.Barrier(ctx, local); err != nil {
				return err
			}
			begin := time.Now()
			mine := ctx
			if local.Rank() == 0 {
				short, cancel := context.WithTimeout(ctx, time.Second)
				defer cancel()
				mine = short
			}
			if _, err := rank.CreateIntercomm(mine, local, 0, c, other, 0); err == nil {
				return errors.New("an intercommunicator with nobody")
			}
			if took := time.Since(begin); took > testenv.Limit(20*time.Second) {
				return fmt.Errorf("gave up after %v", took)
			}
			if err := rank.Barrier(ctx, local); err != nil {
				return fmt.Errorf("the local communicator does not serve any more: %w", err)
			}
		}
		return rank.Barrier(ctx, c)
	})
}
