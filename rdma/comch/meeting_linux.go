package comch

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/shm"
)

// The ends of a host meet at abstract Unix sockets, whose names lie in no directory and
// go with their owner, and which every process of the network namespace can bind and connect
// to: names keep nobody out. SO_PEERCRED does, on both sides.
//
//	@gorun-comch-UID-HASH      the listener
//	@gorun-comch-UID-HASH-wN   client N that found no listener, N < waiting
//
// A client that finds none binds a waiting name, tries once more, and then sleeps until it
// is called. A listener calls all waiting names when it listens. Either the client's second
// try finds the listener, or the listener's call finds the client. A false call costs a
// client one more try.

// waiting is how many clients can wait for one listener that is to come.
const waiting = 256

// hereName is the listener's name: the user's and the channel's.
func hereName(cfg *Config) string {
	sum := sha256.Sum256([]byte(cfg.Name))
	return "@gorun-comch-" + strconv.Itoa(os.Geteuid()) + "-" + hex.EncodeToString(sum[:12])
}

func waitingName(cfg *Config, n int) string { return hereName(cfg) + "-w" + strconv.Itoa(n) }

func listenHere(cfg *Config) (net.Listener, error) {
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: hereName(cfg), Net: "unixpacket"})
	if errors.Is(err, unix.EADDRINUSE) {
		return nil, fmt.Errorf("%w: %q", ErrTaken, cfg.Name)
	}
	return l, err
}

// callHere wakes the clients that wait.
func callHere(cfg *Config) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	for n := range waiting {
		_ = unix.Sendto(fd, []byte{1}, 0, &unix.SockaddrUnix{Name: waitingName(cfg, n)})
	}
}

// Dial connects to the listener of that name on this host, and waits for it until
// ctx ends.
func Dial(ctx context.Context, cfg Config) (*Conn, error) {
	if err := cfg.settle(); err != nil {
		return nil, err
	}
	for tries := 1; ; tries++ {
		conn, err := dialHere(&cfg)
		if absent(err) {
			conn, err = awaitHere(ctx, &cfg)
		}
		if err != nil {
			return nil, err
		}
		c, err := joinHere(ctx, &cfg, conn)
		if !errors.Is(err, errLeft) || tries == triesMost {
			return c, err
		}
	}
}

// triesMost bounds how often a client tries again when a listener has closed with the
// client still in its queue: the next one may be there.
const triesMost = 8

// errLeft: the listener went away before it had said anything.
var errLeft = fmt.Errorf("%w: it ended before it had let this end in", ErrPeerGone)

func dialHere(cfg *Config) (*net.UnixConn, error) {
	return net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: hereName(cfg), Net: "unixpacket"})
}

// awaitHere waits for the listener to come.
func awaitHere(ctx context.Context, cfg *Config) (*net.UnixConn, error) {
	var door *net.UnixConn
	for n := range waiting {
		var err error
		door, err = net.ListenUnixgram("unixgram", &net.UnixAddr{Name: waitingName(cfg, n), Net: "unixgram"})
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EADDRINUSE) {
			return nil, err
		}
	}
	if door == nil {
		return nil, fmt.Errorf("no listener has the name %q, and %d clients wait for one already", cfg.Name, waiting)
	}
	defer door.Close()
	defer context.AfterFunc(ctx, func() { _ = door.SetReadDeadline(time.Unix(1, 0)) })()
	for {
		conn, err := dialHere(cfg)
		if !absent(err) {
			return conn, err
		}
		var b [1]byte
		if _, _, err := door.ReadFromUnix(b[:]); err != nil {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			return nil, err
		}
	}
}

// credentials asks the kernel whose the other end is.
func credentials(conn *net.UnixConn) (*unix.Ucred, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	var cred *unix.Ucred
	var asked error
	err = raw.Control(func(fd uintptr) { cred, asked = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	return cred, errors.Join(err, asked)
}

// same refuses the processes of other users. For a client the kernel names who
// called listen.
func same(conn *net.UnixConn) (string, error) {
	cred, err := credentials(conn)
	if err != nil {
		return "", err
	}
	if int(cred.Uid) != os.Geteuid() {
		return "", fmt.Errorf("%w: process %d is user %d's, expected one of user %d, who runs this end", ErrRefused, cred.Pid, cred.Uid, os.Geteuid())
	}
	return fmt.Sprintf("process %d of this host", cred.Pid), nil
}

// A talk is a handshake under way.
type talk struct {
	conn *net.UnixConn
	buf  [maxHello]byte
}

func (t *talk) send(h hello, fds ...int) error {
	h.Protocol = protocol
	b, err := h.pack()
	if err != nil {
		return err
	}
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	_, _, err = t.conn.WriteMsgUnix(b, oob, nil)
	if errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE) {
		err = errLeft
	}
	return err
}

// receive gives the next packet, and the descriptor that came with it, or -1.
func (t *talk) receive() (hello, int, error) {
	oob := make([]byte, unix.CmsgSpace(4*8))
	n, oobn, _, _, err := t.conn.ReadMsgUnix(t.buf[:], oob)
	fd, bad := takeFD(oob[:max(oobn, 0)])
	if err == nil && n == 0 || errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE) {
		err = errLeft
	}
	var h hello
	if err = errors.Join(err, bad); err == nil {
		h, err = parseHello(t.buf[:n])
	}
	if err != nil && fd >= 0 {
		unix.Close(fd)
		fd = -1
	}
	return h, fd, err
}

