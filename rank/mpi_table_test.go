package rank

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"regexp"
	"strings"
	"testing"
)

// exported are the names of the package, methods and fields behind their type, and what
// the comments of functions and methods name of MPI.
func exported(t *testing.T) (names map[string]bool, told map[string][]string) {
	t.Helper()
	names, told = make(map[string]bool), make(map[string][]string)
	function := regexp.MustCompile(`MPI_[A-Z][a-z][A-Za-z_]*`)
	files, err := fs.Glob(os.DirFS("."), "*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				name := d.Name.Name
				if d.Recv != nil {
					name = receiver(d.Recv.List[0].Type) + "." + name
				}
				names[name] = true
				if d.Name.IsExported() {
					for _, mpi := range function.FindAllString(d.Doc.Text(), -1) {
						told[mpi] = append(told[mpi], name)
					}
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					switch s := s.(type) {
					case *ast.ValueSpec:
						for _, n := range s.Names {
							names[n.Name] = true
						}
					case *ast.TypeSpec:
						names[s.Name.Name] = true
						st, ok := s.Type.(*ast.StructType)
						if !ok {
							continue
						}
						for _, field := range st.Fields.List {
							for _, n := range field.Names {
								names[s.Name.Name+"."+n.Name] = true
							}
						}
					}
				}
			}
		}
	}
	return names, told
}

// receiver is a type's name; what a window has every Win has.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.Ident:
		if e.Name == "window" {
			return "Win"
		}
		return e.Name
	}
	return ""
}

// MPI.md names what exists, names each function of MPI once, and has all that the
// comments of the package name.
func TestTableOfMPI(t *testing.T) {
	page, err := os.ReadFile("MPI.md")
	if err != nil {
		t.Fatal(err)
	}
	names, told := exported(t)
	mpi := regexp.MustCompile(`^MPI_[A-Z][A-Za-z0-9_]*$`)
	code := regexp.MustCompile("`([^`]*)`")
	known := make(map[string]string) // the other column
	here := 0
	for i, line := range strings.Split(string(page), "\n") {
		if !strings.HasPrefix(line, "| MPI_") {
			continue
		}
		columns := strings.Split(strings.Trim(line, "| "), " | ")
		if len(columns) != 2 {
			t.Errorf("line %d has %d columns", i+1, len(columns))
			continue
		}
		for _, name := range strings.Split(columns[0], ", ") {
			if !mpi.MatchString(name) || known[name] != "" {
				t.Errorf("line %d: %q is no function of MPI, or there twice", i+1, name)
			}
			known[name] = columns[1]
		}
		for _, m := range code.FindAllStringSubmatch(columns[1], -1) {
			name := strings.TrimPrefix(m[1], "*")
			if first, _, _ := strings.Cut(name, "."); !names[name] || !ast.IsExported(first) {
				t.Errorf("line %d: %s is not in the package", i+1, name)
			}
			here++
		}
		if !code.MatchString(columns[1]) && !strings.HasPrefix(columns[1], "no: ") && !strings.HasPrefix(columns[1], "not needed") {
			t.Errorf("line %d neither names anything nor says why", i+1)
		}
	}
	if len(known) < 350 || here < 300 {
		t.Errorf("%d functions of MPI and %d names: part of the table is missed", len(known), here)
	}
	for name, by := range told {
		column, ok := known[name]
		if !ok {
			t.Errorf("%v is %s, which the table does not have", by, name)
			continue
		}
		for _, n := range by {
			if !strings.Contains(column, "`"+n+"`") {
				t.Errorf("%s is %s, and the table says %s", n, name, column)
			}
		}
	}
}
