package group

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"time"
)

// A Session is a client's part in a group: a *Group that computes itself, or an *Offload.
// Its calls come in the order of the run: Barrier, the batches for the network,
// Barrier, the batches, Barrier.
type Session interface {
	// Barrier waits for all members. digest, of at most 32 bytes, is that of the results in the last
	// barrier, where all must have the same, else nil.
	Barrier(digest []byte) error
	// Batch submits the vectors, one operation for each, calls meanwhile, and waits until
	// each vector is its operation's result. meanwhile may be nil.
	Batch(vectors [][]byte, meanwhile func()) error
	// Context ends when the group fails.
	Context() context.Context
	Members() int
	Contributions() int
	Algorithm() string
	// Fail ends the group for a reason of this client's own, which Close tells the others.
	Fail(err error)
	// Close ends this client's part, and returns why the group has failed, if it has.
	Close() error
}

var (
	_ Session = (*Group)(nil)
	_ Session = (*Offload)(nil)
)

// Context implements Session.
func (g *Group) Context() context.Context { return g.ctx }

// Barrier implements Session.
func (g *Group) Barrier(digest []byte) error {
	op := g.op
	g.op++
	if err := g.meet(op, digest); err != nil {
		g.fail(err)
		return g.cause(err)
	}
	return nil
}

// Batch implements Session. This client runs the algorithm itself, when it has computed.
func (g *Group) Batch(vectors [][]byte, meanwhile func()) error {
	if meanwhile != nil {
		meanwhile()
	}
	p := &pipeline{g: g}
	for _, v := range vectors {
		op := g.op
		g.op++
		if err := p.start(func() error { return g.allreduce(op, v) }); err != nil {
			break // which wait says too
		}
	}
	return p.wait()
}

// An Offload is a client whose daemon does the work.
type Offload struct {
	endpoint
	link   *link
	ctx    context.Context
	cancel context.CancelCauseFunc
	all    sync.WaitGroup
	begun  chan struct{} // closed by the start
	start  start
	most   int
	last   uint64 // operation of the run

	op uint64 // the next operation

	mu     sync.Mutex // guards the next lines
	base   uint64     // operation of the first of vectors
	batch  [][]byte   // vectors under way
	sent   int        // of them, so that results may come
	left   int        // results to come
	done   chan struct{}
	status string
}

// Connect makes this process an offloaded client of the daemon at opt.Addresses[0], and waits until
// the daemon's group is complete.
func Connect(ctx context.Context, opt Options) (*Offload, error) {
	if err := opt.Validate(); err != nil {
		return nil, err
	}
	hostname, _ := os.Hostname()
	o := &Offload{
		endpoint: endpoint{hello: opt.hello(fmt.Sprintf("%s:%d", hostname, os.Getpid())), key: opt.Key, name: opt.Name, log: opt.Log, sdk: opt.SDK},
		begun:    make(chan struct{}), most: opt.Bytes(), last: opt.last(),
	}
	o.ctx, o.cancel = context.WithCancelCause(ctx)
	if err := o.connect(opt); err != nil {
		o.cancel(err)
		return nil, o.Close()
	}
	return o, nil
}

// grace is how much later than its daemon a client gives up: the daemon knows who is missing.
const grace = 2 * time.Second

var errLate = errors.New("late")

func (o *Offload) connect(opt Options) error {
	address := opt.Addresses[0][0]
	within, cancel := context.WithTimeoutCause(o.ctx, opt.Timeout, errLate)
	defer cancel()
	var last error
	conn, _, err := dialing(within, opt.Addresses[0], func(err error) {
		if last == nil {
			o.log.Infof("waiting: no daemon has answered at %s (%v)", address, err)
		}
		if last == nil || within.Err() == nil { // an attempt that the limit ended says nothing new
			last = err
		}
	})
	if errors.Is(err, errLate) {
		return fmt.Errorf("no daemon has answered at %s within %v (--connect-timeout): %w; start it with allreduce -r daemon -c 1 -t PORT", address, opt.Timeout, last)
	}
	if err != nil {
		return err
	}
	l, err := o.greet(o.ctx, conn, "")
	if err != nil {
		return fmt.Errorf("%s: %w", address, err)
	}
	o.link = l
	o.log.Infof("connected with %s at %s", l.peer.name(), conn.RemoteAddr())
	o.all.Go(o.read)
	late := time.NewTimer(opt.Timeout + grace)
	defer late.Stop()
	select {
	case <-o.begun:
		return nil
	case <-o.ctx.Done():
		return context.Cause(o.ctx)
	case <-late.C:
		o.mu.Lock()
		defer o.mu.Unlock()
		return fmt.Errorf("%s has not started within %v (--connect-timeout): %s", l.peer.name(), opt.Timeout, o.status)
	}
}

// read takes what the daemon sends.
func (o *Offload) read() {
	defer close(o.link.ended)
	name, bye := o.link.peer.name(), false
	for {
		h, n, err := readHead(o.link.in, o.most)
		if err == nil && bye {
			err = fmt.Errorf("%w: a frame behind the last", errFrame)
		}
		if err == nil {
			bye, err = o.handle(&h, n)
		}
		switch {
		case err == nil:
			continue
		case errors.Is(err, errFrame):
			o.cancel(fmt.Errorf("%s broke the rules: %w", name, err))
		case bye && errors.Is(err, io.EOF) && o.finished():
		case bye && errors.Is(err, io.EOF):
			o.cancel(fmt.Errorf("%s has ended before all operations were done", name))
		default:
			o.cancel(fmt.Errorf("%s is gone: its connection has ended (%w)", name, plain(err)))
		}
		return
	}
}

