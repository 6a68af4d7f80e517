package rdmatest

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/gorun-mpi/gorun/rdma"
)

// A Proc is a node in another process, whose agent it drives over a
// connection. Its context, and all that is made of it, look like those of a
// context here, except that memory is reached only through a Region, and that
// every call costs a round trip.
type Proc struct {
	conn io.ReadWriteCloser
	out  *gob.Encoder
	ctx  rdma.Context
	done chan struct{} // closed when the reader has ended

	mu      sync.Mutex     // guards what follows, and out
	objects map[handle]any // that events may be of
	waiting map[uint64]chan *answer
	seq     uint64
	broken  error
}

// errGone is the error of every call to an agent that has ended.
var errGone = errors.New("the process at the other end has gone")

// Drive opens the node at the far end of conn, where [Serve] runs, and takes
// conn over.
func Drive(conn io.ReadWriteCloser) (*Proc, error) {
	p := &Proc{conn: conn, out: gob.NewEncoder(conn), done: make(chan struct{}), waiting: map[uint64]chan *answer{}, objects: map[handle]any{}}
	go p.read()
	hello, err := p.call(&call{Op: opHello})
	if err != nil {
		p.Close()
		return nil, fmt.Errorf("greet the agent: %w", err)
	}
	ctx := &procContext{p: p, name: hello.Device, limits: hello.Limits}
	p.ctx = ctx
	if hello.Reachable {
		p.ctx = &procEndpoint{ctx, hello.Data}
	}
	return p, nil
}

// Close ends the connection, and with it the agent.
func (p *Proc) Close() error {
	err := p.conn.Close()
	<-p.done
	return err
}

// read hands answers to the callers that wait for them, until conn ends.
func (p *Proc) read() {
	defer close(p.done)
	in := gob.NewDecoder(p.conn)
	for {
		a := new(answer)
		err := in.Decode(a)
		p.mu.Lock()
		if err != nil {
			p.broken = errGone
			for _, w := range p.waiting {
				close(w)
			}
			p.waiting = nil
			p.mu.Unlock()
			return
		}
		w := p.waiting[a.Seq]
		delete(p.waiting, a.Seq)
		p.mu.Unlock()
		if w != nil {
			w <- a
		}
	}
}

// call sends one call and waits for its answer. The answer is never nil.
func (p *Proc) call(c *call) (*answer, error) { return p.callUntil(context.Background(), c) }

// do is call for what gives nothing but an error.
func (p *Proc) do(c *call) error {
	_, err := p.call(c)
	return err
}

// callUntil is call for one that waits at the agent: when ctx ends it is
// cancelled there.
func (p *Proc) callUntil(ctx context.Context, c *call) (*answer, error) {
	w := make(chan *answer, 1)
	p.mu.Lock()
	if p.broken != nil {
		p.mu.Unlock()
		return new(answer), p.broken
	}
	p.seq++
	c.Seq = p.seq
	p.waiting[c.Seq] = w
	err := p.out.Encode(c)
	if err != nil {
		delete(p.waiting, c.Seq)
	}
	p.mu.Unlock()
	if err != nil {
		return new(answer), fmt.Errorf("%w: %w", errGone, err)
	}
	var a *answer
	select {
	case a = <-w:
	case <-ctx.Done():
		_, _ = p.call(&call{Op: opCancel, N: int(c.Seq)}) // an agent that has gone answers below
		if a = <-w; a != nil && a.Fault != "" {
			return a, context.Cause(ctx)
		}
	}
	if a == nil {
		return new(answer), errGone
	}
	return a, a.err()
}

// known finds an object that the agent names.
func (p *Proc) known(h handle) any {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.objects[h]
}

// Context is the agent's context.
func (p *Proc) Context() rdma.Context { return p.ctx }

// Memory makes memory in the agent's process.
func (p *Proc) Memory(pd rdma.PD, kind MemoryKind, n int, access rdma.Access) (Region, error) {
	return p.region(pd, &call{Op: opMemory, Kind: kind, N: n, Access: access})
}

// Again registers memory of the agent's process once more.
func (p *Proc) Again(pd rdma.PD, r Region, off, n int, access rdma.Access) (Region, error) {
	return p.region(pd, &call{Op: opAgain, Send: handleOf(r.MR), Off: off, N: n, Access: access})
}

// AgainAt registers it with addresses from iova on.
func (p *Proc) AgainAt(pd rdma.PD, r Region, off, n int, iova uint64, access rdma.Access) (Region, error) {
	return p.region(pd, &call{Op: opAgainAt, Send: handleOf(r.MR), Off: off, N: n, IOVA: iova, Access: access})
}

// Rereg changes a region of the agent's.
func (p *Proc) Rereg(r Region, flags rdma.ReregFlags, pd rdma.PD, to piece, access rdma.Access) (Region, error) {
	m := r.MR.(*procMR)
	d, _ := pd.(*procPD)
	a, err := p.call(&call{Op: opRereg, On: m.h, Rereg: flags, Send: handleOf(pd), Recv: handleOf(to.MR), Off: to.off, N: to.n, Access: access})
	if err != nil {
		return Region{}, err
	}
	m.addr, m.len, m.key = a.Addr, a.Value, a.Key
	if flags&rdma.ReregPD != 0 {
		m.pd = d
	}
	if flags&rdma.ReregAccess != 0 {
		m.access = access
	}
	if flags&rdma.ReregTranslation != 0 {
		r.Size = to.n
	}
	r.Base, r.memory = a.Base, &procMemory{p, a.Object}
	return r, nil
}

// Pages does to memory of the agent's process what op says.
func (p *Proc) Pages(r Region, off, n int, op pageOp) (int, error) {
	a, err := p.call(&call{Op: opPages, On: r.MR.(*procMR).h, Off: off, N: n, Page: op})
	return a.N, err
}

// region has the agent register memory of the domain.
func (p *Proc) region(pd rdma.PD, c *call) (Region, error) {
	d := pd.(*procPD)
	c.On = d.h
	return create(p, c, func(o procObject, a *answer) Region {
		mr := &procMR{procKeys: procKeys{o, d, a.Key}, addr: a.Addr, len: a.Value, access: c.Access}
		return Region{MR: mr, Base: a.Base, Size: c.N, memory: (*procMemory)(&mr.procObject)}
	})
}
