package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gorun-mpi/gorun/launcher"
	"github.com/gorun-mpi/gorun/launcher/hosting"
	"github.com/gorun-mpi/gorun/testdata"
)

// The systems that can be measured.
const (
	gorun   = "gorun"
	mpich   = "mpich"
	openmpi = "openmpi"
	limit   = "limit" // no launcher, but what one can hope to come near to
)

// A contender is a system with the settings it runs under. A round runs all
// contenders one after the other.
type contender struct {
	system, memory string
	progress       string   // threads: off, on or auto of gorun's, on of MPICH's; "": as the environment has it; daemon
	offload        int      // threads of the daemon
	engine         string   // that runs the collectives; "": none is asked for
	application    string   // instead of gorun's ranks: see application
	variant        string   // the settings, in a few words
	devices        []string // of gorun's ranks, as -d names them
	// run is missing where no rank can measure. It runs a job: the worker on a plan, and gives its lines to out. It ends
	// it when ctx ends, and leaves nothing running.
	run func(ctx context.Context, np int, plan string, out, errs io.Writer) error
	// launch is the command of a job of any program with its arguments, and
	// self that of the worker. plain is the program of testdata/mpi/limit.c, and
	// foreign are the workers of the MPIs, by their names; gorun starts them too.
	launch  func(np int) []string
	self    string
	plain   string
	foreign map[string]string
}

func (c *contender) String() string {
	text := c.system
	switch {
	case c.application != "":
		text += ", " + c.application
	case c.memory != "" && c.system == gorun, c.memory == registered:
		text += ", " + c.memory
	}
	if c.progress != "" {
		text += ", progress " + c.progress
	}
	if c.engine != "" {
		text += ", engine " + c.engine
	}
	if c.variant != "" {
		text += ", " + c.variant
	}
	return text
}

// progressOn is the mode in which every rank has a progress thread.
const progressOn = "on"

// progressDaemon is the mode in which a daemon of each host runs started collectives.
const progressDaemon = "daemon"

// gorunContender starts the ranks through package launcher: they are this
// program again, with settings added to their environment. launch goes through the command gorun where it stands beside
// this program or in PATH, as a user's job would.
func gorunContender(self, memory string, settings ...string) *contender {
	c := &contender{system: gorun, memory: memory, self: self}
	c.run = func(ctx context.Context, np int, plan string, out, errs io.Writer) error {
		result, err := launcher.Run(ctx, launcher.Job{Hosting: hosting.Settings{Offload: c.offload}, Argv: []string{self, workerWord, plan}, NP: np, Env: append(os.Environ(), settings...), Stdout: out, Stderr: errs})
		if err == nil && result.ExitStatus != 0 {
			err = fmt.Errorf("exit status %d", result.ExitStatus)
			if result.Cause != nil {
				err = errors.New(result.Cause.String())
			}
		}
		return err
	}
	c.launch = func(np int) []string {
		return []string{commandBeside(self, "gorun"), "-np", strconv.Itoa(np)}
	}
	return c
}

// points are those of a list that the contender can measure.
func (c *contender) points(list []point) []point {
	return slices.DeleteFunc(slices.Clone(list), func(p point) bool {
		i := slices.IndexFunc(applications, func(a application) bool { return a.name == c.application })
		return i >= 0 && !applications[i].takes(p)
	})
}

