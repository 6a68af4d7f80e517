package main

import (
	"bytes"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gorun-mpi/gorun/launcher"
)

func TestFamilyOf(t *testing.T) {
	for name, want := range map[string]family{
		"gorun": own, "/usr/bin/gorun": own, "": own, "gorun.new": own, "mympirun": own,
		"mpirun": openMPI, "./mpirun": openMPI, "/opt/bin/orterun": openMPI, "prterun": openMPI, "mpirun.openmpi": openMPI, "mpiexec.openmpi": openMPI,
		"mpiexec": hydra, "mpiexec.hydra": hydra, "mpiexec.mpich": hydra, "mpirun.mpich": hydra, "gorun-mpiexec": hydra,
	} {
		if got := familyOf(name); got != want {
			t.Errorf("familyOf(%q) = %d, want %d", name, got, want)
		}
	}
}

func TestPlayAs(t *testing.T) {
	for _, c := range []struct {
		variable, args, want, rest, err string
	}{
		{"", "-n 1 a", "gorun", "-n 1 a", ""},
		{"", "--as mpirun -n 1 a", "mpirun", "-n 1 a", ""},
		{"", "-as=mpiexec.hydra a", "mpiexec.hydra", "a", ""},
		{"mpirun", "a", "mpirun", "a", ""},
		{"mpirun", "--as gorun a", "gorun", "a", ""},
		{"", "a --as mpirun", "gorun", "a --as mpirun", ""},
		{"", "--as", "gorun", "--as", ""},
		{"", "--as srun a", "", "", `--as: found "srun", expected mpirun, mpirun-6, mpiexec or gorun`},
		{"", "--as= a", "", "", `--as: found "", expected`},
		{"x", "a", "", "", `GORUN_AS: found "x", expected`},
	} {
		cl := line([]string{"GORUN_AS=" + c.variable}, strings.Fields(c.args)...)
		err := cl.playAs()
		if c.err != "" {
			if err == nil || !strings.HasPrefix(err.Error(), c.err) {
				t.Errorf("GORUN_AS=%s %s: got %v, want %s", c.variable, c.args, err, c.err)
			}
		} else if rest := strings.Join(cl.args, " "); err != nil || cl.name != c.want || rest != c.rest {
			t.Errorf("GORUN_AS=%s %s: got %s, %q, %v, want %s, %q", c.variable, c.args, cl.name, rest, err, c.want, c.rest)
		}
	}
}

// What the table of clashes says of options is so: they have another sense under
// another name. And every option that has is in the table.
func TestClashes(t *testing.T) {
	listed := map[string]bool{}
	for _, c := range clashes() {
		if c.what == "" || c.gorun == "" || c.mpirun == "" || c.hydras == "" {
			t.Errorf("clash %+v says too little", c)
		}
		for _, name := range c.options {
			listed[name] = true
			a, b := longOption(optionsUnder(own), name), longOption(optionsUnder(hydra), name)
			if a == nil || b == nil || a.fate == b.fate && a.reason == b.reason && a.family == b.family {
				t.Errorf("%s: -%s is the same under both names", c.what, name)
			}
		}
	}
	for _, o := range everyOption() {
		if o.under == 0 {
			continue
		}
		for _, name := range o.allNames() {
			if longOption(optionsUnder(own), name) != nil && longOption(optionsUnder(hydra), name) != nil && !listed[name] && !listed[o.names[0]] && len(o.names[0]) > 1 && o.names[0] != "preload-binary" {
				t.Errorf("-%s has several senses and is in no line of the clashes", name)
			}
		}
	}
}

