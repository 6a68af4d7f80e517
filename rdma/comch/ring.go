package comch

import (
	"fmt"
	"io"
	"sync/atomic"

	"github.com/gorun-mpi/gorun/internal/arch"
)

// A ring carries messages one way, from one sender to one receiver:
//
//	0        64            64+stride
//	+--------+--------------+--------------+- -
//	| taken  | slot 0       | slot 1       |
//	+--------+--------------+--------------+- -
//	          0        8              8+room   stride: a multiple of a cache line
//	          +--------+--------------+--------+
//	          | header | part         | unused |
//	          +--------+--------------+--------+
//
//	header    63         18 17 16 15          0
//	          +------------+-----+-------------+
//	          | turn       | kind| bytes       |
//	          +------------+-----+-------------+
//
// Slots are used in turn for ever: turn t, counted from 1, is slot (t-1) modulo the number
// of slots. A header that bears the turn which the receiver is at means that the slot
// is filled; until then it bears the turn before in that slot, or 0. Headers
// lie where no part ever lies, so no message can look like one.
//
// bytes is what is left of the message from this part on; all parts but the last
// are full. The sender stores the parts of a message from the last to the first, each
// header by a release store behind its part: a receiver that sees the first
// header sees the whole message.
//
// taken is the number of slots that the sender may use again: the receiver stores it, by
// a release store behind its copies, when it has taken a quarter of the ring since
// the last time, when it finds the ring empty, and with the end mark. The sender reads it
// when it has no credit left. So while both are busy each message moves its own
// cache lines and nothing else.
//
// A turn has 46 bits, for 200 days at 4 M slots a second and beyond what a receiver can be
// shown twice.
type geometry struct {
	Room  int `msgpack:"room"`  // bytes of a part
	Slots int `msgpack:"slots"` // of the ring
}

const (
	headerLen  = 8
	slotsAt    = arch.CacheLine
	turnShift  = 18
	kindShift  = 16
	bytesMask  = 1<<kindShift - 1
	kindMask   = 3
	kindFirst  = 0 // the first part of a message
	kindFollow = 1 // another part
	kindEnd    = 2 // the end mark, without bytes
)

// How many slots ahead an end asks for the cache lines that it will need, which the other
// end had last: without that each message waits for each of its lines.
const sendAhead, recvAhead = 4, 2

func (g geometry) stride() int {
	return (headerLen + g.Room + arch.CacheLine - 1) / arch.CacheLine * arch.CacheLine
}

// size is the memory of a ring.
func (g geometry) size() int { return slotsAt + g.Slots*g.stride() }

// parts is how many slots a message of n bytes takes.
func (g geometry) parts(n int) int { return (n + g.Room - 1) / g.Room }

// check judges what a peer says.
func (g geometry) check() error {
	if g.Room < MinBuffer || g.Room > MaxBuffer || g.Slots < 1 || g.Slots > MaxQueue || g.Slots < g.parts(MaxMessage) {
		return fmt.Errorf("%w: a queue of %d slots of %d bytes", ErrForged, g.Slots, g.Room)
	}
	return nil
}

func header(turn uint64, kind, bytes int) uint64 {
	return turn<<turnShift | uint64(kind)<<kindShift | uint64(bytes)
}

// cursor is where an end of a ring is. It never comes from the peer.
type cursor struct {
	geometry
	mem   []byte
	step  int
	turn  uint64 // of the next slot
	at    int    // where the next slot begins
	limit int    // where the last one ends
}

func newCursor(g geometry, mem []byte) cursor {
	mem = mem[:g.size():g.size()]
	return cursor{geometry: g, mem: mem, step: g.stride(), turn: 1, at: slotsAt, limit: len(mem)}
}

// after is where the slot behind the one at at begins.
func (p *cursor) after(at int) int {
	if at += p.step; at == p.limit {
		at = slotsAt
	}
	return at
}

// A ringSender is the sending end. It belongs to one goroutine at a time.
type ringSender struct {
	cursor
	taken uint64 // what the receiver has said last: turns up to here may be used again
	need  int    // slots of the message that had no room last
}

// room tells whether n more slots may be used. An error means that the receiver has
// lied: it has taken what was not sent, or gives back credit that it gave before.
func (s *ringSender) room(n int) (bool, error) {
	if s.turn-1+uint64(n)-s.taken <= uint64(s.Slots) {
		return true, nil
	}
	taken := atomic.LoadUint64(word(s.mem, 0))
	if taken < s.taken || taken > s.turn-1 {
		return false, fmt.Errorf("%w: %d slots taken after %d, of %d sent", ErrForged, taken, s.taken, s.turn-1)
	}
	s.taken = taken
	return s.turn-1+uint64(n)-taken <= uint64(s.Slots), nil
}

