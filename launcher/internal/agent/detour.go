package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/yamux"
	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/peer"
)

// A detour takes connections of a host where this host cannot connect to another one, as a firewall may have it: over the streams
// between gorun and the two agents, which ssh carries.
//
//	rank ── loopback ── agent ══ gorun ══ agent ── own address ── rank
//	                    agent ══ gorun ══ agent ── own address ── agent   (fences and membership)
//
// Ranks ask at a port of the loopback address, with one line, and are answered by one:
//
//	to IP:port   ->  direct     connect to it: this agent can
//	                 carried    what follows goes there
//	                 no REASON
//	try IP:port  ->  direct, or closed: nothing is carried
//
// Between the agents each connection is a stream of yamux, which begins with the line IP:port and is answered by "carried", or "no REASON".
type detour struct {
	own     netip.Addr // of this host: nothing else is connected to from elsewhere
	carrier *carrier
	door    *peer.Door
	port    *os.File        // where ranks ask
	ctx     context.Context // of connections that are tried
	cancel  context.CancelFunc
	name    string // of that

	mu      sync.Mutex
	shut    map[netip.Addr]time.Time     // until when a host is taken for one to which this one cannot connect
	tries   map[netip.Addr]chan struct{} // hosts that are tried just now; closed at the end
	inside  map[net.Conn]bool            // connections of ranks
	closed  bool
	serving sync.WaitGroup
}

const (
	// carried answers a line whose connection is now carried.
	carried = "carried"
	// tryLimit is how long a connection may take: TCP sends its first packet anew after 1 and 3 s.
	tryLimit = 3500 * time.Millisecond
	// carryLimit is how long the other agent may take to connect to its own host.
	carryLimit = 5 * time.Second
	// shutFor is how long a host that could not be connected to is not tried again. One to which a connection was carried never is.
	shutFor, shutForever = 10 * time.Second, 1000 * time.Hour
	// askersMost bounds the ranks that ask and are carried at a time.
	askersMost = 4096
	// lineMost bounds a line.
	lineMost = 200
)

// openDetour makes the detour of an agent whose host has an address of its own.
func openDetour(own netip.Addr, c *carrier) (*detour, error) {
	d := &detour{own: own, carrier: c, shut: map[netip.Addr]time.Time{}, tries: map[netip.Addr]chan struct{}{}, inside: map[net.Conn]bool{}}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	c.taken = d.arrive
	l, err := net.Listen("tcp4", netip.AddrPortFrom(loopback, 0).String())
	if err != nil {
		return nil, err
	}
	defer l.Close()
	if d.port, err = l.(*net.TCPListener).File(); err != nil {
		return nil, err
	}
	d.name = l.Addr().String()
	fd := int(d.port.Fd())
	if err = unix.SetNonblock(fd, true); err == nil {
		d.door, err = peer.Open(peer.Config{Listener: fd, Most: askersMost,
			Welcome: func(uid int) bool { return uid == os.Getuid() || uid == 0 },
			In:      d.enter, Refused: func(int) {}})
	}
	if err != nil {
		d.port.Close()
		return nil, err
	}
	return d, nil
}

// close ends it, when no rank is left.
func (d *detour) close() {
	d.mu.Lock()
	d.closed = true
	d.cancel()
	for c := range d.inside {
		c.Close()
	}
	d.mu.Unlock()
	d.carrier.close()
	d.serving.Wait()
	d.door.Close() // nobody says Left behind it
	d.port.Close()
}

// enter takes a rank's connection.
func (d *detour) enter(fd int) bool {
	f := os.NewFile(uintptr(fd), "rank")
	c, err := net.FileConn(f)
	f.Close()
	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil {
		return !d.closed // one place inside is lost
	}
	if d.closed {
		c.Close()
		return false
	}
	d.inside[c] = true
	d.serving.Go(func() {
		d.serve(c)
		d.mu.Lock()
		delete(d.inside, c)
		d.mu.Unlock()
		c.Close()
		d.door.Left()
	})
	return true
}

