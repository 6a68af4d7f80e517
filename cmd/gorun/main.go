// Command gorun starts the ranks of a parallel program: it replaces mpirun.
//
//	gorun -np 4 ./program arguments
//
// It only translates: its command line becomes a launcher.Job, and the job's
// result the exit status. The options stand in one table (options.go, and a file
// of rows for each family: options_job.go, options_hosts.go ...), which
// drives the reading of the command line (read.go, parse.go), the help, the
// manual page, the shells' completion, the suggestions and docs/options.md.
// A pre-pass knows the grammar, which is mpirun's and mpiexec's: which argument
// is an option, how many values it takes, where a program ends. It hands
// the options, as --name=value, to a pflag.FlagSet made from the table, one for each
// program, which takes the values. Reading the command line is pure: it gets the arguments and
// the environment and gives a request, so that tests need no process.
//
// # Command line
//
// Options end at the program: the first argument that is no option, or what
// follows "--". From there on nothing is read but a bare ":", which starts
// another program with options of its own, unless "--" precedes the program.
//
// Where launchers disagree, the name that gorun was called by decides
// (names.go); options of others that it has nothing for are accepted with a note
// or refused with the reason (options_openmpi.go, options_hydra.go). Settings that
// the command line leaves open are taken from parameters (--mca), Hydra's
// configuration file and the environment, in this order.
//
// # Exit status
//
// That of the first rank that failed, 128+N when signal N ended it. 124 after
// --timeout, 125 when gorun itself fails, 126 for a program that cannot be
// run, 127 for one that is not found, as timeout(1) and env(1) have it; 2 for
// a wrong command line.
//
// # Goroutines, signals
//
// The command starts no goroutine but those of --metrics, and one that waits for visitors (gorun-info top; package visit). SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1,
// SIGUSR2, SIGCONT and SIGTSTP are handed to the launcher, except those other than
// SIGINT, SIGTERM and SIGQUIT that were ignored when gorun started (nohup). Package endsignal says which of them are a second wish. After SIGTSTP, ^Z, gorun stops too
// once the ranks were told.
package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/gorun-mpi/gorun/cmd/internal/logline"
	"github.com/gorun-mpi/gorun/cmd/internal/output"
	_ "github.com/gorun-mpi/gorun/internal/prelude"
	"github.com/gorun-mpi/gorun/internal/self"
	"github.com/gorun-mpi/gorun/internal/topo"
	"github.com/gorun-mpi/gorun/launcher"
)

// Exit statuses of gorun's own; the launcher has the others.
const (
	statusUsage  = 2   // a wrong command line
	statusFailed = 125 // gorun itself failed
)

// stdio is what the command reads and writes.
type stdio struct {
	in       io.Reader
	out, err io.Writer
}

func main() {
	name, args := "gorun", []string(nil)
	if len(os.Args) > 0 {
		name, args = os.Args[0], os.Args[1:]
	}
	c := commandLine{name: name, args: args, environ: os.Environ(), readFile: os.ReadFile, cpus: topo.CPUs}
	os.Exit(run(context.Background(), c, stdio{os.Stdin, os.Stdout, os.Stderr}))
}

// run is the command: everything but the process.
func run(ctx context.Context, c commandLine, std stdio) int {
	req, err := parse(c)
	if err != nil {
		fmt.Fprintf(std.err, "gorun: %v%s\n", err, whereToLook(err))
		return c.usage(err)
	}
	if req.action != runProgram {
		out := output.New(std.out)
		_, _ = io.WriteString(out, req.text())
		if out.Failed("gorun", std.err) {
			return statusFailed
		}
		return 0
	}
	if !req.quiet {
		for _, n := range req.notes {
			fmt.Fprintf(std.err, "gorun: note: no effect of %s: %s\n", strings.Join(n.options, ", "), n.reason)
		}
		for _, w := range req.warnings {
			fmt.Fprintf(std.err, "gorun: warning: %s\n", w)
		}
	}
	return runJob(ctx, req, std)
}

// text is what is asked for instead of a run.
func (r *request) text() string {
	switch r.action {
	case showHelp:
		return help(r.topic)
	case showVersion:
		return versionAs(r.name)
	case showManual:
		return manual()
	}
	return completion(r.shell)
}

