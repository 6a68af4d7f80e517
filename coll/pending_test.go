package coll

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/arch"
	"github.com/gorun-mpi/gorun/internal/kernel"
	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rdma"
	"github.com/gorun-mpi/gorun/rdma/soft"
)

// A flight is a call that was started, with the data that must come.
type flight struct {
	p       *Pending
	j       *job
	in, out []byte
}

// until drives the team's started calls until one of them is over.
type until struct {
	team *Team
	p    *Pending
	err  error
}

func (u *until) Ready() (over bool) {
	u.team.Progress()
	over, u.err = u.p.Done()
	return over
}

func (m *member) finish(ctx context.Context, p *Pending) error {
	u := until{team: m.team, p: p}
	if err := m.team.waiter.Wait(ctx, &u); err != nil {
		return err
	}
	return u.err
}

// land waits for a flight and compares what came.
func (m *member) land(ctx context.Context, f *flight) error {
	if err := m.finish(ctx, f.p); err != nil {
		return err
	}
	return f.compare(m.rank)
}

func (f *flight) compare(rank int) error {
	want := f.j.want(rank)
	if got := f.out; !bytes.Equal(got[:len(want)], want) {
		return fmt.Errorf("%+v: got %x, want %x", f.j.call, head(got), head(want))
	}
	if f.in != nil && !bytes.Equal(f.in, f.j.given[rank]) {
		return fmt.Errorf("%+v: the input was changed", f.j.call)
	}
	clear(f.in)
	clear(f.out)
	return nil
}

// Members start calls, up to six at a time, make blocking ones between, and ask
// for the outcomes in any order; each member in its own way.
func TestStartedCalls(t *testing.T) {
	cases := []struct {
		name    string
		ranks   []int
		network network
	}{
		{name: "mapped", ranks: []int{1, 2, 3, 4, 7}},
		{name: "verbs", ranks: []int{2, 3, 5}, network: network{verbs: true}},
		{name: "registered for the call", ranks: []int{3}, network: network{ordinary: true}},
		{name: "adversary", ranks: []int{2, 3}, network: network{adversary: &soft.Adversary{Seed: 3}}},
		{name: "two hosts", ranks: []int{3}, network: network{hosts: 2}},
	}
	for _, c := range cases {
		for _, n := range c.ranks {
			t.Run(fmt.Sprintf("%s/ranks=%d", c.name, n), func(t *testing.T) {
				testenv.NoLeaks(t)
				seeds := atLength(4, 1)
				for seed := range seeds {
					nw := c.network
					nw.n = n
					list := jobs(uint64(seed), n, 60, defaultEager, 100<<10)
					nw.run(t, func(ctx context.Context, m *member) error {
						rng := rand.New(rand.NewPCG(uint64(seed), uint64(m.rank)))
						var flying []*flight
						most := 0
						for i, j := range list {
							if rng.IntN(4) == 0 {
								if err := m.check(ctx, j, rng.IntN(2) == 0); err != nil {
									return fmt.Errorf("call %d: %w", i, err)
								}
								for _, f := range flying {
									if f.p.state.Load() != pendingOver {
										return fmt.Errorf("call %d is over, and one before it is not", i)
									}
								}
							} else {
								in, out := j.operands(m.rank)
								start := m.team.Start
								if rng.IntN(3) == 0 {
									start = m.team.Defer
								}
								p, err := start(j.args(m.rank, Buffer{Mem: in}, Buffer{Mem: out}))
								if err != nil {
									return fmt.Errorf("start of call %d: %w", i, err)
								}
								flying = append(flying, &flight{p, j, in, out})
							}
							most = max(most, len(flying))
							for len(flying) > 0 && (len(flying) > 5 || rng.IntN(3) == 0) {
								k := rng.IntN(len(flying))
								if err := m.land(ctx, flying[k]); err != nil {
									return fmt.Errorf("before call %d: %w", i, err)
								}
								flying = append(flying[:k], flying[k+1:]...)
							}
						}
						for _, f := range flying {
							if err := m.land(ctx, f); err != nil {
								return fmt.Errorf("at the end: %w", err)
							}
						}
						if made := len(m.team.backlog.all); made > most {
							return fmt.Errorf("the team made %d Pendings for %d at a time", made, most)
						}
						return nil
					})
				}
			})
		}
	}
}

