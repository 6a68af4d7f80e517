package wireup

import (
	"errors"
	"fmt"

	"github.com/gorun-mpi/gorun/internal/pack"
	"github.com/gorun-mpi/gorun/rank/internal/peers/mail"
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
	// Mail is where offers of queue pairs go that are made on demand.
	Mail mail.Address
	// Target is where dynamically connected peers send to.
	Target Target
	// Control is where peers return message credit.
	Control    uint64
	ControlKey uint32
	Team       []byte // the intro of the world's team
}

// cardFields is how many elements a card has.
const cardFields = 19

// Pack gives the card in msgpack: an array with the version first and then the
// fields in order.
func (c *Card) Pack() []byte {
	w := pack.NewWriter(512)
	w.Array(cardFields)
	w.Uint(cardVersion)
	w.String(c.Host)
	w.String(c.Place)
	w.Uint(uint64(c.Local))
	w.Uint(uint64(c.PID))
	w.String(c.Device)
	w.String(c.Provider)
	w.Bin(c.GID[:])
	w.Bin(c.Endpoint)
	w.Uint(uint64(c.MTU))
	c.Messages.pack(w)
	c.Collectives.pack(w)
	w.Uint(uint64(c.Mail.Number))
	w.Uint(uint64(c.Mail.Key))
	w.Uint(uint64(c.Target.Number))
	w.Uint(c.Target.Key)
	w.Uint(c.Control)
	w.Uint(uint64(c.ControlKey))
	w.Bin(c.Team)
	return w.Bytes()
}

// errVersion: the card is of another version, or not a card at all.
var errVersion = errors.New("the address is of another version: build all ranks from the same version of this package")

// ParseCards reads the cards of all ranks. Their slices are parts of packed. Parts that equal the card before, as most
// do, are kept once.
func ParseCards(packed [][]byte) ([]Card, error) {
	cards := make([]Card, len(packed))
	r := pack.NewReader(nil)
	before := &Card{}
	for rank, b := range packed {
		r.Reset(b)
		var err error
		if cards[rank], err = parseCard(r, b, before); err != nil {
			return nil, fmt.Errorf("address of rank %d: %w", rank, err)
		}
		before = &cards[rank]
	}
	return cards, nil
}

// text reads text that may be the same as another.
func text(r *pack.Reader, same string) string {
	if b := r.Bin(); string(b) != same {
		return string(b)
	}
	return same
}

func parseCard(r *pack.Reader, b []byte, before *Card) (Card, error) {
	var c Card
	if r.Array() != cardFields || r.Uint() != cardVersion || r.Err() != nil {
		return c, errVersion
	}
	c.Host = text(r, before.Host)
	c.Place = text(r, before.Place)
	c.Local = int(r.Below(1 << 31))
	c.PID = int(r.Below(1 << 31))
	c.Device = text(r, before.Device)
	c.Provider = text(r, before.Provider)
	if gid := r.Bin(); len(gid) == len(c.GID) {
		copy(c.GID[:], gid)
	} else {
		r.Fail()
	}
	c.Endpoint = r.Bin()
	c.MTU = rdma.MTU(r.Below(uint64(rdma.MTU4096) + 1))
	c.Messages.parse(r)
	c.Collectives.parse(r)
	c.Mail = mail.Address{Number: uint32(r.Below(1 << 24)), Key: uint32(r.Below(1 << 32))}
	c.Target = Target{Number: uint32(r.Below(1 << 24)), Key: r.Uint()}
	c.Control = r.Uint()
	c.ControlKey = uint32(r.Below(1 << 32))
	c.Team = r.Bin()
	if err := r.End(); err != nil {
		return Card{}, fmt.Errorf("card of %d bytes: %w", len(b), err)
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

func (s *Numbers) pack(w *pack.Writer) {
	w.Array(3 * len(s.runs))
	for _, r := range s.runs {
		w.Uint(uint64(r.first))
		w.Uint(uint64(r.step))
		w.Uint(uint64(r.n))
	}
}

// numbersMax bounds how many numbers a card may claim to hold.
const numbersMax = 1 << 24

func (s *Numbers) parse(in *pack.Reader) {
	count := in.Array()
	if count%3 != 0 {
		in.Fail()
		return
	}
	for range count / 3 {
		r := run{first: uint32(in.Below(1 << 24)), step: uint32(in.Below(1 << 24)), n: uint32(in.Below(numbersMax + 1))}
		s.n += int(r.n)
		if s.n > numbersMax || in.Err() != nil {
			in.Fail()
			*s = Numbers{}
			return
		}
		s.runs = append(s.runs, r)
	}
}
