package rank

import (
	"context"
	"runtime/debug"

	"github.com/gorun-mpi/gorun/coll"
	"github.com/gorun-mpi/gorun/internal/wait"
)

// With Config.Deferred a rank leaves the steps of started collectives to others, which cannot take them while a
// call of the program is inside. So the program waits outside for its progress thread, and for a thread
// that calls Step in that one's own way:
//
//	program        start |      waitOutside: looks at the call      | Wait
//	other thread         | Step | Step | ... | Step: the call is over |

var _ wait.Stepper = Request{}

// Step moves what the rank has under way on by a bounded piece, some 10 us, and tells whether anything moved and whether
// the operation is over; it does not wait. It is for a collective, needs [Config].Deferred and panics without. One
// thread calls it, another one than the program's, from the start until it has told that the operation is over; the
// program waits for that before it calls Wait. While the program is in a call it moves nothing. When it panics inside, the
// operation is over, and Wait returns the [*PanicError]. A device thread of package dpa is such a thread (dpa.StepThread, and the kernel dpa.Steps).
func (q Request) Step() (moved, over bool) {
	if q.r == nil {
		return false, true
	}
	b := q.r.world.beside
	if b == nil || b.outside == nil {
		panic("rank: Request.Step needs Config.Deferred")
	}
	p := q.r.collective()
	if p == nil || p.Over() || b.failed.Load() != nil {
		return false, true
	}
	defer b.recover("Request.Step", &over)
	return b.look(true).moved, p.Over()
}

// recover is the end of a step. A panic has all later calls of the rank fail with it, as on the progress thread,
// and is not the stepping thread's own affair.
func (b *beside) recover(of string, over *bool) {
	if v := recover(); v != nil {
		b.die(&PanicError{Rank: b.w.rank, Value: v, Stack: panicStack(debug.Stack()), title: b.w.title() + of + ": "})
		*over = true
	}
}

// collective is the started call behind an active request, nil where it is another operation.
func (r *request) collective() *coll.Pending {
	what := r.what
	if o, freed := what.(once); freed {
		what = o.pending
	}
	if k, ok := what.(*call); ok && r.active {
		return k.pending
	}
	return nil
}

// waitOutside waits for a collective that the progress thread steps. One that calls a function of the program is not: Wait
// steps it, and all that was started behind it.
func (q Request) waitOutside(ctx context.Context) error {
	r := q.running()
	if r == nil {
		return nil
	}
	p := r.collective()
	b := r.world.beside
	if p == nil || b.none || r.comm.programs > 0 {
		return nil
	}
	b.stepped = stepped{b, p}
	if err := b.outside.Wait(ctx, &b.stepped); err != nil {
		return r.comm.fail("wait for "+r.op, -1, err)
	}
	return nil
}

// stepped is the end of a call that the progress thread steps, or of the thread.
type stepped struct {
	b *beside
	p *coll.Pending
}

func (s *stepped) Ready() bool { return s.p.Over() || s.b.failed.Load() != nil }
