// Package abicheck compares declarations of a C library that this module has written
// itself with the library's own headers, for tests.
//
// Programs are compiled with the own declarations only, so that they are the same on
// every machine. Where the real headers are installed, these are compared:
//
//   - each struct and union: its size, and each member's place and size;
//   - each enumerator, and each macro that is a number or a text;
//   - each function: both prototypes stand in one file, and a compiler refuses two
//     that differ;
//   - that the sources which use the declarations compile with the real ones too.
package abicheck

import (
	"debug/dwarf"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

// Real is the macro with which an own header includes the real ones and leaves its
// types and constants out. Only this package defines it.
const Real = "ABI_REAL_HEADERS"

// Header is an own header and what it is compared with.
type Header struct {
	Own     string   // path
	Sources []string // that include it
	Flags   []string // that lead a compiler to the real headers
	Begins  []string // structs of which the header has the beginning only
	Ends    []string // and the end only: these grow before their first member
}

// Run compares, and fails the test with what the compiler says of each difference.
func Run(t testing.TB, h Header) {
	t.Helper()
	n, err := h.compare(testenv.Need(t, "gcc"), t.TempDir())
	if err != nil {
		t.Errorf("%s differs from the real headers (%s):\n%v", h.Own, strings.Join(h.Flags, " "), err)
	}
	t.Logf("%s: %d facts compared", h.Own, n)
}

// Installed are the places, of those that the patterns match and of those in the
// environment variable (separated by colons), that have the file. None ends the test:
// the machine lacks the package.
func Installed(t testing.TB, file, variable, pkg string, patterns ...string) (dirs []string) {
	t.Helper()
	patterns = append(patterns, filepath.SplitList(os.Getenv(variable))...)
	for _, p := range patterns {
		found, err := filepath.Glob(filepath.Join(p, file))
		if err != nil {
			t.Fatalf("%s: %v", p, err)
		}
		for _, f := range found {
			dirs = append(dirs, strings.TrimSuffix(f, "/"+file))
		}
	}
	if len(dirs) == 0 {
		testenv.Unsupported(t, "needs "+pkg+", for "+file+"")
	}
	return dirs
}

// Standalone fails the test where one of the sources reads a file whose path the
// pattern matches: those would make a program depend on where it was built.
func Standalone(t testing.TB, foreign string, sources ...string) {
	t.Helper()
	pattern := regexp.MustCompile(foreign)
	for _, source := range sources {
		out, err := run(testenv.Need(t, "gcc"), "-M", source)
		if err != nil {
			t.Fatalf("gcc -M %s: %v\n%s", source, err, out)
		}
		for _, file := range strings.Fields(string(out)) {
			if pattern.MatchString(file) {
				t.Errorf("%s includes %s: declare what is used of it in a header of this package", source, file)
			}
		}
	}
}

// compare returns how many facts there are.
func (h *Header) compare(gcc, dir string) (int, error) {
	object := filepath.Join(dir, "own.o")
	if out, err := run(gcc, "-g", "-fno-eliminate-unused-debug-types", "-c", "-o", object, "-x", "c", h.Own); err != nil {
		return 0, fmt.Errorf("%w\n%s", err, out)
	}
	types, err := h.types(object)
	if err != nil {
		return 0, err
	}
	macros, err := h.macros()
	if err != nil {
		return 0, err
	}
	facts := append(types, macros...)
	if len(types) == 0 || len(macros) == 0 {
		return 0, fmt.Errorf("%d facts of types and %d of macros were found: the header is not as this package reads it", len(types), len(macros))
	}
	own, err := filepath.Abs(h.Own)
	if err != nil {
		return 0, err
	}
	var text strings.Builder
	fmt.Fprintf(&text, "#include %q\n#include <stddef.h>\n", own)
	for _, f := range facts {
		fmt.Fprintf(&text, "_Static_assert(%s, %q);\n", f, strings.ReplaceAll(f, `"`, "'"))
	}
	check := filepath.Join(dir, "check.c")
	if err := os.WriteFile(check, []byte(text.String()), 0o600); err != nil {
		return 0, err
	}
	var wrong []error
	for _, source := range append([]string{check}, h.Sources...) {
		args := append([]string{"-Wall", "-Werror", "-fsyntax-only", "-fmax-errors=0", "-D" + Real}, h.Flags...)
		if out, err := run(gcc, append(args, source)...); err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w\n%s", source, err, out))
		}
	}
	return len(facts), errors.Join(wrong...)
}

