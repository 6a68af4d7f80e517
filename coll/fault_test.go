package coll

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/kernel"
	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/internal/wait"
	"github.com/gorun-mpi/gorun/rdma"
	"github.com/gorun-mpi/gorun/rdma/soft"
)

// errorsOf has all members make a team and run f, and gives what each returned.
func (nw *network) errorsOf(t *testing.T, f func(ctx context.Context, m *member) error) []error {
	t.Helper()
	errs := make([]error, nw.n)
	var mu sync.Mutex
	nw.run(t, func(ctx context.Context, m *member) error {
		err := f(ctx, m)
		mu.Lock()
		defer mu.Unlock()
		errs[m.rank] = err
		return nil
	})
	return errs
}

func TestMismatchIsReportedByBothSides(t *testing.T) {
	sum, _ := kernel.For(kernel.Int32, kernel.Sum)
	most, _ := kernel.For(kernel.Int32, kernel.Max)
	cases := []struct {
		name string
		do   [2]func(ctx context.Context, t *Team, in, out Buffer) error
		want [2]string // of each side's call
	}{
		{"alltoall of other sizes",
			[2]func(ctx context.Context, t *Team, in, out Buffer) error{
				func(ctx context.Context, t *Team, in, out Buffer) error { return t.AllToAll(ctx, in, out, 8, Auto) },
				func(ctx context.Context, t *Team, in, out Buffer) error { return t.AllToAll(ctx, in, out, 16, Auto) },
			}, [2]string{"alltoall of 8 bytes", "alltoall of 16 bytes"}},
		{"one in messages, one by descriptor",
			[2]func(ctx context.Context, t *Team, in, out Buffer) error{
				func(ctx context.Context, t *Team, in, out Buffer) error { return t.AllToAll(ctx, in, out, 8, Auto) },
				func(ctx context.Context, t *Team, in, out Buffer) error { return t.AllToAll(ctx, in, out, 10000, Auto) },
			}, [2]string{"alltoall of 8 bytes", "alltoall of 10000 bytes"}},
		{"other collectives",
			[2]func(ctx context.Context, t *Team, in, out Buffer) error{
				func(ctx context.Context, t *Team, in, out Buffer) error { return t.Barrier(ctx) },
				func(ctx context.Context, t *Team, in, out Buffer) error { return t.AllReduce(ctx, in, out, 5, sum) },
			}, [2]string{"barrier", "allreduce of 20 bytes"}},
		{"a root that sends more than a message holds",
			[2]func(ctx context.Context, t *Team, in, out Buffer) error{
				func(ctx context.Context, t *Team, in, out Buffer) error { return t.Bcast(ctx, out, 8, 1) },
				func(ctx context.Context, t *Team, in, out Buffer) error { return t.Bcast(ctx, out, 10000, 1) },
			}, [2]string{"bcast of 8 bytes with root 1", "bcast of 10000 bytes with root 1"}},
		{"a root that expects more than a message holds",
			[2]func(ctx context.Context, t *Team, in, out Buffer) error{
				func(ctx context.Context, t *Team, in, out Buffer) error {
					return t.Run(ctx, &Args{Kind: Gather, Send: in, Recv: out, Bytes: 8, Root: 1})
				},
				func(ctx context.Context, t *Team, in, out Buffer) error {
					return t.Run(ctx, &Args{Kind: Gather, Send: in, Recv: out, Bytes: 10000, Root: 1})
				},
			}, [2]string{"with root 1", "gather of 10000 bytes with root 1"}},
		{"each waits for the other to begin",
			[2]func(ctx context.Context, t *Team, in, out Buffer) error{
				func(ctx context.Context, t *Team, in, out Buffer) error { return t.Bcast(ctx, out, 8, 1) },
				func(ctx context.Context, t *Team, in, out Buffer) error { return t.Bcast(ctx, out, 8, 0) },
			}, [2]string{"bcast of 8 bytes with root 1", "bcast of 8 bytes with root 0"}},
		{"other operations",
			[2]func(ctx context.Context, t *Team, in, out Buffer) error{
				func(ctx context.Context, t *Team, in, out Buffer) error { return t.AllReduce(ctx, in, out, 5, most) },
				func(ctx context.Context, t *Team, in, out Buffer) error { return t.AllReduce(ctx, in, out, 5, sum) },
			}, [2]string{"allreduce of 20 bytes", "allreduce of 20 bytes"}},
	}
	for _, c := range cases {
		for _, n := range []int{2, 4} {
			t.Run(c.name, func(t *testing.T) {
				nw := network{n: n}
				errs := nw.errorsOf(t, func(ctx context.Context, m *member) error {
					in, out := Buffer{Mem: make([]byte, n*16384)}, Buffer{Mem: make([]byte, n*16384)}
					odd := 0
					if m.rank == 1 {
						odd = 1 // rank 1 against all the others
					}
					err := c.do[odd](ctx, m.team, in, out)
					if again := m.team.Barrier(ctx); err == nil {
						err = again // its own call needed nothing of the odd one
					} else if again != err {
						t.Errorf("rank %d: the next call returned %v, want the same error again", m.rank, again)
					}
					return err
				})
				for r, err := range errs {
					var e *Error
					if !errors.As(err, &e) || e.Rank != r {
						t.Errorf("rank %d returned %v, want an *Error of that rank", r, err)
						continue
					}
					if !errors.Is(err, ErrMismatch) && !errors.Is(err, ErrRevoked) {
						t.Errorf("rank %d returned %v, want a mismatch", r, err)
					}
					if n == 2 && (!errors.Is(err, ErrMismatch) || !strings.Contains(err.Error(), c.want[0]) || !strings.Contains(err.Error(), c.want[1])) {
						t.Errorf("rank %d returned %q, want both %q and %q", r, err, c.want[0], c.want[1])
					}
				}
			})
		}
	}
}

