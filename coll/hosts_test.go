package coll

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gorun-mpi/gorun/internal/kernel"
	"github.com/gorun-mpi/gorun/rdma/soft"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

// anyPlacement puts n members on hosts: in runs, in turns, at random, one a host, or all
// on one.
func anyPlacement(rng *rand.Rand, n int) *placement {
	names, hosts := make([]uint64, n), 1+rng.IntN(min(n, 5))
	how := rng.IntN(5)
	for i := range names {
		names[i] = []uint64{uint64(i * hosts / n), uint64(i % hosts), rng.Uint64N(uint64(hosts)), uint64(i), 0}[how]
	}
	return placementOf(names)
}

func TestPlacement(t *testing.T) {
	for _, c := range []struct {
		names         []uint64
		want          [][]int
		whole, shared bool
	}{
		{[]uint64{7, 7, 7}, [][]int{{0, 1, 2}}, true, false},
		{[]uint64{7, 9, 3}, [][]int{{0}, {1}, {2}}, true, false},
		{[]uint64{7, 7, 9, 9}, [][]int{{0, 1}, {2, 3}}, true, true},
		{[]uint64{7, 9, 7, 9}, [][]int{{0, 2}, {1, 3}}, false, true},
		{[]uint64{9, 7, 7}, [][]int{{0}, {1, 2}}, true, true},
	} {
		p := placementOf(c.names)
		if fmt.Sprint(p.hosts) != fmt.Sprint(c.want) || p.whole != c.whole || p.shared != c.shared {
			t.Errorf("%v: got %v, whole %v, shared %v; want %+v", c.names, p.hosts, p.whole, p.shared, c)
		}
		for i := range c.names {
			if p.hosts[p.of[i]][p.at[i]] != i {
				t.Errorf("%v: member %d is number %d of host %d", c.names, i, p.at[i], p.of[i])
			}
		}
	}
}

// hostsOf is members on hosts of these sizes, one after the other.
func hostsOf(sizes ...int) *placement {
	var names []uint64
	for h, n := range sizes {
		names = append(names, slices.Repeat([]uint64{uint64(h)}, n)...)
	}
	return placementOf(names)
}

// interleaved is n members that take turns on so many hosts.
func interleaved(n, hosts int) *placement {
	names := make([]uint64, n)
	for i := range names {
		names[i] = uint64(i % hosts)
	}
	return placementOf(names)
}

// between counts the messages of a call from each host to each other one: what a member
// posts that has a header.
func messagesBetween(c Call, t tuning) map[[2]int]int {
	count := map[[2]int]int{}
	for r := range c.Size {
		c.Rank = r
		for _, s := range compile(c, t).steps {
			if s.verb == vSend || s.verb == vExpose || s.verb == vPut && s.signal || s.verb == vGet {
				if from, to := t.hosts.of[r], t.hosts.of[s.peer]; from != to {
					count[[2]int{from, to}]++
				}
			}
		}
	}
	return count
}

// Two levels take one message from each host to each other one, those with a root one to
// each host but the root's, and a barrier log2 h from each host.
func TestOneMessageForEachPairOfHosts(t *testing.T) {
	for _, p := range []*placement{hostsOf(4, 4, 4, 4), hostsOf(2, 2), hostsOf(1, 3, 2), interleaved(8, 2), interleaved(7, 3)} {
		for _, way := range ways() {
			if way.Algorithm != TwoLevel {
				continue
			}
			c := Call{Kind: way.Kind, Algorithm: TwoLevel, Size: len(p.of), Bytes: 8, Elem: 1}
			if c.Kind == Barrier {
				c.Bytes = 0
			}
			count := messagesBetween(c, tuning{slots: leastSlots, eager: defaultEager, chunk: defaultChunk, piece: defaultPiece, hosts: p})
			for to := range p.hosts {
				come := 0 // to this host
				pairs := !operations[c.Kind].rooted && c.Kind != Barrier
				for from := range p.hosts {
					got := count[[2]int{from, to}]
					if from != to && pairs && got != 1 {
						t.Errorf("%v on %v: %d messages from host %d to host %d, want 1", way.Kind, p.hosts, got, from, to)
					}
					come += got
				}
				if rounds := bits.Len(uint(len(p.hosts) - 1)); c.Kind == Barrier && come != rounds {
					t.Errorf("barrier on %v: %d messages to host %d, want %d", p.hosts, come, to, rounds)
				}
				if operations[c.Kind].rooted && come != min(1, to) {
					t.Errorf("%v from host 0 on %v: %d messages to host %d", way.Kind, p.hosts, come, to)
				}
			}
		}
	}
}

