package group

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
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

	ended chan struct{}     // closed when the reader has ended
	told  map[string]uint64 // which records the other end has had; of the forming goroutine
}

func newLink(conn net.Conn) *link {
	return &link{conn: conn, in: bufio.NewReader(conn), ended: make(chan struct{}), told: map[string]uint64{}}
}

// send writes a frame.
func (l *link) send(f frame) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.write(&f)
}

func (l *link) write(f *frame) error {
	if l.broken {
		return net.ErrClosed
	}
	err := writeFrame(l.conn, f)
	l.broken = err != nil
	return err
}

// part says good-bye, waits for the other end's, and closes. reason is why this end failed, if
// it did.
func (l *link) part(reason string) {
	_ = l.conn.SetDeadline(time.Now().Add(closeMost))
	if l.send(frame{Kind: kindBye, Text: reason}) == nil {
		if half, ok := l.conn.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
		// Closed with unread bytes, the kernel would take back what was sent.
		<-l.ended
	}
	_ = l.conn.Close()
	<-l.ended
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
	peer.Alive(conn)
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

// expect reads a frame of one kind.
func (l *link) expect(want kind) (frame, error) {
	f, err := readFrame(l.in)
	if err == nil && f.Kind != want {
		err = fmt.Errorf("%w: kind %d, expected %d", errFrame, f.Kind, want)
	}
	return f, err
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
			return fmt.Errorf("%w: %w: %w", errRefused, errSilent, err)
		}
		return fmt.Errorf("%w: it is no allreduce of this version: %w", errRefused, err)
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
	there := conn.RemoteAddr()
	uid, err := e.owner.Other(conn)
	switch {
	case err != nil:
		e.sdk.Debugf("whose the other end at %s is: %v", there, err)
		return nil
	case uid < 0:
		e.warn.Do(func() {
			host, _, _ := net.SplitHostPort(there.String())
			e.sdk.Warnf("the connection with %s is plain TCP: others can read and change it; give all members the same --key FILE", host)
		})
		return nil
	}
	if uid != os.Geteuid() {
		return fmt.Errorf("%w: the process at %s belongs to user %d, and this one to %d: give both the same --key FILE", errRefused, there, uid, os.Geteuid())
	}
	return nil
}

// greet makes a link of a connection to another member, whose answer it waits for.
func (e *endpoint) greet(ctx context.Context, conn net.Conn) (*link, error) {
	l, err := e.open(ctx, conn, false)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = l.conn.SetDeadline(time.Unix(1, 0)) })
	err = l.send(frame{Kind: kindHello, Hello: &e.hello})
	if heard := e.hear(l); heard != nil { // also where sending failed: it may say why
		err = heard
	}
	if err == nil {
		err = judge(&e.hello, &l.peer)
	}
	if err == nil {
		err = l.answered()
	}
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		l.conn.Close()
		return nil, err
	}
	return l, l.conn.SetDeadline(time.Time{})
}

func (l *link) answered() error {
	f, err := l.expect(kindAnswer)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %s did not answer: %w", errRefused, l.peer.name(), err)
	case f.Answer == nil:
		return errFrame
	case f.Answer.Refused != "":
		return fmt.Errorf("%w by %s: %s", errRefused, l.peer.name(), f.Answer.Refused)
	}
	return nil
}

// dialing connects to an address, until ctx ends. note is told why it has not succeeded yet.
func dialing(ctx context.Context, address string, note func(error)) (net.Conn, error) {
	d := net.Dialer{Timeout: dialMost, KeepAlive: -1}
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		conn, err := d.DialContext(ctx, "tcp", address)
		if err == nil {
			return conn, nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if dns, ok := errors.AsType[*net.DNSError](err); ok && dns.IsNotFound {
			return nil, fmt.Errorf("%s: %w", address, err)
		}
		note(peer.Reason(err))
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}
