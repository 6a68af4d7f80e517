package p2p

import "encoding/binary"

// A header precedes what a send carries. All numbers are little-endian.
//
//	0    1      4     8         12   16       24        32    36     40
//	kind source tag   context   id   length   address   key   word
//	                            type: its highest byte
//	|- eager, eagerSync,
//	   finished, refused,
//	   gone                         -|
//	|------- announce, granted, landed, landedSync --------------|
const (
	eagerHeader    = 16
	announceHeader = 40
	// slotHeader is the room for a header in a slot; it keeps payload aligned.
	slotHeader = 64
)

// kind is what a send carries.
type kind uint8

const (
	eager kind = iota + 1
	announce
	finished
	gone      // an announced message was given up by its sender, or its receiver, and this connection with it
	refused   // nobody will receive the message any more
	eagerSync // eager, and wants an answer when it is received
	granted   // finished, and the receiver has a zone of length at address
	landed    // the message stands in the zone, at address of it
	landedSync
)

type header struct {
	kind    kind
	source  uint32 // the sender's rank, of 24 bits
	tag     int32
	context uint32
	typ     uint8  // of a message's data: match.Envelope.Type
	id      uint32 // announce, eagerSync, landedSync, finished, granted, refused: the sender's operation, of 24 bits
	length  uint64 // announce, granted, landed
	address uint64
	key     uint32

	// announce: between mapped ranks its ticket, over dynamic connections its word. landed: how many messages of the
	// receiver its sender has taken.
	word uint32

	// announce between mapped ranks, where the header travels as a line.
	generation uint32
	mapped     bool // the message is in registered memory

	inZone bool // not in the wire's: the payload stands in the zone
}

func (h *header) size() int {
	switch h.kind {
	case announce, granted, landed, landedSync:
		return announceHeader
	}
	return eagerHeader
}

// put writes h into b and gives its size.
func (h *header) put(b []byte) int {
	putEager(b, h.kind, h.source, h.tag, h.context, typedID(h.typ, h.id))
	size := h.size()
	if size == announceHeader {
		binary.LittleEndian.PutUint64(b[16:], h.length)
		binary.LittleEndian.PutUint64(b[24:], h.address)
		binary.LittleEndian.PutUint32(b[32:], h.key)
		binary.LittleEndian.PutUint32(b[36:], h.word)
	}
	return size
}

// typedID is a message's type and the number of its operation, which leaves the highest byte free, as they travel.
func typedID(typ uint8, number uint32) uint32 { return uint32(typ)<<24 | number }

func splitID(id uint32) (typ uint8, number uint32) { return uint8(id >> 24), id & (1<<24 - 1) }

// putEager writes the part of a header that all have, and is all of an eager one. It gives the size of that.
func putEager(b []byte, what kind, source uint32, tag int32, context, id uint32) int {
	binary.LittleEndian.PutUint32(b[0:], uint32(what)|source<<8)
	binary.LittleEndian.PutUint32(b[4:], uint32(tag))
	binary.LittleEndian.PutUint32(b[8:], context)
	binary.LittleEndian.PutUint32(b[12:], id)
	return eagerHeader
}

// parse reads a header out of a received send; false when it is none.
func (h *header) parse(b []byte) bool {
	if len(b) < eagerHeader {
		return false
	}
	first := binary.LittleEndian.Uint32(b)
	h.kind, h.source = kind(first), first>>8
	h.tag = int32(binary.LittleEndian.Uint32(b[4:]))
	h.context = binary.LittleEndian.Uint32(b[8:])
	h.typ, h.id = splitID(binary.LittleEndian.Uint32(b[12:]))
	switch h.kind {
	case eager, eagerSync:
		return h.tag >= 0
	case finished, gone, refused:
		return len(b) == eagerHeader
	case announce, granted, landed, landedSync:
		if len(b) != announceHeader || h.tag < 0 {
			return false
		}
		h.length = binary.LittleEndian.Uint64(b[16:])
		h.address = binary.LittleEndian.Uint64(b[24:])
		h.key = binary.LittleEndian.Uint32(b[32:])
		h.word = binary.LittleEndian.Uint32(b[36:])
		return h.length <= 1<<62
	}
	return false
}