// What a wait of another kind calls is enough to finish started calls.
func TestProgressOfOtherWaits(t *testing.T) {
	nw := network{n: 2}
	var teams [2]atomic.Pointer[Team]
	nw.change = func(cfg *TeamConfig) {
		rank := cfg.Rank
		cfg.Progress = func() {
			if team := teams[rank].Load(); team != nil {
				team.Progress()
			}
		}
	}
	nw.run(t, func(ctx context.Context, m *member) error {
		second := newMeeting(nw.n)
		if m.rank == 0 {
			nw.meeting = second
		}
		if err := m.team.Barrier(ctx); err != nil {
			return err
		}
		other, err := NewTeam(ctx, nw.config(m, nw.meeting.exchange(m.rank)))
		if err != nil {
			return err
		}
		teams[m.rank].Store(other)
		sum, _ := kernel.For(kernel.Int64, kernel.Sum)
		mem := make([]byte, 100<<10)
		mem[0] = byte(m.rank + 1)
		p, err := other.Start(&Args{Kind: AllReduce, Recv: Buffer{Mem: mem}, Bytes: len(mem), Reduction: sum})
		if err != nil {
			return err
		}
		if m.rank == 0 {
			// The other member only waits in a barrier of the first team.
			if err := m.finish2(ctx, other, p); err != nil {
				return err
			}
		}
		if err := m.team.Barrier(ctx); err != nil {
			return err
		}
		if m.rank == 1 {
			if err := m.finish2(ctx, other, p); err != nil {
				return err
			}
		}
		if mem[0] != 3 {
			return fmt.Errorf("the sum begins with %d, want 3", mem[0])
		}
		teams[m.rank].Store(nil)
		return other.Free(ctx)
	})
}

func (m *member) finish2(ctx context.Context, team *Team, p *Pending) error {
	u := until{team: team, p: p}
	if err := m.team.waiter.Wait(ctx, &u); err != nil {
		return err
	}
	return u.err
}

// A started call belongs to nobody's context: one that ends leaves it as it is.
func TestContextOfAWaitLeavesStartedCalls(t *testing.T) {
	nw := network{n: 2}
	given := make(chan struct{})
	nw.run(t, func(ctx context.Context, m *member) error {
		if m.rank == 1 {
			<-given
			return m.team.Barrier(ctx)
		}
		p, err := m.team.Start(&Args{Kind: Barrier})
		if err != nil {
			return err
		}
		short, cancel := context.WithTimeout(ctx, 5*time.Millisecond)
		defer cancel()
		if err := m.finish(short, p); !errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("waiting gave %v, want the context's end", err)
		}
		close(given)
		return m.finish(ctx, p)
	})
}

