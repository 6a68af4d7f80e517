package coll

import (
	"fmt"
	"slices"
)

// A Table says which algorithm a call takes, by its kind, the ranks of the team
// and the bytes of the call, and which lengths the protocols change at. The zero
// Table is not valid: see [DefaultTable] and [ParseTable]. All members of a team
// use the same; they compare it when the team is made. A Table that a team uses
// must not be changed any more.
type Table struct {
	// EagerBytes is the longest block that travels in a message; 0 means 8192, and less
	// where the control region would exceed 1 MiB (from 16 members on).
	EagerBytes int
	// ChunkBytes is what a broadcast passes on at a time; 0 means 128 KiB.
	ChunkBytes int
	// PieceBytes is what a long reduction combines at a time; 0 means 16 KiB.
	PieceBytes int

	groups [kinds][]group // ascending, the first from 1 rank on
}

// A group is the rules for teams of so many ranks and more, up to the next group.
type group struct {
	ranks int
	rules []Rule
}

// A Rule names the algorithm for calls of so many bytes and more, up to the next
// rule. Bytes is [Args].Bytes: of the vector, or of a block.
type Rule struct {
	Bytes     int
	Algorithm Algorithm
}

// DefaultTable is a copy of the table that is built in.
func DefaultTable() *Table { return builtIn.clone() }

func (t *Table) clone() *Table {
	c := *t
	for k, list := range t.groups {
		c.groups[k] = slices.Clone(list)
		for i, g := range list {
			c.groups[k][i].rules = slices.Clone(g.rules)
		}
	}
	return &c
}

// Rules are those for calls of a kind in a team of so many ranks, and the ranks
// from which on they are.
func (t *Table) Rules(kind Kind, ranks int) (from int, rules []Rule) {
	if kind == 0 || kind >= kinds {
		return 0, nil
	}
	groups := t.groups[kind]
	if len(groups) == 0 { // nothing to select
		groups = always(operations[kind].ways[0].algorithm)
	}
	g := groupFor(groups, ranks)
	return g.ranks, slices.Clone(g.rules)
}

// groupFor is the rules for teams of so many ranks.
func groupFor(groups []group, ranks int) (found group) {
	for _, g := range groups {
		if g.ranks <= ranks {
			found = g
		}
	}
	return found
}

// Set replaces the rules for calls of a kind in teams of so many ranks and more, up
// to where the table has other ones. The first rule is from 0 bytes on, and they
// ascend.
func (t *Table) Set(kind Kind, ranks int, rules ...Rule) error {
	if kind == 0 || kind >= farewell {
		return fmt.Errorf("no collective has the number %d", kind)
	}
	if ranks < 1 {
		return fmt.Errorf("%v: from %d ranks on: at least 1 is expected", kind, ranks)
	}
	for i, r := range rules {
		if err := follows(kind, ranks, rules[:i], r); err != nil {
			return err
		}
	}
	if len(rules) == 0 {
		return fmt.Errorf("%v from %d ranks on: no rules", kind, ranks)
	}
	list := t.groups[kind]
	i, found := slices.BinarySearchFunc(list, ranks, func(g group, ranks int) int { return g.ranks - ranks })
	g := group{ranks, slices.Clone(rules)}
	if found {
		list[i] = g
	} else {
		list = slices.Insert(list, i, g)
	}
	t.groups[kind] = list
	return nil
}

// Always replaces all rules for calls of a kind by one algorithm.
func (t *Table) Always(kind Kind, a Algorithm) error {
	if kind == 0 || kind >= farewell || wayOf(kind, a) == nil {
		return fmt.Errorf("%v does not come as %v", kind, a)
	}
	t.groups[kind] = always(a)
	return nil
}

// follows tells whether a rule can stand behind others.
func follows(kind Kind, ranks int, before []Rule, r Rule) error {
	n := len(before)
	switch {
	case n == 0 && r.Bytes != 0:
		return fmt.Errorf("%v from %d ranks on: the first rule is from %d bytes on: 0 is expected", kind, ranks, r.Bytes)
	case n > 0 && r.Bytes <= before[n-1].Bytes:
		return fmt.Errorf("%v from %d ranks on: a rule from %d bytes on overlaps the one from %d", kind, ranks, r.Bytes, before[n-1].Bytes)
	case wayOf(kind, r.Algorithm) == nil:
		return fmt.Errorf("%v does not come as %v", kind, r.Algorithm)
	}
	return nil
}

// validate says what of a table is missing.
func (t *Table) validate() error {
	for k := Barrier; k < kinds; k++ {
		if len(operations[k].ways) < 2 {
			continue // nothing to select
		}
		if len(t.groups[k]) == 0 || t.groups[k][0].ranks != 1 {
			return fmt.Errorf("selection table: %v has no rules for 1 rank (a table begins as DefaultTable)", k)
		}
	}
	if t.EagerBytes < 0 || t.ChunkBytes < 0 || t.PieceBytes < 0 {
		return fmt.Errorf("selection table: eager %d, chunk %d, piece %d bytes", t.EagerBytes, t.ChunkBytes, t.PieceBytes)
	}
	return nil
}
