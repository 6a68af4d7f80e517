package gossip

import (
	"net"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// A transport counts the connections that memberlist makes and takes, so that
// Close can end them, and bounds writes: memberlist 0.7 sends user messages
// without a deadline (net.go, sendUserMsg).
type transport struct {
	memberlist.Transport
	timeout time.Duration
	streams chan net.Conn
	stop    chan struct{}
	done    chan struct{} // closed when forward has ended

	mu     sync.Mutex
	conns  map[*countedConn]struct{}
	closed bool
}

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

func newTransport(under memberlist.Transport, timeout time.Duration) *transport {
	t := &transport{
		Transport: under,
		timeout:   timeout,
		streams:   make(chan net.Conn),
		stop:      make(chan struct{}),
		done:      make(chan struct{}),
		conns:     make(map[*countedConn]struct{}),
	}
	go t.forward()
	return t
}

// forward counts what comes in. It runs until Shutdown, and drains what the
// transport below would otherwise block on while it shuts down.
func (t *transport) forward() {
	defer close(t.done)
	for {
		select {
		case c := <-t.Transport.StreamCh():
			counted := t.count(c)
			if counted == nil {
				continue
			}
			select {
			case t.streams <- counted:
			case <-t.stop:
				counted.Close()
			}
		case <-t.stop:
			return
		}
	}
}

// StreamCh is memberlist's.
func (t *transport) StreamCh() <-chan net.Conn { return t.streams }

// DialTimeout is memberlist's.
func (t *transport) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	c, err := t.Transport.DialTimeout(addr, timeout)
	if err != nil {
		return nil, err
	}
	counted := t.count(c)
	if counted == nil {
		return nil, ErrClosed
	}
	counted.SetDeadline(time.Now().Add(t.timeout))
	return counted, nil
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
	counted := &countedConn{c, t}
	t.conns[counted] = struct{}{}
	return counted
}

// closeAll ends all connections and lets no new one begin.
func (t *transport) closeAll() {
	t.mu.Lock()
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
	of *transport
}

func (c *countedConn) Close() error {
	c.of.mu.Lock()
	delete(c.of.conns, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}
