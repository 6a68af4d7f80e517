package rdma_test

import (
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/rdma"
	"github.com/gorun-mpi/gorun/rdma/rdmatest"
	"github.com/gorun-mpi/gorun/rdma/verbs"
)

var update = flag.Bool("update", false, "write the tables of the pages anew")

// named are the rules of features that devices are not asked about by the rules
// themselves: every device of verbs has these, or should.
var named = map[rdma.Feature][]string{
	rdma.FeatureAtomics:     {"atomic/*"},
	rdma.FeatureInlineSend:  {"inline/*"},
	rdma.FeatureZeroBased:   {"*/*zero_based*"},
	rdma.FeatureImplicitODP: {"reg/implicit*", "odp/*"},
}

// parts are what an article may call a feature, and is a part of one here.
var parts = []struct {
	name, meaning string
	of            rdma.Feature
	rules         []string // none: all of the feature's
}{
	{"fence, solicited, signaled", "flags of a request", rdma.FeatureRC, []string{"*/*fence*", "*/*solicited*", "signal/*"}},
	{"RNR and ack timers", "retries, and their ends", rdma.FeatureRC, []string{"rnr/*", "ack/*"}},
	{"QP states", "the state table with required attributes", rdma.FeatureRC, []string{"state/*", "flush/*"}},
	{"CQ resize, overrun", "completion queues beside polling", rdma.FeatureRC, []string{"cq/*"}},
	{"doorbell record", "the latest index, which makes a lost doorbell good", rdma.FeatureDoorbellCounts, []string{"doorbell/lost*"}},
	{"direct WQE", "an entry that comes with its doorbell (BlueFlame)", rdma.FeatureDoorbellCounts, []string{"doorbell/*direct*"}},
	{"stride send and receive", "blocks a stride apart on either side", rdma.FeatureUMR, []string{"mkey/*strided*", "mkey/thousands*"}},
	{"prefetch", "advice about on-demand pages", rdma.FeatureODP, []string{"odp/*advice*"}},
	{"rendezvous", "the receiver reads what a tag has matched", rdma.FeatureTagMatching, []string{"*/*rendezvous*", "*/*rndv*"}},
	{"streaming receive", "one receive for many messages", rdma.FeatureStridingRQ, nil},
}