// What leaders do, to be read.
func TestTwoLevelTranscripts(t *testing.T) {
	for _, c := range []struct {
		call  Call
		hosts *placement
		want  string
	}{
		{Call{Kind: Barrier, Rank: 2, Size: 4, Elem: 1}, hostsOf(2, 2), `
take 3
signal 0
take 0
signal 3
`},
		// Rank 1 of hosts {0, 2} and {1, 3} leads there; root 2 does on the other.
		{Call{Kind: Bcast, Rank: 1, Size: 4, Root: 2, Bytes: 80, Elem: 1}, interleaved(4, 2), `
expose 2: #0 = out+0 80
take 2
learn 3: #0
put 3: #0+0 = out+0 40, signal
take 2
put 3: #0+40 = out+40 40, signal
flush 3
`},
		{Call{Kind: Bcast, Rank: 2, Size: 4, Root: 2, Bytes: 8, Elem: 1}, interleaved(4, 2), `
send 1: out+0 8
send 0: out+0 8
`},
		{Call{Kind: AllGather, Rank: 0, Size: 4, Bytes: 8, Elem: 1}, interleaved(4, 2), `
copy tmp+0 = in+0 8
await 2
copy tmp+8 = slot(2)+0 8, release
send 1: tmp+0 16
await 1
copy out+0 = in+0 8
copy out+8 = slot(1)+0 8
copy out+16 = tmp+8 8
copy out+24 = slot(1)+8 8
release 1
learn 2: #0
put 2: #0+0 = out+0 32, signal
flush 2
`},
		{Call{Kind: AllToAll, Rank: 0, Size: 4, Bytes: 4, Elem: 1}, interleaved(4, 2), `
copy tmp+0 = in+4 4
copy tmp+4 = in+12 4
await 2
copy tmp+64 = slot(2)+0 8, release
copy tmp+128 = tmp+0 8
copy tmp+136 = tmp+64 8
send 1: tmp+128 16
send 2: in+8 4
copy out+0 = in+0 4
await 2
copy out+8 = slot(2)+0 4, release
await 1
copy out+4 = slot(1)+0 4
copy out+12 = slot(1)+8 4
copy tmp+192 = slot(1)+4 4
copy tmp+196 = slot(1)+12 4
send 2: tmp+192 8
release 1
`},
		{Call{Kind: ReduceScatter, Rank: 0, Size: 3, Bytes: 8, Elem: 8}, hostsOf(2, 1), `
await 1
copy tmp+0 = slot(1)+0 24, release
copy tmp+64 = in+16 8
copy tmp+72 = tmp+16 8
send 2: tmp+64 16
await 2
reduce tmp+128 = in+8 op tmp+8 8
reduce tmp+128 = tmp+128 op slot(2)+8 8
send 1: tmp+128 8
reduce out+0 = in+0 op tmp+0 8
reduce out+0 = out+0 op slot(2)+0 8
release 2
`},
		{Call{Kind: AllReduce, Rank: 2, Size: 4, Bytes: 8, Elem: 8}, hostsOf(2, 2), `
copy tmp+0 = in+0 8
await 3
copy tmp+8 = slot(3)+0 8, release
send 0: tmp+0 16
await 0
reduce out+0 = slot(0)+0 op slot(0)+8 8
reduce out+0 = out+0 op in+0 8
reduce out+0 = out+0 op tmp+8 8
release 0
send 3: out+0 8
`},
	} {
		at := small
		at.hosts, c.call.Algorithm = c.hosts, TwoLevel
		if got := compile(c.call, at).String(); got != c.want[1:] {
			t.Errorf("%v: got\n%swant%s", c.call.Kind, got, c.want)
		}
	}
}

// What two levels cost depends on the placement: the plans come up to it on hosts of one
// size.
func TestCostsOfTwoLevels(t *testing.T) {
	for _, way := range ways() {
		w := wayOf(way.Kind, way.Algorithm)
		if way.Algorithm != TwoLevel {
			continue
		}
		on := func(c cost, k, h int) int {
			if c.on == nil {
				return int(c.of(float64(k * h)))
			}
			return c.on(k, h)
		}
		for _, c := range []struct{ k, h int }{{2, 2}, {4, 4}, {1, 3}, {3, 1}, {2, 5}} {
			whole := tuning{slots: leastSlots, eager: 1 << 20, chunk: 1 << 20, piece: 1 << 20, hosts: hostsOf(slices.Repeat([]int{c.k}, c.h)...)}
			plans := make([]*plan, c.k*c.h)
			for r := range plans {
				plans[r] = compile(Call{Kind: way.Kind, Algorithm: way.Algorithm, Rank: r, Size: len(plans), Bytes: 8, Elem: 8}, whole)
			}
			if got, want := chain(t, plans), on(w.steps, c.k, c.h); got > want || c.k > 1 && c.h > 1 && got != want {
				t.Errorf("%v by %v, %d ranks on each of %d hosts: a chain of %d messages, want %d", way.Kind, way.Algorithm, c.k, c.h, got, want)
			}
			if got, want := bytesMoved(plans), 8*on(w.moves, c.k, c.h); got != want {
				t.Errorf("%v by %v, %d ranks on each of %d hosts: a rank moves %d bytes, want %d", way.Kind, way.Algorithm, c.k, c.h, got, want)
			}
		}
	}
}