// A member that reaches less memory than the others: none of them makes a plan that
// needs it.
func TestMembersReachOtherMemory(t *testing.T) {
	nw := network{n: 3, blind: true}
	nw.run(t, func(ctx context.Context, m *member) error {
		if m.team.tuning.mapped {
			return errors.New("it counts on memory that member 0 does not map")
		}
		for k := Barrier; k < farewell; k++ {
			for _, a := range Algorithms(k) {
				if err := m.check(ctx, newJob(rand.New(rand.NewPCG(1, uint64(k))), k, a, nw.n, 20000), true); err != nil {
					return fmt.Errorf("%v by %v: %w", k, a, err)
				}
			}
		}
		return nil
	})
}

// gone is the memory of a peer that has left.
type gone struct{ rdma.PeerMemory }

func (gone) Map(uint64, uint32, int, rdma.Access) ([]byte, error) { return nil, rdma.ErrInvalid }

// Memory that cannot be mapped in the middle of a call is the peer's death, or else
// told as what it is: never a mismatch.
func TestMemoryOfTheDead(t *testing.T) {
	for _, died := range []bool{true, false} {
		var dead atomic.Bool
		nw := network{n: 2, change: func(cfg *TeamConfig) {
			cfg.PeerDead = func(member int) bool { return member == 1 && dead.Load() }
		}}
		errs := nw.errorsOf(t, func(ctx context.Context, m *member) error {
			if m.rank == 0 {
				if !m.team.reach(1) {
					return errors.New("it cannot be reached")
				}
				m.team.peers[1].memory = gone{m.team.peers[1].memory}
				dead.Store(died)
			}
			return m.check(ctx, newJob(rand.New(rand.NewPCG(1, 2)), AllReduce, ReduceScatterGather, nw.n, 20000), true)
		})
		want := errUnmapped
		if died {
			want = ErrPeerDead
		}
		if !errors.Is(errs[0], want) {
			t.Errorf("died: %v: rank 0 returned %v, want %v", died, errs[0], want)
		}
		if !errors.Is(errs[1], ErrRevoked) {
			t.Errorf("died: %v: rank 1 returned %v, want that it is revoked", died, errs[1])
		}
	}
}

func TestExpiredContextRevokesTheTeam(t *testing.T) {
	const n = 3
	nw := network{n: n}
	revoked := make(chan struct{})
	errs := nw.errorsOf(t, func(ctx context.Context, m *member) error {
		switch m.rank {
		case 0: // comes when all is over
			<-revoked
			// All have signaled this one before the team broke.
			return errors.Join(m.team.Barrier(ctx), m.team.Barrier(ctx))
		case 1: // loses patience
			short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
			defer cancel()
			return m.team.Barrier(short)
		}
		defer close(revoked)
		return m.team.Barrier(ctx)
	})
	if !errors.Is(errs[1], context.DeadlineExceeded) {
		t.Errorf("rank 1 returned %v, want its context's error", errs[1])
	}
	for _, r := range []int{0, 2} {
		if !errors.Is(errs[r], ErrRevoked) || !strings.Contains(errs[r].Error(), "by rank 1") {
			t.Errorf("rank %d returned %v, want revoked by rank 1", r, errs[r])
		}
	}
}

