package launcher

import (
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/gorun-mpi/gorun/launcher/internal/sidecar"
)

// DefaultGrace is the time that ranks have to end after they were told to.
const DefaultGrace = 2 * time.Second

// DefaultPMIxTimeout is the time after which an idle gorun-pmix that owes an answer counts as failed.
const DefaultPMIxTimeout = sidecar.DefaultPatience

// DefaultAgentTimeout is the time without an answer after which an agent's host counts as lost.
const DefaultAgentTimeout = 30 * time.Second

// DefaultRestartPause is how long a job waits before its first restart.
const DefaultRestartPause = time.Second

// StdinAll is the Job.StdinRank that lets every rank read standard input.
const StdinAll = -1

// Values of Job.Universe.
const (
	UniverseCPUs    = -1 // the CPUs of this machine
	UniverseUnknown = -2 // programs learn that it is unknown
)

// Job says what to run, where and how. The zero value of every field but Argv
// and NP is a usable default. Run does not change a Job and keeps none of it.
type Job struct {
	// Argv is the program and its arguments. A program without a slash is
	// looked up in the PATH of Env, one with a slash relative to Dir.
	Argv []string
	// NP is the number of ranks. 0: as many as the hosts have slots for, 1 where
	// there are no Hosts.
	NP int
	// Apps are the programs of a job that has several, instead of Argv and NP:
	// the ranks of the first come first.
	Apps []App
	// Env is the ranks' environment; of two settings of a name the later wins.
	// nil stands for the environment of this process, as in os/exec. Variables
	// that an outer launcher left in it for its own ranks are taken out.
	Env []string
	// Dir is the ranks' working directory; "" is that of this process.
	Dir string
	// Path is where a program without a slash is looked up instead of the PATH
	// of Env: directories, separated by colons.
	Path string

	// Hosts offer slots for ranks, which are filled in this order; ranks beyond
	// them are spread evenly. None: all ranks run on this machine, however many
	// they are.
	Hosts []Host
	// Map, Rank and Bind say where ranks go, in which order they are numbered and
	// which CPUs they may use, in the words of --map-by, --rank-by and --bind-to:
	// "node", "ppr:2:package", "slot:pe=2"; "slot", "fill"; "core", "none". "" fills
	// slots, numbers ranks as they were mapped, and binds those that are mapped by
	// an object to it, others not. Map and Bind "openmpi" are what mpirun does then.
	Map, Rank, Bind string
	// RankFile is the text of a rankfile: lines of "rank N=HOST slot=SLOTS". It
	// goes with Map "rankfile", or "".
	RankFile string
	// PerHost is how many ranks each host takes in turn, however many slots it has; 0:
	// its slots.
	PerHost int
	// CPUs are those of each host that ranks may be bound to, as "0-3,8"; "": all
	// that the launcher, or the agent, may use.
	CPUs string
	// NoOversubscribe makes more ranks than slots, or than CPUs where there are no
	// Hosts, an error. It is otherwise told to the ranks, so that they yield while
	// they wait.
	NoOversubscribe bool
	// Placed is called once with the placement, before any rank starts:
	// the ranks start when it has returned.
	Placed func(Placement)
	// Topology adds the hosts' topologies to the Placement, even if the placement does not need them.
	Topology bool
	// DryRun starts no rank: Run returns when Placed has been called.
	DryRun bool
	// Launcher says how agents are started on the hosts: "" runs the ranks on
	// this machine without an agent, "fork" starts one agent process for each
	// host on this machine.
	Launcher string
	// Agent is the command of an agent: gorun-agent, or a program that runs
	// agent.Main (package launcher/agent) on its standard input and output.
	// Needed with Launcher "fork".
	Agent []string

	// PMIx is the file of the helper program gorun-pmix, which serves programs
	// of Open MPI; it need not exist unless one runs. "": they find no PMIx
	// server, and each rank is a world of its own.
	PMIx string

	// PMIPort has all ranks connect to their PMI server (PMI_PORT) instead of
	// inheriting a connection (PMI_FD), as those do whose program is not linked
	// with MPI and not of Go: a shell, Python. It is for MPI programs that close
	// what they inherit, or that run another MPI program after them.
	PMIPort bool
	// PMIFD has all ranks inherit a connection, whatever their program is. It is
	// for those that come to be in a network of their own, or another user's. Only
	// the first MPI program that each runs finds its launcher then.
	PMIFD bool

	// Universe is what programs are told when they ask how many ranks the job
	// has room for (MPI_UNIVERSE_SIZE). 0: the slots of Hosts, or the CPUs of
	// this machine, and NP at least; else a number, UniverseCPUs or
	// UniverseUnknown.
	Universe int

	// StrictPMI fails the job when an MPI program does not connect to this launcher, so
	// that each rank is a world of its own, or when the launcher refuses it, as a second
	// program beside the first. Without StrictPMI, Warn gets a text. Ranks of different
	// MPIs, which wait for each other, always fail the job: with StrictPMI at once, else
	// after 5 seconds.
	StrictPMI bool
	// Warn gets what the user should know while the job runs, as Watch does and in
	// turns with it; when 100 texts wait for it, further ones are dropped. nil: all are.
	Warn func(text string)

	// Emulate has the names of the software RDMA devices that the ranks see.
	Emulate []string

	// Output says how the ranks' output looks and where it goes.
	Output Output
	// Timeout ends a job that takes longer, with status 124. 0: never.
	Timeout time.Duration
	// ReportState records at the timeout what each rank is doing, in Result.States.
	ReportState bool
	// StackTraces is like ReportState, and Go programs also write the stacks of their
	// goroutines to their standard error, for which they have two seconds.
	StackTraces bool
	// HangTimeout is the time without progress on any host after which the ranks are examined
	// and Warn gets what each of them is doing; the job goes on. A rank makes progress when it
	// writes, reads its input, ends, talks to its PMI server, or takes a twentieth of a CPU's
	// time. A rank of package rank reports that it waits, and for what: its polls are no
	// progress. The polls of another MPI's rank are. 0: never.
	HangTimeout time.Duration
	// Grace is the time between the signal that tells ranks to end and the one
	// that ends them. 0: DefaultGrace.
	Grace time.Duration

	// PMIxTimeout is how long gorun-pmix may take to start or to answer without using
	// a CPU or waiting for one; a busy one has ten times as long. 0:
	// DefaultPMIxTimeout.
	PMIxTimeout time.Duration
	// AgentTimeout is the time without an answer of an agent, while its stream is open,
	// after which its host counts as lost. 0: DefaultAgentTimeout.
	AgentTimeout time.Duration
	// Adopt makes this process the parent of what ranks leave behind when they end,
	// as a daemon (prctl(2), PR_SET_CHILD_SUBREAPER), and has Run kill it in the
	// end. It is for a program that has no other children while Run runs, and runs
	// one job at a time. Without it all processes of the machine are looked through
	// at the end, for those that have the job's mark in their environment.
	Adopt bool
	// Continuous lets the job go on when a rank fails: it ends when all ranks have
	// ended, when one aborts, or when ranks wait for one that will never come. Its
	// status is still that of the first failure.
	Continuous bool
	// NoPythonAbort leaves Python ranks alone. Otherwise an exception that goes uncaught in
	// a rank of mpi4py aborts the job (not with Continuous), where it would wait in
	// MPI_Finalize for ranks that wait for it: programs that are Python, or name it, find a
	// sitecustomize by PYTHONPATH, which hides itself and runs the one that it hides.
	NoPythonAbort bool
	// MaxRestarts is how often a job is started again, all of it, after a rank or
	// a host has failed. Each start is a world of its own, of which the ranks are
	// told by GORUN_RESTART_COUNT: 0, 1 ... Timeout bounds all of them together.
	// A Stdin that is a regular file is read again from where it stood; of another
	// file a restarted rank gets what nobody has read, of another reader nothing.
	MaxRestarts int
	// RestartPause is how long the first restart waits; each waits twice as long
	// as the one before, up to a minute. 0: DefaultRestartPause.
	RestartPause time.Duration
	// Restarting is called before the job is started for the Nth time again, and
	// that it waits, with how it had ended. nil: nothing.
	Restarting func(n int, pause time.Duration, ended Result)

	// Stdin is read by rank StdinRank, or by every rank with StdinAll; the other
	// ranks read /dev/null. nil: none. A regular file or pipe is given to one rank
	// on this machine as it is, a regular file to all of them, each with a place
	// of its own in it; all else, a terminal for example, is read by the launcher
	// and passed on: with StdinAll at the pace of the slowest rank that still
	// reads. A reader that is no *os.File may be read once more after Run has
	// returned.
	Stdin     io.Reader
	StdinRank int
	// Stdout and Stderr take what the ranks write, in whole lines. nil
	// discards it. They are never written to at once when they are equal or the
	// same file. A writer that blocks makes the ranks wait, not lose output.
	Stdout, Stderr io.Writer
	// Lines is called with each line that a rank writes, beside what goes to
	// Stdout, Stderr and files: one call at a time, in the order in which the rank
	// wrote within each of its streams, and all of them before Run returns. While
	// it does not return the ranks are made to wait. nil: nobody is.
	Lines func(Line)

	// Signals are passed on to all ranks. INT and TERM also end the job, with
	// status 130 or 143, and a second one of them kills at once. nil: none.
	Signals <-chan os.Signal
	// Suspend is called when all ranks have been sent a TSTP that came in
	// Signals: a command stops itself then, as its shell expects. It must not
	// wait for Run or for a signal. nil: nothing.
	Suspend func()

	// Watch gets the job's events, in order and one call at a time, on a goroutine
	// of its own. Nothing waits for it but the end of the job, which has it told
	// all: for one call 2 seconds at most, after which no other is begun. Of the
	// lines and samples of a rank a slow Watch is told the latest only. With
	// Sample above 0 it is also told what ranks use, as often as that.
	Watch  func(Change)
	Sample time.Duration

	// Log takes diagnostics, as they arise and from whoever has them: the job waits
	// for a log that blocks. Below slog.LevelDebug are the messages of PMIx servers.
	// nil is silent.
	Log *slog.Logger
}

// App is one of several programs of a job.
type App struct {
	Argv []string // as Job.Argv
	NP   int      // ranks that run it; 0, for one of them: on the slots that others leave
	Env  []string // nil stands for Job.Env
	Dir  string   // "" stands for Job.Dir
	Path string   // "" stands for Job.Path
	// Hosts are the names of those of Job.Hosts that it may run on; nil: all.
	Hosts []string
}

// Host is a machine, or what stands for one, that ranks may run on.
type Host struct {
	Name  string
	Slots int // ranks it takes; 0 stands for 1. Slots of a name listed twice add up. -1: one for each CPU.
	Max   int // no more ranks than that; 0: no limit
}