// The bits of a sum do not depend on who shares a host: a team on several hosts combines as
// one of as many ranks on one host does.
func TestFloatsAreTheSameOnAllPlacements(t *testing.T) {
	const count = 40
	sum, _ := kernel.For(kernel.Float32, kernel.Sum)
	for n := 2; n <= 27; n++ {
		rng := rand.New(rand.NewPCG(1, uint64(n)))
		given := make([][]byte, n)
		for r := range given {
			given[r] = make([]byte, 4*count)
			for i := range count {
				putFloat(given[r][4*i:], float32(math.Exp(40*rng.Float64()-20)))
			}
		}
		result := func(p *placement) []byte {
			s := builtIn.selection(n)
			s.mapped, s.hosts = p == nil, p
			c := Call{Kind: AllReduce, Size: n, Bytes: 4 * count, Elem: 4}
			a, _, _ := s.algorithm(&c)
			if p != nil && p.shared != (a == TwoLevel) {
				t.Errorf("%d ranks on %v: %v", n, p.hosts, a)
			}
			c.Algorithm, c.Pairs = a, a == TwoLevel && s.pairs(&c)
			f := newFabric(uint64(n), n, tuning{slots: leastSlots, eager: 200, chunk: 40, piece: 16})
			f.tuning.hosts = p
			outs := make([][]byte, n)
			for _, d := range f.nodes {
				c.Rank = d.rank
				outs[d.rank] = make([]byte, 4*count)
				d.start(compile(c, f.tuning), bytes.Clone(given[d.rank]), outs[d.rank], sum.Func)
			}
			if err := f.run(func(*node) {}); err != nil {
				t.Fatal(err)
			}
			for r, out := range outs {
				if !bytes.Equal(out, outs[0]) {
					t.Fatalf("%d ranks: rank %d got other bits than rank 0", n, r)
				}
			}
			return outs[0]
		}
		want := result(nil)
		for range 10 {
			if p := anyPlacement(rng, n); !bytes.Equal(result(p), want) {
				t.Errorf("%d ranks on %v: other bits than on one host", n, p.hosts)
			}
		}
	}
}

// A reduction by two levels, or by any other rule across hosts, is one that combines as the
// rule for one host does.
func TestRulesAcrossHostsKeepTheBits(t *testing.T) {
	const n, count = 7, 12
	sum, _ := kernel.For(kernel.Float32, kernel.Sum)
	rng := rand.New(rand.NewPCG(5, 5))
	given := make([][]byte, n)
	for r := range given {
		given[r] = make([]byte, 4*count*n)
		for i := range count * n {
			putFloat(given[r][4*i:], float32(math.Exp(40*rng.Float64()-20)))
		}
	}
	for _, kind := range Kinds() {
		if op := &operations[kind]; !op.reduces || op.parts != nil {
			continue
		}
		for _, one := range Algorithms(kind) {
			for _, across := range Algorithms(kind) {
				table := DefaultTable()
				for _, err := range []error{table.Always(kind, one), table.SetAcross(kind, 1, Rule{0, across})} {
					if err != nil {
						t.Fatal(err)
					}
				}
				result := func(p *placement) (all []byte, a Algorithm) {
					s := table.selection(n)
					s.mapped, s.hosts = true, p
					c := Call{Kind: kind, Size: n, Bytes: 4 * count, Elem: 4}
					c.Algorithm, _, _ = s.algorithm(&c)
					c.Pairs = c.Algorithm == TwoLevel && s.pairs(&c)
					f := newFabric(uint64(n), n, tuning{slots: leastSlots, eager: 200, chunk: 40, piece: 16})
					f.tuning.hosts = p
					outs := make([][]byte, n)
					for _, d := range f.nodes {
						c.Rank, outs[d.rank] = d.rank, make([]byte, 4*count)
						d.start(compile(c, f.tuning), bytes.Clone(given[d.rank]), outs[d.rank], sum.Func)
					}
					if err := f.run(func(*node) {}); err != nil {
						t.Fatal(err)
					}
					return slices.Concat(outs...), c.Algorithm
				}
				p := interleaved(n, 3)
				want, _ := result(nil)
				got, a := result(p)
				if !bytes.Equal(got, want) {
					t.Errorf("%v by %v on one host, by %v across hosts, which was done by %v: other bits", kind, one, across, a)
				}
				if across == TwoLevel && one != Ring && one != Binomial != (a == TwoLevel) {
					t.Errorf("%v by %v on one host, by %v across hosts: was done by %v", kind, one, across, a)
				}
			}
		}
	}
}