// TestFeatureTable holds the pages' tables to what the providers say, to the suite
// and to the examples.
func TestFeatureTable(t *testing.T) {
	all := declared(t)
	if len(all) != len(rdma.Features()) {
		t.Fatalf("feature.go declares %d features, Features has %d", len(all), len(rdma.Features()))
	}
	facts := table{soft: softSupport(t), lacks: lacks(t, all, verbsTest, "rxeLacks"), examples: examples(t)}
	for f := range verbs.Lacking() {
		if !facts.lacks[f] {
			t.Errorf("verbs lacks %v on every device, and rxeLacks has it not", f)
		}
	}
	differs := differences(t, verbsTest, "rxeDiffers")
	facts.suite = rdmatest.Rules(rdmatest.Fabric{Processes: true, Doorbells: &rdmatest.Doorbells{}, Idle: func(rdmatest.Node) {}})
	// As verbs' conformance test has it in make test-rxe.
	// As its model_test.go has it.
	groups := modelGroups(t)
	facts.model = slices.DeleteFunc(rdmatest.Rules(rdmatest.Fabric{InexactRetries: true, WholePages: true,
		Lacks: slices.Collect(maps.Keys(lacks(t, all, modelTest, "modelLacks"))), Differs: differences(t, modelTest, "modelDiffers")}),
		func(r rdmatest.Rule) bool {
			group, _, _ := strings.Cut(r.Name, "/")
			return !slices.Contains(groups, group)
		})
	facts.rxe = rdmatest.Rules(rdmatest.Fabric{Inexact: true, InexactRetries: true, WholePages: true, Brief: true,
		Lacks: slices.Collect(maps.Keys(facts.lacks)), Differs: differs})
	var b strings.Builder
	b.WriteString("| feature | what it is | soft | verbs | rules | example |\n|---|---|---|---|---|---|\n")
	row := func(cells ...string) {
		for _, cell := range cells {
			if strings.TrimSpace(cell) == "" {
				t.Errorf("an empty cell in %q", cells)
			}
			b.WriteString("| " + strings.ReplaceAll(cell, "|", `\|`) + " ")
		}
		b.WriteString("|\n")
	}
	for _, f := range all {
		rules := ofFeature(facts.suite, f.Feature)
		row("`"+f.String()+"`", f.comment, facts.onSoft(f.Feature), facts.onVerbs(f.Feature, ofFeature(facts.rxe, f.Feature), ofFeature(facts.model, f.Feature)), count(rules), facts.example(f.Feature))
		if facts.soft[f.Feature] == nil && len(rules) == 0 {
			t.Errorf("soft has %v, and no rule of rdmatest needs it", f)
		}
		if facts.soft[f.Feature] == nil && !facts.examples[exampleName(f.Feature)] {
			t.Errorf("soft has %v, and there is no %s", f, exampleName(f.Feature))
		}
		for _, p := range parts {
			if p.of != f.Feature {
				continue
			}
			rules, rxe, model := matching(facts.suite, p.rules), matching(facts.rxe, p.rules), matching(facts.model, p.rules)
			if len(rules) == 0 {
				rules, rxe, model = ofFeature(facts.suite, p.of), ofFeature(facts.rxe, p.of), ofFeature(facts.model, p.of)
			}
			row(p.name, p.meaning, facts.onSoft(p.of), facts.onVerbs(p.of, rxe, model), count(rules), "with `"+p.of.String()+"`")
		}
	}
	testenv.Page(t, "README.md", "features", b.String(), *update)

	for _, c := range []struct {
		mark, head string
		rules      map[string]string
	}{
		{"differences", "what Soft-RoCE does", differs},
		{"stand-in", "why the stand-in does not keep it", differences(t, modelTest, "modelDiffers")},
	} {
		b.Reset()
		b.WriteString("| rule | " + c.head + " |\n|---|---|\n")
		for _, rule := range slices.Sorted(maps.Keys(c.rules)) {
			row("`"+rule+"`", c.rules[rule])
		}
		testenv.Page(t, filepath.Join("verbs", "README.md"), c.mark, b.String(), *update)
	}
}

