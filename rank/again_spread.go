package rank

import (
	"context"
	"reflect"
	"slices"

	"github.com/gorun-mpi/gorun/coll"
)

// The v forms are remembered by their counts and displacements besides their shape. A rank compares what it
// gives itself, which at the leaves of a gatherv and a scatterv is one length, and its short form sends what the
// whole call would. So a rank may remember a call that is new to others.

// A spread is a call of a v form: its shape, its counts and displacements, and where its operands are.
type spread struct {
	shape
	lists      lists
	send, recv []byte
}

// lists are counts and displacements of what is sent, and of what is received. Those that a call has none of are nil.
type lists [4][]int

// same compares them. A list of no numbers is not nil: it is a mistake.
func (l *lists) same(as *lists) bool {
	for i := range l {
		if (l[i] == nil) != (as[i] == nil) || !slices.Equal(l[i], as[i]) {
			return false
		}
	}
	return true
}

// spreadOf sets the shape and the operands of s, whose kind is 0 if there is a mistake in it.
func (s *spread) spreadOf(send, recv *Buffer, root int) {
	s.shape = shapeOf(coll.Exchange, send, recv, Op{}, root)
	s.send, s.recv = send.run(), recv.run()
}

// spreadOfSlices is s.spreadOf(Of(send), Of(recv), root), in less time.
func spreadOfSlices[T Element](s *spread, send, recv []T, root int) {
	t := elementID(reflect.TypeFor[T]())
	s.kind, s.root, s.send, s.recv = coll.Exchange, root, bytesOf(send), bytesOf(recv)
	s.shape.send, s.shape.recv = operandOfSlice(t, s.send), operandOfSlice(t, s.recv)
}

// Each of these takes the lists in, and makes the call as again does. At the leaves of a gatherv and of a
// scatterv they and the root's operand are ignored.

func (c *Comm) againGatherv(ctx context.Context, s *spread, counts, displs []int) (done bool, err error) {
	if c != nil && c.rank != s.root {
		s.shape.recv, s.recv = operand{}, nil
	} else {
		s.lists[2], s.lists[3] = counts, displs
	}
	return c.againSpread(ctx, "gatherv", s)
}

func (c *Comm) againScatterv(ctx context.Context, s *spread, counts, displs []int) (done bool, err error) {
	if c != nil && c.rank != s.root {
		s.shape.send, s.send = operand{}, nil
	} else {
		s.lists[0], s.lists[1] = counts, displs
	}
	return c.againSpread(ctx, "scatterv", s)
}

func (c *Comm) againAllgatherv(ctx context.Context, s *spread, counts, displs []int) (done bool, err error) {
	s.lists[2], s.lists[3] = counts, displs
	if s.shape.send.n == absent {
		s.send = s.recv // it is there, in its place
	}
	return c.againSpread(ctx, "allgatherv", s)
}

func (c *Comm) againAlltoallv(ctx context.Context, s *spread, sendCounts, sendDispls, recvCounts, recvDispls []int) (done bool, err error) {
	s.lists = lists{sendCounts, sendDispls, recvCounts, recvDispls}
	return c.againSpread(ctx, "alltoallv", s)
}

// A spreadHabit is a habit of calls with the same lists.
type spreadHabit struct {
	habit
	lists lists
	used  bool // since it was last considered for being replaced
}

// spreadHabits are those of a communicator.
type spreadHabits struct {
	of   [8]spreadHabit
	next int        // the one to be considered
	late [16]uint64 // hashes of the last calls that were not remembered: only one that is made again is
	last int        // of late
}

func (a *spreadHabits) find(name string, s *shape, l *lists) *spreadHabit {
	for i := range a.of {
		if h := &a.of[i]; h.name == name && h.shape == *s && h.lists.same(l) {
			return h
		}
	}
	return nil
}

// free is a habit for another call: one that was not used for a while. nil: all were.
func (a *spreadHabits) free() *spreadHabit {
	h := &a.of[a.next]
	a.next = (a.next + 1) % len(a.of)
	if h.used {
		h.used = false
		return nil
	}
	return h
}

// againSpread is again of a v form.
func (c *Comm) againSpread(ctx context.Context, name string, s *spread) (done bool, err error) {
	if c == nil || c.spreads == nil || c.world.recorder != nil { // which wants each part
		return false, nil
	}
	h := c.spreads.find(name, &s.shape, &s.lists)
	if h == nil {
		return false, nil
	}
	h.used = true
	return c.repeat(ctx, &h.habit, s.send, s.recv)
}

// likeSpread is like of a v form.
func (k *call) likeSpread(s *spread) *call {
	if k.entered && s.kind != 0 && !k.comm.inter {
		k.like(&s.shape).lists = s.lists
	}
	return k
}

// rememberSpread keeps a v form that the team has just made, and made before.
func (k *call) rememberSpread() {
	c, s := k.comm, &k.shape
	if !c.team.HasShort() {
		return
	}
	if c.spreads == nil {
		c.spreads = new(spreadHabits)
	}
	a := c.spreads
	mark := hash(hash(hash(hash(hashInit, len(k.op)), s.root), s.send.n), s.recv.n)
	for _, l := range k.lists {
		mark = hashed(mark, l)
	}
	if !slices.Contains(a.late[:], mark) {
		a.last = (a.last + 1) % len(a.late)
		a.late[a.last] = mark
		return
	}
	h := a.find(k.op, s, &k.lists) // whose form could not be used
	if h == nil {
		if h = a.free(); h == nil {
			return
		}
	}
	short := c.team.ShortExchange(h.short)
	if short == nil {
		return
	}
	h.shape, h.name, h.short, h.used = *s, k.op, short, true
	for i, l := range k.lists {
		if l == nil {
			h.lists[i] = nil
		} else {
			h.lists[i] = append(h.lists[i][:0], l...)
		}
	}
}
