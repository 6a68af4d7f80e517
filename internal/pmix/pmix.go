package pmix

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/gorun-mpi/gorun/internal/pmix/link"
)

// Wildcard is the rank of a Proc that stands for all of its namespace.
const Wildcard = 1<<32 - 2

// A launcher and its helper tell each other of these, so they are the types of their frames.
type (
	Proc    = link.Proc    // a process, or with Wildcard all processes, of a namespace
	Program = link.Program // what the ranks of an application run, and the directory they begin in
	App     = link.App     // one program of a spawn; of the hints the last one of a name counts
	// A Pair is a published value: a text, as names of services are, or anything else in libpmix's encoding.
	Pair = link.Pair
)

// Namespace is a group of ranks that were started together, as PMIx tells it to them. Its Session is where libraries may
// make files on this node, the namespace's own in a directory of its name, each rank's in one of its number within. All
// exist when a rank is told of them, and somebody else removes them.
type Namespace link.Space

// Kind is what processes meet for. Only equal kinds meet.
type Kind int

// Kinds of meetings.
const (
	Fence Kind = iota
	Connect
	Disconnect
	Construct // of a group
	Destruct
)

// Query is a question. Attributes go by their names in the standard
// ("PMIX_QUERY_NAMESPACES"), which libpmix turns into its own keys.
type Query struct {
	Keys      []string
	Namespace string // that it is about; "": none was named
	Local     bool   // this node only
}

// Info is an attribute, by its name, and its value: a string, bool, uint32, uint64
// (a size), float32, Status, []byte, []Info, []Proc or []Process.
type Info struct {
	Name  string
	Value any
}

// Process is an entry of a process table.
type Process struct {
	Proc
	Host    string
	Program string
	PID     int
	Exit    int // status
	State   State
}

// State is that of a process.
type State uint8

// States of processes, as libpmix numbers them.
const (
	Prepared      State = 1
	Running       State = 5
	Connected     State = 6
	Ended         State = 20
	EndedBySignal State = 54
	EndedNonZero  State = 62
)

// Control is what is to happen to processes.
type Control struct {
	Procs  []Proc // Wildcard: all of a namespace
	Signal int
	End    bool // and kill those that have not ended after a while
}

// Request is something that a process waits for.
type Request interface {
	// Done answers with a status only.
	Done(Status)
	// Data answers a fence or a modex.
	Data(Status, []byte)
	// Found answers a lookup.
	Found(Status, []Pair)
	// Spawned answers a spawn with the new namespace.
	Spawned(Status, string)
	// Infos answers a query, and what else has results.
	Infos(Status, []Info)
}

// Status is a pmix_status_t. Zero is success.
type Status int

// Handler is told what processes do, and asked what they ask for.
type Handler interface {
	Connected(p Proc)
	Finalized(p Proc)
	Abort(r Request, p Proc, status int, text string)
	// Fence is called when all processes of this node among procs are in and
	// others may be elsewhere. data is what those of this node contribute; the
	// answer is the contributions of all nodes one after the other.
	Fence(r Request, k Kind, procs []Proc, data []byte)
	// Modex asks for what a process of another node has put.
	Modex(r Request, p Proc)
	Publish(r Request, p Proc, pairs []Pair)
	// Lookup with wait waits until all keys are there, or for some seconds; 0: for
	// ever.
	Lookup(r Request, p Proc, keys []string, wait bool, seconds int)
	Unpublish(r Request, p Proc, keys []string)
	Spawn(r Request, p Proc, apps []App)
	// Log shows a text on the job's standard output (1) or error (2); once: the
	// same of another process need not be shown again.
	Log(p Proc, stream int, text string, once bool)
	Query(r Request, queries []Query)
	Control(r Request, p Proc, c Control)
	// Group is called as Fence is, when a group is made or unmade that is not of
	// this node alone or wants a number of its own (context). libpmix 5 tells the
	// members of a group that is made what the answer has as PMIX_GROUP_MEMBERSHIP.
	Group(r Request, k Kind, name string, procs []Proc, context bool, data []byte)
	// Notify passes an event to the other nodes, where Server.Deliver takes it.
	Notify(data []byte)
}

// Library is a libpmix that was found.
type Library struct {
	Path    string // as the loader was asked for it
	Version string // as it says itself: "4.2.2"
}

// ErrUnavailable means that there can be no server here; the error around it says
// why and what to do.
var ErrUnavailable = errors.New("no PMIx server")

// unavailable is about a library that is missing or of no use.
func unavailable(format string, args ...any) error {
	return fmt.Errorf("%w: %s; on Debian and Ubuntu: apt-get install libpmix2", ErrUnavailable, fmt.Sprintf(format, args...))
}

// A version of libpmix. Between first, inclusive, and beyond, exclusive, the interface
// is that of abi.h: earlier ones lack functions, and nobody here has seen later ones.
type libVersion struct{ major, minor int }

var first, beyond = libVersion{4, 2}, libVersion{8, 0}

func (v libVersion) before(w libVersion) bool {
	return v.major < w.major || v.major == w.major && v.minor < w.minor
}

// versionOf finds the numbers in what PMIx_Get_version says, which is a sentence:
// "OpenPMIx 4.2.2 (PMIx Standard: 4.2, ...".
func versionOf(said string) (text string, v libVersion) {
	for _, word := range strings.FieldsFunc(said, func(r rune) bool { return !(r == '.' || r >= '0' && r <= '9') }) {
		numbers := strings.Split(word, ".")
		if len(numbers) < 2 {
			continue
		}
		major, err := strconv.Atoi(numbers[0])
		minor, err2 := strconv.Atoi(numbers[1])
		if err == nil && err2 == nil {
			return word, libVersion{major, minor}
		}
	}
	return "", v
}

// supported tells whether a library that says this can be called.
func supported(said string) error {
	text, v := versionOf(said)
	switch {
	case text == "":
		return unavailable("libpmix does not tell its version but says %q", said)
	case v.before(first) || !v.before(beyond):
		return fmt.Errorf("%w: libpmix is version %s, and this gorun-pmix knows %d.%d up to %d.x; install one of these, or lead to it by LD_LIBRARY_PATH", ErrUnavailable, text, first.major, first.minor, beyond.major-1)
	}
	return nil
}
