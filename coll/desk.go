package coll

import (
	"sync/atomic"

	"github.com/gorun-mpi/gorun/internal/arch"
	"github.com/gorun-mpi/gorun/internal/kernel"
	"github.com/gorun-mpi/gorun/rdma"
)

// A desk is where a member and the daemon of its host hand calls to each other: words behind
// the lanes of the member's control region, which both map.
//
//	head      what the team was made for; stop and stopped
//	members   number in the segment, and our lane there
//	channels  counters, and descriptors of the call under way
//	journal   how far the daemon is
//	records   of up to deskRecords calls, taken in turn
//
// Who may write what: the head, the members and a free record are the rank's; a lent record
// is the daemon's, until one of the ends is stored. The channels are the daemon's while any
// call is lent, and so is the journal. The states are stored with release, behind what they speak of.
//
//	free -- rank --> lent -- daemon --> begun -- daemon --> ended | failed | returned | broken -- rank --> free
//	                 lent -- rank --> recalled -- daemon --> free
//
// Who ends lent, the daemon that begins the call or the rank that takes it back, a compare-and-swap decides.
//
// The daemon believes nothing here: it looks at each word once, and uses none that could
// have it leave the memory of the segment.
type desk struct {
	words []uint64
	size  int // of the team
}

const (
	deskMagic   = 0x31_6b_73_65_64_6c_6c_63 // "clldesk1"
	deskRecords = 8

	deskHead     = 2 * shareLine
	memberWords  = 3
	channelWords = 2 + 3*descriptors
	recordWords  = 5 * shareLine
)

// The words of the head.
const (
	headMagic   = iota
	headMember              // rank, size
	headSlots               // slots, eager
	headSizes               // chunk, piece
	headStaging             // whether lanes are followed by staging slots
	headStop                // 1: the daemon is to let go of the team
	headStopped = shareLine // 1: it has
)

// deskWords is the length of the desk of a team, in words.
func deskWords(size int) int {
	return deskHead + size*(memberWords+channelWords) + journalWords + deskRecords*recordWords
}

// deskSize is that in bytes.
func deskSize(size int) int { return 8 * deskWords(size) }

// begin fills the head in.
func (d desk) begin(t *Team) {
	pair := func(a, b int) uint64 { return uint64(uint32(a))<<32 | uint64(uint32(b)) }
	d.words[headMember] = pair(t.rank, t.size)
	d.words[headSlots] = pair(t.tuning.slots, t.tuning.eager)
	d.words[headSizes] = pair(t.tuning.chunk, t.tuning.piece)
	d.words[headStaging] = uint64(t.layout.room)
	d.words[headMagic] = deskMagic
}

func halves(w uint64) (int, int) { return int(uint32(w >> 32)), int(uint32(w)) }

func (d desk) member(i int) []uint64 { return d.words[deskHead+i*memberWords:][:memberWords] }

func (d desk) setMember(i, number int, lane uint64, rkey uint32) {
	w := d.member(i)
	w[0], w[1], w[2] = uint64(number), lane, uint64(rkey)
}

// stop asks the daemon to let go of the team; stopped tells whether it has.
func (d desk) stop()           { atomic.StoreUint64(&d.words[headStop], 1) }
func (d desk) stops() bool     { return atomic.LoadUint64(&d.words[headStop]) != 0 }
func (d desk) setStopped()     { atomic.StoreUint64(&d.words[headStopped], 1) }
func (d desk) stopped() bool   { return atomic.LoadUint64(&d.words[headStopped]) != 0 }
func (d desk) channelsAt() int { return deskHead + d.size*memberWords }

// putChannels writes the channels down, for the first call that is lent.
func (d desk) putChannels(channels []channel) {
	d.clearJournal()
	for i := range channels {
		channels[i].write(d.channel(i), false)
	}
}

// readChannels is the reverse, with the descriptors of the call under way if known.
func (d desk) readChannels(channels []channel, known bool) {
	for i := range channels {
		channels[i].read(d.channel(i), known)
	}
}

func (d desk) channel(i int) []uint64 { return d.words[d.channelsAt()+i*channelWords:][:channelWords] }

func (d desk) journal() journal {
	return journal(d.words[d.channelsAt()+d.size*channelWords:][:journalWords])
}

func (d desk) record(i int) record {
	at := d.channelsAt() + d.size*channelWords + journalWords + i*recordWords
	return record(d.words[at : at+recordWords])
}

// recalls tells whether the daemon has yet to come to a record that was recalled.
func (d desk) recalls() bool {
	for i := range deskRecords {
		if d.record(i).state() == recordRecalled {
			return true
		}
	}
	return false
}

// A record is a lent call.
type record []uint64

// The states of a record.
const (
	recordFree     uint64 = iota
	recordLent            // the daemon's, which has not begun it
	recordBegun           // and this one it has
	recordRecalled        // the rank has taken it back; the daemon frees the record when it comes to it
	recordEnded           // the rest is the rank's
	recordFailed          // the same: a peer sent what the plan does not expect
	recordReturned        // the same: the rank goes on
	recordBroken          // the same: the daemon could not run it
)

