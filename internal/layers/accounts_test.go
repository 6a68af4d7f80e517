package layers

import (
	"go/ast"
	"go/parser"
	"go/token"
	"testing"
)

// posters are the packages that call PostSend of a queue pair, and why they may.
var posters = map[string]string{
	"internal/sendq":           "it is the account of what is posted, signalled and done",
	"rdma":                     "the device, its helpers, and what tests it",
	"rank/internal/peers/dc":   "a path is a queue pair to who posts; beneath, the pool shares out initiators, of which it knows who has what under way",
	"rank/internal/peers/mail": "datagrams are each signalled, and letters are accounted for by their answers",
	"cmd/pingpong":             "a tutorial of verbs, which shows what posting takes",
	"examples":                 "they show verbs as they are",
}

// A package that posts to a queue pair by itself writes a second account of what is posted,
// signalled and done, with an error state of its own.
func TestOnlyTheAccountPosts(t *testing.T) {
	const code = `package p
func f() { qp.PostSend(wrs); l.qp.PostSend(wrs); post := qp.PostSend; post(wrs); PostSend() }
func (q *own) PostSend() {}`
	f, err := parser.ParseFile(token.NewFileSet(), "p.go", code, 0)
	if err != nil {
		t.Fatal(err)
	}
	if at := posts(f); len(at) != 3 {
		t.Errorf("found %d, want 3 in\n%s", len(at), code)
	}
	fset, files := sources(t)
	used := map[string]bool{}
	for _, f := range files {
		for _, at := range posts(f.ast) {
			home := ""
			for pkg := range posters {
				if within(f.pkg, pkg) {
					home = pkg
				}
			}
			if used[home] = true; home == "" && !f.test {
				t.Errorf("%s: PostSend: what is posted is accounted for once: post through sendq.Queue", fset.Position(at))
			}
		}
	}
	for pkg, why := range posters {
		if !used[pkg] {
			t.Errorf("%s posts nothing any more, and stands in the table: %s", pkg, why)
		}
	}
}

// posts are the places where a file takes the method PostSend of something.
func posts(f *ast.File) (at []token.Pos) {
	ast.Inspect(f, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok && sel.Sel.Name == "PostSend" {
			at = append(at, sel.Pos())
		}
		return true
	})
	return at
}
