package rank_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rank"
	"github.com/gorun-mpi/gorun/rank/ranktest"
)

// groupSizes are the numbers of ranks of the suites about communicators.
func groupSizes() []int {
	if testing.Short() {
		return []int{1, 2, 3, 4, 7}
	}
	return []int{1, 2, 3, 4, 7, 8, 16}
}

// members are the ranks in the world of a communicator's group.
func members(c *rank.Comm) []int {
	ranks := make([]int, c.Size())
	for i := range ranks {
		ranks[i] = i
	}
	to, err := c.Group().Translate(ranks, c.World().Group())
	if err != nil {
		panic(err)
	}
	return to
}

// roll has all ranks of a communicator say who they are.
func roll(ctx context.Context, c *rank.Comm) error {
	all := make([]int, c.Size())
	if err := rank.Allgather(ctx, c, []int{c.World().Comm().Rank()}, all); err != nil {
		return err
	}
	return diff("roll of "+c.Name(), all, members(c))
}

func groupOf(c *rank.Comm, ranks []int) rank.Group {
	g, err := c.World().Group().Incl(ranks)
	if err != nil {
		panic(err)
	}
	return g
}

// Disjoint groups of one call, with ranks in none.
func TestCreate(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Each(t, groupSizes(), func(ctx context.Context, c *rank.Comm) error {
		// Thirds of the ranks, backwards, the last third in none.
		var mine []int
		for r := c.Size() - 1; r >= 0; r-- {
			if r%3 == c.Rank()%3 && r%3 != 2 {
				mine = append(mine, r)
			}
		}
		d, err := c.Create(ctx, groupOf(c, mine))
		if err != nil {
			return err
		}
		if d == nil {
			if len(mine) != 0 {
				return fmt.Errorf("no communicator of %v", mine)
			}
			return rank.Barrier(ctx, c)
		}
		if err := diff("members", members(d), mine); err != nil {
			return err
		}
		if err := roll(ctx, d); err != nil {
			return err
		}
		if err := d.Free(ctx); err != nil {
			return err
		}
		return rank.Barrier(ctx, c)
	})
}

// What is wrong on one rank is told to all, and harms nothing.
func TestCreateRefusesTogether(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Each(t, []int{2, 5}, func(ctx context.Context, c *rank.Comm) error {
		half, err := c.Split(ctx, c.Rank()/2, 0)
		if err != nil {
			return err
		}
		whole := c.Group()
		if half.Size() != c.Size() {
			// Ranks that are not in half.
			if _, err := half.Create(ctx, whole); !errors.Is(err, rank.ClassGroup) {
				return fmt.Errorf("a group beyond the communicator: %v, want %v", err, rank.ClassGroup)
			}
		}
		g := whole
		if c.Rank() == 1 {
			if g, err = whole.Excl([]int{0}); err != nil {
				return err
			}
		}
		// Rank 1 does without rank 0, who wants everybody.
		if d, err := c.Create(ctx, g); !errors.Is(err, rank.ClassGroup) {
			return fmt.Errorf("different groups: %v, %v; want %v", d, err, rank.ClassGroup)
		}
		color := 0
		if c.Rank() == 1 {
			color = -7
		}
		_, err = c.Split(ctx, color, 0)
		if e, ok := errors.AsType[*rank.Error](err); !ok || !errors.Is(err, rank.ErrArgument) || c.Rank() != 1 && e.Peer != 1 {
			return fmt.Errorf("a bad color of rank 1: %v", err)
		}
		return rank.Barrier(ctx, c)
	})
}

func TestSplitType(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Each(t, []int{1, 4}, func(ctx context.Context, c *rank.Comm) error {
		for _, kind := range []rank.SplitKind{rank.TypeShared, rank.TypeHost} {
			d, err := c.SplitType(ctx, kind, -c.Rank())
			if err != nil {
				return err
			}
			if d.Size() != c.Size() || d.Rank() != c.Size()-1-c.Rank() {
				return fmt.Errorf("kind %d: rank %d of %d", kind, d.Rank(), d.Size())
			}
		}
		if d, err := c.SplitType(ctx, rank.Undefined, 0); d != nil || err != nil {
			return fmt.Errorf("undefined kind: %v, %v", d, err)
		}
		if _, err := c.SplitType(ctx, 9, 0); !errors.Is(err, rank.ErrArgument) {
			return fmt.Errorf("kind 9: %v", err)
		}
		kind := rank.TypeShared
		if c.Rank() == 1 {
			kind = rank.TypeHost
		}
		if d, err := c.SplitType(ctx, kind, 0); c.Size() > 1 && !errors.Is(err, rank.ErrArgument) {
			return fmt.Errorf("different kinds: %v, %v", d, err)
		}
		return nil
	})
}