func TestDeadPeerEndsTheWait(t *testing.T) {
	var dead atomic.Bool
	nw := network{n: 3, change: func(cfg *TeamConfig) {
		cfg.PeerDead = func(member int) bool { return member == 2 && dead.Load() }
	}}
	errs := nw.errorsOf(t, func(ctx context.Context, m *member) error {
		if m.rank == 2 {
			dead.Store(true)
			return nil
		}
		return m.team.AllToAll(ctx, Buffer{Mem: make([]byte, 24)}, Buffer{Mem: make([]byte, 24)}, 8, Auto)
	})
	for r := range 2 {
		var e *Error
		if !errors.As(errs[r], &e) || !errors.Is(e, ErrPeerDead) && !errors.Is(e, ErrRevoked) || e.Op != "alltoall" {
			t.Errorf("rank %d returned %v, want that its peer has died", r, errs[r])
		}
	}
}

func TestFailedConnectionEndsTheWait(t *testing.T) {
	nw := network{n: 2, verbs: true}
	cut := make(chan struct{})
	errs := nw.errorsOf(t, func(ctx context.Context, m *member) error {
		if m.rank == 0 {
			defer close(cut)
			if err := m.qps[1].Modify(rdma.QPAttr{State: rdma.StateErr}, rdma.QPStateMask); err != nil {
				return err
			}
			return m.team.Barrier(ctx)
		}
		<-cut
		return m.team.Barrier(ctx)
	})
	for r, err := range errs {
		var status rdma.WCStatus
		if !errors.As(err, &status) {
			t.Errorf("rank %d returned %v, want a completion's status", r, err)
		}
	}
}

func TestBadArguments(t *testing.T) {
	sum, _ := kernel.For(kernel.Int32, kernel.Sum)
	mem := make([]byte, 1024)
	buf := func(n int) Buffer { return Buffer{Mem: make([]byte, n)} }
	cases := []struct {
		name string
		do   func(ctx context.Context, t *Team, foreign rdma.MR) error
		want string
	}{
		{"short send", func(ctx context.Context, t *Team, _ rdma.MR) error { return t.AllToAll(ctx, buf(15), buf(16), 8, Auto) }, "send buffer has 15 bytes, 16 are needed"},
		{"short receive", func(ctx context.Context, t *Team, _ rdma.MR) error { return t.AllToAll(ctx, buf(16), buf(15), 8, Auto) }, "receive buffer has 15 bytes"},
		{"negative block", func(ctx context.Context, t *Team, _ rdma.MR) error { return t.AllGather(ctx, buf(16), buf(15), -8) }, "-8 bytes"},
		{"huge block", func(ctx context.Context, t *Team, _ rdma.MR) error {
			return t.AllToAll(ctx, buf(16), buf(15), 1<<62, Auto)
		}, "bytes"},
		{"overlap", func(ctx context.Context, t *Team, _ rdma.MR) error {
			return t.AllToAll(ctx, Buffer{Mem: mem[8:24]}, Buffer{Mem: mem[:16]}, 8, Auto)
		}, "overlap"},
		{"overlap of vectors", func(ctx context.Context, t *Team, _ rdma.MR) error {
			return t.AllReduce(ctx, Buffer{Mem: mem[4:24]}, Buffer{Mem: mem[:20]}, 5, sum)
		}, "overlap"},
		{"root too large", func(ctx context.Context, t *Team, _ rdma.MR) error { return t.Bcast(ctx, buf(16), 8, 2) }, "root 2 in a team of 2"},
		{"root negative", func(ctx context.Context, t *Team, _ rdma.MR) error {
			return t.Reduce(ctx, buf(16), buf(16), 4, sum, -1)
		}, "root -1"},
		{"short broadcast", func(ctx context.Context, t *Team, _ rdma.MR) error { return t.Bcast(ctx, buf(7), 8, 0) }, "broadcast buffer has 7 bytes"},
		{"no reduction", func(ctx context.Context, t *Team, _ rdma.MR) error {
			return t.AllReduce(ctx, buf(16), buf(16), 4, kernel.Reduction{})
		}, "no reduction"},
		{"negative count", func(ctx context.Context, t *Team, _ rdma.MR) error {
			return t.ReduceScatter(ctx, buf(16), buf(16), -1, sum)
		}, "-1 bytes"},
		{"unfit algorithm", func(ctx context.Context, t *Team, _ rdma.MR) error {
			return t.AllToAll(ctx, buf(16), buf(16), 8, Binomial)
		}, "alltoall has no algorithm binomial"},
		{"other region", func(ctx context.Context, t *Team, mr rdma.MR) error {
			return t.AllToAll(ctx, buf(32768), Buffer{Mem: make([]byte, 32768), MR: mr}, 16384, Auto)
		}, "does not lie in its region"},
	}
	nw := network{n: 2}
	nw.run(t, func(ctx context.Context, m *member) error {
		mr, err := m.pd.AllocMR(64, rdma.AccessLocalWrite)
		if err != nil {
			return err
		}
		defer mr.Close()
		for _, c := range cases {
			err := c.do(ctx, m.team, mr)
			if !errors.Is(err, ErrArgument) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: got %v, want %q", c.name, err, c.want)
			}
		}
		return m.team.Barrier(ctx) // the team is as it was
	})
}

