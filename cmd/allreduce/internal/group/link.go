package group

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/gorun-mpi/gorun/internal/peer"
	"github.com/gorun-mpi/gorun/rdma/comch"
)

const (
	handshakeMost = 10 * time.Second // to say who one is
	dialMost      = 5 * time.Second  // to reach an address
	closeMost     = 2 * time.Second  // to say good-bye
)

// A link is a connection on which both ends have said who they are.
type link struct {
	conn net.Conn
	in   *bufio.Reader
	peer hello

	mu     sync.Mutex // guards writing: a frame at a time
	broken bool       // a frame was cut short

	// ended is closed when the reader has ended.
	ended chan struct{}
	// vectors is what a client has sent to its daemon; the reader closes it.
	vectors chan vector
	// bye: the other end sends nothing more; under its group's lock.
	bye bool
	// told is which records the other end has had; of the forming goroutine.
	told map[string]uint64
	// status is the last that a client was told; of the forming goroutine.
	status string
}

// A vector is what a client has sent for an operation.
type vector struct {
	op uint64
	b  []byte
}

func newLink(conn net.Conn) *link {
	return &link{conn: conn, in: bufio.NewReaderSize(conn, 64<<10), ended: make(chan struct{}), vectors: make(chan vector, depth), told: map[string]uint64{}}
}

// send writes a frame. The payload is the caller's again when it returns.
func (l *link) send(h header, payload []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.write(&h, payload)
}

func (l *link) write(h *header, payload []byte) error {
	if l.broken {
		return net.ErrClosed
	}
	err := writeFrame(l.conn, h, payload)
	l.broken = err != nil
	return err
}

// part says good-bye, waits for the other end's, and closes. reason is why this end failed, if
// it did.
func (l *link) part(reason string) {
	_ = l.conn.SetDeadline(time.Now().Add(closeMost))
	if l.send(header{Kind: kindBye, Text: reason}, nil) == nil {
		if half, ok := l.conn.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
		// Closed with unread bytes, the kernel would take back what was sent.
		<-l.ended
	}
	_ = l.conn.Close()
	<-l.ended
}

// discard reads what is of no more use.
func (l *link) discard(n int) error {
	_, err := io.CopyN(io.Discard, l.in, int64(n))
	return unexpected(err)
}

// An endpoint is this member, as its connections need it.
type endpoint struct {
	hello hello
	key   []byte
	name  string // of the group, for those with a key
	log   *logrus.Logger
	sdk   *logrus.Logger
	owner peer.Kernel

	warn sync.Once // that bytes can be read on their way
}

// open makes a connection ready for frames: encrypted where there is a key.
func (e *endpoint) open(ctx context.Context, conn net.Conn, server bool) (*link, error) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		// A host that vanished is noticed within half a minute.
		_ = tcp.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 4})
	}
	if e.key != nil {
		secure, err := comch.Secure(ctx, comch.Config{Name: e.name, Key: e.key}, conn, server)
		if err != nil {
			return nil, err
		}
		conn = secure
	}
	_ = conn.SetDeadline(time.Now().Add(handshakeMost))
	return newLink(conn), nil
}

// expect reads a frame of one kind without payload.
func (l *link) expect(want kind) (header, error) {
	h, _, err := readHead(l.in, 0)
	if err != nil {
		return h, err
	}
	if h.Kind != want {
		return h, fmt.Errorf("%w: kind %d, expected %d", errFrame, h.Kind, want)
	}
	return h, nil
}

var errSilent = errors.New("it is no allreduce of this version, or has a key where this end has none (--key)")

// hear reads the other end's hello.
func (e *endpoint) hear(l *link) error {
	h, err := l.expect(kindHello)
	if err == nil && h.Hello == nil {
		err = errFrame
	}
	if err != nil {
		if e.key == nil {
			return fmt.Errorf("%w: %w: %w", ErrRefused, errSilent, err)
		}
		return fmt.Errorf("%w: it is no allreduce of this version: %w", ErrRefused, err)
	}
	l.peer = *h.Hello
	return e.whose(l.conn)
}

// whose looks at who has the other end, where there is no key to show it: on this host only
// processes of the same user are let in, and bytes to others can be read by all.
func (e *endpoint) whose(conn net.Conn) error {
	if e.key != nil {
		return nil
	}
	here, err := netip.ParseAddrPort(conn.LocalAddr().String())
	if err != nil {
		return err
	}
	there, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	if err != nil {
		return err
	}
	if here.Addr().Unmap() != there.Addr().Unmap() && !there.Addr().Unmap().IsLoopback() {
		e.warn.Do(func() {
			e.sdk.Warnf("the connection with %s is plain TCP: others can read and change it; give all members the same --key FILE", there.Addr())
		})
		return nil
	}
	uid, err := e.owner.Owner(there, here)
	if err != nil {
		e.sdk.Debugf("whose the other end at %s is: %v", there, err)
		return nil
	}
	if uid != os.Geteuid() {
		return fmt.Errorf("%w: the process at %s belongs to user %d, and this one to %d: give both the same --key FILE", ErrRefused, there, uid, os.Geteuid())
	}
	return nil
}

// greet makes a link of a connection to another member, whose answer it waits for. to is its ID,
// if that is known. The error is errOwn, errElsewhere, errDuplicate, or final.
func (e *endpoint) greet(ctx context.Context, conn net.Conn, to string) (*link, error) {
	own := e.hello
	own.To = to
	l, err := e.open(ctx, conn, false)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = l.conn.SetDeadline(time.Unix(1, 0)) })
	err = l.send(header{Kind: kindHello, Hello: &own}, nil)
	if heard := e.hear(l); heard != nil { // also where sending failed: it may say why
		err = heard
	}
	if err == nil {
		err = judge(&own, &l.peer)
	}
	if err == nil {
		err = l.answered()
	}
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		l.conn.Close()
		return l, err
	}
	return l, l.conn.SetDeadline(time.Time{})
}

func (l *link) answered() error {
	h, err := l.expect(kindAnswer)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %s did not answer: %w", ErrRefused, l.peer.name(), err)
	case h.Answer == nil:
		return errFrame
	case h.Answer.Verdict == duplicate:
		return errDuplicate
	case h.Answer.Verdict != accepted:
		return fmt.Errorf("%w by %s: %s", ErrRefused, l.peer.name(), h.Answer.Reason)
	}
	return nil
}

// dialing connects to the first of some addresses that answers, which it returns, until ctx ends. note
// is told why it has not succeeded yet.
func dialing(ctx context.Context, addresses []string, note func(error)) (conn net.Conn, address string, err error) {
	d := net.Dialer{Timeout: dialMost, KeepAlive: -1}
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		for _, address := range addresses {
			conn, err := d.DialContext(ctx, "tcp", address)
			if err == nil {
				return conn, address, nil
			}
			if ctx.Err() != nil {
				return nil, "", context.Cause(ctx)
			}
			if dns, ok := errors.AsType[*net.DNSError](err); ok && dns.IsNotFound {
				return nil, "", fmt.Errorf("%s: %w", address, err)
			}
			note(plain(err))
		}
		select {
		case <-ctx.Done():
			return nil, "", context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}

// plain is the innermost reason of an error of package net: the address is known.
func plain(err error) error {
	if op, ok := errors.AsType[*net.OpError](err); ok {
		if sys, ok := errors.AsType[*os.SyscallError](op.Err); ok {
			return sys.Err
		}
		return op.Err
	}
	return err
}
