package host

import (
	"cmp"
	"slices"
	"syscall"
	"time"

	"github.com/gorun-mpi/gorun/internal/pmix/link"
	"github.com/gorun-mpi/gorun/internal/ports"
	"github.com/gorun-mpi/gorun/launcher/hosting"
)

// Window is how much output of each stream may be on its way to the controller.
const Window = 1 << 20

// Streams, numbered as a rank's descriptors.
const (
	Stdout = 1
	Stderr = 2
)

// Stdin says what the ranks of Spec.Reader read.
type Stdin uint8

// Choices of Stdin.
const (
	StdinNone Stdin = iota // /dev/null, as all other ranks
	StdinFile              // Config.Stdin itself
	StdinPump              // what comes in commands
)

// PTY says whether a rank's standard output is a terminal.
type PTY uint8

// When it is.
const (
	NoPTY   PTY = iota
	TryPTY      // where the machine has one to give
	NeedPTY     // or the rank is not started
)

// Spec is the work of one host.
type Spec struct {
	Job      string // the job's random name, and that of a group in it
	Group    int    // 0: the job as it was started, else what running ranks spawned
	Host     string // this host's
	Index    int    // among the job's Hosts
	Address  string // at which the others reach it; "": all are this machine
	Hosts    int
	Flat     bool       // the job began on one host, and groups have PMIx servers of their own: Open MPI's ranks, also spawned ones, make no levels of hosts
	NP       int        // ranks of the job
	Ranks    []RankSpec // those that run here, in ascending order
	Apps     []AppSpec  // the programs of the job
	Mapping  string     // of all ranks, as PMI tells it
	Hosting  hosting.Settings
	Secure   bool // ranks that do not encrypt what they send to other hosts are refused
	Grace    time.Duration
	Stdin    Stdin
	Reader   int // the rank that has it, or EveryRank
	Output   OutputSpec
	Sample   time.Duration // how often to tell what the ranks use; 0: never
	Profile  int           // events of each rank's record of calls that are told; 0: ranks make none
	Terminal TerminalSpec
	// Universe is how many ranks the job has room for, as programs that spawn
	// want to know; 0: unknown.
	Universe   int
	Master     MasterSpec
	Ports      ports.Range       // of which the ranks listen at some; the zero value: at any
	Preset     map[string]string // keys that the group's key-value space holds from the start
	Spawner    string            // the job whose rank has spawned this group; "": none has
	Attempt    int               // which start of the job this is, from 1; 0: it is started once
	Continuous bool              // the job goes on when a rank fails
	Detour     string            // where ranks ask for connections that this host cannot make itself; "": nowhere
	HostLease  time.Duration     // how long a host may be silent before the controller takes it for lost; 0: there is no agent
	// PythonAbort has an exception that goes uncaught in a rank of mpi4py end the job.
	PythonAbort bool
	Hang        time.Duration // after which a job in which nothing moves is told of; 0: never
	PMIx        *link.Space   // for programs of Open MPI; nil: they are not served
}

// OutputSpec is how a host reads what ranks write.
type OutputSpec struct {
	Merge  bool          // ranks write standard error where they write output
	Stamp  bool          // tell when output came
	Prompt time.Duration // silence after which the begin of a line is passed on; 0: it never is
	Alone  bool          // that silence is of all ranks of the host, and no other one may be within a line
	Raw    bool          // what ranks write is passed on at once
}

// TerminalSpec is what ranks have as terminals.
type TerminalSpec struct {
	PTY        PTY
	Rows, Cols int // 0: not known
}

// MasterSpec is where programs that meet by themselves do so: the address of rank 0's host, a port that was free there, and the
// index of that host. "" and 0: not known.
type MasterSpec struct {
	Address string
	Port    int
	Host    int
}

// RankSpec is a rank of the host. Its place in Spec.Ranks is its local rank.
type RankSpec struct {
	Rank int   `msgpack:"r"`           // in the job
	App  int   `msgpack:"a,omitempty"` // which of the job's programs it runs
	CPUs []int `msgpack:"c,omitempty"` // that it is bound to; none: it is not bound
}