func TestTeamsOfOneMesh(t *testing.T) {
	testenv.NoLeaks(t)
	// Two teams on the same queue pairs, of members in other orders, used by
	// two goroutines of each member at once.
	nw := network{n: 3, adversary: &soft.Adversary{Seed: 3}, change: func(cfg *TeamConfig) {
		cfg.Waiter = wait.New(wait.Config{Scheduler: true, Oversubscribed: true}) // a Sleeper serves one goroutine
	}}
	nw.open(t)
	ctx := testenv.Deadline(t, time.Minute)
	const other = 2
	meet := newMeeting(other)
	nw.each(t, func(m *member) error {
		var err error
		if m.team, err = NewTeam(ctx, nw.config(m, nw.meeting.exchange(m.rank))); err != nil {
			return err
		}
		list := jobs(5, 3, 30, 2048, 20000)
		done := make(chan error, 1)
		go func() {
			done <- func() error {
				if m.rank == 1 {
					return nil
				}
				at := map[int]int{2: 0, 0: 1}[m.rank]
				cfg := nw.config(m, meet.exchange(at))
				cfg.Rank, cfg.Size, cfg.Members = at, other, []int{2, 0}
				team, err := NewTeam(ctx, cfg)
				if err != nil {
					return err
				}
				pair := &member{rank: at, size: other, pd: m.pd, team: team}
				for _, j := range jobs(6, other, 30, 2048, 20000) {
					if err := pair.check(ctx, j, true); err != nil {
						return err
					}
				}
				return team.Free(ctx)
			}()
		}()
		for _, j := range list {
			if err := m.check(ctx, j, true); err != nil {
				return err
			}
		}
		return errors.Join(<-done, m.team.Free(ctx))
	})
	for _, m := range nw.members {
		if n := len(m.mesh.kept); n != 0 {
			t.Errorf("rank %d: the mesh keeps %d regions of freed teams, want none", m.rank, n)
		}
	}
}

func TestClosedAndBusyTeams(t *testing.T) {
	nw := network{n: 2}
	nw.run(t, func(ctx context.Context, m *member) error {
		m.team.busy = busyCall
		if err := m.team.Barrier(ctx); !errors.Is(err, ErrBusy) {
			t.Errorf("a second call returned %v, want ErrBusy", err)
		}
		m.team.vacate()
		if err := m.team.Barrier(ctx); err != nil {
			return err
		}
		if err := m.team.Close(); err != nil {
			return err
		}
		if err := m.team.Barrier(ctx); !errors.Is(err, ErrClosed) {
			t.Errorf("a call of a closed team returned %v, want ErrClosed", err)
		}
		if err := m.team.Free(ctx); !errors.Is(err, ErrClosed) {
			t.Errorf("Free of a closed team returned %v, want ErrClosed", err)
		}
		return nil
	})
}

// A team that cannot part in good order leaves its memory to the mesh: a peer may
// still write there.
func TestFreeWithoutTheOthers(t *testing.T) {
	nw := network{n: 2}
	nw.run(t, func(ctx context.Context, m *member) error {
		if m.rank == 1 {
			return nil
		}
		gone, cancel := context.WithCancel(ctx)
		cancel()
		if err := m.team.Free(gone); !errors.Is(err, context.Canceled) {
			t.Errorf("Free returned %v, want its context's error", err)
		}
		if len(m.mesh.kept) == 0 || len(m.mesh.spares) != 0 {
			t.Error("the control region was not kept aside")
		}
		return nil
	})
}

