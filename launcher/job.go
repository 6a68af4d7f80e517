package launcher

import (
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/gorun-mpi/gorun/internal/ports"
	"github.com/gorun-mpi/gorun/internal/reach"
	"github.com/gorun-mpi/gorun/launcher/hosting"
	"github.com/gorun-mpi/gorun/launcher/internal/agent"
	"github.com/gorun-mpi/gorun/launcher/internal/sidecar"
)

// DefaultGrace is the default of Job.Grace.
const DefaultGrace = 2 * time.Second

// DefaultPMIxTimeout is the default of Hosting.PMIxTimeout.
const DefaultPMIxTimeout = sidecar.DefaultPatience

// DefaultAgentTimeout is the default of Agents.Timeout.
const DefaultAgentTimeout = 4 * time.Second

// DefaultRestartPause is the default of Restarts.Pause.
const DefaultRestartPause = time.Second

// StdinAll as the Job.StdinRank passes standard input to every rank.
const StdinAll = -1

// Special values of Job.Universe.
const (
	UniverseCPUs    = -1 // the number of CPUs of this machine
	UniverseUnknown = -2 // programs are told that it is unknown
)

// Job says what to run, where and how. The zero value of every field except Argv and NP is a
// usable default. Run does not change a Job, and keeps no reference to it after it has returned.
type Job struct {
	// Argv is the program and its arguments. A program without a slash is
	// searched in the PATH of Env; a program with a slash is relative to Dir.
	Argv []string
	// NP is the number of ranks. 0: the number of slots of Hosts, or 1 without Hosts.
	NP int
	// Apps are the programs of a job with several programs, in place of Argv and NP. Ranks are numbered in the order of Apps.
	Apps []App
	// Env is the environment of the ranks. If a name is set twice, the later value wins. nil: the
	// environment of this process, without the variables that an outer launcher set for its own ranks.
	Env []string
	// Dir is the working directory of the ranks; "": that of this process.
	Dir string
	// Path is searched for a program without a slash, in place of the PATH of Env: directories separated by colons.
	Path string

	// Hosts are the hosts for ranks. Their slots are filled in this order; further ranks
	// are distributed evenly. Without Hosts all ranks run on this machine, in any number.
	Hosts []Host
	// Placing says where the ranks go, Agents how their hosts are reached, and Network how what runs on them connects.
	Placing Placing
	Agents  Agents
	Network Network
	// Hosting is what every host does for its ranks.
	Hosting hosting.Settings

	// Universe is the number of ranks that the job has room for (MPI_UNIVERSE_SIZE). 0: the slots of
	// Hosts, or the CPUs of this machine, and at least NP. Else a number, UniverseCPUs or UniverseUnknown.
	Universe int
	// StrictPMI makes the job fail when an MPI program does not connect to this launcher, so that each
	// rank is a world of its own, or when the launcher refuses a program because another one already
	// runs in that rank. Without StrictPMI, Warn gets a message. A job whose ranks use different MPIs,
	// and therefore wait for each other, always fails: with StrictPMI at once, else after 5 seconds.
	StrictPMI bool

	// Output is the format and the destination of the ranks' output.
	Output Output

	// Stdin is read by rank StdinRank, or by every rank with StdinAll; other ranks read /dev/null. nil: all read /dev/null. A
	// rank on this machine gets a regular file or pipe as its descriptor; with StdinAll each rank gets a regular file with its
	// own position. Other readers, a terminal for example, are read by the launcher and passed on, with StdinAll at the pace of
	// the slowest rank that still reads. A reader that is not an *os.File may be read once more after Run has returned.
	Stdin     io.Reader
	StdinRank int
	// Stdout and Stderr get the output of the ranks in whole lines. nil discards it. If they are equal or the same file, they
	// are never written at the same time. A writer that blocks makes the ranks wait; no output is lost.
	Stdout, Stderr io.Writer
	// Lines is called with each line that a rank writes, beside the output to Stdout, Stderr and files: one call at a time, in
	// the order of each stream, and the last before Run returns. Ranks wait while it blocks. nil: no call.
	Lines func(Line)

	// Signals are passed to all ranks. INT and TERM also end the job, with status 130 or 143.
	// Further ones are of the same event, and mean nothing, but an INT that comes 200 ms after the first or later
	// kills at once. A [Look] goes to no rank. nil: none.
	Signals <-chan os.Signal
	// Suspend is called after all ranks were sent a TSTP from Signals: a command then stops
	// itself, as its shell expects. It must not wait for Run or for a signal. nil: no call.
	Suspend func()

	// Timeout ends a job that takes longer, with status 124. 0: no limit.
	Timeout time.Duration
	// ReportState records what each rank does at the timeout, in Result.States.
	ReportState bool
	// StackTraces is ReportState, and Go programs also write the stacks of
	// their goroutines to their standard error, within two seconds.
	StackTraces bool
	// HangTimeout is the time without progress on any host after which Warn gets what each rank is doing;
	// the job continues. A rank makes progress when it writes, reads its input, ends, communicates with
	// its PMI server, or uses a twentieth of a CPU. A rank of package rank reports that it waits and for
	// what, so its polling is no progress. Polling by another MPI's rank is. 0: never.
	HangTimeout time.Duration
	// Grace is the time between the signal that asks ranks to end and the signal that kills
	// them. 0: DefaultGrace. Processes that ranks have started may write on when the ranks have ended: the job
	// waits until they have closed their output, but once all its ranks have ended only as long as Grace, not counting the
	// time in which Stdout or another writer blocks. Then it kills them, and tells Warn.
	Grace time.Duration
	// Adopt makes this process the parent of processes that ranks leave behind, such as daemons (PR_SET_CHILD_SUBREAPER,
	// prctl(2)); Run kills them at the end. It is for a program that has no other children during Run and runs one job at a
	// time. Without it, Run searches all processes of the machine for the job's mark in their environment.
	Adopt bool
	// Continuous lets the job continue when a rank fails. It ends when all ranks have ended, when one
	// aborts, or when ranks wait for a rank that cannot join them. Its status is that of the first failure.
	Continuous bool
	// NoPythonAbort disables the abort for Python ranks. Otherwise an uncaught exception in a rank of mpi4py, or sys.exit with a
	// failure, aborts the job (not with Continuous), because the rank would wait in MPI_Finalize for ranks that wait for it. For
	// this, programs that are none of an MPI or of Go get a sitecustomize through PYTHONPATH, which runs the original one.
	NoPythonAbort bool

	// Elastic lets the number of ranks follow the hosts that are there, from start to start. nil: it is fixed.
	Elastic *Elastic
	// Restarts says how often the job is started again.
	Restarts Restarts

	// Profile has ranks that are programs of package rank, or of another MPI that they load, record their calls: see Result.Profile.
	Profile bool
	// Warn gets messages for the user while the job runs. It is called like Watch, never at
	// the same time. If 100 messages wait for it, further ones are dropped. nil: all are.
	Warn func(text string)
	// Watch gets the events of the job in order, one call at a time, on its own goroutine. Only
	// the end of the job waits for it until it has got all events, and at most 2 seconds for one
	// call; after that there are no more calls. A slow Watch gets only the latest line and sample
	// of each rank. With Sample above 0 it also gets the resource usage of ranks at this interval.
	Watch  func(Change)
	Sample time.Duration

	// Log gets diagnostics from several goroutines; the job waits while it blocks.
	// Messages of PMIx servers are below slog.LevelDebug. nil logs nothing.
	Log *slog.Logger

	run jobRun // of the copy that Run works with
}