// runJob hands the job to the launcher and tells how it went.
func runJob(ctx context.Context, req request, std stdio) int {
	job := req.job
	job.Stdin, job.Stdout, job.Stderr = std.in, std.out, std.err
	if req.noStdin {
		job.Stdin = nil
	}
	req.looks.screen(&job.Output, std)
	var shown *progress
	if req.looks.progress {
		shown = follow(&std)
		defer shown.close()
		job.Stdout, job.Stderr = std.out, std.err
		job.Watch, job.Sample = shown.watch, sampleEvery
	}
	log := logline.New(std.err, logline.Disable)
	if req.verbose > 0 {
		log = logline.New(std.err, logline.Info+logline.Level(10*(req.verbose-1)))
		job.Log = slog.New(logline.Handler(log))
		tellRanks(&job, "GORUN_VERBOSE=1")
	}
	if req.discover != "" {
		list, err := discoverer(req.discover)
		if err != nil {
			fmt.Fprintf(std.err, "gorun: --discover-hosts: %v\n", err)
			return statusUsage
		}
		job.Elastic.Discover = list
	}
	if len(job.Hosts) > 0 || req.discover != "" {
		agent, err := findAgent()
		if err == nil {
			job.Agents.Command = []string{agent}
		} else if job.NeedsAgent() {
			asked := "-H"
			if job.Agents.Launcher != "" {
				asked = "--launcher " + job.Agents.Launcher
			}
			fmt.Fprintf(std.err, "gorun: %s: %v\n", asked, err)
			return statusFailed
		}
	}
	job.Hosting.PMIx = findPMIx()
	job.Adopt = true
	job.Warn = func(text string) {
		fmt.Fprintf(std.err, "gorun: warning: %s\n", strings.ReplaceAll(text, "\n", "\ngorun: "))
	}
	told := output.New(std.out)
	objects := events{now: time.Now}
	if job.Output.Form == launcher.JSON && !job.Placing.DryRun {
		objects.out = told
	}
	job.Placing.Placed = func(p launcher.Placement) {
		req.show.placed(p, req.quiet, told, std.err)
		objects.start(p)
		if shown != nil {
			shown.placed(p)
		}
	}
	job.Restarts.Before = func(n int, pause time.Duration, ended launcher.Result) {
		own := &ownLines{std.err, ended.Unfinished}
		report(ended, req.quiet, own)
		objects.failure(ended.Cause)
		if !req.quiet {
			of := ""
			if job.Elastic == nil {
				of = fmt.Sprintf(" of %d", job.Restarts.Max)
			}
			fmt.Fprintf(own, "gorun: restart %d%s in %v\n", n, of, pause)
		}
	}
	if job.Output.Screen != nil {
		req.ends.signals = append(req.ends.signals, syscall.SIGWINCH)
	}
	signals := watchSignals(req.ends.signals)
	defer signal.Stop(signals)
	job.Signals, job.Suspend = signals, suspend
	defer receiveVisitors(signals)()

	if err := req.profile.check(); err != nil {
		fmt.Fprintf(std.err, "gorun: --profile: %v\n", err)
		return statusFailed
	}
	if err := writePID(req.ends.pidFile, std); err != nil {
		fmt.Fprintf(std.err, "gorun: --report-pid: %v\n", err)
		return statusFailed
	}
	runIt := launcher.Run
	if req.metrics != "" {
		m, err := newMeter(req.metrics)
		if err != nil {
			fmt.Fprintf(std.err, "gorun: --metrics %s: %v\n", req.metrics, err)
			return statusFailed
		}
		runIt = m.run
		if strings.HasSuffix(req.metrics, ":0") {
			fmt.Fprintf(std.err, "gorun: metrics at %s\n", m.address())
		}
	}
	log.Infof("starting %s%s", what(job), where(job.Hosts))
	started := time.Now()
	result, err := runIt(ctx, job)
	if err != nil {
		var why bytes.Buffer
		status := statusAs(req.name, explain(err, job, req.written, io.MultiWriter(std.err, &why)), err)
		objects.refused(strings.TrimPrefix(strings.TrimSpace(why.String()), "gorun: "), status)
		return status
	}
	own := &ownLines{std.err, result.Unfinished}
	log.SetOutput(own)
	log.Infof("the job ended with status %d after %v", result.ExitStatus, time.Since(started).Round(time.Millisecond))
	report(result, req.quiet, own)
	status := req.ends.status(result, own)
	if job.Profile {
		if err := req.profile.write(result, own); err != nil {
			fmt.Fprintf(own, "gorun: --profile: %v\n", err)
			status = cmp.Or(status, statusFailed)
		}
	}
	objects.failure(result.Cause)
	objects.end(result, status)
	if told.Failed("gorun", std.err) && status == 0 {
		return statusFailed
	}
	return status
}

