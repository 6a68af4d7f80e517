package rank

import (
	"context"
	"errors"
	"fmt"

	"github.com/gorun-mpi/gorun/coll"
	"github.com/gorun-mpi/gorun/rank/internal/p2p"
	"github.com/gorun-mpi/gorun/rank/internal/peers/mail"
	"github.com/gorun-mpi/gorun/rdma"
)

// A Class is one of MPI's error classes. It is also an error to compare with: errors.Is(err,
// rank.ClassRoot). Programs do not add classes and codes as in MPI; they use Go errors of their own types.
type Class uint8

// The classes of errors that this package returns.
const (
	ClassSuccess    Class = iota // no error
	ClassBuffer                  // MPI_ERR_BUFFER: memory that is too short, or that overlaps
	ClassCount                   // MPI_ERR_COUNT
	ClassType                    // MPI_ERR_TYPE: a datatype
	ClassTag                     // MPI_ERR_TAG
	ClassComm                    // MPI_ERR_COMM: a communicator that is nil, freed or of the wrong kind
	ClassRank                    // MPI_ERR_RANK
	ClassRequest                 // MPI_ERR_REQUEST
	ClassRoot                    // MPI_ERR_ROOT
	ClassGroup                   // MPI_ERR_GROUP
	ClassOp                      // MPI_ERR_OP: the operation of a reduction
	ClassTopology                // MPI_ERR_TOPOLOGY
	ClassDims                    // MPI_ERR_DIMS
	ClassArg                     // MPI_ERR_ARG: an invalid argument of another kind
	ClassTruncate                // MPI_ERR_TRUNCATE: a message is longer than the receive buffer
	ClassOther                   // MPI_ERR_OTHER: a context has ended, the calls of two ranks do not match, the world is finalized, or the others have put the rank out
	ClassIntern                  // MPI_ERR_INTERN: the device failed, or this package has an error
	ClassInStatus                // MPI_ERR_IN_STATUS: one or more of several requests failed; see [RequestError]
	ClassPending                 // MPI_ERR_PENDING: the request is neither complete nor failed
	ClassKeyval                  // MPI_ERR_KEYVAL
	ClassNoMem                   // MPI_ERR_NO_MEM
	ClassWin                     // MPI_ERR_WIN: a window
	ClassRMARange                // MPI_ERR_RMA_RANGE: memory outside of the window
	ClassRMASync                 // MPI_ERR_RMA_SYNC: an access or a synchronisation that does not fit the open epochs
	ClassLockType                // MPI_ERR_LOCKTYPE
	ClassDisp                    // MPI_ERR_DISP: an invalid displacement unit of a window
	ClassInfo                    // MPI_ERR_INFO
	ClassProcFailed              // MPI_ERR_PROC_FAILED: a peer has died
	ClassRevoked                 // MPI_ERR_REVOKED: the communicator is revoked
	classes
)

var classNames = [classes]string{"SUCCESS", "BUFFER", "COUNT", "TYPE", "TAG", "COMM", "RANK", "REQUEST", "ROOT", "GROUP", "OP",
	"TOPOLOGY", "DIMS", "ARG", "TRUNCATE", "OTHER", "INTERN", "IN_STATUS", "PENDING", "KEYVAL", "NO_MEM", "WIN", "RMA_RANGE", "RMA_SYNC",
	"LOCKTYPE", "DISP", "INFO", "PROC_FAILED", "REVOKED"}

// String is MPI's name, such as "MPI_ERR_ROOT".
func (c Class) String() string {
	switch {
	case c == ClassSuccess:
		return "MPI_SUCCESS"
	case c < classes:
		return "MPI_ERR_" + classNames[c]
	}
	return fmt.Sprintf("MPI error class %d", uint8(c))
}

func (c Class) Error() string { return c.String() }

// ClassOf is the class of an error (MPI_Error_class): ClassSuccess for
// nil, and ClassOther for an error of another package.
func ClassOf(err error) Class {
	if err == nil {
		return ClassSuccess
	}
	if _, ok := errors.AsType[*RequestError](err); ok {
		return ClassInStatus
	}
	if e, ok := errors.AsType[*argumentError](err); ok {
		return e.class
	}
	if c, ok := errors.AsType[Class](err); ok {
		return c
	}
	if _, ok := errors.AsType[*TruncateError](err); ok {
		return ClassTruncate
	}
	for _, k := range sentinelClasses {
		if errors.Is(err, k.err) {
			return k.class
		}
	}
	if _, ok := errors.AsType[*rdma.OpError](err); ok {
		return ClassIntern
	}
	return ClassOther
}

// sentinelClasses are the classes of the errors that callers branch on; the first
// that fits counts. A communicator that is revoked because a context ended is
// revoked in the first place.
var sentinelClasses = [...]struct {
	err   error
	class Class
}{
	{ErrRevoked, ClassRevoked}, {coll.ErrRevoked, ClassRevoked}, {ErrProcFailed, ClassProcFailed},
	{ErrPeerDied, ClassProcFailed}, {coll.ErrPeerDead, ClassProcFailed}, {mail.ErrGone, ClassProcFailed}, {mail.ErrSilent, ClassProcFailed},
	{ErrFreed, ClassComm}, {ErrUnfinished, ClassComm}, {ErrBuffer, ClassBuffer}, {ErrArgument, ClassArg},
	{ErrOutcast, ClassOther}, {p2p.ErrRefused, ClassOther}, {context.Canceled, ClassOther}, {context.DeadlineExceeded, ClassOther},
}

// procFailed tells whether an error is that a process has failed. Where a connection has, no more is known
// than that nothing reaches the peer: [Comm.Failed] has it among the failed too.
func procFailed(err error) bool {
	return errors.Is(err, ErrProcFailed) || errors.Is(err, ErrPeerDied) || errors.Is(err, coll.ErrPeerDead) ||
		errors.Is(err, mail.ErrGone) || errors.Is(err, mail.ErrSilent) || errors.Is(err, p2p.ErrLost)
}

// Class is the class of the error, as [ClassOf] gives it.
func (e *Error) Class() Class {
	if class := ClassOf(e.Err); len(e.Failed) == 0 || class == ClassRevoked {
		return class
	}
	return ClassProcFailed
}

// Is reports whether target is the error's class, or ErrProcFailed where a process has failed.
func (e *Error) Is(target error) bool {
	if target == ErrProcFailed {
		return len(e.Failed) > 0
	}
	c, ok := target.(Class)
	return ok && c == e.Class()
}

// An argumentError is an operand that does not fit, with its class.
type argumentError struct {
	class Class
	text  string
}

func (e *argumentError) Error() string { return ErrArgument.Error() + ": " + e.text }
func (e *argumentError) Unwrap() error { return ErrArgument }

// Is tells whether target is the error's class.
func (e *argumentError) Is(target error) bool { return target == e.class }

// badClass is an error wrapping ErrArgument, of a class.
func badClass(class Class, format string, args ...any) error {
	return &argumentError{class: class, text: fmt.Sprintf(format, args...)}
}
