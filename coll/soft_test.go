package coll

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/arch"
	"github.com/gorun-mpi/gorun/internal/kernel"
	"github.com/gorun-mpi/gorun/internal/shm"
	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/internal/wait"
	"github.com/gorun-mpi/gorun/rdma"
	"github.com/gorun-mpi/gorun/rdma/soft"
)

// A member is a rank of the tests: a goroutine with a device of its own.
type member struct {
	rank, size int
	provider   *soft.Provider
	ctx        rdma.Context
	pd         rdma.PD
	cq         rdma.CQ
	qps        []rdma.QP
	odp        rdma.MR
	mesh       *Mesh
	team       *Team
}

// A network is what the tests' members run on.
type network struct {
	n         int
	adversary *soft.Adversary
	cap       rdma.QPCap
	ordinary  bool  // no region of the whole address space
	hosts     int   // between which there is TCP; 0 means 1
	placed    []int // the host of each member; nil: in turns
	verbs     bool  // memory of peers is not mapped
	blind     bool  // member 0 alone does not map it
	change    func(*TeamConfig)
	devices   []rdma.Device // taken in turn; nil: software devices

	offload int                    // threads of a daemon
	most    int                    // Daemon.most; 0: as it is
	killed  func(what string) bool // whether the daemon ends at a point; nil: at none

	create func(shm.Geometry) (*shm.Segment, error) // nil: shm.NewLocal

	segments []*shm.Segment

	daemons   []*Offload // the members' ways to the daemon
	endDaemon func()
	members   []*member
	meeting   *meeting
}

// meeting is an all-gather for goroutines.
type meeting struct {
	mu     sync.Mutex
	intros [][]byte
	come   int
	closed chan struct{}
}

func newMeeting(n int) *meeting {
	return &meeting{intros: make([][]byte, n), closed: make(chan struct{})}
}

