package gossip

import (
	"context"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/gorun-mpi/gorun/internal/tlskey"
	"github.com/hashicorp/memberlist"
)

// A transport counts the connections that memberlist makes and takes, so that
// Close can end them, and bounds writes: memberlist 0.7 sends user messages
// without a deadline (net.go, sendUserMsg).
//
// memberlist reads up to 20 MiB of a connection before it looks whether they were
// encrypted with the key (net.go, decryptRemoteState). So each connection begins with
// a proof of the key, and memberlist is given those whose proof is good. The tree's connections
// come by the same port; their proof says so.
type transport struct {
	memberlist.Transport
	dials    func(address string, limit time.Duration) (net.Conn, error)
	timeout  time.Duration
	unproven time.Duration // see Config
	prover   prover
	server   secret         // of the branches to children; nil: there are none
	client   secret         // of the branch to the parent
	climbed  func(net.Conn) // serves a child's connection, whose TLS is up
	streams  chan net.Conn
	stop     chan struct{}
	closing  chan struct{} // closed by closeAll
	done     chan struct{} // closed when forward has ended
	askers   sync.WaitGroup

	mu      sync.Mutex
	conns   map[*countedConn]struct{}
	waiting []*countedConn // that have not proved the key; the oldest first
	self    string         // address of this node
	closed  bool
}

// Bounds of connections that have not proved the key.
const (
	unprovenMax  = 256 // beyond it the oldest is closed
	unprovenTime = 10 * time.Second
)

var _ memberlist.Transport = (*transport)(nil)

// listen makes memberlist's own transport. UDP must get the port that TCP got,
// which may be taken: then another is tried.
func listen(mc *memberlist.Config) (memberlist.Transport, error) {
	const tries = 10
	var err error
	for range tries {
		var t *memberlist.NetTransport
		t, err = memberlist.NewNetTransport(&memberlist.NetTransportConfig{
			BindAddrs: []string{mc.BindAddr}, BindPort: mc.BindPort, Logger: mc.Logger,
		})
		if err == nil {
			if mc.BindPort == 0 {
				mc.BindPort = t.GetAutoBindPort()
				mc.AdvertisePort = mc.BindPort
			}
			return t, nil
		}
		if mc.BindPort != 0 {
			break
		}
	}
	return nil, err
}

// start begins to take connections. What stands before streams is set.
func (t *transport) start() {
	t.streams = make(chan net.Conn)
	t.stop, t.closing, t.done = make(chan struct{}), make(chan struct{}), make(chan struct{})
	t.conns = make(map[*countedConn]struct{})
	go t.forward()
}

// forward counts what comes in. It runs until Shutdown, and drains what the
// transport below would otherwise block on while it shuts down.
func (t *transport) forward() {
	defer close(t.done)
	for {
		select {
		case c := <-t.Transport.StreamCh():
			if counted := t.count(c); counted != nil {
				t.wait(counted)
				t.askers.Go(func() { t.admit(counted) })
			}
		case <-t.stop:
			return
		}
	}
}

// known says where others reach this node: proofs are for that address.
func (t *transport) known(self string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.self = self
}

// wait makes a connection one that has not proved the key.
func (t *transport) wait(c *countedConn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.waiting) == unprovenMax {
		t.waiting[0].Conn.Close() // it leaves by itself
		t.waiting = slices.Delete(t.waiting, 0, 1)
	}
	t.waiting = append(t.waiting, c)
}

