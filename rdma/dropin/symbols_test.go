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

var update = flag.Bool("update", false, "write shim/libibverbs.map and shim/symbols.c anew")

// A symbol is a row of shim/symbols.txt.
type symbol struct{ node, name, kind string }

func symbols(t testing.TB) (list []symbol) {
	t.Helper()
	text, err := os.ReadFile("shim/symbols.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) >= 2 && f[0] != "#" {
			list = append(list, symbol{f[0], f[1], strings.Join(f[2:], " ")})
		}
	}
	if len(list) < 100 {
		t.Fatalf("found %d symbols", len(list))
	}
	return list
}

// defined are the functions that the shim's own sources define.
func defined(t testing.TB) map[string]bool {
	t.Helper()
	files, err := filepath.Glob("shim/*.c")
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	function := regexp.MustCompile(`(?m)^[a-z][\w \*]*[ \*](\w+)\([^;]*?\) ?\{`)
	for _, f := range files {
		if f == "shim/symbols.c" {
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

// TestSymbols holds the map and the functions that are absent to the table.
func TestSymbols(t *testing.T) {
	const head = "Made of symbols.txt: go test ./rdma/dropin -run TestSymbols -update"
	var versions, absent strings.Builder
	fmt.Fprintf(&versions, "/* %s */\n", head)
	fmt.Fprintf(&absent, "// %s\n#include <errno.h>\n#include <stdbool.h>\n#include <stddef.h>\n\n", head)
	absent.WriteString("#define FAILS(name) int name(void); int name(void) { return errno = EOPNOTSUPP; }\n" +
		"#define GIVES_NULL(name) void *name(void); void *name(void) { errno = EOPNOTSUPP; return NULL; }\n" +
		"#define DOES_NOTHING(name) void name(void); void name(void) {}\n\n")
	macro := map[string]string{"": "FAILS(%s)\n", "null": "GIVES_NULL(%s)\n", "void": "DOES_NOTHING(%s)\n", "data": "bool %s;\n"}
	have, last := defined(t), ""
	for _, s := range symbols(t) {
		if s.node != last {
			if last != "" {
				fmt.Fprintf(&versions, "}%s;\n", parent(last))
			}
			fmt.Fprintf(&versions, "%s {\n\tglobal:\n", s.node)
			last = s.node
		}
		fmt.Fprintf(&versions, "\t\t%s;\n", s.name)
		if !have[s.name] {
			fmt.Fprintf(&absent, macro[s.kind], s.name)
		}
	}
	fmt.Fprintf(&versions, "}%s;\n", parent(last))
	const command = "go test ./rdma/dropin -run TestSymbols -update"
	testenv.File(t, "shim/libibverbs.map", versions.String(), command, *update)
	testenv.File(t, "shim/symbols.c", absent.String(), command, *update)
}

// parent is the node before one: each has all that the one before it has.
func parent(node string) string {
	var minor int
	if _, err := fmt.Sscanf(node, "IBVERBS_1.%d", &minor); err != nil || minor == 0 {
		return ""
	}
	if minor == 5 {
		minor = 2 // there are no nodes in between
	}
	return fmt.Sprintf(" IBVERBS_1.%d", minor-1)
}