// whereToLook ends a message about the command line that says nothing itself of
// what to do next.
func whereToLook(err error) string {
	for _, says := range []string{"; try ", "--help", "did you mean", "not supported"} {
		if strings.Contains(err.Error(), says) {
			return ""
		}
	}
	return "; see gorun --help, or gorun --man | man -l -"
}

// tellRanks sets a variable for all ranks.
func tellRanks(job *launcher.Job, setting string) {
	if job.Apps == nil {
		job.Env = append(slices.Clip(job.Env), setting)
		return
	}
	job.Apps = slices.Clone(job.Apps)
	for i := range job.Apps {
		job.Apps[i].Env = append(slices.Clip(job.Apps[i].Env), setting)
	}
}

// findPMIx is where the server for programs of Open MPI is, if it is: beside this
// gorun. Nobody looks before one of them asks for it.
func findPMIx() string {
	path, err := self.Path()
	if err != nil {
		return "gorun-pmix"
	}
	return filepath.Join(filepath.Dir(path), "gorun-pmix")
}

// findAgent finds the program that runs the ranks of another host: the one that
// was installed with this gorun, else one in PATH.
func findAgent() (string, error) {
	beside := ""
	if path, err := self.Path(); err == nil {
		beside = filepath.Join(filepath.Dir(path), "gorun-agent")
		if _, err := os.Stat(beside); err == nil {
			return beside, nil
		}
	}
	path, err := exec.LookPath("gorun-agent")
	if err != nil {
		return "", fmt.Errorf("found no gorun-agent, which runs the ranks of each host, expected it as %s or in PATH; make install installs both; after go install ./cmd/gorun try go install ./cmd/gorun-agent", beside)
	}
	return path, nil
}

// what names the programs of a job, for the log.
func what(job launcher.Job) string {
	apps := job.Apps
	if apps == nil {
		apps = []launcher.App{{NP: job.NP, Argv: job.Argv}}
	}
	var list []string
	for _, a := range apps {
		ranks := "ranks"
		if a.NP > 0 {
			ranks = fmt.Sprintf("%d ranks", a.NP)
		}
		list = append(list, ranks+" of "+a.Argv[0])
	}
	return strings.Join(list, ", ")
}

// where names the hosts of a job, for the log.
func where(hosts []launcher.Host) string {
	text := ""
	for _, h := range hosts {
		if text == "" {
			text = " on "
		} else {
			text += ","
		}
		text += h.Name
		if h.Slots > 0 {
			text += fmt.Sprintf(":%d", h.Slots)
		}
	}
	return text
}

// watchSignals takes delivery of what is passed on to the ranks. What the
// parent had ignored (SIGHUP: nohup) stays ignored, but for the signals that end a
// job: a shell without job control ignores INT and QUIT for what it runs in the
// background, and kill -INT has to end that all the same. SIGPIPE is
// among them so that a standard error which nobody reads any more does not end
// this process in the middle of a job; the launcher does not pass it on. more
// are the signals of --forward-signals.
func watchSignals(more []os.Signal) chan os.Signal {
	var list []os.Signal
	for _, s := range append([]os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT,
		syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGCONT, syscall.SIGTSTP, syscall.SIGPIPE}, more...) {
		if ends := s == syscall.SIGINT || s == syscall.SIGTERM || s == syscall.SIGQUIT; ends || !signal.Ignored(s) {
			list = append(list, s)
		}
	}
	// Room for a burst: a signal that finds the channel full is lost.
	signals := make(chan os.Signal, 16)
	if list != nil { // Notify without a list means every signal
		signal.Notify(signals, list...)
	}
	return signals
}
