package rank

import "sync/atomic"

// A General is an operation of the program with a generalized request,
// which calls of this package can wait for: see [Comm.StartGeneral].
type General struct {
	over  atomic.Bool
	calls GeneralCalls
}

// GeneralCalls are the callbacks of a generalized request. Each may be
// nil. They run inside a call of the world, and must not call into it.
type GeneralCalls struct {
	// Query returns the status or the error of a completed operation.
	Query func() (Status, error)
	// Free is called when the request is freed. If Query returned no error,
	// the waiting call returns Free's.
	Free func() error
	// Cancel is called by [Request.Cancel] while the operation is not
	// complete. The program still has to call [General.Complete].
	Cancel func()
}

// StartGeneral makes a generalized request for an operation that the program carries out
// (MPI_Grequest_start), usually in a goroutine. It completes when the program calls [General.Complete].
func (c *Comm) StartGeneral(calls GeneralCalls) (*General, Request, error) {
	const op = "grequest_start"
	if err := c.enter(); err != nil {
		return nil, Request{}, c.fail(op, -1, err)
	}
	defer c.world.leave()
	g := &General{calls: calls}
	return g, c.world.newRequest(c, "generalised request").started((*general)(g)), nil
}

// Complete reports that the operation is complete (MPI_Grequest_complete). Any goroutine may call it, also
// while the rank is in another call. A call that waits for the request notices within some milliseconds.
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

func (g *general) start() error { return badClass(ClassRequest, "the request is not persistent") }
func (g *general) free()        {}
