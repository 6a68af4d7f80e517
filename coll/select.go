package coll

import (
	"fmt"
	"slices"
)

// A selection is what a team takes of a table: the rules for its own size.
type selection struct {
	from  [kinds]int
	rules [kinds][]Rule
	// across are the rules where hosts are shared, if there are any.
	across     [kinds][]Rule
	acrossFrom [kinds]int
	// mapped: all members reach each other's memory, as they do where the rules
	// were measured.
	mapped bool
	// crowded: members share CPUs.
	crowded bool
	// hosts is which members share a host; nil: all.
	hosts *placement
}

func (t *Table) selection(ranks int) *selection {
	s := new(selection)
	for k := range kinds {
		s.from[k], s.rules[k] = t.Rules(k, ranks)
		s.acrossFrom[k], s.across[k] = t.RulesAcross(k, ranks)
	}
	return s
}

// hash tells selections apart when members compare theirs.
func (s *selection) hash() uint32 {
	h := uint64(14695981039346656037)
	add := func(v int) { h = (h ^ uint64(v)) * 1099511628211 }
	for k := range kinds {
		for _, rules := range [...][]Rule{s.rules[k], s.across[k]} {
			for _, r := range rules {
				add(r.Bytes)
				add(int(r.Algorithm) + 1)
			}
		}
		add(int(k))
	}
	return uint32(h ^ h>>32)
}

// hashOf is a name as intros have it.
func hashOf(name string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(name) {
		h = (h ^ uint64(name[i])) * 1099511628211
	}
	return h
}

// A why is the reason of a selection.
type why uint8

const (
	whyAsked why = iota // by the call
	whyOnly
	whyRule
	whyFar     // by the rule, but for members that are far from each other
	whyCrowded // by the rule, but for members that share CPUs
	whyBits    // by the rule for one host, which combines in another order
	whyRoom    // by the rule for one host, for leaders would need too much scratch or too many steps
	whyChain   // by the rule for one host, for the hosts make no chain, or one too long
)

// algorithm is that of a call. It depends on what is the same in all members only.
func (s *selection) algorithm(c *Call) (a Algorithm, reason why, rule int) {
	op := &operations[c.Kind]
	switch {
	case c.Algorithm != Auto:
		return c.Algorithm, whyAsked, 0
	case len(op.ways) == 1:
		return op.ways[0].algorithm, whyOnly, 0
	}
	_, rules, across := s.rulesFor(c.Kind)
	rule = ruleFor(rules, c.Bytes)
	a, reason = rules[rule].Algorithm, whyRule
	if across != "" && !s.combinesAlike(c, a) {
		a, reason = s.onOneHost(c), whyBits
	}
	if a == HostChain && !s.hosts.chains(c) {
		if a, reason = s.onOneHost(c), whyChain; a == HostChain {
			a = ReduceScatterGather
		}
	}
	if a == TwoLevel && op.leader != nil && op.leader(s, c) > mostOfLeader {
		a, reason = s.flat(c), whyRoom
	}
	otherwise, why := a, reason
	switch {
	case a == Pull && !s.mapped:
		otherwise, why = selected(op.far, c), whyFar
	case a == Direct && s.crowded && op.crowded != nil:
		otherwise, why = selected(op.crowded, c), whyCrowded
	}
	if otherwise != a && reason == whyRule {
		reason = why
	}
	return otherwise, reason, rule
}

// mostOfLeader bounds the scratch of a leader by two levels. What a host's leader holds grows
// with the number of all ranks, so that its time does too.
const mostOfLeader = 4 << 20

// bytesOfStep is what a step of a leader's plan counts as: with the shortest blocks its steps
// take longer than its bytes, and a plan of too many is not kept (cacheSteps).
const bytesOfStep = 64

// onOneHost is the algorithm of a call's rule for members on one host.
func (s *selection) onOneHost(c *Call) Algorithm {
	rules := s.rules[c.Kind]
	return rules[ruleFor(rules, c.Bytes)].Algorithm
}

// flat is the algorithm of a call for which two levels take too much.
func (s *selection) flat(c *Call) Algorithm {
	if a := s.onOneHost(c); a != TwoLevel {
		return a
	}
	return selected(builtIn.groups[c.Kind], c)
}

// combinesAlike tells whether an algorithm combines as the rule for one host does: the bits
// of a result do not depend on which members share a host.
func (s *selection) combinesAlike(c *Call, a Algorithm) bool {
	one := s.onOneHost(c)
	switch {
	case a == one || !operations[c.Kind].reduces:
		return true
	case a == TwoLevel:
		return inOrder(one) || one == RecursiveDoubling
	}
	return inOrder(a) && inOrder(one)
}

