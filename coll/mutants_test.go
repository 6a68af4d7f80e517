package coll

import (
	"fmt"
	"math/rand/v2"
	"testing"
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
