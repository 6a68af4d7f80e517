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
	// EagerBytes, ChunkBytes and PieceBytes are TeamConfig's where that has 0;
	// 0 here leaves the built-in ones.
	EagerBytes, ChunkBytes, PieceBytes int

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

// Algorithms are all that a kind of call can be done by, nil if there is no such
// kind.
func Algorithms(kind Kind) []Algorithm {
	if kind >= farewell {
		return nil
	}
	return slices.Clone(choices[kind])
}

// Kinds are all collectives.
func Kinds() (list []Kind) {
	for k := Barrier; k < farewell; k++ {
		list = append(list, k)
	}
	return list
}

// Rules are those for calls of a kind in a team of so many ranks, and the ranks
// from which on they are.
func (t *Table) Rules(kind Kind, ranks int) (from int, rules []Rule) {
	if kind == 0 || kind >= kinds {
		return 0, nil
	}
	for _, g := range t.groups[kind] {
		if g.ranks <= ranks {
			from, rules = g.ranks, g.rules
		}
	}
	return from, slices.Clone(rules)
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

// follows tells whether a rule can stand behind others.
func follows(kind Kind, ranks int, before []Rule, r Rule) error {
	n := len(before)
	switch {
	case n == 0 && r.Bytes != 0:
		return fmt.Errorf("%v from %d ranks on: the first rule is from %d bytes on: 0 is expected", kind, ranks, r.Bytes)
	case n > 0 && r.Bytes <= before[n-1].Bytes:
		return fmt.Errorf("%v from %d ranks on: a rule from %d bytes on overlaps the one from %d", kind, ranks, r.Bytes, before[n-1].Bytes)
	case r.Algorithm == Auto || !fits(kind, r.Algorithm):
		return fmt.Errorf("%v does not come as %v", kind, r.Algorithm)
	}
	return nil
}

// validate says what of a table is missing.
func (t *Table) validate() error {
	for k := Barrier; k < kinds; k++ {
		if len(t.groups[k]) == 0 || t.groups[k][0].ranks != 1 {
			return fmt.Errorf("selection table: %v has no rules for 1 rank (a table begins as DefaultTable)", k)
		}
	}
	if t.EagerBytes < 0 || t.ChunkBytes < 0 || t.PieceBytes < 0 {
		return fmt.Errorf("selection table: eager %d, chunk %d, piece %d bytes", t.EagerBytes, t.ChunkBytes, t.PieceBytes)
	}
	return nil
}

// A selection is what a team takes of a table: the rules for its own size, and the
// algorithms that its configuration replaces them by.
type selection struct {
	from   [kinds]int
	rules  [kinds][]Rule
	always [kinds]Algorithm
	// mapped: all members reach each other's memory, as they do where the rules
	// were measured.
	mapped bool
	// crowded: members share CPUs.
	crowded bool
}

func (t *Table) selection(ranks int, always map[Kind]Algorithm) *selection {
	s := new(selection)
	for k := range kinds {
		s.from[k], s.rules[k] = t.Rules(k, ranks)
	}
	for k, a := range always {
		s.always[k] = a
	}
	return s
}

// hash tells selections apart when members compare theirs.
func (s *selection) hash() uint32 {
	h := uint64(14695981039346656037)
	add := func(v int) { h = (h ^ uint64(v)) * 1099511628211 }
	for k := range kinds {
		add(int(s.always[k]))
		for _, r := range s.rules[k] {
			add(r.Bytes)
			add(int(r.Algorithm) + 1)
		}
	}
	return uint32(h ^ h>>32)
}

// A why is the reason of a selection.
type why uint8

const (
	whyAsked  why = iota // by the call
	whyAlways            // by the team's configuration
	whyOnly
	whyRule
	whyFar     // by the rule, but for members that are far from each other
	whyCrowded // by the rule, but for members that share CPUs
)

// choose names the algorithm of a call. It depends on what is the same in all
// members only.
func (s *selection) choose(c *Call) (a Algorithm, reason why, rule int) {
	switch {
	case c.Algorithm != Auto:
		return c.Algorithm, whyAsked, 0
	case s.always[c.Kind] != Auto:
		return s.always[c.Kind], whyAlways, 0
	case len(choices[c.Kind]) == 1:
		return choices[c.Kind][0], whyOnly, 0
	}
	rules := s.rules[c.Kind]
	rule = len(rules) - 1
	for rule > 0 && rules[rule].Bytes > c.Bytes {
		rule--
	}
	if a = rules[rule].Algorithm; a == Pull && !s.mapped {
		return far(c), whyFar, rule
	}
	if a == Direct && s.crowded && c.Kind == Barrier && c.Size > 2 {
		return Central, whyCrowded, rule
	}
	return a, whyRule, rule
}

// far is what stands in for Pull between hosts, or devices: there one member's link
// would carry what all the others read, and a read takes a round trip.
func far(c *Call) Algorithm {
	switch c.Kind {
	case Bcast:
		if c.Size > 2 && c.Bytes >= farBcast {
			return ScatterAllGather
		}
		return Binomial
	case Scan, ExScan:
		return Chain
	}
	return Direct
}

// farBcast is from where on a broadcast's time is that of its bytes.
const farBcast = 64 << 10

// explain says why in words.
func (s *selection) explain(c *Call) (a Algorithm, reason string) {
	a, w, i := s.choose(c)
	switch w {
	case whyAsked:
		return a, "asked for"
	case whyAlways:
		return a, "asked for by the team's configuration"
	case whyOnly:
		return a, "the only one"
	}
	reason = fmt.Sprintf("table: from %d ranks on, from %d bytes on", s.from[c.Kind], s.rules[c.Kind][i].Bytes)
	switch w {
	case whyFar:
		reason += ", where it is pull; not all members map each other's memory"
	case whyCrowded:
		reason += ", where it is direct; members share CPUs"
	}
	return a, reason
}
