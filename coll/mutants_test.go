package coll

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/gorun-mpi/gorun/internal/kernel"
)

// A proof is worth what it notices: each of these mistakes in a plan, or in the
// machine, must be found in the interleavings that the plans are proven in.
func TestProofFindsMistakes(t *testing.T) {
	without := func(drop func(p *plan, s *step) bool) func(*plan) {
		return func(p *plan) {
			var kept []step
			for i := range p.steps {
				if !drop(p, &p.steps[i]) {
					kept = append(kept, p.steps[i])
				}
			}
			p.steps = kept
		}
	}
	cases := []struct {
		name   string
		way    Call
		ranks  int
		bytes  int
		mutate func(*plan)
	}{
		{"no flush before the end", Call{Kind: AllToAll, Algorithm: Direct}, 3, 100,
			without(func(_ *plan, s *step) bool { return s.verb == vFlush })},
		{"no flush before an operand is overwritten", Call{Kind: AllReduce, Algorithm: RecursiveDoubling}, 4, 100,
			func(p *plan) {
				last := len(p.steps)
				for i := range p.steps[:last] {
					if p.steps[i].verb == vFlush && i+1 < last && p.steps[i+1].verb == vReduce {
						p.steps[i] = step{verb: vSend, peer: p.steps[i].peer}
						p.steps[i+1], p.steps[i] = p.steps[i], p.steps[i+1]
						p.steps[i+1] = step{verb: vFlush, peer: p.steps[i+1].peer}
					}
				}
			}},
		{"returns before its data has come", Call{Kind: Bcast, Algorithm: Binomial}, 4, 100,
			func(p *plan) {
				for i := len(p.steps) - 1; i >= 0; i-- {
					if p.steps[i].verb == vTake {
						p.steps = append(p.steps[:i:i], p.steps[i+1:]...)
						return
					}
				}
			}},
		{"reuses scratch without waiting for its owner", Call{Kind: AllReduce, Algorithm: ReduceScatterGather}, 3, 800,
			func(p *plan) {
				for i := range p.steps {
					if s := &p.steps[i]; s.verb == vPut && s.index == 0 {
						s.dst.off = 0
					}
				}
			}},
		{"awaits in another order than is sent", Call{Kind: AllReduce, Algorithm: ReduceScatterGather}, 3, 800,
			func(p *plan) {
				for i := 1; i < len(p.steps); i++ {
					if p.steps[i].verb == vExpose && p.steps[i].index == 1 && p.steps[i-1].verb == vExpose {
						p.steps[i], p.steps[i-1] = p.steps[i-1], p.steps[i]
					}
				}
			}},
		{"leaves mapped memory before the others have", Call{Kind: AllReduce, Algorithm: ReduceScatterGather}, 3, 800,
			func(p *plan) {
				for i := range p.steps {
					if p.steps[i].verb == vEnd {
						p.steps[i-1] = p.steps[i-2]
						for k := i - 1; p.steps[k].verb == vTake; k-- {
							p.steps[k] = step{verb: vCopy}
						}
					}
				}
			}},
		{"reduces mapped memory in place without a spare piece", Call{Kind: AllReduce, Algorithm: ReduceScatterGather}, 5, 800,
			func(p *plan) {
				for i := range p.steps {
					if s := &p.steps[i]; s.verb == vReduce && s.dst.operand == scratch && s.b.operand == exposed0 {
						s.dst = loc{operand: output, off: s.b.off}
					}
				}
			}},
		{"opens its output to the ring while it is still passed on", Call{Kind: AllReduce, Algorithm: Ring}, 3, 400,
			func(p *plan) {
				for i := 1; i < len(p.steps); i++ {
					if p.steps[i].verb == vExpose && p.steps[i-1].verb == vFlush {
						p.steps[i], p.steps[i-1] = p.steps[i-1], step{verb: vCopy}
					}
				}
			}},
		{"takes the ring's portions in another order", Call{Kind: ReduceScatter, Algorithm: Ring}, 4, 100,
			func(p *plan) {
				for i := range p.steps {
					if s := &p.steps[i]; s.verb == vPut && s.dst.off < 100 {
						s.dst.off += 100
					}
				}
			}},
		{"says that it has read when it has not", Call{Kind: Bcast, Algorithm: Pull}, 3, 100,
			func(p *plan) {
				for i := range p.steps {
					if p.steps[i].verb == vFlush {
						p.steps[i], p.steps[i+1] = p.steps[i+1], p.steps[i]
					}
				}
			}},
		{"returns before all have read", Call{Kind: Scatter, Algorithm: Pull}, 4, 100,
			func(p *plan) {
				if p.call.Rank == p.call.Root {
					p.steps = p.steps[:len(p.steps)-1]
				}
			}},
		{"reads before it knows from where", Call{Kind: AllGather, Algorithm: Pull}, 3, 100,
			func(p *plan) {
				for i := 1; i < len(p.steps); i++ {
					if p.steps[i].verb == vGet {
						p.steps[i], p.steps[i-1] = p.steps[i-1], p.steps[i]
					}
				}
			}},
		{"combines what has not come", Call{Kind: Reduce, Algorithm: ReduceScatterGather}, 3, 800,
			without(func(p *plan, s *step) bool { return s.verb == vFlush })},
		{"overwrites an input in place that is read later", Call{Kind: ExScan, Algorithm: Pull}, 4, 100,
			func(p *plan) {
				for i := 2; i < len(p.steps); i++ {
					if s := p.steps[i]; s.verb == vPut && p.steps[i-2].verb == vGet && p.steps[i-2].peer == s.peer {
						copy(p.steps[i-1:i+1], p.steps[i-2:i])
						p.steps[i-2] = s
					}
				}
			}},
		{"passes a sum on to where the one before it is not combined yet", Call{Kind: AllReduce, Algorithm: HostChain}, 4, 800,
			func(p *plan) {
				for i := range p.steps {
					if s := &p.steps[i]; s.verb == vPut && s.index == 0 {
						s.dst.off = 0
					}
				}
			}},
		{"combines a host's inputs in place without a spare piece", Call{Kind: AllReduce, Algorithm: HostChain}, 6, 800,
			func(p *plan) {
				for i := range p.steps {
					s := &p.steps[i]
					if s.verb == vGet && s.dst.operand == scratch && i+2 < len(p.steps) && p.steps[i+2].verb == vReduce && p.steps[i+2].a == s.dst {
						p.steps[i+2].a = loc{operand: output, off: s.a.off}
						s.dst = p.steps[i+2].a
					}
				}
			}},
		{"returns before its carriers have written", Call{Kind: AllReduce, Algorithm: HostChain}, 4, 800,
			func(p *plan) {
				for i := len(p.steps) - 1; i >= 0 && p.steps[i].verb != vPut; i-- {
					if p.steps[i].verb == vTake {
						p.steps = append(p.steps[:i:i], p.steps[i+1:]...)
						return
					}
				}
			}},
		{"forgets a message", Call{Kind: Barrier, Algorithm: Dissemination}, 5, 0,
			func(p *plan) { p.steps = p.steps[1:] }},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			for seed := range uint64(50) {
				rng := rand.New(rand.NewPCG(seed, 1))
				var list []*job
				for range 3 {
					list = append(list, newJob(rng, c.way.Kind, c.way.Algorithm, c.ranks, c.bytes))
				}
				f := newFabric(seed, c.ranks, small)
				f.mutate = c.mutate
				if err := attempt(f, list); err != nil {
					return
				}
			}
			t.Errorf("50 seeds found nothing")
		})
	}
}

