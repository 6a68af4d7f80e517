package coll

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
)

// small makes thresholds that short vectors cross: a piece holds two uint64.
var small = tuning{slots: leastSlots, eager: 24, chunk: 40, piece: 16}

// roomy has messages that hold two descriptors.
var roomy = tuning{slots: leastSlots, eager: pairLen, chunk: 40, piece: 16}

// sizes are below, at and above those thresholds, and far above.
var sizes = []int{0, 1, 7, 16, 23, 24, 25, 40, 64, 81, 200}

// ways are all kinds with all their algorithms.
func ways() (list []Call) {
	for kind := Barrier; kind < farewell; kind++ {
		for _, a := range Algorithms(kind) {
			list = append(list, Call{Kind: kind, Algorithm: a})
		}
	}
	return list
}

// Three calls in a row, the first of every kind, algorithm and size, the others
// drawn, all with other buffers, roots and operations, for every number of ranks
// from 1 to 33, in random interleavings. A member's buffers are wrecked as soon as
// its call has returned.
func TestPlansInAnyInterleaving(t *testing.T) {
	every := atLength(1, 6)
	for n := 1; n <= 33; n++ {
		if n > 4 && n%every != 0 {
			continue
		}
		t.Run(fmt.Sprintf("ranks=%d", n), func(t *testing.T) {
			t.Parallel()
			all := ways()
			for i, way := range all {
				for k, size := range sizes {
					if way.Kind == Barrier && k > 2 {
						break
					}
					seed := uint64(i*len(sizes) + k)
					rng := rand.New(rand.NewPCG(seed, uint64(n)<<32))
					jobs := []*job{newJob(rng, way.Kind, way.Algorithm, n, size)}
					for range 2 {
						w := all[rng.IntN(len(all))]
						jobs = append(jobs, newJob(rng, w.Kind, w.Algorithm, n, sizes[rng.IntN(len(sizes))]))
					}
					f := newFabric(seed, n, small)
					if seed%2 == 1 {
						f = newFabric(seed, n, roomy)
					}
					if err := prove(f, jobs); err != nil {
						t.Fatalf("seed %d: %v of %d bytes by %v, then %+v, %+v: %v", seed, way.Kind, size, way.Algorithm, jobs[1].call, jobs[2].call, err)
					}
				}
			}
		})
	}
}

// prove runs jobs one after the other on a fabric and compares what every member
// gets.
func prove(f *fabric, jobs []*job) error {
	ins, outs := make([][]byte, len(f.nodes)), make([][]byte, len(f.nodes))
	var wrong error
	var wrecked [][]byte // buffers of calls that are over
	start := func(d *node) {
		j := jobs[d.epoch]
		ins[d.rank], outs[d.rank] = j.operands(d.rank)
		p := j.plan(d.rank, f.tuning)
		if f.mutate != nil {
			f.mutate(p)
		}
		d.start(p, ins[d.rank], outs[d.rank], j.r.Func)
	}
	for _, d := range f.nodes {
		start(d)
	}
	err := f.run(func(d *node) {
		j, in, out := jobs[d.epoch-1], ins[d.rank], outs[d.rank]
		want := j.want(d.rank)
		if wrong == nil && !bytes.Equal(out[:len(want)], want) {
			wrong = fmt.Errorf("call %d (%+v) rank %d: got %x, want %x", d.epoch, j.call, d.rank, out[:len(want)], want)
		}
		if wrong == nil && in != nil && !bytes.Equal(in, j.given[d.rank]) {
			wrong = fmt.Errorf("call %d (%+v) rank %d: its input was changed", d.epoch, j.call, d.rank)
		}
		for _, b := range [][]byte{in, out} {
			for i := range b {
				b[i] = 0xdd
			}
			wrecked = append(wrecked, b)
		}
		if d.epoch < len(jobs) {
			start(d)
		}
	})
	for _, b := range wrecked {
		if wrong == nil && bytes.Count(b, []byte{0xdd}) != len(b) {
			wrong = errors.New("a buffer was written to when its call was over")
		}
	}
	if wrong != nil || err != nil {
		return errors.Join(wrong, err)
	}
	for _, from := range f.nodes {
		for _, to := range f.nodes {
			if sent, had := from.machine.channels[to.rank].sent, to.machine.channels[from.rank].awaited; sent != had {
				return fmt.Errorf("rank %d has not had %d messages of rank %d", to.rank, sent-had, from.rank)
			}
		}
	}
	return nil
}

// A long reduction goes in pieces of whole elements, each once and in order.
func TestLongReductionsAreCut(t *testing.T) {
	for _, elem := range []int{4, 24} {
		p := compile(Call{Kind: AllReduce, Algorithm: Direct, Size: 2, Bytes: 7 * longestReduce / 2 / elem * elem, Elem: elem}, tuning{slots: leastSlots, eager: 100})
		end := 0
		for _, s := range p.steps {
			if s.verb != vReduce {
				continue
			}
			if s.n > longestReduce || s.n%elem != 0 || s.dst.off != end || s.a.off != end || s.b.off != end {
				t.Errorf("element %d: %v behind %d bytes", elem, s, end)
			}
			end += s.n
		}
		if end != p.call.Bytes {
			t.Errorf("element %d: %d of %d bytes reduced", elem, end, p.call.Bytes)
		}
	}
}

// The plan of a huge vector in small pieces has as many steps as there is room for.
func TestPlansAreBounded(t *testing.T) {
	for _, way := range ways() {
		if operations[way.Kind].parts != nil {
			continue
		}
		c := Call{Kind: way.Kind, Algorithm: way.Algorithm, Rank: 1, Size: 3, Bytes: 4 << 30, Elem: 1}
		p := compile(c, tuning{slots: leastSlots, eager: 100, chunk: 1, piece: 1, mapped: true})
		if n := len(p.steps); n > 20*mostPieces {
			t.Errorf("%v by %v: %d steps", way.Kind, way.Algorithm, n)
		}
	}
}

// Rings of two and of few members, whose neighbours are the same or few, in many
// interleavings: what is passed on may be an operand in place.
func TestRingsInAnyInterleaving(t *testing.T) {
	for _, way := range []Call{{Kind: AllReduce, Algorithm: Ring}, {Kind: ReduceScatter, Algorithm: Ring}, {Kind: AllGather, Algorithm: Ring}, {Kind: Bcast, Algorithm: Chain}} {
		for n := 2; n <= 4; n++ {
			for seed := range uint64(200) {
				rng := rand.New(rand.NewPCG(seed, uint64(n)))
				jobs := []*job{newJob(rng, way.Kind, way.Algorithm, n, 200), newJob(rng, way.Kind, way.Algorithm, n, 24)}
				if err := prove(newFabric(seed, n, small), jobs); err != nil {
					t.Fatalf("seed %d: %v by %v on %d ranks: %v", seed, way.Kind, way.Algorithm, n, err)
				}
			}
		}
	}
}