// All started calls hear of the team's end, whatever ended it.
func TestStartedCallsEndWithTheTeam(t *testing.T) {
	sum, _ := kernel.For(kernel.Int64, kernel.Sum)
	cases := []struct {
		name string
		odd  func(ctx context.Context, team *Team) error // what member 1 does
		want error
	}{
		{"mismatch", func(ctx context.Context, team *Team) error {
			mem := Buffer{Mem: make([]byte, 8)}
			err := team.Run(ctx, &Args{Kind: AllReduce, Recv: mem, Bytes: 8, Reduction: sum})
			if !errors.Is(err, ErrMismatch) {
				return fmt.Errorf("the other one's call returned %v, want a mismatch", err)
			}
			return nil
		}, ErrMismatch},
		{"revoked", func(_ context.Context, team *Team) error {
			team.Revoke("abort", errors.New("no more"))
			return nil
		}, ErrRevoked},
		{"context", func(ctx context.Context, team *Team) error {
			if err := team.Barrier(ctx); err != nil {
				return err
			}
			in, out := Buffer{Mem: make([]byte, 16)}, Buffer{Mem: make([]byte, 16)}
			for range 2 {
				p, err := team.Start(&Args{Kind: AllToAll, Send: in, Recv: out, Bytes: 8})
				if err != nil {
					return err
				}
				defer p.Done()
			}
			ended, cancel := context.WithCancel(ctx)
			cancel()
			for range 3 {
				if err := team.Barrier(ended); err != nil {
					return nil
				}
			}
			return errors.New("a call that nobody answers succeeded")
		}, ErrRevoked},
		{"closed with calls pending", func(_ context.Context, team *Team) error {
			// What the other member starts, and one more, which it does not answer.
			var started []*Pending
			for _, kind := range []Kind{Barrier, AllToAll, AllToAll, Barrier, Barrier} {
				a := Args{Kind: kind}
				if kind == AllToAll {
					a.Recv, a.Bytes = Buffer{Mem: make([]byte, 16)}, 8
				}
				p, err := team.Start(&a)
				if err != nil {
					return err
				}
				started = append(started, p)
			}
			if err := team.Free(context.Background()); !errors.Is(err, ErrPending) {
				return fmt.Errorf("Free returned %v, want ErrPending", err)
			}
			last := error(nil)
			for _, p := range started {
				done, err := p.Done()
				if !done {
					return errors.New("a call of a closed team is not done")
				}
				last = err
			}
			if !errors.Is(last, ErrPending) {
				return fmt.Errorf("the last call ended with %v, want ErrPending", last)
			}
			return nil
		}, ErrRevoked},
	}
	for _, c := range cases {
		for _, verbs := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/verbs=%v", c.name, verbs), func(t *testing.T) {
				nw := network{n: 2, verbs: verbs}
				over := make(chan struct{}) // the odd one is done
				nw.run(t, func(ctx context.Context, m *member) error {
					if m.rank == 1 {
						defer close(over)
						return c.odd(ctx, m.team)
					}
					var started []*Pending
					for _, a := range []Args{{Kind: Barrier}, {Kind: AllToAll, Recv: Buffer{Mem: make([]byte, 16)}, Bytes: 8},
						{Kind: AllToAll, Recv: Buffer{Mem: make([]byte, 16)}, Bytes: 8}, {Kind: Barrier}} {
						p, err := m.team.Start(&a)
						if err != nil {
							break // it is over already
						}
						started = append(started, p)
					}
					var last error
					for _, p := range started {
						if err := m.finish(ctx, p); err != nil {
							last = err
						}
					}
					<-over
					for range 2 { // the first may find the other one's message
						if last == nil {
							last = m.team.Barrier(ctx)
						}
					}
					if !errors.Is(last, c.want) && !(c.want == ErrRevoked && errors.Is(last, ErrMismatch)) {
						return fmt.Errorf("the last call ended with %v, want %v", last, c.want)
					}
					if _, err := m.team.Start(&Args{Kind: Barrier}); err == nil {
						return errors.New("Start on a broken team succeeded")
					}
					return nil
				})
			})
		}
	}
}

func TestStartRefuses(t *testing.T) {
	nw := network{n: 2}
	nw.run(t, func(ctx context.Context, m *member) error {
		if _, err := m.team.Start(&Args{Kind: Bcast, Root: 7}); !errors.Is(err, ErrArgument) {
			return fmt.Errorf("Start with root 7 of 2: %v, want ErrArgument", err)
		}
		m.team.busy = busyCall
		if _, err := m.team.Start(&Args{Kind: Barrier}); !errors.Is(err, ErrBusy) {
			return fmt.Errorf("Start beside a call: %v, want ErrBusy", err)
		}
		if m.team.Progress() {
			return errors.New("Progress beside a call says that it did something")
		}
		m.team.vacate()
		return m.team.Barrier(ctx)
	})
}

