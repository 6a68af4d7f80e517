package p2p

import (
	"context"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/gorun-mpi/gorun/internal/arch"
	"github.com/gorun-mpi/gorun/rank/internal/match"
	"github.com/gorun-mpi/gorun/rank/internal/peers"
)

// A note is what rank 1 puts into the inbox of rank 0 in FuzzInbox: 24 bytes, and
// what is left of the line is the last of them again and again.
//
//	0 how: bit 7 says that the word is scribbled over the line at the head
//	1 kind  2 bytes on it  3 source, where it is scribbled
//	4 route: tag and context, or purpose  8 id  16 data
const noteSize = 24

func note(what kind, n int, route, id uint64, data ...byte) []byte {
	b := []byte{0, byte(what), byte(n), 1}
	b = binary.LittleEndian.AppendUint32(b, uint32(route))
	b = binary.LittleEndian.AppendUint64(b, id)
	return append(b, append(data, make([]byte, 8)...)[:8]...)
}

// FuzzInbox has rank 1 put any lines into the inbox of rank 0: messages, announcements,
// answers, rings, and offers of queue pairs. Rank 0's calls end, its receives get no
// more than they have room for, and it makes at most a queue pair of each purpose.
func FuzzInbox(f *testing.F) {
	add := func(notes ...[]byte) {
		var b []byte
		for _, n := range notes {
			b = append(b, n...)
		}
		f.Add(b)
	}
	for what := range offer + 2 {
		add(note(what, 8, 1, 0, 1, 2, 3), note(what, 200, 1, 1<<48|1<<32|5, 0xff, 0xff, 0xff, 0xff, 0xff), note(eager, 40, 1, 9))
	}
	add(note(offer, 0, 0, 5), note(offer, 0, 0, 1<<32|5), note(offer, 0, 1, 6), note(offer, 0, 7, ^uint64(0)))
	add(note(wantRing, 0, 0, 0), note(wantRing, 0, 0, 0), note(useRing, 0, 0, 0), note(grantRing, 0, 0, 3), note(grantRing, 0, 0, 3))
	add(note(announce, 29, 1, 0, 0, 0, 1), note(announce, 29, 1, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f), note(splitOut, 0, 0, 0), note(finished, 0, 0, 0), note(refused, 0, 0, 0))
	add(append([]byte{0x80}, note(claimed, 0, 0, 0)[1:]...), note(eager, 1, 1, 0))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, tr := range []transport{{name: "on demand", mapped: true, onDemand: true}} {
			runEngines(t, 2, tr, func(ctx context.Context, p *member) error {
				other := p.self.rank ^ 1
				if _, err := p.Exchange(ctx, &Sending{Buf: []byte{1}, Envelope: p.env(0), Peer: other}, &Receiving{Buf: make([]byte, 1), Want: want(other, 0)}); err != nil {
					return err
				}
				rest := data
				for range 8 {
					p.meet()
					if p.self.rank == 1 {
						rest = p.notes(rest)
					}
					p.meet()
					if p.self.rank == 0 {
						p.take(t)
					}
				}
				return errSilent
			})
		}
	})
}

// notes puts some notes, and gives the rest.
func (p *member) notes(data []byte) (rest []byte) {
	to := &p.self.peers[0]
	for range 16 {
		if len(data) < noteSize || to.far == nil {
			return nil
		}
		b := data[:noteSize]
		data = data[noteSize:]
		what := kind(b[1])
		if b[1] > byte(offer)+2 && b[0]&1 == 0 {
			what = kind(b[1] % byte(offer+1))
		}
		at, ok := p.lines.claim(to.far)
		if !ok {
			return data
		}
		ln, source, lap := &to.far.inbox[at%inboxLines], 1, uint32(at/inboxLines)
		if b[0]&0x80 != 0 {
			source, lap = int(b[3]), lap+uint32(b[0]>>5&3)-1
		}
		ln.route, ln.id = uint64(binary.LittleEndian.Uint32(b[4:])), binary.LittleEndian.Uint64(b[8:])
		if what < offer { // a message is one to be found
			ln.route = uint64(b[4]%2)<<32 | ln.route&0xff
		}
		for i := range ln.data {
			ln.data[i] = b[16+min(i, 7)]
		}
		arch.StoreRelease64(&ln.word, pack(lap, what, int(b[2]), source))
	}
	return data
}

// take has rank 0 do what it does with what came.
func (p *member) take(t *testing.T) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	env := match.Envelope{Context: 1, Source: match.Any, Tag: match.Any}
	memory := make([]byte, 64+100+64)
	room := memory[64:164:164]
	for range 20 {
		p.Progress()
		if m, st, ok, err := p.Improbe(env, nil); ok && err == nil {
			if st.Bytes < 0 {
				t.Errorf("a message of %d bytes", st.Bytes)
			}
			if o, err := p.Imrecv(m, room, nil, 0); err == nil {
				_ = p.Wait(ended, o)
				p.Abandon(o)
			}
		}
	}
	st, err := p.Recv(ended, room, nil, env, nil)
	if err == nil && st.Bytes > len(room) {
		t.Errorf("a receive of %d bytes has got %d", len(room), st.Bytes)
	}
	for use := range peers.Uses {
		if _, err := p.self.set.Queue(1, use); err != nil && errors.Is(err, context.Canceled) {
			t.Errorf("queue pair: %v", err)
		}
	}
	for i, v := range append(memory[:64:64], memory[164:]...) {
		if v != 0 {
			t.Fatalf("byte %d beside a receive's memory is %#x", i, v)
		}
	}
	if n := p.connections(); n > 1 {
		t.Errorf("%d queue pairs for messages are connected with one peer", n)
	}
}