func (m *meeting) exchange(rank int) func(context.Context, []byte) ([][]byte, error) {
	return func(ctx context.Context, mine []byte) ([][]byte, error) {
		m.mu.Lock()
		m.intros[rank] = mine
		if m.come++; m.come == len(m.intros) {
			close(m.closed)
		}
		m.mu.Unlock()
		select {
		case <-m.closed:
			return m.intros, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// open makes n devices in one segment and connects them all.
func (nw *network) open(t testing.TB) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	if nw.cap == (rdma.QPCap{}) {
		nw.cap = rdma.QPCap{MaxSendWR: 64, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInlineData: 2048}
	}
	if nw.create == nil {
		nw.create = shm.NewLocal
	}
	hosts := max(nw.hosts, 1)
	var err error
	for range hosts {
		segment, err := nw.create(shm.Geometry{Ranks: nw.n + nw.offload, ArenaSize: 32 << 20})
		must(err)
		t.Cleanup(func() { must(segment.Close()) })
		nw.segments = append(nw.segments, segment)
	}
	for r := range nw.n {
		m := &member{rank: r, size: nw.n, qps: make([]rdma.QP, nw.n)}
		nw.members = append(nw.members, m)
		var adversary *soft.Adversary
		if nw.adversary != nil {
			adversary = &soft.Adversary{Seed: nw.adversary.Seed + uint64(r)}
		}
		cfg := soft.Config{Segment: nw.segments[nw.hostOf(r)], Rank: r, Host: fmt.Sprint("host", nw.hostOf(r)), Adversary: adversary}
		if hosts > 1 {
			cfg.Secret = []byte("thirty-two bytes for a test only")
		}
		m.provider, err = soft.New(cfg)
		must(err)
		devices := nw.devices
		if devices == nil {
			devices, err = m.provider.Devices()
			must(err)
		}
		m.ctx, err = devices[r%len(devices)].Open()
		must(err)
		m.pd, err = m.ctx.AllocPD()
		must(err)
		m.cq, err = m.ctx.CreateCQ(4 * nw.n)
		must(err)
		if !nw.ordinary {
			m.odp, err = m.pd.RegMR(nil, rdma.AccessLocalWrite|reachable|rdma.AccessOnDemand)
			must(err)
		}
	}
	for _, m := range nw.members {
		for i, peer := range nw.members {
			if peer == m {
				continue
			}
			m.qps[i], err = m.pd.CreateQP(rdma.QPInitAttr{SendCQ: m.cq, RecvCQ: m.cq, Type: rdma.RC, Cap: nw.cap})
			must(err)
			gid, err := peer.ctx.QueryGID(1, 0)
			must(err)
			if to, ok := peer.ctx.(rdma.Endpointer); ok {
				must(m.ctx.(rdma.Endpointer).AddEndpoint(gid, to.Endpoint()))
			}
		}
	}
	for _, m := range nw.members {
		for i, peer := range nw.members {
			if peer == m {
				continue
			}
			gid, err := peer.ctx.QueryGID(1, 0)
			must(err)
			must(connect(m.qps[i], gid, peer.qps[m.rank].Num()))
		}
		m.mesh, err = meshOf(m.pd, m.cq, m.qps, nw.peersOf(m))
		must(err)
	}
	nw.meeting = newMeeting(nw.n)
	if nw.offload > 0 {
		nw.openDaemon(t)
	}
	t.Cleanup(func() {
		for _, m := range nw.members {
			for _, qp := range m.qps {
				if qp != nil {
					must(qp.Close())
				}
			}
		}
		for _, m := range nw.members {
			must(m.mesh.Close())
			if m.odp != nil {
				must(m.odp.Close())
			}
			must(m.cq.Close())
			must(m.pd.Close())
			must(m.ctx.Close())
			must(m.provider.Close())
		}
	})
}

// hostOf is the number of a member's host: in turns, unless the test says which.
func (nw *network) hostOf(member int) int {
	if nw.placed != nil {
		return nw.placed[member]
	}
	return member % max(nw.hosts, 1)
}

// peersOf is the memory of those peers that a member can map.
func (nw *network) peersOf(m *member) []rdma.PeerMemory {
	if nw.verbs || nw.blind && m.rank == 0 {
		return nil
	}
	peers := make([]rdma.PeerMemory, nw.n)
	for i, peer := range nw.members {
		gid, err := peer.ctx.QueryGID(1, 0)
		if err != nil || peer == m {
			continue
		}
		if memory, err := m.ctx.(rdma.Mapper).Peer(gid); err == nil {
			peers[i] = memory
		}
	}
	return peers
}

func connect(qp rdma.QP, gid rdma.GID, number uint32) error {
	err := qp.Modify(rdma.QPAttr{State: rdma.StateInit, PortNum: 1, AccessFlags: rdma.AccessLocalWrite | reachable},
		rdma.QPStateMask|rdma.QPPKeyIndexMask|rdma.QPPortMask|rdma.QPAccessFlagsMask)
	if err != nil {
		return err
	}
	err = qp.Modify(rdma.QPAttr{State: rdma.StateRTR, AV: rdma.AV{DGID: gid, PortNum: 1, HopLimit: 1}, PathMTU: rdma.MTU1024, DestQPNum: number, MaxDestRdAtomic: 4, MinRNRTimer: 12},
		rdma.QPStateMask|rdma.QPAVMask|rdma.QPPathMTUMask|rdma.QPDestQPNMask|rdma.QPRQPSNMask|rdma.QPMaxDestRdAtomicMask|rdma.QPMinRNRTimerMask)
	if err != nil {
		return err
	}
	return qp.Modify(rdma.QPAttr{State: rdma.StateRTS, Timeout: 14, RetryCnt: 7, RNRRetry: 7, MaxRdAtomic: 4},
		rdma.QPStateMask|rdma.QPSQPSNMask|rdma.QPTimeoutMask|rdma.QPRetryCntMask|rdma.QPRNRRetryMask|rdma.QPMaxRdAtomicMask)
}

// config is the configuration of a member's team.
func (nw *network) config(m *member, exchange func(context.Context, []byte) ([][]byte, error)) TeamConfig {
	how := wait.Config{Scheduler: true, Oversubscribed: true}
	if sleeper, ok := m.ctx.(rdma.Sleeper); ok {
		how.Sleeper = sleeper
	}
	cfg := TeamConfig{Rank: m.rank, Size: m.size, Host: fmt.Sprint("host", nw.hostOf(m.rank)), Mesh: m.mesh, ODP: m.odp, Exchange: exchange, Waiter: wait.New(how)}
	if nw.offload > 0 {
		cfg.Offload = nw.daemons[m.rank]
	}
	if nw.change != nil {
		nw.change(&cfg)
	}
	return cfg
}

// run has every member run f with a team of all. The teams are closed after it.
func (nw *network) run(t testing.TB, f func(ctx context.Context, m *member) error) {
	t.Helper()
	nw.open(t)
	ctx := testenv.Deadline(t, time.Minute)
	nw.each(t, func(m *member) error {
		var err error
		m.team, err = NewTeam(ctx, nw.config(m, nw.meeting.exchange(m.rank)))
		if err != nil {
			return err
		}
		return errors.Join(f(ctx, m), m.team.Close())
	})
}

// each runs f for all members at once and reports their errors.
func (nw *network) each(t testing.TB, f func(m *member) error) {
	t.Helper()
	errs := make([]error, nw.n)
	var wg sync.WaitGroup
	for i, m := range nw.members {
		wg.Go(func() { errs[i] = f(m) })
	}
	wg.Wait()
	for i, err := range errs {
		if err != nil {
			t.Errorf("rank %d: %v", i, err)
		}
	}
}

// check makes the call and compares what comes. With registered memory the
// operands lie in one region, at odd offsets.
func (m *member) check(ctx context.Context, j *job, registered bool) error {
	given, room := j.operands(m.rank)
	in, out := Buffer{Mem: given}, Buffer{Mem: room}
	if registered && len(given)+len(room) > 0 {
		mr, a, b, err := m.registered(given, room)
		if err != nil {
			return err
		}
		defer mr.Close()
		in, out = a, b
	}
	if err := m.team.Run(ctx, j.args(m.rank, in, out)); err != nil {
		return err
	}
	want := j.want(m.rank)
	if got := out.Mem; !bytes.Equal(got[:len(want)], want) {
		return fmt.Errorf("%+v: got %x, want %x", j.call, head(got), head(want))
	}
	return nil
}

func head(b []byte) []byte { return b[:min(len(b), 64)] }

// jobs draws a run of calls that crosses the thresholds of a team.
func jobs(seed uint64, n, count int, eager int, most int) []*job {
	rng := rand.New(rand.NewPCG(seed, uint64(n)))
	all := ways()
	var list []*job
	for range count {
		w := all[rng.IntN(len(all))]
		if rng.IntN(2) == 0 {
			w.Algorithm = Auto
		}
		size := []int{0, 1, 8, 100, eager - 1, eager, eager + 1, rng.IntN(4 * eager), rng.IntN(most)}[rng.IntN(9)]
		list = append(list, newJob(rng, w.Kind, w.Algorithm, n, size))
	}
	return list
}

// atLength is the number for a whole run, or that for one with -short or the race detector.
func atLength(whole, short int) int {
	if arch.RaceEnabled || testing.Short() {
		return short
	}
	return whole
}

func TestCollectivesOnSoft(t *testing.T) {
	cases := []struct {
		name       string
		ranks      []int
		network    network
		registered bool
	}{
		{name: "registered memory", ranks: []int{1, 2, 3, 4, 7}, registered: true},
		{name: "address space", ranks: []int{2, 3, 5}},
		{name: "registered memory, verbs", ranks: []int{2, 3, 5}, registered: true, network: network{verbs: true}},
		{name: "address space, verbs", ranks: []int{2, 3}, network: network{verbs: true}},
		{name: "registered for the call", ranks: []int{1, 2, 4}, network: network{ordinary: true}},
		{name: "short queue, staged", ranks: []int{2, 5}, registered: true,
			network: network{verbs: true, cap: rdma.QPCap{MaxSendWR: 8, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInlineData: 64}}},
		{name: "adversary", ranks: []int{2, 3, 4}, registered: true, network: network{adversary: &soft.Adversary{Seed: 7}}},
		{name: "adversary, address space", ranks: []int{3}, network: network{adversary: &soft.Adversary{Seed: 11}}},
		{name: "two hosts", ranks: []int{2, 3, 4}, registered: true, network: network{hosts: 2}},
		{name: "two hosts, adversary", ranks: []int{3}, network: network{hosts: 2, adversary: &soft.Adversary{Seed: 5}}},
		{name: "tree and ring for all", ranks: []int{2, 3, 6}, registered: true, network: network{change: func(cfg *TeamConfig) {
			cfg.Table = tableWith(func(t *Table) { t.EagerBytes, t.ChunkBytes = 64, 1000 },
				Call{Kind: AllGather, Algorithm: Ring}, Call{Kind: AllReduce, Algorithm: RecursiveDoubling}, Call{Kind: Reduce, Algorithm: Binomial})
		}}},
		{name: "bruck and halves for all", ranks: []int{2, 3, 6}, registered: true, network: network{change: func(cfg *TeamConfig) {
			cfg.Table = tableWith(func(t *Table) { t.PieceBytes = 512 },
				Call{Kind: AllGather, Algorithm: Bruck}, Call{Kind: AllReduce, Algorithm: ReduceScatterGather},
				Call{Kind: Reduce, Algorithm: ReduceScatterGather}, Call{Kind: AllToAll, Algorithm: Bruck})
		}}},
	}
	for _, c := range cases {
		for _, n := range c.ranks {
			t.Run(fmt.Sprintf("%s/ranks=%d", c.name, n), func(t *testing.T) {
				testenv.NoLeaks(t)
				count := atLength(60, 15)
				list := jobs(uint64(n), n, count, defaultEager, 200<<10)
				nw := c.network
				nw.n = n
				nw.run(t, func(ctx context.Context, m *member) error {
					for i, j := range list {
						if err := m.check(ctx, j, c.registered); err != nil {
							return fmt.Errorf("call %d: %w", i, err)
						}
					}
					return nil
				})
			})
		}
	}
}

// The result of a floating-point reduction is the same on all ranks, to the bit.
func TestFloatsAreTheSameOnAllRanks(t *testing.T) {
	for _, algorithm := range Algorithms(AllReduce) {
		for _, n := range []int{2, 3, 5, 6} {
			t.Run(fmt.Sprintf("%v/ranks=%d", algorithm, n), func(t *testing.T) {
				const count = 5001 // longer than a message
				sum, _ := kernel.For(kernel.Float32, kernel.Sum)
				var first []byte
				// The memory is registered in all, some or no members, and mapped
				// or not; some are in place.
				for way := range 6 {
					results := make([][]byte, n)
					nw := network{n: n, verbs: way%2 == 1, change: func(cfg *TeamConfig) { cfg.Table = tableWith(nil, Call{Kind: AllReduce, Algorithm: algorithm}) }}
					nw.run(t, func(ctx context.Context, m *member) error {
						mr, err := m.pd.AllocMR(8*count, rdma.AccessLocalWrite|rdma.AccessRemoteWrite|rdma.AccessRemoteRead)
						if err != nil {
							return err
						}
						t.Cleanup(func() { mr.Close() })
						in, out := Buffer{Mem: mr.Bytes()[:4*count], MR: mr}, Buffer{Mem: mr.Bytes()[4*count:], MR: mr}
						if way/2 == 1 || way/2 == 2 && m.rank%2 == 0 {
							in, out = Buffer{Mem: make([]byte, 4*count)}, Buffer{Mem: make([]byte, 4*count)}
						}
						rng := rand.New(rand.NewPCG(1, uint64(m.rank)))
						for i := range count {
							putFloat(in.Mem[4*i:], float32(math.Exp(40*rng.Float64()-20)))
						}
						if (m.rank+way)%3 == 0 {
							out = in
						}
						err = m.team.AllReduce(ctx, in, out, count, sum)
						results[m.rank] = bytes.Clone(out.Mem)
						return err
					})
					if first == nil {
						first = results[0]
					}
					for r, got := range results {
						if !bytes.Equal(got, first) {
							t.Errorf("way %d: rank %d got other bits than rank 0 in the first way", way, r)
						}
					}
				}
			})
		}
	}
}

func putFloat(b []byte, f float32) {
	v := math.Float32bits(f)
	b[0], b[1], b[2], b[3] = byte(v), byte(v>>8), byte(v>>16), byte(v>>24)
}

func TestCallsDoNotAllocate(t *testing.T) {
	if arch.RaceEnabled {
		return // the detector allocates
	}
	sum, _ := kernel.For(kernel.Float32, kernel.Sum)
	calls := []struct {
		name string
		do   func(ctx context.Context, t *Team, in, out Buffer) error
	}{
		{"barrier", func(ctx context.Context, t *Team, in, out Buffer) error { return t.Barrier(ctx) }},
		{"alltoall 8", func(ctx context.Context, t *Team, in, out Buffer) error { return t.AllToAll(ctx, in, out, 8, Auto) }},
		{"alltoall 10000", func(ctx context.Context, t *Team, in, out Buffer) error { return t.AllToAll(ctx, in, out, 10000, Auto) }},
		{"bcast", func(ctx context.Context, t *Team, in, out Buffer) error { return t.Bcast(ctx, out, 10000, 1) }},
		{"allreduce 8", func(ctx context.Context, t *Team, in, out Buffer) error { return t.AllReduce(ctx, in, out, 2, sum) }},
		{"allreduce 16384", func(ctx context.Context, t *Team, in, out Buffer) error {
			return t.AllReduce(ctx, in, out, 4096, sum)
		}},
		{"allgather", func(ctx context.Context, t *Team, in, out Buffer) error { return t.AllGather(ctx, in, out, 1000) }},
		{"bcast by pull", func(ctx context.Context, t *Team, in, out Buffer) error {
			return t.Run(ctx, &Args{Kind: Bcast, Algorithm: Pull, Recv: out, Bytes: 10000})
		}},
	}
	const rounds = 50
	nw := network{n: 2}
	nw.run(t, func(ctx context.Context, m *member) error {
		in, out := Buffer{Mem: make([]byte, 20000)}, Buffer{Mem: make([]byte, 20000)}
		for _, c := range calls {
			var failed error
			call := func() {
				if err := c.do(ctx, m.team, in, out); err != nil {
					failed = err
				}
			}
			call()
			if m.rank == 1 {
				for range rounds + 1 {
					call()
				}
			} else if got := testing.AllocsPerRun(rounds, call); got != 0 {
				// Both ranks are goroutines of this process, so this
				// counts what either allocates.
				t.Errorf("%s: %v allocations a call, want 0", c.name, got)
			}
			if failed != nil {
				return fmt.Errorf("%s: %w", c.name, failed)
			}
		}
		return nil
	})
}

func TestCountersAreExact(t *testing.T) {
	const n = 4
	cases := []struct {
		name string
		do   func(ctx context.Context, m *member, in, out Buffer) error
		want Counters
	}{
		{"alltoall in messages", func(ctx context.Context, m *member, in, out Buffer) error {
			return m.team.AllToAll(ctx, in, out, 8, Direct)
		}, Counters{Calls: 1, Puts: 3, PutBytes: 24, Signals: 3, Copies: 1, CopyBytes: 8, Unpacks: 3, UnpackBytes: 24}},
		{"alltoall by descriptor", func(ctx context.Context, m *member, in, out Buffer) error {
			return m.team.AllToAll(ctx, in, out, 16384, Direct)
		}, Counters{Calls: 1, Puts: 3, PutBytes: 3 * 16384, Signals: 3, Copies: 1, CopyBytes: 16384, Descriptors: 3}},
		{"barrier", func(ctx context.Context, m *member, in, out Buffer) error {
			return m.team.Run(ctx, &Args{Kind: Barrier, Algorithm: Direct})
		}, Counters{Calls: 1, Signals: 3}},
		{"alltoall by pull", func(ctx context.Context, m *member, in, out Buffer) error {
			return m.team.AllToAll(ctx, in, out, 16384, Pull)
		}, Counters{Calls: 1, Gets: 3, GetBytes: 3 * 16384, Signals: 3, Copies: 1, CopyBytes: 16384, Descriptors: 3}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			nw := network{n: n, verbs: true}
			nw.run(t, func(ctx context.Context, m *member) error {
				in, out := Buffer{Mem: make([]byte, n*16384)}, Buffer{Mem: make([]byte, n*16384)}
				before, reads := m.ctx.Counters().Writes, m.ctx.Counters().Reads
				if err := c.do(ctx, m, in, out); err != nil {
					return err
				}
				got := m.team.Counters()
				if got != c.want {
					return fmt.Errorf("got %+v, want %+v", got, c.want)
				}
				if reads = m.ctx.Counters().Reads - reads; reads != got.Gets {
					return fmt.Errorf("the device made %d reads, want %d", reads, got.Gets)
				}
				// A member that had to wait for one without CPU time may have told it so.
				if writes := m.ctx.Counters().Writes - before; writes != got.Writes()+m.team.faults.words {
					return fmt.Errorf("the device made %d writes, want %d", writes, got.Writes()+m.team.faults.words)
				}
				return nil
			})
			mapped := network{n: n}
			mapped.run(t, func(ctx context.Context, m *member) error {
				mr, err := m.pd.AllocMR(2*n*16384, rdma.AccessLocalWrite|rdma.AccessRemoteWrite|rdma.AccessRemoteRead)
				if err != nil {
					return err
				}
				defer mr.Close()
				in, out := Buffer{Mem: mr.Bytes()[:n*16384], MR: mr}, Buffer{Mem: mr.Bytes()[n*16384:], MR: mr}
				before := m.ctx.Counters().Writes
				if err := c.do(ctx, m, in, out); err != nil {
					return err
				}
				if got := m.team.Counters(); got != c.want {
					return fmt.Errorf("in mapped memory: got %+v, want %+v", got, c.want)
				}
				if writes := m.ctx.Counters().Writes - before; writes != 0 {
					return fmt.Errorf("in mapped memory the device made %d writes, want 0", writes)
				}
				return nil
			})
		})
	}
}

// A world learns whom it maps in the very exchange that a team's intros are part of.
func TestPeersThatAreMappedInTheExchange(t *testing.T) {
	nw := network{n: 3}
	second := newMeeting(nw.n)
	nw.run(t, func(ctx context.Context, m *member) error {
		known := nw.peersOf(m)
		late := make([]rdma.PeerMemory, nw.n)
		mesh, err := meshOf(m.pd, m.cq, m.qps, late)
		if err != nil {
			return err
		}
		cfg := nw.config(m, func(ctx context.Context, mine []byte) ([][]byte, error) {
			intros, err := second.exchange(m.rank)(ctx, mine)
			copy(late, known)
			return intros, err
		})
		cfg.Mesh = mesh
		team, err := NewTeam(ctx, cfg)
		if err != nil {
			return err
		}
		if !team.tuning.mapped {
			err = errors.New("the members do not know that all map each other")
		}
		return errors.Join(err, team.Close(), mesh.Close())
	})
}

// Between hosts, where a rule says pull, something else stands in for it, in all
// members.
func TestPullStaysOnAHost(t *testing.T) {
	table := DefaultTable()
	for _, kind := range []Kind{Bcast, Scatter, AllGather, AllToAll, Scan, ExScan} {
		if err := table.Always(kind, Pull); err != nil {
			t.Fatal(err)
		}
	}
	for hosts, want := range map[int]string{1: "pull, by descriptor", 2: "not all members map each other's memory"} {
		nw := network{n: 3, hosts: hosts, change: func(cfg *TeamConfig) { cfg.Table = table }}
		nw.run(t, func(ctx context.Context, m *member) error {
			for _, kind := range []Kind{Bcast, Scatter, AllGather, AllToAll, Scan, ExScan} {
				for _, n := range []int{10, 20000, 100000} {
					if err := m.check(ctx, newJob(rand.New(rand.NewPCG(1, uint64(n))), kind, Auto, nw.n, n), false); err != nil {
						return err
					}
					if got := m.team.Explain(Args{Kind: kind, Bytes: n}); !strings.Contains(got, want) {
						return fmt.Errorf("on %d hosts %q, want %q in it", hosts, got, want)
					}
				}
			}
			if gets := m.team.Counters().Gets; (gets > 0) != (hosts == 1) {
				return fmt.Errorf("on %d hosts %d reads", hosts, gets)
			}
			return nil
		})
	}
}

// A result that no cache holds is stored past them: every byte, in whatever memory, and
// before the message that says so.
func TestResultsPastTheCaches(t *testing.T) {
	calls := []Call{{Kind: AllGather, Algorithm: Direct}, {Kind: AllGather, Algorithm: Pull}, {Kind: AllToAll, Algorithm: Direct}, {Kind: AllToAll, Algorithm: Pull}, {Kind: Gather, Algorithm: Direct}}
	const cached = 1 << 20
	for n, bytes := range map[int]int{2: cached / 2, 3: cached/3 + 5} {
		var list []*job
		for i, w := range calls {
			p := compile(Call{Kind: w.Kind, Algorithm: w.Algorithm, Size: n, Bytes: bytes, Elem: 1}, tuning{slots: 8, eager: defaultEager, chunk: 1000, piece: 1000, cached: cached, mapped: true})
			if !strings.Contains(p.String(), "aside") {
				t.Errorf("no step of %v goes past the cache:\n%v", w, p)
			}
			list = append(list, newJob(rand.New(rand.NewPCG(uint64(i), uint64(n))), w.Kind, w.Algorithm, n, bytes))
		}
		for _, registered := range []bool{true, false} {
			nw := network{n: n}
			nw.run(t, func(ctx context.Context, m *member) error {
				m.team.tuning.cached = cached
				for _, j := range list {
					if err := m.check(ctx, j, registered); err != nil {
						return err
					}
				}
				return nil
			})
		}
	}
}

// Memory with remote write access alone is as good as ordinary memory.
func TestRegionThatCannotBeRead(t *testing.T) {
	for _, ordinary := range []bool{false, true} {
		nw := network{n: 3, ordinary: ordinary}
		nw.run(t, func(ctx context.Context, m *member) error {
			mr, err := m.pd.AllocMR(20000, rdma.AccessLocalWrite|rdma.AccessRemoteWrite)
			if err != nil {
				return err
			}
			defer mr.Close()
			out := Buffer{Mem: mr.Bytes(), MR: mr}
			for i := range out.Mem {
				out.Mem[i] = byte(i * (m.rank + 1))
			}
			if err := m.team.Run(ctx, &Args{Kind: Bcast, Algorithm: Pull, Recv: out, Bytes: len(out.Mem), Root: 1}); err != nil {
				return err
			}
			for i, got := range out.Mem {
				if got != byte(i*2) {
					return fmt.Errorf("byte %d is %d, want %d", i, got, byte(i*2))
				}
			}
			return nil
		})
	}
}

func TestExplain(t *testing.T) {
	nw := network{n: 2, change: func(cfg *TeamConfig) { cfg.Table = tableWith(nil, Call{Kind: AllGather, Algorithm: Ring}) }}
	nw.run(t, func(ctx context.Context, m *member) error {
		for _, c := range []struct {
			args Args
			want string
		}{
			{Args{Kind: AllToAll, Bytes: 8}, "alltoall of 8 bytes on 2 ranks: direct, in messages (table: from 1 ranks on, from 0 bytes on)"},
			{Args{Kind: AllReduce, Bytes: 1 << 20}, "reduce-scatter-gather, by descriptor"},
			{Args{Kind: AllToAll, Bytes: 8, Algorithm: Bruck}, "bruck, in messages (asked for)"},
			{Args{Kind: AllGather, Bytes: 8}, "ring, in messages (table: from 1 ranks on, from 0 bytes on)"},
			{Args{Kind: ReduceScatter, Bytes: 8}, "direct, in messages (table: from 1 ranks on, from 0 bytes on)"},
			{Args{Kind: ReduceScatter, Bytes: 8, Algorithm: Ring}, "ring, in messages (asked for)"},
			{Args{Kind: Barrier}, "barrier on 2 ranks: direct (table: from 1 ranks on, from 0 bytes on)"},
			{Args{Kind: Exchange}, "exchange on 2 ranks: direct, parts up to 8192 bytes in messages, longer ones by descriptor"},
			{Args{Kind: Fold}, "(the only one)"},
			{Args{Kind: Barrier, Algorithm: Ring}, "barrier has no algorithm ring"},
		} {
			if got := m.team.Explain(c.args); !strings.Contains(got, c.want) {
				return fmt.Errorf("%+v: got %q, want %q", c.args, got, c.want)
			}
		}
		return nil
	})
}

// A piece of a reduction is longer where it goes to another host, unless the table
// has its length.
func TestPieceBetweenHosts(t *testing.T) {
	cases := []struct {
		name         string
		hosts, table int
		want         int
	}{
		{"one host", 1, 0, defaultPiece},
		{"two hosts", 2, 0, defaultSentPiece},
		{"two hosts, by the table", 2, 1000, 1000},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			nw := network{n: 2, hosts: c.hosts, change: func(cfg *TeamConfig) {
				table := DefaultTable()
				table.PieceBytes = c.table
				cfg.Table = table
			}}
			nw.run(t, func(_ context.Context, m *member) error {
				if got := m.team.tuning.piece; got != c.want {
					return fmt.Errorf("pieces of %d bytes, want %d", got, c.want)
				}
				return nil
			})
		})
	}
}