// A team has the control region of one before it, if it is long enough: neither memory nor its registration
// is made anew. Of many that end the mesh keeps the longest.
func TestTeamsInTurn(t *testing.T) {
	nw := network{n: 4}
	atOnce, inTurn := []int{8, 16, 32}, []int{8, 16, 32, 8, 32} // slots of teams
	meetings := make([]*meeting, len(atOnce)+len(inTurn))
	for i := range meetings {
		meetings[i] = newMeeting(nw.n)
	}
	nw.run(t, func(ctx context.Context, m *member) error {
		team := func(at, slots int) (*Team, error) {
			cfg := nw.config(m, meetings[at].exchange(m.rank))
			cfg.slots = slots
			return NewTeam(ctx, cfg)
		}
		var all []*Team
		for i, slots := range atOnce {
			next, err := team(i, slots)
			if err != nil {
				return err
			}
			all = append(all, next)
		}
		keys := [...]uint32{all[1].region.RKey(), all[2].region.RKey()}
		for _, next := range all {
			if err := errors.Join(next.Barrier(ctx), next.Free(ctx)); err != nil {
				return err
			}
		}
		first := m.team
		defer func() { m.team = first }()
		j := newJob(rand.New(rand.NewPCG(1, 1)), AllReduce, Ring, nw.n, 1000)
		for i, slots := range inTurn {
			var err error
			if m.team, err = team(len(atOnce)+i, slots); err != nil {
				return err
			}
			got, want := m.team.region.RKey(), keys[slots/32]
			if err := errors.Join(m.check(ctx, j, false), m.team.Free(ctx)); err != nil {
				return err
			}
			if got != want {
				t.Errorf("rank %d: team %d, of %d slots, has the region of key %#x, want %#x of %#x", m.rank, i, slots, got, want, keys)
			}
		}
		return nil
	})
}

func TestNewTeamRefuses(t *testing.T) {
	nw := network{n: 2}
	nw.open(t)
	cases := []struct {
		name   string
		change func(*TeamConfig)
		want   string
	}{
		{"rank outside", func(cfg *TeamConfig) { cfg.Rank = 2 }, "rank 2 of 2"},
		{"slots no power of two", func(cfg *TeamConfig) { cfg.slots = 12 }, "12 slots"},
		{"no mesh", func(cfg *TeamConfig) { cfg.Mesh = nil }, "no Mesh"},
		{"member without queue pair", func(cfg *TeamConfig) { cfg.Members = []int{0, 0} }, "no queue pair to member 1"},
		{"foreign intros", func(cfg *TeamConfig) {
			cfg.Exchange = func(context.Context, []byte) ([][]byte, error) { return [][]byte{{1}, {2}}, nil }
		}, "not a team's intro"},
		{"other sizes", func(cfg *TeamConfig) {
			cfg.Exchange = func(_ context.Context, mine []byte) ([][]byte, error) {
				theirs, err := readIntro(mine)
				theirs.rank, theirs.eager = 1, 4096
				return [][]byte{mine, theirs.bytes()}, err
			}
		}, "other sizes"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			cfg := nw.config(nw.members[0], nil)
			cfg.Exchange = func(_ context.Context, mine []byte) ([][]byte, error) { return [][]byte{mine, mine}, nil }
			c.change(&cfg)
			if _, err := NewTeam(context.Background(), cfg); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// A peer that this member has given what it waits for, and that has had no time to take its word back, is in no call
// that this member has missed.
func TestMissedByPeersThatStillWait(t *testing.T) {
	nw := network{n: 2}
	through := make(chan struct{})
	nw.run(t, func(ctx context.Context, m *member) error {
		err := m.team.Barrier(ctx)
		if m.rank == 1 {
			close(through)
			return err
		}
		if <-through; err != nil { // its own word is taken back
			return err
		}
		c := &m.team.machine.channels[1]
		for name, tt := range map[string]struct {
			word   uint64
			missed bool
		}{
			"no word":              {0, false},
			"a message given":      {needMessage | uint64(c.sent), false},
			"the next message":     {needMessage | uint64(c.sent+1), true},
			"slots given":          {needSlots | uint64(c.told-1), false},
			"slots that are taken": {needSlots | uint64(c.told), true},
		} {
			if tt.word != 0 {
				tt.word |= 1 << needBits
			}
			atomic.StoreUint64(&m.team.words[m.team.layout.waits(1)/8], tt.word)
			if got := m.team.Missed(); got != tt.missed {
				t.Errorf("%s: missed %v, want %v", name, got, tt.missed)
			}
		}
		return nil
	})
}
