package comch

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/gorun-mpi/gorun/internal/tlskey"
)

const (
	// pieceLen is what a reader gives out at a time: one record of TLS.
	pieceLen = 16 << 10
	// pieces is how many a reader reads ahead.
	pieces = 8
	// flushMost bounds how long Close waits for a peer that takes nothing.
	flushMost = 2 * time.Second
)

// A streamConn is an end of a channel between hosts. Two goroutines work for it:
//
//	trySend -> out -> writer -> TLS ...  reader -> full -> frames -> tryRecv
//	                                       ^------ free <----'
//
// The writer takes all that has gathered in out since its last write, so that messages
// share records where they come faster than records can be written, and one alone waits for
// nobody.
type streamConn struct {
	conn  net.Conn
	limit int // bytes that may gather

	mu      sync.Mutex // guards the next lines
	out     []byte
	broken  error // of reading or writing; final
	acked   bool  // the peer has taken the end mark
	sentEnd bool

	wake chan struct{} // for the writer; of one place, as the next
	room chan struct{} // for the sender: something has been written, or acknowledged, or is broken

	full, free chan []byte
	in         reassembler
	piece      []byte // that in reads
	gotEnd     bool   // and acknowledged it

	stop    chan struct{} // closed by interrupt
	halt    sync.Once
	closing chan struct{} // closed by close: the writer writes what there is, and ends
	written chan struct{} // closed when it has
	read    chan struct{} // closed when the reader has ended; broken says why
}

var _ transport = (*streamConn)(nil)

func newStreamConn(cfg *Config, conn net.Conn) *streamConn {
	s := &streamConn{
		conn: conn, limit: max(cfg.geometry().size(), 2*pieceLen),
		wake: make(chan struct{}, 1), room: make(chan struct{}, 1),
		full: make(chan []byte, pieces), free: make(chan []byte, pieces),
		stop: make(chan struct{}), closing: make(chan struct{}), written: make(chan struct{}), read: make(chan struct{}),
	}
	for range pieces {
		s.free <- make([]byte, pieceLen)
	}
	go s.write()
	go s.readAll()
	return s
}

// ring puts a token where one has room.
func ring(bell chan struct{}) {
	select {
	case bell <- struct{}{}:
	default:
	}
}

// write is the writer.
func (s *streamConn) write() {
	defer close(s.written)
	var batch []byte
	for {
		s.mu.Lock()
		batch, s.out = s.out, batch[:0]
		broken := s.broken != nil
		s.mu.Unlock()
		if len(batch) > 0 && !broken {
			ring(s.room)
			if _, err := s.conn.Write(batch); err != nil {
				s.fail(err)
			}
			continue
		}
		select {
		case <-s.wake:
		case <-s.closing:
			s.mu.Lock()
			done := len(s.out) == 0 || s.broken != nil
			s.mu.Unlock()
			if done {
				return
			}
		}
	}
}

// readAll is the reader.
func (s *streamConn) readAll() {
	defer close(s.read)
	var frames scanner
	for {
		var piece []byte
		select {
		case piece = <-s.free:
		case <-s.stop:
			return
		}
		n, err := s.conn.Read(piece[:pieceLen])
		acked := frames.acked
		if bad := frames.scan(piece[:n]); bad != nil {
			s.fail(bad)
			return
		}
		if frames.acked != acked {
			s.mu.Lock()
			s.acked = true
			s.mu.Unlock()
			ring(s.room)
		}
		if n > 0 {
			select {
			case s.full <- piece[:n]:
			case <-s.stop:
				return
			}
		}
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = ErrPeerGone
			}
			s.fail(err)
			return
		}
	}
}

// fail notes the first error, which is final.
func (s *streamConn) fail(err error) {
	if !errors.Is(err, ErrForged) && !errors.Is(err, ErrPeerGone) {
		err = fmt.Errorf("%w: %w", ErrPeerGone, err)
	}
	s.mu.Lock()
	if s.broken == nil {
		s.broken = err
	}
	s.mu.Unlock()
	ring(s.room)
}

func (s *streamConn) trySend(p []byte) (bool, error) {
	s.mu.Lock()
	if s.broken != nil || len(s.out)+frameLen+len(p) > s.limit {
		err := s.broken
		s.mu.Unlock()
		return false, err
	}
	first := len(s.out) == 0
	s.out = appendFrame(s.out, p)
	s.mu.Unlock()
	if first {
		ring(s.wake)
	}
	return true, nil
}

// control sends a frame that is no message, beyond the limit if need be.
func (s *streamConn) control(frame uint16) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broken != nil {
		return s.broken
	}
	s.out = append(s.out, byte(frame), byte(frame>>8))
	s.sentEnd = s.sentEnd || frame == frameEnd
	ring(s.wake)
	return nil
}

func (s *streamConn) tryEnd() (bool, error) {
	if err := s.control(frameEnd); err != nil {
		return false, err
	}
	return true, nil
}

// drained knows nothing before the end mark was acknowledged: messages are not, one by one.
func (s *streamConn) drained() (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.acked && s.sentEnd:
		return true, nil
	case !s.sentEnd && s.broken == nil:
		return false, errors.New("comch: Drain between hosts comes after CloseSend")
	}
	return false, s.broken
}

