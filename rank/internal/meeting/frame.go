package meeting

import (
	"bufio"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

// greeting is what each end sends first: the protocol with its version, and a nonce.
const protocol = "gorun-meeting/1\n"

const (
	nonceSize = 16
	sumSize   = 16
)

// The first byte of a payload says what it is.
const (
	frameHello = 'h' // rank and list of one that has come
	frameGo    = 'g' // all are here
	frameCard  = 'c' // one's, or all
	frameError = 'e' // the other end gives up, and why
)

// A wire is a connection on which both ends have sent a nonce. A frame is
//
//	4 bytes, little-endian  length of the payload
//	payload
//	16 bytes                HMAC-SHA256, by the key of the connection, of the direction, the frame's number, and the two above
type wire struct {
	conn     net.Conn
	in       *bufio.Reader
	key      []byte
	dialed   bool // this end has
	out, got uint64
}

// begin exchanges the nonces.
func begin(conn net.Conn, secret []byte, dialed bool) (*wire, error) {
	w := &wire{conn: conn, in: bufio.NewReader(conn), dialed: dialed}
	own := append(make([]byte, 0, len(protocol)+nonceSize), protocol...)
	nonce := make([]byte, nonceSize)
	_, _ = rand.Read(nonce) // which never fails
	own = append(own, nonce...)
	if dialed {
		if _, err := conn.Write(own); err != nil {
			return nil, err
		}
	}
	theirs := make([]byte, len(own))
	if _, err := io.ReadFull(w.in, theirs); err != nil {
		return nil, fmt.Errorf("%w: %w", errStranger, err)
	}
	if string(theirs[:len(protocol)]) != protocol {
		return nil, errStranger
	}
	if !dialed {
		if _, err := conn.Write(own); err != nil {
			return nil, err
		}
		own, theirs = theirs, own
	}
	m := hmac.New(sha256.New, secret)
	m.Write(own)
	m.Write(theirs)
	w.key = m.Sum(nil)
	return w, nil
}

var (
	errStranger = errors.New("it is no rank of this version")
	errKey      = errors.New("it has another key")
)

func (w *wire) sum(dialer bool, number uint64, frame []byte) []byte {
	m := hmac.New(sha256.New, w.key)
	head := binary.LittleEndian.AppendUint64(nil, number)
	if dialer {
		head = append(head, 1)
	}
	m.Write(head)
	m.Write(frame)
	return m.Sum(nil)[:sumSize]
}

func (w *wire) write(payload []byte) error {
	b := binary.LittleEndian.AppendUint32(make([]byte, 0, 4+len(payload)+sumSize), uint32(len(payload)))
	b = append(b, payload...)
	b = append(b, w.sum(w.dialed, w.out, b)...)
	w.out++
	_, err := w.conn.Write(b)
	return err
}

// read reads a frame of at most so many bytes of payload. Memory is taken as bytes come.
func (w *wire) read(most int) ([]byte, error) {
	b := make([]byte, 4, 512)
	if _, err := io.ReadFull(w.in, b); err != nil {
		return nil, err
	}
	n := int64(binary.LittleEndian.Uint32(b))
	if n > int64(most) {
		return nil, fmt.Errorf("%w: a frame of %d bytes, expected at most %d", errStranger, n, most)
	}
	rest, err := io.ReadAll(io.LimitReader(w.in, n+sumSize))
	if err == nil && int64(len(rest)) < n+sumSize {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, err
	}
	b = append(b, rest[:n]...)
	if !hmac.Equal(rest[n:], w.sum(!w.dialed, w.got, b)) {
		return nil, errKey
	}
	w.got++
	return b[4:], nil
}

// receive reads a frame of a kind; where the other end gives up instead, the error is its own.
func (w *wire) receive(kind byte, most int) ([]byte, error) {
	b, err := w.read(most + 1)
	switch {
	case err != nil:
		return nil, err
	case len(b) > 0 && b[0] == kind:
		return b[1:], nil
	case len(b) > 0 && b[0] == frameError:
		return nil, errors.New(string(b[1:]))
	}
	return nil, errStranger
}

// refuse tells the other end why it is not let in, or why this one gives up.
func (w *wire) refuse(err error) { _ = w.write(append([]byte{frameError}, err.Error()...)) }

// limit bounds what the wire waits for from now on; 0: nothing does.
func (w *wire) limit(d time.Duration) {
	var at time.Time
	if d > 0 {
		at = time.Now().Add(d)
	}
	_ = w.conn.SetDeadline(at)
}
