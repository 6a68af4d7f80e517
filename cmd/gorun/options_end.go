package main

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// endOptions are the options that say when and how a job ends.
func endOptions() []option {
	return []option{
		{names: []string{"timeout"}, fills: "Timeout", arity: 1, family: "Failures", value: "TIME",
			help: "end a job that runs longer, with status 124: 90 (seconds), 1m30s", set: setTime("--timeout 90 or --timeout 1m30s", func(s *settings) *time.Duration { return &s.job.Timeout })},
		{names: []string{"grace"}, fills: "Grace", arity: 1, family: "Failures", value: "TIME",
			help: "give ranks TIME (default 2s) between the signal to end and KILL, and what they have started as long to close their output; 0: none", set: setGrace},
		{names: []string{"report-state-on-timeout"}, family: "Failures",
			help: "at the timeout, print what every rank is doing", set: setSwitch(func(s *settings, on bool) { s.job.ReportState = on })},
		{names: []string{"profile"}, family: "Output",
			help: "at the end, print which calls took the time and who waited for whom, and write a page with a time line: profile.html, or --profile=FILE (FILE.json: for programs)", set: setProfile},
		{names: []string{"profile-trace"}, arity: 1, family: "Output", value: "FILE",
			help: "write the calls of all ranks as a trace for Perfetto or chrome://tracing", set: func(s *settings, value string) error { s.profile.trace, s.job.Profile = value, true; return nil }},
		{names: []string{"hang-timeout"}, fills: "HangTimeout", arity: 1, family: "Failures", value: "TIME",
			help: "print what every rank is doing when none has made progress for TIME; the job goes on", set: setTime("--hang-timeout 60 or --hang-timeout 5m", func(s *settings) *time.Duration { return &s.job.HangTimeout })},
		{names: []string{"get-stack-traces"}, family: "Failures",
			help: "like --report-state-on-timeout, and Go programs write the stacks of their goroutines", set: setSwitch(func(s *settings, on bool) { s.job.StackTraces = on })},
		{names: []string{"forward-signals"}, arity: 1, family: "Failures", value: "SIGNAL,...",
			help: "also pass on these signals, besides HUP, INT, QUIT, TERM, USR1, USR2, CONT and TSTP", set: setForward},
		{names: []string{"strict-pmi"}, family: "Failures",
			help: "fail, instead of warning, when each rank turns out to be an MPI world of its own", set: setSwitch(func(s *settings, on bool) { s.job.StrictPMI = on })},
		{names: []string{"continuous"}, more: []string{"disable-auto-cleanup", "enable-recovery"}, family: "Failures",
			help: "go on when a rank fails, as programs with ULFM need it; the exit status is still that of the first failure", set: setSwitch(func(s *settings, on bool) { s.job.Continuous = on })},
		{names: []string{"python-abort"}, arity: 1, family: "Failures", value: "on|off", words: []string{"on", "off"},
			help: "end the job when a rank with mpi4py does not catch an exception, or exits with a failure (default on)", set: setPythonAbort},
		{names: []string{"max-restarts"}, fills: "Restarts.Max", arity: 1, family: "Failures", value: "N",
			help: "restart the whole job up to N times when a rank fails; ranks see the number in GORUN_RESTART_COUNT", set: setMaxRestarts},
		{names: []string{"elastic"}, fills: "Elastic", arity: 1, family: "Failures", value: "MIN:MAX",
			help: "run as many ranks as the hosts have slots for, from MIN to MAX; when hosts fail, come or go, restart the job with those that are there", set: setElastic},
		{names: []string{"discover-hosts"}, fills: "Elastic.Discover", more: []string{"host-discovery-script"}, arity: 1, family: "Failures", value: "PROGRAM",
			help: "with --elastic: PROGRAM prints the hosts that are there, as a hostfile; it is run before each start and every second", set: setDiscover},
		{names: []string{"elastic-timeout"}, fills: "Elastic.Timeout", arity: 1, family: "Failures", value: "TIME",
			help: "with --elastic: wait up to TIME for hosts with MIN slots (default 10m)", set: setTime("--elastic-timeout 60 or --elastic-timeout 5m", func(s *settings) *time.Duration { return &s.elastic.Timeout })},
		{names: []string{"restart-delay"}, fills: "Restarts.Pause", arity: 1, family: "Failures", value: "TIME",
			help: "wait TIME before the first restart (default 1s); each later wait is twice as long, up to a minute", set: setTime("--restart-delay 5 or --restart-delay 500ms", func(s *settings) *time.Duration { return &s.job.Restarts.Pause })},
		{names: []string{"agent-timeout"}, fills: "Agents.Timeout", arity: 1, family: "Failures", value: "TIME",
			help: "consider a host lost when its agent has not answered for TIME (default 4s); on another machine the agent then ends its ranks", set: setTime("--agent-timeout 60 or --agent-timeout 5m", func(s *settings) *time.Duration { return &s.job.Agents.Timeout })},
		{names: []string{"pmix-timeout"}, fills: "Hosting.PMIxTimeout", arity: 1, family: "Failures", value: "TIME",
			help: "consider gorun-pmix failed when it has not answered for TIME (default 20s; ten times that while it uses CPU)", set: setTime("--pmix-timeout 60 or --pmix-timeout 5m", func(s *settings) *time.Duration { return &s.job.Hosting.PMIxTimeout })},
		{names: []string{"print-all-exitcodes"}, family: "Failures",
			help: "print the exit statuses of all ranks at the end", set: setSwitch(func(s *settings, on bool) { s.ends.everyStatus = on })},
	}
}

