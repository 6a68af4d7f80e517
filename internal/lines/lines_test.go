package lines

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

// source is a program whose function where prints from which address it was called, as an offset of the program in memory.
const source = `#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
__attribute__((noinline)) static void where(void) {
	Dl_info i;
	char *at = __builtin_return_address(0);
	dladdr(at, &i);
	printf("%ld\n", (long)(at - 1 - (char *)i.dli_fbase));
}
void exchange(void) {
	puts("12");
	where();
	puts("13");
}
int main(void) { exchange(); return 0; }
`

// The line of an address is found in programs at fixed and at any addresses; without -g the function is, and of a stripped one the address.
func TestFind(t *testing.T) {
	gcc := testenv.Need(t, "gcc")
	dir := t.TempDir()
	file := filepath.Join(dir, "a.c")
	if err := os.WriteFile(file, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ options, function, source, line string }{
		{"-g -pie -fpie", "exchange", file, "12"}, {"-g -no-pie -fno-pie", "exchange", file, "12"}, {"-pie -fpie", "exchange", "", "0"}, {"-s", "0x", "", "0"},
	} {
		t.Run(c.options, func(t *testing.T) {
			program := filepath.Join(t.TempDir(), "a")
			if out, err := exec.Command(gcc, append(strings.Fields(c.options), "-o", program, file, "-ldl")...).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			out, err := exec.Command(program).Output()
			if err != nil {
				t.Fatal(err)
			}
			offset, err := strconv.ParseUint(strings.Fields(string(out))[1], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			var f Finder
			function, source, line := f.Find(program, offset)
			if c.line == "0" {
				c.source = program
			}
			if !strings.HasPrefix(function, c.function) || source != c.source || strconv.Itoa(line) != c.line {
				t.Errorf("found %s at %s:%d, want %s at %s:%s", function, source, line, c.function, c.source, c.line)
			}
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// What is no program has addresses.
func TestFindNothing(t *testing.T) {
	var f Finder
	_, self, _, _ := runtime.Caller(0)
	for _, path := range []string{"/nowhere", t.TempDir(), self, "/dev/null"} {
		if function, source, line := f.Find(path, 0x123); function != "0x123" || source != path || line != 0 {
			t.Errorf("%s: found %s at %s:%d", path, function, source, line)
		}
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}