// Groups that overlap, made at the same time in different orders: tags keep them
// apart. Those of even and odd ranks share a tag.
func TestCreateGroup(t *testing.T) {
	testenv.NoLeaks(t)
	ranktest.Each(t, groupSizes(), func(ctx context.Context, c *rank.Comm) error {
		n := c.Size()
		parity := slices.DeleteFunc(members(c), func(r int) bool { return r%2 != c.Rank()%2 })
		upper := members(c)[n/2:]
		slices.Reverse(upper)
		make1 := func() (*rank.Comm, error) { return c.CreateGroup(ctx, groupOf(c, parity), 1) }
		make2 := func() (*rank.Comm, error) { return c.CreateGroup(ctx, groupOf(c, upper), 2) }
		one, err := make1()
		if err != nil {
			return err
		}
		two, err := make2()
		if err != nil {
			return err
		}
		if err := diff("parity", members(one), parity); err != nil {
			return err
		}
		if err := roll(ctx, one); err != nil {
			return err
		}
		if (two != nil) != slices.Contains(upper, c.Rank()) {
			return fmt.Errorf("rank %d has %v of group %v", c.Rank(), two, upper)
		}
		if two != nil {
			if err := diff("upper", members(two), upper); err != nil {
				return err
			}
			if err := roll(ctx, two); err != nil {
				return err
			}
			if err := two.Free(ctx); err != nil {
				return err
			}
		}
		return one.Free(ctx)
	})
}

func TestCreateGroupFaults(t *testing.T) {
	testenv.NoLeaks(t)
	t.Run("arguments", func(t *testing.T) {
		ranktest.Run(t, 3, func(ctx context.Context, c *rank.Comm) error {
			if _, err := c.CreateGroup(ctx, c.Group(), -3); !errors.Is(err, rank.ClassTag) {
				return fmt.Errorf("tag -3: %v", err)
			}
			s, err := c.Split(ctx, c.Rank(), 0)
			if err != nil {
				return err
			}
			if _, err := s.CreateGroup(ctx, c.Group(), 0); !errors.Is(err, rank.ClassGroup) {
				return fmt.Errorf("a group beyond the communicator: %v", err)
			}
			// The same ranks in another order on rank 2.
			order := []int{0, 1, 2}
			if c.Rank() == 2 {
				order = []int{1, 0, 2}
			}
			if _, err := c.CreateGroup(ctx, groupOf(c, order), 0); !errors.Is(err, rank.ClassGroup) {
				return fmt.Errorf("different groups: %v", err)
			}
			return rank.Barrier(ctx, c)
		})
	})
	t.Run("one gives up", func(t *testing.T) {
		ranktest.Each(t, []int{2, 3, 5, 8}, func(ctx context.Context, c *rank.Comm) error {
			d, err := c.Dup(ctx)
			if err != nil {
				return err
			}
			mine := ctx
			if c.Rank() == 1 {
				ended, cancel := context.WithCancel(ctx)
				cancel()
				mine = ended
			}
			begin := time.Now()
			if _, err := d.CreateGroup(mine, d.Group(), 4); err == nil {
				return errors.New("a communicator was made with a rank whose context had ended")
			}
			if took := time.Since(begin); took > testenv.Limit(20*time.Second) {
				return fmt.Errorf("the others learned of it after %v", took)
			}
			return rank.Barrier(ctx, c)
		})
	})
}

// The members come only when the one that gives up has left the call. No message can
// leave before over a connection that is still to be made.
func TestCreateGroupTellsLateMembers(t *testing.T) {
	testenv.NoLeaks(t)
	for _, n := range []int{2, 3, 5, 8} {
		for device := range uint64(4) {
			t.Run(fmt.Sprintf("n=%d/device=%d", n, device), func(t *testing.T) {
				left := make(chan struct{})
				ranktest.RunSeed(t, n, device, func(ctx context.Context, c *rank.Comm) error {
					mine := ctx
					if c.Rank() == 1 {
						ended, cancel := context.WithCancel(ctx)
						cancel()
						mine = ended
					} else {
						<-left
					}
					_, err := c.CreateGroup(mine, c.Group(), 4)
					if c.Rank() == 1 {
						close(left)
					}
					if err == nil {
						return errors.New("a communicator was made with a rank whose context had ended")
					}
					return nil
				})
			})
		}
	}
}

// A model communicator of the flood: who is in it, and this rank's handle.
type model struct {
	id   int
	ours *rank.Comm // nil where this rank is in none
	// left and right are the groups of an intercommunicator; right is empty of
	// another one.
	left, right []int
	seen        map[int]int // the last round of a message, by source
}

// partners are whom a rank sends to, and as many messages it gets in a round.
func (m *model) partners(self int) (to []int) {
	other := m.left
	if len(m.right) > 0 && slices.Contains(m.left, self) {
		other = m.right
	}
	for r, world := range other {
		if world != self || len(m.right) > 0 {
			to = append(to, r)
		}
	}
	return to
}

// Communicators of random overlapping groups come and go, by all the ways there
// are, in the same order on all ranks. In each round everybody sends to everybody
// on each of them, with the same tag, and gets on each what was sent on it;
// communicators are freed with messages on their way.
func TestContextsNeverMix(t *testing.T) {
	testenv.NoLeaks(t)
	for seed := range uint64(6) {
		for _, device := range []uint64{0, seed + 1} {
			n := 2 + int(seed)
			t.Run(fmt.Sprintf("n=%d/seed=%d/device=%d", n, seed, device), func(t *testing.T) {
				ranktest.RunSeed(t, n, device, func(ctx context.Context, c *rank.Comm) error { return flood(ctx, c, seed) })
			})
		}
	}
}