// What leaders hold is bounded, and where it would be more all members go the flat way.
func TestScratchOfLeadersIsBounded(t *testing.T) {
	testenv.Part(t, testenv.Large)
	for _, c := range []struct {
		p    *placement
		from int // the largest that goes by two levels
	}{{hostsOf(2, 2), 64 << 10}, {hostsOf(slices.Repeat([]int{32}, 8)...), 16 << 10}, {interleaved(24, 3), 64 << 10}, {hostsOf(slices.Repeat([]int{128}, 32)...), 512}} {
		for _, way := range ways() {
			if way.Algorithm != TwoLevel {
				continue
			}
			s := builtIn.selection(len(c.p.of))
			s.hosts = c.p
			t.Run(fmt.Sprintf("%v on %d hosts", way.Kind, len(c.p.hosts)), func(t *testing.T) {
				last := -1
				for n := 1; n <= 1<<20; n *= 2 {
					call := Call{Kind: way.Kind, Size: len(c.p.of), Bytes: n, Elem: 1}
					call.Algorithm, _, _ = s.algorithm(&call)
					if call.Algorithm != TwoLevel {
						if way.Kind == AllReduce && last > c.from {
							t.Errorf("two levels up to %d bytes, want %d", last, c.from)
						}
						continue
					}
					last = n
					call.Pairs = s.pairs(&call)
					for _, call.InPlace = range []bool{false, true} {
						for _, host := range c.p.hosts {
							call.Rank = host[0]
							at := tuning{slots: leastSlots, eager: leastEager, chunk: defaultChunk, piece: defaultPiece, hosts: c.p}
							p := compile(call, at)
							if len(p.steps) > cacheSteps {
								t.Fatalf("%d bytes, %d ranks: rank %d has %d steps, expected %d at most, as many as are kept", n, call.Size, call.Rank, len(p.steps), cacheSteps)
							}
							if got := p.scratch; got > mostOfLeader+line*2*call.Size {
								t.Fatalf("%d bytes, %d ranks: rank %d has %d bytes of scratch, expected %d at most", n, call.Size, call.Rank, got, mostOfLeader)
							}
						}
					}
				}
			})
		}
	}
}

// Teams on any hosts, over TCP between them, by the table, by two levels and by a chain.
func TestCollectivesAcrossHosts(t *testing.T) {
	for _, c := range []struct {
		name      string
		placed    []int
		adversary *soft.Adversary
	}{
		{"even", []int{0, 0, 1, 1}, nil},
		{"uneven", []int{0, 1, 1, 1, 2}, nil},
		{"in turns", []int{0, 1, 0, 1, 0, 1}, nil},
		{"one a host", []int{0, 1, 2}, nil},
		{"adversary", []int{0, 1, 1, 0}, &soft.Adversary{Seed: 3}},
	} {
		t.Run(c.name, func(t *testing.T) {
			nw := network{n: len(c.placed), placed: c.placed, hosts: 1 + slices.Max(c.placed), adversary: c.adversary}
			rng := rand.New(rand.NewPCG(9, uint64(nw.n)))
			var list []*job
			for _, way := range ways() {
				if way.Algorithm != TwoLevel && way.Algorithm != HostChain {
					continue
				}
				for _, size := range []int{0, 8, 100, defaultEager + 8, 100 << 10, 1 << 20} {
					if way.Algorithm == TwoLevel && size > 100<<10 {
						continue
					}
					list = append(list, newJob(rng, way.Kind, way.Algorithm, nw.n, size), newJob(rng, way.Kind, Auto, nw.n, size))
				}
			}
			nw.run(t, func(ctx context.Context, m *member) error {
				for i, j := range list {
					if err := m.check(ctx, j, i%2 == 0); err != nil {
						return fmt.Errorf("call %d: %w", i, err)
					}
				}
				return nil
			})
		})
	}
}