func TestSensesUnderOtherNames(t *testing.T) {
	for _, c := range []struct {
		command, args string
		err           string // beginning
		note          string // a part of the only note's reason
		verbose       int
	}{
		{command: "gorun", args: "-s prog"},
		{command: "mpirun", args: "--preload-binary prog"},
		{command: "mpiexec", args: "-s all prog"},
		{command: "mpiexec", args: "-s half prog", err: `-s: found "half", expected a rank, all or none`},
		{command: "mpirun", args: "--debug prog", err: "--debug: not supported: gorun starts no debugger"},
		{command: "mpiexec", args: "-debug prog", verbose: 1},
		{command: "gorun", args: "-d prog", verbose: 2},
		{command: "mpiexec", args: "-tune file prog", note: "Intel MPI"},
		{command: "mpiexec.hydra", args: "-launcher ssh -rmk slurm prog", note: "--rsh names another"},
		{command: "gorun", args: "--launcher ssh prog", err: `--launcher ssh: found no hosts, expected -H`},
		{command: "gorun", args: "--allow-run-as-root prog"},
		{command: "gorun", args: "--mca plm_rsh_agent ssh --mca oob_tcp_if_include eth0 prog", note: "Open MPI's own launcher"},
		{command: "gorun", args: "--xterm 1 prog", err: "--xterm: not supported: gorun starts no debugger"},
		{command: "gorun", args: "-gpus-per-proc 1 prog", err: "-gpus-per-proc: not supported: gorun assigns no GPUs"},
		{command: "mpiexec", args: "-file x prog", note: "use -configfile for programs"},
		{command: "gorun", args: "--debug-daemons --hetero-nodes prog", note: "daemons"},
	} {
		got, err := parse(under(c.command, nil, strings.Fields(c.args)...))
		if c.err != "" {
			if err == nil || !strings.HasPrefix(err.Error(), c.err) {
				t.Errorf("%s %s: error %v, want %s", c.command, c.args, err, c.err)
			}
			continue
		}
		note := ""
		for _, n := range got.notes {
			note += n.reason
		}
		if err != nil || (c.note == "") != (note == "") || len(got.notes) > 1 || !strings.Contains(note, c.note) || got.verbose != c.verbose {
			t.Errorf("%s %s: notes %v, verbose %d, %v; want one note with %q, verbose %d", c.command, c.args, got.notes, got.verbose, err, c.note, c.verbose)
		}
	}
}

func TestOneNoteForAReason(t *testing.T) {
	got, err := parse(line(nil, "--prefix", "/opt", "-debug-daemons", "--noprefix", "--mca", "plm", "rsh", "--mca", "oob", "tcp", "--prefix=/usr", "prog"))
	want := []string{"--prefix --noprefix", "-debug-daemons", "--mca plm --mca oob"}
	var texts []string
	for _, n := range got.notes {
		texts = append(texts, strings.Join(n.options, " "))
	}
	if err != nil || !slices.Equal(texts, want) || len(got.job.Env) != 0 {
		t.Errorf("notes about %q, environment %q, %v; want %q and no environment", texts, got.job.Env, err, want)
	}
}

func TestStatusUnderHydrasName(t *testing.T) {
	ranks := []launcher.RankEnd{{Rank: 0, Status: 3}, {Rank: 1, Status: 5}, {Rank: 2, Status: 137, Signal: 9}, {Rank: 3, Status: 143, Signal: 15, Told: true}}
	for _, c := range []struct {
		name   string
		or     bool
		result launcher.Result
		want   int
	}{
		{"the first", false, launcher.Result{ExitStatus: 5, Cause: &launcher.Cause{Rank: 1}, Ranks: ranks}, 5},
		{"all together", true, launcher.Result{ExitStatus: 5, Cause: &launcher.Cause{Rank: 1}, Ranks: ranks}, 15},
		{"a signal is its number", true, launcher.Result{ExitStatus: 137, Cause: &launcher.Cause{Rank: 0}, Ranks: ranks[2:]}, 9},
		{"the timeout", true, launcher.Result{ExitStatus: 124, Cause: &launcher.Cause{Rank: -1}, Ranks: ranks}, 124},
		{"an abort", true, launcher.Result{ExitStatus: 7, Cause: &launcher.Cause{Rank: 0, Aborted: true}, Ranks: ranks}, 7},
		{"left without a word", true, launcher.Result{ExitStatus: 1, Cause: &launcher.Cause{Rank: 0}, Ranks: []launcher.RankEnd{{}}}, 1},
		{"well", true, launcher.Result{Ranks: []launcher.RankEnd{{}}}, 0},
	} {
		if got := (ends{or: c.or}).status(c.result, nil); got != c.want {
			t.Errorf("%s: status %d, want %d", c.name, got, c.want)
		}
	}
}

