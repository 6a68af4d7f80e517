package main

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/gorun-mpi/gorun/launcher"

	"github.com/gorun-mpi/gorun/internal/envvar"
	"github.com/gorun-mpi/gorun/internal/version"
)

// family is a kind of launcher: those whose command lines mean the same. Where
// they clash, gorun does as the one it was called as.
type family uint8

const (
	own     family = 1 << iota // gorun
	openMPI                    // mpirun, orterun, prterun
	hydra                      // mpiexec, mpiexec.hydra: MPICH, Intel MPI, and the standard's form
)

// familyOf is the kind of launcher that a command's name stands for. mpirun is
// Open MPI's word and mpiexec the standard's, which Hydra implements; a suffix,
// as Debian has it, says which MPI is meant.
func familyOf(command string) family {
	name := strings.TrimPrefix(filepath.Base(command), "gorun-")
	if isRecent(name) {
		return openMPI
	}
	base, suffix, _ := strings.Cut(name, ".")
	switch suffix {
	case "openmpi", "prte":
		return openMPI
	case "hydra", "mpich", "impi", "gforker":
		return hydra
	}
	switch base {
	case "mpirun", "orterun", "prterun", "prun", "oshrun", "shmemrun":
		return openMPI
	case "mpiexec":
		return hydra
	}
	return own
}

// isRecent tells whether a name asks for the words of Open MPI 6 where they differ from those of 4.1: mpirun-6.
func isRecent(command string) bool { return filepath.Base(command) == "mpirun-6" }

// playAs gives gorun the name that --as, or else GORUN_AS, says, as in a wrapper that is called mpirun: what wrappers start
// does not know their names. The option decides how the others are read, so it is the first.
func (c *commandLine) playAs() error {
	option := "GORUN_AS"
	name := envvar.Get(c.environ, option)
	if len(c.args) > 0 {
		word, value, one := strings.Cut(c.args[0], "=")
		switch {
		case word != "--as" && word != "-as":
		case one:
			option, name, c.args = word, value, c.args[1:]
		case len(c.args) > 1:
			option, name, c.args = word, c.args[1], c.args[2:]
		}
	}
	if name == "" && option == "GORUN_AS" {
		return nil
	}
	if familyOf(name) == own && name != "gorun" {
		return fmt.Errorf("%s: found %q, expected mpirun, mpirun-6, mpiexec or gorun; try gorun --as mpirun ./program", option, name)
	}
	c.name = name
	return nil
}

// setAs is for an option that playAs has not taken.
func setAs(_ *settings, value string) error {
	return unfit(value, "it as the first option; try gorun --as mpirun ./program")
}

// The versions that gorun tells under the names of others. A program that asks
// wants to know which command line is understood, so these are the versions whose
// defaults gorun follows and that its tests compare it with. It takes the options
// of Open MPI 5 and MPICH 4.2 as well.
const (
	openMPIVersion = "4.1.4"
	recentVersion  = "6.0.0" // as mpirun-6
	hydraVersion   = "4.0.2"
)

// versionAs is what --version prints under a name. Tools look for "Open MPI" and
// the last word of the line that names mpirun, or for "HYDRA" and the line
// "Version:" (Horovod's launcher and many scripts do). So these stand as the others
// print them, and the second line says that it is gorun without repeating them.
func versionAs(name string) string {
	line := version.Line("gorun")
	switch base := filepath.Base(name); familyOf(name) {
	case openMPI:
		theirs := openMPIVersion
		if isRecent(name) {
			theirs = recentVersion
		}
		return fmt.Sprintf("%s (Open MPI) %s\n%s, with Open MPI's command line\n", base, theirs, line)
	case hydra:
		return fmt.Sprintf("HYDRA build details:\n    %s, with MPICH's command line\n    Version:                                 %s\n", line, hydraVersion)
	}
	return line + "\n"
}

// clash is something that the kinds of launcher do not agree about, and what
// gorun does under each kind of name.
type clash struct {
	what                  string
	gorun, mpirun, hydras string
	options               []string // whose senses differ, for the test that they do
}