// run runs a compiler that speaks English.
func run(gcc string, args ...string) ([]byte, error) {
	cmd := exec.Command(gcc, args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	return cmd.CombinedOutput()
}

// macros are the facts of the header's numbers and texts.
func (h *Header) macros() (facts []string, err error) {
	text, err := os.ReadFile(h.Own)
	if err != nil {
		return nil, err
	}
	for _, m := range regexp.MustCompile(`(?m)^#define (\w+) +(\S.*)$`).FindAllStringSubmatch(string(text), -1) {
		if strings.HasPrefix(m[2], `"`) {
			facts = append(facts, fmt.Sprintf("__builtin_strcmp(%s, %s) == 0", m[1], m[2]))
		} else {
			facts = append(facts, fmt.Sprintf("(%s) == (%s)", m[1], m[2]))
		}
	}
	return facts, nil
}

// types are the facts of the structs, unions and enumerators that the header declares,
// as a compiler has laid them out.
func (h *Header) types(object string) (facts []string, err error) {
	file, err := elf.Open(object)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := file.DWARF()
	if err != nil {
		return nil, err
	}
	var files []*dwarf.LineFile
	r := data.Reader()
	for {
		e, err := r.Next()
		if err != nil || e == nil {
			return facts, err
		}
		if e.Tag == dwarf.TagCompileUnit {
			lines, err := data.LineReader(e)
			if err != nil {
				return nil, err
			}
			files = lines.Files()
			continue
		}
		index, ok := e.Val(dwarf.AttrDeclFile).(int64)
		if !ok || int(index) >= len(files) || files[index] == nil || filepath.Base(files[index].Name) != filepath.Base(h.Own) {
			continue
		}
		if e.Tag != dwarf.TagStructType && e.Tag != dwarf.TagUnionType && e.Tag != dwarf.TagTypedef && e.Tag != dwarf.TagEnumerationType {
			continue
		}
		t, err := data.Type(e.Offset)
		if err != nil {
			return nil, err
		}
		switch t := t.(type) {
		case *dwarf.EnumType:
			for _, v := range t.Val {
				facts = append(facts, fmt.Sprintf("%s == %d", v.Name, v.Val))
			}
		case *dwarf.StructType:
			if t.StructName != "" && !t.Incomplete {
				facts = append(facts, h.layout(t.Kind+" "+t.StructName, t)...)
			}
		case *dwarf.TypedefType:
			switch under := t.Type.(type) {
			case *dwarf.StructType:
				if under.StructName == "" {
					facts = append(facts, h.layout(t.Name, under)...)
				}
			default:
				if size := t.Size(); size > 0 {
					facts = append(facts, fmt.Sprintf("sizeof(%s) == %d", t.Name, size))
				}
			}
		}
	}
}

// layout are the facts of a struct or union.
func (h *Header) layout(name string, t *dwarf.StructType) []string {
	size := fmt.Sprintf("sizeof(%s)", name)
	end := slices.Contains(h.Ends, name)
	relation := "=="
	if end || slices.Contains(h.Begins, name) {
		relation = ">="
	}
	facts := []string{fmt.Sprintf("%s %s %d", size, relation, t.ByteSize)}
	for _, m := range members(nil, "", 0, t) {
		check := fmt.Sprintf("offsetof(%s, %s) == %d", name, m.name, m.at)
		if end {
			check = fmt.Sprintf("%s - offsetof(%s, %s) == %d", size, name, m.name, t.ByteSize-m.at)
		}
		facts = append(facts, check, fmt.Sprintf("sizeof(((%s *)0)->%s) == %d", name, m.name, m.size))
	}
	return facts
}

// A member of a struct, or of one inside it, which its name leads to.
type member struct {
	name     string
	at, size int64 // bytes
}

func members(list []member, prefix string, base int64, t *dwarf.StructType) []member {
	for _, f := range t.Field {
		at := base + f.ByteOffset
		if inner, ok := f.Type.(*dwarf.StructType); ok && inner.StructName == "" {
			p := prefix
			if f.Name != "" {
				p += f.Name + "."
			}
			list = members(list, p, at, inner)
			continue
		}
		list = append(list, member{prefix + f.Name, at, f.Type.Size()})
	}
	return list
}