// serve answers a rank.
func (d *detour) serve(c net.Conn) {
	_ = c.SetReadDeadline(time.Now().Add(carryLimit))
	line, err := readLine(c)
	what, to, _ := strings.Cut(line, " ")
	at, bad := netip.ParseAddrPort(to)
	if err != nil || bad != nil || what != "to" && what != "try" || c.SetDeadline(time.Time{}) != nil {
		return
	}
	if err = d.try(at); err == nil {
		_, _ = io.WriteString(c, "direct\n")
		return
	}
	if what == "try" {
		_, _ = io.WriteString(c, "closed\n")
		return
	}
	over, err := d.carry(at)
	if err != nil {
		fmt.Fprintf(c, "no %.100s\n", oneLine(err))
		return
	}
	if _, err := io.WriteString(c, carried+"\n"); err == nil {
		passBoth(c, over)
	}
	over.Close()
}

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", " ") }

// errShut: earlier connections to a host could not be made.
var errShut = errors.New("it could not be connected to before")

// isShut tells whether a host is taken for one to which this one cannot connect. mu is held.
func (d *detour) isShut(host netip.Addr) bool { return time.Now().Before(d.shut[host]) }

// shuts notes that.
func (d *detour) shuts(host netip.Addr, until time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if at := time.Now().Add(until); at.After(d.shut[host]) {
		d.shut[host] = at
	}
}

// lookAt tries other agents: what ranks ask next is known then, and gorun is told of hosts to which this one cannot connect, as that
// holds up programs of other MPIs.
func (d *detour) lookAt(agents map[int]string) {
	for _, address := range agents {
		at, err := netip.ParseAddrPort(address)
		if err != nil || at.Addr() == d.own {
			continue
		}
		go func() { // it ends by itself, or with the carrier
			if d.try(at) == nil {
				return
			}
			if c, err := d.carry(at); err == nil {
				c.Close()
			}
		}()
	}
}

// try connects to an address and ends the connection. What asks while a host is tried waits for the outcome.
func (d *detour) try(at netip.AddrPort) error {
	for {
		d.mu.Lock()
		tried := d.tries[at.Addr()]
		if d.isShut(at.Addr()) {
			d.mu.Unlock()
			return errShut
		}
		if tried == nil {
			d.tries[at.Addr()] = make(chan struct{})
			d.mu.Unlock()
			break
		}
		d.mu.Unlock()
		<-tried
	}
	c, err := d.dial(at.String(), tryLimit)
	d.mu.Lock()
	close(d.tries[at.Addr()])
	delete(d.tries, at.Addr())
	d.mu.Unlock()
	if err != nil {
		d.shuts(at.Addr(), shutFor)
		return err
	}
	return c.Close()
}

// dial connects to an address, until the detour is closed.
func (d *detour) dial(address string, limit time.Duration) (net.Conn, error) {
	return (&net.Dialer{Timeout: limit}).DialContext(d.ctx, "tcp", address)
}

