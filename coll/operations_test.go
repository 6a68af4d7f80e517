package coll

import (
	"bytes"
	"flag"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/collectives.md anew")

// Every row of the table is whole, and every kind and algorithm has one.
func TestOperationsHaveNoHoles(t *testing.T) {
	used := [algorithms]bool{Auto: true}
	names := map[string]bool{}
	for kind := Barrier; kind < kinds; kind++ {
		op := &operations[kind]
		if op.name == "" || names[op.name] || kind < farewell && kindNamed(op.name) != kind {
			t.Errorf("collective %d has no name of its own: %q", kind, op.name)
		}
		names[op.name] = true
		if len(op.ways) == 0 {
			t.Errorf("%v: no algorithm", kind)
		}
		for i, w := range op.ways {
			if w.algorithm == Auto || w.algorithm >= algorithms || wayOf(kind, w.algorithm) != &op.ways[i] {
				t.Errorf("%v: way %d is by algorithm %v, which is none, or there twice", kind, i, w.algorithm)
				continue
			}
			used[w.algorithm] = true
			if w.build == nil || w.steps.text == "" || w.moves.text == "" {
				t.Errorf("%v by %v: no builder, or no cost: %+v", kind, w.algorithm, w)
			}
		}
		for _, x := range []struct {
			instead Algorithm
			groups  []group
		}{{Pull, op.far}, {Direct, op.crowded}} {
			if len(x.groups) == 0 && x.instead == Direct {
				continue // crowded members do as others
			}
			if (wayOf(kind, x.instead) != nil) != (len(x.groups) > 0) {
				t.Errorf("%v: %d groups of rules in place of %v", kind, len(x.groups), x.instead)
			}
			for i, g := range x.groups {
				if i == 0 && g.ranks != 1 || i > 0 && g.ranks <= x.groups[i-1].ranks {
					t.Errorf("%v in place of %v: group %d is from %d ranks on", kind, x.instead, i, g.ranks)
				}
				for k, r := range g.rules {
					if err := follows(kind, g.ranks, g.rules[:k], r); err != nil || r.Algorithm == Pull {
						t.Errorf("%v in place of %v: rule %+v: %v", kind, x.instead, r, err)
					}
				}
			}
		}
		if (op.parts == nil) != (op.send != absent || op.recv != absent || kind == Barrier || kind == farewell) {
			t.Errorf("%v: its data is in parts, or in buffers, and never both", kind)
		}
	}
	for a, found := range used {
		if !found || algorithmNames[a] == "" || slices.Index(algorithmNames[:], algorithmNames[a]) != a {
			t.Errorf("algorithm %d (%q) has no name of its own, or does no collective", a, algorithmNames[a])
		}
	}
}

// The costs in the table are those of the plans: no plan has a longer chain of messages
// or moves more, and for some number of ranks one comes up to it.
func TestCosts(t *testing.T) {
	// Nothing goes in pieces, and all but what has to travels in messages.
	whole := tuning{slots: leastSlots, eager: 1 << 20, chunk: 1 << 20, piece: 1 << 20}
	for _, c := range ways() {
		w := wayOf(c.Kind, c.Algorithm)
		if w.moves.of == nil || c.Algorithm == TwoLevel { // see TestCostsOfTwoLevels
			continue
		}
		steps, moves := false, false // come up to the cost
		for n := 2; n <= 17; n++ {
			for root := range n {
				if root > 0 && !operations[c.Kind].rooted {
					break
				}
				c.Size, c.Root, c.Elem, c.Bytes = n, root, 8, n*(n-1)*line // portions are equal
				if c.Kind == Barrier {
					c.Elem, c.Bytes = 1, 0
				}
				plans := make([]*plan, n)
				for r := range plans {
					c.Rank = r
					var b builder
					plans[r] = new(plan)
					b.compile(plans[r], &c, nil, evenly(&c), whole)
				}
				if got, want := chain(t, plans), int(w.steps.of(float64(n))); got > want {
					t.Errorf("%v by %v on %d ranks, root %d: a chain of %d messages, want at most %d", c.Kind, c.Algorithm, n, root, got, want)
				} else if got == want {
					steps = true
				}
				if got, want := bytesMoved(plans), int(math.Round(w.moves.of(float64(n))*float64(c.Bytes))); got > want {
					t.Errorf("%v by %v on %d ranks, root %d: a rank moves %d bytes, want at most %d", c.Kind, c.Algorithm, n, root, got, want)
				} else if got == want {
					moves = true
				}
			}
		}
		if !steps || !moves {
			t.Errorf("%v by %v costs less than it says, whatever the number of ranks: %s steps %v, %s bytes %v", c.Kind, c.Algorithm, w.steps.text, steps, w.moves.text, moves)
		}
	}
}

// evenly are the blocks of a call that has parts.
func evenly(c *Call) (list []Part) {
	if c.Kind == ReduceScatterV {
		for r := range c.Size {
			x := portionOf(c, r)
			list = append(list, Part{Off: x.off, N: x.n})
		}
	}
	return list
}

// chain is the longest chain of messages, each sent when the one before has come.
func chain(t *testing.T, plans []*plan) (longest int) {
	n := len(plans)
	under := make([][]int, n*n) // way: the lengths of the chains that end in its messages
	pc, have := make([]int, n), make([]int, n)
	for moved := true; moved; {
		moved = false
		for r, p := range plans {
			for ; pc[r] < len(p.steps); pc[r]++ {
				s := &p.steps[pc[r]]
				peer := int(s.peer)
				switch s.verb {
				case vSend, vExpose, vPut:
					if s.verb != vPut || s.signal {
						under[r*n+peer] = append(under[r*n+peer], have[r]+1)
						longest = max(longest, have[r]+1)
					}
				case vAwait, vTake, vLearn:
					if len(under[peer*n+r]) == 0 {
						goto next
					}
					have[r] = max(have[r], under[peer*n+r][0])
					under[peer*n+r] = under[peer*n+r][1:]
				}
				moved = true
			}
		next:
		}
	}
	for r, p := range plans {
		if pc[r] < len(p.steps) {
			t.Fatalf("rank %d of %d waits for ever: %+v: %v", r, n, p.call, p.steps[pc[r]])
		}
	}
	return longest
}

// bytesMoved is the most bytes that a rank sends and reads.
func bytesMoved(plans []*plan) (most int) {
	for _, p := range plans {
		sum := 0
		for _, s := range p.steps {
			if s.verb == vSend || s.verb == vPut || s.verb == vGet {
				sum += s.n
			}
		}
		most = max(most, sum)
	}
	return most
}

// docs/collectives.md is the table. With -update it is written.
func TestDocs(t *testing.T) {
	const file = "../docs/collectives.md"
	var b strings.Builder
	b.WriteString(`# Collectives and their algorithms

<!-- go test ./coll -run TestDocs -update -->
Steps are the longest chain of messages on n ranks, each sent when the one before has come. A long vector takes one more, for
the descriptor of its memory, and one more for each further piece where it is passed on in pieces. Bytes are the most that one rank
sends and reads, in lengths of the vector, or of a block where each rank has one. Both with k ranks on each of h hosts. The last column
says where the built-in table selects the algorithm: ranks from, bytes from. Rules "across hosts" are for communicators with ranks on several
hosts of which some share one. ` + "`GORUN_TUNING`" + ` names a file with another table, which ` + "`gorun-bench --tune`" + ` measures and writes.

| collective | algorithm | steps | bytes | selected from |
|---|---|---|---|---|
`)
	for _, kind := range Kinds() {
		for _, w := range operations[kind].ways {
			var from []string
			for _, g := range builtIn.groups[kind] {
				for _, r := range g.rules {
					if r.Algorithm == w.algorithm {
						from = append(from, fmt.Sprintf("%d: %d", g.ranks, r.Bytes))
					}
				}
			}
			for _, g := range builtIn.across[kind] {
				for _, r := range g.rules {
					if r.Algorithm == w.algorithm {
						from = append(from, fmt.Sprintf("across hosts %d: %d", g.ranks, r.Bytes))
					}
				}
			}
			if len(operations[kind].ways) == 1 {
				from = []string{"always"}
			}
			fmt.Fprintf(&b, "| %v | %v | %s | %s | %s |\n", kind, w.algorithm, w.steps.text, w.moves.text, strings.Join(from, ", "))
		}
	}
	got, err := os.ReadFile(file)
	if *update {
		err = os.WriteFile(file, []byte(b.String()), 0o644)
		got = []byte(b.String())
	}
	if err != nil || !bytes.Equal(got, []byte(b.String())) {
		t.Errorf("%s is not the table of the code (%v): go test ./coll -run TestDocs -update writes it", file, err)
	}
}
