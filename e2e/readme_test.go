package e2e

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

// A page is one that shows commands.
type page struct{ name, text string }

// pages are the README, CONTRIBUTING.md and the files of docs.
func pages(t *testing.T) []page {
	t.Helper()
	names, err := filepath.Glob(filepath.Join("..", "docs", "*.md"))
	if err != nil || len(names) < 5 {
		t.Fatalf("found only the pages %q in docs, %v", names, err)
	}
	var list []page
	for _, name := range append([]string{filepath.Join("..", "README.md"), filepath.Join("..", contributing)}, names...) {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, page{filepath.Base(name), string(text)})
	}
	return list
}

// contributing is the page whose commands of Go are about this module.
const contributing = "CONTRIBUTING.md"

// TestReadme runs the commands of the pages that say so, and compares what they
// print with what stands there.
func TestReadme(t *testing.T) {
	testenv.Part(t, testenv.Peers)
	examples := 0
	for _, p := range pages(t) {
		for _, block := range regexp.MustCompile("(?s)<!-- run by go test ./e2e -run TestReadme -->\n```\n(.*?)```\n").FindAllStringSubmatch(p.text, -1) {
			for example := range strings.SplitSeq(strings.TrimPrefix(block[1], "$ "), "\n$ ") {
				examples++
				command, want, _ := strings.Cut(example, "\n")
				t.Run(p.name+"/"+command, func(t *testing.T) { runExample(t, command, want) })
			}
		}
	}
	if examples == 0 {
		t.Fatal("found no example that is to be run")
	}
}