// Placing says where the ranks of a job go, and which CPUs they may use.
type Placing struct {
	// Map, Rank and Bind say where ranks go, in which order they are numbered and which CPUs they may use. Their values are
	// those of --map-by, --rank-by and --bind-to: "node", "ppr:2:package", "slot:pe=2"; "slot", "fill"; "core", "none". "" fills
	// slots, numbers ranks in the order of mapping, and binds ranks only if they are mapped by an object, to that object.
	// "openmpi" for Map and Bind does what mpirun does by default.
	Map, Rank, Bind string
	// RankFile is the text of a rankfile with lines "rank N=HOST slot=SLOTS". Map must then be "rankfile" or "".
	RankFile string
	// PerHost is the number of ranks that each host takes in turn, regardless of its slots; 0: its slots.
	PerHost int
	// CPUs are the CPUs of each host that ranks may be bound to, such as
	// "0-3,8"; "": all CPUs that the launcher or agent may use.
	CPUs string
	// NoOversubscribe makes more ranks than slots, or without Hosts more ranks than CPUs, an error.
	// Otherwise the ranks are told that they are oversubscribed, so that they yield while they wait.
	NoOversubscribe bool
	// Topology adds the hosts' topologies to the Placement even if mapping and binding do not need them.
	Topology bool
	// Placed is called with the placement before any rank starts, and before a restart that places them
	// otherwise. Ranks start after it has returned.
	Placed func(Placement)
	// DryRun starts no rank: Run returns after Placed was called.
	DryRun bool
}