// try sends a message if there is room.
func (s *ringSender) try(p []byte) (bool, error) {
	if len(p) <= s.Room {
		if s.turn-s.taken > uint64(s.Slots) {
			if ok, err := s.room(1); !ok {
				s.need = 1
				return false, err
			}
		}
		at := s.at
		copy(s.mem[at+headerLen:at+headerLen+s.Room], p)
		arch.StoreRelease64(word(s.mem, at), header(s.turn, kindFirst, len(p)))
		s.turn++
		s.at = s.after(at)
		if ahead := at + sendAhead*s.step; ahead < s.limit {
			arch.PrefetchWrite(word(s.mem, ahead), s.step/arch.CacheLine)
		}
		return true, nil
	}
	n := s.parts(len(p))
	if ok, err := s.room(n); !ok {
		s.need = n
		return false, err
	}
	first := (s.at - slotsAt) / s.step
	for i := n - 1; i >= 0; i-- {
		at := slotsAt + (first+i)%s.Slots*s.step
		part := p[i*s.Room:]
		kind := kindFollow
		if i == 0 {
			kind = kindFirst
		}
		copy(s.mem[at+headerLen:at+headerLen+s.Room], part)
		arch.StoreRelease64(word(s.mem, at), header(s.turn+uint64(i), kind, len(part)))
	}
	s.turn += uint64(n)
	s.at = slotsAt + (first+n)%s.Slots*s.step
	return true, nil
}

// end sends the end mark if there is room.
func (s *ringSender) end() (bool, error) {
	if ok, err := s.room(1); !ok {
		s.need = 1
		return false, err
	}
	arch.StoreRelease64(word(s.mem, s.at), header(s.turn, kindEnd, 0))
	s.turn++
	s.at = s.after(s.at)
	return true, nil
}

// drained tells whether the receiver has taken everything.
func (s *ringSender) drained() (bool, error) {
	if s.taken != s.turn-1 {
		if _, err := s.room(s.Slots); err != nil {
			return false, err
		}
	}
	return s.taken == s.turn-1, nil
}

// A ringReceiver is the receiving end. It belongs to one goroutine at a time.
type ringReceiver struct {
	cursor
	told  uint64 // what the sender was told of as taken
	ended bool
}

// tell gives the sender its slots back, and tells whether there were some.
func (r *ringReceiver) tell() bool {
	if r.told == r.turn-1 {
		return false
	}
	r.told = r.turn - 1
	arch.StoreRelease64(word(r.mem, 0), r.told)
	return true
}

// due tells whether it is time to tell.
func (r *ringReceiver) due() bool { return r.turn-1-r.told >= uint64(r.Slots+3)/4 }

// peek reads the header of the next slot: ok when it is filled.
func (r *ringReceiver) peek() (h uint64, ok bool, err error) {
	h = atomic.LoadUint64(word(r.mem, r.at))
	turn := h >> turnShift
	if turn == r.turn {
		return h, true, nil
	}
	old := uint64(0)
	if r.turn > uint64(r.Slots) {
		old = r.turn - uint64(r.Slots)
	}
	if turn != old {
		return 0, false, fmt.Errorf("%w: a slot of turn %d where %d is next", ErrForged, turn, r.turn)
	}
	return 0, false, nil
}

// try receives a message if there is one. It returns io.EOF at the end mark, and
// ErrSize, the message being left, when p is shorter.
func (r *ringReceiver) try(p []byte) (n int, ok bool, err error) {
	if r.ended {
		return 0, false, io.EOF
	}
	h, ok, err := r.peek()
	if !ok {
		return 0, false, err
	}
	n = int(h & bytesMask)
	switch kind := h >> kindShift & kindMask; {
	case kind == kindEnd && n == 0:
		r.ended = true
		r.turn++
		r.at = r.after(r.at)
		return 0, false, io.EOF
	case kind != kindFirst || n < 1 || n > MaxMessage:
		return 0, false, fmt.Errorf("%w: a first part of kind %d with %d bytes", ErrForged, kind, n)
	case n > len(p):
		return 0, false, fmt.Errorf("%w: a message of %d bytes, and a buffer of %d", ErrSize, n, len(p))
	case n <= r.Room:
		if ahead := r.at + recvAhead*r.step; ahead < r.limit {
			arch.PrefetchRead(word(r.mem, ahead), r.step/arch.CacheLine)
		}
		copy(p[:n], r.mem[r.at+headerLen:r.at+headerLen+r.Room])
		r.turn++
		r.at = r.after(r.at)
		return n, true, nil
	}
	// Every part takes a slot, of which a message has at most parts(MaxMessage).
	at, turn := r.at, r.turn
	for left := n; left > 0; left -= r.Room {
		if left < n {
			if h, want := atomic.LoadUint64(word(r.mem, at)), header(turn, kindFollow, left); h != want {
				return 0, false, fmt.Errorf("%w: a part with the header %#x, expected %#x", ErrForged, h, want)
			}
		}
		copy(p[n-left:n], r.mem[at+headerLen:at+headerLen+r.Room])
		turn++
		at = r.after(at)
	}
	r.at, r.turn = at, turn
	return n, true, nil
}
