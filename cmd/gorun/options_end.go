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
		{names: []string{"timeout"}, arity: 1, family: "End", value: "TIME",
			help: "end a job that takes longer, with status 124: 90 (seconds), 1m30s", set: setTimeout},
		{names: []string{"report-state-on-timeout"}, family: "End",
			help: "say at the timeout what every rank is doing", set: setSwitch(func(s *settings, on bool) { s.job.ReportState = on })},
		{names: []string{"hang-timeout"}, arity: 1, family: "End", value: "TIME",
			help: "say what every rank is doing when nothing has moved for so long; the job goes on", set: setHangTimeout},
		{names: []string{"get-stack-traces"}, family: "End",
			help: "do so, and have Go programs write their goroutines' stacks", set: setSwitch(func(s *settings, on bool) { s.job.StackTraces = on })},
		{names: []string{"forward-signals"}, arity: 1, family: "End", value: "SIGNAL,...",
			help: "pass these signals on too, beside HUP, INT, QUIT, TERM, USR1, USR2, CONT and TSTP", set: setForward},
		{names: []string{"strict-pmi"}, family: "End",
			help: "make it an error, not a warning, when ranks are MPI worlds of their own", set: setSwitch(func(s *settings, on bool) { s.job.StrictPMI = on })},
		{names: []string{"continuous"}, more: []string{"disable-auto-cleanup"}, family: "End",
			help: "a rank that fails does not end the job; the status is the first failure's all the same", set: setSwitch(func(s *settings, on bool) { s.job.Continuous = on })},
		{names: []string{"python-abort"}, arity: 1, family: "End", value: "on|off", words: []string{"on", "off"},
			help: "an exception that goes uncaught in a rank of mpi4py ends the job (on)", set: setPythonAbort},
		{names: []string{"max-restarts"}, arity: 1, family: "End", value: "N",
			help: "start the whole job again, N times at most, when a rank fails; GORUN_RESTART_COUNT counts", set: setMaxRestarts},
		{names: []string{"restart-delay"}, arity: 1, family: "End", value: "TIME",
			help: "how long the first restart waits (1 second); the next twice as long each, up to a minute", set: setRestartDelay},
		{names: []string{"agent-timeout"}, arity: 1, family: "End", value: "TIME",
			help: "how long an agent may not answer until its host is taken for lost (30 seconds)", set: setAgentTimeout},
		{names: []string{"pmix-timeout"}, arity: 1, family: "End", value: "TIME",
			help: "how long gorun-pmix may owe an answer (20 seconds; ten times that while it works)", set: setPMIxTimeout},
		{names: []string{"print-all-exitcodes"}, family: "End",
			help: "say at the end how every rank ended", set: setSwitch(func(s *settings, on bool) { s.ends.everyStatus = on })},
	}
}

func setTimeout(s *settings, value string) error {
	return setTime(value, "--timeout 90 or --timeout 1m30s", &s.job.Timeout)
}

func setHangTimeout(s *settings, value string) error {
	return setTime(value, "--hang-timeout 60 or --hang-timeout 5m", &s.job.HangTimeout)
}

func setRestartDelay(s *settings, value string) error {
	return setTime(value, "--restart-delay 5 or --restart-delay 500ms", &s.job.RestartPause)
}

func setPMIxTimeout(s *settings, value string) error {
	return setTime(value, "--pmix-timeout 60 or --pmix-timeout 5m", &s.job.PMIxTimeout)
}

func setAgentTimeout(s *settings, value string) error {
	return setTime(value, "--agent-timeout 60 or --agent-timeout 5m", &s.job.AgentTimeout)
}

// setTime reads a time above 0.
func setTime(value, examples string, to *time.Duration) error {
	d, err := time.ParseDuration(value)
	if err != nil {
		// A bare number counts seconds.
		d, err = time.ParseDuration(value + "s")
	}
	if err != nil || d <= 0 {
		return unfit(value, "a time above 0 in seconds or with units; try "+examples)
	}
	*to = d
	return nil
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
	s.job.MaxRestarts = int(n)
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