func runExample(t *testing.T, command, want string) {
	ctx, cancel := context.WithTimeout(t.Context(), runLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", command)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.Dir = t.TempDir()
	// Their status is part of what they show, in words.
	if err := cmd.Run(); err != nil && ctx.Err() != nil {
		t.Fatalf("%v: %s", ctx.Err(), &out)
	}
	if got, want := printed(out.String()), printed(want); got != want {
		t.Errorf("it prints, but for times and names,\n%s\nwant\n%s", got, want)
	}
}

// TestReadmeCommands runs every command of the pages as it stands there, in a
// directory with the programs and files that they show or name.
func TestReadmeCommands(t *testing.T) {
	testenv.Part(t, testenv.Peers)
	all := pages(t)
	dir := readmeDirectory(t, all[0].text)
	commands := 0
	for _, p := range all {
		for _, command := range readmeCommands(p.text) {
			commands++
			t.Run(p.name+"/"+command, func(t *testing.T) { runCommand(t, dir, p.name, command) })
		}
	}
	if commands < 40 {
		t.Fatalf("found only %d commands", commands)
	}
}

// needs are the programs without which a command of the pages does not run, by
// what is in the command.
var needs = []struct{ text, tool string }{
	{"mpicc ", "mpicc"}, {"gorun-cc ", "gcc"}, {"./hello", "mpicc"}, {"--mpi gorun ", "mpicc.mpich"}, {"mpiexec.mpich", "mpiexec.mpich"}, {"openmpi ", "mpirun.openmpi"},
	{"mpich ", "mpiexec.mpich"}, {"mpich,openmpi", "mpirun.openmpi"}, {"mpich,openmpi", "mpiexec.mpich"}, {"python3 ", "python3"}, {"man ", "man"}, {"make ", "make"},
}

func runCommand(t *testing.T, dir, page, command string) {
	words := strings.Fields(command)
	statuses := []int{0}
	for _, n := range needs {
		if strings.Contains(command, n.text) {
			testenv.Need(t, n.tool)
		}
	}
	if strings.Contains(command, "sum.py") {
		needMpi4py(t)
	}
	if strings.Contains(command, "./hello") {
		// It was built by a command before this one, but where this one runs alone.
		command = "[ -e hello ] || mpicc hello.c -o hello && " + command
	}
	in := dir
	switch words[0] {
	case "make":
		command = "make -n -C " + repository(t) + " " + words[1]
	case "go":
		if in = filepath.Join(dir, "go"); page == contributing || words[1] == "install" {
			command, in = strings.Replace(command, words[1], words[1]+" -n", 1), repository(t)
		}
	case "gorun-bench":
		statuses = []int{0, 130}
	case "gorun-info":
		statuses = []int{0, 1} // doctor has found something
	}
	if strings.Contains(command, "exit 3;") {
		statuses = []int{3}
	}
	ctx, cancel := context.WithTimeout(t.Context(), runLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", command)
	cmd.Dir = in
	built, err := exec.Command("go", "env", "GOCACHE").Output() // or the standard library would be built anew
	if err != nil {
		t.Fatal(err)
	}
	cmd.Env = append(os.Environ(), "PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"), "XDG_CACHE_HOME="+filepath.Join(dir, "cache"), "GOCACHE="+strings.TrimSpace(string(built)))
	if strings.Contains(command, "-H node") || strings.Contains(command, "./hosts.sh") {
		cmd.Env = append(cmd.Env, "GORUN_INTERFACE=lo")
	}
	var out told
	out.spoke = func() {}
	if words[0] == "gorun-bench" {
		// It takes minutes. Once it has something to say it is asked to end.
		cmd.Args[2] = "exec " + command
		out.spoke = func() { _ = cmd.Process.Signal(os.Interrupt) }
	}
	cmd.Stdout, cmd.Stderr = &out, &out
	err = cmd.Run()
	if status := cmd.ProcessState.ExitCode(); ctx.Err() != nil || !slices.Contains(statuses, status) {
		t.Errorf("status %d, %v, want one of %v\n%s", status, err, statuses, &out.text)
	}
}

// docs/environment.md names all variables that gorun sets for its ranks.
func TestEnvironmentOfRanksIsOnItsPage(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "docs", "environment.md"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("gorun", "--continuous", "--max-restarts", "1", "--pmi-port", "-np", "1", "env", ":", "-np", "3", "env")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%q: %v", cmd.Args, err)
	}
	found := 0
	for line := range strings.Lines(string(out)) {
		name, _, ok := strings.Cut(line, "=")
		if _, outer := os.LookupEnv(name); !ok || outer {
			continue
		}
		found++
		if guard := "GORUN_GUARD_"; strings.HasPrefix(name, guard) {
			name = guard + "JOB_HOST"
		}
		if !bytes.Contains(page, []byte("`"+name+"`")) {
			t.Errorf("a rank has %s, and docs/environment.md does not", name)
		}
	}
	if found < 100 {
		t.Errorf("found only %d variables in\n%s", found, out)
	}
}

// told is what a command says; spoke is called when it says the first thing.
type told struct {
	mu    sync.Mutex
	text  bytes.Buffer
	spoke func()
	once  sync.Once
}

func (w *told) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.once.Do(w.spoke)
	return w.text.Write(b)
}

// readmeCommands are the lines of blocks of commands: those behind a prompt, and in
// blocks without one all that begin as commands do.
func readmeCommands(text string) (commands []string) {
	begins := regexp.MustCompile(`^(bin/)?(gorun(-[a-z]+)?|mpiexec\.mpich|mpirun|mpicc|a2a|pingpong|secure-channel|allreduce|make|go|ln|source) `)
	for _, block := range regexp.MustCompile("(?sm)^(?:```([a-z]*)\n(.*?)^```$|((?:    [^\n]*\n)+))").FindAllStringSubmatch(text, -1) {
		if block[1] != "" && block[1] != "sh" {
			continue
		}
		prompt := strings.Contains("\n"+block[2], "\n$ ")
		for line := range strings.Lines(block[2] + block[3]) {
			line = strings.TrimSpace(line)
			if rest, ok := strings.CutPrefix(line, "$ "); ok {
				commands = append(commands, rest)
			} else if !prompt && begins.MatchString(line) {
				commands = append(commands, line)
			}
		}
	}
	return commands
}

