package coll

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/kernel"
	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rdma"
	"github.com/gorun-mpi/gorun/rdma/soft"
)

// openDaemon runs a daemon beside the members, which may lend it calls of any length.
func (nw *network) openDaemon(t testing.TB) {
	t.Helper()
	visitor, err := soft.Visit(nw.segments[0])
	if err != nil {
		t.Fatal(err)
	}
	d, err := NewDaemon(DaemonConfig{Segment: nw.segments[0], Ranks: nw.n, Threads: nw.offload, Memory: visitor.Peer, Goroutines: true,
		Log: func(line string) { t.Errorf("the daemon says: %s", line) }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	d.most = cmp.Or(nw.most, d.most)
	var killed atomic.Bool
	if nw.killed != nil {
		d.point = func(what string) {
			if nw.killed(what) {
				killed.Store(true)
				stop()
				runtime.Goexit()
			}
		}
	}
	var done sync.WaitGroup
	done.Go(func() {
		d.Run(ctx)
		if killed.Load() {
			for i := range nw.offload {
				nw.segments[0].SetDead(nw.n + i) // as the launcher does
			}
		}
	})
	nw.endDaemon = func() {
		stop()
		done.Wait()
	}
	t.Cleanup(nw.endDaemon)
	for rank := range nw.n {
		o, err := OpenOffload(nw.segments[0], rank, DaemonFor(rank, nw.n, nw.offload))
		if err != nil {
			t.Fatal(err)
		}
		o.From = 0
		nw.daemons = append(nw.daemons, o)
	}
}

// registered moves the operands of a flight into one region.
func (m *member) registered(given, room []byte) (mr rdma.MR, in, out Buffer, err error) {
	if len(given)+len(room) == 0 {
		return nil, Buffer{}, Buffer{}, nil
	}
	mr, err = m.pd.AllocMR(16+len(given)+len(room), rdma.AccessLocalWrite|reachable)
	if err != nil {
		return nil, in, out, err
	}
	mem := mr.Bytes()
	if given != nil {
		in = Buffer{Mem: mem[8 : 8+len(given) : 8+len(given)], MR: mr}
		copy(in.Mem, given)
	}
	if room != nil {
		mem = mem[(8+len(given)+7)&^7:]
		out = Buffer{Mem: mem[:len(room):len(room)], MR: mr}
		copy(out.Mem, room)
	}
	return mr, in, out, nil
}

// Members lend calls, up to six at a time, with memory that the daemon reaches or does not, each
// member in its own way, and make blocking calls between. What a daemon cannot go on with it
// gives back, in whatever step that is.
func TestOffload(t *testing.T) {
	cases := []struct {
		name     string
		ranks    []int
		threads  int
		ordinary int  // one call in so many has ordinary memory, at each member by itself; 0: none
		recalls  bool // members take back, at times, what the daemon has not begun
		network  network
	}{
		{name: "all lent", ranks: []int{2, 3, 4, 7}, threads: 1},
		{name: "three threads", ranks: []int{2, 4, 5}, threads: 3},
		{name: "some memory ordinary", ranks: []int{2, 3, 5}, threads: 2, ordinary: 3},
		{name: "some memory ordinary, no region of the address space", ranks: []int{3}, threads: 1, ordinary: 3, network: network{ordinary: true}},
		{name: "the rank takes calls back", ranks: []int{2, 3, 4}, threads: 2, recalls: true},
		{name: "the rank takes calls back, some memory ordinary", ranks: []int{2, 3, 5}, threads: 1, ordinary: 3, recalls: true},
		{name: "few slots", ranks: []int{3}, threads: 2, ordinary: 4, network: network{change: func(cfg *TeamConfig) { cfg.slots = leastSlots }}},
	}
	for _, c := range cases {
		for _, n := range c.ranks {
			t.Run(fmt.Sprintf("%s/ranks=%d", c.name, n), func(t *testing.T) {
				testenv.NoLeaks(t)
				seeds := atLength(4, 1)
				for seed := range seeds {
					nw := c.network
					nw.n, nw.offload = n, c.threads
					list := jobs(uint64(seed), n, 60, defaultEager, 100<<10)
					nw.run(t, func(ctx context.Context, m *member) error {
						return m.lendAll(ctx, list, c.ordinary, c.recalls, rand.New(rand.NewPCG(uint64(seed), uint64(m.rank))))
					})
				}
			})
		}
	}
}

// lendAll starts the calls of a list, all of which are lent if no memory is ordinary.
func (m *member) lendAll(ctx context.Context, list []*job, ordinary int, recalls bool, rng *rand.Rand) error {
	type flying struct {
		flight
		mr rdma.MR
	}
	land := func(f flying) error {
		err := m.land(ctx, &f.flight)
		if f.mr != nil {
			err = errors.Join(err, f.mr.Close())
		}
		return err
	}
	var all []flying
	lendable, started := uint64(0), uint64(0)
	for i, j := range list {
		if recalls {
			m.team.offloading.to.Recall = time.Duration(rng.IntN(2)) // 0, or at the first look
		}
		if rng.IntN(8) == 0 {
			if err := m.check(ctx, j, rng.IntN(2) == 0); err != nil {
				return fmt.Errorf("blocking call %d: %w", i, err)
			}
			continue
		}
		given, room := j.operands(m.rank)
		f := flying{flight: flight{j: j, in: given, out: room}}
		in, out := Buffer{Mem: given}, Buffer{Mem: room}
		if ordinary == 0 || rng.IntN(ordinary) != 0 {
			var err error
			if f.mr, in, out, err = m.registered(given, room); err != nil {
				return err
			}
			f.in, f.out = in.Mem, out.Mem
		}
		p, err := m.team.Start(j.args(m.rank, in, out))
		if err != nil {
			return fmt.Errorf("start of call %d: %w", i, err)
		}
		f.p = p
		if started++; j.call.Kind != Exchange && j.call.Kind != Fold && j.call.Kind != ReduceScatterV {
			lendable++
		}
		for all = append(all, f); len(all) > 0 && (len(all) > 5 || rng.IntN(3) == 0); {
			k := rng.IntN(len(all))
			if err := land(all[k]); err != nil {
				return fmt.Errorf("before call %d: %w", i, err)
			}
			all = append(all[:k], all[k+1:]...)
		}
	}
	for _, f := range all {
		if err := land(f); err != nil {
			return fmt.Errorf("at the end: %w", err)
		}
	}
	// A daemon that gets no CPU may begin none of the calls that its ranks take back.
	switch c := m.team.Counters(); {
	case m.team.offloading.number == 0 && lendable > 5:
		return fmt.Errorf("the member lent none of %d calls", lendable)
	case c.Offloaded == 0 && lendable > 5 && !recalls:
		return fmt.Errorf("the daemon ran none of %d calls", lendable)
	case ordinary == 0 && c.Offloaded > lendable:
		return fmt.Errorf("the daemon ran %d of %d calls", c.Offloaded, lendable)
	}
	return nil
}

// lendSum lends an all-reduce of 100 KiB at both of two members.
func (m *member) lendSum() (p *Pending, mem []byte, mr rdma.MR, err error) {
	sum, _ := kernel.For(kernel.Int64, kernel.Sum)
	mr, err = m.pd.AllocMR(100<<10, rdma.AccessLocalWrite|reachable)
	if err != nil {
		return nil, nil, nil, err
	}
	mem = mr.Bytes()
	mem[0] = byte(m.rank + 1)
	p, err = m.team.Start(&Args{Kind: AllReduce, Recv: Buffer{Mem: mem, MR: mr}, Bytes: len(mem), Reduction: sum})
	return p, mem, mr, err
}

// The host makes no step of a lent call: it is complete though nobody calls Progress.
func TestOffloadGoesOnAlone(t *testing.T) {
	testenv.NoLeaks(t)
	nw := network{n: 2, offload: 1}
	nw.run(t, func(ctx context.Context, m *member) error {
		p, mem, mr, err := m.lendSum()
		if err != nil {
			return err
		}
		r := m.team.offloading.desk.record(p.record)
		testenv.Await(t, 10*time.Second, "the end of the call at the daemon", func() bool { return r.state() == recordEnded })
		if mem[0] != 3 {
			return fmt.Errorf("the sum begins with %d, want 3", mem[0])
		}
		if err := m.finish(ctx, p); err != nil {
			return err
		}
		if c := m.team.Counters(); c.Offloaded != 1 || c.OffloadNanoseconds == 0 || c.Reductions == 0 {
			return fmt.Errorf("the counters are %+v, want one offloaded call with its steps", c)
		}
		return mr.Close()
	})
}

// A member takes back a call that the daemon has not begun, since it is at another's, and ends it itself. The next
// call is the daemon's again.
func TestOffloadRecall(t *testing.T) {
	testenv.NoLeaks(t)
	held, released := make(chan struct{}), make(chan struct{})
	hold, release := sync.OnceFunc(func() { close(held); <-released }), sync.OnceFunc(func() { close(released) })
	nw := network{n: 2, offload: 1, killed: func(what string) bool {
		if what == "a step" {
			hold()
		}
		return false
	}}
	nw.run(t, func(ctx context.Context, m *member) error {
		off := &m.team.offloading
		if m.rank == 0 {
			<-held // at the other's
			defer release()
			off.to.Recall = 1
		}
		for call := range 2 {
			p, mem, mr, err := m.lendSum()
			if err != nil {
				return err
			}
			if m.rank == 0 && call == 0 {
				testenv.Await(t, 10*time.Second, "the call to come back", func() bool {
					m.team.Progress()
					return off.returned == 1
				})
				release()
				off.to.Recall = 0
			}
			if err := m.finish(ctx, p); err != nil || mem[0] != 3 {
				return fmt.Errorf("the sum of call %d begins with %d, and %v", call, mem[0], err)
			}
			if err := mr.Close(); err != nil {
				return err
			}
		}
		if c := m.team.Counters(); c.Offloaded != uint64(1+m.rank) || off.returned != uint64(1-m.rank) {
			return fmt.Errorf("the daemon ran %d calls, %d came back, want %d and %d", c.Offloaded, off.returned, 1+m.rank, 1-m.rank)
		}
		return nil
	})
}

// After the daemon's end calls stay with the ranks, in teams that had lent nothing.
func TestOffloadWithoutDaemon(t *testing.T) {
	testenv.NoLeaks(t)
	nw := network{n: 2, offload: 1}
	var mu sync.Mutex
	reasons := make(map[string]int)
	nw.change = func(cfg *TeamConfig) {
		cfg.Offload.Declined = func(reason string) {
			mu.Lock()
			reasons[reason]++
			mu.Unlock()
		}
	}
	nw.run(t, func(ctx context.Context, m *member) error {
		if m.rank == 0 {
			nw.segments[0].SetDead(nw.n)
		}
		if err := m.team.Barrier(ctx); err != nil {
			return err
		}
		p, mem, mr, err := m.lendSum()
		if err != nil {
			return err
		}
		if err := m.finish(ctx, p); err != nil || mem[0] != 3 {
			return fmt.Errorf("the sum begins with %d, and %v", mem[0], err)
		}
		return mr.Close()
	})
	if reasons["the daemon has ended"] != 2 || len(reasons) != 1 {
		t.Errorf("declined for %v, want the daemon's end at both", reasons)
	}
}

// Who closes a team while the daemon has a call of it gets its memory back.
func TestOffloadTeamCloses(t *testing.T) {
	testenv.NoLeaks(t)
	nw := network{n: 2, offload: 1}
	nw.open(t)
	ctx := testenv.Deadline(t, time.Minute)
	nw.each(t, func(m *member) error {
		var err error
		if m.team, err = NewTeam(ctx, nw.config(m, nw.meeting.exchange(m.rank))); err != nil || m.rank == 1 {
			return err
		}
		p, _, mr, err := m.lendSum()
		if err != nil {
			return err
		}
		if err := m.team.Close(); !errors.Is(err, ErrPending) {
			return fmt.Errorf("Close returned %v, want ErrPending", err)
		}
		if over, err := p.Done(); !over || !errors.Is(err, ErrPending) {
			return fmt.Errorf("the call is over: %t, with %v", over, err)
		}
		return mr.Close()
	})
	if err := nw.members[1].team.Close(); err != nil {
		t.Error(err)
	}
}

// A call that the other member does not make is told as without a daemon.
func TestOffloadMismatch(t *testing.T) {
	testenv.NoLeaks(t)
	nw := network{n: 2, offload: 1}
	nw.run(t, func(ctx context.Context, m *member) error {
		var err error
		if m.rank == 0 {
			p, _, mr, failed := m.lendSum()
			if failed != nil {
				return failed
			}
			defer mr.Close()
			err = m.finish(ctx, p)
		} else {
			mem := Buffer{Mem: make([]byte, 8)}
			sum, _ := kernel.For(kernel.Int64, kernel.Sum)
			err = m.team.Run(ctx, &Args{Kind: AllReduce, Recv: mem, Bytes: 8, Reduction: sum})
		}
		if !errors.Is(err, ErrMismatch) && !errors.Is(err, ErrRevoked) {
			return fmt.Errorf("the call ended with %v, want a mismatch", err)
		}
		return nil
	})
}

// A daemon that steps many calls tells the launcher that it is well at each of them: one that has used some CPU time
// without that is killed.
func TestDaemonBeatsAtEachStep(t *testing.T) {
	s := newScribbler(t)
	d, err := NewDaemon(DaemonConfig{Segment: s.segment, Ranks: 2, Threads: 1, Memory: s.visitor.Peer, Goroutines: true})
	if err != nil {
		t.Fatal(err)
	}
	th := d.threads[0]
	var seen []uint32
	for range 3 {
		th.open = append(th.open, stepFunc(func() (moved, over bool) {
			_, beat := s.segment.Beats(th.number)
			seen = append(seen, beat)
			return len(seen) < 12, len(seen) >= 10
		}))
	}
	th.Ready()
	for i := 1; i < len(seen); i++ {
		if seen[i] == seen[i-1] {
			t.Fatalf("the beats at each step are %v, want another at each", seen)
		}
	}
}

type stepFunc func() (moved, over bool)

func (f stepFunc) Step() (moved, over bool) { return f() }