func TestStartedCallsDoNotAllocate(t *testing.T) {
	if arch.RaceEnabled {
		return // the detector allocates
	}
	const rounds = 50
	for _, verbs := range []bool{false, true} {
		nw := network{n: 2, verbs: verbs}
		nw.run(t, func(ctx context.Context, m *member) error {
			mr, err := m.pd.AllocMR(40000, rdma.AccessLocalWrite|rdma.AccessRemoteWrite|rdma.AccessRemoteRead)
			if err != nil {
				return err
			}
			defer mr.Close()
			in, out := Buffer{Mem: mr.Bytes()[:20000], MR: mr}, Buffer{Mem: mr.Bytes()[20000:], MR: mr}
			var failed error
			var us [3]until
			list := []Args{{Kind: Barrier}, {Kind: AllToAll, Send: in, Recv: out, Bytes: 8}, {Kind: AllToAll, Send: in, Recv: out, Bytes: 10000}}
			call := func() {
				for i := range list {
					p, err := m.team.Start(&list[i])
					if err != nil {
						failed = err
						return
					}
					us[i] = until{team: m.team, p: p}
				}
				for i := range us {
					if err := errors.Join(m.team.waiter.Wait(ctx, &us[i]), us[i].err); err != nil {
						failed = err
					}
				}
			}
			call()
			if m.rank == 1 {
				for range rounds + 1 {
					call()
				}
			} else if got := testing.AllocsPerRun(rounds, call); got != 0 {
				t.Errorf("%v allocations in three started calls, want 0", got)
			}
			return failed
		})
	}
}

// Calls that all members have deferred have moved nothing, and neither has a call that was
// started after one. Step completes them.
func TestDeferMovesNoData(t *testing.T) {
	for _, verbs := range []bool{false, true} {
		t.Run(fmt.Sprintf("verbs=%v", verbs), func(t *testing.T) {
			testenv.NoLeaks(t)
			nw := network{n: 2, verbs: verbs}
			both := newMeeting(2)
			sum, _ := kernel.For(kernel.Int64, kernel.Sum)
			nw.run(t, func(ctx context.Context, m *member) error {
				before := m.team.Counters()
				mem := make([]byte, 100<<10)
				mem[0] = byte(m.rank + 1)
				big, err := m.team.Defer(&Args{Kind: AllReduce, Recv: Buffer{Mem: mem}, Bytes: len(mem), Reduction: sum})
				if err != nil {
					return err
				}
				short, err := m.team.Start(&Args{Kind: Barrier})
				if err != nil {
					return err
				}
				if _, err := both.exchange(m.rank)(ctx, nil); err != nil {
					return err
				}
				if done, _ := big.Done(); done || mem[0] != byte(m.rank+1) || m.team.Counters() != before {
					return fmt.Errorf("done %v, the data begins with %d, counters %+v, want %+v", done, mem[0], m.team.Counters(), before)
				}
				for _, p := range []*Pending{big, short} {
					u := beside{until{team: m.team, p: p}}
					if err := m.team.waiter.Wait(ctx, &u); err != nil || u.err != nil {
						return errors.Join(err, u.err)
					}
				}
				if mem[0] != 3 {
					return fmt.Errorf("the sum begins with %d, want 3", mem[0])
				}
				return nil
			})
		})
	}
}

// beside is until by Step.
type beside struct{ until }

func (b *beside) Ready() (over bool) {
	b.team.Step()
	over, b.err = b.p.Done()
	return over
}

