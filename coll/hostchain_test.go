package coll

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gorun-mpi/gorun/internal/kernel"
)

// Chains of hosts in many interleavings: of different sizes, with a host of one member, with
// fewer elements than carriers, with portions that are not equal.
func TestHostChainsInAnyInterleaving(t *testing.T) {
	for _, p := range []*placement{hostsOf(2, 2), hostsOf(1, 2), hostsOf(2, 1), hostsOf(3, 2, 4), hostsOf(2, 1, 3), hostsOf(2, 2, 2, 2, 2, 2, 2)} {
		for seed := range uint64(60) {
			rng := rand.New(rand.NewPCG(seed, uint64(len(p.of))))
			var jobs []*job
			for _, size := range []int{8, 100, 16 * (1 + rng.IntN(60))} {
				jobs = append(jobs, newJob(rng, AllReduce, HostChain, len(p.of), size))
			}
			f := newFabric(seed, len(p.of), small)
			f.tuning.hosts = p
			if err := prove(f, jobs); err != nil {
				t.Fatalf("seed %d, hosts %v: %v", seed, p.hosts, err)
			}
		}
	}
}

// Each host sends the vector once to each of its neighbours, in pieces, with a descriptor for
// each carrier, and nothing to other hosts.
func TestVectorGoesOnceToEachNeighbour(t *testing.T) {
	for _, p := range []*placement{hostsOf(2, 2), hostsOf(4, 4, 4), hostsOf(1, 3), hostsOf(3, 2, 4, 2)} {
		carriers := len(p.hosts[0])
		for _, host := range p.hosts {
			carriers = min(carriers, len(host))
		}
		for _, count := range []int{1, carriers, 1000, 1001} {
			at := small
			at.hosts = p
			c := Call{Kind: AllReduce, Algorithm: HostChain, Size: len(p.of), Bytes: 8 * count, Elem: 8}
			messages, moved := messagesBetween(c, at), bytesBetween(c, at)
			want := 0
			for i := range min(carriers, count) {
				want += 1 + pieces(c.portion(i, min(carriers, count)).n, at.piece)
			}
			for from := range p.hosts {
				for to := range p.hosts {
					n, bytes := 0, 0
					if from-to == 1 || to-from == 1 {
						n, bytes = want, c.Bytes
					}
					if way := [2]int{from, to}; messages[way] != n || moved[way] != bytes {
						t.Errorf("%d elements on %v: %d messages with %d bytes from host %d to host %d, want %d with %d", count, p.hosts, messages[way], moved[way], from, to, n, bytes)
					}
				}
			}
		}
	}
}

// bytesBetween counts what the members of each host write to each other host's memory.
func bytesBetween(c Call, t tuning) map[[2]int]int {
	sum := map[[2]int]int{}
	for r := range c.Size {
		c.Rank = r
		for _, s := range compile(c, t).steps {
			if s.verb == vSend || s.verb == vPut || s.verb == vGet {
				if from, to := t.hosts.of[r], t.hosts.of[s.peer]; from != to {
					sum[[2]int{from, to}] += s.n
				}
			}
		}
	}
	return sum
}

// The costs in the table are those of the plans, on hosts of one size.
func TestCostsOfHostChain(t *testing.T) {
	w := wayOf(AllReduce, HostChain)
	for _, c := range []struct{ k, h int }{{2, 2}, {4, 4}, {2, 5}, {3, 2}} {
		at := tuning{slots: leastSlots, eager: pairLen, chunk: 1 << 20, piece: 1 << 20, hosts: hostsOf(slices.Repeat([]int{c.k}, c.h)...)}
		plans := make([]*plan, c.k*c.h)
		for r := range plans {
			plans[r] = compile(Call{Kind: AllReduce, Algorithm: HostChain, Rank: r, Size: len(plans), Bytes: 80 * c.k, Elem: 8}, at)
		}
		if got, want := chain(t, plans), w.steps.on(c.k, c.h); got != want {
			t.Errorf("%d ranks on each of %d hosts: a chain of %d messages, want %d", c.k, c.h, got, want)
		}
		want := 2 * 80 * c.k
		if c.h == 2 {
			want -= 80
		}
		if got := bytesMoved(plans); got != want {
			t.Errorf("%d ranks on each of %d hosts: a rank moves %d bytes, want %d (%s)", c.k, c.h, got, want, w.moves.text)
		}
	}
}