// handle takes one frame; its payload, of n bytes, is still to be read.
func (o *Offload) handle(h *header, n int) (bye bool, err error) {
	switch {
	case h.Kind == kindBye:
		if h.Text != "" {
			o.cancel(fmt.Errorf("%s has ended: %s", o.link.peer.name(), h.Text))
		}
		return true, nil
	case h.Kind == kindStatus:
		o.mu.Lock()
		defer o.mu.Unlock()
		o.status = h.Text
		if h.Text != "" {
			o.log.Infof("waiting: %s", strings.ReplaceAll(h.Text, "this daemon", o.link.peer.name()))
		}
		return false, nil
	case h.Kind == kindStart && h.Start != nil && o.start.Members == nil && len(h.Start.Members) > 0 && h.Start.Contributions <= maxContributions:
		o.start = *h.Start
		close(o.begun)
		return false, nil
	case h.Kind == kindResult:
		return false, o.result(h.Op, n)
	}
	return false, fmt.Errorf("%w: kind %d of a daemon", errFrame, h.Kind)
}

// result takes the result of an operation that is under way.
func (o *Offload) result(op uint64, n int) error {
	o.mu.Lock()
	i := int(op - o.base)
	if op < o.base || i >= o.sent || o.batch[i] == nil || len(o.batch[i]) != n {
		o.mu.Unlock()
		if o.ctx.Err() != nil {
			return o.link.discard(n)
		}
		return fmt.Errorf("%w: a result of %d bytes for operation %d", errFrame, n, op)
	}
	to := o.batch[i]
	o.batch[i] = nil // no second one
	o.mu.Unlock()
	// The vector was sent, and Batch waits: nobody else has it.
	if _, err := io.ReadFull(o.link.in, to); err != nil {
		return unexpected(err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.left--; o.left == 0 {
		close(o.done)
	}
	return nil
}

// submit begins operations with a vector each, and sends the vectors on a goroutine.
func (o *Offload) submit(vectors [][]byte) (done chan struct{}) {
	o.mu.Lock()
	o.base, o.batch, o.sent, o.left = o.op, append(o.batch[:0], vectors...), 0, len(vectors)
	o.done = make(chan struct{})
	done = o.done
	o.mu.Unlock()
	first := o.op
	o.op += uint64(len(vectors))
	o.all.Go(func() {
		for i, v := range vectors {
			o.mu.Lock()
			// From here on the result may come: the daemon has it only when it has all
			// of the vector, which is then written.
			o.sent = i + 1
			o.mu.Unlock()
			if err := o.link.send(header{Kind: kindVector, Op: first + uint64(i)}, v); err != nil {
				select { // the reader knows more
				case <-o.link.ended:
				case <-o.ctx.Done():
				}
				o.cancel(fmt.Errorf("%s is gone: %w", o.link.peer.name(), plain(err)))
				return
			}
		}
	})
	return done
}

func (o *Offload) wait(done chan struct{}) error {
	_, _, err := await(o.ctx, done, func(d time.Duration) {
		o.log.Infof("waiting: %s has not sent all results up to operation %d for %v", o.link.peer.name(), o.op-1, d.Round(time.Second))
	})
	return err
}

// finished tells whether all results of the run are here.
func (o *Offload) finished() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.left == 0 && o.base == o.last
}

// Batch implements Session: the daemon works while this client computes.
func (o *Offload) Batch(vectors [][]byte, meanwhile func()) error {
	done := o.submit(vectors)
	if meanwhile != nil {
		meanwhile()
	}
	return o.wait(done)
}

// Barrier implements Session.
func (o *Offload) Barrier(digest []byte) error {
	o.mu.Lock()
	o.base, o.batch, o.sent, o.left = o.op, append(o.batch[:0], []byte{}), 1, 1
	o.done = make(chan struct{})
	done := o.done
	o.mu.Unlock()
	op := o.op
	o.op++
	if err := o.link.send(header{Kind: kindVector, Op: op}, digest); err != nil && !errors.Is(err, net.ErrClosed) {
		select {
		case <-o.link.ended:
		case <-o.ctx.Done():
		}
		o.cancel(fmt.Errorf("%s is gone: %w", o.link.peer.name(), plain(err)))
	}
	return o.wait(done)
}

// Context implements Session.
func (o *Offload) Context() context.Context { return o.ctx }

// Members implements Session.
func (o *Offload) Members() int { return len(o.start.Members) }

// Contributions implements Session.
func (o *Offload) Contributions() int { return o.start.Contributions }

// Algorithm implements Session.
func (o *Offload) Algorithm() string { return o.start.Algorithm }

// Fail implements Session.
func (o *Offload) Fail(err error) { o.cancel(err) }

// Close implements Session.
func (o *Offload) Close() error {
	o.cancel(errDone)
	cause := context.Cause(o.ctx)
	reason := ""
	switch {
	case errors.Is(cause, errDone):
		cause = nil
	case errors.Is(cause, context.Canceled):
		reason = "it was interrupted"
	default:
		reason = cause.Error()
	}
	if o.link != nil {
		o.link.part(reason)
	}
	o.all.Wait()
	return cause
}
