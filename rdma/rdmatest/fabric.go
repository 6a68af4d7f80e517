package rdmatest

import (
	"cmp"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rdma"
)

// A Fabric makes groups of contexts that reach each other, and says what may be
// asked of them. The zero value of all but Open is the strictest device.
type Fabric struct {
	// Open gives n nodes, 1 to 4, each able to reach each other and itself; the
	// first is in this process. It registers the clean-ups that close them with t.
	Open func(t testing.TB, n int) []Node
	// Inexact: where a status other than success is due, any such will do.
	Inexact bool
	// InexactRetries: counters of retries are the device's own and may lag or count
	// otherwise.
	InexactRetries bool
	// Adversarial: the device retries by itself, so counts of retries are
	// lower bounds.
	Adversarial bool
	// Differs are rules that the devices are known to break, with what they do
	// instead: group/rule, or group/rule/part, where each of the three may be a
	// pattern of path.Match. They are not checked.
	Differs map[string]string
	// Lacks are the features that the contexts do not have. Context.Supports
	// must say so of each with rdma.ErrNotSupported, and of no other; cases
	// that need one of them are left out.
	Lacks []rdma.Feature
	// Refuses holds access bits that registration answers with
	// rdma.ErrNotSupported; without a bit here the ability is demanded.
	Refuses rdma.Access
	// WholePages: the address of a region's first byte and its memory must be at
	// the same place of a page, so ordinary memory gives no zero-based region.
	WholePages bool
	// TornWords: an aligned write of 8 bytes may be seen when some of them are
	// there. InfiniBand promises no more of it; atomics are whole anywhere.
	TornWords bool
	// Memory is the kind that cases without an opinion use.
	Memory MemoryKind
	// Patience is how long a completion may take. 0: 10 s, stretched for this machine.
	Patience time.Duration
	// Idle lets the time pass after which dynamically connected initiators of the first node end idle connections; nil: no
	// rule asks for that.
	Idle func(first Node)
	// Doorbells loses doorbells of the first node; nil: no rule asks for that.
	Doorbells *Doorbells
	// Processes: all nodes but the first are processes that can be stopped, as
	// a Child can.
	Processes bool
	// Brief leaves out the cases that need many operations or megabytes, for
	// fabrics that differ from a fully tested one in little.
	Brief bool
	// Groups, when not nil, are the only groups of rules that are checked.
	Groups []string
}

// Doorbells are a bus that loses what a test wants lost.
type Doorbells struct {
	Lose func(first Node, n int) // the next n rings; until one has come the device looks at no doorbell record by itself
	Look func(first Node)        // it does so again
}

// A testCase checks one rule with a number of nodes.
type testCase struct {
	name  string // group/rule
	nodes int
	run   func(*rig)
	needs []rdma.Feature      // left out where one of them is lacking
	long  bool                // left out of brief runs
	when  func(f Fabric) bool // nil: always
}

// fits tells whether the case is one for the fabric.
func (c *testCase) fits(f Fabric) bool {
	for _, need := range c.needs {
		if slices.Contains(f.Lacks, need) {
			return false
		}
	}
	return !(f.Brief && c.long) && (c.when == nil || c.when(f)) && !f.differs(c.name)
}

// differs tells whether a rule, or a part of one, is not to be checked.
func (f *Fabric) differs(rule string) bool {
	for pattern := range f.Differs {
		if ok, err := path.Match(pattern, rule); ok || err != nil {
			return true
		}
	}
	return false
}

// needing makes cases ones that need features.
func needing(cases []testCase, features ...rdma.Feature) []testCase {
	for i := range cases {
		cases[i].needs = append(cases[i].needs, features...)
	}
	return cases
}

// Run holds the fabric's contexts to every rule. Each rule is a subtest
// group/rule.
func Run(t *testing.T, f Fabric) {
	t.Helper()
	f.Patience = cmp.Or(f.Patience, testenv.Limit(10*time.Second))
	groups, names := map[string][]testCase{}, []string(nil)
	seen, known := map[string]bool{}, map[string]bool{}
	for _, c := range allCases() {
		if seen[c.name] {
			t.Fatalf("two cases are called %s", c.name)
		}
		seen[c.name] = true
		group, _, _ := strings.Cut(c.name, "/")
		known[group] = true
		if !c.fits(f) {
			continue
		}
		if f.Groups != nil && !slices.Contains(f.Groups, group) {
			continue
		}
		if groups[group] == nil {
			names = append(names, group)
		}
		groups[group] = append(groups[group], c)
	}
	for pattern := range f.Differs {
		rule := strings.Join(append(strings.Split(pattern, "/"), "")[:2], "/")
		if !slices.ContainsFunc(slices.Collect(maps.Keys(seen)), func(name string) bool { ok, _ := path.Match(rule, name); return ok }) {
			t.Fatalf("no rule is called %q", pattern)
		}
	}
	for _, group := range f.Groups {
		if !known[group] {
			t.Fatalf("no group of rules is called %q", group)
		}
	}
	for _, group := range names {
		t.Run(group, func(t *testing.T) {
			for _, c := range groups[group] {
				_, rule, _ := strings.Cut(c.name, "/")
				t.Run(rule, func(t *testing.T) {
					testenv.NoLeaks(t)
					c.run(newRig(t, f, c.name, c.nodes))
				})
			}
		})
	}
}

// A Rule is one of the suite's.
type Rule struct {
	Name  string         // group/rule
	Needs []rdma.Feature // it is left out where one of them is lacking
}

// Rules lists those that Run checks of the fabric, which need not open anything.
func Rules(f Fabric) []Rule {
	var rules []Rule
	for _, c := range allCases() {
		if c.fits(f) {
			rules = append(rules, Rule{c.name, c.needs})
		}
	}
	return rules
}

func allCases() []testCase {
	var all []testCase
	for _, group := range [][]testCase{
		deviceCases(), lifeCases(), regCases(), stateCases(), postCases(),
		accessCases(), statusCases(), flushCases(), signalCases(),
		transferCases(), recvCases(), rnrCases(), ackCases(), atomicCases(),
		orderCases(), cqCases(), deregCases(), counterCases(), abilityCases(),
		closeCases(), mapCases(), randomCases(), processCases(),
		iovaCases(), reregCases(), odpCases(), mwCases(), svaCases(), dmabufCases(), mkeyCases(),
		srqCases(), eventCases(), channelCases(), doorbellCases(),
		ucCases(), udCases(), xrcCases(),
		inlineRecvCases(), dcCases(), stridingCases(), sharedStridingCases(), tagCases(),
	} {
		all = append(all, group...)
	}
	return all
}
