package coll

import (
	"errors"
	"fmt"
)

// Errors to test for with errors.Is.
var (
	// ErrClosed: the team is closed.
	ErrClosed = errors.New("team is closed")
	// ErrBusy: another call of the same team is running.
	ErrBusy = errors.New("another collective of this team is running")
	// ErrPending: the team was closed before its started calls had completed. Those calls return it too.
	ErrPending = errors.New("started calls are not complete")
	// ErrPeerDead: TeamConfig.PeerDead reported that a member has died. It breaks the team.
	ErrPeerDead = errors.New("peer has died")
	// ErrMismatch: the members made different calls. It breaks the team.
	ErrMismatch = errors.New("members called different collectives")
	// ErrRevoked: another member's team is broken. It breaks the team.
	ErrRevoked = errors.New("team was revoked")
	// ErrDaemon: the daemon that had the call could not end it. It breaks the team.
	ErrDaemon = errors.New("offload daemon")
	// ErrArgument: an argument is invalid. Nothing was sent, and the team is not broken.
	ErrArgument = errors.New("bad argument")
)

// An Error says which collective failed, on which rank, and with which member.
type Error struct {
	Op   string // "alltoall"
	Rank int    // of the caller
	Peer int    // the member that caused it; -1: none
	Err  error
}

func (e *Error) Error() string {
	if e.Peer < 0 {
		return fmt.Sprintf("%s: rank %d: %v", e.Op, e.Rank, e.Err)
	}
	return fmt.Sprintf("%s: rank %d, peer %d: %v", e.Op, e.Rank, e.Peer, e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// A PanicError is a panic in the function of the program that a started reduction combines by. It breaks
// the team. A blocking call hands the panic on to its caller.
type PanicError struct {
	Value any
	Stack []byte // as debug.Stack gives it where the panic was recovered
}

func (e *PanicError) Error() string {
	return fmt.Sprintf("the function of the reduction panicked: %v", e.Value)
}

// Unwrap returns Value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// badf makes the cause of a refused call.
func badf(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrArgument, fmt.Sprintf(format, args...))
}