// clashes are all of them: the manual prints them, tests hold the table of
// options to them.
func clashes() []clash {
	return []clash{
		{what: "default of -np", gorun: "one rank for every slot of -H or the hostfile, else 1", mpirun: "as gorun, but without hosts one rank for each CPU that gorun may use (Open MPI 5: for each core of the machine, whatever its affinity, as after taskset)",
			hydras: "as gorun (Debian's mpiexec is Open MPI's: one rank for each core)"},
		{what: "a rank exits with 0 and without MPI_Finalize", gorun: "the status is 0 if all ranks do so, or end well, and none waits, else 1", mpirun: "as gorun (Open MPI ends the job at once, with 1)", hydras: "as gorun (Hydra gives 0, and waits for ranks that wait)"},
		{what: "processes that a rank has started write when it has ended", gorun: "shown; --grace after the last rank's end gorun kills them", mpirun: "as gorun (Open MPI waits without limit, but 1 s after a failure)", hydras: "as gorun (Hydra waits without limit)"},
		{what: "more ranks than slots", gorun: "allowed, spread over the hosts, and the ranks know of it; --nooversubscribe refuses them", mpirun: "as gorun (Open MPI refuses them)", hydras: "as gorun"},
		{what: "a host of a hostfile without slots", gorun: "one slot for each CPU", mpirun: "as gorun", hydras: "one slot"},
		{what: "-H, -host after a ':'", gorun: "for the program that follows", mpirun: "as gorun", hydras: "for the whole job"},
		{what: "environment", gorun: "all variables are passed on, to all hosts; -x only adds", mpirun: "as gorun (Open MPI passes only OMPI_* and -x to other hosts)", hydras: "as gorun"},
		{what: "default binding", gorun: "none, but ranks mapped by an object are bound to it",
			mpirun: "to cores up to two ranks, to NUMA nodes beyond; none when ranks outnumber slots or CPUs, or only a part of the machine may be used", hydras: "none"},
		{what: "default mapping with --bind-to", gorun: "by slot", mpirun: "by slot up to two ranks, by NUMA node beyond", hydras: "as gorun"},
		{what: "-bind-to with more ranks than CPUs", gorun: "an error, except with :overload-allowed", mpirun: "as gorun", hydras: "ranks share CPUs"},
		{what: "exit status", gorun: "that of the first rank that failed, 128+N for signal N", mpirun: "as gorun",
			hydras: "the bitwise OR of those of all ranks that ended by themselves, a signal counting as its number (Hydra adds its own KILL, 9, now and then)"},
		{what: "a rank that has not called MPI_Init fails", gorun: "gorun ends the job; --continuous lets the others go on", mpirun: "as gorun", hydras: "as gorun (Hydra lets the others go on)"},
		{what: "-c N", gorun: "ranks, as -np (srun: CPUs for each)", mpirun: "as gorun", hydras: "as gorun (Hydra has none)"},
		{what: "-N N", gorun: "ranks on each host (srun: hosts)", mpirun: "as gorun", hydras: "as gorun (Hydra has none)"},
		{what: "-f FILE", gorun: "a hostfile", mpirun: "as gorun (Open MPI has none)", hydras: "as gorun"},
		{what: "-d", gorun: "print in detail what happens", mpirun: "as gorun", hydras: "as gorun (Hydra has none)"},
		{what: "-s", gorun: "--preload-binary", mpirun: "as gorun", hydras: "ranks that read standard input (Intel MPI)", options: []string{"s"}},
		{what: "-debug", gorun: "a debugger: refused", mpirun: "as gorun", hydras: "--verbose", options: []string{"debug"}},
		{what: "-tune", gorun: "a file of parameters and variables", mpirun: "as gorun", hydras: "a file of Intel MPI's: no effect", options: []string{"tune"}},
		{what: "-launcher", gorun: "how agents are started: " + strings.Join(launcher.Launchers(), ", "), mpirun: "as gorun", hydras: "no effect: gorun reaches other machines by ssh", options: []string{"launcher"}},
	}
}
