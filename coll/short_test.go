package coll

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/kernel"
	"github.com/gorun-mpi/gorun/internal/wait"
	"github.com/gorun-mpi/gorun/rdma"
	"github.com/gorun-mpi/gorun/rdma/soft"
)

// patient has members spin, as they do where each has a CPU of its own.
func (m *member) patient(cfg *TeamConfig) {
	cfg.Waiter = wait.New(wait.Config{Scheduler: true, Sleeper: m.ctx.(rdma.Sleeper)})
}

// again makes the job's call, as a short one if it has such a form and alone does not
// say otherwise, and compares what comes and what was counted.
func (m *member) again(ctx context.Context, j *job, r kernel.Reduction, alone bool) error {
	in, room := j.operands(m.rank)
	before := m.team.Counters()
	var err error
	if s := m.team.Short(&r); s != nil && !alone {
		var done bool
		if done, err = m.team.RunShort(ctx, s, in, room, r.Func); err == nil && !done {
			return fmt.Errorf("%+v: nothing was done", j.call)
		}
	} else {
		err = m.team.Run(ctx, j.args(m.rank, Buffer{Mem: in}, Buffer{Mem: room}))
	}
	if err != nil {
		return err
	}
	if want := j.want(m.rank); !bytes.Equal(room[:len(want)], want) {
		return fmt.Errorf("%+v: got %x, want %x", j.call, head(room), head(want))
	}
	got := m.team.Counters()
	if got.Calls != before.Calls+1 {
		return fmt.Errorf("%+v: %d calls were counted, want 1", j.call, got.Calls-before.Calls)
	}
	return nil
}

// Calls by their short form and by Run are the same to the other members, whoever makes
// which, for more calls in a row than a ring has slots, and count the same.
func TestShortCallsAreCalls(t *testing.T) {
	jobsEach, times := 40, 3
	if testing.Short() {
		jobsEach = 10
	}
	for _, way := range []struct {
		name string
		network
	}{
		{"1 member", network{n: 1}},
		{"2 members", network{n: 2}},
		{"3 members", network{n: 3}},
		{"5 members", network{n: 5}},
		{"over queue pairs", network{n: 5, verbs: true}},
		{"one over queue pairs", network{n: 3, blind: true}},
		{"a send queue that is often full", network{n: 3, verbs: true, cap: rdma.QPCap{MaxSendWR: leastDepth, MaxSendSGE: 1, MaxInlineData: leastInline}}},
		{"two hosts", network{n: 3, hosts: 2}},
		{"an adversary", network{n: 3, adversary: &soft.Adversary{Seed: 5}}},
	} {
		n := way.n
		for _, spins := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, spin %v", way.name, spins), func(t *testing.T) {
				nw := way.network
				list := jobs(uint64(n), n, jobsEach, 64, 5000)
				short := make([]atomic.Int64, n)
				nw.change = func(cfg *TeamConfig) {
					cfg.Table, cfg.slots = tableWith(func(t *Table) { t.EagerBytes = 64 }), leastSlots
					if spins {
						nw.members[cfg.Rank].patient(cfg)
					}
				}
				nw.run(t, func(ctx context.Context, m *member) error {
					rng := rand.New(rand.NewPCG(uint64(m.rank), 3))
					for _, j := range list {
						r := j.r
						if !operations[j.call.Kind].reduces {
							r = kernel.Reduction{}
						}
						var each [2]Counters // of Run and of RunShort
						for k := range 2 {
							if err := m.again(ctx, j, r, true); err != nil {
								return err
							}
							before := m.team.Counters()
							if err := m.again(ctx, j, r, k == 0); err != nil {
								return err
							}
							each[k] = m.team.Counters().minus(before)
						}
						// All members make all calls: some of a call's may have a short form, and
						// others, who pass more data on, none.
						if m.team.Short(&r) != nil {
							short[m.rank].Add(1)
							each[0].Credits, each[1].Credits = 0, 0 // depend on what came before
							if each[0] != each[1] {
								return fmt.Errorf("%+v: a short call counts %+v, want %+v", j.call, each[1], each[0])
							}
						}
						for range times * leastSlots {
							if err := m.again(ctx, j, r, rng.IntN(4) == 0); err != nil {
								return err
							}
						}
					}
					return nil
				})
				for r := range short {
					if short[r].Load() < int64(jobsEach)/4 {
						t.Errorf("rank %d had %d short forms of %d calls: too few to test", r, short[r].Load(), jobsEach)
					}
				}
			})
		}
	}
}