// proved tells what a connection is for that proves the key, and secures one of the tree, which keeps
// its deadline; "": it does not. It waits no more.
func (t *transport) proved(c *countedConn) (conn net.Conn, magic string) {
	defer func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if at := slices.Index(t.waiting, c); at >= 0 {
			t.waiting = slices.Delete(t.waiting, at, at+1)
		}
	}()
	c.SetDeadline(time.Now().Add(t.unproven))
	t.mu.Lock()
	self := t.self
	t.mu.Unlock()
	conn = c
	if magic = t.prover.check(c, self); magic == magicFence {
		if t.server == nil {
			return nil, ""
		}
		ctx, cancel := context.WithTimeout(context.Background(), unprovenTime)
		defer cancel()
		secure, err := t.server.handshake(ctx, c, tlskey.Server)
		if err != nil {
			return nil, ""
		}
		conn = secure
	}
	if magic != magicFence && c.SetDeadline(time.Time{}) != nil {
		return nil, ""
	}
	return conn, magic
}

// admit gives memberlist, or the tree, a connection that proves the key.
func (t *transport) admit(c *countedConn) {
	conn, magic := t.proved(c)
	switch magic {
	case "":
		c.Close()
		return
	case magicFence:
		t.climbed(conn)
		c.Close()
		return
	}
	select {
	case t.streams <- c:
	case <-t.stop:
		c.Close()
	}
}

// StreamCh is memberlist's.
func (t *transport) StreamCh() <-chan net.Conn { return t.streams }

// DialTimeout is memberlist's.
func (t *transport) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	return t.open(addr, timeout, magicMember)
}

// open makes a connection for what magic says, with a deadline.
func (t *transport) open(addr string, timeout time.Duration, magic string) (net.Conn, error) {
	c, err := t.dial(addr, timeout)
	if err != nil {
		return nil, err
	}
	counted := t.count(c)
	if counted == nil {
		return nil, ErrClosed
	}
	counted.SetDeadline(time.Now().Add(t.timeout))
	if _, err := counted.Write(t.prover.proof(magic, addr)); err != nil {
		counted.Close()
		return nil, err
	}
	counted.first = true
	return counted, nil
}

// dial dials, until closeAll: a host that is cut off lets a dial wait for its whole
// time, which the closing of a node need not. The goroutine ends with the dial.
func (t *transport) dial(addr string, timeout time.Duration) (net.Conn, error) {
	type result struct {
		c   net.Conn
		err error
	}
	dialed := make(chan result, 1)
	go func() {
		c, err := t.dials(addr, timeout)
		dialed <- result{c, err}
	}()
	select {
	case r := <-dialed:
		return r.c, r.err
	case <-t.closing:
	}
	go func() {
		if r := <-dialed; r.err == nil {
			r.c.Close()
		}
	}()
	return nil, ErrClosed
}

// Shutdown is memberlist's; it does nothing the second time.
func (t *transport) Shutdown() error {
	t.closeAll()
	err := t.Transport.Shutdown()
	t.mu.Lock()
	select {
	case <-t.stop:
	default:
		close(t.stop)
	}
	t.mu.Unlock()
	<-t.done
	t.askers.Wait()
	return err
}

// count takes a connection over; nil when the transport is closed, and then so
// is the connection.
func (t *transport) count(c net.Conn) *countedConn {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		c.Close()
		return nil
	}
	counted := &countedConn{Conn: c, of: t}
	t.conns[counted] = struct{}{}
	return counted
}

// closeAll ends all connections and lets no new one begin.
func (t *transport) closeAll() {
	t.mu.Lock()
	if !t.closed {
		close(t.closing)
	}
	t.closed = true
	conns := t.conns
	t.conns = nil
	t.mu.Unlock()
	for c := range conns {
		c.Conn.Close()
	}
}

type countedConn struct {
	net.Conn
	of    *transport
	first bool // the next Read may bring the word that the key differs
}

// NetConn is what it counts.
func (c *countedConn) NetConn() net.Conn { return c.Conn }

// Read gives ErrKey where the other side says so.
func (c *countedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.first && n > 0 {
		c.first = false
		if refused(b[:n]) {
			return 0, ErrKey
		}
	}
	return n, err
}

func (c *countedConn) Close() error {
	c.of.mu.Lock()
	delete(c.of.conns, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}
