package gossip

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/tlskey"
)

// A branch is a neighbour in the tree and the connection to it, over which all messages of
// fences go. The child dials its parent when it knows the addresses, and again whenever the
// connection has ended; nothing else ever opens one:
//
//	none --(the child dials: proof of the key, TLS 1.3, its index 4, its dials so far 8)--> up --(an error, or a later one of this child)--> none
//
// On the connection each message stands behind its length, 4. What a connection takes with it when
// it ends is sent again: see fences.reconnected, and probe.
//
// Lock order: Node.mu before mu.
type branch struct {
	host int

	mu     sync.Mutex
	moved  sync.Cond       // of mu: queue, conn or closed has changed
	queue  []outgoing      // that no writer has taken
	writes bool            // the writer has taken some and is not back
	conn   net.Conn        // nil: none
	socket syscall.RawConn // under conn; nil where that is no TCP
	dial   uint64          // of conn, as the child counts them
	err    error           // of the last connection, or the last try at one
}

// atOnce is the size of a message that its sender writes itself, where it need not wait: a fence of a barrier is such
// messages, and to wake the writer costs more than to write one.
const atOnce = 8 << 10

// frameMax bounds a message: fences.sendEntries sends none of more than messageMax, unless one part is.
const frameMax = messageMax + partMax

// tlsProtocol is what the ends of a branch speak.
const tlsProtocol = "gorun-fence/2"

func newBranch(host int) *branch {
	b := &branch{host: host}
	b.moved.L = &b.mu
	return b
}

// put sends a message, or has it sent when there is a connection. waits is false for one that has left, and for one
// that need not wait for a connection: the other side will ask.
func (b *branch) put(o outgoing) (waits bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.conn == nil && len(o.m.parts) == 0 {
		return false
	}
	if !b.writes && len(b.queue) == 0 && o.m.size() <= atOnce && b.empty() {
		if _, err := b.conn.Write(o.m.frame()); err != nil {
			closeNow(b.conn) // which the reader sees, and ends it
		}
		return false
	}
	b.queue = append(b.queue, o)
	b.moved.Signal()
	return true
}

// empty tells whether the other side has acknowledged all that was written, so that atOnce bytes fit into the socket.
func (b *branch) empty() bool {
	if b.socket == nil {
		return false
	}
	left := -1
	err := b.socket.Control(func(fd uintptr) {
		if n, err := unix.IoctlGetInt(int(fd), unix.SIOCOUTQ); err == nil {
			left = n
		}
	})
	return err == nil && left == 0
}

// next waits for messages. ok is false when c is not the branch's connection any more.
func (b *branch) next(c net.Conn) (queue []outgoing, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.writes = false
	for len(b.queue) == 0 && b.conn == c {
		b.moved.Wait()
	}
	if b.conn != c {
		return nil, false
	}
	queue, b.queue, b.writes = b.queue, nil, true
	return queue, true
}

// begin makes c the connection, in place of one whose end nobody here has noticed. It is false for one
// that the child had given up before it made the present one.
func (b *branch) begin(c net.Conn, socket syscall.RawConn, dial uint64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.conn != nil {
		if dial < b.dial {
			return false
		}
		closeNow(b.conn)
	}
	b.conn, b.socket, b.dial, b.err = c, socket, dial, nil
	b.moved.Broadcast()
	return true
}

// end notes the end of a connection, or with nil that none could be made.
func (b *branch) end(c net.Conn, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.conn == c {
		b.conn, b.socket, b.err = nil, nil, err
		b.moved.Broadcast()
	}
}

// trouble is why there is no connection; nil where there is one, or none was tried.
func (b *branch) trouble() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}

// closeNow closes a connection without TLS's last word, for which a stopped process would be waited for.
func closeNow(c net.Conn) {
	if s, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = s.NetConn()
	}
	_ = c.Close()
}

// A secret is how a node shows that it knows the key. It is made at the first handshake: a job that ends before that
// needs none.
type secret func() (*tls.Config, error)

func (s secret) handshake(ctx context.Context, c net.Conn, role tlskey.Role) (*tls.Conn, error) {
	tc, err := s()
	if err != nil {
		return nil, err
	}
	return tlskey.Handshake(ctx, c, tc, role)
}

// secrets are a node's towards its children and its parent; nil where it has none.
func (n *Node) secrets() (server, client secret) {
	of := func(role tlskey.Role) secret {
		return sync.OnceValues(func() (*tls.Config, error) { return tlskey.Config(n.cfg.Key, tlsProtocol, "", role) })
	}
	if len(n.fences.children()) > 0 {
		server = of(tlskey.Server)
	}
	if n.cfg.Index > 0 {
		client = of(tlskey.Client)
	}
	return server, client
}