// minus is what was counted since before.
func (c Counters) minus(before Counters) (d Counters) {
	now, then, diff := reflect.ValueOf(c), reflect.ValueOf(before), reflect.ValueOf(&d).Elem()
	for i := range now.NumField() {
		diff.Field(i).SetUint(now.Field(i).Uint() - then.Field(i).Uint())
	}
	return d
}

// What needs more than messages has no short form, and neither has
// what is in place only because both operands are the same memory.
func TestCallsWithoutShortForm(t *testing.T) {
	sum, _ := kernel.For(kernel.Int32, kernel.Sum)
	reduce := func(send, recv []byte) Args {
		return Args{Kind: AllReduce, Send: Buffer{Mem: send}, Recv: Buffer{Mem: recv}, Bytes: 8, Reduction: sum}
	}
	for _, c := range []struct {
		name    string
		network network
		args    func(mem []byte) Args
		want    bool
	}{
		{"a small one", network{n: 2}, func(mem []byte) Args { return reduce(mem[:8], mem[8:16]) }, true},
		{"in place", network{n: 2}, func(mem []byte) Args { return reduce(nil, mem[:8]) }, true},
		{"the same memory", network{n: 2}, func(mem []byte) Args { return reduce(mem[:8], mem[:8]) }, false},
		{"by descriptor", network{n: 2}, func(mem []byte) Args { return Args{Kind: AllToAll, Recv: Buffer{Mem: mem}, Bytes: len(mem) / 2} }, false},
		{"parts", network{n: 2}, func([]byte) Args { return Args{Kind: Exchange} }, false},
		{"over queue pairs", network{n: 2, verbs: true}, func([]byte) Args { return Args{Kind: Barrier} }, true},
		{"another host", network{n: 2, hosts: 2}, func([]byte) Args { return Args{Kind: Barrier} }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.network.run(t, func(ctx context.Context, m *member) error {
				a := c.args(make([]byte, 40000))
				if err := m.team.Run(ctx, &a); err != nil {
					return err
				}
				if got := m.team.Short(&a.Reduction) != nil; got != c.want {
					return fmt.Errorf("a short form: %v, want %v", got, c.want)
				}
				return nil
			})
		})
	}
}

// A short call that cannot be made leaves everything to Run.
func TestShortCallDeclines(t *testing.T) {
	nw := network{n: 2}
	nw.run(t, func(ctx context.Context, m *member) error {
		mem := make([]byte, 32)
		if err := m.team.AllToAll(ctx, Buffer{Mem: mem[:16]}, Buffer{Mem: mem[16:]}, 8, Auto); err != nil {
			return err
		}
		s := m.team.Short(&kernel.Reduction{})
		if s == nil {
			return errors.New("no short form")
		}
		for _, c := range []struct {
			name       string
			send, recv []byte
		}{
			{"operands that overlap", mem[:16], mem[8:24]},
			{"a send operand too short", mem[:15], mem[16:]},
			{"a receive operand too short", mem[:16], mem[17:]},
		} {
			if done, err := m.team.RunShort(ctx, s, c.send, c.recv, nil); done || err != nil {
				return fmt.Errorf("%s: got %v, %v, want nothing done", c.name, done, err)
			}
		}
		// A started call goes first.
		p, err := m.team.Start(&Args{Kind: AllReduce, Recv: Buffer{Mem: make([]byte, 1<<20)}, Bytes: 1 << 20, Reduction: product})
		if err != nil {
			return err
		}
		if over, _ := p.Done(); !over {
			if done, err := m.team.RunShort(ctx, s, mem[:16], mem[16:], nil); done || err != nil {
				return fmt.Errorf("behind a started call: got %v, %v, want nothing done", done, err)
			}
		}
		if err := m.team.AllToAll(ctx, Buffer{Mem: mem[:16]}, Buffer{Mem: mem[16:]}, 8, Auto); err != nil {
			return err
		}
		// Plans that were dropped have none either.
		m.team.cache.forget()
		if done, err := m.team.RunShort(ctx, s, mem[:16], mem[16:], nil); done || err != nil {
			return fmt.Errorf("of a plan that is not kept: got %v, %v, want nothing done", done, err)
		}
		return m.team.AllToAll(ctx, Buffer{Mem: mem[:16]}, Buffer{Mem: mem[16:]}, 8, Auto)
	})
}

