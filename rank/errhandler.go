package rank

import (
	"errors"
	"fmt"
	"os"

	"github.com/gorun-mpi/gorun/coll"
	"github.com/gorun-mpi/gorun/rank/internal/datatype"
	"github.com/gorun-mpi/gorun/rank/internal/p2p"
	"github.com/gorun-mpi/gorun/rdma"
)

// An Errhandler is called with each error of a communicator's calls before
// the call returns it (MPI_Comm_errhandler_function). It runs inside that
// call, and must not call the world's functions except [World.Abort].
type Errhandler func(c *Comm, err error)

// ErrorsReturn does nothing: the call just returns the error (MPI_ERRORS_RETURN). It is the default.
func ErrorsReturn(*Comm, error) {}

// ErrorsAreFatal prints the error to standard error and aborts the job
// (MPI_ERRORS_ARE_FATAL).
func ErrorsAreFatal(c *Comm, err error) {
	fmt.Fprintln(os.Stderr, err)
	c.world.Abort(1, c.world.inAbort(err))
}

// SetErrhandler sets the function that is called when a call on the
// communicator fails on this rank (MPI_Comm_set_errhandler). Communicators
// that are made from c afterwards inherit it. nil is [ErrorsReturn].
func (c *Comm) SetErrhandler(h Errhandler) { c.handler = h }

// Errhandler is the error handler (MPI_Comm_get_errhandler),
// [ErrorsReturn] unless [Comm.SetErrhandler] set another.
func (c *Comm) Errhandler() Errhandler {
	if c.handler == nil {
		return ErrorsReturn
	}
	return c.handler
}

// CallErrhandler passes an error to the error handler of the communicator (MPI_Comm_call_errhandler),
// as the calls of this package do. It may be an error of the program's own type: see [Class].
func (c *Comm) CallErrhandler(err error) { c.Errhandler()(c, err) }

// SetErrhandler sets the function that is called when a call on the window fails on
// this rank (MPI_Win_set_errhandler). At first it is that of the window's communicator.
// It gets the window's internal communicator, which has the window's name.
func (w *window) SetErrhandler(h Errhandler) { w.comm.handler = h }

// Errhandler is the window's error handler (MPI_Win_get_errhandler).
func (w *window) Errhandler() Errhandler { return w.comm.Errhandler() }

// CallErrhandler passes an error of the program to the window's error handler (MPI_Win_call_errhandler).
func (w *window) CallErrhandler(err error) { w.comm.CallErrhandler(err) }

// fail makes an *Error of what went wrong, for the caller, and calls the error
// handler. Its caller is inside the world where err says that a process has failed, unless err
// wraps an [*Error] that has the failed already: fail looks into the engine. peer is a rank as messages name it, -1 when nobody in particular; the
// error may know better.
func (c *Comm) fail(op string, peer int, err error) error {
	if c.exists() != nil {
		return &Error{Op: op, Peer: -1, Err: err}
	}
	e := &Error{Op: op, Comm: c.name, Rank: c.rank, Host: c.world.Host(), Peer: peer, Err: err}
	if pe, ok := errors.AsType[*p2p.PeerError](err); ok {
		if e.Peer = c.rankOf(pe.Peer); e.Peer >= 0 && err == error(pe) {
			e.Err = pe.Err
		}
	}
	if te, ok := errors.AsType[*p2p.TruncateError](err); ok {
		e.Err = &TruncateError{Message: te.Message, Buffer: te.Buffer, Type: te.Type, Elem: te.Elem}
	}
	if (errors.Is(err, p2p.ErrRevoked) || errors.Is(err, p2p.ErrRefused)) && c.ended != nil {
		e.Err = c.ended
	}
	if was, ok := errors.AsType[*Error](err); ok {
		e.Failed = was.Failed // of what has revoked the communicator: a call that is refused has left the world
	} else if procFailed(err) {
		if e.Failed = c.failed(); len(e.Failed) == 0 && e.Peer >= 0 && !errors.Is(err, ErrRevoked) {
			e.Failed = []int{c.worldRank(e.Peer)}
		}
	}
	if e.Peer >= 0 {
		e.PeerHost = c.world.HostOf(c.worldRank(e.Peer))
	}
	if c.handler != nil {
		c.handler(c, e)
	}
	return e
}

// typed adds to the error of a message that did not fit what its buffer is made of.
func (c *Comm) typed(err error, t *datatype.Type) error {
	if te, ok := errors.AsType[*p2p.TypeError](err); ok {
		return c.mistyped(te)
	}
	if te, ok := errors.AsType[*p2p.TruncateError](err); ok {
		te.Type, te.Elem = t.String(), t.Size()
	}
	return err
}

// mistyped is the error of a message that a receive of another type has met.
func (c *Comm) mistyped(e *p2p.TypeError) error {
	sent := datatype.MarkName(e.Message)
	return badClass(ClassType, "rank %d has sent %s with tag %d, and this receive is of %s: receive %s, or bytes, which match every type",
		c.rankOf(e.Source), sent, e.Tag, datatype.MarkName(e.Buffer), sent)
}

// failCollective is fail for an error of the collectives: unless it was a
// mistake of the call itself, the communicator is revoked by it.
func (c *Comm) failCollective(op string, err error) error {
	peer, world := -1, -1
	if ce, ok := errors.AsType[*coll.Error](err); ok {
		err = ce.Err
		if ce.Peer >= 0 {
			// Of an intercommunicator's own group nobody has a name as a peer.
			world = c.members.Rank(ce.Peer)
			peer = c.rankOf(world)
		}
	}
	p, panicked := errors.AsType[*coll.PanicError](err)
	switch {
	case panicked:
		err = &PanicError{Rank: c.world.rank, Value: p.Value, Stack: panicStack(p.Stack), title: "the operation: "}
	case errors.Is(err, coll.ErrRevoked):
		err = fmt.Errorf("%w: %w", ErrRevoked, err)
	case errors.Is(err, coll.ErrArgument):
		return c.fail(op, peer, err)
	case errors.Is(err, coll.ErrBusy):
		return c.fail(op, peer, ErrConcurrent)
	case errors.Is(err, coll.ErrPeerDead):
		err = ErrPeerDied
		if world >= 0 {
			if pe, ok := errors.AsType[*p2p.PeerError](c.world.messages.Check(world)); ok {
				err = pe.Err
			}
		}
		if !procFailed(err) { // its connection was the first to fail
			err = fmt.Errorf("%w: %w", ErrProcFailed, err)
		}
	case world >= 0 && errors.Is(err, rdma.WCRetryExcErr):
		_ = c.world.messages.Fail(world, err) // whose connection may not have been used
		err = fmt.Errorf("%w: %w", ErrProcFailed, err)
	}
	if world >= 0 && peer < 0 {
		err = fmt.Errorf("rank %d of the local group: %w", c.local.Index(world), err)
	}
	return c.revoke(op, c.fail(op, peer, err))
}

// revoke takes down that a collective failed here, and tells the other ranks,
// who may not know, and would wait for this one in their next.
func (c *Comm) revoke(op string, err error) error {
	if c.revoked == nil {
		c.revoked = err
		c.team.Revoke(op, err)
	}
	return err
}