// takeFD gives the one descriptor in a control message; those of a peer that sends several
// are closed.
func takeFD(oob []byte) (int, error) {
	if len(oob) == 0 {
		return -1, nil
	}
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return -1, err
	}
	var all []int
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err == nil {
			all = append(all, fds...)
		}
	}
	if len(all) == 1 {
		unix.CloseOnExec(all[0])
		return all[0], nil
	}
	for _, fd := range all {
		unix.Close(fd)
	}
	if len(all) == 0 {
		return -1, nil
	}
	return -1, fmt.Errorf("%w: %d descriptors", ErrForged, len(all))
}

// begin bounds the handshake in time, and ends it with ctx.
func (t *talk) begin(ctx context.Context) (end func() bool) {
	_ = t.conn.SetDeadline(time.Now().Add(handshakeMost))
	return context.AfterFunc(ctx, func() { _ = t.conn.SetDeadline(time.Unix(1, 0)) })
}

// finish makes the socket what the watcher reads.
func (t *talk) finish(end func() bool) error {
	if !end() {
		return os.ErrDeadlineExceeded
	}
	return t.conn.SetDeadline(time.Time{})
}

// refuse tells the peer why, where the reason is not its own.
func (t *talk) refuse(err error) {
	if errors.Is(err, ErrRefused) || errors.Is(err, ErrForged) {
		_ = t.send(hello{Refused: err.Error()})
	}
}

// shake goes through one half of the handshake. It owns conn. peer is who stands at its other end, also where that fails.
func shake(ctx context.Context, conn *net.UnixConn, half func(*talk) (*ringConn, error)) (c *Conn, peer string, err error) {
	t := &talk{conn: conn}
	end := t.begin(ctx)
	peer, err = same(conn)
	var ring *ringConn
	if err == nil {
		ring, err = half(t)
	}
	if err == nil {
		if err = t.finish(end); err != nil {
			err = errors.Join(err, ring.close())
		}
	}
	if err != nil {
		end()
		t.refuse(err)
		conn.Close()
		return nil, peer, err
	}
	ring.watch(conn)
	return &Conn{t: ring, peer: peer}, peer, nil
}

// greetHere is the listener's half.
func greetHere(ctx context.Context, cfg *Config, conn net.Conn) (*Conn, error) {
	c, peer, err := shake(ctx, conn.(*net.UnixConn), func(t *talk) (*ringConn, error) { return t.greet(cfg) })
	if err != nil && peer != "" {
		err = fmt.Errorf("%s: %w", peer, err)
	}
	return c, err
}

func (t *talk) greet(cfg *Config) (*ringConn, error) {
	client, err := t.receiveBare()
	if err != nil {
		return nil, err
	}
	if err := client.check(cfg); err != nil {
		return nil, err
	}
	server := newHello(cfg)
	if server.Proof, err = proof(cfg.Key, roleServer, client, server); err != nil {
		return nil, err
	}
	if err := t.send(server); err != nil {
		return nil, err
	}
	answer, err := t.receiveBare()
	if err != nil {
		return nil, err
	}
	if err := prove(cfg.Key, roleClient, client, server, answer.Proof); err != nil {
		return nil, err
	}
	segment, err := shm.Create(segmentGeometry(client.Queue, server.Queue))
	if err != nil {
		return nil, err
	}
	c, err := newRingConn(cfg, segment, true, server.Queue, client.Queue)
	if err == nil {
		c.owned = true
		err = t.send(hello{}, segment.FD())
	}
	if err != nil {
		return nil, errors.Join(err, segment.Close())
	}
	return c, nil
}

// receiveBare receives a packet that brings no descriptor.
func (t *talk) receiveBare() (hello, error) {
	h, fd, err := t.receive()
	if fd >= 0 {
		unix.Close(fd)
		err = fmt.Errorf("%w: a descriptor that nobody asked for", ErrForged)
	}
	return h, err
}

// joinHere is the client's half.
func joinHere(ctx context.Context, cfg *Config, conn *net.UnixConn) (*Conn, error) {
	c, _, err := shake(ctx, conn, func(t *talk) (*ringConn, error) { return t.join(cfg) })
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return c, err
}

func (t *talk) join(cfg *Config) (*ringConn, error) {
	client := newHello(cfg)
	if err := t.send(client); err != nil {
		return nil, err
	}
	server, err := t.receiveBare()
	if err != nil {
		return nil, err
	}
	if err := server.check(cfg); err != nil {
		return nil, err
	}
	if err := prove(cfg.Key, roleServer, client, server, server.Proof); err != nil {
		return nil, err
	}
	var answer hello
	if answer.Proof, err = proof(cfg.Key, roleClient, client, server); err != nil {
		return nil, err
	}
	if err := t.send(answer); err != nil {
		return nil, err
	}
	_, fd, err := t.receive()
	if err != nil {
		return nil, err
	}
	if fd < 0 {
		return nil, fmt.Errorf("%w: no shared memory", ErrForged)
	}
	segment, err := shm.Open(fd)
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("%w: %w", ErrForged, err)
	}
	if segment.Ranks() != bells {
		return nil, errors.Join(fmt.Errorf("%w: shared memory of %d ranks", ErrForged, segment.Ranks()), segment.Close())
	}
	c, err := newRingConn(cfg, segment, false, client.Queue, server.Queue)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %w", ErrForged, err), segment.Close())
	}
	c.owned = true
	return c, nil
}