// carry connects to an address by gorun.
func (d *detour) carry(at netip.AddrPort) (net.Conn, error) {
	s, err := d.carrier.dial(at.String())
	if err != nil {
		return nil, err
	}
	_ = s.SetDeadline(time.Now().Add(2 * carryLimit))
	line, err := readLine(s)
	if err == nil && line != carried {
		err = errors.New(strings.TrimPrefix(line, "no "))
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	_ = s.SetDeadline(time.Time{})
	d.shuts(at.Addr(), shutForever)
	return s, nil
}

// Dial connects to another agent, by gorun where this host cannot.
func (d *detour) Dial(address string, limit time.Duration) (net.Conn, error) {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	shut := d.isShut(at.Addr())
	d.mu.Unlock()
	if !shut {
		c, err := d.dial(address, min(limit, tryLimit))
		if err == nil || limit < tryLimit {
			return c, err
		}
		d.shuts(at.Addr(), shutFor)
	}
	return d.carry(at)
}

// arrive connects to this host for another one.
func (d *detour) arrive(s net.Conn, address string) {
	at, err := netip.ParseAddrPort(address)
	if err == nil && at.Addr() != d.own {
		err = fmt.Errorf("%v is not this host, %v", at, d.own)
	}
	var c net.Conn
	if err == nil {
		c, err = d.dial(address, carryLimit)
	}
	if err != nil {
		fmt.Fprintf(s, "no %.100s\n", oneLine(err))
		return
	}
	defer c.Close()
	if _, err := io.WriteString(s, carried+"\n"); err == nil {
		passBoth(c, s)
	}
}

// readLine reads a line, and no byte behind it.
func readLine(r io.Reader) (string, error) {
	var line []byte
	var b [1]byte
	for len(line) < lineMost {
		if _, err := io.ReadFull(r, b[:]); err != nil {
			return "", err
		}
		if b[0] == '\n' {
			return string(line), nil
		}
		line = append(line, b[0])
	}
	return "", fmt.Errorf("a line of more than %d bytes", lineMost)
}

// passBoth passes on what two connections read, until one ends, and ends the other when it has what came before.
func passBoth(a, b net.Conn) {
	var both sync.WaitGroup
	pass := func(to, from net.Conn) {
		_, _ = io.Copy(to, from)
		_ = to.Close()
		_ = from.SetReadDeadline(time.Unix(1, 0))
	}
	both.Go(func() { pass(a, b) })
	pass(b, a)
	both.Wait()
}

// A carrier is one end of a session of yamux whose bytes are in frames of the stream between gorun and an agent. It begins with
// its first use by either side.
type carrier struct {
	put   func(b []byte, then func()) error                               // sends a frame
	done  <-chan struct{}                                                 // closed when nothing is sent any more
	make  func(io.ReadWriteCloser, *yamux.Config) (*yamux.Session, error) // yamux.Client in gorun, yamux.Server in an agent
	taken func(s net.Conn, address string)                                // serves a connection of the other side, which is closed then

	mu      sync.Mutex
	session *yamux.Session
	in      *io.PipeWriter // of the session
	closed  bool
	serving sync.WaitGroup
}

// open gives the session.
func (c *carrier) open() (*yamux.Session, *io.PipeWriter, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, nil, net.ErrClosed
	}
	if c.session == nil {
		r, w := io.Pipe()
		s, err := c.make(&framed{r, c}, relayConfig())
		if err != nil {
			return nil, nil, err
		}
		c.session, c.in = s, w
		c.serving.Go(func() {
			for {
				accepted, err := s.AcceptStream()
				if err != nil {
					return
				}
				from := strand{accepted}
				c.serving.Go(func() {
					defer from.Close()
					_ = from.SetReadDeadline(time.Now().Add(carryLimit))
					address, err := readLine(from)
					if err == nil && from.SetReadDeadline(time.Time{}) == nil {
						c.taken(from, address)
					}
				})
			}
		})
	}
	return c.session, c.in, nil
}

// came takes the bytes of a frame.
func (c *carrier) came(b []byte) {
	if _, in, err := c.open(); err == nil {
		_, _ = in.Write(b) // an error is that of the session, which has ended
	}
}

// dial makes a connection to an address, which the other side has yet to answer.
func (c *carrier) dial(address string) (net.Conn, error) {
	session, _, err := c.open()
	if err != nil {
		return nil, err
	}
	opened, err := session.OpenStream()
	if err != nil {
		return nil, err
	}
	s := strand{opened}
	if _, err := io.WriteString(s, address+"\n"); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// close ends all connections, and waits for its goroutines.
func (c *carrier) close() {
	c.mu.Lock()
	c.closed = true
	session := c.session
	c.mu.Unlock()
	if session != nil {
		session.Close()
	}
	c.serving.Wait()
}

// A strand is a stream of yamux whose Close ends a Read, too.
type strand struct{ *yamux.Stream }

func (s strand) Close() error {
	_ = s.SetReadDeadline(time.Unix(1, 0))
	return s.Stream.Close()
}

// framed is what yamux reads and writes.
type framed struct {
	*io.PipeReader
	c *carrier
}

func (f *framed) Write(b []byte) (int, error) {
	sent := make(chan struct{})
	if err := f.c.put(b, func() { close(sent) }); err != nil {
		return 0, err
	}
	select {
	case <-sent:
		return len(b), nil
	case <-f.c.done:
		return 0, net.ErrClosed
	}
}
