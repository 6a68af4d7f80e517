package group

import (
	"context"
	"fmt"
	"math/bits"
	"time"

	"github.com/gorun-mpi/gorun/internal/kernel"
)

// The algorithms. n is the number of participants, m the bytes of a vector; the cost is what
// each participant sends, and how many messages follow each other.
const (
	// Auto is Mesh or RecursiveDoubling for short vectors, else ReduceScatter.
	Auto = "auto"
	// Mesh: each sends its vector to all, and combines all in order. (n-1) m bytes, 1 message.
	Mesh = "mesh"
	// Ring: each segment of the vector goes around once to be combined, and once more with the
	// result. 2 m (n-1)/n bytes, 2 (n-1) messages.
	Ring = "ring"
	// RecursiveDoubling: groups that double in size exchange what they have combined.
	// m log2 n bytes, log2 n messages; 2 more where n is no power of two.
	RecursiveDoubling = "recursive-doubling"
	// ReduceScatter: each combines one segment of all vectors, in order, and sends it to all: a
	// reduce-scatter and an all-gather. 2 m (n-1)/n bytes, 2 messages.
	ReduceScatter = "reduce-scatter"
)

// Algorithms are their names.
func Algorithms() []string { return []string{Auto, Mesh, Ring, RecursiveDoubling, ReduceScatter} }

// shortVector is where bytes begin to cost more than messages, over TCP.
const shortVector = 16 << 10

// choose settles Auto for n participants.
func choose(c *Config, n int) string {
	switch {
	case c.Algorithm != Auto:
		return c.Algorithm
	case c.Bytes() > shortVector:
		return ReduceScatter
	case n <= 4:
		return Mesh
	}
	return RecursiveDoubling
}

// An exchange is one operation among the participants. v is this one's vector, and the result.
type exchange struct {
	g   *Group
	op  uint64
	v   []byte
	r   kernel.Reduction
	n   int // participants
	own int
}

// allreduce combines the vectors of all participants in place.
func (g *Group) allreduce(op uint64, v []byte) error {
	x := &exchange{g: g, op: op, v: v, r: g.opt.Reduction(), n: len(g.members), own: g.self}
	err := x.run(g.algorithm)
	if err == nil {
		g.box.finish(op)
	}
	return err
}

func (x *exchange) run(algorithm string) error {
	switch {
	case x.n == 1:
		return nil
	case algorithm == Mesh:
		return x.mesh()
	case algorithm == Ring:
		return x.ring()
	case algorithm == RecursiveDoubling:
		return x.doubling()
	}
	return x.reduceScatter()
}

func (x *exchange) send(to, step int, b []byte) error {
	if err := x.g.peers[to].send(header{Kind: kindData, Op: x.op, Step: step}, b); err != nil {
		return x.g.gone(x.g.peers[to], err)
	}
	return nil
}

// recv waits for n bytes of a participant, to be released.
func (x *exchange) recv(from, step, n int) ([]byte, error) {
	b, err := x.g.box.take(x.g.ctx, slot{x.g.members[from], x.op, step}, x.g.slow(x.g.peers[from], x.op))
	if err != nil {
		return nil, x.g.gone(x.g.peers[from], err)
	}
	if len(b) != n {
		return nil, fmt.Errorf("%s broke the rules: %w: %d bytes in step %d of operation %d, expected %d", x.g.peers[from].peer.name(), errFrame, len(b), step, x.op, n)
	}
	return b, nil
}

// slow tells that a member is awaited.
func (g *Group) slow(l *link, op uint64) func(time.Duration) {
	return func(d time.Duration) {
		g.log.Infof("waiting: %s has not come to operation %d for %v", l.peer.name(), op, d.Round(time.Second))
	}
}

// gone is the error of a link, or why the group has failed before.
func (g *Group) gone(l *link, err error) error {
	// The reader knows more: whether there was a reason.
	select {
	case <-l.ended:
	case <-g.ctx.Done():
	}
	if cause := context.Cause(g.ctx); cause != nil {
		return cause
	}
	return fmt.Errorf("%s is gone: %w", l.peer.name(), plain(err))
}

// segment is the k-th of the n parts of the vector.
func (x *exchange) segment(k int) []byte {
	count := len(x.v) / x.r.Elem
	return x.v[count*k/x.n*x.r.Elem : count*(k+1)/x.n*x.r.Elem]
}

// combine combines what all have sent in a step with own, in the participants' order, into own.
func (x *exchange) combine(step int, own []byte) error {
	if x.own == 0 {
		for from := 1; from < x.n; from++ {
			b, err := x.recv(from, step, len(own))
			if err != nil {
				return err
			}
			x.r.Func(own, own, b)
			x.g.box.release(b)
		}
		return nil
	}
	sum, err := x.recv(0, step, len(own))
	if err != nil {
		return err
	}
	for from := 1; from < x.n; from++ {
		if from == x.own {
			x.r.Func(sum, sum, own)
			continue
		}
		b, err := x.recv(from, step, len(own))
		if err != nil {
			return err
		}
		x.r.Func(sum, sum, b)
		x.g.box.release(b)
	}
	copy(own, sum)
	x.g.box.release(sum)
	return nil
}

