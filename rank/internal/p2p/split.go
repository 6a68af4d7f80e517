package p2p

import (
	"encoding/binary"
	"sync/atomic"
	"time"
)

// A long message in ordinary memory is moved by both sides at once, where each has a
// CPU: the system call that moves it costs the CPU that makes it a walk over pages and
// a copy, and a sender that waits has nothing else to do. The receiver cuts the message
// into pieces, two unless it is very long, says so in a line to the sender, and reads the
// front half; a sender that finds the line takes pieces from the back, and writes them:
//
//	receiver  reads 0, 1 ...  -->  |  <--  ... 2, 3 writes  sender
//
// Who takes a piece is decided by compare-and-swap on the ticket's claim
//
//	generation | first that is free | behind the last that is free
//
// so a sender that computes leaves all of it to the receiver: what is free when that has
// read the front halves of all messages that have come, it reads too, the newest first.
// The sender begins with the oldest. So in a window of messages both do their halves,
// each in its own cache, and nobody waits for anybody but for pieces that are being moved.
// The sender counts those that it has moved in the ticket, or says there that it cannot
// (helpFailed): then the receiver reads them.
const (
	// splitFrom is the shortest message that is split, and piecesMost what fits a claim.
	splitFrom, piecesMost = 64 << 10, 1 << 15
	pageSize              = 4096
	// helpFailed as the number of pieces moved says that the rest will not be.
	helpFailed = ^uint64(0)
	// helpLimit bounds the wait for a peer that writes a piece of an operation that
	// has failed.
	helpLimit, helpPoll = 5 * time.Second, 20 * time.Microsecond
	// stillLimit is how much longer a call takes whose context has ended when its peer
	// is in the middle of the message.
	stillLimit = time.Second
)

// A split is a message in pieces, which both sides move.
type split struct {
	of         *ticket // nil: it is in one
	generation uint32
	piece      int // bytes; the last piece is shorter
	pieces     int
	taken      int // by this side
}

func newSplit(of *ticket, generation uint32, length int) split {
	piece := max(min(length/2, readMax-pageSize), length/piecesMost)
	piece = piece/pageSize*pageSize + pageSize
	return split{of: of, generation: generation, piece: piece, pieces: (length + piece - 1) / piece}
}

func claimWord(generation uint32, first, end int) uint64 {
	return uint64(generation)<<32 | uint64(first)<<16 | uint64(end)
}

// free is which pieces are free; none where the claim is not of this message.
func (s *split) free() (w uint64, first, end int) {
	w = atomic.LoadUint64(&s.of.claim)
	first, end = int(w>>16&0xffff), int(w&0xffff)
	if uint32(w>>32) != s.generation || end > s.pieces {
		return w, 0, 0
	}
	return w, first, end
}

// first takes the first piece that is free, of those before limit; n is 0 when there is
// none.
func (s *split) first(length, limit int) (at, n int) {
	for {
		w, first, end := s.free()
		if first >= min(end, limit) {
			return 0, 0
		}
		if atomic.CompareAndSwapUint64(&s.of.claim, w, claimWord(s.generation, first+1, end)) {
			s.taken++
			return first * s.piece, min(s.piece, length-first*s.piece)
		}
	}
}

// last takes the last piece that is free.
func (s *split) last(length int) (at, n int) {
	for {
		w, first, end := s.free()
		if first >= end {
			return 0, 0
		}
		if atomic.CompareAndSwapUint64(&s.of.claim, w, claimWord(s.generation, first, end-1)) {
			return (end - 1) * s.piece, min(s.piece, length-(end-1)*s.piece)
		}
	}
}

// help begins to help the receiver of an announced message.
func (in *inbound) help(p *peer, id uint32, ln *line) {
	length := binary.NativeEndian.Uint64(ln.data[0:])
	o := in.self.get(id)
	if o == nil || o.peer != p || o.state != sent || o.ticket == 0 || length < splitFrom || length > uint64(len(o.buf)) ||
		binary.NativeEndian.Uint32(ln.data[20:]) != o.generation {
		in.lines.damaged(p)
		return
	}
	o.length = int(length)
	o.address, o.rkey = binary.NativeEndian.Uint64(ln.data[8:]), binary.NativeEndian.Uint32(ln.data[16:])
	switch {
	case o.mr != nil:
		o.lkey = o.mr.LKey()
	case o.temp != nil:
		o.lkey = o.temp.LKey()
	default:
		o.lkey = in.self.all.LKey()
	}
	o.split = newSplit(&in.lines.tickets[o.ticket-1], o.generation, o.length)
	in.wire.assign(p, chore{help: true, id: id})
}

// A stage is how far a receive in pieces is whose own part is read.
type stage uint8

const (
	stageFree   stage = iota // there are pieces that nobody has taken
	stageTheirs              // the sender moves the rest
	stageAlone               // the sender does not help any more
	stageOver
)

func (s *split) stage() stage {
	moved := atomic.LoadUint64(&s.of.moved)
	w, first, end := s.free()
	switch {
	case moved == helpFailed || uint32(w>>32) != s.generation:
		return stageAlone
	case first < end:
		return stageFree
	case moved < uint64(s.pieces-end):
		return stageTheirs
	}
	return stageOver
}

// collect looks after receives that wait for the sender's part, the oldest first, as
// the sender does, and reads a piece that no sender has taken, of the newest. Each look
// at a ticket may take its line from the sender, so it looks at three.
func (in *inbound) collect() {
	for len(in.wire.splits) > 0 && in.settle(0, false) {
	}
	if n := len(in.wire.splits); n > 1 { // behind a sender that is slow there may be others
		in.turn++
		in.settle(int(in.turn%uint32(n)), false)
	}
	if n := len(in.wire.splits); n > 0 {
		in.settle(n-1, true)
	}
}

// settle looks after one of splits and tells whether it has left.
func (in *inbound) settle(i int, read bool) (left bool) {
	o := in.splitOp(in.wire.splits[i])
	at, n := 0, 0
	if o != nil { // else it has failed
		switch stage := o.split.stage(); {
		case stage == stageTheirs, stage == stageFree && (!read || o.peer.Room() <= 0):
			return false
		case stage == stageFree:
			if at, n = o.split.first(o.length, o.split.pieces); n == 0 {
				return false // the sender was faster
			}
		}
	}
	in.wire.splits = append(in.wire.splits[:i], in.wire.splits[i+1:]...)
	switch {
	case o == nil:
	case n > 0:
		in.wire.readPart(o.peer, o, at, n)
	default:
		in.readAll(o.peer, o)
	}
	return true
}

// splitOp is a receive that is under way in pieces.
func (in *inbound) splitOp(number uint32) *Op {
	if o := in.self.get(number); o != nil && o.state == moving && o.split.of != nil {
		return o
	}
	return nil
}
