package coll

import (
	"encoding/binary"
	"testing"

	"github.com/gorun-mpi/gorun/internal/shm"
	"github.com/gorun-mpi/gorun/internal/wait"
	"github.com/gorun-mpi/gorun/rdma"
	"github.com/gorun-mpi/gorun/rdma/soft"
)

// A scribbler is a rank of two that writes anything on its desk and into its door, beside a
// daemon whose passes the test makes itself.
type scribbler struct {
	nw      network
	segment *shm.Segment
	visitor *soft.Visitor
	mr      rdma.MR
}

// FuzzDesk has the daemon read whatever a rank may leave: words of the desk, of a record and of
// its notes, each given as a place and a value. It must neither panic nor loop, nor write to
// memory that the rank's keys do not grant, which here is that of the other rank.
func FuzzDesk(f *testing.F) {
	word := func(at uint16, v uint64) []byte {
		return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint16(nil, at), v)
	}
	f.Add([]byte{})
	f.Add(word(headMember, 1<<32|2))
	f.Add(word(headSlots, 1<<40))
	for at := range uint16(deskWords(2)) {
		f.Add(word(at, 1))
		f.Add(word(at, 1<<63-1))
	}
	s := newScribbler(f)
	f.Fuzz(func(t *testing.T, script []byte) { s.play(t, script) })
}

func newScribbler(t testing.TB) *scribbler {
	s := &scribbler{nw: network{n: 2, offload: 1}}
	s.nw.open(t)
	s.nw.endDaemon()
	s.segment = s.nw.segments[0]
	var err error
	if s.visitor, err = soft.Visit(s.segment); err != nil {
		t.Fatal(err)
	}
	if s.mr, err = s.nw.members[0].pd.AllocMR(64<<10, rdma.AccessLocalWrite|reachable); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.mr.Close() })
	return s
}

func (s *scribbler) play(t *testing.T, script []byte) {
	m := s.nw.members[0]
	d, err := NewDaemon(DaemonConfig{Segment: s.segment, Ranks: 2, Threads: 1, Memory: s.visitor.Peer, Goroutines: true})
	if err != nil {
		t.Fatal(err)
	}
	// A team of which the other member is not there: its lane is a piece of our own memory.
	l := newLayout(2, leastSlots, 256, false)
	at := l.desk()
	region, err := m.pd.AllocMR(at+deskSize(2), rdma.AccessLocalWrite|rdma.AccessRemoteWrite)
	if err != nil {
		t.Fatal(err)
	}
	defer region.Close()
	clear(region.Bytes())
	words, err := wordsOf(region.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	team := &Team{rank: 0, size: 2, layout: l, tuning: tuning{slots: leastSlots, eager: 256, chunk: 1 << 10, piece: 1 << 10}}
	k := desk{words: words[at/8:], size: 2}
	k.begin(team)
	k.setMember(0, 0, 0, 0)
	k.setMember(1, 0, region.Addr(), region.RKey())
	r := k.record(0)
	r.setCall(&Call{Kind: AllToAll, Algorithm: Direct, Size: 2, Bytes: 32 << 10, Elem: 1}, 0, 0, true)
	r.setOperand(output, key{addr: s.mr.Addr(), rkey: s.mr.RKey(), access: reachable}, s.mr.Len())
	r.setState(recordLent)
	n := note{addr: region.Addr(), length: uint32(region.Len()), rkey: region.RKey(), desk: uint32(at), serial: 1}
	for ; len(script) >= 10; script = script[10:] {
		place, v := int(binary.LittleEndian.Uint16(script)), binary.LittleEndian.Uint64(script[2:])
		switch place -= place / 4096 * 4096; {
		case place < deskWords(2):
			k.words[place] = v
		case place < deskWords(2)+noteWords:
			var w [noteWords]uint64
			n.put(w[:])
			w[place-deskWords(2)] ^= v
			n = readNote(w[:])
		}
	}
	th := d.threads[0]
	o := &th.doors[0]
	n.put(o.door.note(o.taken))
	o.door[doorPosted] = o.taken + 1
	th.waiter = wait.New(wait.Config{Scheduler: true})
	for range 3 {
		th.Ready()
	}
	// What was lent is let go of, whatever it was.
	n.record = noteStop
	n.put(o.door.note(o.taken))
	o.door[doorPosted] = o.taken + 1
	th.Ready()
	if len(th.open) > 0 && len(th.open[0].(*deputy).queue) > 0 && n.serial == th.open[0].(*deputy).serial {
		t.Fatal("a call is still with the daemon after its team was stopped")
	}
}