// commandBeside is a command in the directory of this program, else in PATH.
func commandBeside(self, name string) string {
	if path := filepath.Join(filepath.Dir(self), name); executable(path) {
		return path
	}
	return name
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// A peer is an MPI of this machine with the benchmark built for it.
type peer struct {
	name              string
	launcher, program string
	scratch           *scratch // of its jobs
}

// peerNames are how the commands of the MPIs are called when several are
// installed, and what the version of a plain mpiexec says of itself.
var peerNames = map[string]struct {
	compilers, launchers []string
	mark                 string // in what `mpiexec --version` prints
	apt, dnf             string
}{
	mpich:   {[]string{"mpicc.mpich", "mpicc"}, []string{"mpiexec.mpich", "mpiexec.hydra", "mpiexec"}, "HYDRA", "mpich libmpich-dev", "mpich-devel"},
	openmpi: {[]string{"mpicc.openmpi", "mpicc"}, []string{"mpirun.openmpi", "mpirun"}, "Open", "openmpi-bin libopenmpi-dev", "openmpi-devel"},
}

// A missingError is an MPI that is not installed.
type missingError struct{ name, what string }

func (e *missingError) Error() string {
	n := peerNames[e.name]
	return fmt.Sprintf("%s: %s; to have it: apt-get install %s gcc, or dnf install %s gcc (and its module loaded)", e.name, e.what, n.apt, n.dnf)
}

// findPeer finds an MPI's commands. A plain mpiexec belongs to whom its version says.
func findPeer(ctx context.Context, name string) (compiler string, p *peer, err error) {
	n := peerNames[name]
	p = &peer{name: name}
	for _, l := range n.launchers {
		path, err := exec.LookPath(l)
		if err != nil {
			continue
		}
		version, err := command(ctx, nil, path, "--version")
		if err == nil && strings.Contains(version, n.mark) {
			p.launcher = path
			break
		}
	}
	if p.launcher == "" {
		return "", nil, &missingError{name, "none of " + strings.Join(n.launchers, ", ") + " of it in PATH"}
	}
	for _, c := range n.compilers {
		path, err := exec.LookPath(c)
		if err != nil {
			continue
		}
		// Only Open MPI's wrapper knows this flag; the compiler behind others does not.
		said, _ := command(ctx, nil, path, "--showme:version")
		if strings.Contains(said, "Open MPI") == (name == openmpi) {
			return path, p, nil
		}
	}
	return "", nil, &missingError{name, "none of " + strings.Join(n.compilers, ", ") + " of it in PATH"}
}

// buildPeer finds an MPI and builds the benchmark for it in the session's directory.
func buildPeer(ctx context.Context, name string, scratch *scratch) (*peer, error) {
	compiler, p, err := findPeer(ctx, name)
	if err != nil {
		return nil, err
	}
	p.scratch = scratch
	source := filepath.Join(scratch.dir, "bench.c")
	if err := os.WriteFile(source, testdata.BenchC, 0o644); err != nil {
		return nil, err
	}
	p.program = filepath.Join(scratch.dir, "bench-"+name)
	if _, err := command(ctx, scratch.environ(), compiler, "-O2", "-w", "-o", p.program, source); err != nil {
		return nil, fmt.Errorf("%s: build the benchmark: %w", name, err)
	}
	return p, nil
}

// variants are the settings that are tried for an MPI; the best one counts. On
// more ranks than CPUs only what does not bind makes sense. progress on is MPICH's only.
func (p *peer) variants(oversubscribed, few bool, progress string) []*contender {
	root := []string(nil)
	if os.Geteuid() == 0 {
		root = []string{"--allow-run-as-root"}
	}
	sub := append(root, "--oversubscribe")
	none, core := []string{"--bind-to", "none"}, []string{"--bind-to", "core"}
	yield := []string{"--mca", "mpi_yield_when_idle", "1"}
	var list []*contender
	add := func(variant string, args ...[]string) {
		if progress == progressOn {
			args = append([][]string{{"-genv", "MPICH_ASYNC_PROGRESS", "1"}}, args...)
		}
		c := p.contender(variant, slices.Concat(args...))
		c.progress = progress
		list = append(list, c)
	}
	switch {
	case p.name == mpich && oversubscribed:
		add("", nil)
		if !few {
			add("poll 1", []string{"-genv", "MPIR_CVAR_POLLS_BEFORE_YIELD", "1"})
		}
	case p.name == mpich:
		add("core", []string{"-bind-to", "core"})
		add("none", []string{"-bind-to", "none"})
	case oversubscribed:
		add("none, yield", sub, none, yield)
		if !few {
			add("default", sub)
		}
	default:
		add("core", root, core)
		add("none", sub, none)
	}
	return list
}

func (p *peer) contender(variant string, args []string) *contender {
	c := &contender{system: p.name, memory: ordinary, variant: variant, self: p.program}
	c.launch = func(np int) []string {
		return append(append([]string{p.launcher}, args...), "-n", strconv.Itoa(np))
	}
	c.run = func(ctx context.Context, np int, plan string, out, errs io.Writer) error {
		return p.scratch.runCommand(ctx, out, errs, append(c.launch(np), p.program, plan)...)
	}
	return c
}

// grace is how long a launcher that was told to end may take for it.
const grace = time.Second

// runCommand runs a job's command to its end. When ctx ends first it is told
// to end, and what is left of the job is killed.
func (s *scratch) runCommand(ctx context.Context, out, errs io.Writer, argv ...string) error {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = s.environ()
	cmd.Stdout, cmd.Stderr = out, errs
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = grace
	err := cmd.Run()
	if err != nil {
		sweep(s.marker)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// commandLimit bounds a command that is no job.
const commandLimit = time.Minute

// shownLines of what a command said are in its error.
const shownLines = 10

// command runs a command to its end and gives its standard output; the error
// carries the first lines of what it had to say.
func command(ctx context.Context, env []string, argv ...string) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, commandLimit, errors.New("did not end within "+commandLimit.String()))
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.WaitDelay = grace
	if env != nil {
		cmd.Env = env
	}
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		text := strings.Split(strings.TrimSpace(errs.String()), "\n")
		if len(text) > shownLines {
			text = append(text[:shownLines], "...")
		}
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(argv, " "), err, strings.Join(text, "\n"))
	}
	return string(out), nil
}