// habit makes the same alltoall by Run and then by its short form.
func (m *member) habit(ctx context.Context, times int) error {
	in, out := make([]byte, 8*m.size), make([]byte, 8*m.size)
	if err := m.team.AllToAll(ctx, Buffer{Mem: in}, Buffer{Mem: out}, 8, Auto); err != nil {
		return err
	}
	s := m.team.Short(&kernel.Reduction{})
	for range times {
		if done, err := m.team.RunShort(ctx, s, in, out, nil); !done || err != nil {
			return fmt.Errorf("done %v: %w", done, err)
		}
	}
	return nil
}

// What ends a call that waits ends a short one: other members' other calls, the
// context, the death of a peer.
func TestFaultsEndShortCalls(t *testing.T) {
	for _, spins := range []bool{false, true} {
		for _, c := range []struct {
			name string
			odd  func(ctx context.Context, m *member, fault *atomic.Bool) error // of rank 1
			text string
		}{
			{"mismatch", func(ctx context.Context, m *member, _ *atomic.Bool) error {
				return m.team.AllToAll(ctx, Buffer{Mem: make([]byte, 64)}, Buffer{Mem: make([]byte, 64)}, 16, Auto)
			}, "rank 1 called alltoall of 16 bytes"},
			{"death", func(_ context.Context, _ *member, fault *atomic.Bool) error {
				fault.Store(true)
				return ErrPeerDead
			}, "died"},
		} {
			t.Run(fmt.Sprintf("%s, spin %v", c.name, spins), func(t *testing.T) {
				var dead atomic.Bool
				nw := network{n: 3}
				nw.change = func(cfg *TeamConfig) {
					cfg.PeerDead = func(member int) bool { return member == 1 && dead.Load() }
					if spins {
						nw.members[cfg.Rank].patient(cfg)
					}
				}
				errs := nw.errorsOf(t, func(ctx context.Context, m *member) error {
					if err := m.habit(ctx, 20); err != nil {
						return err
					}
					if m.rank == 1 {
						return c.odd(ctx, m, &dead)
					}
					err := m.habit(ctx, 1)
					if done, again := m.team.RunShort(ctx, m.team.cache.shorts[0], make([]byte, 24), make([]byte, 24), nil); done || again != nil {
						t.Errorf("rank %d: a short call of the broken team: got %v, %v, want nothing done", m.rank, done, again)
					}
					return err
				})
				for r, err := range errs {
					if err == nil {
						t.Errorf("rank %d returned no error", r)
					} else if r == 0 && !strings.Contains(err.Error(), c.text) && !errors.Is(err, ErrRevoked) {
						t.Errorf("rank 0 returned %v, want %q in it", err, c.text)
					}
				}
			})
		}
	}
}

// The context of a short call ends it while it waits.
func TestContextEndsAShortCall(t *testing.T) {
	nw := network{n: 2}
	over := make(chan struct{})
	errs := nw.errorsOf(t, func(ctx context.Context, m *member) error {
		if err := m.habit(ctx, 3); err != nil {
			return err
		}
		if m.rank == 1 {
			<-over
			return m.team.Barrier(ctx)
		}
		defer close(over)
		ended, cancel := context.WithTimeout(ctx, 5*time.Millisecond)
		defer cancel()
		done, err := m.team.RunShort(ended, m.team.cache.shorts[0], make([]byte, 16), make([]byte, 16), nil)
		if !done {
			return errors.New("nothing was done")
		}
		return err
	})
	if !errors.Is(errs[0], context.DeadlineExceeded) || !errors.Is(errs[1], ErrRevoked) && !errors.Is(errs[1], ErrMismatch) {
		t.Errorf("got %v and %v, want the context's error and that the team is revoked", errs[0], errs[1])
	}
}

func TestShortCallsAllocateNothing(t *testing.T) {
	const rounds = 100
	nw := network{n: 2}
	nw.run(t, func(ctx context.Context, m *member) error {
		if err := m.habit(ctx, 3); err != nil {
			return err
		}
		s, in, out := m.team.cache.shorts[0], make([]byte, 16), make([]byte, 16)
		var failed error
		call := func() {
			if done, err := m.team.RunShort(ctx, s, in, out, nil); !done || err != nil {
				failed = fmt.Errorf("done %v: %w", done, err)
			}
		}
		if m.rank == 1 {
			for range rounds + 1 {
				call()
			}
			return failed
		}
		if got := testing.AllocsPerRun(rounds, call); got != 0 {
			return fmt.Errorf("%v allocations a call, want 0", got)
		}
		return failed
	})
}
