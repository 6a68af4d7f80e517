package comch

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"
)

// handshakes is how many clients may be showing who they are at a time; others wait in the
// kernel's queue.
const handshakes = 64

// A Listener accepts the clients of a channel.
type Listener struct {
	cfg    Config
	l      net.Listener
	greet  func(ctx context.Context, conn net.Conn) (*Conn, error)
	ready  chan *Conn
	ctx    context.Context
	cancel context.CancelFunc
	all    sync.WaitGroup
	slots  chan struct{}

	mu     sync.Mutex
	failed error // why nobody can come any more
	ended  chan struct{}
}

// Listen waits for clients on this host that give the same name. It is ErrTaken when
// another process does so already.
func Listen(cfg Config) (*Listener, error) {
	if err := cfg.settle(); err != nil {
		return nil, err
	}
	l, err := listenHere(&cfg)
	if err != nil {
		return nil, err
	}
	ln := newListener(cfg, l)
	ln.greet = func(ctx context.Context, conn net.Conn) (*Conn, error) { return greetHere(ctx, &ln.cfg, conn) }
	ln.start()
	callHere(&cfg) // clients that came first
	return ln, nil
}

// ListenTLS waits at an address, HOST:PORT, for clients of other hosts.
func ListenTLS(cfg Config, address string) (*Listener, error) {
	if err := cfg.settle(); err != nil {
		return nil, err
	}
	if err := needKey(&cfg); err != nil {
		return nil, err
	}
	tc, err := tlsConfig(&cfg, roleServer)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	ln := newListener(cfg, l)
	ln.greet = func(ctx context.Context, conn net.Conn) (*Conn, error) {
		return handshake(ctx, &ln.cfg, conn, roleServer, tc)
	}
	ln.start()
	return ln, nil
}

func newListener(cfg Config, l net.Listener) *Listener {
	ln := &Listener{cfg: cfg, l: l, ready: make(chan *Conn), slots: make(chan struct{}, handshakes), ended: make(chan struct{})}
	ln.ctx, ln.cancel = context.WithCancel(context.Background())
	return ln
}

// Addr is where the listener is.
func (ln *Listener) Addr() string { return ln.l.Addr().String() }

// Accept waits for the next client that has shown who it is.
func (ln *Listener) Accept(ctx context.Context) (*Conn, error) {
	select {
	case c := <-ln.ready:
		return c, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-ln.ended:
		ln.mu.Lock()
		defer ln.mu.Unlock()
		return nil, ln.failed
	}
}

// Close ends the listener. Channels that were accepted go on.
func (ln *Listener) Close() error {
	ln.mu.Lock()
	if ln.failed == nil {
		ln.failed = ErrClosed
	}
	ln.mu.Unlock()
	ln.cancel()
	err := ln.l.Close()
	ln.all.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func (ln *Listener) start() { ln.all.Go(ln.acceptAll) }

func (ln *Listener) acceptAll() {
	defer close(ln.ended)
	for {
		select {
		case ln.slots <- struct{}{}:
		case <-ln.ctx.Done():
			return
		}
		conn, err := ln.l.Accept()
		switch {
		case err == nil:
			ln.all.Go(func() { ln.admit(conn) })
			continue
		case ln.ctx.Err() != nil:
			return
		case !lasting(err):
			// No descriptor or memory for another one, or a client that left at once.
			<-ln.slots
			select {
			case <-time.After(10 * time.Millisecond):
			case <-ln.ctx.Done():
			}
			continue
		}
		ln.mu.Lock()
		if ln.failed == nil {
			ln.failed = err
		}
		ln.mu.Unlock()
		return
	}
}

// lasting tells whether a listener that gave err gives nothing else from now on.
func lasting(err error) bool {
	passing := []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED, syscall.EINTR, syscall.EPERM, syscall.EPROTO}
	return !slices.ContainsFunc(passing, func(p error) bool { return errors.Is(err, p) })
}

// admit has a client show who it is, and hands it on.
func (ln *Listener) admit(conn net.Conn) {
	defer func() { <-ln.slots }() // not before it is accepted, so that few wait for that
	c, err := ln.greet(ln.ctx, conn)
	if err != nil {
		if ln.ctx.Err() == nil {
			ln.cfg.log("a client was not let in: %v", err)
		}
		return
	}
	select {
	case ln.ready <- c:
	case <-ln.ctx.Done():
		_ = c.Close()
	}
}

// absent tells whether a dial failed because nobody listens (yet).
func absent(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.EHOSTUNREACH) ||
		errors.Is(err, syscall.ENETUNREACH) || errors.Is(err, syscall.ECONNRESET)
}