// A sender that takes no notice of credit overwrites what was not taken.
func TestProofFindsIgnoredCredit(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	var list []*job
	for range 4 * leastSlots {
		j := newJob(rng, Bcast, Binomial, 2, 24)
		j.call.Root = 0
		list = append(list, j)
	}
	for seed := range uint64(50) {
		if err := attempt(newFabric(seed, 2, small), list); err != nil {
			t.Fatalf("with credit: %v", err)
		}
		f := newFabric(seed, 2, small)
		f.spoil = func(m *machine) {
			for i := range m.channels {
				m.channels[i].credited = m.channels[i].sent
			}
		}
		if err := attempt(f, list); err != nil {
			return
		}
	}
	t.Error("50 seeds found nothing")
}

// attempt is prove, for which a panic is a finding too.
func attempt(f *fabric, list []*job) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return prove(f, list)
}

// Whatever step of whatever algorithm one rank leaves out, it shows: in the data, as
// a message that nobody expects, or as one that never comes. Exempt are steps that
// others make up for: giving a slot back, which the next one does too, and waiting
// for memory that is waited for again.
func TestProofFindsEveryMissingStep(t *testing.T) {
	const n = 4
	for i, way := range ways() {
		t.Run(fmt.Sprintf("%v by %v", way.Kind, way.Algorithm), func(t *testing.T) {
			t.Parallel()
			at := small
			if way.Algorithm == TwoLevel {
				at.hosts = placementOf([]uint64{0, 1, 1, 0}) // two leaders with a member each
			}
			if way.Algorithm == HostChain {
				at.hosts = hostsOf(2, 2)
			}
			for _, bytes := range []int{16, 100} {
				rng := rand.New(rand.NewPCG(uint64(i), uint64(bytes)))
				var list []*job
				for range 3 {
					// In place a copy may be of what is there already,
					// and a maximum may not need all vectors.
					j := newJob(rng, way.Kind, way.Algorithm, n, bytes)
					for slices.Contains(j.inPlace, true) || operations[way.Kind].reduces && (j.call.Ordered || kernel.Op(j.r.ID&15) != kernel.Sum) {
						j = newJob(rng, way.Kind, way.Algorithm, n, bytes)
					}
					list = append(list, j)
				}
				if err := notices(list, at.hosts, -1, 0); err != nil {
					t.Fatalf("%d bytes: found in whole plans: %v", bytes, err)
				}
				for rank := range n {
					p := list[1].plan(rank, at)
					for k := range p.steps {
						s := p.steps[k]
						if s.verb == vRelease || s.verb == vFlush {
							continue
						}
						if notices(list, at.hosts, rank, k) == nil {
							t.Errorf("%d bytes: rank %d without step %d (%v) of\n%v: nothing was found", bytes, rank, k, s, p)
							return
						}
					}
				}
			}
		})
	}
}

// notices is what the first of some interleavings says that shows that rank leaves out
// step k of the second of some jobs; nil: none does. Members are on these hosts, or on any.
func notices(list []*job, hosts *placement, rank, k int) error {
	for seed := range uint64(200) {
		f := newFabric(seed, list[0].call.Size, small)
		if hosts != nil {
			f.tuning.hosts = hosts
		}
		f.lame = f.nodes[seed%uint64(len(f.nodes))]
		calls := 0
		f.mutate = func(p *plan) {
			if p.call.Rank == rank {
				if calls++; calls == 2 {
					p.steps = append(p.steps[:k:k], p.steps[k+1:]...)
				}
			}
		}
		if err := attempt(f, list); err != nil {
			return err
		}
	}
	return nil
}