// Both providers have a page, with the same headings.
func TestProviderPages(t *testing.T) {
	want := []string{"## Needs", "## Guarantees", "## Limits", "## Settings"}
	for _, provider := range []string{"soft", "verbs"} {
		page, err := os.ReadFile(filepath.Join(provider, "README.md"))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for line := range strings.Lines(string(page)) {
			if strings.HasPrefix(line, "## ") {
				got = append(got, strings.TrimSpace(line))
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: the headings are %q, want %q", provider, got, want)
		}
	}
}

// The program in docs/rdma.md is the example that is run.
func TestProgramOfThePage(t *testing.T) {
	text, err := os.ReadFile("example_program_test.go")
	if err != nil {
		t.Fatal(err)
	}
	_, body, _ := strings.Cut(string(text), "func Example() {\n")
	body, output, found := strings.Cut(body, "\t// Output: ")
	if !found {
		t.Fatal("no example with its output")
	}
	_, imports, _ := strings.Cut(string(text), "import (\n")
	imports, _, _ = strings.Cut(imports, ")\n")
	testenv.Page(t, filepath.Join("..", "docs", "rdma.md"), "program", "```go\npackage main\n\nimport (\n"+imports+")\n\nfunc main() {\n"+body+"} // prints "+strings.TrimSuffix(output, "}\n")+"```\n", *update)
}

// A table is what the cells are made from.
type table struct {
	soft     map[rdma.Feature]error
	lacks    map[rdma.Feature]bool // Soft-RoCE, or the provider
	suite    []rdmatest.Rule
	rxe      []rdmatest.Rule // those that are checked on Soft-RoCE
	model    []rdmatest.Rule // and on the library that stands in for a card's
	examples map[string]bool
}

// onSoftOnly is where soft stops, of the features that it has.
var onSoftOnly = map[rdma.Feature]string{
	rdma.FeatureInlineRecv: ", with a receive queue of the queue pair's own",
	rdma.FeatureStridingRQ: ", on the receive queue of an RC or UC queue pair, and on an SRQ of such",
}

func (f *table) onSoft(feature rdma.Feature) string {
	err := f.soft[feature]
	if err == nil {
		return "yes" + onSoftOnly[feature]
	}
	reason := err.Error()
	if op, ok := errors.AsType[*rdma.OpError](err); ok {
		reason = strings.TrimPrefix(op.Detail, feature.String()+": ")
	}
	return "no: " + reason
}

// onMlx5 are the features that only devices have whose driver is libmlx5.
var onMlx5 = []rdma.Feature{rdma.FeatureDC, rdma.FeatureUMR}

func (f *table) onVerbs(feature rdma.Feature, checked, model []string) string {
	if reason, lacking := verbs.Lacking()[feature]; lacking {
		return "no: " + reason
	}
	if f.lacks[feature] {
		who := "if the device has it"
		if slices.Contains(onMlx5, feature) {
			who = "mlx5 devices"
		}
		if len(model) == 0 {
			return who + "; no card was seen, and no rule runs on a stand-in"
		}
		return fmt.Sprintf("%s; no card was seen, %s on a stand-in", who, rulesIn(len(model)))
	}
	if len(checked) == 0 {
		return "if the device has it; Soft-RoCE has, but its rules are not settled there"
	}
	return fmt.Sprintf("yes, %s on Soft-RoCE", rulesIn(len(checked)))
}

func rulesIn(n int) string {
	if n == 1 {
		return "1 rule"
	}
	return strconv.Itoa(n) + " rules"
}

func (f *table) example(feature rdma.Feature) string {
	name := exampleName(feature)
	if f.examples[name] {
		return "`" + name + "`"
	}
	return "none without the feature"
}

// ofFeature are the rules that need a feature, or are named for it; all that need
// none are of RC, on which they run.
func ofFeature(suite []rdmatest.Rule, feature rdma.Feature) []string {
	rules := matching(suite, named[feature])
	for _, r := range suite {
		if (slices.Contains(r.Needs, feature) || len(r.Needs) == 0 && feature == rdma.FeatureRC) && !slices.Contains(rules, r.Name) {
			rules = append(rules, r.Name)
		}
	}
	return rules
}

// matching are the rules whose names match one of the patterns.
func matching(suite []rdmatest.Rule, patterns []string) []string {
	var rules []string
	for _, r := range suite {
		if slices.ContainsFunc(patterns, func(p string) bool { ok, _ := path.Match(p, r.Name); return ok }) {
			rules = append(rules, r.Name)
		}
	}
	return rules
}

// count is "atomic 8, order 1": groups of rules, and how many of each.
func count(rules []string) string {
	n := map[string]int{}
	var groups []string
	for _, r := range rules {
		group, _, _ := strings.Cut(r, "/")
		if n[group]++; n[group] == 1 {
			groups = append(groups, group)
		}
	}
	if len(groups) == 0 {
		return "none without the feature"
	}
	for i, g := range groups {
		groups[i] = fmt.Sprintf("%s %d", g, n[g])
	}
	if len(groups) > 6 {
		return fmt.Sprintf("%d in %d groups", len(rules), len(groups))
	}
	return strings.Join(groups, ", ")
}

func softSupport(t *testing.T) map[rdma.Feature]error {
	l := open()
	defer l.close()
	says := map[rdma.Feature]error{}
	for _, f := range rdma.Features() {
		if says[f] = l.ctx.Supports(f); says[f] != nil && !errors.Is(says[f], rdma.ErrNotSupported) {
			t.Errorf("soft does not know whether it has %v: %v", f, says[f])
		}
	}
	return says
}

// feature is one as feature.go declares it.
type feature struct {
	rdma.Feature
	ident, comment string
}

func declared(t *testing.T) []feature {
	var list []feature
	for _, spec := range constants(t, "feature.go") {
		name := spec.Names[0].Name
		if strings.HasPrefix(name, "Feature") {
			list = append(list, feature{rdma.Feature(len(list)), name, strings.TrimSpace(spec.Comment.Text())})
		}
	}
	return list
}

func parse(t *testing.T, file string) *ast.File {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution|parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

func constants(t *testing.T, file string) []*ast.ValueSpec {
	var specs []*ast.ValueSpec
	for _, d := range parse(t, file).Decls {
		if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.CONST {
			for _, s := range g.Specs {
				specs = append(specs, s.(*ast.ValueSpec))
			}
		}
	}
	return specs
}

// variable is the composite value of a variable of another test, nil when there is
// none: a test cannot import another, and these run in the virtual machine only.
func variable(t *testing.T, file, name string) []ast.Expr {
	t.Helper()
	for _, d := range parse(t, filepath.FromSlash(file)).Decls {
		if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.VAR {
			for _, s := range g.Specs {
				if v := s.(*ast.ValueSpec); v.Names[0].Name == name {
					return v.Values[0].(*ast.CompositeLit).Elts
				}
			}
		}
	}
	return nil
}

const (
	verbsTest = "verbs/conformance_test.go"
	modelTest = "verbs/model_test.go"
)

// lacks are the features in a list of a test.
func lacks(t *testing.T, all []feature, file, list string) map[rdma.Feature]bool {
	lacks := map[rdma.Feature]bool{}
	for _, e := range variable(t, file, list) {
		name := e.(*ast.SelectorExpr).Sel.Name
		i := slices.IndexFunc(all, func(f feature) bool { return f.ident == name })
		if i < 0 {
			t.Fatalf("%s has %s, which is no feature", list, name)
		}
		lacks[all[i].Feature] = true
	}
	if len(lacks) == 0 {
		t.Fatalf("%s has no %s", file, list)
	}
	return lacks
}

// differences are the rules in a map of a test, with what is otherwise.
func differences(t *testing.T, file, name string) map[string]string {
	differs := map[string]string{}
	for _, e := range variable(t, file, name) {
		pair := e.(*ast.KeyValueExpr)
		key, err := strconv.Unquote(pair.Key.(*ast.BasicLit).Value)
		value, err2 := strconv.Unquote(pair.Value.(*ast.BasicLit).Value)
		if err != nil || err2 != nil {
			t.Fatalf("%s: %v, %v", name, err, err2)
		}
		differs[key] = value
	}
	if len(differs) == 0 {
		t.Fatalf("%s has no %s", file, name)
	}
	return differs
}

func modelGroups(t *testing.T) (groups []string) {
	for _, e := range variable(t, modelTest, "modelGroups") {
		group, err := strconv.Unquote(e.(*ast.BasicLit).Value)
		if err != nil {
			t.Fatal(err)
		}
		groups = append(groups, group)
	}
	if len(groups) == 0 {
		t.Fatalf("%s has no modelGroups", modelTest)
	}
	return groups
}

// examples are the functions of this package's tests.
func examples(t *testing.T) map[string]bool {
	files, err := filepath.Glob("example_*test.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("%v, %v", files, err)
	}
	names := map[string]bool{}
	for _, file := range files {
		for _, d := range parse(t, file).Decls {
			if f, ok := d.(*ast.FuncDecl); ok && strings.HasPrefix(f.Name.Name, "Example") {
				names[f.Name.Name] = true
			}
		}
	}
	return names
}

// exampleName is "Example_mwType1" of mw-type1.
func exampleName(f rdma.Feature) string {
	words := strings.Split(f.String(), "-")
	for i, w := range words[1:] {
		words[i+1] = strings.ToUpper(w[:1]) + w[1:]
		if w == "mr" || w == "odp" || w == "cq" || w == "rq" {
			words[i+1] = strings.ToUpper(w)
		}
	}
	return "Example_" + strings.Join(words, "")
}
