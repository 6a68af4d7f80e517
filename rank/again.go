package rank

import (
	"context"
	"reflect"

	"github.com/gorun-mpi/gorun/coll"
	"github.com/gorun-mpi/gorun/internal/kernel"
)

// Programs make the same collectives over and over. A blocking one of small operands
// that lie as they travel is remembered with its short form: the next one of the same
// shape is right if that one was, and goes to the team at once. It costs some 20 ns
// before anybody is waited for where binding all anew costs 100.

// A shape is all that the arguments of a collective say, but for where the operands
// are: what was right for one call is right for another of the same shape.
type shape struct {
	kind       coll.Kind
	op         Op // of a reduction
	root       int
	send, recv operand
}

// An operand is what a Buffer says, but for where it is.
type operand struct {
	t typeID
	n int // items of a datatype that was given, else bytes
}

// absent is the number of items of an operand that is in place.
const absent = -1

// noOperand is the operand that a collective has none of.
var noOperand Buffer

// operandOf gives what b says; ok is false for items that do not lie in its memory.
func operandOf(b *Buffer) (o operand, ok bool) {
	switch {
	case b.here():
		return operand{elementID(b.elem), absent}, true
	case !b.typed:
		return operand{elementID(b.elem), len(b.mem)}, true
	}
	return operand{datatypeID(b.t), b.count}, b.run() != nil
}

// operandOfSlice is operandOf of a slice of elements of type t in mem.
func operandOfSlice(t typeID, mem []byte) operand {
	if mem == nil {
		return operand{t, absent}
	}
	return operand{t, len(mem)}
}

// A habit is a shape of calls with their short form.
type habit struct {
	shape
	name  string // of the call
	short *coll.Short
	f     kernel.Func // of a reduction
}

// habits are those of a kind of calls. A shape has two buckets, the one that its hash
// says and the neighbouring one, where what is replaced moves to.
type habits [4]habit

// bucket is the first of a shape's buckets.
func (s *shape) bucket() uint32 {
	h := uint32(s.send.n) + uint32(s.recv.n)<<2 + uint32(s.root)<<5 + uint32(s.op.code)
	return h * 0x9e3779b1 >> (32 - 2)
}

// shapeOf is the shape of a call, of kind 0 if there is a mistake in it.
func shapeOf(kind coll.Kind, send, recv *Buffer, op Op, root int) (s shape) {
	from, ok := operandOf(send)
	to, too := operandOf(recv)
	if ok && too {
		s = shape{kind: kind, op: op, root: root, send: from, recv: to}
	}
	return s
}

// shapeOfSlices is shapeOf(kind, Of(send), Of(recv), op, root), and takes half the time.
func shapeOfSlices[T Element](kind coll.Kind, send, recv []T, op Op, root int) shape {
	t := elementID(reflect.TypeFor[T]())
	return shape{kind: kind, op: op, root: root, send: operandOfSlice(t, bytesOf(send)), recv: operandOfSlice(t, bytesOf(recv))}
}

// again makes a call of a shape that is remembered; done is false when it is none, and
// nothing was done.
func (c *Comm) again(ctx context.Context, s *shape, send, recv []byte) (done bool, err error) {
	if c == nil {
		return false, nil
	}
	known := c.habits[s.kind]
	if known == nil {
		return false, nil
	}
	at := s.bucket()
	h := &known[at]
	if h.shape != *s {
		if h = &known[at^1]; h.shape != *s {
			return false, nil
		}
	}
	return c.repeat(ctx, h, send, recv)
}

// repeat makes a call of a habit.
func (c *Comm) repeat(ctx context.Context, h *habit, send, recv []byte) (done bool, err error) {
	if c.world.enter() != nil {
		return false, nil
	}
	if c.barred || c.revoked != nil {
		c.world.leave()
		return false, nil
	}
	if c.world.recorder != nil {
		c.record(len(send), len(recv), false)
	}
	if done, err = c.team.RunShort(ctx, h.short, send, recv, h.f); err != nil {
		err = c.failCollective(h.name, err)
	}
	c.world.leave()
	return done, err
}

// like has a blocking call remembered under its shape, if it has a short form.
func (k *call) like(s *shape) *call {
	if k.entered {
		k.shape = *s
	}
	return k
}

// remember keeps the shape of a call that the team has just made.
func (k *call) remember() {
	c := k.comm
	if len(k.send.stages)+len(k.recv.stages) > 0 || c.world.narrator != nil {
		return
	}
	if k.shape.kind == coll.Exchange {
		k.rememberSpread()
		return
	}
	short := c.team.Short(&k.args.Reduction)
	if short == nil {
		return
	}
	known := &c.habits[k.shape.kind]
	if *known == nil {
		*known = new(habits)
	}
	at := k.shape.bucket()
	if old := (*known)[at]; old.shape != k.shape {
		(*known)[at^1] = old
	}
	(*known)[at] = habit{shape: k.shape, name: k.op, short: short, f: k.args.Reduction.Func}
}