// inOrder tells whether an algorithm combines in the order of the ranks, one vector after
// the other, in each reduction that it does.
func inOrder(a Algorithm) bool {
	return a == Direct || a == ReduceScatterGather || a == Chain || a == Pull || a == TwoLevel || a == HostChain
}

// settle gives a call its algorithm, and what else depends on the selection.
func (s *selection) settle(c *Call) {
	if c.Algorithm, _, _ = s.algorithm(c); c.Algorithm == TwoLevel {
		c.Pairs = s.pairs(c)
	}
}

// rulesFor are the rules that the team's members go by, from so many ranks on and where.
func (s *selection) rulesFor(k Kind) (from int, rules []Rule, where string) {
	if s.hosts != nil && s.hosts.shared && s.across[k] != nil {
		return s.acrossFrom[k], s.across[k], " across hosts"
	}
	return s.from[k], s.rules[k], ""
}

// pairs tells whether members on one host would combine a call's vectors by recursive
// doubling: then two levels do so too.
func (s *selection) pairs(c *Call) bool { return s.onOneHost(c) == RecursiveDoubling }

// ruleFor is the number of the rule for calls of so many bytes.
func ruleFor(rules []Rule, bytes int) int {
	i := len(rules) - 1
	for i > 0 && rules[i].Bytes > bytes {
		i--
	}
	return i
}

// selected is the algorithm of a call by a row's own rules.
func selected(groups []group, c *Call) Algorithm {
	rules := groupFor(groups, c.Size).rules
	return rules[ruleFor(rules, c.Bytes)].Algorithm
}

// explain says why in words.
func (s *selection) explain(c *Call) (a Algorithm, reason string) {
	a, w, i := s.algorithm(c)
	switch w {
	case whyAsked:
		return a, "asked for"
	case whyOnly:
		return a, "the only one"
	}
	from, rules, where := s.rulesFor(c.Kind)
	reason = fmt.Sprintf("table: from %d ranks on%s, from %d bytes on", from, where, rules[i].Bytes)
	switch w {
	case whyFar:
		reason += ", where it is pull; not all members map each other's memory"
	case whyCrowded:
		reason += ", where it is direct; members share CPUs"
	case whyBits:
		reason += fmt.Sprintf(", where it is %v; the bits would not be those of %v on one host", rules[i].Algorithm, a)
	case whyChain:
		reason += fmt.Sprintf(", where it is %v; that is for hosts whose ranks follow each other, and for the more bytes the more hosts there are", rules[i].Algorithm)
	case whyRoom:
		reason += fmt.Sprintf(", where it is %v; a leader would need more than %d MiB or %d steps", rules[i].Algorithm, mostOfLeader>>20, mostOfLeader/bytesOfStep)
	}
	return a, reason
}

// Explain says which algorithm a call of this team would take, by which
// protocol its data would go, and why. It ignores the buffers and parts of a.
func (t *Team) Explain(a Args) string {
	if a.Kind == 0 || a.Kind >= farewell || !fits(a.Kind, a.Algorithm) {
		return fmt.Sprintf("%v has no algorithm %v", a.Kind, a.Algorithm)
	}
	c := Call{Kind: a.Kind, Algorithm: a.Algorithm, Rank: t.rank, Size: t.size, Bytes: a.Bytes}
	algorithm, reason := t.selection.explain(&c)
	if a.Kind == Barrier {
		return fmt.Sprintf("%v on %d ranks: %v (%s)", a.Kind, t.size, algorithm, reason)
	}
	long := "by descriptor"
	if t.tuning.mapped {
		long = "by descriptor, mapped where it is registered"
	}
	if operations[a.Kind].parts != nil {
		return fmt.Sprintf("%v on %d ranks: %v, parts up to %d bytes in messages, longer ones %s (%s)", a.Kind, t.size, algorithm, t.tuning.eager, long, reason)
	}
	way := long
	c.Algorithm, c.Elem = algorithm, 1
	if !slices.ContainsFunc(compile(c, t.tuning).steps, func(s step) bool { return s.verb == vExpose || s.verb == vLearn }) {
		way = "in messages"
	}
	return fmt.Sprintf("%v of %d bytes on %d ranks: %v, %s (%s)", a.Kind, a.Bytes, t.size, algorithm, way, reason)
}
