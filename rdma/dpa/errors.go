package dpa

import (
	"errors"
	"fmt"
	"strings"

	"github.com/gorun-mpi/gorun/rdma"
)

var (
	// ErrClosed: the Context, the group or the event is closed, or was while a kernel ran.
	ErrClosed = errors.New("the DPA context is closed")
	// ErrDeadline: a launch ran for longer than its deadline.
	ErrDeadline = errors.New("the kernel ran into its deadline")
	// ErrGoexit: a kernel called runtime.Goexit, as testing.T.FailNow does.
	ErrGoexit = errors.New("the kernel called runtime.Goexit")
	// ErrFinish, returned by the kernel of a launch with On, ends it without an error
	// (doca_dpa_dev_thread_finish).
	ErrFinish = errors.New("the kernel has finished")
)

// A KernelError says how a launch failed. Unwrap gives the reason: what the kernel
// returned, [ErrDeadline], [ErrClosed], [ErrGoexit], or the panic's value when that is an error.
type KernelError struct {
	Kernel string // Launch.Name, or the function's name
	Rank   int    // of the thread in its group, the first that failed
	Thread string // "soft0 device thread 1 (OS thread 4711)"
	Panic  any    // what the kernel panicked with, nil: it did not
	Err    error
	// Stack is the thread's, where it panicked or where it was at the deadline; else empty.
	Stack string
	// GivenUp names the threads that have not returned, and run on.
	GivenUp []string
}

func (e *KernelError) Error() string {
	why := fmt.Sprint(e.Err)
	if e.Panic != nil {
		why = fmt.Sprintf("panic: %v", e.Panic)
	}
	text := fmt.Sprintf("kernel %s on %s: %s", e.Kernel, e.Thread, why)
	if len(e.GivenUp) > 0 {
		text += "; given up: " + strings.Join(e.GivenUp, ", ")
	}
	return text
}

func (e *KernelError) Unwrap() error { return e.Err }

// A StuckError names the threads that were still in a kernel when their Context closed.
type StuckError struct{ Threads []string }

func (e *StuckError) Error() string {
	return "given up in a kernel that does not return: " + strings.Join(e.Threads, ", ")
}

// A LocationError says that an event was used elsewhere than declared. It wraps [rdma.ErrInvalid].
type LocationError struct {
	Op                    string   // "set", "add", "get", "wait_gt", "export", "wait event", "completion event"
	From                  Location // where it was used
	Publisher, Subscriber Location // as declared
}

func (e *LocationError) Error() string {
	return fmt.Sprintf("%s of a sync event from %s: its publisher is %s and its subscriber %s", e.Op, e.From, e.Publisher, e.Subscriber)
}

func (e *LocationError) Unwrap() error { return rdma.ErrInvalid }

// A WCError is a request of the device that failed.
type WCError struct {
	ID     uint64 // Thread.Post's
	QPNum  uint32
	Status rdma.WCStatus
}

func (e *WCError) Error() string {
	return fmt.Sprintf("request %d of queue pair %d: %v", e.ID, e.QPNum, e.Status)
}

func (e *WCError) Unwrap() error { return e.Status }

// bad is an error of the program.
func bad(op, format string, args ...any) error {
	return &rdma.OpError{Op: "dpa " + op, Detail: fmt.Sprintf(format, args...), Err: rdma.ErrInvalid}
}
