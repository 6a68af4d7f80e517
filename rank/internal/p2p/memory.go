package p2p

import (
	"fmt"
	"sync/atomic"

	"github.com/gorun-mpi/gorun/rdma"
)

// memory is the engine's region, and the names of the callers' memory.
type memory struct {
	ranks
	pd      rdma.PD
	all     rdma.MR // Config.Any
	mr      rdma.MR
	mem     []byte
	credit  []uint64 // by peer: how many of our messages it has taken; peers write it
	sendOff int      // of the send slots in mem
	openOff int      // of opened in mem
	opened  []uint64 // announcements to peers with paths that hold, openWords a peer
	checked []uint64 // what the peers' opened said, after their messages were read
	slots   []int32  // free send slots
	stages  rdma.MR  // see stage; nil before the first
	bare    bool     // there is no memory for it
}

// stagedMost is the longest message in ordinary memory that is copied to registered memory before it is
// announced to a mapped peer, which copies it out of there: the receiver makes no system call. Half a round trip of
// two processes took so many us, at the two paces of a virtual machine, as if its CPUs shared a cache or did not:
//
//	                           faster               slower
//	                      staged     read       staged     read
//	sent unchanged
//	    6 KiB               0.84     3.15          3.0      3.6
//	    8 KiB               1.04     3.12          3.8      3.6
//	    12 KiB              1.69     3.33          6.2      3.8
//	    16 KiB              2.42     3.56          8.8      4.1
//	written before each send
//	    6 KiB                2.4      4.2          4.4      6.2
//	    8 KiB                3.3      4.6          5.8      7.0
//	    12 KiB               5.2      5.6         10.5      8.6
//	    16 KiB               7.1      6.5         13.7     10.6
//
// Only the first stagesMost tickets, which are taken first, have memory for it: in a window of messages the
// receiver reads the others, while the sender copies.
const stagedMost, stagesMost = 8 << 10, 16

// stage is the registered memory for n bytes that are announced with a ticket, which is free as long as
// the ticket is; nil: they are not staged.
func (m *memory) stage(ticket uint16, n int) []byte {
	if n > stagedMost || ticket >= stagesMost || m.bare {
		return nil
	}
	if m.stages == nil {
		mr, err := m.pd.AllocMR(stagesMost*stagedMost, rdma.AccessLocalWrite|rdma.AccessRemoteRead)
		if err != nil {
			m.bare = true
			return nil
		}
		m.stages = mr
	}
	return m.stages.Bytes()[int(ticket)*stagedMost:][:n]
}

// layOut allocates the engine's region and cuts it up:
//
//	control words, 8 bytes a peer | mapped part | words of pathed peers | send slots
func (m *memory) layOut() (err error) {
	g := newGeometry(m.size)
	m.sendOff = (8*m.size + 63) &^ 63
	if m.mapping {
		m.sendOff = g.end
	}
	if m.set.Paths() {
		m.openOff = m.sendOff
		m.sendOff += 2 * m.size * openWords * 8
	}
	total := m.sendOff + sendSlots*m.slotSize()
	if m.mr, err = m.pd.AllocMR(total, rdma.AccessLocalWrite|rdma.AccessRemoteWrite|rdma.AccessRemoteRead); err != nil {
		return fmt.Errorf("%d bytes for messages: %w", total, err)
	}
	m.mem = m.mr.Bytes()
	m.credit = words(m.mem[:8*m.size])
	if m.set.Paths() {
		all := words(m.mem[m.openOff:m.sendOff])
		m.opened, m.checked = all[:len(all)/2], all[len(all)/2:]
	}
	for i := range sendSlots {
		m.slots = append(m.slots, int32(sendSlots-1-i))
	}
	return nil
}

// Control tells where peers write: the address of the first control word, and
// the key of its region.
func (e *Engine) Control() (address uint64, key uint32) { return e.self.mr.Addr(), e.self.mr.RKey() }

// credits is how many more messages the peer can take.
func (m *memory) credits(p *peer) int {
	return p.depth - int(p.sent-atomic.LoadUint64(&m.credit[p.rank]))
}

// slotAt is where in mem a send slot begins.
func (m *memory) slotAt(slot int32) int { return m.sendOff + int(slot)*m.slotSize() }

// key is the region by which buf is named: the caller's, the whole address
// space, or one made for this operation, which is temp too.
func (m *memory) key(buf []byte, mr rdma.MR, access rdma.Access) (key, temp rdma.MR, err error) {
	if mr != nil {
		return mr, nil, nil
	}
	if m.all != nil {
		return m.all, nil, nil
	}
	temp, err = m.pd.RegMR(buf, access)
	if err != nil {
		return nil, nil, fmt.Errorf("register %d bytes: %w", len(buf), err)
	}
	return temp, temp, nil
}
