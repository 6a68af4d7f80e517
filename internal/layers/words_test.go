package layers

import (
	"bytes"
	"go/ast"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A process, a rank and a peer are "it", in code, comments, documents and scripts.
var person = regexp.MustCompile(`(?i)\b(he|him|his|himself|she|hers?|herself)\b`)

func TestProcessIsCalledIt(t *testing.T) {
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		switch hidden := strings.HasPrefix(d.Name(), ".") && p != root && d.Name() != ".ci" && d.Name() != ".github"; {
		case err != nil:
			return err
		case d.IsDir() && (hidden || p == filepath.Join(root, "bin")):
			return filepath.SkipDir
		case !d.Type().IsRegular() || hidden || d.Name() == "go.sum" || p == filepath.Join(root, "internal", "layers", "words_test.go"):
			return nil
		}
		text, err := os.ReadFile(p)
		if err != nil || bytes.IndexByte(text, 0) >= 0 {
			return err
		}
		for _, at := range person.FindAllIndex(text, -1) {
			line := 1 + bytes.Count(text[:at[0]], []byte("\n"))
			t.Errorf("%s:%d: %q: a process, a rank or a peer is called it", p, line, text[at[0]:at[1]])
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A sentence of public text names its actor: it does not begin with a who or a what
// that stands for one. Questions may.
var headless = regexp.MustCompile(`(?:^|[.!?:]["')]? +)((?:Who|Whom|Whose|Whoever|What|Whatever) [^.?!]*[.?!]?)`)

// documents are Markdown files that TestSentencesNameTheirActor reads.
var documents = []string{"*.md", "docs/*.md", "examples/*.md", "docs/decisions/*.md", "rank/*.md", "rdma/*.md", "rdma/*/*.md", "testdata/bench/*.md"}

func TestSentencesNameTheirActor(t *testing.T) {
	fset, files := sources(t)
	look := func(where, text string) {
		for _, found := range sentences(text) {
			t.Errorf("%s: %q: name the actor", where, found)
		}
	}
	for _, f := range files {
		for _, doc := range public(f) {
			look(fset.Position(doc.Pos()).String(), doc.Text())
		}
	}
	for _, pattern := range documents {
		list, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range list {
			text, err := os.ReadFile(p)
			if err != nil {
				t.Fatal(err)
			}
			look(p, string(text))
		}
	}
}

// sentences gives those sentences of a text, by paragraphs, that begin so. Code, which
// is indented or fenced, is no text.
func sentences(text string) (found []string) {
	var paragraph []string
	end := func() {
		for _, m := range headless.FindAllStringSubmatch(strings.Join(paragraph, " "), -1) {
			if !strings.HasSuffix(m[1], "?") {
				found = append(found, m[1])
			}
		}
		paragraph = nil
	}
	fenced := false
	for line := range strings.Lines(text) {
		trimmed := strings.TrimRight(line, "\n")
		if strings.HasPrefix(trimmed, "```") {
			fenced = !fenced
			end()
			continue
		}
		trimmed = strings.TrimSpace(trimmed)
		item := strings.TrimLeft(trimmed, "-*> ")
		switch {
		case fenced, strings.HasPrefix(line, "\t"), strings.HasPrefix(line, "    "), trimmed == "", strings.HasPrefix(trimmed, "#"):
			end()
		case item != trimmed:
			end()
			paragraph = []string{item}
		default:
			paragraph = append(paragraph, trimmed)
		}
	}
	end()
	return found
}

// public gives the comments of a file that go doc shows.
func public(f file) (docs []*ast.CommentGroup) {
	if f.test {
		return nil
	}
	docs = append(docs, f.ast.Doc)
	for _, d := range f.ast.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Name.IsExported() && (d.Recv == nil || ast.IsExported(receiver(d))) {
				docs = append(docs, d.Doc)
			}
		case *ast.GenDecl:
			if d.Tok == token.IMPORT {
				continue
			}
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					if s.Name.IsExported() {
						docs = append(docs, d.Doc, s.Doc, s.Comment)
						docs = append(docs, members(s.Type)...)
					}
				case *ast.ValueSpec:
					if slices.ContainsFunc(s.Names, func(n *ast.Ident) bool { return n.IsExported() }) {
						docs = append(docs, d.Doc, s.Doc, s.Comment)
					}
				}
			}
		}
	}
	slices.SortFunc(docs, func(a, b *ast.CommentGroup) int { return int(pos(a) - pos(b)) })
	return slices.DeleteFunc(slices.Compact(docs), func(c *ast.CommentGroup) bool { return c == nil })
}

func pos(c *ast.CommentGroup) token.Pos {
	if c == nil {
		return token.NoPos
	}
	return c.Pos()
}

func receiver(d *ast.FuncDecl) string {
	if id, ok := base(d.Recv.List[0].Type).(*ast.Ident); ok {
		return id.Name
	}
	return ""
}

// base is the type of which typ is a pointer or an instance.
func base(typ ast.Expr) ast.Expr {
	for {
		switch t := typ.(type) {
		case *ast.StarExpr:
			typ = t.X
		case *ast.IndexExpr:
			typ = t.X
		case *ast.IndexListExpr:
			typ = t.X
		default:
			return typ
		}
	}
}

// members gives the comments of a type's exported fields and methods.
func members(typ ast.Expr) (docs []*ast.CommentGroup) {
	var list *ast.FieldList
	switch t := typ.(type) {
	case *ast.StructType:
		list = t.Fields
	case *ast.InterfaceType:
		list = t.Methods
	default:
		return nil
	}
	for _, m := range list.List {
		if len(m.Names) == 0 || slices.ContainsFunc(m.Names, func(n *ast.Ident) bool { return n.IsExported() }) {
			docs = append(docs, m.Doc, m.Comment)
		}
	}
	return docs
}

func TestSentencesFindsHeadlessOnes(t *testing.T) {
	text := "Run runs. What is\nleft goes. Who can say? Ends: what it\nlikes.\n\n\tWhat is code.\n\n- Who waits sleeps.\n"
	want := []string{"What is left goes.", "Who waits sleeps."}
	if got := sentences(text); !slices.Equal(got, want) {
		t.Errorf("sentences(%q) = %q, want %q", text, got, want)
	}
}
