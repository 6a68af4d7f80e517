package rank

import (
	"errors"
	"fmt"
	"strings"

	"github.com/gorun-mpi/gorun/coll"
	"github.com/gorun-mpi/gorun/rank/internal/agree"
)

// Errors to test for with errors.Is.
var (
	// ErrFinalized: the world was finalized before the call.
	ErrFinalized = errors.New("the world is finalized")
	// ErrFreed: the communicator was freed before the call.
	ErrFreed = errors.New("the communicator is freed")
	// ErrUnfinished: the request of [Comm.Idup], which makes the
	// communicator, was not waited for or is not complete.
	ErrUnfinished = errors.New("the communicator is not made yet: wait for its request")
	// ErrRevoked: a rank has called [Comm.Revoke], or an earlier collective on the
	// communicator failed, here or on a peer. The error also wraps the first cause.
	ErrRevoked = errors.New("the communicator is revoked")
	// ErrConcurrent: another call of the same rank was still running. With Config.Concurrent:
	// another collective on the communicator, or a Shrink beside another call that makes a communicator.
	ErrConcurrent = errors.New("another call of this rank is running (a world serves one call at a time; see Config.Concurrent)")
	// ErrProcFailed: a process that the call needs has died, or its host cannot be reached
	// (MPI_ERR_PROC_FAILED). Error.Failed has all those of the communicator that are known.
	ErrProcFailed = errors.New("a process has failed")
	// ErrPeerDied: the peer's process has ended without calling Finalize. It is one way of ErrProcFailed.
	ErrPeerDied = errors.New("the process has died")
	// ErrOutcast: other ranks could not reach this one, took it for dead in [Comm.Agree], [Comm.Shrink] or
	// [World.Finalize], and have gone on without it. No later agreement on the communicator takes it in again.
	ErrOutcast = agree.ErrOutcast
	// ErrArgument: an operand, a rank, a tag or an operation is invalid.
	ErrArgument = coll.ErrArgument
)

// An Error says which call failed, where and with which peer. Unwrap returns the cause.
type Error struct {
	Op       string // the call: "send", "allreduce", "init"
	Comm     string // the communicator's name; "": none is concerned
	Rank     int    // the caller's rank in the communicator, or in the world if there is none
	Host     string // the caller's host
	Peer     int    // the peer's rank; -1: no particular peer
	PeerHost string
	Failed   []int // with ErrProcFailed: the members known to have failed, by rank in the world
	Err      error
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.head() + e.Op)
	if e.Comm != "" && e.Comm != worldName {
		fmt.Fprintf(&b, " on %s", e.Comm)
	}
	if e.Peer >= 0 {
		fmt.Fprintf(&b, ": rank %d", e.Peer)
		if e.PeerHost != "" {
			fmt.Fprintf(&b, " (host %s)", e.PeerHost)
		}
	}
	fmt.Fprintf(&b, ": %v", e.Err)
	return b.String()
}

func (e *Error) Unwrap() error { return e.Err }

// head is the beginning of the text. An error of a call that belongs to no world has none.
func (e *Error) head() string {
	if e.Host == "" {
		return ""
	}
	return title(e.Rank, e.Host)
}

// title is what errors of a rank begin with.
func title(rank int, host string) string { return fmt.Sprintf("rank %d (host %s): ", rank, host) }

// An entitled error has the world's title once, wherever the error below it has it.
type entitled struct {
	title string
	err   error
}

func (e *entitled) Error() string {
	text := strings.ReplaceAll(e.err.Error(), e.title, "")
	if of, ok := errors.AsType[*Error](e.err); ok && of.Host != "" { // its rank in a communicator is another number
		text = strings.Replace(text, of.head(), fmt.Sprintf("rank %d: ", of.Rank), 1)
	}
	return e.title + text
}

func (e *entitled) Unwrap() error { return e.err }

// A TruncateError reports a message that is longer than the receive buffer
// (MPI_ERR_TRUNCATE). The message is consumed, and the buffer holds its beginning.
type TruncateError struct {
	Message int // length of the message in bytes
	Buffer  int // length of the buffer in bytes

	Type string // type of the buffer's elements; "": not known
	Elem int    // size of an element in bytes
}

func (e *TruncateError) Error() string {
	return fmt.Sprintf("a message of %s does not fit the receive buffer of %s", e.size(e.Message), e.size(e.Buffer))
}

// size is a number of bytes, with the elements of the buffer's type that they are.
func (e *TruncateError) size(bytes int) string {
	if e.Type == "" || e.Elem < 2 || bytes%e.Elem != 0 {
		return fmt.Sprintf("%d bytes", bytes)
	}
	return fmt.Sprintf("%d bytes (%d of %s)", bytes, bytes/e.Elem, e.Type)
}

// A DeviceError reports that a requested device does not exist.
type DeviceError struct {
	Name string   // the requested name
	Have []string // the devices that exist, as "name (provider)"
}

func (e *DeviceError) Error() string {
	have := "there is none"
	if len(e.Have) > 0 {
		have = "there is " + strings.Join(e.Have, ", ")
	}
	return fmt.Sprintf("no RDMA device %q: %s (gorun --emulate %s makes a software device of that name)", e.Name, have, e.Name)
}

// An AbortError is the reason that the ranks of [Run] ended when one of them called Abort.
type AbortError struct {
	Rank    int
	Code    int
	Message string
}

func (e *AbortError) Error() string {
	return fmt.Sprintf("rank %d called abort(%d): %s", e.Rank, e.Code, e.Message)
}

// A PanicError reports a panic in the function of a rank, or in the function of an [Op] that a started reduction combines by.
type PanicError struct {
	Rank  int
	Value any    // the argument of panic
	Stack []byte // of the goroutine, from the function that panicked; Error does not print it, [Run]'s error does
	title string
}

func (e *PanicError) Error() string { return fmt.Sprintf("%spanic: %v", e.title, e.Value) }

// Unwrap returns Value if it is an error, such as a [runtime.Error].
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// badArgument is an error wrapping ErrArgument, of ClassArg.
func badArgument(format string, args ...any) error { return badClass(ClassArg, format, args...) }