// others calls f for each other participant, the next one first, so that not all begin with
// the same.
func (x *exchange) others(f func(k int) error) error {
	for i := 1; i < x.n; i++ {
		if err := f((x.own + i) % x.n); err != nil {
			return err
		}
	}
	return nil
}

func (x *exchange) mesh() error {
	if err := x.others(func(k int) error { return x.send(k, 0, x.v) }); err != nil {
		return err
	}
	return x.combine(0, x.v)
}

func (x *exchange) reduceScatter() error {
	if err := x.others(func(k int) error { return x.send(k, 0, x.segment(k)) }); err != nil {
		return err
	}
	own := x.segment(x.own)
	if err := x.combine(0, own); err != nil {
		return err
	}
	if err := x.others(func(k int) error { return x.send(k, 1, own) }); err != nil {
		return err
	}
	return x.others(func(k int) error { return x.receive(k, 1, x.segment(k)) })
}

// receive is recv into a place.
func (x *exchange) receive(from, step int, to []byte) error {
	b, err := x.recv(from, step, len(to))
	if err != nil {
		return err
	}
	copy(to, b)
	x.g.box.release(b)
	return nil
}

// ring combines segment k in the order k, k+1, ..., k-1, so each segment has an order of its
// own, which is the same everywhere: one participant completes it.
func (x *exchange) ring() error {
	next, previous := (x.own+1)%x.n, (x.own+x.n-1)%x.n
	at := func(k int) []byte { return x.segment((k%x.n + x.n) % x.n) }
	for step := range x.n - 1 {
		if err := x.send(next, step, at(x.own-step)); err != nil {
			return err
		}
		to := at(x.own - step - 1)
		b, err := x.recv(previous, step, len(to))
		if err != nil {
			return err
		}
		x.r.Func(to, b, to)
		x.g.box.release(b)
	}
	for step := range x.n - 1 {
		if err := x.send(next, x.n+step, at(x.own+1-step)); err != nil {
			return err
		}
		if err := x.receive(previous, x.n+step, at(x.own-step)); err != nil {
			return err
		}
	}
	return nil
}

// doubling: with p the greatest power of two up to n, the first n-p pairs of neighbours combine
// first, and the odd one of each stands for both. Then p stand in p groups of 1, which
// exchange with their neighbour group and become one, until one group is left.
// The lower group's vector is always the left operand, so both compute the same bits.
func (x *exchange) doubling() error {
	p := 1 << (bits.Len(uint(x.n)) - 1)
	pairs := x.n - p
	const fold, back = 0, 1 // steps; the others are 2 and more
	if x.own < 2*pairs && x.own%2 == 0 {
		if err := x.send(x.own+1, fold, x.v); err != nil {
			return err
		}
		return x.receive(x.own+1, back, x.v)
	}
	place := x.own - pairs
	if x.own < 2*pairs {
		place = x.own / 2
		b, err := x.recv(x.own-1, fold, len(x.v))
		if err != nil {
			return err
		}
		x.r.Func(x.v, b, x.v)
		x.g.box.release(b)
	}
	for step, mask := 2, 1; mask < p; step, mask = step+1, 2*mask {
		partner := place ^ mask
		if partner < pairs {
			partner = 2*partner + 1
		} else {
			partner += pairs
		}
		if err := x.send(partner, step, x.v); err != nil {
			return err
		}
		b, err := x.recv(partner, step, len(x.v))
		if err != nil {
			return err
		}
		if place&mask == 0 {
			x.r.Func(x.v, x.v, b)
		} else {
			x.r.Func(x.v, b, x.v)
		}
		x.g.box.release(b)
	}
	if x.own < 2*pairs {
		return x.send(x.own-1, back, x.v)
	}
	return nil
}

// barrier waits until all participants are in it, and gives out what each of them had to say.
func (g *Group) barrier(op uint64, own []byte) ([][]byte, error) {
	x := &exchange{g: g, op: op, n: len(g.members), own: g.self}
	if err := x.others(func(k int) error { return x.send(k, 0, own) }); err != nil {
		return nil, err
	}
	all := make([][]byte, x.n)
	all[x.own] = own
	err := x.others(func(k int) error {
		b, err := g.box.take(g.ctx, slot{g.members[k], op, 0}, g.slow(g.peers[k], op))
		if err != nil {
			return g.gone(g.peers[k], err)
		}
		all[k] = b
		return nil
	})
	if err == nil {
		g.box.finish(op)
	}
	return all, err
}
