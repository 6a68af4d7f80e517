package coll

import (
	"fmt"
	"slices"
)

// A Table selects the algorithm of a call by its kind, the number of ranks and the
// bytes, and the sizes at which protocols change. The zero Table is not valid: see
// [DefaultTable] and [ParseTable]. All members of a team use the same table, and
// compare it when the team is made. A Table that is in use must not be changed.
type Table struct {
	// EagerBytes is the longest block that travels in a message; 0 means 8192,
	// and less if the control region would exceed 1 MiB (from 16 members on).
	EagerBytes int
	// ChunkBytes is the length of the pieces in which a broadcast passes data on; 0 means 128 KiB.
	ChunkBytes int
	// PieceBytes is the length of the pieces that a long reduction combines; 0 means 16 KiB, and 64 to
	// 256 KiB where some members are on other hosts.
	PieceBytes int

	groups [kinds][]group // ascending, the first from 1 rank on
	// across are the rules in their place for members on several hosts of which some share
	// one; none: there are no others.
	across [kinds][]group
}

// A group is the rules for teams of so many ranks and more, up to the next group.
type group struct {
	ranks int
	rules []Rule
}

// A Rule is the algorithm for calls of at least Bytes bytes, up to the
// next rule. Bytes is as in Args: of the vector, or of a block.
type Rule struct {
	Bytes     int
	Algorithm Algorithm
}

// DefaultTable returns a copy of the built-in table.
func DefaultTable() *Table { return builtIn.clone() }

func (t *Table) clone() *Table {
	c := *t
	for _, all := range [...]*[kinds][]group{&c.groups, &c.across} {
		for k, list := range all {
			all[k] = slices.Clone(list)
			for i, g := range list {
				all[k][i].rules = slices.Clone(g.rules)
			}
		}
	}
	return &c
}

// Rules returns the rules for a kind of call in a team with this number
// of ranks, and the smallest number of ranks that they apply to.
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

// RulesAcross is Rules for teams on several hosts where some ranks share one. There are
// none where those of [Table.Rules] apply to such teams too.
func (t *Table) RulesAcross(kind Kind, ranks int) (from int, rules []Rule) {
	if kind == 0 || kind >= kinds {
		return 0, nil
	}
	g := groupFor(t.across[kind], ranks)
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

// Set replaces the rules for a kind of call in teams of at least ranks ranks, up to the
// next number of ranks in the table. The first rule begins at 0 bytes, and rules ascend.
// They hold wherever the ranks are: rules of [Table.SetAcross] are set after it.
func (t *Table) Set(kind Kind, ranks int, rules ...Rule) error {
	if err := set(&t.groups, kind, ranks, rules); err != nil {
		return err
	}
	t.across[kind] = nil
	return nil
}

// SetAcross is Set for teams on several hosts where some ranks share one. Where there are no
// such rules yet, smaller teams keep those of [Table.Set].
func (t *Table) SetAcross(kind Kind, ranks int, rules ...Rule) error {
	if kind < kinds && len(t.across[kind]) == 0 {
		for _, g := range t.groups[kind] {
			if g.ranks < ranks {
				t.across[kind] = append(t.across[kind], g)
			}
		}
	}
	return set(&t.across, kind, ranks, rules)
}

func set(groups *[kinds][]group, kind Kind, ranks int, rules []Rule) error {
	if kind == 0 || kind >= farewell {
		return fmt.Errorf("no collective has the number %d", kind)
	}
	if ranks < 1 {
		return fmt.Errorf("%v: rules from %d ranks on, expected 1 or more", kind, ranks)
	}
	for i, r := range rules {
		if err := follows(kind, ranks, rules[:i], r); err != nil {
			return err
		}
	}
	if len(rules) == 0 {
		return fmt.Errorf("%v from %d ranks on: no rules", kind, ranks)
	}
	list := groups[kind]
	i, found := slices.BinarySearchFunc(list, ranks, func(g group, ranks int) int { return g.ranks - ranks })
	g := group{ranks, slices.Clone(rules)}
	if found {
		list[i] = g
	} else {
		list = slices.Insert(list, i, g)
	}
	groups[kind] = list
	return nil
}

// Always replaces all rules for a kind of call by one algorithm, wherever the ranks are.
func (t *Table) Always(kind Kind, a Algorithm) error {
	if kind == 0 || kind >= farewell || wayOf(kind, a) == nil {
		return fmt.Errorf("%v has no algorithm %v", kind, a)
	}
	t.groups[kind], t.across[kind] = always(a), nil
	return nil
}

// follows tells whether a rule can stand behind others.
func follows(kind Kind, ranks int, before []Rule, r Rule) error {
	n := len(before)
	switch {
	case n == 0 && r.Bytes != 0:
		return fmt.Errorf("%v from %d ranks on: the first rule begins at %d bytes, expected 0", kind, ranks, r.Bytes)
	case n > 0 && r.Bytes <= before[n-1].Bytes:
		return fmt.Errorf("%v from %d ranks on: the rule from %d bytes on does not ascend from the one at %d", kind, ranks, r.Bytes, before[n-1].Bytes)
	case wayOf(kind, r.Algorithm) == nil:
		return fmt.Errorf("%v has no algorithm %v", kind, r.Algorithm)
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
		return fmt.Errorf("selection table: eager %d, chunk %d, piece %d bytes: expected 0 or more", t.EagerBytes, t.ChunkBytes, t.PieceBytes)
	}
	return nil
}
