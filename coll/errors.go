package coll

import (
	"errors"
	"fmt"
)

// Errors that callers branch on.
var (
	// ErrClosed is returned by the calls of a closed team.
	ErrClosed = errors.New("team is closed")
	// ErrBusy is returned by a call while another one of the same team runs.
	ErrBusy = errors.New("another collective of this team is running")
	// ErrPending is the error of a team that is closed before the calls that
	// were started are over, and of those calls.
	ErrPending = errors.New("calls that were started are not over")
	// ErrPeerDead breaks a team when TeamConfig.PeerDead says that a member died.
	ErrPeerDead = errors.New("peer has died")
	// ErrMismatch breaks a team whose members called different things.
	ErrMismatch = errors.New("members called different collectives")
	// ErrRevoked breaks a team because another member found it broken.
	ErrRevoked = errors.New("team was revoked")
	// ErrArgument is returned for a call's own mistake, which does not break
	// the team: nothing was sent.
	ErrArgument = errors.New("bad argument")
)

// An Error says which collective failed, where, and with whom.
type Error struct {
	Op   string // "alltoall"
	Rank int    // of the caller
	Peer int    // the member it concerns, -1 if none
	Err  error
}

func (e *Error) Error() string {
	if e.Peer < 0 {
		return fmt.Sprintf("%s: rank %d: %v", e.Op, e.Rank, e.Err)
	}
	return fmt.Sprintf("%s: rank %d, peer %d: %v", e.Op, e.Rank, e.Peer, e.Err)
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// badf makes the cause of a refused call.
func badf(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrArgument, fmt.Sprintf(format, args...))
}
