package group

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
)

// errDiffer: members have different results.
var errDiffer = errors.New("the results differ")

// agreed holds the digests of members' results against each other. A member without a result has
// none.
func agreed(digests [][]byte, name func(i int) string) ([]byte, error) {
	first := -1
	for i, d := range digests {
		switch {
		case len(d) == 0:
		case first < 0:
			first = i
		case !bytes.Equal(d, digests[first]):
			return nil, fmt.Errorf("%w: %s has %x, %s has %x", errDiffer, name(first), digests[first], name(i), d)
		}
	}
	if first < 0 {
		return nil, nil
	}
	return digests[first], nil
}

// meet is a barrier of the whole group. digest is that of this participant's own results, or of its
// clients'; in the last barrier all must be the same.
func (g *Group) meet(op uint64, digest []byte) error {
	all, err := g.barrier(op, digest)
	if err != nil {
		return err
	}
	_, err = agreed(all, func(i int) string {
		if i == g.self {
			return "this " + string(g.opt.Kind)
		}
		return g.peers[i].peer.name()
	})
	return err
}

// A pipeline runs operations in order of their start, depth at a time: one starts when the one depth before
// it is done.
type pipeline struct {
	g    *Group
	done [depth]chan struct{} // of the last operations
	n    int
}

// start runs f on a goroutine, when there is room. f's error ends the group.
func (p *pipeline) start(f func() error) error {
	if err := p.room(); err != nil {
		return err
	}
	done := make(chan struct{})
	p.done[p.n%depth] = done
	p.n++
	p.g.all.Go(func() {
		defer close(done)
		if err := f(); err != nil {
			p.g.fail(err)
		}
	})
	return nil
}

func (p *pipeline) room() error {
	if last := p.done[p.n%depth]; last != nil {
		<-last // ends with the group at the latest
	}
	return context.Cause(p.g.ctx)
}

// wait waits for all that was started.
func (p *pipeline) wait() error {
	for _, done := range p.done {
		if done != nil {
			<-done
		}
	}
	return context.Cause(p.g.ctx)
}

// Serve is a daemon's work: all operations, for its clients. It returns how many vectors were
// combined.
func (g *Group) Serve() (operations int, err error) {
	if err := g.serve(&operations); err != nil {
		g.fail(err)
		return operations, g.cause(err)
	}
	return operations, nil
}

func (g *Group) serve(operations *int) error {
	c := &g.opt.Config
	p := &pipeline{g: g}
	for op := uint64(0); op <= c.last(); op++ {
		if c.barrier(op) {
			if err := p.wait(); err != nil {
				return err
			}
			if err := g.meetClients(op); err != nil {
				return err
			}
			continue
		}
		// Vectors are combined while those of the next operations come.
		vectors, err := g.gather(op, c.Bytes())
		if err != nil {
			return err
		}
		*operations++
		if err := p.start(func() error { return g.reduce(op, vectors) }); err != nil {
			return err
		}
	}
	return nil
}

// gather waits for what each client has for an operation; each of n bytes, unless n is -1.
func (g *Group) gather(op uint64, n int) ([][]byte, error) {
	all := make([][]byte, len(g.clients))
	for i, l := range g.clients {
		v, ok, err := await(g.ctx, l.vectors, g.slow(l, op))
		switch {
		case err != nil:
			return nil, err
		case !ok:
			return nil, g.gone(l, fmt.Errorf("it ended before operation %d", op))
		case v.op != op || n >= 0 && len(v.b) != n || n < 0 && len(v.b) > maxDigest:
			return nil, fmt.Errorf("%s broke the rules: %w: %d bytes for operation %d, while operation %d is under way", l.peer.name(), errFrame, len(v.b), v.op, op)
		}
		all[i] = v.b
	}
	return all, nil
}

// reduce combines the clients' vectors, in their order, then with the other participants', and
// gives each client the result.
func (g *Group) reduce(op uint64, vectors [][]byte) error {
	r := g.opt.Reduction()
	sum := vectors[0]
	for _, v := range vectors[1:] {
		r.Func(sum, sum, v)
		g.box.release(v)
	}
	if err := g.allreduce(op, sum); err != nil {
		return err
	}
	defer g.box.release(sum)
	return g.tell(header{Kind: kindResult, Op: op}, sum)
}

// tell sends a frame to all clients, to all at the same time: one that is slow holds no other up.
func (g *Group) tell(h header, b []byte) error {
	var all sync.WaitGroup
	errs := make([]error, len(g.clients))
	for i, l := range g.clients {
		all.Go(func() {
			if err := l.send(h, b); err != nil {
				errs[i] = g.gone(l, err)
			}
		})
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// meetClients is a barrier of the group with its clients.
func (g *Group) meetClients(op uint64) error {
	digests, err := g.gather(op, -1)
	if err != nil {
		return err
	}
	digest, err := agreed(digests, func(i int) string { return g.clients[i].peer.name() })
	if err != nil {
		return err
	}
	if err := g.meet(op, digest); err != nil {
		return err
	}
	return g.tell(header{Kind: kindResult, Op: op}, nil)
}