func TestVersionAsTheOthersTellIt(t *testing.T) {
	for _, c := range []struct{ name, pattern, not string }{
		{"gorun", `^gorun [0-9.]+`, "Open MPI|HYDRA"},
		{"/opt/bin/mpirun", `^mpirun \(Open MPI\) [0-9]+\.[0-9]+\.[0-9]+\ngorun [0-9.]+`, "MPICH|HYDRA|(?s)mpirun.*mpirun"},
		{"mpiexec.openmpi", `^mpiexec\.openmpi \(Open MPI\) [0-9.]+\ngorun `, "MPICH|HYDRA"},
		{"mpiexec", `^HYDRA build details:\n +gorun [0-9.]+.*\n +Version: +[0-9]+\.[0-9]+\.[0-9]+\n`, "Open MPI"},
		{"mpiexec.hydra", `^HYDRA build details:\n +gorun `, "Open MPI"},
	} {
		got := versionAs(c.name)
		if !regexp.MustCompile(c.pattern).MatchString(got) || regexp.MustCompile(c.not).MatchString(got) {
			t.Errorf("--version of %s prints\n%s\nwant a match of %q and none of %q", c.name, got, c.pattern, c.not)
		}
	}
}

func TestWordsOfOpenMPI6(t *testing.T) {
	for _, c := range []struct{ args, prefix, stdout string }{
		{"--tag-output", "[%G,%r]<%s>: ", ""},
		{"--tag", "[%G,%r]<%s>: ", ""},
		{"--timestamp", "[%c]<%s>: ", ""},
		{"--output tag,timestamp", "[%c][%G,%r]<%s>: ", ""},
		{"--output rank", "[%r]<%s>: ", ""},
		{"--prepend-rank", launcher.RankPrefix, ""},
		{"--output-filename d/x", "", `^d/x\.prterun-.*-[0-9]+@%G\.%R\.out$`},
		{"--output file=x", "", `^x\.prterun-.*-[0-9]+@%G\.%R\.out$`},
		{"--output file=x.%R:pattern", "", `^x\.%R\.out$`},
		{"--output dir=x", "", `^x/prterun-.*-[0-9]+@%G/rank\.%R/stdout$`},
		{"--output-dir x", "", `^x/prterun-.*-[0-9]+@%G/rank\.%R/stdout$`},
	} {
		got, err := parse(under("/usr/bin/mpirun-6", nil, append(strings.Fields(c.args), "prog")...))
		out := got.job.Output
		if err != nil || out.Prefix != c.prefix || !regexp.MustCompile(c.stdout).MatchString(out.Stdout) || out.NoCopy != (c.stdout != "") {
			t.Errorf("%s: %+v, %v; want prefix %q, file %s alone", c.args, out, err, c.prefix, c.stdout)
		}
	}
	got, err := parse(under("mpirun-6", nil, "--output", "dir=x:copy", "prog"))
	if err != nil || got.job.Output.NoCopy {
		t.Errorf("dir=x:copy: %+v, %v", got.job.Output, err)
	}
}

func TestStatusesOfOpenMPI6(t *testing.T) {
	for _, c := range []struct {
		name, args string
		want       int
	}{
		{"mpirun-6", "--rtos x prog", recentUsage},
		{"mpirun-6", "-machinefile /dev/null prog", recentHostfile},
		{"mpirun-6", "-np 4 -H localhost:2 --nooversubscribe true", recentUnmapped},
		{"mpirun-6", "-np 1 ./nosuch", 127},
		{"mpirun", "--rtos x prog", statusUsage},
		{"mpirun", "-np 4 -H localhost:2 --nooversubscribe true", statusUsage},
	} {
		var out, errOut bytes.Buffer
		cl := under(c.name, nil, strings.Fields(c.args)...)
		cl.readFile = os.ReadFile
		if got := run(t.Context(), cl, stdio{strings.NewReader(""), &out, &errOut}); got != c.want {
			t.Errorf("%s %s: status %d, want %d\n%s", c.name, c.args, got, c.want, errOut.String())
		}
	}
}
