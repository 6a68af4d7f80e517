package rank

import "sync/atomic"

// A General is an operation of the program itself that others wait for as they do for
// one of this package (a generalised request): see [Comm.StartGeneral].
type General struct {
	over  atomic.Bool
	calls GeneralCalls
}

// GeneralCalls are what the request of a General asks the program. Each may be nil. They
// run inside a call of the world, and must not call into it.
type GeneralCalls struct {
	// Query gives the outcome of an operation that is over.
	Query func() (Status, error)
	// Free is called when the request is done with. An error is what the call that
	// waits ends with, unless Query has given one.
	Free func() error
	// Cancel is called by [Request.Cancel] while the operation is not over. It is
	// still to be completed.
	Cancel func()
}

// StartGeneral makes a request of an operation that the program carries out
// (MPI_Grequest_start), in a goroutine of its own most often. It is over when
// [General.Complete] says so.
func (c *Comm) StartGeneral(calls GeneralCalls) (*General, Request, error) {
	const op = "grequest_start"
	if err := c.enter(); err != nil {
		return nil, Request{}, c.fail(op, -1, err)
	}
	defer c.world.leave()
	g := &General{calls: calls}
	return g, c.world.newRequest(c, "generalised request").started((*general)(g)), nil
}

// Complete says that the operation is over (MPI_Grequest_complete). It may be called by
// any goroutine, while the rank is in another call too; who waits notices within some
// milliseconds.
func (g *General) Complete() { g.over.Store(true) }

// general is a General as its request sees it.
type general General

var _ pending = (*general)(nil)

func (g *general) done() bool { return g.over.Load() }

func (g *general) finish(st *Status) (err error) {
	*st = emptyStatus
	if g.calls.Query != nil {
		*st, err = g.calls.Query()
	}
	if g.calls.Free != nil {
		if failed := g.calls.Free(); err == nil {
			err = failed
		}
	}
	return err
}

func (g *general) cancel() {
	if g.calls.Cancel != nil {
		g.calls.Cancel()
	}
}

func (g *general) start() error { return badClass(ClassRequest, "it is not persistent") }
func (g *general) free()        {}
