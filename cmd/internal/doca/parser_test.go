package doca

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorun-mpi/gorun/cmd/internal/logline"
)

// params is what the program of these tests takes.
type params struct {
	size, count int
	seed        int64
	device      string
	strict      bool
}

func newParser(v *params) *Parser {
	p := New("prog", "A program for tests.", "prog 1.0")
	p.Int(&v.size, Flag{Long: "msg-size", Short: 's', Value: "BYTES", Help: "bytes per message", Mandatory: true, Check: func() error {
		if v.size < 1 || v.size > 4080 {
			return fmt.Errorf("found %d, expected 1 to 4080", v.size)
		}
		return nil
	}})
	p.Int(&v.count, Flag{Long: "num-msgs", Short: 'n', Value: "N", Help: "messages"})
	p.Int64(&v.seed, Flag{Long: "seed", Value: "N", Help: "random seed"})
	p.String(&v.device, Flag{Long: "devices", Short: 'd', Value: "NAMES", Help: "devices"})
	p.Bool(&v.strict, Flag{Long: "strict", Help: "no warnings"})
	return p
}

func TestArguments(t *testing.T) {
	for _, c := range []struct {
		name, args string
		want       params
		err        string
	}{
		{name: "short", args: "-s 12 -n 3", want: params{size: 12, count: 3}},
		{name: "long", args: "--msg-size 12 --num-msgs=3 --seed -7 --strict", want: params{size: 12, count: 3, seed: -7, strict: true}},
		{name: "short with value attached", args: "-s12 -d=a,b", want: params{size: 12, device: "a,b"}},
		{name: "last one wins", args: "-s 1 -s 2", want: params{size: 2}},
		{name: "switch off", args: "-s 1 --strict=false", want: params{size: 1}},
		{name: "limit", args: "-s 4080", want: params{size: 4080}},
		{name: "garbage", args: "-s 12x", err: `-s: found "12x", expected a whole number`},
		{name: "garbage, long name given", args: "--msg-size 12x", err: `-s: found "12x", expected a whole number`},
		{name: "blank", args: "-s |", err: `-s: found "", expected a whole number`},
		{name: "hexadecimal", args: "-s 0x10", err: `-s: found "0x10", expected a whole number`},
		{name: "fraction", args: "-s 1.5", err: `-s: found "1.5", expected a whole number`},
		{name: "too long", args: "-s 99999999999999999999", err: "-s: found 99999999999999999999, expected a whole number of at most 64 bits"},
		{name: "no short name", args: "-s 1 --seed x", err: `--seed: found "x", expected a whole number`},
		{name: "refused by its check", args: "-s 4081", err: "-s: found 4081, expected 1 to 4080"},
		{name: "mandatory", args: "-n 1", err: "-s/--msg-size: not given"},
		{name: "no value", args: "-n 1 -s", err: "-s: found no value, expected a whole number"},
		{name: "unknown", args: "--msgsize 1", err: "--msgsize: unknown flag; did you mean --msg-size?"},
		{name: "unknown short", args: "-q", err: "-q: unknown flag; see prog --help"},
		{name: "argument", args: "-s 1 file", err: `found the argument "file", expected flags only`},
		{name: "switch with a word", args: "-s 1 --strict=maybe", err: `--strict: found "maybe", expected true or false`},
		{name: "log level", args: "-s 1 -l 55", err: "-l: found 55, expected one of 10=DISABLE"},
		{name: "runtime's log level", args: "-s 1 --sdk-log-level 9", err: "--sdk-log-level: found 9, expected one of 10=DISABLE"},
		{name: "no file", args: "-j /nonexistent", err: `-j: cannot read the parameter file "/nonexistent": no such file or directory`},
		{name: "endless file", args: "-j /dev/zero", err: "longer than"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got params
			args := strings.Fields(c.args)
			for i := range args {
				args[i] = strings.ReplaceAll(args[i], "|", "")
			}
			err := newParser(&got).Parse(args)
			check(t, c.args, got, c.want, err, c.err)
		})
	}
}

func check(t *testing.T, input string, got, want params, err error, wantErr string) {
	t.Helper()
	if wantErr == "" {
		if err != nil || got != want {
			t.Errorf("%s\n got %+v, %v\nwant %+v", input, got, err, want)
		}
		return
	}
	if _, ok := errors.AsType[*Error](err); !ok || !strings.Contains(err.Error(), wantErr) {
		t.Errorf("%s\n got error %v\nwant %s", input, err, wantErr)
	}
}