// hold keeps a connection to the parent, until Close.
func (n *Node) hold(b *branch, addr string) {
	defer n.running.Done()
	const least, most = 2 * time.Millisecond, 250 * time.Millisecond
	pause := least
	first := true
	for dial := uint64(1); ; dial++ {
		c, err := n.climb(addr, dial)
		if err == nil {
			heard := n.serve(b, c, dial, func() {
				if !first {
					n.repair()
				}
				first = false
			})
			if heard { // else the parent may refuse every one
				pause = least
			}
		} else {
			b.end(nil, err)
		}
		select {
		case <-time.After(pause):
			pause = min(2*pause, most)
		case <-n.closed:
			return
		}
	}
}

// climb connects to the parent.
func (n *Node) climb(addr string, dial uint64) (net.Conn, error) {
	raw, err := n.conns.open(addr, n.conns.timeout, magicFence)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), unprovenTime)
	defer cancel()
	c, err := n.conns.client.handshake(ctx, raw, tlskey.Client)
	if err == nil {
		_, err = c.Write(n.calling(dial))
	}
	if err == nil {
		err = raw.SetDeadline(time.Time{})
	}
	if err != nil {
		raw.Close()
		return nil, err
	}
	return c, nil
}

// callSize is how much a child says of itself: index 4 | dial 8.
const callSize = 4 + 8

func (n *Node) calling(dial uint64) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint32(nil, uint32(n.cfg.Index)), dial)
}

// climbed serves a connection that a host has made to this one. The transport has given it a deadline.
func (n *Node) climbed(c net.Conn) {
	var call [callSize]byte
	if _, err := io.ReadFull(c, call[:]); err != nil || c.SetDeadline(time.Time{}) != nil {
		return
	}
	b := n.branches[int(binary.BigEndian.Uint32(call[:]))]
	if b == nil || b.host < n.cfg.Index {
		return // it is no child
	}
	n.serve(b, c, binary.BigEndian.Uint64(call[4:]), func() {})
}

// serve carries messages both ways, until the connection ends. begun is called when others may send. heard: something
// came.
func (n *Node) serve(b *branch, c net.Conn, dial uint64, begun func()) (heard bool) {
	socket, err := socketOf(c)
	if err == nil && socket != nil {
		err = lastsNoLonger(socket, n.conns.timeout)
	}
	if err != nil {
		b.end(nil, err)
		closeNow(c)
		return false
	}
	if !b.begin(c, socket, dial) {
		closeNow(c)
		return false
	}
	begun()
	n.opened.Add(1)
	var writing sync.WaitGroup
	writing.Go(func() { n.write(b, c) })
	heard, err = n.read(b, c)
	b.end(c, err)
	closeNow(c)
	writing.Wait()
	return heard
}

func (n *Node) write(b *branch, c net.Conn) {
	w := bufio.NewWriterSize(c, 16<<10)
	for {
		queue, ok := b.next(c)
		if !ok {
			return
		}
		var err error
		for _, o := range queue {
			if _, err = w.Write(o.m.frame()); err != nil {
				break
			}
		}
		if err == nil {
			err = w.Flush()
		}
		n.mu.Lock()
		for _, o := range queue {
			n.fences.sent(o)
		}
		n.mu.Unlock()
		if err != nil {
			closeNow(c) // which the reader sees, and ends it
			return
		}
	}
}

func (n *Node) read(b *branch, c net.Conn) (heard bool, err error) {
	r := bufio.NewReaderSize(c, 64<<10)
	for {
		var head [4]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return heard, err
		}
		size := binary.BigEndian.Uint32(head[:])
		if size > frameMax {
			return heard, fmt.Errorf("host %d: a message of %d bytes, at most %d are allowed", b.host, size, frameMax)
		}
		body := make([]byte, size)
		if _, err := io.ReadFull(r, body); err != nil {
			return heard, err
		}
		m, err := parseMessage(body, n.cfg.Hosts)
		if err == nil && m.from != b.host {
			err = errMessage
		}
		if err != nil {
			return heard, fmt.Errorf("host %d: %w", b.host, err)
		}
		heard = true
		n.take(m)
	}
}

// socketOf is the TCP socket of a connection; nil where there is none, as in tests.
func socketOf(c net.Conn) (syscall.RawConn, error) {
	for {
		s, ok := c.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		c = s.NetConn()
	}
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return nil, nil
	}
	return tcp.SyscallConn()
}

// lastsNoLonger bounds how long what was sent may stay unanswered: a network may forget a
// connection that was idle, and the next one gets through.
func lastsNoLonger(socket syscall.RawConn, limit time.Duration) error {
	var unset error
	if err := socket.Control(func(fd uintptr) {
		unset = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(limit.Milliseconds()))
	}); err != nil {
		return err
	}
	if unset == unix.ENOPROTOOPT {
		return nil // a system without it has a push-pull mend what the network forgot
	}
	return os.NewSyscallError("setsockopt TCP_USER_TIMEOUT", unset)
}
