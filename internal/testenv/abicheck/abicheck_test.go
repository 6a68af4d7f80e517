package abicheck

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

const own = `#ifdef ABI_REAL_HEADERS
#include "real.h"
#else
#define NUMBER 7
#define TEXT "seven"
enum kind { FIRST, SECOND };
typedef unsigned short word;
typedef struct {
	word a;
	union {
		int b;
		struct { char *c; long d; } in;
	} u;
} thing;
struct tail { int e; };
#endif
int call(thing *t, long n);
`

const real = `#define NUMBER 7
#define TEXT "seven"
enum kind { FIRST, SECOND, THIRD };
typedef unsigned short word;
typedef struct thing_s {
	word a;
	union {
		int b;
		struct { char *c; long d; } in;
	} u;
} thing;
struct tail { int e; };
int call(thing *it, long many);
`

// compare compares own with real after a change of the latter.
func compare(t *testing.T, old, new string, options ...func(*Header)) error {
	t.Helper()
	dir := t.TempDir()
	changed := strings.Replace(real, old, new, 1)
	if old != "" && changed == real {
		t.Fatalf("no %q in the header", old)
	}
	for name, text := range map[string]string{"own.h": own, "real.h": changed, "use.c": "#include \"own.h\"\nint use(thing *t) { return call(t, t->u.in.d); }\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h := Header{Own: filepath.Join(dir, "own.h"), Sources: []string{filepath.Join(dir, "use.c")}, Flags: []string{"-I" + dir}}
	for _, o := range options {
		o(&h)
	}
	_, err := h.compare(testenv.Need(t, "gcc"), dir)
	return err
}

func TestCompareAcceptsEqualHeaders(t *testing.T) {
	testenv.Part(t, testenv.Tools)
	if err := compare(t, "", ""); err != nil {
		t.Error(err)
	}
}

func TestCompareNamesEachDifference(t *testing.T) {
	testenv.Part(t, testenv.Tools)
	for _, c := range []struct{ name, old, new, want string }{
		{"number", "NUMBER 7", "NUMBER 8", "(NUMBER) == (7)"},
		{"text", `"seven"`, `"eight"`, "__builtin_strcmp(TEXT, 'seven') == 0"},
		{"enumerator", "FIRST, SECOND", "FIRST, ZEROTH, SECOND", "SECOND == 1"},
		{"typedef", "unsigned short word", "unsigned int word", "sizeof(word) == 2"},
		{"size", "int e;", "int e, f;", "sizeof(struct tail) == 4"},
		{"place in a nested struct", "char *c; long d;", "long d; char *c;", "offsetof(thing, u.in.d) == 16"},
		{"size of a member", "int b;", "char b;", "sizeof(((thing *)0)->u.b) == 4"},
		{"member that is gone", "long d;", "long g;", "no member named 'd'"},
		{"prototype", "long many", "int many", "conflicting types for 'call'"},
		{"constant that is gone", "#define NUMBER 7\n", "", "'NUMBER' undeclared"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := compare(t, c.old, c.new); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

type recorder struct {
	testing.TB
	failed []string
}

func (r *recorder) Errorf(format string, args ...any) {
	r.failed = append(r.failed, fmt.Sprintf(format, args...))
}

func TestStandaloneNamesForeignHeader(t *testing.T) {
	testenv.Part(t, testenv.Tools)
	source := filepath.Join(t.TempDir(), "a.c")
	if err := os.WriteFile(source, []byte("#include <stddef.h>\n#include <errno.h>\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := &recorder{TB: t}
	if Standalone(r, `/pmix`, source); len(r.failed) != 0 {
		t.Errorf("got %q", r.failed)
	}
	if Standalone(r, `/stddef\.h$`, source); len(r.failed) != 1 || !strings.Contains(r.failed[0], source+" includes ") {
		t.Errorf("got %q", r.failed)
	}
}

func TestCompareTakesPartOfStruct(t *testing.T) {
	testenv.Part(t, testenv.Tools)
	begins, ends := func(h *Header) { h.Begins = []string{"struct tail"} }, func(h *Header) { h.Ends = []string{"struct tail"} }
	for _, c := range []struct {
		name string
		part func(*Header)
		new  string
		ok   bool
	}{
		{"longer behind its beginning", begins, "int e, f;", true},
		{"shorter than its beginning", begins, "char e;", false},
		{"another beginning", begins, "int f, e;", false},
		{"longer before its end", ends, "int f, e;", true},
		{"shorter than its end", ends, "char e;", false},
		{"another end", ends, "int e, f;", false},
	} {
		if err := compare(t, "int e;", c.new, c.part); (err == nil) != c.ok {
			t.Errorf("%s: got %v, want it taken: %v", c.name, err, c.ok)
		}
	}
}