// AppSpec is one of the programs of a job.
type AppSpec struct {
	Argv []string
	Env  []string
	Dir  string
	Path string `msgpack:",omitempty"` // directories to find the program in, instead of PATH in Env
	NP   int    // ranks that run it, on all hosts
	// Preload is what comes from the controller in place of Argv[0]; nil: the host has the program.
	Preload *Preload `msgpack:",omitempty"`
}

// local is the local number of a rank of the job; -1 when it is not here.
func (s *Spec) local(rank int) int {
	i, found := slices.BinarySearchFunc(s.Ranks, rank, func(r RankSpec, rank int) int { return cmp.Compare(r.Rank, rank) })
	if !found {
		return -1
	}
	return i
}

// EventKind is what happened.
type EventKind uint8

// Events of a host.
const (
	Started     EventKind = iota + 1 // Rank runs as PID
	Output                           // Data of Rank's Stream, which came at Time; Last
	StdinTaken                       // N bytes; no rank here reads any more if N < 0
	Ended                            // Rank: Status, Joined, Finalized, Told
	Aborted                          // Rank asked for it with Status and Text
	Violated                         // Rank and the PMI server do not understand each other: Text; Late
	StartFailed                      // the ranks cannot be started: Status, Field, Text
	Failed                           // the machine under it did: Text
	Tails                            // the last lines of stderr of ranks that did not end well
	Passed                           // the ranks were sent TSTP
	Asked                            // Rank asks for something with Ask, and waits for an Answer
	Joined                           // Rank has connected to the PMIx server
	Left                             // Rank has finalized there
	ToHub                            // Data of the PMIx server
	Singleton                        // Rank seems to be a world of its own: Text
	Sampled                          // Samples of the ranks that run
	States                           // the answer to Look: lines for each rank, in Tails, and Samples
	Fenced                           // all ranks have passed a fence of PMI; the first of several hosts tells
	Waiting                          // the answer to WhoWaits: Ranks
	Refused                          // a program of Rank, or of nobody's if that is below 0, was not let in by the PMI server: Text
	Long                             // Rank has a long line of N bytes for Stream, and waits for GoOn
	Loaded                           // Rank has joined with the library of MPI whose file is Text; N is 1 if by PMIx
	Unassisted                       // the daemon that steps started collectives is gone: Text
	Unused                           // no rank has given that daemon anything: Text
	Unshared                         // the ranks share no memory: Text
	Torn                             // lines of Rank's Stream are not passed on whole: Text
	Apart                            // Rank reaches no other host by MPI: Text
	Doubled                          // a child of Rank has called MPI_Init as the same rank: Text
	Turned                           // the answer to Turn
	Stalled                          // nothing has moved for Spec.Hang if N is 1; else it moves again
	Lingers                          // all ranks have ended, and what they had started still has their output
	Cut                              // that of Rank had it too long: Text
	Recorded                         // Data is Rank's record of its calls, as package calls packs it
	Unrecorded                       // a rank may have none for want of a library: Text
	Done                             // nothing is left
)