// Step calls no function of the program, and what was started behind such a
// reduction waits for Progress too.
func TestStepLeavesFunctionsOfTheProgram(t *testing.T) {
	testenv.NoLeaks(t)
	nw := network{n: 2}
	started := newMeeting(2)
	nw.run(t, func(ctx context.Context, m *member) error {
		calls := 0
		op := kernel.User("add", 1, false, func(dst, a, b []byte) {
			calls++
			for i := range dst {
				dst[i] = a[i] + b[i]
			}
		})
		mem := bytes.Repeat([]byte{byte(m.rank + 1)}, 100<<10)
		p, err := m.team.Defer(&Args{Kind: AllReduce, Recv: Buffer{Mem: mem}, Bytes: len(mem), Reduction: op})
		if err != nil {
			return err
		}
		behind, err := m.team.Start(&Args{Kind: Barrier})
		if err != nil {
			return err
		}
		if _, err := started.exchange(m.rank)(ctx, nil); err != nil {
			return err
		}
		// The last to start may have got through in Defer.
		had, over := calls, p.state.Load() == pendingOver
		for range 100 {
			if moved, _ := m.team.Step(); !over && (moved || calls != had) {
				return fmt.Errorf("Step moved a reduction of the program on: %d calls, want %d", calls, had)
			}
		}
		if err := errors.Join(m.finish(ctx, p), m.finish(ctx, behind)); err != nil {
			return err
		}
		if calls == 0 || mem[0] != 3 || mem[len(mem)-1] != 3 {
			return fmt.Errorf("%d calls; the sum is %d ... %d, want 3", calls, mem[0], mem[len(mem)-1])
		}
		return nil
	})
}

// A panic on the progress thread leaves the team to its other users, which may close it.
func TestPanicOfStepLeavesTheTeamFree(t *testing.T) {
	nw := network{n: 1}
	nw.run(t, func(ctx context.Context, m *member) error {
		sum, _ := kernel.For(kernel.Int64, kernel.Sum)
		if _, err := m.team.Defer(&Args{Kind: AllReduce, Recv: Buffer{Mem: make([]byte, 8)}, Bytes: 8, Reduction: sum}); err != nil {
			return err
		}
		machine := m.team.machine
		m.team.machine = nil
		func() {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			m.team.Step()
		}()
		m.team.machine = machine
		if !m.team.Progress() {
			return errors.New("the team is still in use")
		}
		return nil
	})
}

// Step moves 128 KiB at a time, of a long step too, so that a call of the program
// gets in; the call then ends the step that has begun.
func TestStepMovesAPartAtATime(t *testing.T) {
	const block = 1<<20 + 24 // bytes
	parts := 2 * block >> 17 // of 128 KiB
	sum, _ := kernel.For(kernel.Int64, kernel.Sum)
	for _, verbs := range []bool{false, true} {
		for _, kind := range []Kind{AllToAll, AllReduce} {
			t.Run(fmt.Sprintf("verbs=%v/%v", verbs, kind), func(t *testing.T) {
				testenv.NoLeaks(t)
				nw := network{n: 2, verbs: verbs}
				nw.run(t, func(ctx context.Context, m *member) error {
					in, out := bytes.Repeat([]byte{byte(m.rank + 1)}, 2*block), make([]byte, 2*block)
					args, want := Args{Kind: kind, Send: Buffer{Mem: in}, Recv: Buffer{Mem: out}, Bytes: block}, []byte{1, 2}
					if kind == AllReduce {
						args.Bytes, args.Reduction, want = 2*block, sum, []byte{3, 3}
					}
					for _, whole := range []bool{true, false} {
						clear(out)
						p, err := m.team.Defer(&args)
						if err != nil {
							return err
						}
						moves := 0
						for done := false; !done && (whole || moves < 3) && ctx.Err() == nil; {
							if moved, _ := m.team.Step(); moved {
								moves++
							} else {
								runtime.Gosched()
							}
							if done, err = p.Done(); err != nil {
								return err
							}
						}
						if least := parts / 2; whole && moves < least {
							return fmt.Errorf("%d calls have moved it, want at least %d", moves, least)
						}
						if !whole {
							if err := errors.Join(m.team.Barrier(ctx), m.finish(ctx, p)); err != nil {
								return err
							}
						}
						for i, w := range []byte{want[0], want[0], want[1], want[1]} {
							if at := []int{0, block - 1, block, 2*block - 1}[i]; out[at] != w {
								return fmt.Errorf("byte %d is %d, want %d", at, out[at], w)
							}
						}
						if n := bytes.Count(out, want[:1]) + bytes.Count(out, want[1:]); n != 2*block && n != 4*block {
							return fmt.Errorf("%d bytes of the result are right, want %d", n, 2*block)
						}
					}
					return nil
				})
			})
		}
	}
}