func (s *streamConn) tryRecv(p []byte) (int, bool, error) {
	for {
		n, ok, err := s.in.next(p)
		if err == io.EOF && !s.gotEnd {
			s.gotEnd = true
			_ = s.control(frameAck) // if that fails, the peer is gone
			s.recycle()
		}
		if ok || err != nil {
			return n, ok, err
		}
		select {
		case piece := <-s.full:
			s.push(piece)
			continue
		default:
		}
		select {
		case <-s.read: // and whatever it had read is in full
		default:
			return 0, false, nil
		}
		select {
		case piece := <-s.full:
			s.push(piece)
		default:
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.broken == nil {
				return 0, false, ErrClosed
			}
			return 0, false, s.broken
		}
	}
}

func (s *streamConn) push(piece []byte) {
	s.recycle()
	s.piece = piece
	s.in.push(piece)
}

// recycle gives the piece that was read back to the reader.
func (s *streamConn) recycle() {
	if s.piece != nil {
		s.free <- s.piece[:pieceLen]
		s.piece = nil
	}
}

func (s *streamConn) waitSend(ctx context.Context) error {
	select {
	case <-s.room:
	case <-s.stop:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// waitDrained needs no receiver once the peer's end mark was taken: what may
// follow it is one acknowledgement, for which the reader has a free piece.
func (s *streamConn) waitDrained(ctx context.Context) error { return s.waitSend(ctx) }

func (s *streamConn) waitRecv(ctx context.Context) error {
	select {
	case piece := <-s.full:
		s.push(piece)
	case <-s.read:
	case <-s.stop:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

func (s *streamConn) waitAny(ctx context.Context) error {
	full := s.full
	if s.gotEnd {
		full = nil
	}
	select {
	case piece := <-full:
		s.push(piece)
	case <-s.room:
	case <-s.read:
	case <-s.stop:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

func (s *streamConn) interrupt() { s.halt.Do(func() { close(s.stop) }) }

// close lets the writer write what has gathered, then ends both goroutines.
func (s *streamConn) close() error {
	_ = s.conn.SetWriteDeadline(time.Now().Add(flushMost))
	close(s.closing)
	<-s.written
	_ = s.conn.Close() // its errors are those of a peer that has closed before
	<-s.read
	return nil
}

// handshakeMost bounds how long a peer may take to show who it is.
const handshakeMost = 10 * time.Second

// Secure makes a connection of TLS 1.3 between two ends that know cfg.Key out of conn, for
// programs with a protocol of their own: what ListenTLS and DialTLS have beneath their
// messages. One end calls it with server, the other one without. It takes at most 10 s; conn
// is closed if it fails, and belongs to the result else. The result is a [*tls.Conn].
func Secure(ctx context.Context, cfg Config, conn net.Conn, server bool) (net.Conn, error) {
	role := roleClient
	if server {
		role = roleServer
	}
	err := needKey(&cfg)
	if err == nil {
		err = cfg.settle()
	}
	var tc *tls.Config
	if err == nil {
		tc, err = tlsConfig(&cfg, role)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return secure(ctx, conn, role, tc)
}

func secure(ctx context.Context, conn net.Conn, role tlskey.Role, tc *tls.Config) (*tls.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeMost)
	defer cancel()
	secure, err := tlskey.Handshake(ctx, conn, tc, role)
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("%w: handshake with %s: %w (%w)", ErrRefused, conn.RemoteAddr(), err, errKeys)
	}
	return secure, nil
}

// handshake makes a channel of a connection, which is closed if that fails.
func handshake(ctx context.Context, cfg *Config, conn net.Conn, role tlskey.Role, tc *tls.Config) (*Conn, error) {
	secure, err := secure(ctx, conn, role, tc)
	if err != nil {
		return nil, err
	}
	return &Conn{t: newStreamConn(cfg, secure), peer: conn.RemoteAddr().String()}, nil
}

// DialTLS connects to the listener at an address of another host, and waits for it
// until ctx ends.
func DialTLS(ctx context.Context, cfg Config, address string) (*Conn, error) {
	if err := cfg.settle(); err != nil {
		return nil, err
	}
	if err := needKey(&cfg); err != nil {
		return nil, err
	}
	tc, err := tlsConfig(&cfg, roleClient)
	if err != nil {
		return nil, err
	}
	conn, err := dialTCP(ctx, address)
	if err != nil {
		return nil, err
	}
	return handshake(ctx, &cfg, conn, roleClient, tc)
}

// dialTCP tries again while nobody listens: another host's listener can wake nobody here.
func dialTCP(ctx context.Context, address string) (net.Conn, error) {
	var d net.Dialer
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		conn, err := d.DialContext(ctx, "tcp", address)
		if err == nil {
			return conn, nil
		}
		// A dial knows the deadline of ctx, and may end by it a moment before ctx does.
		if ctx.Err() == nil && !absent(err) && !errors.Is(err, context.DeadlineExceeded) {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-time.After(pause):
		}
	}
}