// The words of a record.
const (
	recordState   = iota
	recordCall    // kind, algorithm, in place, ordered, fresh; element
	recordRoot    // root, operation
	recordBytes   //
	recordGivenUp // how often the rank had taken calls back when it lent this one
	recordAt      // returned: step, whether it is done but for giving slots back, whether it began
	recordPeer    // failed: the peer, and what it has got wrong
	recordSent    // failed: the fingerprint that came
	recordShown   // failed: or the descriptor
	recordWork    // nanoseconds that the daemon worked on the call

	recordOperands = 10 // input, output, scratch: address, length, key
	recordCounters = recordOperands + 3*3
	recordNumber   = recordCounters + 13 // counts the calls that the rank has lent, from 1 on
)

func (r record) state() uint64     { return atomic.LoadUint64(&r[recordState]) }
func (r record) number() uint64    { return r[recordNumber] }
func (r record) setState(s uint64) { arch.StoreRelease64(&r[recordState], s) }

// claim makes a lent record one that the daemon has begun, or the rank has recalled; false: the other was first.
func (r record) claim(s uint64) bool {
	return atomic.CompareAndSwapUint64(&r[recordState], recordLent, s)
}

// waits tells whether a record is the daemon's.
func (r record) waits() bool {
	s := r.state()
	return s == recordLent || s == recordBegun
}

// setCall writes a call down. fresh: the channels are those on the desk, and not what the
// daemon had after the call before.
func (r record) setCall(c *Call, operation uint16, returned uint64, fresh bool) {
	clear(r[recordCall:])
	flags := uint64(0)
	for i, f := range [...]bool{c.InPlace, c.Ordered, fresh, c.Pairs} {
		if f {
			flags |= 1 << i
		}
	}
	r[recordCall] = uint64(c.Kind) | uint64(c.Algorithm)<<8 | flags<<16 | uint64(c.Elem)<<32
	r[recordRoot] = uint64(uint32(c.Root)) | uint64(operation)<<32
	r[recordBytes] = uint64(c.Bytes)
	r[recordGivenUp] = returned
}

// call reads it, for a member.
func (r record) call(rank, size int) (c Call, operation uint16, returned uint64, fresh bool) {
	w, root := r[recordCall], r[recordRoot]
	c = Call{Kind: Kind(w), Algorithm: Algorithm(w >> 8), InPlace: w>>16&1 != 0, Ordered: w>>17&1 != 0, Pairs: w>>19&1 != 0, Elem: int(uint16(w >> 32)),
		Root: int(int32(uint32(root))), Bytes: int(r[recordBytes]), Rank: rank, Size: size}
	return c, uint16(root >> 32), r[recordGivenUp], w>>18&1 != 0
}

// setOperand names an operand; it has none until then.
func (r record) setOperand(o operand, k key, n uint64) {
	w := r[recordOperands+3*(int(o)-int(input)):]
	w[0], w[1], w[2] = k.addr, n, uint64(k.rkey)|uint64(uint32(k.access))<<32
}

func (r record) operand(o operand) (k key, n uint64) {
	w := r[recordOperands+3*(int(o)-int(input)):]
	return key{addr: w[0], rkey: uint32(w[2]), access: rdma.Access(w[2] >> 32)}, w[1]
}

// setPlace says where the daemon left a call; began: it took a step of it, or could have.
func (r record) setPlace(pc int, done, began bool) {
	r[recordAt] = uint64(uint32(pc))
	for i, f := range [...]bool{done, began} {
		if f {
			r[recordAt] |= 1 << (32 + i)
		}
	}
}

func (r record) place() (pc int, done, began bool) {
	w := r[recordAt]
	return int(uint32(w)), w>>32&1 != 0, w>>33&1 != 0
}

func (r record) setMistake(m mismatch) {
	r[recordPeer] = uint64(uint32(m.peer))
	if m.lost {
		r[recordPeer] |= 1 << 32
	}
	r[recordSent], r[recordShown] = uint64(m.fingerprint), m.descriptor
}

// mistake reads it in the team's rank, which knows its peers' number.
func (r record) mistake(size int) mismatch {
	peer := int(uint32(r[recordPeer]))
	if peer >= size {
		peer = 0
	}
	return mismatch{peer: peer, lost: r[recordPeer]>>32&1 != 0, fingerprint: uint32(r[recordSent]), descriptor: r[recordShown]}
}

// putCounters moves the counters of the call's steps into the record.
func (r record) putCounters(c *Counters) {
	for i, v := range c.steps() {
		r[recordCounters+i], *v = *v, 0
	}
}

func (r record) addCounters(c *Counters) {
	for i, v := range c.steps() {
		*v += r[recordCounters+i]
	}
	c.OffloadNanoseconds += r[recordWork]
}

// reductionOf is the built-in reduction with an ID.
func reductionOf(id uint16) (kernel.Reduction, bool) {
	return kernel.For(kernel.Type(id>>4), kernel.Op(id&15))
}