// setTime reads a time above 0.
func setTime(examples string, field func(*settings) *time.Duration) func(*settings, string) error {
	return func(s *settings, value string) error {
		d, err := time.ParseDuration(value)
		if err != nil {
			// A bare number counts seconds.
			d, err = time.ParseDuration(value + "s")
		}
		if err != nil || d <= 0 {
			return unfit(value, "a time above 0 in seconds or with units; try "+examples)
		}
		*field(s) = d
		return nil
	}
}

// setGrace reads a time that may be 0.
func setGrace(s *settings, value string) error {
	if d, err := time.ParseDuration(strings.TrimSuffix(value, "s") + "s"); err == nil && d == 0 {
		s.job.Grace = time.Nanosecond // 0 is the default there
		return nil
	}
	return setTime("--grace 30 or --grace 500ms", func(s *settings) *time.Duration { return &s.job.Grace })(s, value)
}

func setPythonAbort(s *settings, value string) error {
	if value != "on" && value != "off" {
		return unfit(value, "on or off; try --python-abort off")
	}
	s.job.NoPythonAbort = value == "off"
	return nil
}

func setMaxRestarts(s *settings, value string) error {
	n, err := strconv.ParseUint(value, 10, 31)
	if err != nil {
		return unfit(value, "a number; try --max-restarts 3")
	}
	s.job.Restarts.Max = int(n)
	return nil
}

// setForward reads names, with SIG before them or not, and numbers. Signals that
// cannot be caught, and those that the kernel sends this process because of what
// it does itself, cannot be passed on.
func setForward(s *settings, value string) error {
	for word := range strings.SplitSeq(value, ",") {
		name := strings.ToUpper(word)
		signal := unix.SignalNum("SIG" + strings.TrimPrefix(name, "SIG"))
		if n, err := strconv.ParseUint(word, 10, 8); err == nil && n > 0 && n <= 64 {
			signal = syscall.Signal(n)
		}
		switch signal {
		case 0, unix.SIGKILL, unix.SIGSTOP, unix.SIGCHLD, unix.SIGURG, unix.SIGPIPE, unix.SIGWINCH:
			return unfit(word, "signals that can be passed on; try --forward-signals ALRM,SIGXCPU,34")
		}
		if !slices.Contains(s.ends.signals, os.Signal(signal)) {
			s.ends.signals = append(s.ends.signals, signal)
		}
	}
	return nil
}
