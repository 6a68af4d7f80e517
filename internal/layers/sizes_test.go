package layers

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

const updateSizes = "go test ./internal/layers -update"

// A measure is something that is counted.
type measure struct {
	step  int    // limits are multiples of it, so that not each change moves one
	slack int    // a limit that is further above what was found holds nothing
	most  int    // what has more stands in a list, to which -update adds no name
	hint  string // how to have less
}

var measures = map[string]measure{
	"lines":      {step: 100, slack: 500, hint: "look for what can carry the new lines, and what can go"},
	"nested":     {step: 1, slack: 10, hint: "make a step of the test a function, or its cases a table"},
	"parameters": {step: 1, most: 6, hint: "pass what belongs together as one struct"},
	"methods":    {step: 1, slack: 10, most: 70, hint: "make a part of it a named field: embedded ones count"},
	"fields":     {step: 1, slack: 10, most: 40, hint: "make a part of it a named field: embedded ones count"},
}

// rigs are what tests, examples and builds stand on. Product is what is neither a rig nor a test nor generated.
var rigs = []string{"coll/sim", "e2e", "examples", "internal/layers", "internal/rxevm", "internal/testbed", "internal/testenv", "internal/topo/topotest", "pmi/pmitest", "rank/ranktest", "rdma/dropin/conformance", "rdma/rdmatest", "scripts", "testdata"}

// sizes.txt has a limit in each line: what is counted, of what, the number.
func TestSizesHold(t *testing.T) {
	found := sizes(sources(t))
	text, err := os.ReadFile("sizes.txt")
	if err != nil {
		t.Fatal(err)
	}
	held := map[string]int{}
	for line := range strings.Lines(string(text)) {
		var kind, of string
		var n int
		if got, err := fmt.Sscanf(line, "%s %s %d\n", &kind, &of, &n); got != 3 || err != nil || measures[kind].step == 0 {
			t.Fatalf("sizes.txt: found %q, expected WHAT OF LIMIT: mend the line, or remove it and run %s", line, updateSizes)
		}
		held[kind+" "+of] = n
	}
	problems, after := compare(found, held, *update)
	for _, problem := range problems {
		t.Error(problem)
	}
	if *update {
		testenv.File(t, "sizes.txt", after, updateSizes, true)
	}
}

// compare gives what is wrong with the limits, with update only what -update does not mend, and the file that it writes.
func compare(found, held map[string]int, update bool) (problems []string, after string) {
	both := maps.Clone(held)
	maps.Copy(both, found)
	for _, name := range slices.Sorted(maps.Keys(both)) {
		m := measures[strings.Fields(name)[0]]
		n, there := found[name]
		limit, known := held[name] // 0: none yet
		problem, add := "", there && !known && m.most > 0
		switch {
		case add:
			problem = fmt.Sprintf("found %d, expected at most %d: %s; else add it to sizes.txt by hand, as CONTRIBUTING.md says", n, m.most, m.hint)
		case !there:
			problem = fmt.Sprintf("found no more than %d, expected the %d of sizes.txt: %s removes it from the list", m.most, limit, updateSizes)
		case n > limit:
			problem = fmt.Sprintf("found %d, expected at most %d: %s; else %s raises the limit, as CONTRIBUTING.md says", n, limit, m.hint, updateSizes)
		case limit-n >= m.step+m.slack:
			problem = fmt.Sprintf("found %d, expected a limit nearer to it than %d: %s lowers it, to hold what was reached", n, limit, updateSizes)
		}
		if problem != "" && (!update || add) {
			problems = append(problems, name+": "+problem)
		}
		if there && !add {
			after += fmt.Sprintf("%s %d\n", name, (n+m.step-1)/m.step*m.step)
		}
	}
	return problems, after
}

// sizes counts.
func sizes(fset *token.FileSet, files []file) map[string]int {
	found, types := map[string]int{"nested tests": 0}, map[string][]string{}
	for _, f := range files {
		lines := fset.File(f.ast.Pos()).LineCount()
		switch {
		case ast.IsGenerated(f.ast):
			found["lines generated"] += lines
			continue
		case f.test:
			found["lines tests"] += lines
		case slices.ContainsFunc(rigs, func(r string) bool { return within(f.pkg, r) }):
			found["lines rigs"] += lines
		default:
			found["lines product"] += lines
			found["lines product/"+strings.Split(f.pkg, "/")[0]] += lines
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			fn, isFunc := n.(*ast.FuncDecl)
			typ, isType := n.(*ast.TypeSpec)
			switch {
			case f.test && isFunc && strings.HasPrefix(fn.Name.Name, "Test") && nesting(fn) >= 4:
				found["nested tests"]++
			case f.test:
			case isFunc:
				owner := f.pkg
				if fn.Recv != nil {
					owner += "." + receiver(fn)
					types[owner] = append(types[owner], "methods "+fn.Name.Name)
				}
				// MPI's functions, and those that C calls, have the parameters of a prototype.
				prototype := f.pkg == "abi/library" && strings.HasPrefix(fn.Name.Name, "mpi") || f.pkg == "rank" && fn.Name.IsExported() ||
					f.pkg == "internal/pmix" && strings.HasPrefix(fn.Name.Name, "gorun")
				if p, name := fn.Type.Params.NumFields(), "parameters "+owner+"."+fn.Name.Name; p > measures["parameters"].most && !prototype {
					found[name] = max(found[name], p) // systems may have one each
				}
			case isType:
				owner := f.pkg + "." + typ.Name.Name
				types[owner] = append(types[owner], membersOf(f, typ.Type)...)
			}
			return !isFunc
		})
	}
	for name := range types {
		count := map[string]int{}
		for member := range collect(types, name, map[string]bool{}) {
			kind := strings.Fields(member)[0]
			if count[kind]++; kind != "type" && count[kind] > measures[kind].most {
				found[kind+" "+name] = count[kind]
			}
		}
	}
	return found
}

