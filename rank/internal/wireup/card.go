package wireup

import (
	"errors"
	"fmt"

	"github.com/gorun-mpi/gorun/rdma"
)

// cardVersion is the first element of every card; another one means another
// program, or one built from other sources.
const cardVersion = 1

// A Card is what a rank tells all others about itself.
type Card struct {
	Host     string // for people
	Place    string // ranks with the same place share memory
	Local    int    // rank in the place's segment
	PID      int
	Device   string
	Provider string
	GID      rdma.GID
	Endpoint []byte // how the device is reached, where a GID does not say it
	MTU      rdma.MTU
	// Messages and Collectives are the numbers of the queue pairs for each
	// peer, in the order of ranks without the rank itself.
	Messages    Numbers
	Collectives Numbers
	// Control is where peers return message credit.
	Control    uint64
	ControlKey uint32
	Team       []byte // the world's collectives' own card
}

// cardFields is how many elements a card has.
const cardFields = 15

// Append appends the card in msgpack: an array with the version first and then
// the fields in order.
func (c *Card) Append(b []byte) []byte {
	b = appendArray(b, cardFields)
	b = appendUint(b, cardVersion)
	b = appendString(b, c.Host)
	b = appendString(b, c.Place)
	b = appendUint(b, uint64(c.Local))
	b = appendUint(b, uint64(c.PID))
	b = appendString(b, c.Device)
	b = appendString(b, c.Provider)
	b = appendBin(b, c.GID[:])
	b = appendBin(b, c.Endpoint)
	b = appendUint(b, uint64(c.MTU))
	b = c.Messages.append(b)
	b = c.Collectives.append(b)
	b = appendUint(b, c.Control)
	b = appendUint(b, uint64(c.ControlKey))
	return appendBin(b, c.Team)
}

// errVersion: the card is of another version, or not a card at all.
var errVersion = errors.New("not a card of this version: all ranks must be built from the same version of the package")

// ParseCard reads a card. Its slices are parts of b.
func ParseCard(b []byte) (Card, error) {
	var c Card
	u := unpacker{b: b}
	if u.array() != cardFields || u.uint() != cardVersion || u.err != nil {
		return c, errVersion
	}
	c.Host = u.string()
	c.Place = u.string()
	c.Local = int(u.below(1<<31 - 1))
	c.PID = int(u.below(1<<31 - 1))
	c.Device = u.string()
	c.Provider = u.string()
	if gid := u.bin(); len(gid) == len(c.GID) {
		copy(c.GID[:], gid)
	} else {
		u.fail()
	}
	c.Endpoint = u.bin()
	c.MTU = rdma.MTU(u.below(uint64(rdma.MTU4096)))
	c.Messages.parse(&u)
	c.Collectives.parse(&u)
	c.Control = u.uint()
	c.ControlKey = uint32(u.below(1<<32 - 1))
	c.Team = u.bin()
	if u.err != nil {
		return Card{}, fmt.Errorf("card of %d bytes: %w", len(b), u.err)
	}
	if len(u.b) > 0 {
		return Card{}, fmt.Errorf("card of %d bytes: %d bytes too many", len(b), len(u.b))
	}
	return c, nil
}

// Numbers are queue pair numbers as runs: devices hand them out in sequence, so
// a thousand of them are one run in a card.
type Numbers struct {
	runs []run
	n    int
}

// run is first, first+step, ... of length n.
type run struct{ first, step, n uint32 }

// Add appends a number.
func (s *Numbers) Add(v uint32) {
	s.n++
	if k := len(s.runs); k > 0 {
		r := &s.runs[k-1]
		if r.n == 1 && v > r.first {
			r.step = v - r.first
		}
		if r.n == 1 && v > r.first || r.first+r.step*r.n == v && r.step > 0 {
			r.n++
			return
		}
	}
	s.runs = append(s.runs, run{first: v, n: 1})
}

// Len is how many numbers there are.
func (s *Numbers) Len() int { return s.n }

// At is the number at index i.
func (s *Numbers) At(i int) uint32 {
	for _, r := range s.runs {
		if i < int(r.n) {
			return r.first + r.step*uint32(i)
		}
		i -= int(r.n)
	}
	panic("wireup: index out of range")
}

// For is the number of rank owner's queue pair for peer, in a list without the
// owner itself.
func (s *Numbers) For(owner, peer int) uint32 {
	if peer > owner {
		peer--
	}
	return s.At(peer)
}

func (s *Numbers) append(b []byte) []byte {
	b = appendArray(b, 3*len(s.runs))
	for _, r := range s.runs {
		b = appendUint(b, uint64(r.first))
		b = appendUint(b, uint64(r.step))
		b = appendUint(b, uint64(r.n))
	}
	return b
}

// numbersMax bounds how many numbers a card may claim to hold.
const numbersMax = 1 << 24

func (s *Numbers) parse(u *unpacker) {
	count := u.array()
	if count%3 != 0 {
		u.fail()
		return
	}
	for range count / 3 {
		r := run{first: uint32(u.below(1<<24 - 1)), step: uint32(u.below(1<<24 - 1)), n: uint32(u.below(numbersMax))}
		s.n += int(r.n)
		if s.n > numbersMax || u.err != nil {
			u.fail()
			*s = Numbers{}
			return
		}
		s.runs = append(s.runs, r)
	}
}
