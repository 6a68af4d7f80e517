package soft

import (
	"errors"
	"io"
)

// A Handshake makes the encryption of a connection that has passed the greeting. Both ends call it at
// the same time, with the job's secret, with a name that no other connection has and that only
// the two ends of this one agree on, and one of them as the server. It blocks until the handshake is over, or
// fails; conn has a deadline. It reads no byte beyond. Package softtls has one.
type Handshake func(conn io.ReadWriter, secret []byte, name string, server bool) (Sealer, error)

// A Sealer encrypts the bytes of one connection: bytes in, bytes out, and no I/O. Seal and Open may be
// called at the same time, each by one caller at a time. They keep none of the slices.
type Sealer interface {
	// Seal appends the records of bufs to dst.
	Seal(dst []byte, bufs [][]byte) ([]byte, error)
	// Open appends to dst what the whole records at the beginning of in hold, and tells how long these are;
	// dst has room for as many bytes as in has. An error is for good: in is not what the other end has sealed.
	Open(dst, in []byte) (plain []byte, used int, err error)
}

// sealed is the encryption of a link, between its frames and its socket.
//
//	frames -> Seal -> out -> socket        socket -> in -> Open -> frames
type sealed struct {
	Sealer

	// Guarded by link.mu.
	out  []byte // records that wait for the socket, from gone on
	gone int
	part [][]byte // scratch

	in []byte // the beginning of a record; guarded by network.mu
}

// sealedBy is nil for a connection that is not encrypted.
func sealedBy(seal Sealer) *sealed {
	if seal == nil {
		return nil
	}
	return &sealed{Sealer: seal}
}

// sealMost is how many bytes of frames are sealed before the socket takes them: they
// are still in a core's cache then.
const sealMost = 64 << 10

// waiting is how many bytes wait for the socket.
func (s *sealed) waiting() int {
	if s == nil {
		return 0
	}
	return len(s.out) - s.gone
}

// send gives the socket what waits; whole: it has taken all.
func (s *sealed) send(l *link) (whole bool, err error) {
	if s.waiting() == 0 {
		return true, nil
	}
	k, err := l.toSocket([][]byte{s.out[s.gone:]})
	if k > 0 {
		l.heard.Add(1)
	}
	if s.gone += k; s.gone < len(s.out) {
		return false, err
	}
	s.out, s.gone = s.out[:0], 0
	return true, err
}

// write is link.write: it seals as much as the socket takes, and a little more. Called with
// the link's mu held.
func (s *sealed) write(l *link, bufs [][]byte) (taken int, err error) {
	for at, off := 0, 0; ; {
		whole, err := s.send(l)
		if err != nil || !whole {
			return taken, err
		}
		n := 0
		for ; at < len(bufs) && n < sealMost; off = 0 {
			b := bufs[at][off:]
			if room := sealMost - n; len(b) > room {
				s.part, n, off = append(s.part, b[:room]), sealMost, off+room
				break
			}
			s.part, n, at = append(s.part, b), n+len(b), at+1
		}
		if n == 0 {
			return taken, nil
		}
		s.out, err = s.Seal(s.out, s.part)
		clear(s.part) // what was sealed is the program's
		if s.part = s.part[:0]; err != nil {
			return taken, err
		}
		taken += n
	}
}

// read is link.read: it fills b, which has room for a record, with what whole records hold.
func (s *sealed) read(l *link, b []byte) (k int, end bool) {
	n := l.n
	if n.records == nil {
		n.records = make([]byte, readSize)
	}
	scratch := n.records[:len(b)]
	have := copy(scratch, s.in)
	k, end = l.fromSocket(scratch[have:])
	if end || k == 0 {
		return 0, end
	}
	in := scratch[:have+k]
	plain, used, err := s.Open(b[:0:len(b)], in)
	if err != nil {
		return 0, true
	}
	s.in = append(s.in[:0], in[used:]...)
	return len(plain), false
}

// secure is what encrypts the links to a peer; nil: nothing does. Those of a segment,
// which have their secret there, need none.
func (s *peer) secure() Handshake {
	if !s.ep.secure {
		return nil
	}
	return s.p.cfg.Secure
}

var errSealed = errors.New("found other bytes, expected the verdict under encryption")

// awaitSealed waits for the byte that say has sealed. Requests may follow at once, so it reads no byte behind that: one
// at a time, because how long a record is only the Sealer knows.
func awaitSealed(c io.Reader, s Sealer) (verdict byte, err error) {
	var b [512]byte
	for n := 1; n <= len(b); n++ {
		if _, err := io.ReadFull(c, b[n-1:n]); err != nil {
			return 0, err
		}
		plain, used, err := s.Open(make([]byte, 0, n), b[:n])
		switch {
		case err != nil:
			return 0, err
		case len(plain) == 1 && used == n:
			return plain[0], nil
		case used > 0:
			return 0, errSealed
		}
	}
	return 0, errSealed
}
