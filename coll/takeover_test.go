package coll

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/arch"
	"github.com/gorun-mpi/gorun/internal/kernel"
	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rdma"
)

// A killer ends the threads of a daemon as SIGKILL would: at a point, all within one.
type killer struct {
	mu    sync.Mutex
	only  string // what counts; empty: all
	after int    // points; that many are passed
	where string
}

func (k *killer) at(what string) (dead bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.where == "" && k.only != "" && k.only != what {
		return false
	}
	if k.after--; k.after == 0 {
		k.where = what
	}
	return k.after <= 0
}

// A lentCall is a call with the memory that it has.
type lentCall struct {
	flight
	mr rdma.MR
}

// start lends a call.
func (m *member) start(j *job) (l *lentCall, err error) {
	given, room := j.operands(m.rank)
	l = &lentCall{flight: flight{j: j, in: given, out: room}}
	var in, out Buffer
	if l.mr, in, out, err = m.registered(given, room); err != nil {
		return nil, err
	}
	l.in, l.out = in.Mem, out.Mem
	l.p, err = m.team.Start(j.args(m.rank, in, out))
	return l, err
}

// points are those of Daemon.point.
var points = []string{"a channel", "a credit", "a header", "a ring", "a step", "an end", "an entry"}

// Wherever a daemon dies, the members end its calls with the right result; but not a reduction
// that it was overwriting the operand of: then all members hear of the daemon.
func TestOffloadDaemonDiesAnywhere(t *testing.T) {
	testenv.NoLeaks(t)
	places, reported, died := make(map[string]int), 0, 0
	rounds := atLength(300, 60)
	for seed := range uint64(rounds) {
		rng := rand.New(rand.NewPCG(seed, 3))
		n := 2 + rng.IntN(3)
		list := jobs(seed, n, 8, defaultEager, 100<<10)
		k := &killer{after: 1 + rng.IntN(60*n)}
		switch rng.IntN(4) {
		case 0, 1:
			k = &killer{after: 1 + rng.IntN(2*n), only: points[rng.IntN(len(points))]}
		case 2: // the root is ahead by so much that slots are given back by a credit
			for i := range list {
				for list[i] = newJob(rng, Bcast, Auto, n, 100+i); list[i].call.Root != 0; {
					list[i] = newJob(rng, Bcast, Auto, n, 100+i)
				}
			}
			k = &killer{after: 1 + rng.IntN(2), only: "a credit"}
		}
		nw := network{n: n, offload: 1 + rng.IntN(2), most: 4 << 10, killed: k.at}
		if rng.IntN(2) == 0 {
			nw.change = func(cfg *TeamConfig) {
				cfg.slots, cfg.Table = leastSlots, tableWith(func(t *Table) { t.ChunkBytes, t.PieceBytes = 2000, 1000 })
			}
		}
		inPlace := slices.ContainsFunc(list, func(j *job) bool { return operations[j.call.Kind].reduces && slices.Contains(j.inPlace, true) })
		var mu sync.Mutex
		broken, late := 0, rng.IntN(n)
		var ahead atomic.Int32
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			nw.run(t, func(ctx context.Context, m *member) error {
				var all []*lentCall
				if seed%3 == 0 && m.rank == int(seed/3)%n { // one takes back what the daemon has not begun
					m.team.offloading.to.Recall = 1
				}
				for _, j := range list {
					l, err := m.start(j)
					if err != nil {
						if inPlace && (errors.Is(err, ErrDaemon) || errors.Is(err, ErrRevoked)) {
							break
						}
						ahead.Add(1)
						return err
					}
					all = append(all, l)
				}
				// One member is late: whatever peers have seen of its calls, they have answered.
				if m.rank == late {
					for ahead.Load() != int32(n-1) {
						runtime.Gosched()
					}
				}
				for range 1000 {
					m.team.Progress()
					runtime.Gosched()
				}
				ahead.Add(1)
				var failed error
				for _, l := range all {
					err := m.land(ctx, &l.flight)
					switch {
					case inPlace && (errors.Is(err, ErrDaemon) || errors.Is(err, ErrRevoked)):
						failed = err
					case err != nil:
						return err
					}
				}
				if failed != nil {
					mu.Lock()
					broken++
					mu.Unlock()
				}
				for _, l := range all {
					if l.mr != nil {
						if err := l.mr.Close(); err != nil {
							return err
						}
					}
				}
				return nil
			})
		})
		if t.Failed() {
			t.Fatalf("%d members, %d threads, died at %q", n, nw.offload, k.where)
		}
		if k.where != "" {
			died++
			places[k.where]++
		}
		if broken > 0 {
			reported++
		}
	}
	t.Logf("died %d times: %v; reported %d times", died, places, reported)
	if !slices.Equal(slices.Sorted(maps.Keys(places)), points) && !testing.Short() && !arch.RaceEnabled {
		t.Errorf("died at %v, want each of %v", places, points)
	}
	if reported > died/4 {
		t.Errorf("%d of %d deaths were reported, want a fourth at most", reported, died)
	}
}

