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
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

// TestReadme runs the commands of the README that say so, and compares what they
// print with what stands there.
func TestReadme(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)<!-- run by go test ./e2e -run TestReadme -->\n```\n(.*?)```\n").FindAllSubmatch(text, -1)
	if blocks == nil {
		t.Fatal("found no block in the README that is to be run")
	}
	for _, block := range blocks {
		for example := range strings.SplitSeq(strings.TrimPrefix(string(block[1]), "$ "), "\n$ ") {
			command, want, _ := strings.Cut(example, "\n")
			t.Run(command, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), runLimit*time.Second)
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
			})
		}
	}
}

// TestReadmeCommands runs every command of the README as it stands there, in a
// directory with the programs and files that it names.
func TestReadmeCommands(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	commands := readmeCommands(string(text))
	if len(commands) < 25 {
		t.Fatalf("found only %d commands: %q", len(commands), commands)
	}
	dir := readmeDirectory(t)
	for _, command := range commands {
		t.Run(command, func(t *testing.T) {
			words := strings.Fields(command)
			statuses := []int{0}
			switch words[0] {
			case "make":
				command, words = "make -n -C "+repository(t)+" "+words[1], []string{"make"}
			case "gorun-bench":
				statuses = []int{0, 130}
			case "gorun-info":
				statuses = []int{0, 1} // doctor has found something
			}
			if strings.Contains(command, "exit 3;") {
				statuses = []int{3}
			}
			for _, tool := range []string{"mpiexec.mpich", "mpirun.openmpi", "mpicc.openmpi", "python3", "man", "make"} {
				asks := map[string]string{"mpirun.openmpi": "openmpi ", "mpicc.openmpi": "openmpi ", "mpiexec.mpich": "mpich "}[tool]
				if slices.Contains(words, tool) || words[0] == "gorun-bench" && asks != "" && strings.Contains(command, asks) {
					testenv.Need(t, tool)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), runLimit*time.Second)
			defer cancel()
			cmd := exec.CommandContext(ctx, "bash", "-c", command)
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"))
			var out told
			out.spoke = func() {}
			if words[0] == "gorun-bench" {
				// It takes minutes. Once it has something to say it is asked to end.
				cmd.Args[2] = "exec " + command
				out.spoke = func() { _ = cmd.Process.Signal(os.Interrupt) }
			}
			cmd.Stdout, cmd.Stderr = &out, &out
			err := cmd.Run()
			if status := cmd.ProcessState.ExitCode(); ctx.Err() != nil || !slices.Contains(statuses, status) {
				t.Errorf("status %d, %v, want one of %v\n%s", status, err, statuses, &out.text)
			}
		})
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
	begins := regexp.MustCompile(`^(bin/)?(gorun(-[a-z]+)?|mpiexec\.mpich|mpirun|a2a|pingpong|make|ln|source) `)
	for _, block := range regexp.MustCompile("(?sm)^(?:```(?:sh)?\n(.*?)^```$|((?:    [^\n]*\n)+))").FindAllStringSubmatch(text, -1) {
		prompt := strings.Contains("\n"+block[1], "\n$ ")
		for line := range strings.Lines(block[1] + block[2]) {
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

// readmeDirectory has what the README's commands name.
func readmeDirectory(t *testing.T) string {
	dir := t.TempDir()
	for _, sub := range []string{"bin", "data"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"gorun", "a2a", "pingpong", "gorun-bench", "gorun-info"} {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(dir, "bin", name)); err != nil {
			t.Fatal(err)
		}
		if name == "a2a" {
			if err := os.Symlink(path, filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	results, err := os.ReadFile(filepath.Join("..", "testdata", "bench", "quick.json"))
	if err != nil {
		t.Fatal(err)
	}
	const program = "#!/bin/sh\necho rank $RANK\n"
	for name, text := range map[string]string{
		"hello_mpich": program, "hello_openmpi": program, "solver": program, "master": program, "worker": program,
		"sum.py":       "print('sum')\n",
		"hosts":        "node[01-02]:1\nnode05 slots=1 max_slots=16\n",
		"results.json": string(results),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
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
	} {
		text = regexp.MustCompile(c.pattern).ReplaceAllString(text, c.instead)
	}
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}