// Event is what happened on a host. Which fields count depends on Kind.
type Event struct {
	Kind      EventKind        `msgpack:"k"`
	Rank      int              `msgpack:"r,omitempty"`
	PID       int              `msgpack:"p,omitempty"`
	Stream    int              `msgpack:"s,omitempty"`
	N         int              `msgpack:"n,omitempty"`
	Data      []byte           `msgpack:"d,omitempty"`
	Status    int              `msgpack:"x,omitempty"` // exit status
	Signal    syscall.Signal   `msgpack:"g,omitempty"` // that ended the rank; 0: it exited
	Joined    bool             `msgpack:"j,omitempty"` // it said init to PMI
	Finalized bool             `msgpack:"f,omitempty"` // and finalize
	Told      bool             `msgpack:"t,omitempty"` // it was sent a signal to end before
	Late      bool             `msgpack:"l,omitempty"` // something else that is on its way may have caused this
	Elsewhere bool             `msgpack:"E,omitempty"` // a rank of another host is why: a fence with that host failed
	Stuck     bool             `msgpack:"w,omitempty"` // and ranks wait for what can never be
	Spins     bool             `msgpack:"z,omitempty"` // it ended inside of an MPI whose other ranks may look for it for ever
	OOM       int              `msgpack:"o,omitempty"` // processes the kernel has killed for want of memory since the host began
	Core      bool             `msgpack:"c,omitempty"` // the rank's memory was dumped
	CoreFile  string           `msgpack:"h,omitempty"` // there; "" if that is not known
	Field     string           `msgpack:"i,omitempty"` // of launcher.Job
	Value     string           `msgpack:"v,omitempty"` // of that field
	Text      string           `msgpack:"m,omitempty"`
	Tails     map[int][]string `msgpack:"e,omitempty"`  // with Tails
	Reasons   map[int]string   `msgpack:"y,omitempty"`  // of crashes, with Tails
	Ask       *Ask             `msgpack:"a,omitempty"`  // with Asked
	Time      int64            `msgpack:"tm,omitempty"` // in nanoseconds since 1970, with OutputSpec.Stamp
	Last      bool             `msgpack:"ls,omitempty"` // the stream has ended within a line
	Long      bool             `msgpack:"lg,omitempty"` // Output is the line that Long told of
	Samples   []Sample         `msgpack:"sm,omitempty"`
	Ranks     []int            `msgpack:"rs,omitempty"` // with Waiting
	Free      func()           `msgpack:"-"`            // takes Data back, when nobody looks at it any more; may be nil
}

// CommandKind is what to do.
type CommandKind uint8

// Ends tells whether the ranks are to end.
func (k CommandKind) Ends() bool { return k == End || k == Kill || k == Abandon }

// Commands of a controller to a host.
const (
	Pass     CommandKind = iota + 1 // Signal to Ranks; nil: to all
	End                             // Signal to all ranks, TERM and KILL later
	Kill                            // all ranks now
	Input                           // Data for the ranks that read; Last: and then no more
	Credit                          // N bytes of Stream were taken
	Discard                         // nobody wants output any more
	Look                            // and tell what the ranks are doing; Last: with stack traces, as far as that goes
	Answer                          // Reply to what Rank had asked
	FromHub                         // Data for the PMIx server
	Resize                          // terminals of ranks: Rows, Cols
	Abandon                         // as Kill: the controller is gone
	Say                             // Data on Stream of Rank; a host tells itself
	Rejoined                        // Rank has connected to the PMIx server before it has finalized, Last: after its program has died; a host tells itself
	Came                            // Rank has connected to it as a program does; a host tells itself
	GoOn                            // there is room for the long line of Rank's Stream
	Wake                            // look whether others need this host; a host tells itself
	Turn                            // tell that the host does what it is told
	WhoWaits                        // tell which ranks wait in a fence of PMI-1
	Mourn                           // Ranks, of other hosts, are dead, and the job goes on
	Settle                          // all ranks of the job have ended: a host that has told Lingers waits for Spec.Grace
)

// Command is what to do. Which fields count depends on Kind.
type Command struct {
	Kind   CommandKind    `msgpack:"k"`
	Signal syscall.Signal `msgpack:"g,omitempty"`
	Stream int            `msgpack:"s,omitempty"`
	N      int            `msgpack:"n,omitempty"`
	Data   []byte         `msgpack:"d,omitempty"`
	Last   bool           `msgpack:"l,omitempty"`
	Heed   bool           `msgpack:"e,omitempty"` // with End: ranks on their way out end first, and by themselves
	Rank   int            `msgpack:"r,omitempty"`
	Reply  *Reply         `msgpack:"a,omitempty"`
	Rows   int            `msgpack:"h,omitempty"`
	Cols   int            `msgpack:"w,omitempty"`
	Ranks  []int          `msgpack:"ra,omitempty"`
}
