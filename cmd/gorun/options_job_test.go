package main

import (
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-mpi/gorun/launcher"
)

// under is a command line of another name, with files to read.
func under(name string, files map[string]string, args ...string) commandLine {
	return commandLine{name: name, args: args, environ: []string{"HOME=/root"}, readFile: func(name string) ([]byte, error) {
		text, ok := files[name]
		if !ok {
			return nil, &os.PathError{Op: "open", Path: name, Err: os.ErrNotExist}
		}
		return []byte(text), nil
	}}
}

// apps are the programs of a request, one or several, in short:
// "2*prog a b (A=1) in DIR".
func apps(job launcher.Job) []string {
	list := job.Apps
	if list == nil {
		list = []launcher.App{{Argv: job.Argv, NP: job.NP, Env: job.Env, Dir: job.Dir, Path: job.Path}}
	}
	var texts []string
	for _, a := range list {
		text := fmt.Sprintf("%d*%s", a.NP, strings.Join(a.Argv, "|"))
		if env := slices.DeleteFunc(slices.Clone(a.Env), func(e string) bool { return e == "HOME=/root" }); len(env) > 0 {
			text += " (" + strings.Join(env, ";") + ")"
		}
		if a.Dir != "" {
			text += " in " + a.Dir
		}
		if a.Path != "" {
			text += " along " + a.Path
		}
		texts = append(texts, text)
	}
	return texts
}

func TestPrograms(t *testing.T) {
	files := map[string]string{
		"apps": "# two programs\n-n 2 -wdir /tmp a 'an argument' # and a comment\n\n-genv G 1\n  -np 1 \\\n  -x A=1 b \\#x \"\\\"q\\\" \\$HOME\"\n",
		"one":  "-n 1 a : -n 3 b :\n-n 2 c\n",
		"last": "prog goes \\\n on",
	}
	for _, c := range []struct {
		name string
		args []string
		want []string
	}{
		{"two", []string{"-np", "2", "a", "x", ":", "-n", "3", "b", "--", "y"}, []string{"2*a|x", "3*b|--|y"}},
		{"without a number", []string{"a", ":", "b"}, []string{"1*a", "1*b"}},
		{"options of one", []string{"-x", "A=1", "-wdir", "/tmp", "--path", "/opt", "a", ":", "-env", "B", "2", "b"}, []string{"1*a (A=1) in /tmp along /opt", "1*b (B=2)"}},
		{"options of all", []string{"-genv", "A", "1", "-x", "A=2", "a", ":", "--mca", "btl", "self", "-x", "A=3", "b"}, []string{"1*a (A=1;OMPI_MCA_btl=self;A=2)", "1*b (A=1;OMPI_MCA_btl=self;A=3)"}},
		{"a guard takes the colon's meaning", []string{"a", ":", "--", "b", ":", "c"}, []string{"1*a", "1*b|:|c"}},
		{"a file of programs", []string{"--app", "apps"}, []string{"2*a|an argument (G=1) in /tmp", `1*b|#x|"q" \$HOME (G=1;A=1)`}},
		{"several in a line", []string{"-configfile", "one"}, []string{"1*a", "3*b", "2*c"}},
		{"a last line that goes on", []string{"--app", "last"}, []string{"0*prog|goes|on"}},
		{"a file and a program", []string{"-configfile", "one", ":", "-n", "4", "d"}, []string{"1*a", "3*b", "2*c", "4*d"}},
		{"options of the job beside a file", []string{"-genv", "A", "1", "--app", "last"}, []string{"0*prog|goes|on (A=1)"}},
		{"soft", []string{"-n", "10", "-soft", "1:9:2", "a", ":", "-n", "7", "-soft", "2,4:6", "b", ":", "-n", "8", "-soft", "9:0:-4", "c"}, []string{"9*a", "6*b", "5*c"}},
	} {
		got, err := parse(under("gorun", files, c.args...))
		if err != nil || !reflect.DeepEqual(apps(got.job), c.want) {
			t.Errorf("%s: parse(%q)\n got %q, %v\nwant %q", c.name, c.args, apps(got.job), err, c.want)
		}
	}
}

func TestProgramsRefused(t *testing.T) {
	files := map[string]string{"none": "# nothing\n", "options": "-n 2\n", "quote": "a\nb 'c\n", "bad": "a\n\n-n 2 \\\n-x b\n", "nested": "--app one\n", "one": "a\n"}
	for _, c := range []struct {
		args string
		want string
	}{
		{"--app nosuch", `--app: found "nosuch", expected a file that can be read: file does not exist`},
		{"--app none", "none: found no program, expected one a line"},
		{"--app options", "options:1: found -n but no program, expected the program after its options"},
		{"--app quote", "quote:2: found an opening ', expected a closing one"},
		{"--app bad", "bad:3: found -x but no program"},
		{"--app nested", "nested:1: found a file of programs, one, named in another"},
		{"--app one prog", "found the program prog beside the file of programs one"},
		{"-n 2 --app one", "found -n beside the file of programs one, expected it in the file"},
		{"--app one --app one", `--app: found "one" after "one", expected one file`},
		{"-soft x a", `-soft: found "x", expected numbers`},
		{"-soft 1:2:0 a", `-soft: found "1:2:0", expected numbers`},
		{"-soft 1:2:3:4 a", `-soft: found "1:2:3:4", expected numbers`},
		{"-n 2 -soft 3:5 a", "-soft: found no number from 1 to 2 in it"},
		{"-soft 3:5 a", "-soft: found no -np beside it"},
		{"-arch sparc a", `-arch: found "sparc", expected what this machine is: `},
		{"-initial-errhandler x a", `-initial-errhandler: found "x", expected mpi_errors_are_fatal`},
	} {
		got, err := parse(under("gorun", files, strings.Fields(c.args)...))
		if err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("parse(%q) = %q, %v; want error %s", c.args, apps(got.job), err, c.want)
		}
	}
}

func TestSplit(t *testing.T) {
	for text, want := range map[string][]string{
		"":                    nil,
		"  a\tb  ":            {"a", "b"},
		`a"b c"d 'e f' ""`:    {"ab cd", "e f", ""},
		`a\ b "c\"d\e" 'f\g'`: {"a b", `c"d\e`, `f\g`},
		"a#b # c":             {"a#b"},
		`'#' a`:               {"#", "a"},
		`end\`:                {`end\`},
	} {
		got, err := split(text)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("split(%q) = %q, %v; want %q", text, got, err, want)
		}
	}
	for _, text := range []string{`'`, `a "b`, `"\"`} {
		if got, err := split(text); err == nil {
			t.Errorf("split(%q) = %q, want an error", text, got)
		}
	}
}

func TestTripletMost(t *testing.T) {
	for _, c := range []struct {
		t           triplet
		limit, want int
	}{
		{triplet{4, 4, 1}, 4, 4}, {triplet{4, 4, 1}, 3, 0}, {triplet{1, 10, 3}, 9, 7}, {triplet{1, 10, 3}, 10, 10},
		{triplet{10, 1, -3}, 9, 7}, {triplet{9, 0, -4}, 3, 1}, {triplet{5, 2, 1}, 9, 0}, {triplet{0, 0, 1}, 5, 0},
	} {
		if got := c.t.most(c.limit); got != c.want {
			t.Errorf("%v.most(%d) = %d, want %d", c.t, c.limit, got, c.want)
		}
	}
}
