// Package softtls encrypts the TCP connections of package soft by TLS 1.3. It is a package of its own because
// TLS makes a program 3 MB larger and start 0.5 ms later, and most jobs need none: a program that is to run under
// gorun --secure asks for it, by rank.Config{Secure: softtls.Handshake}.
//
// The two ends of a connection prove to each other that they know the job's secret, as package tlskey has it, under a
// name that has the whole greeting of the connection in it, and so a nonce of each end and both GIDs. Nothing recorded
// on one connection opens another.
//
// crypto/tls seals the frames and does no I/O here: records go to and from memory. Nothing
// re-keys a connection: after 400 GB AES-GCM's margin is below what RFC 8446, 5.5, asks for.
package softtls

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/gorun-mpi/gorun/internal/tlskey"
	"github.com/gorun-mpi/gorun/rdma/soft"
)

const protocol = "gorun-soft/1"

var _ soft.Handshake = Handshake

// Handshake is for soft.Config.Secure, and rank.Config's.
func Handshake(conn io.ReadWriter, secret []byte, name string, server bool) (soft.Sealer, error) {
	role, end := tlskey.Client, tls.Client
	if server {
		role, end = tlskey.Server, tls.Server
	}
	tc, err := tlskey.Config(secret, protocol, name, role)
	if err != nil {
		return nil, err
	}
	s := &sealer{wire: wire{conn: conn}}
	s.tls = end(&s.wire, tc)
	if err := s.tls.HandshakeContext(context.Background()); err != nil {
		return nil, fmt.Errorf("TLS: %w", err)
	}
	// Neither end says anything now before it is asked, or has sealed it: the TLS has read nothing ahead.
	s.conn = nil
	return s, nil
}

// recordSize is the most that a record holds; with its header, a record is longer by up to recordMore.
const (
	recordHeader = 5
	recordSize   = 16 << 10
	recordMore   = 256
)

// A sealer is one end's TLS. tls.Conn takes its reader and its writer at the same time.
type sealer struct {
	wire
	tls     *tls.Conn
	gather  []byte // what Seal makes a record of
	scratch [1]byte
}

// Seal implements soft.Sealer. Short pieces share a record.
func (s *sealer) Seal(dst []byte, bufs [][]byte) ([]byte, error) {
	if s.gather == nil {
		s.gather = make([]byte, 0, recordSize)
	}
	s.lend(dst)
	for _, b := range bufs {
		for len(b) > 0 {
			if n := len(b) &^ (recordSize - 1); n > 0 && len(s.gather) == 0 {
				if _, err := s.tls.Write(b[:n]); err != nil {
					return s.take(), err
				}
				b = b[n:]
				continue
			}
			k := copy(s.gather[len(s.gather):recordSize], b)
			s.gather, b = s.gather[:len(s.gather)+k], b[k:]
			if len(s.gather) == recordSize {
				if err := s.flush(); err != nil {
					return s.take(), err
				}
			}
		}
	}
	err := s.flush()
	return s.take(), err
}

// flush makes a record of what was gathered.
func (s *sealer) flush() error {
	if len(s.gather) == 0 {
		return nil
	}
	_, err := s.tls.Write(s.gather)
	s.gather = s.gather[:0]
	return err
}

// Open implements soft.Sealer.
func (s *sealer) Open(dst, in []byte) (plain []byte, used int, err error) {
	if used, err = whole(in); err != nil || used == 0 {
		return dst, 0, err
	}
	s.in = in[:used]
	defer func() { s.in = nil }()
	for {
		b := dst[len(dst):cap(dst)]
		if len(b) == 0 {
			b = s.scratch[:] // there is nothing for it, or room was too small
		}
		k, err := s.tls.Read(b)
		if k > 0 && len(dst) == cap(dst) {
			return dst, used, errors.New("no room for what the records hold")
		}
		dst = dst[:len(dst)+k]
		switch {
		case errors.Is(err, errNoMore) && len(s.in) == 0:
			return dst, used, nil
		case err != nil:
			return dst, used, err
		}
	}
}

// whole is how long the whole records at the beginning of in are.
func whole(in []byte) (n int, err error) {
	for len(in)-n >= recordHeader {
		length := int(binary.BigEndian.Uint16(in[n+3:]))
		if length > recordSize+recordMore {
			return 0, fmt.Errorf("found a record of %d bytes, expected at most %d", length, recordSize+recordMore)
		}
		if len(in)-n < recordHeader+length {
			break
		}
		n += recordHeader + length
	}
	return n, nil
}

// A wire is what the TLS believes to be its connection: that of the handshake, and then memory.
// It gives whole records only, so a Read that finds none stands between two.
type wire struct {
	conn io.ReadWriter // of the handshake; nil after it
	in   []byte        // records that Open was given

	mu  sync.Mutex // a reader may have to answer: guards
	out []byte     // records of Seal
}

// errNoMore says that all records are read. crypto/tls goes on after an error that is temporary.
var errNoMore error = noMore{}

type noMore struct{}

func (noMore) Error() string   { return "no more records" }
func (noMore) Timeout() bool   { return true }
func (noMore) Temporary() bool { return true }

func (w *wire) Read(b []byte) (int, error) {
	if w.conn != nil {
		return w.conn.Read(b)
	}
	if len(w.in) == 0 {
		return 0, errNoMore
	}
	k := copy(b, w.in)
	w.in = w.in[k:]
	return k, nil
}

func (w *wire) Write(b []byte) (int, error) {
	if w.conn != nil {
		return w.conn.Write(b)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.out = append(w.out, b...)
	return len(b), nil
}

// lend has Write put records behind dst. What a reader has answered before goes first.
func (w *wire) lend(dst []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.out = append(dst, w.out...)
}

// take gives dst back, with the records behind it: a connection at rest keeps no memory for them.
func (w *wire) take() []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := w.out
	w.out = nil
	return out
}

// The rest of net.Conn: whoever gave the connection closes it, and has set its deadline.

func (w *wire) Close() error                     { return nil }
func (w *wire) LocalAddr() net.Addr              { return nil }
func (w *wire) RemoteAddr() net.Addr             { return nil }
func (w *wire) SetDeadline(time.Time) error      { return nil }
func (w *wire) SetReadDeadline(time.Time) error  { return nil }
func (w *wire) SetWriteDeadline(time.Time) error { return nil }