// membersOf gives a type's "fields NAME" or "methods NAME", and "type NAME" of each of its package that it embeds, which is a member, too.
func membersOf(f file, typ ast.Expr) (list []string) {
	kind, all := "fields ", &ast.FieldList{}
	switch typ := typ.(type) {
	case *ast.StructType:
		all = typ.Fields
	case *ast.InterfaceType:
		kind, all = "methods ", typ.Methods
	}
	for _, m := range all.List {
		for _, n := range m.Names {
			list = append(list, kind+n.Name)
		}
		id, own := base(m.Type).(*ast.Ident)
		if m.Names == nil && own {
			list = append(list, "fields "+id.Name, "type "+f.pkg+"."+id.Name)
		}
	}
	return list
}

// collect adds the members of a type, and those of what it embeds, to all.
func collect(types map[string][]string, name string, all map[string]bool) map[string]bool {
	for _, member := range types[name] {
		embedded, is := strings.CutPrefix(member, "type ")
		seen := all[member]
		if all[member] = true; is && !seen {
			collect(types, embedded, all)
		}
	}
	return all
}

// nesting is how deep loops and branches of a function stand in each other.
func nesting(fn *ast.FuncDecl) (deepest int) {
	ast.PreorderStack(fn.Body, nil, func(n ast.Node, above []ast.Node) bool {
		depth, chain := 0, false
		for _, n := range append(above, n) {
			_, isIf := n.(*ast.IfStmt)
			switch n.(type) {
			case *ast.IfStmt, *ast.ForStmt, *ast.RangeStmt, *ast.SwitchStmt, *ast.TypeSwitchStmt, *ast.SelectStmt:
				if !chain || !isIf { // else if
					depth++
				}
			}
			chain = isIf
		}
		deepest = max(deepest, depth)
		return true
	})
	return deepest
}

func TestSizesCount(t *testing.T) {
	fset := token.NewFileSet()
	parse := func(name, code string) file {
		f, err := parser.ParseFile(fset, name, code, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		return file{path: name, pkg: path.Dir(name), test: strings.HasSuffix(name, "_test.go"), ast: f}
	}
	many := strings.Join(strings.Split("bcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNO", ""), ", ")
	found := sizes(fset, []file{
		parse("rank/a.go", "package rank\n\ntype T struct { *U[int]; io.Reader; a int }\nfunc (T) m(a, b, c, d, e, f int, g string) {}\nfunc N(int, int) {}"),
		parse("rank/u.go", "package rank\ntype U[K any] struct { "+many+", a int }"),
		parse("e2e/b.go", "package e2e"),
		parse("pmi/made.go", "// Code generated by hand. DO NOT EDIT.\n\npackage pmi\nfunc F(a, b, c, d, e, f, g int) {}"),
		parse("pmi/u_test.go", `package pmi
func TestA() { for { if a { } else if b { for { go func() { switch { } }() } } } }
func TestB() { for { if a { } else if b { } else if c { for { } } } }`),
	})
	want := map[string]int{"lines product": 7, "lines product/rank": 7, "lines rigs": 1, "lines generated": 4, "lines tests": 3,
		"parameters rank.T.m": 7, "fields rank.T": 42, "fields rank.U": 41, "nested tests": 1}
	if !maps.Equal(found, want) {
		t.Errorf("found %v, want %v", found, want)
	}
}

func TestSizesCompare(t *testing.T) {
	held := map[string]int{"lines product": 1000, "parameters a.F": 8, "methods a.T": 81}
	for _, c := range []struct {
		name       string
		n          int
		want, next string // of the problem, "": none; of the file that -update writes
	}{
		{"lines product", 401, "", "lines product 500\n"},
		{"lines product", 1001, "raises the limit", "lines product 1100\n"},
		{"lines product", 400, "lowers it", "lines product 400\n"},
		{"parameters a.F", 9, "expected at most 8", "parameters a.F 9\n"},
		{"parameters a.F", 0, "removes it", ""},
		{"parameters a.G", 7, "by hand", ""},
		{"nested tests", 3, "expected at most 0", "nested tests 3\n"},
		{"methods a.T", 71, "", "methods a.T 71\n"},
	} {
		found := maps.Clone(held)
		if found[c.name] = c.n; c.n == 0 {
			delete(found, c.name)
		}
		problems, after := compare(found, held, false)
		if got := strings.Join(problems, "\n"); (got == "") != (c.want == "") || !strings.Contains(got, c.want) || !strings.Contains(after, c.next) || c.next == "" && strings.Contains(after, c.name) {
			t.Errorf("%s %d: %q, want %q; %q, want %q", c.name, c.n, got, c.want, after, c.next)
		}
	}
}
