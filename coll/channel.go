package coll

import (
	"encoding/binary"

	"github.com/gorun-mpi/gorun/rdma"
)

// A channel is one member's side of its two channels with a peer. All counters
// run on over calls and wrap; messages of a channel count from 1.
//
//	sent - credited <= slots        what the peer may still hold of ours
//	taken <= awaited <= taken + 1   at most one message is held at a time
//	told <= taken                   what the peer knows of that
type channel struct {
	sent     uint16 // messages to the peer
	credited uint16 // of those, how many it has given back
	awaited  uint16 // messages of the peer that were waited for
	taken    uint16 // of those, how many were given back
	told     uint16 // taken, as the peer was told last
	known    [descriptors]descriptor
}

// header makes the header word of the channel's next message: sequence, credit,
// fingerprint. The sequence, by which a reader knows the message, lies last in
// memory: Soft-RoCE may write the eight bytes one after the other.
func (c *channel) header(fingerprint uint32) uint64 {
	return sequenced(c.sent+1) | uint64(c.taken)<<32 | uint64(fingerprint)
}

// sequenceBits are those of a header that hold the sequence.
const sequenceBits = 0xffff << 48

// sequenced is the sequence in its place in a header.
func sequenced(sequence uint16) uint64 { return uint64(sequence) << 48 }

func sequenceOf(header uint64) uint16    { return uint16(header >> 48) }
func creditOf(header uint64) uint16      { return uint16(header >> 32) }
func fingerprintOf(header uint64) uint32 { return uint32(header) }

// credit takes in what the peer says it has taken. Two ways lead here, headers
// and the credit word, so the news may be old; a number that is neither old nor
// possible is ignored like an old one.
func (c *channel) credit(taken uint16) {
	if taken-c.credited <= c.sent-c.credited {
		c.credited = taken
	}
}

// A descriptor names a member's memory for one call.
type descriptor struct {
	addr uint64
	n    uint64
	rkey uint32
	// access is what a peer that maps the owner's memory may do there; 0: the
	// memory cannot be mapped.
	access rdma.Access
	view   []byte // the memory, in the peer that mapped it; not in the message
}

// descriptorLen is the length of a descriptor in a message.
const descriptorLen = 24

// pairLen is that of two, which share a cache line with the header.
const pairLen = 2 * descriptorLen

// far is a place in a peer's memory.
type far struct {
	addr uint64
	rkey uint32
}

func (d *descriptor) at(off int) far { return far{d.addr + uint64(off), d.rkey} }

func (d descriptor) put(b []byte) {
	_ = b[descriptorLen-1]
	binary.LittleEndian.PutUint64(b[0:], d.addr)
	binary.LittleEndian.PutUint64(b[8:], d.n)
	binary.LittleEndian.PutUint32(b[16:], d.rkey)
	binary.LittleEndian.PutUint32(b[20:], uint32(d.access))
}

func readDescriptor(b []byte) descriptor {
	return descriptor{
		addr: binary.LittleEndian.Uint64(b[0:]),
		n:    binary.LittleEndian.Uint64(b[8:]),
		rkey: binary.LittleEndian.Uint32(b[16:]), access: rdma.Access(binary.LittleEndian.Uint32(b[20:])),
	}
}