// Agents says how a job starts agents, the processes that run the ranks of a host.
type Agents struct {
	// Launcher is the way to start agents. "" is by ssh if [Job.Hosts] names other machines, else the ranks run on this
	// machine without an agent. "ssh": the same. The word of a [BatchSystem]: by its command, inside a job of it that has these
	// machines. "fork" starts one agent process per host, all on this machine.
	Launcher string
	// Command is the command of an agent, which is needed with Launcher "fork" and for other
	// machines: gorun-agent, or a program that runs agent.Main (package launcher/agent) on its
	// standard input and output. Other machines start it by the same absolute path.
	Command []string
	// Remote is the command of an agent on other machines, if it is not Command.
	Remote []string
	// Stage sends the program of Command to other machines that do not have the same one at the same path. They
	// keep it for later jobs in $XDG_CACHE_HOME/gorun, ~/.cache/gorun or /tmp/gorun-UID.
	Stage bool
	// Preload sends the programs of Apps to the job's directory on each host that has an agent, in place of
	// those that are there; it is removed with the job. A relative path that is not in Dir here is relative
	// to this process's directory. Programs that ranks spawn are not sent.
	Preload bool
	// Shell is the remote shell, a command that starts a command on another machine; the name of the host and
	// one argument for a shell are appended. nil: ssh, which asks for no password (BatchMode).
	Shell []string
	// ShellArgs are further options of the remote shell, srun or qrsh, before the name of the host.
	ShellArgs []string
	// AtOnce is how many remote shells, sruns or qrshs may be on their way to their agents at a time. 0: 32.
	AtOnce int
	// Tree is from how many other machines on, reached by ssh or Shell, the logins go by a tree: ssh reaches some hosts from
	// here, and the others from those. A host that cannot be reached so is reached from here. A job that may go on without a
	// host, or start again, has no tree, nor has one with Stage. The agent's command gets the arguments --relay N there, for
	// agent.Relay (package launcher/agent); where it takes none, all hosts are reached from here. 0: from 65 on; negative: never.
	Tree int
	// Timeout is the time without an answer from an agent after which its host is lost, although its connection is open. An
	// agent on another machine ends its ranks when it has not heard of this process for as long, or for 30 s while this
	// machine's kernel acknowledges what it says by ssh. 0: DefaultAgentTimeout; else 100 ms or more.
	Timeout time.Duration
}

// Network says how the processes of a job on several hosts connect.
type Network struct {
	// Interface is the network interface of every host, by its name or its network in CIDR form, that the
	// other hosts connect to. "": the one that the remote shell comes to.
	Interface string
	// Ports are the ports, as "40000-40100", of which all that listens for other hosts takes its own, over TCP and UDP: this
	// process, agents, Go ranks, MASTER_PORT, and by their variables MPICH, UCX, libfabric and Open MPI. "": any that are free.
	Ports string
	// Secure has ranks of different hosts encrypt what they send to each other, by TLS 1.3. Ranks that
	// cannot, as those of other MPIs and Go programs without a [rank.Config.Secure], are refused.
	Secure bool
}

// Restarts says how often a job is started again after a failure.
type Restarts struct {
	// Max is how often the whole job is started again after a rank or a host has failed. Each start is a new world; ranks find
	// its number, from 0, in GORUN_RESTART_COUNT. A host that has failed is set aside if the others have slots for all ranks;
	// else all are tried again. [Job.Timeout] limits all starts together. If [Job.Stdin] is a regular file, it is read again
	// from its first position. From another file a restarted rank gets what was not yet read, from another reader nothing.
	Max int
	// Pause is the time before the first restart. It doubles with each restart, up to a minute. 0: DefaultRestartPause.
	Pause time.Duration
	// Before is called before the pause of restart number n, with the result of the start that failed. nil: no call.
	Before func(n int, pause time.Duration, ended Result)
}

// jobRun is what Run has of a job besides what it was asked for.
type jobRun struct {
	environ     []string      // this process's own
	self        *reach.Self   // this machine's names
	stage       *agent.Stage  // nil: nothing is sent
	gate        agent.Gate    // of remote shells
	ports       ports.Range   // Network.Ports
	tree        relays        // nil: each host is logged in to from here
	secondAfter time.Duration // for tests; 0: the constant
	secondReady func() bool   // for tests: the second login may begin; nil: it may
	preload     []program     // by program; nil: none is sent
}

// App is one of several programs of a job.
type App struct {
	Argv []string // as Job.Argv
	NP   int      // number of ranks; 0, permitted for one App: the slots that the others leave
	Env  []string // nil: Job.Env
	Dir  string   // "": Job.Dir
	Path string   // "": Job.Path
	// Hosts are the names of the Job.Hosts that it may run on; nil: all.
	Hosts []string
}

// Host is a machine that ranks may run on, or an agent that plays one.
type Host struct {
	Name  string
	Slots int    // number of ranks it takes; 0: 1; -1: one per CPU. Slots of a name that is listed twice add up
	Max   int    // maximum number of ranks; 0: no limit
	User  string // login name on another machine; "": the remote shell's choice
}
