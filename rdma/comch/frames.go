package comch

import (
	"encoding/binary"
	"fmt"
	"io"
)

// A stream is messages behind each other, each behind its length:
//
//	2 bytes, little-endian  1 to MaxMessage   the length of the message that follows
//	                        frameEnd          the end mark: no message follows
//	                        frameAck          the other direction's end mark was taken
const (
	frameLen = 2
	frameEnd = 0xffff
	frameAck = 0xfffe
)

func appendFrame(b, message []byte) []byte {
	b = binary.LittleEndian.AppendUint16(b, uint16(len(message)))
	return append(b, message...)
}

// A scanner follows the frames of a stream that comes in pieces, without keeping
// any: it finds acknowledgements and what is no frame.
type scanner struct {
	left  int // bytes of the message under way
	half  int // the first byte of a length, when have is
	have  bool
	ended bool // the end mark has come
	acked bool
}

func (s *scanner) scan(b []byte) error {
	for len(b) > 0 {
		if s.left > 0 {
			n := min(s.left, len(b))
			s.left -= n
			b = b[n:]
			continue
		}
		if !s.have {
			if len(b) >= frameLen && !s.ended {
				// The usual case.
				if n := int(binary.LittleEndian.Uint16(b)); n >= 1 && n <= MaxMessage {
					s.left, b = n, b[frameLen:]
					continue
				}
			}
			s.half, s.have, b = int(b[0]), true, b[1:]
			continue
		}
		n := s.half | int(b[0])<<8
		s.have, b = false, b[1:]
		switch {
		case n == frameAck && !s.acked:
			s.acked = true
		case n == frameEnd && !s.ended:
			s.ended = true
		case n >= 1 && n <= MaxMessage && !s.ended:
			s.left = n
		default:
			return fmt.Errorf("%w: a frame of length %#x", ErrForged, n)
		}
	}
	return nil
}

// A reassembler gives out the messages of a stream that comes in pieces.
type reassembler struct {
	piece []byte // what is left of the last one
	kept  []byte // the beginning of a frame whose rest is in the next piece
	ended bool
}

// push adds a piece, which stays in use until next has said that it needs another.
func (r *reassembler) push(piece []byte) { r.piece = piece }

// next gives the next message: ok is false when another piece is needed. It returns
// io.EOF behind the end mark, and ErrSize, the message being left, when p is shorter.
func (r *reassembler) next(p []byte) (n int, ok bool, err error) {
	for {
		if r.ended {
			return 0, false, io.EOF
		}
		if len(r.kept) > 0 && !r.complete() {
			return 0, false, nil
		}
		b := r.piece
		if len(r.kept) > 0 {
			b = r.kept
		}
		if len(b) < frameLen {
			r.keep()
			return 0, false, nil
		}
		n = int(binary.LittleEndian.Uint16(b))
		switch {
		case n == frameEnd:
			r.ended = true
			continue
		case n == frameAck:
			r.drop(frameLen)
			continue
		case n < 1 || n > MaxMessage:
			return 0, false, fmt.Errorf("%w: a frame of length %#x", ErrForged, n)
		case len(b) < frameLen+n:
			r.keep()
			return 0, false, nil
		case n > len(p):
			return 0, false, fmt.Errorf("%w: a message of %d bytes, and a buffer of %d", ErrSize, n, len(p))
		}
		copy(p, b[frameLen:frameLen+n])
		r.drop(frameLen + n)
		return n, true, nil
	}
}

// complete moves bytes from the piece to the frame that is kept, and tells whether it is
// whole, or is none.
func (r *reassembler) complete() bool {
	r.fill(frameLen)
	if len(r.kept) < frameLen {
		return false
	}
	n := int(binary.LittleEndian.Uint16(r.kept))
	if n > MaxMessage {
		return true
	}
	r.fill(frameLen + n)
	return len(r.kept) == frameLen+n
}

func (r *reassembler) fill(to int) {
	if n := min(to-len(r.kept), len(r.piece)); n > 0 {
		r.kept = append(r.kept, r.piece[:n]...)
		r.piece = r.piece[n:]
	}
}

// keep saves the rest of the piece, which is less than a frame.
func (r *reassembler) keep() {
	if len(r.kept) == 0 {
		r.kept = append(r.kept, r.piece...)
		r.piece = nil
	}
}

// drop takes a frame of n bytes away.
func (r *reassembler) drop(n int) {
	if len(r.kept) > 0 {
		r.kept = r.kept[:0]
		return
	}
	r.piece = r.piece[n:]
}