// A daemon that dies behind a reduction, before it has noted that: into memory of its own the
// reduction is done again, with all that were before it; in place it is reported.
func TestOffloadDaemonDiesInReduction(t *testing.T) {
	testenv.NoLeaks(t)
	for _, inPlace := range []bool{false, true} {
		t.Run(fmt.Sprint("in place=", inPlace), func(t *testing.T) {
			torn := 0
			for after := 1; ; after++ {
				rng := rand.New(rand.NewPCG(7, 5))
				j := newJob(rng, AllReduce, Direct, 3, 24<<10)
				for j.r.ID >= kernel.UserID {
					j = newJob(rng, AllReduce, Direct, 3, 24<<10)
				}
				j.inPlace = []bool{inPlace, inPlace, inPlace}
				k := &killer{only: "an entry", after: after}
				nw := network{n: 3, offload: 1, killed: k.at}
				var mu sync.Mutex
				var told []error
				at := 0 // members at whose reductions it died
				nw.run(t, func(ctx context.Context, m *member) error {
					l, err := m.start(j)
					if err != nil {
						return err
					}
					err = m.land(ctx, &l.flight)
					mu.Lock()
					defer mu.Unlock()
					if d := m.team.offloading.desk; d.words != nil {
						if w := d.journal(); w[journalOver] == w[journalCount]+1 {
							at++
						}
					}
					if errors.Is(err, ErrDaemon) || errors.Is(err, ErrRevoked) {
						told, err = append(told, err), nil
					}
					return errors.Join(err, l.mr.Close())
				})
				if t.Failed() {
					t.Fatalf("died at entry %d", after)
				}
				if k.where == "" {
					break
				}
				torn += at
				if want := inPlace && at > 0; want != (len(told) > 0) || want && !errors.Is(errors.Join(told...), ErrDaemon) {
					t.Errorf("died at entry %d, in the reductions of %d members: told %v", after, at, told)
				}
			}
			if torn == 0 {
				t.Error("it never died in a reduction that overwrites its operand")
			}
		})
	}
}

// Wherever a daemon dies, the counters are those of calls that nothing happened to: each step is counted once, and
// a call that the daemon had begun is not one that the rank's thread has run.
func TestOffloadCountersAfterDeath(t *testing.T) {
	testenv.NoLeaks(t)
	for _, kind := range []Kind{AllReduce, Bcast, AllToAll} {
		t.Run(kind.String(), func(t *testing.T) {
			const n, calls = 3, 2
			stride := atLength(3, 10)
			rng := rand.New(rand.NewPCG(11, uint64(kind)))
			var list []*job
			for len(list) < calls {
				j := newJob(rng, kind, Auto, n, 9<<10)
				if j.r.ID < kernel.UserID {
					j.inPlace = make([]bool, n)
					list = append(list, j)
				}
			}
			// counts runs the calls with a daemon that dies at a point, and gives what each member has counted.
			counts := func(k *killer) (all [n]Counters) {
				nw := network{n: n, offload: 1, most: 4 << 10, killed: k.at,
					change: func(cfg *TeamConfig) {
						cfg.slots, cfg.Table = leastSlots, tableWith(func(t *Table) { t.ChunkBytes, t.PieceBytes = 2000, 1000 })
					}}
				nw.run(t, func(ctx context.Context, m *member) error {
					var lent []*lentCall
					for _, j := range list {
						given, room := j.operands(m.rank)
						l := &lentCall{flight: flight{j: j, in: given, out: room}}
						var in, out Buffer
						var err error
						if l.mr, in, out, err = m.registered(given, room); err != nil {
							return err
						}
						l.in, l.out = in.Mem, out.Mem
						if l.p, err = m.team.Defer(j.args(m.rank, in, out)); err != nil {
							return err
						}
						lent = append(lent, l)
					}
					desk := m.team.offloading.desk
					over := func() bool {
						return !slices.ContainsFunc(lent, func(l *lentCall) bool { return !l.p.lent || desk.record(l.p.record).waits() })
					}
					testenv.Await(t, 10*time.Second, "the end of the daemon or of its calls", func() bool { return m.team.offloading.to.dead() || over() })
					var offloaded, own uint64
					for _, l := range lent {
						if !l.p.lent {
							own++
						} else if r := desk.record(l.p.record); !r.waits() {
							offloaded++
						} else if r.number() != desk.recover(make([]channel, n)).call {
							own++ // it had not begun
						}
					}
					for _, l := range lent {
						for !l.p.Over() {
							if moved, _ := m.team.Step(); !moved {
								m.team.yield()
							}
						}
						if _, err := l.p.Done(); err != nil {
							return err
						}
						if err := errors.Join(l.compare(m.rank), l.mr.Close()); err != nil {
							return err
						}
					}
					c := m.team.Counters()
					if c.Calls != calls || c.Offloaded != offloaded || c.Beside != own {
						return fmt.Errorf("counted %d calls, %d of the daemon and %d of the thread, want %d, %d and %d", c.Calls, c.Offloaded, c.Beside, calls, offloaded, own)
					}
					c.Offloaded, c.Beside, c.OffloadNanoseconds = 0, 0, 0
					all[m.rank] = c
					return nil
				})
				return all
			}
			want := counts(&killer{})
			for _, point := range points {
				for after := 1; ; after += stride {
					k := &killer{only: point, after: after}
					if got := counts(k); got != want {
						t.Errorf("died at point %d of %q:\ngot  %+v\nwant %+v", after, point, got, want)
					}
					if t.Failed() {
						t.Fatalf("died at point %d of %q", after, point)
					}
					if k.where == "" {
						break
					}
				}
			}
		})
	}
}
