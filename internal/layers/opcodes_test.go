package layers

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"
)

// opcodeTable is the file with the table of send operations.
const opcodeTable = "rdma/opcode.go"

// What an operation needs, moves and completes with stands in one table. A provider that
// asks which opcode it has, in a switch, a comparison or a table of its own, writes a
// second one, and has a hole for the next opcode.
func TestOpcodesAreToldApartByTheirTable(t *testing.T) {
	const good = `package p
import "rdma"
var wr = rdma.SendWR{Opcode: rdma.WRSend}
func f(op rdma.WROpcode) bool { return op.Operation().Fetches() || post(rdma.WRSend) }`
	const bad = `package p
import "rdma"
var own = map[rdma.WROpcode]int{rdma.WRBindMW: 1}
func f(op rdma.WROpcode) bool {
	switch op {
	case rdma.WRRDMAWrite, rdma.WRSend:
	}
	return op == rdma.WRRDMARead
}`
	for code, want := range map[string]int{good: 0, bad: 4} {
		f, err := parser.ParseFile(token.NewFileSet(), "p.go", code, 0)
		if err != nil {
			t.Fatal(err)
		}
		if at := opcodesToldApart(f); len(at) != want {
			t.Errorf("found %d, want %d in\n%s", len(at), want, code)
		}
	}
	fset, files := sources(t)
	for _, f := range files {
		if f.test || !within(f.pkg, "rdma") || f.path == opcodeTable {
			continue
		}
		for _, at := range opcodesToldApart(f.ast) {
			t.Errorf("%s: an opcode is told apart from others: ask WROpcode.Operation, whose table in %s has what it needs, moves and completes with", fset.Position(at), opcodeTable)
		}
	}
}

// opcodesToldApart are the places where a file compares with an opcode's name, has it
// in a case, or for a key.
func opcodesToldApart(f *ast.File) (at []token.Pos) {
	note := func(e ast.Expr) {
		name := ""
		switch e := ast.Unparen(e).(type) {
		case *ast.Ident:
			name = e.Name
		case *ast.SelectorExpr:
			if p, ok := e.X.(*ast.Ident); ok && p.Name == "rdma" {
				name = e.Sel.Name
			}
		}
		if len(name) > 2 && strings.HasPrefix(name, "WR") && name[2] >= 'A' && name[2] <= 'Z' && name != "WRID" {
			at = append(at, e.Pos())
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CaseClause:
			for _, e := range n.List {
				note(e)
			}
		case *ast.BinaryExpr:
			switch n.Op {
			case token.EQL, token.NEQ, token.LSS, token.LEQ, token.GTR, token.GEQ, token.SUB, token.SHL:
				note(n.X)
				note(n.Y)
			}
		case *ast.KeyValueExpr:
			note(n.Key)
		}
		return true
	})
	return at
}
