package coll

import (
	"fmt"

	"github.com/gorun-mpi/gorun/rdma"
)

// Peers whose memory is mapped. To them a message is a few stores: the payload,
// and then the header as a release store, on one cache line if there are no more
// than 56 bytes. What they expose is copied into, where it is registered memory
// of the device's own choice (PD.AllocMR); ordinary memory is written by queue
// pair. Who maps what is each sender's own affair: the receiver looks at its
// control region which peer wrote there, and how. Whether all members map all is what
// they tell each other when the team is made, for plans differ by it.

// findSelf has the mesh's own memory, by which it tells what peers can map.
func (m *Mesh) findSelf() error {
	mapper, ok := m.pd.Context().(rdma.Mapper)
	if !ok {
		return fmt.Errorf("peers' memory needs a device that maps it: %w", rdma.ErrNotSupported)
	}
	gid, err := m.pd.Context().QueryGID(1, 0)
	if err != nil {
		return err
	}
	if self, err := mapper.Peer(gid); err == nil {
		m.self = self
	}
	return nil
}

// mapsAll tells whether there is memory of all other members here. Members that map
// at all see each other, or not, on both sides.
func (t *Team) mapsAll() bool {
	for i := range t.peers {
		if i != t.rank && !t.mesh.dialer.Maps(t.peers[i].at) {
			return false
		}
	}
	return t.mesh.self != nil
}

// mapPeers takes in whose memory is mapped; reach maps it. all: each member can map each.
func (t *Team) mapPeers(all bool) {
	for i := range t.peers {
		if p := &t.peers[i]; i != t.rank {
			p.maps = t.mesh.dialer.Maps(p.at)
			t.remote = t.remote || !p.maps
			p.polled = !p.maps && !t.mesh.oneSided
		}
	}
	t.mappable(addressOf(t.bytes), t.region)
	t.tuning.mapped, t.selection.mapped = all, all
	if !all {
		t.tuning.sent(t.table, t.size)
	}
}

// mapLane maps the lane in a peer's control region. It is 8-aligned as the region is.
func (t *Team) mapLane(p *peer, memory rdma.PeerMemory) error {
	bytes, err := memory.Map(p.lane, p.rkey, t.layout.lane, rdma.AccessRemoteWrite)
	if err != nil {
		return err
	}
	words, err := wordsOf(bytes)
	if err == nil {
		p.bytes, p.words, p.memory = bytes, words, memory
	}
	return err
}

// reach tells whether the lane in a member's control region is mapped, and maps it when
// it is first needed. What keeps it from that ends the call, at its next look.
func (t *Team) reach(member int) bool {
	p := &t.peers[member]
	if p.words != nil || !p.maps || p.queue.Err() != nil {
		return p.words != nil
	}
	memory, err := t.mesh.dialer.Memory(p.at)
	if err == nil {
		err = t.mapLane(p, memory)
	}
	if err != nil && (t.dead == nil || !t.dead(member)) {
		t.mesh.fail(p.queue, err)
	}
	return err == nil
}

// An arena is what a team knows of the addresses that peers can map. The device
// has them in one piece, so whatever lies between two of them is one too.
type arena struct {
	low, high uint64    // peers can map all in between
	other     [2]uint64 // and nothing at these addresses, which were met last
	next      int
}

// mappable is what peers that map the memory at addr, of region mr, may do there.
// A call asks it for each operand: it allocates nothing for memory that it met
// before.
func (t *Team) mappable(addr uint64, mr rdma.MR) rdma.Access {
	if t.mesh.self == nil || mr.Access()&rdma.AccessRemoteWrite == 0 {
		return 0
	}
	a := &t.arena
	access := mr.Access() & (rdma.AccessRemoteWrite | rdma.AccessRemoteRead)
	if a.low <= addr && addr < a.high {
		return access
	}
	whole := mr.Bytes()
	if whole == nil || addr == a.other[0] || addr == a.other[1] {
		return 0
	}
	if _, err := t.mesh.self.Map(mr.Addr(), mr.RKey(), int(mr.Len()), rdma.AccessRemoteWrite); err != nil {
		a.other[a.next%len(a.other)] = addr
		a.next++
		return 0
	}
	if a.low == a.high {
		a.low = addressOf(whole)
	}
	a.low, a.high = min(a.low, addressOf(whole)), max(a.high, addressOf(whole)+uint64(len(whole)))
	return access
}