func flood(ctx context.Context, c *rank.Comm, seed uint64) error {
	rnd := rand.New(rand.NewPCG(seed, 99)) // the same on all ranks
	self := c.Rank()
	all := members(c)
	open := []*model{{ours: c, left: all, seen: make(map[int]int)}}
	ids := 0
	add := func(d *rank.Comm, left, right []int) {
		ids++
		open = append(open, &model{id: ids, ours: d, left: left, right: right, seen: make(map[int]int)})
	}
	for round := 1; round <= 12; round++ {
		m := open[rnd.IntN(len(open))]
		switch kind := rnd.IntN(6); {
		case kind == 0:
			var d *rank.Comm
			if m.ours != nil {
				var err error
				if d, err = m.ours.Dup(ctx); err != nil {
					return err
				}
			}
			add(d, m.left, m.right)
		case kind == 1 && len(m.right) == 0: // two colors
			cut := rnd.IntN(len(m.left) + 1)
			var halves [2][]int
			for place, r := range m.left {
				color := 0
				if place >= cut {
					color = 1
				}
				halves[color] = append(halves[color], r)
			}
			var d *rank.Comm
			if m.ours != nil {
				color := 0
				if slices.Contains(halves[1], self) {
					color = 1
				}
				var err error
				if d, err = m.ours.Split(ctx, color, 0); err != nil {
					return err
				}
			}
			for _, half := range halves {
				if len(half) > 0 {
					mine := d
					if !slices.Contains(half, self) {
						mine = nil
					}
					add(mine, half, nil)
				}
			}
		case kind == 2 && len(m.right) == 0: // by its members only
			order := rnd.Perm(len(m.left))[:1+rnd.IntN(len(m.left))]
			var group []int
			for _, place := range order {
				group = append(group, m.left[place])
			}
			var d *rank.Comm
			if slices.Contains(group, self) {
				var err error
				if d, err = m.ours.CreateGroup(ctx, groupOf(c, group), 5); err != nil {
					return err
				}
			}
			add(d, group, nil)
		case kind == 3 && len(m.right) == 0 && len(m.left) > 1: // an intercommunicator of two parts
			cut := 1 + rnd.IntN(len(m.left)-1)
			left, right := m.left[:cut], m.left[cut:]
			var d *rank.Comm
			if m.ours != nil {
				color := 0
				if slices.Contains(right, self) {
					color = 1
				}
				s, err := m.ours.Split(ctx, color, 0)
				if err != nil {
					return err
				}
				remote := cut
				if color == 1 {
					remote = 0
				}
				if d, err = rank.CreateIntercomm(ctx, s, 0, m.ours, remote, 5); err != nil {
					return err
				}
				if err := s.Free(ctx); err != nil {
					return err
				}
			}
			add(d, left, right)
		case kind == 4 && len(m.right) > 0:
			var d *rank.Comm
			if m.ours != nil {
				var err error
				if d, err = m.ours.Merge(ctx, slices.Contains(m.right, self)); err != nil {
					return err
				}
			}
			add(d, slices.Concat(m.left, m.right), nil)
		case kind == 5 && m.id != 0:
			if m.ours != nil {
				for _, to := range m.partners(self) { // in vain
					if err := rank.Send(ctx, m.ours, []int{-m.id, round, m.ours.Rank()}, to, 7); err != nil {
						return err
					}
				}
				if err := m.ours.Free(ctx); err != nil {
					return err
				}
			}
			open = slices.DeleteFunc(open, func(o *model) bool { return o == m })
		}
		for _, m := range open {
			if m.ours == nil {
				continue
			}
			if want := slices.Index(m.left, self); len(m.right) == 0 && (m.ours.Rank() != want || m.ours.Size() != len(m.left)) {
				return fmt.Errorf("%s: rank %d of %d, want %d of %d", m.ours.Name(), m.ours.Rank(), m.ours.Size(), want, len(m.left))
			}
			for _, to := range m.partners(self) {
				if err := rank.Send(ctx, m.ours, []int{m.id, round, m.ours.Rank()}, to, 7); err != nil {
					return err
				}
			}
		}
		order := rand.New(rand.NewPCG(seed, uint64(self))).Perm(len(open))
		for _, i := range order {
			m := open[i]
			if m.ours == nil {
				continue
			}
			for range m.partners(self) {
				got := make([]int, 3)
				st, err := rank.Recv(ctx, m.ours, got, rank.AnySource, rank.AnyTag)
				if err != nil {
					return err
				}
				// One that is ahead may have sent for later rounds, or in vain.
				if got[0] != m.id && got[0] != -m.id || got[1] <= m.seen[st.Source] || got[2] != st.Source {
					return fmt.Errorf("round %d, %s (%d): got %v of rank %d, whose last round was %d",
						round, m.ours.Name(), m.id, got, st.Source, m.seen[st.Source])
				}
				m.seen[st.Source] = got[1]
			}
		}
	}
	return nil
}
