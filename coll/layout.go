package coll

import (
	"encoding/binary"
	"fmt"
)

// A layout says where things are in a member's control region: for every member
// a lane that only that member writes, and behind the lanes the staging slots,
// which only the owner uses, for messages that do not fit inline.
//
//	lane     credit word, waiting word   64 bytes
//	         fault record  64 bytes
//	         slots         each: header 8 bytes, payload; a whole number of
//	                       cache lines, odd, so that headers spread over the sets
//	staging  for every member: slots of the payload's length
//	desk     where calls may be lent to a daemon
//
// A small payload and its header share a cache line.
type layout struct {
	members int
	slots   int
	stride  int // of the slots
	lane    int // bytes of a lane
	room    int // bytes of a staging slot, 0 without
}

const (
	line        = 64
	headerLen   = 8
	faultOffset = line
	ringOffset  = 2 * line
)

func newLayout(members, slots, eager int, staging bool) layout {
	stride := (headerLen+eager+line-1)/line*line | line
	l := layout{members: members, slots: slots, stride: stride, lane: ringOffset + slots*stride}
	if staging {
		l.room = (eager + line - 1) &^ (line - 1)
	}
	return l
}

func (l *layout) credit(member int) int        { return member * l.lane }
func (l *layout) waits(member int) int         { return member*l.lane + 8 }
func (l *layout) fault(member int) int         { return member*l.lane + faultOffset }
func (l *layout) header(member, slot int) int  { return member*l.lane + ringOffset + slot*l.stride }
func (l *layout) payload(member, slot int) int { return l.header(member, slot) + headerLen }
func (l *layout) stage(member, slot int) int   { return l.members*l.lane + (member*l.slots+slot)*l.room }

// desk is where the desk begins in a region that has one.
func (l *layout) desk() int { return (l.size() + line - 1) &^ (line - 1) }

func (l *layout) size() int { return l.members * (l.lane + l.slots*l.room) }

// An intro tells the other members where a member's control region is, and what
// it was made for.
type intro struct {
	members, rank, slots, eager, chunk, piece uint32
	selection                                 uint32 // hash
	maps                                      uint32 // 1: it maps memory of peers
	crowded                                   uint32 // 1: shares CPUs with others
	host                                      uint64 // hash of its name
	addr                                      uint64
	rkey                                      uint32
}

const (
	introMagic = "gcoll3\x00\x00"
	introLen   = len(introMagic) + 9*4 + 2*8 + 4
)

func (c intro) bytes() []byte {
	b := append(make([]byte, 0, introLen), introMagic...)
	for _, v := range [...]uint32{c.members, c.rank, c.slots, c.eager, c.chunk, c.piece, c.selection, c.maps, c.crowded} {
		b = binary.LittleEndian.AppendUint32(b, v)
	}
	b = binary.LittleEndian.AppendUint64(b, c.host)
	b = binary.LittleEndian.AppendUint64(b, c.addr)
	return binary.LittleEndian.AppendUint32(b, c.rkey)
}

func readIntro(b []byte) (intro, error) {
	if len(b) != introLen || string(b[:len(introMagic)]) != introMagic {
		return intro{}, fmt.Errorf("not a team's intro (%d bytes, expected %d)", len(b), introLen)
	}
	b = b[len(introMagic):]
	var c intro
	for i, v := range [...]*uint32{&c.members, &c.rank, &c.slots, &c.eager, &c.chunk, &c.piece, &c.selection, &c.maps, &c.crowded} {
		*v = binary.LittleEndian.Uint32(b[4*i:])
	}
	b = b[9*4:]
	c.host, c.addr, c.rkey = binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:]), binary.LittleEndian.Uint32(b[16:])
	return c, nil
}