func TestParameterFile(t *testing.T) {
	for _, c := range []struct {
		name, file, args string
		want             params
		err              string
	}{
		{name: "DOCA's names", file: `{"doca_general_flags": {"log-level": 60}, "doca_program_flags": {"msg-size": 8, "devices": "x", "strict": true}}`,
			want: params{size: 8, device: "x", strict: true}},
		{name: "our names", file: `{"gorun_program_flags": {"msg-size": 8, "seed": -1}}`, want: params{size: 8, seed: -1}},
		{name: "comments and commas", file: "/* a leading\n block */\n// and a line\n{\"doca_program_flags\": {\n\"msg-size\": 8, // eight\n\"devices\": \"a//b\",},}",
			want: params{size: 8, device: "a//b"}},
		{name: "the command line wins", file: `{"doca_program_flags": {"msg-size": 8, "num-msgs": 2}}`, args: "-s 9", want: params{size: 9, count: 2}},
		{name: "the command line wins over a bad value", file: `{"doca_program_flags": {"msg-size": 5000}}`, args: "-s 9", want: params{size: 9}},
		{name: "but not over a bad type", file: `{"doca_program_flags": {"msg-size": "8"}}`, args: "-s 9", err: `msg-size: found "8", expected a whole number`},
		{name: "text for a number", file: `{"doca_program_flags": {"msg-size": "8"}}`, err: `msg-size: found "8", expected a whole number (`},
		{name: "fraction", file: `{"doca_program_flags": {"msg-size": 8.5}}`, err: "msg-size: found 8.5, expected a whole number"},
		{name: "exponent", file: `{"doca_program_flags": {"msg-size": 1e1}}`, err: "msg-size: found 1e1, expected a whole number"},
		{name: "number for text", file: `{"doca_program_flags": {"devices": 7}}`, err: "devices: found 7, expected a string"},
		{name: "number for a switch", file: `{"doca_program_flags": {"strict": 1}}`, err: "strict: found 1, expected true or false"},
		{name: "null", file: `{"doca_program_flags": {"msg-size": null}}`, err: "msg-size: found null, expected a whole number"},
		{name: "list", file: `{"doca_program_flags": {"msg-size": [8]}}`, err: "msg-size: found a list, expected a whole number"},
		{name: "long name in errors", file: `{"doca_program_flags": {"msg-size": 5000}}`, err: "msg-size: found 5000, expected 1 to 4080"},
		{name: "unknown key", file: "{\"doca_program_flags\": {\n\"msgsize\": 8}}", err: `msgsize: unknown key; did you mean "msg-size"? (`},
		{name: "unknown key, line", file: "{\"doca_program_flags\": {\n\"what\": 8}}", err: "file.json:2)"},
		{name: "short name as key", file: `{"doca_program_flags": {"s": 8}}`, err: "s: unknown key; expected one of msg-size, num-msgs, seed, devices, strict"},
		{name: "program flag among the general ones", file: `{"doca_general_flags": {"msg-size": 8}}`, err: "msg-size: unknown key; expected one of log-level, sdk-log-level"},
		{name: "help", file: `{"doca_general_flags": {"help": true}}`, err: "help: unknown key"},
		{name: "file in file", file: `{"doca_general_flags": {"json": "x"}}`, err: "json: unknown key"},
		{name: "unknown section", file: `{"flags": {}}`, err: `-j: found the section "flags", expected doca_general_flags`},
		{name: "section no object", file: `{"doca_program_flags": 7}`, err: "doca_program_flags: found 7, expected an object"},
		{name: "twice", file: `{"doca_program_flags": {"seed": 1}, "gorun_program_flags": {"seed": 2}}`, err: "seed: given twice in the file"},
		{name: "no object", file: `[1]`, err: "-j: found a list, expected an object"},
		{name: "no JSON", file: `hello`, err: "is not JSON"},
		{name: "empty", file: ``, err: "is not JSON"},
		{name: "cut off", file: `{"doca_program_flags": {"msg-size": 8`, err: "is not JSON"},
		{name: "mandatory missing", file: `{"doca_program_flags": {"seed": 8}}`, err: "-s/--msg-size: not given"},
		{name: "log level", file: `{"doca_general_flags": {"log-level": 11}}`, args: "-s 1", err: "log-level: found 11, expected one of"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "file.json")
			if err := os.WriteFile(path, []byte(c.file), 0o600); err != nil {
				t.Fatal(err)
			}
			var got params
			err := newParser(&got).Parse(append([]string{"-j", path}, strings.Fields(c.args)...))
			check(t, c.file+" "+c.args, got, c.want, err, c.err)
		})
	}
}

