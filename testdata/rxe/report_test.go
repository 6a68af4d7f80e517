package rxe

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/rxevm"
	"github.com/gorun-mpi/gorun/internal/testenv"
)

// result is what a test of a test binary came to, with its subtests.
type result struct {
	name   string // its own part of the full name
	action string // "pass", "fail", "skip"; empty: it did not end
	ran    bool   // false: only a part of its subtests' names
	output strings.Builder
	subs   []*result
}

// sub finds a subtest by its name's parts, or makes it.
func (r *result) sub(parts []string) *result {
	for _, name := range parts {
		at := slices.IndexFunc(r.subs, func(s *result) bool { return s.name == name })
		if at < 0 {
			at = len(r.subs)
			r.subs = append(r.subs, &result{name: name})
		}
		r = r.subs[at]
	}
	return r
}

// parse reads the events of test2json. Output that belongs to no test is the result's own.
func parse(events io.Reader) (*result, error) {
	all := &result{name: "all", ran: true}
	for in := json.NewDecoder(events); ; {
		var e struct{ Action, Test, Output string }
		if err := in.Decode(&e); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("test2json: %w", err)
		}
		var r *result
		if r = all; e.Test != "" {
			r = all.sub(strings.Split(e.Test, "/"))
		}
		switch e.Action {
		case "run":
			r.ran = true
		case "output":
			if !strings.HasPrefix(e.Output, "=== ") {
				r.output.WriteString(e.Output)
			}
		case "pass", "fail", "skip":
			r.action = e.Action
		}
	}
}

// report makes subtests of results.
func (r *result) report(t *testing.T) {
	for _, s := range r.subs {
		t.Run(s.name, func(t *testing.T) {
			s.report(t)
			switch text := strings.TrimSpace(s.output.String()); {
			case !s.ran, s.action == "pass":
			case s.action == "skip":
				t.Skip(text)
			case s.action == "fail":
				t.Error(text)
			default:
				t.Errorf("it did not end\n%s", text)
			}
		})
	}
}

// runTests runs the test binary of a package in the guest, which it tells that
// both devices are to be tested, and makes subtests of its tests.
func runTests(t *testing.T, pkg string, limit time.Duration, args ...string) {
	t.Helper()
	runTestsIn(t, guest(t), nil, pkg, limit, args...)
}

// runTestsIn is runTests on a machine of one's own, with more in the environment.
func runTestsIn(t *testing.T, vm *rxevm.VM, env []string, pkg string, limit time.Duration, args ...string) {
	t.Helper()
	name := strings.ReplaceAll(pkg, "/", "_") + ".test"
	binary := filepath.Join(built, name)
	if out, err := goTool("1", "test", "-c", "-ldflags=-s -w", "-o", binary, "./"+pkg); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := vm.Put(binary, ""); err != nil {
		t.Fatal(err)
	}
	var out, stderr bytes.Buffer
	cmd := rxevm.Cmd{
		// The binary's own end comes first, with the stacks of all goroutines.
		Args: append([]string{name, "-test.v=test2json", fmt.Sprint("-test.timeout=", limit)}, args...),
		Env:  append([]string{"GORUN_TEST_VERBS=rxe0,rxe1"}, env...), Stdout: &out, Stderr: &stderr,
	}
	ended, err := vm.Run(testenv.Deadline(t, limit+time.Minute), cmd)
	convert := exec.Command("go", "tool", "test2json")
	convert.Stdin = &out
	events, jsonErr := convert.Output()
	if jsonErr != nil {
		t.Fatal(jsonErr)
	}
	all, parseErr := parse(bytes.NewReader(events))
	if parseErr != nil {
		t.Fatal(parseErr)
	}
	all.report(t)
	if err != nil {
		t.Errorf("%s: %v\n%s%s", name, err, all.output.String(), &stderr)
	} else if failed := ended.Status != 0; failed != t.Failed() || len(all.subs) == 0 {
		t.Errorf("%s: %s after %d tests\n%s%s", name, rxevm.Ended(ended.Status), len(all.subs), all.output.String(), &stderr)
	}
	for _, p := range ended.Left {
		t.Errorf("%s left behind the process %s", name, p)
	}
}

// The transcript of each kind of end, as results.
func TestParse(t *testing.T) {
	const events = `
{"Action":"start"}
{"Action":"run","Test":"TestA"}
{"Action":"output","Test":"TestA","Output":"=== RUN   TestA\n"}
{"Action":"output","Test":"TestA","Output":"--- PASS: TestA (0.00s)\n"}
{"Action":"pass","Test":"TestA"}
{"Action":"run","Test":"TestB"}
{"Action":"run","Test":"TestB/one/two"}
{"Action":"output","Test":"TestB/one/two","Output":"    b_test.go:1: wrong\n"}
{"Action":"fail","Test":"TestB/one/two"}
{"Action":"run","Test":"TestB/three"}
{"Action":"output","Test":"TestB/three","Output":"    b_test.go:2: no device\n"}
{"Action":"skip","Test":"TestB/three"}
{"Action":"fail","Test":"TestB"}
{"Action":"run","Test":"TestC"}
{"Action":"output","Test":"TestC","Output":"panic: oh\n"}
{"Action":"output","Output":"FAIL\n"}
{"Action":"fail"}`
	all, err := parse(strings.NewReader(events))
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	var walk func(r *result, indent string)
	walk = func(r *result, indent string) {
		lines = append(lines, fmt.Sprintf("%s%s %v %s %q", indent, r.name, r.ran, cmp.Or(r.action, "-"), r.output.String()))
		for _, s := range r.subs {
			walk(s, indent+" ")
		}
	}
	walk(all, "")
	want := `all true fail "FAIL\n"
 TestA true pass "--- PASS: TestA (0.00s)\n"
 TestB true fail ""
  one false - ""
   two true fail "    b_test.go:1: wrong\n"
  three true skip "    b_test.go:2: no device\n"
 TestC true - "panic: oh\n"`
	if got := strings.Join(lines, "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if _, err := parse(strings.NewReader(events + "{")); err == nil {
		t.Error("events that are cut off are no error")
	}
}
