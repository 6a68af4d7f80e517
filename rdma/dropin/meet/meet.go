package meet

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/gorun-mpi/gorun/internal/shm"
	"github.com/gorun-mpi/gorun/rdma"
)

// ErrFull is the error of a fabric without a place.
var ErrFull = errors.New("the fabric is full")

// A Member is this process's place in a fabric.
type Member struct {
	segment *shm.Segment
	dir     directory
	place   int // rank in the segment
	door    int // the socket by which others find the segment
}

// A Card is what a member tells the others of itself.
type Card struct {
	LID      uint16
	GIDs     [2]rdma.GID
	Endpoint []byte
}

// Segment is the memory of all members, and Rank this one's place in it. Close closes the segment.
func (m *Member) Segment() *shm.Segment { return m.segment }

// Rank is the member's number in the segment.
func (m *Member) Rank() int { return m.place }

// LID is the member's, unique among those that live.
func (m *Member) LID() uint16 { return uint16(m.record().lid) }

// Block is the member's of Blocks blocks of queue pair numbers.
func (m *Member) Block() int { return int(m.record().block) }

func (m *Member) record() *record { return &m.dir.records[m.place] }

// Announce tells the others how to reach this member.
func (m *Member) Announce(gids [2]rdma.GID, endpoint []byte) error {
	r := m.record()
	if len(endpoint) > cardMost {
		return fmt.Errorf("an endpoint of %d bytes, expected at most %d", len(endpoint), cardMost)
	}
	r.gids, r.length = gids, uint32(copy(r.card[:], endpoint))
	atomic.StoreUint32(&r.state, 1)
	return nil
}

// ByLID and ByGID find a member, dead ones too as long as nobody has their place.
func (m *Member) ByLID(lid uint16) (Card, bool) {
	return m.find(func(r *record) bool { return r.lid == uint32(lid) })
}

// ByGID finds the member that has the GID.
func (m *Member) ByGID(gid rdma.GID) (Card, bool) {
	return m.find(func(r *record) bool { return r.gids[0] == gid || r.gids[1] == gid })
}

// find reads records without the lock: the second look at when the member joined tells whether the first belongs to what was
// copied in between.
func (m *Member) find(is func(*record) bool) (Card, bool) {
	for i := range m.dir.records {
		r := &m.dir.records[i]
		if atomic.LoadUint32(&r.state) != 1 {
			continue
		}
		joined := atomic.LoadUint64(&r.joined)
		if !is(r) {
			continue
		}
		c := Card{uint16(r.lid), r.gids, slices.Clone(r.card[:min(r.length, cardMost)])}
		if atomic.LoadUint64(&r.joined) == joined && atomic.LoadUint32(&r.state) == 1 {
			return c, true
		}
	}
	return Card{}, false
}

// take gives the process a record. Called under the lock; alive tells of a process whether it lives.
func (d directory) take(pid int, start uint64, alive func(pid int, start uint64) bool) (place int, err error) {
	oldest, living := uint64(1<<64-1), 0
	lids, blocks := map[uint32]bool{}, [Blocks]bool{}
	for i := range d.records {
		r := &d.records[i]
		switch {
		case r.pid == 0:
		case alive(int(r.pid), r.start):
			living++
			oldest = min(oldest, r.joined)
			lids[r.lid] = true
			blocks[r.block%Blocks] = true
		default:
			d.end(r)
		}
	}
	block := slices.Index(blocks[:], false)
	if block < 0 {
		return 0, fmt.Errorf("%w: %d processes are in it, the most", ErrFull, living)
	}
	for i := range d.records {
		r := &d.records[i]
		if r.pid != 0 || r.ended >= oldest {
			continue
		}
		d.clock++
		for {
			d.lids++
			if r.lid = uint32(1 + (d.lids-1)%lidMost); !lids[r.lid] {
				break
			}
		}
		r.start, r.block, r.pid = start, uint32(block), uint32(pid)
		atomic.StoreUint64(&r.joined, d.clock)
		return i, nil
	}
	return 0, fmt.Errorf("%w: %d processes have been in it while the oldest one lived: end that one", ErrFull, Places)
}

// end takes a record back. Called under the lock.
func (d directory) end(r *record) {
	atomic.StoreUint32(&r.state, 0)
	d.clock++
	r.ended, r.pid = d.clock, 0
}