func TestGeneralFlags(t *testing.T) {
	var v params
	g := newParser(&v)
	err := g.Parse([]string{"-s", "1", "-l", "70", "--sdk-log-level=10"})
	if err != nil || g.level != logline.Trace || g.sdkLevel != logline.Disable {
		t.Errorf("levels %d and %d, %v; want 70 and 10", g.level, g.sdkLevel, err)
	}
	// An error elsewhere leaves the levels usable.
	g = newParser(&v)
	if err := g.Parse([]string{"-l", "10", "--bogus"}); err == nil || g.level != logline.Disable {
		t.Errorf("levels beside an unknown flag %d, %v; want 10 and an error", g.level, err)
	}
	g = newParser(&v)
	if err := g.Parse([]string{"-l", "5"}); err == nil || g.level != logline.Info {
		t.Errorf("levels with a bad level %d, %v; want the default and an error", g.level, err)
	}
	for flag, want := range map[string]error{"-h": ErrHelp, "--help": ErrHelp, "-v": ErrVersion, "--version": ErrVersion} {
		if err := newParser(&v).Parse([]string{flag}); err != want {
			t.Errorf("%s: got error %v, want %v", flag, err, want)
		}
	}
	p := newParser(&v)
	if err := p.Parse([]string{"-s", "1"}); err != nil || !p.Given("msg-size") || p.Given("seed") || p.Given("nosuch") {
		t.Errorf("after -s 1 (%v): Given(msg-size) %v, Given(seed) %v, Given(nosuch) %v; want true, false, false", err, p.Given("msg-size"), p.Given("seed"), p.Given("nosuch"))
	}
}

func TestDeclaredTwice(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a flag declared twice did not panic")
		}
	}()
	var s string
	New("prog", "", "").String(&s, Flag{Long: "loud", Short: 'l'})
}

func TestReport(t *testing.T) {
	usage := newParser(&params{}).Usage()
	for _, c := range []struct {
		name, args  string
		status      int
		out, errOut []string // in this order
		notErr      string
	}{
		{name: "good", args: "-s 1"},
		{name: "help", args: "-h", out: []string{usage}},
		{name: "version", args: "-v", out: []string{"prog 1.0\n"}},
		{name: "bad", args: "-s x", status: 1, errOut: []string{"[GORUN][ERR][parser_test.go:", "[TestReport.func1] -s: found \"x\", expected a whole number\n",
			"[report.go:", "invalid command line: flag -s\n", usage}},
		{name: "bad, program silent", args: "-s x -l 10", status: 1, errOut: []string{"[report.go:", "flag -s\n", usage}, notErr: "expected"},
		{name: "bad, all silent", args: "-s x -l 10 --sdk-log-level 10", status: 1, errOut: []string{usage}, notErr: "[ERR]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var v params
			var out, errOut strings.Builder
			p := newParser(&v)
			err := p.Parse(strings.Fields(c.args))
			status := p.Report(err, Stdio{&out, &errOut})
			if status != c.status {
				t.Errorf("status %d, want %d", status, c.status)
			}
			inOrder(t, "stdout", out.String(), c.out)
			inOrder(t, "stderr", errOut.String(), c.errOut)
			if c.notErr != "" && strings.Contains(errOut.String(), c.notErr) {
				t.Errorf("stderr is %q, want it without %q", errOut.String(), c.notErr)
			}
		})
	}
}

func inOrder(t *testing.T, stream, got string, want []string) {
	t.Helper()
	if want == nil && got != "" {
		t.Errorf("%s is %q, want nothing", stream, got)
	}
	rest := got
	for _, w := range want {
		i := strings.Index(rest, w)
		if i < 0 {
			t.Fatalf("%s is %q, want in it, in order, %q", stream, got, want)
		}
		rest = rest[i+len(w):]
	}
}

func TestUsage(t *testing.T) {
	want := `gorun's prog: a program for tests.

Usage: prog [General Flags] [Program Flags]

General Flags:
  -h, --help               print this text and exit
  -v, --version            print the version and exit
  -l, --log-level <N>      log level of the program: 10=DISABLE, 20=CRITICAL, 30=ERROR, 40=WARNING, 50=INFO, 60=DEBUG, 70=TRACE (default 50)
  --sdk-log-level <N>      log level of the runtime, with the same numbers (default 50)
  -j, --json <PATH>        read flags from a JSON file; flags on the command line win

Program Flags:
  -s, --msg-size <BYTES>   bytes per message (mandatory)
  -n, --num-msgs <N>       messages
  --seed <N>               random seed
  -d, --devices <NAMES>    devices
  --strict                 no warnings
`
	got := newParser(&params{}).Usage()
	if strings.Join(strings.Fields(got), " ") != strings.Join(strings.Fields(want), " ") {
		t.Errorf("usage is\n%s\nwant\n%s", got, want)
	}
}

