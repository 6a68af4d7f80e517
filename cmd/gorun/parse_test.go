package main

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/launcher"
	"github.com/gorun-mpi/gorun/launcher/hosting"
)

// line is a command line of gorun's own.
func line(environ []string, args ...string) commandLine {
	return commandLine{name: "gorun", args: args, environ: environ}
}

func TestParse(t *testing.T) {
	environ := []string{"HOME=/root", "TWICE=1", "EMPTY=", "TWICE=2"}
	env := func(more ...string) []string { return slices.Concat(environ, more) }
	prog := []string{"prog"}
	for _, c := range []struct {
		name string
		args []string
		want launcher.Job
	}{
		{"program alone", []string{"prog"}, launcher.Job{Argv: prog}},
		{"-np", []string{"-np", "4", "prog"}, launcher.Job{Argv: prog, NP: 4}},
		{"-np=", []string{"-np=4", "prog"}, launcher.Job{Argv: prog, NP: 4}},
		{"--np", []string{"--np", "4", "prog"}, launcher.Job{Argv: prog, NP: 4}},
		{"--np=", []string{"--np=4", "prog"}, launcher.Job{Argv: prog, NP: 4}},
		{"-n", []string{"-n", "4", "prog"}, launcher.Job{Argv: prog, NP: 4}},
		{"--n", []string{"--n", "4", "prog"}, launcher.Job{Argv: prog, NP: 4}},
		{"-n4", []string{"-n4", "prog"}, launcher.Job{Argv: prog, NP: 4}},
		{"-n=4", []string{"-n=4", "prog"}, launcher.Job{Argv: prog, NP: 4}},
		{"last one wins", []string{"-np", "4", "-n", "5", "prog"}, launcher.Job{Argv: prog, NP: 5}},
		{"the program's own options", []string{"-np", "4", "prog", "-np", "7", "--help", "-x", "--", "a"},
			launcher.Job{Argv: []string{"prog", "-np", "7", "--help", "-x", "--", "a"}, NP: 4}},
		{"program after --", []string{"-np", "2", "--", "-odd", ":", "a"}, launcher.Job{Argv: []string{"-odd", ":", "a"}, NP: 2}},
		{"colon inside an argument", []string{"prog", "a:b", "::"}, launcher.Job{Argv: []string{"prog", "a:b", "::"}}},
		{"empty argument of the program", []string{"prog", ""}, launcher.Job{Argv: []string{"prog", ""}}},
		{"-x with value", []string{"-x", "A=1", "prog"}, launcher.Job{Argv: prog, Env: env("A=1")}},
		{"-x with value and =", []string{"-x", "A=b=c", "prog"}, launcher.Job{Argv: prog, Env: env("A=b=c")}},
		{"-x with empty value", []string{"-x", "A=", "prog"}, launcher.Job{Argv: prog, Env: env("A=")}},
		{"-x by name", []string{"-x", "HOME", "-x", "EMPTY", "prog"}, launcher.Job{Argv: prog, Env: env("HOME=/root", "EMPTY=")}},
		{"-x by name, set twice", []string{"-x", "TWICE", "prog"}, launcher.Job{Argv: prog, Env: env("TWICE=2")}},
		{"-genv", []string{"-genv", "A", "b c", "--env", "D", "", "prog"}, launcher.Job{Argv: prog, Env: env("A=b c", "D=")}},
		{"--genv=", []string{"--genv=A=b", "prog"}, launcher.Job{Argv: prog, Env: env("A=b")}},
		{"-wdir", []string{"-wdir", "/tmp", "prog"}, launcher.Job{Argv: prog, Dir: "/tmp"}},
		{"value that looks like an option", []string{"--wdir", "-d", "prog"}, launcher.Job{Argv: prog, Dir: "-d"}},
		{"--timeout seconds", []string{"--timeout", "90", "prog"}, launcher.Job{Argv: prog, Timeout: 90 * time.Second}},
		{"--timeout fraction", []string{"-timeout", "0.5", "prog"}, launcher.Job{Argv: prog, Timeout: time.Second / 2}},
		{"--timeout units", []string{"--timeout=1m30s", "prog"}, launcher.Job{Argv: prog, Timeout: 90 * time.Second}},
		{"-tag-output", []string{"-tag-output", "prog"}, launcher.Job{Argv: prog, Output: launcher.Output{Prefix: launcher.TagPrefix}}},
		{"output like mpirun", []string{"--tag-output", "--timestamp-output", "--merge-stderr-to-stdout", "prog"}, launcher.Job{Argv: prog, Output: launcher.Output{Prefix: "%c[%G,%r]<%s>:", Merge: true}}},
		{"output like Hydra", []string{"-l", "-outfile-pattern=o.%r", "-output-from", "1,0,1", "prog"}, launcher.Job{Argv: prog, Output: launcher.Output{Prefix: "[%r] ", Stdout: "o.%r", NoCopy: true, Ranks: []int{1, 0}}}},
		{"a time before a pattern", []string{"-prepend-pattern", "%h:", "-timestamp-output", "prog"}, launcher.Job{Argv: prog, Output: launcher.Output{Prefix: "%c %h:"}}},
		{"only a time", []string{"-timestamp-output", "prog"}, launcher.Job{Argv: prog, Output: launcher.Output{Prefix: "%c<%s>:"}}},
		{"--output-filename", []string{"--output-filename", "a%b:nojobid,nocopy", "prog"}, launcher.Job{Argv: prog, Output: launcher.Output{Stdout: "a%%b/rank.%R/stdout", Stderr: "a%%b/rank.%R/stderr", NoCopy: true}}},
		{"--output", []string{"--output", "json,merge,dir=d:nocopy", "prog"}, launcher.Job{Argv: prog, Output: launcher.Output{Form: launcher.JSON, Merge: true, Stdout: "d/%G/rank.%R/stdout", Stderr: "d/%G/rank.%R/stderr", NoCopy: true}}},
		{"--output file", []string{"--output", "TAG,FILE=f", "prog"}, launcher.Job{Argv: prog, Output: launcher.Output{Prefix: launcher.TagPrefix, Stdout: "f.%G.%R.out", Stderr: "f.%G.%R.err"}}},
		{"--xml-file", []string{"--xml-file", "f", "prog"}, launcher.Job{Argv: prog, Output: launcher.Output{Form: launcher.XML, Stdout: "f", Stderr: "f", NoCopy: true}}},
		{"--stdin", []string{"--stdin", "3", "prog"}, launcher.Job{Argv: prog, StdinRank: 3}},
		{"--stdin all", []string{"--stdin", "all", "prog"}, launcher.Job{Argv: prog, StdinRank: launcher.StdinAll}},
		{"--tag-output=false", []string{"--tag-output", "--tag-output=false", "prog"}, launcher.Job{Argv: prog}},
		{"-H", []string{"-H", "a:2,b", "prog"}, launcher.Job{Argv: prog, Hosts: []launcher.Host{{Name: "a", Slots: 2}, {Name: "b", Slots: 1}}}},
		{"-host twice", []string{"-host", "a:2", "--host=[::1]:3", "-np", "1", "prog"},
			launcher.Job{Argv: prog, NP: 1, Hosts: []launcher.Host{{Name: "a", Slots: 2}, {Name: "::1", Slots: 3}}}},
		{"--launcher fork", []string{"--launcher", "fork", "-H", "a", "prog"},
			launcher.Job{Argv: prog, Agents: launcher.Agents{Launcher: "fork"}, Hosts: []launcher.Host{{Name: "a", Slots: 1}}}},
		{"--emulate", []string{"--emulate", "mlx5_0,mlx5_1", "--emulate=x.y-z,0000:03:00.0", "prog"},
			launcher.Job{Argv: prog, Hosting: hosting.Settings{Emulate: []string{"mlx5_0", "mlx5_1", "x.y-z", "0000:03:00.0"}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.want.Env == nil {
				c.want.Env = environ
			}
			got, err := parse(line(environ, c.args...))
			if err != nil || got.action != runProgram || !reflect.DeepEqual(got.job, c.want) {
				t.Errorf("parse(%q)\n got %+v, %v\nwant %+v", c.args, got.job, err, c.want)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	for _, c := range []struct {
		name string
		args []string
		want string // in the message, which begins with it unless it begins with "..."
	}{
		{"nothing", nil, "no program: expected one after the options; try "},
		{"no program", []string{"-np", "4"}, "no program"},
		{"empty program", []string{""}, "no program"},
		{"no program after --", []string{"-np", "4", "--"}, "no program"},
		{"-np 0", []string{"-np", "0", "prog"}, `-np: found "0", expected a number of ranks, 1 or more; try -np 4`},
		{"-np -3", []string{"-np", "-3", "prog"}, `-np: found "-3", expected`},
		{"-np x", []string{"-np", "x", "prog"}, `-np: found "x", expected`},
		{"-np 1.5", []string{"-np", "1.5", "prog"}, `-np: found "1.5", expected`},
		{"-np too many", []string{"-np", "4294967297", "prog"}, `-np: found "4294967297", expected`},
		{"-np as a program's name", []string{"-np", "prog"}, `-np: found "prog", expected`},
		{"-np as a program's name, options after it", []string{"-np", "prog", "-m", "3"}, `-np: found "prog", expected`},
		{"--np x", []string{"--np", "x", "prog"}, `--np: found "x", expected`},
		{"-n x", []string{"-n", "x", "prog"}, `-n: found "x", expected`},
		{"-nx", []string{"-nx", "prog"}, `-n: found "x", expected`},
		{"second spelling is bad", []string{"-np", "4", "-n", "x", "prog"}, `-n: found "x", expected`},
		{"first spelling is bad", []string{"-np", "x", "-n", "4", "prog"}, `-np: found "x", expected`},
		{"-np at the end", []string{"-np"}, "-np: found no value, expected N"},
		{"-n at the end", []string{"-n"}, "-n: found no value, expected N"},
		{"-n=", []string{"-n=", "prog"}, `-n: found "", expected`},
		{"-H=", []string{"-H=", "prog"}, `-H: found "" in ""`},
		{"-np=", []string{"-np=", "prog"}, `-np: found "", expected`},
		{"-genv at the end", []string{"-genv", "A"}, "-genv: found 1 of its two values, expected NAME VALUE"},
		{"-x =1", []string{"-x", "=1", "prog"}, `-x: found "=1", expected NAME, NAME=VALUE or PREFIX*`},
		{"-x with nothing", []string{"-x", "", "prog"}, `-x: found "", expected NAME, NAME=VALUE or PREFIX*`},
		{"--timeout 0", []string{"--timeout", "0", "prog"}, `--timeout: found "0", expected a time above 0`},
		{"--timeout -1", []string{"--timeout", "-1", "prog"}, `--timeout: found "-1", expected a time above 0`},
		{"--timeout soon", []string{"-timeout", "soon", "prog"}, `-timeout: found "soon", expected a time`},
		{"--timeout nan", []string{"-timeout", "NaN", "prog"}, `-timeout: found "NaN", expected a time`},
		{"--wdir with nothing", []string{"--wdir=", "prog"}, `--wdir: found "", expected a directory`},
		{"-H with nothing", []string{"-H", "", "prog"}, `-H: found "" in "", expected NAME or NAME:SLOTS`},
		{"-H with a gap", []string{"-H", "a,,b", "prog"}, `-H: found "" in "a,,b", expected NAME`},
		{"-H without name", []string{"-H", ":2", "prog"}, `-H: found ":2" in ":2", expected NAME`},
		{"-H with a newline", []string{"-H", "a\nb:2", "prog"}, `-H: found "a\nb:2" in "a\nb:2", expected NAME`},
		{"-H with a control character", []string{"-H", "a\x1b[2J", "prog"}, `-H: found "a\x1b[2J" in "a\x1b[2J", expected a ] that closes`},
		{"-H 0 slots", []string{"-H", "a:0", "prog"}, `-H: found "a:0" in "a:0", expected a number of slots, 1 or more`},
		{"-H bad slots", []string{"--host", "b:2,a:x", "prog"}, `--host: found "a:x" in "b:2,a:x", expected a number of slots`},
		{"-H bare IPv6", []string{"-H", "fe80::1", "prog"}, `-H: found "fe80::1" in "fe80::1", expected a number of slots, 1 or more, or *, after the colon (an IPv6 address goes in brackets)`},
		{"-H bracket", []string{"-H", "[::1]2", "prog"}, `-H: found "[::1]2" in "[::1]2", expected only :SLOTS after the bracket`},
		{"--launcher rsh", []string{"--launcher", "rsh", "prog"}, `--launcher: found "rsh", expected ssh, slurm, sge, fork`},
		{"--launcher without -H", []string{"--launcher", "fork", "prog"}, "--launcher fork: found no hosts, expected -H"},
		{"--emulate with nothing", []string{"--emulate", "", "prog"}, `--emulate: found "", expected device names`},
		{"--emulate with a gap", []string{"--emulate", "a,,b", "prog"}, `--emulate: found "a,,b", expected device names`},
		{"--emulate blank", []string{"--emulate", "a, b", "prog"}, `--emulate: found "a, b", expected device names`},
		{"--emulate twice", []string{"--emulate", "a", "--emulate", "a", "prog"}, `--emulate: found "a" twice`},
		{"unknown", []string{"--frobnicate", "prog"}, "--frobnicate: unknown option; gorun --help lists"},
		{"unknown with value", []string{"--frobnicate=3", "prog"}, "--frobnicate: unknown option;"},
		{"torchrun's", []string{"--local_addr=10.9.0.1", "prog"}, "--local_addr: unknown option, torchrun's; gorun has --interface"},
		{"torchrun's, no number", []string{"--nproc-per-node", "gpu", "prog"}, `--nproc-per-node: found "gpu", expected a number of ranks for each host, 1 or more`},
		{"--nnodes with a word", []string{"--nnodes", "two", "prog"}, `--nnodes: found "two", expected a number of hosts`},
		{"--nnodes the wrong way round", []string{"--nnodes", "3:2", "prog"}, `--nnodes: found "3:2", expected a number of hosts`},
		{"--nnodes without hosts", []string{"--nnodes", "2", "prog"}, "--nnodes: found 1 of 2 hosts; name them by -H node1,node2"},
		{"--nnodes of hosts that come and go", []string{"--nnodes", "2", "--elastic", "2:8", "--discover-hosts", "p", "prog"}, "--nnodes: found --discover-hosts beside it"},
		{"torchrun's, needless", []string{"--standalone", "prog"}, "--standalone: unknown option, torchrun's; gorun needs none of the kind"},
		{"pasted from a text", []string{"–np", "2", "prog"}, "–np: begins with U+2013, a dash of printed text, expected '-'; try -np"},
		{"pasted behind an option", []string{"-np", "2", "—tag-output", "prog"}, "—tag-output: begins with U+2014, a dash of printed text, expected '-'; try --tag-output"},
		{"pasted, two dashes", []string{"–-map-by=core", "prog"}, "–-map-by=core: begins with U+2013, a dash of printed text, expected '-'; try --map-by=core"},
		{"srun's", []string{"--ntasks-per-node=2", "prog"}, "--ntasks-per-node: unknown option, srun's; gorun has -ppn"},
		{"srun's, for nothing", []string{"--mpi=pmix", "prog"}, `--mpi: found "pmix", expected gorun, mpich, openmpi, or the path of a library or of its directory; as srun's it is not needed: gorun serves PMI-1, PMI-2 and PMIx`},
		{"unknown short", []string{"-Z", "prog"}, "-Z: unknown option;"},
		{"a program that an option takes", []string{"-np", "2", "-H", "prog"}, `no program: expected one after the options (-H took "prog" as its value); try`},
		{"an option mistyped that begins like a short one", []string{"-genvv", "A", "1", "prog"}, "-genvv: unknown option; did you mean --genv?"},
		{"no number after a long name", []string{"-np2", "prog"}, "-np2: unknown option; did you mean -np?"},
		{"a word mistyped, not a number", []string{"-nolocla", "prog"}, "-nolocla: unknown option;"},
		{"near", []string{"--tag-outptu", "prog"}, "--tag-outptu: unknown option; did you mean --tag-output?"},
		{"near, one dash", []string{"-tagoutput", "prog"}, "-tagoutput: unknown option; did you mean --tag-output?"},
		{"near -np", []string{"-mp", "4", "prog"}, "-mp: unknown option; did you mean -np?"},
		{"a word of output", []string{"--output", "t", "prog"}, `--output: found "t", expected json, tag`},
		{"a word of output that is two", []string{"--output", "ta,ti,d", "prog"}, `--output: found "d", expected json`},
		{"a qualifier of output", []string{"--output", "tag:loud", "prog"}, `--output: found "loud", expected nocopy`},
		{"output in no directory", []string{"--output-filename", ":nocopy", "prog"}, `--output-filename: found ":nocopy", expected a directory`},
		{"output from nobody", []string{"-output-from", "1,x", "prog"}, `-output-from: found "x", expected a rank`},
		{"input for half", []string{"--stdin", "-1", "prog"}, `--stdin: found "-1", expected a rank, all or none`},
		{"a terminal perhaps", []string{"--pty", "perhaps", "prog"}, `--pty: found "perhaps", expected auto, always or never`},
		{"switch with a value", []string{"--tag-output=maybe", "prog"}, `--tag-output: found "maybe", expected no value`},
		{"switch with an empty value", []string{"--tag-output=", "prog"}, `--tag-output: found ""`},
		{"-v with a value", []string{"-v=3", "prog"}, `-v: found "3", expected no value`},
		{"dash", []string{"-", "prog"}, "-: unknown option;"},
		{"three dashes", []string{"---np", "prog"}, "---np: unknown option;"},
		{"no program before the colon", []string{"-np", "2", ":", "b"}, "found no program before ':', expected one"},
		{"no program after the colon", []string{"a", "x", ":"}, "found no program after the last ':', expected one"},
		{"no program after the colon's options", []string{"a", "x", ":", "-np", "2"}, "found no program after the last ':', expected one"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := parse(line(nil, c.args...))
			if err == nil || !strings.HasPrefix(err.Error(), c.want) {
				t.Errorf("parse(%q)\n got %+v, error %v\nwant error %s", c.args, got.job, err, c.want)
			}
			if err != nil && strings.Contains(err.Error(), "\n") {
				t.Errorf("parse(%q): the message %q has more than one line", c.args, err)
			}
		})
	}
}

func TestActions(t *testing.T) {
	for _, c := range []struct {
		args    string
		want    action
		verbose int
	}{
		{"-h", showHelp, 0}, {"-help", showHelp, 0}, {"--help", showHelp, 0}, {"--help -V", showHelp, 0},
		{"-V", showVersion, 0}, {"-version", showVersion, 0}, {"--version -np 3 prog", showVersion, 0},
		{"-v prog", runProgram, 1}, {"-vv prog", runProgram, 2}, {"-v --verbose -v prog", runProgram, 3},
		{"-vn2 prog", runProgram, 1}, {"--help=false prog", runProgram, 0},
	} {
		got, err := parse(line(nil, strings.Fields(c.args)...))
		if err != nil || got.action != c.want || got.verbose != c.verbose {
			t.Errorf("parse(%q) = action %d, verbose %d, %v; want %d, %d", c.args, got.action, got.verbose, err, c.want, c.verbose)
		}
	}
}

func TestUnsetVariableIsAWarning(t *testing.T) {
	got, err := parse(line([]string{"NOSUCHTHING=1"}, "-x", "NOSUCH", "prog"))
	want := []string{"-x NOSUCH: not set in gorun's environment, so it is not passed on; to set it write -x NOSUCH=VALUE"}
	if err != nil || !slices.Equal(got.warnings, want) || len(got.job.Env) != 1 {
		t.Errorf("warnings %q, environment %q, %v; want %q and the environment unchanged", got.warnings, got.job.Env, err, want)
	}
}

func TestTable(t *testing.T) {
	for _, under := range []family{own, openMPI, hydra} {
		seen := map[string]bool{}
		for _, o := range optionsUnder(under) {
			if (o.fate == done) != (o.set != nil) || (o.fate == done) != (o.reason == "") || (o.fate == done) != (o.family != "") {
				t.Errorf("--%s: fate %d with family %q, reason %q and a setter: %v", o.names[0], o.fate, o.family, o.reason, o.set != nil)
			}
			if o.family != "" && !slices.ContainsFunc(families, func(f struct{ name, about string }) bool { return f.name == o.family }) {
				t.Errorf("--%s: family %q is in no heading of the help", o.names[0], o.family)
			}
			if (o.arity == 0 && !o.optional) != (o.value == "") {
				t.Errorf("--%s: arity %d with the value name %q", o.names[0], o.arity, o.value)
			}
			for _, n := range o.allNames() {
				if seen[n] {
					t.Errorf("--%s: the name %q is taken under %d", o.names[0], n, under)
				}
				seen[n] = true
			}
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("-np\n4\n-x\nA=1\nprog\n-np", "gorun")
	f.Add("--genv\nA\nB\n--\n:", "mpiexec")
	f.Add("-vvn4\n-Ha:2,[::1]\nprog", "mpirun")
	f.Add("-n\n1\na\n:\n-configfile\nf", "mpiexec.hydra")
	f.Add("--app\nf\n-tune\nf\n--hostfile\nf", "gorun")
	f.Fuzz(func(t *testing.T, text, name string) {
		args := strings.Split(text, "\n")
		c := line([]string{"A=1", "HYDRA_HOST_FILE=f", "OMPI_MCA_orte_tag_output=1"}, args...)
		c.name = name
		c.readFile = func(string) ([]byte, error) { return []byte(text), nil }
		req, err := parse(c)
		if err != nil || req.action != runProgram {
			return
		}
		apps := req.job.Apps
		if len(apps) == 0 {
			apps = []launcher.App{{Argv: req.job.Argv, NP: req.job.NP, Env: req.job.Env}}
		} else if req.job.Argv != nil || len(apps) == 1 {
			t.Errorf("parse(%q): one program and %d", args, len(apps))
		}
		for _, a := range apps {
			if len(a.Argv) == 0 || a.Argv[0] == "" || a.NP < 0 || a.Env == nil {
				t.Errorf("parse(%q): program %+v", args, a)
			}
		}
	})
}