// readmeDirectory has the files that the README shows and what the pages' commands
// name. Go files are in a module of their own, in the directory go.
func readmeDirectory(t *testing.T, readme string) string {
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	link := func(path, name string) {
		t.Helper()
		if err := os.Symlink(path, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, sub := range []string{"bin", "data"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"gorun", "a2a", "pingpong", "secure-channel", "allreduce", "gorun-bench", "gorun-info"} {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		link(path, filepath.Join("bin", name))
		if name == "a2a" {
			link(path, name)
		}
	}
	// gorun looks for its own MPI beside itself, wherever it was called by a link.
	gorun, err := filepath.EvalSymlinks(filepath.Join(dir, "bin", "gorun"))
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(filepath.Join(repository(t), "scripts", "build-abi"), filepath.Dir(gorun)).CombinedOutput(); err != nil {
		t.Fatalf("build-abi: %v\n%s", err, out)
	}
	// Where several MPIs are installed mpicc is MPICH's, as the README has it.
	if mpicc, err := exec.LookPath("mpicc.mpich"); err == nil {
		link(mpicc, filepath.Join("bin", "mpicc"))
	}
	link(mpi4pyPython, filepath.Join("bin", "python3"))
	// The hosts that pages name are this machine, and ssh runs a command here: its last argument.
	write(filepath.Join("bin", "ssh"), "#!/bin/sh\nfor command; do :; done\nexec sh -c \"$command\"\n", 0o755)
	const program = "#!/bin/sh\necho rank $RANK\n"
	for _, name := range []string{"hello_mpich", "hello_openmpi", "solver", "master", "worker", "program", "checkpoint"} {
		write(name, program, 0o755)
	}
	results, err := os.ReadFile(filepath.Join("..", "testdata", "bench", "quick.json"))
	if err != nil {
		t.Fatal(err)
	}
	write("results.json", string(results), 0o644)
	write("train.py", "import os\nprint(*(os.environ[v] for v in ('RANK', 'WORLD_SIZE', 'LOCAL_RANK', 'MASTER_ADDR', 'MASTER_PORT')))\n", 0o644)
	write("hosts.sh", "#!/bin/sh\necho node01:1\necho node02 slots=1\n", 0o755)
	write("hosts", "node[01-02]:1\nnode05 slots=1 max_slots=16\n", 0o644)
	shown := regexp.MustCompile("(?s)```[a-z]+\n((?://|#|/\\*) (\\w+\\.(\\w+))[ */]*\n.*?)```\n").FindAllStringSubmatch(readme, -1)
	if len(shown) != 4 {
		t.Fatalf("the README shows %d files with their names, want 4", len(shown))
	}
	for _, file := range shown {
		if file[3] == "go" {
			file[2] = filepath.Join("go", file[2])
		}
		write(file[2], file[1], 0o644)
	}
	// The module that the README's Go program is in is in a workspace with this one.
	for _, args := range [][]string{{"mod", "init", "total"}, {"work", "init", ".", repository(t)}} {
		cmd := exec.Command("go", args...)
		cmd.Dir = filepath.Join(dir, "go")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("go %q: %v\n%s", args, err, out)
		}
	}
	return dir
}

// repository is the directory of the Makefile.
func repository(t *testing.T) string {
	dir, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// printed is what a command has printed without times, numbers of processes and
// the host's name, in order of the lines: streams and ranks do not wait for each
// other.
func printed(text string) string {
	for _, c := range []struct{ pattern, instead string }{
		{`"time":"[^"]*"`, `"time":"T"`},
		{`"host":"[^"]*"`, `"host":"H"`},
		{`"hosts":\["[^"]*"\]`, `"hosts":["H"]`},
		{`\(host [^,]*,`, `(host H,`},
		{`\bpid \d+`, `pid P`},
		{`\b\d+\.\d+ s\b`, `T s`},
		{`\b\d+\.\d{6}\b`, `T`},
		{`\b\d+\.\d %`, `P %`},
	} {
		text = regexp.MustCompile(c.pattern).ReplaceAllString(text, c.instead)
	}
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}