func FuzzParameterFile(f *testing.F) {
	f.Add([]byte(`{"doca_general_flags": {"log-level": 60}, "doca_program_flags": {"msg-size": 8, "devices": "x", "strict": true,},} // end`))
	f.Add([]byte(`{"doca_program_flags": {"msg-size": [{}]}}`))
	f.Add([]byte("\xff{}"))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(dir, fmt.Sprintf("%d.json", os.Getpid()))
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		var v params
		err := newParser(&v).Parse([]string{"-j", path})
		if err == nil && (v.size < 1 || v.size > 4080) {
			t.Errorf("%q was accepted with size %d", data, v.size)
		}
	})
}

func TestRename(t *testing.T) {
	file := filepath.Join(t.TempDir(), "p.json")
	if err := os.WriteFile(file, []byte(`{"gorun_program_flags": {"size": 7}}`), 0o644); err != nil {
		t.Fatal(err)
	}
	var size int
	var results string
	var verbose bool
	newParser := func() *Parser {
		p := New("prog", "", "prog 1.0")
		p.Rename("json", "parameters", 'j')
		p.Rename("version", "version", 'V')
		p.Int(&size, Flag{Long: "size"})
		p.String(&results, Flag{Long: "json"})
		p.Bool(&verbose, Flag{Long: "verbose", Short: 'v'})
		return p
	}
	if err := newParser().Parse([]string{"-j", file, "--json", "out", "-v"}); err != nil || size != 7 || results != "out" || !verbose {
		t.Errorf("size %d, results %q, verbose %t, err %v; want 7, out, true, none", size, results, verbose, err)
	}
	if err := newParser().Parse([]string{"-V"}); !errors.Is(err, ErrVersion) {
		t.Errorf("-V: err %v, want ErrVersion", err)
	}
}

// The numbers of old releases are taken with a note; today's stay.
func TestOldLogLevels(t *testing.T) {
	for _, c := range []struct {
		args  string
		want  logline.Level
		notes int
		ok    bool
	}{
		{"-l 0", logline.Critical, 1, true},
		{"-l 4", logline.Debug, 1, true},
		{"--log-level 3", logline.Info, 1, true},
		{"-l 60", logline.Debug, 0, true},
		{"", logline.Info, 0, true},
		{"-l 5", logline.Info, 0, false},
		{"-l -1", logline.Info, 0, false},
	} {
		p := New("prog", "", "")
		err := p.Parse(strings.Fields(c.args))
		if p.level != c.want || len(p.notes) != c.notes || (err == nil) != c.ok {
			t.Errorf("%q: level %d, notes %q, %v; want %d, %d notes, accepted: %v", c.args, p.level, p.notes, err, c.want, c.notes, c.ok)
		}
	}
}

// The first line of the usage says whose program it is: others are called pingpong too.
func TestUsageBeginsWithTheProgram(t *testing.T) {
	for program, want := range map[string]string{
		"pingpong":    "gorun's pingpong: two ends write.\n\nUsage: pingpong ",
		"gorun-bench": "gorun-bench: two ends write.\n\nUsage: gorun-bench ",
	} {
		if got := New(program, "Two ends write.", "").Usage(); !strings.HasPrefix(got, want) {
			t.Errorf("the usage is %q, want it to begin with %q", got, want)
		}
	}
}

func TestManual(t *testing.T) {
	p := New("prog", "Runs a thing. It takes\nits time.", "prog 1.0")
	p.Manual()
	n := 1
	p.Int(&n, Flag{Long: "count", Short: 'n', Value: "N", Help: "how often"})
	var out, errOut strings.Builder
	if status := p.Report(p.Parse([]string{"--man"}), Stdio{&out, &errOut}); status != 0 || errOut.Len() > 0 {
		t.Errorf("status %d, %q", status, &errOut)
	}
	inOrder(t, "stdout", out.String(), []string{".TH PROG 1 ", "\nprog \\- runs a thing\n", "\nIt takes its time.\n", ".B \\-n, \\-\\-count <N>\nHow often.\n", ".B \\-h, \\-\\-help\n", "\ngorun(1)\n"})
}
