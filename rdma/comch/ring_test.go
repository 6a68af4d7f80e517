package comch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"testing"
)

// Random steps of both ends against a plain queue.
func TestRingIsAQueue(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		g := geometry{Room: MinBuffer + r.IntN(300), Slots: 0}
		g.Slots = g.parts(MaxMessage) + r.IntN(20)
		mem := make([]byte, g.size())
		s, rec := ringSender{cursor: newCursor(g, mem)}, ringReceiver{cursor: newCursor(g, mem)}
		var model [][]byte
		slots := 0
		buf := make([]byte, MaxMessage)
		for range 400 {
			if r.IntN(2) == 0 {
				msg := message(seed, r.IntN(100))
				sent, err := s.try(msg)
				if err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				if sent {
					model, slots = append(model, msg), slots+g.parts(len(msg))
				} else if slots+g.parts(len(msg)) <= g.Slots*3/4 {
					t.Fatalf("seed %d: no room for %d parts beside %d of %d", seed, g.parts(len(msg)), slots, g.Slots)
				}
				continue
			}
			n, ok, err := rec.try(buf)
			if err != nil || ok != (len(model) > 0) {
				t.Fatalf("seed %d: got %v, %v with %d messages there", seed, ok, err, len(model))
			}
			if !ok || rec.due() {
				rec.tell()
			}
			if ok {
				if !bytes.Equal(buf[:n], model[0]) {
					t.Fatalf("seed %d: got %d bytes, want %d", seed, n, len(model[0]))
				}
				slots -= g.parts(n)
				model = model[1:]
			}
		}
	}
}

// A message's bytes never pass for a header, whatever they are.
func TestNoMessageForgesAnother(t *testing.T) {
	g := geometry{Room: 64, Slots: 64}
	mem := make([]byte, g.size())
	s, r := ringSender{cursor: newCursor(g, mem)}, ringReceiver{cursor: newCursor(g, mem)}
	buf := make([]byte, MaxMessage)
	for turn := range uint64(1000) {
		// Words that would be the header of any of the next turns.
		msg := make([]byte, 0, 64*8)
		for k := range uint64(64) {
			msg = binary.LittleEndian.AppendUint64(msg, header(turn+k, kindFirst, 8))
		}
		if sent, err := s.try(msg); !sent || err != nil {
			t.Fatal(sent, err)
		}
		if n, ok, err := r.try(buf); !ok || err != nil || !bytes.Equal(buf[:n], msg) {
			t.Fatalf("turn %d: %d bytes, %v, %v", turn, n, ok, err)
		}
		if n, ok, err := r.try(buf); ok || err != nil {
			t.Fatalf("turn %d: a second message, of %d bytes, %v", turn, n, err)
		}
		r.tell()
	}
}

// scribbles are what a peer may write, and what the other end must say to it.
func TestScribbledRing(t *testing.T) {
	g := geometry{Room: 256, Slots: 16}
	for name, c := range map[string]struct {
		at   int
		word uint64
		send bool // the sender looks
	}{
		"a turn to come":        {slotsAt, header(2, kindFirst, 8), false},
		"all ones":              {slotsAt, 1<<64 - 1, false},
		"no bytes":              {slotsAt, header(1, kindFirst, 0), false},
		"too many bytes":        {slotsAt, header(1, kindFirst, MaxMessage+1), false},
		"an end with bytes":     {slotsAt, header(1, kindEnd, 1), false},
		"begins in the middle":  {slotsAt, header(1, kindFollow, 8), false},
		"an unknown kind":       {slotsAt, header(1, 3, 8), false},
		"parts that are not":    {slotsAt, header(1, kindFirst, 600), false},
		"taken what is not":     {0, 1000, true},
		"given back, all ones":  {0, 1<<64 - 1, true},
		"given back too little": {0, 0, true},
	} {
		mem := make([]byte, g.size())
		binary.LittleEndian.PutUint64(mem[c.at:], c.word)
		var err error
		if c.send {
			s := ringSender{cursor: newCursor(g, mem), taken: 1}
			s.turn = 17
			_, err = s.room(16)
		} else {
			r := ringReceiver{cursor: newCursor(g, mem)}
			_, _, err = r.try(make([]byte, MaxMessage))
		}
		if !errors.Is(err, ErrForged) {
			t.Errorf("%s: %v, want %v", name, err, ErrForged)
		}
	}
}

// FuzzRing has a peer fill the ring with anything, between any steps: every call returns,
// within the ring, with a message that may be one, or an error.
func FuzzRing(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3}, uint16(64), uint16(70), []byte("\x08\x00\x04\x00\x00\x00\x00\x00"))
	f.Add([]byte{1, 1, 3, 1, 0, 0, 2, 2}, uint16(16), uint16(255), []byte("\x00\x10\x04\x00\x00\x00\x00\x00"))
	f.Add([]byte{3, 0, 3, 1, 3, 2}, uint16(4096), uint16(1), []byte("\xff\xff\xff\xff\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, steps []byte, room, slots uint16, scribble []byte) {
		g := geometry{Room: int(room), Slots: int(slots)}
		if g.check() != nil || g.size() > 1<<20 {
			return
		}
		// Behind the ring is memory that is not its own.
		guard := bytes.Repeat([]byte{0xa5}, 4096)
		all := append(make([]byte, g.size()), guard...)
		s, r := ringSender{cursor: newCursor(g, all)}, ringReceiver{cursor: newCursor(g, all)}
		buf := make([]byte, MaxMessage)
		for i, step := range steps {
			switch step % 6 {
			case 0:
				s.try(buf[:1+(i*int(step)*7)%MaxMessage])
			case 1:
				if n, ok, err := r.try(buf); ok && (n < 1 || n > MaxMessage || err != nil) {
					t.Fatalf("a message of %d bytes, %v", n, err)
				}
				r.tell()
			case 2:
				s.drained()
			case 3:
				if len(scribble) > 0 {
					at := i * int(step) * 64 % g.size()
					copy(all[at:g.size()], scribble)
				}
			case 4:
				binary.LittleEndian.PutUint64(all[r.at:], header(r.turn, int(step>>3)%4, int(step)*i))
			case 5:
				if _, err := s.end(); err == io.EOF {
					t.Fatal("an end of sending is none")
				}
			}
		}
		if !bytes.Equal(all[g.size():], guard) {
			t.Fatal("something wrote behind the ring")
		}
	})
}