// The first carrier of the first of two hosts, and of the last, to be read.
func TestHostChainTranscripts(t *testing.T) {
	for _, c := range []struct {
		rank    int
		inPlace bool
		want    string
	}{
		{0, false, `
expose 2: #1 = out+0 24
expose 1: #0 = in+0 48
expose 1: #1 = out+0 48
learn 1: #0
learn 1: #1
get 1: tmp+0 = #0+0 16
flush 1
reduce out+0 = in+0 op tmp+0 16
learn 2: #0
put 2: #0+0 = out+0 16, signal
get 1: tmp+0 = #0+16 8
flush 1
reduce out+16 = in+16 op tmp+0 8
put 2: #0+16 = out+16 8, signal
take 2
put 1: #1+0 = out+0 16
take 2
put 1: #1+16 = out+16 8
flush 1
signal 1
take 1
flush 2
`},
		{3, true, `
expose 1: #0 = tmp+0 24
expose 2: #0 = out+0 48
expose 2: #1 = out+0 48
learn 2: #0
learn 2: #1
learn 1: #1
take 1
get 2: tmp+64 = #0+24 16
flush 2
reduce tmp+0 = tmp+0 op tmp+64 16
reduce out+24 = tmp+0 op out+24 16
put 1: #1+0 = out+24 16, signal
put 2: #1+24 = out+24 16
take 1
get 2: tmp+64 = #0+40 8
flush 2
reduce tmp+16 = tmp+16 op tmp+64 8
reduce out+40 = tmp+16 op out+40 8
put 1: #1+16 = out+40 8, signal
put 2: #1+40 = out+40 8
flush 2
signal 2
take 2
flush 1
`},
	} {
		at := small
		at.hosts = hostsOf(2, 2)
		got := compile(Call{Kind: AllReduce, Algorithm: HostChain, Rank: c.rank, Size: 4, InPlace: c.inPlace, Bytes: 48, Elem: 8}, at).String()
		if got != c.want[1:] {
			t.Errorf("rank %d: got\n%swant%s", c.rank, got, c.want)
		}
	}
}

// A sum along a chain of hosts has the bits of one on a single host.
func TestHostChainKeepsTheBits(t *testing.T) {
	const count = 60
	sum, _ := kernel.For(kernel.Float32, kernel.Sum)
	for _, sizes := range [][]int{{2, 2}, {1, 3, 2}, {4, 4, 4}, {5, 1, 2, 3}} {
		p := hostsOf(sizes...)
		n := len(p.of)
		rng := rand.New(rand.NewPCG(4, uint64(n)))
		given := make([][]byte, n)
		for r := range given {
			given[r] = make([]byte, 4*count)
			for i := range count {
				putFloat(given[r][4*i:], float32(math.Exp(40*rng.Float64()-20)))
			}
		}
		result := func(a Algorithm, p *placement) []byte {
			f := newFabric(uint64(n), n, small)
			f.tuning.hosts, f.tuning.mapped = p, p == nil
			outs := make([][]byte, n)
			for _, d := range f.nodes {
				outs[d.rank] = make([]byte, 4*count)
				d.start(compile(Call{Kind: AllReduce, Algorithm: a, Rank: d.rank, Size: n, Bytes: 4 * count, Elem: 4}, f.tuning), bytes.Clone(given[d.rank]), outs[d.rank], sum.Func)
			}
			if err := f.run(func(*node) {}); err != nil {
				t.Fatal(err)
			}
			for r, out := range outs {
				if !bytes.Equal(out, outs[0]) {
					t.Fatalf("hosts %v: rank %d got other bits than rank 0", sizes, r)
				}
			}
			return outs[0]
		}
		if !bytes.Equal(result(HostChain, p), result(ReduceScatterGather, nil)) {
			t.Errorf("hosts %v: other bits than on one host", sizes)
		}
	}
}

// The chain is selected where it is worth its hops, on hosts whose members follow each other.
func TestHostChainIsSelected(t *testing.T) {
	for _, c := range []struct {
		p     *placement
		bytes int
		want  Algorithm
	}{
		{hostsOf(2, 2), 64<<10 - 8, TwoLevel},
		{hostsOf(2, 2), 64 << 10, HostChain},
		{hostsOf(4, 4, 4, 4), 64 << 10, HostChain},
		{hostsOf(2, 2, 2, 2), 64 << 10, ReduceScatterGather},
		{hostsOf(2, 2, 2, 2), 96 << 10, HostChain},
		{hostsOf(2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2), 256 << 10, ReduceScatterGather},
		{hostsOf(2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2), 1 << 20, HostChain},
		{interleaved(4, 2), 1 << 20, ReduceScatterGather},
		{hostsOf(1, 1, 1), 1 << 20, ReduceScatterGather},
	} {
		s := builtIn.selection(len(c.p.of))
		s.hosts = c.p
		if a, reason := s.explain(&Call{Kind: AllReduce, Size: len(c.p.of), Bytes: c.bytes, Elem: 8}); a != c.want {
			t.Errorf("%d bytes on %v: got %v (%s), want %v", c.bytes, c.p.hosts, a, reason, c.want)
		}
	}
	table := DefaultTable()
	if err := table.Always(AllReduce, HostChain); err != nil {
		t.Fatal(err)
	}
	s := table.selection(4)
	s.hosts = interleaved(4, 2)
	a, reason := s.explain(&Call{Kind: AllReduce, Size: 4, Bytes: 1 << 20, Elem: 8})
	want := "reduce-scatter-gather (table: from 1 ranks on, from 0 bytes on, where it is host-chain; that is for hosts whose ranks follow each other, and for the more bytes the more hosts there are)"
	if got := fmt.Sprintf("%v (%s)", a, reason); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
