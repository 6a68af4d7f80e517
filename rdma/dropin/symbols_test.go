package dropin_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

var update = flag.Bool("update", false, "write the maps and symbols.c of shim and cm anew")

// libraries are those in C, by their directories.
var libraries = map[string]string{"shim": "libibverbs", "cm": "librdmacm"}

// A symbol is a row of a library's symbols.txt.
type symbol struct{ node, name, kind string }

func symbols(t testing.TB, dir string) (list []symbol) {
	t.Helper()
	text, err := os.ReadFile(dir + "/symbols.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) >= 2 && f[0] != "#" {
			list = append(list, symbol{f[0], f[1], strings.Join(f[2:], " ")})
		}
	}
	if len(list) < 60 {
		t.Fatalf("found %d symbols", len(list))
	}
	return list
}

// defined are the functions that the library's own sources define.
func defined(t testing.TB, dir string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(dir + "/*.c")
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	function := regexp.MustCompile(`(?m)^[a-z][\w \*]*[ \*](\w+)\([^;]*?\) ?\{`)
	for _, f := range files {
		if filepath.Base(f) == "symbols.c" {
			continue
		}
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range function.FindAllStringSubmatch(string(text), -1) {
			names[m[1]] = true
		}
	}
	return names
}

// TestSymbols holds each library's map and the functions that are absent to its table.
func TestSymbols(t *testing.T) {
	const command = "go test ./rdma/dropin -run TestSymbols -update"
	for dir, library := range libraries {
		versions, absent := made(t, dir)
		testenv.File(t, dir+"/"+library+".map", versions, command, *update)
		testenv.File(t, dir+"/symbols.c", absent, command, *update)
	}
}

// made has the map of a library's table, and the functions that no file of its directory defines.
func made(t testing.TB, dir string) (string, string) {
	const head = "Made of symbols.txt: go test ./rdma/dropin -run TestSymbols -update"
	var versions, absent strings.Builder
	fmt.Fprintf(&versions, "/* %s */\n", head)
	fmt.Fprintf(&absent, "// %s\n#include <errno.h>\n#include <stdbool.h>\n#include <stddef.h>\n\n", head)
	fails := "int name(void); int name(void) { return errno = EOPNOTSUPP; }"
	if dir == "cm" { // librdmacm's give -1, some as a long
		fails = "long name(void); long name(void) { errno = EOPNOTSUPP; return -1; }"
	}
	absent.WriteString("#define FAILS(name) " + fails + "\n" +
		"#define GIVES_NULL(name) void *name(void); void *name(void) { errno = EOPNOTSUPP; return NULL; }\n" +
		"#define DOES_NOTHING(name) void name(void); void name(void) {}\n\n")
	macro := map[string]string{"": "FAILS(%s)\n", "null": "GIVES_NULL(%s)\n", "void": "DOES_NOTHING(%s)\n", "data": "bool %s;\n"}
	have, last, parent := defined(t, dir), "", ""
	for _, s := range symbols(t, dir) {
		if s.node != last {
			if last != "" {
				fmt.Fprintf(&versions, "}%s;\n", parent)
			}
			fmt.Fprintf(&versions, "%s {\n\tglobal:\n", s.node)
			// Each node of a family has all that the one before it has.
			parent = ""
			if family, _, _ := strings.Cut(s.node, "."); strings.HasPrefix(last, family+".") {
				parent = " " + last
			}
			last = s.node
		}
		fmt.Fprintf(&versions, "\t\t%s;\n", s.name)
		if !have[s.name] {
			fmt.Fprintf(&absent, macro[s.kind], s.name)
		}
	}
	fmt.Fprintf(&versions, "}%s;\n", parent)
	return versions.String(), absent.String()
}
