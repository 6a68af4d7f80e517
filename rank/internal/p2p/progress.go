package p2p

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/gorun-mpi/gorun/internal/arch"
	"github.com/gorun-mpi/gorun/internal/sendq"
	"github.com/gorun-mpi/gorun/internal/wait"
	"github.com/gorun-mpi/gorun/rank/internal/match"
	"github.com/gorun-mpi/gorun/rdma"
)

func putWord(b *[8]byte, v uint64) { binary.NativeEndian.PutUint64(b[:], v) }

// progress takes in what has come, of completions and of lines, and gives it to the part
// that it concerns.
type progress struct {
	self    *ops
	lines   *failures
	wire    *chores
	traffic *outbound
	waiter  *wait.Waiter
	wcs     [pollBatch]rdma.WC // scratch
	spent   spent
}

// A spent is a receive whose message was taken out, and which is to be posted anew: behind the next one, or
// at the first look that finds nothing, while there is time. The answer to the message need not wait for that.
type spent struct {
	p      *peer // nil: there is none
	slot   int
	credit bool // the peer's again when it is posted
}

// move is Engine.Progress.
func (pr *progress) move() bool {
	came := pr.self.set.Moves() && pr.self.set.Progress(pr.waiter.Thorough())
	if pr.self.mapping {
		came = pr.look() || came
		if len(pr.wire.splits) > 0 {
			pr.traffic.collect()
		}
		if pr.lines.looks++; pr.wire.flying == 0 && pr.wire.distant == 0 && pr.lines.looks%pollEvery != 0 && !pr.waiter.Thorough() {
			// Nothing comes over queue pairs.
			pr.repost()
			if len(pr.wire.due) > 0 {
				pr.catchUp()
			}
			return came
		}
	}
	n, err := pr.wire.in.Poll(pr.wcs[:])
	if n > 0 || err != nil {
		return pr.advance(n, err)
	}
	pr.repost()
	if len(pr.wire.due) > 0 {
		pr.catchUp()
	}
	return came
}

// advance handles the n completions in wcs and all that follow.
func (pr *progress) advance(n int, err error) bool {
	for {
		if err != nil {
			pr.lines.broken(fmt.Errorf("completion queue: %w", err))
		}
		for i := range n {
			pr.completion(&pr.wcs[i])
		}
		pr.lines.broken(pr.wire.refill())
		if len(pr.wire.due) > 0 {
			pr.catchUp()
		}
		if n < len(pr.wcs) {
			return true
		}
		n, err = pr.wire.in.Poll(pr.wcs[:])
	}
}

// catchUp does what found no room before. Credit comes back without a
// completion, so it is called at every look while something is due.
func (pr *progress) catchUp() {
	due := pr.wire.due
	pr.wire.due = pr.wire.behind[:0] // chores and pump append while the loop runs
	for _, peer := range due {
		p := &pr.self.peers[peer]
		p.due = false
		pr.wire.work(p)
		pr.traffic.pump(p)
	}
	pr.wire.behind = due
}

// takes is received for the most frequent case: a short message of a peer with a receive queue of its own, that a
// receive waits for. It is false when nothing was done.
func (pr *progress) takes(from uint64, slot int, wc *rdma.WC) bool {
	if from == nobody || wc.Status != rdma.WCSuccess || wc.ByteLen < eagerHeader || pr.wire.target != nil {
		return false
	}
	p := &pr.self.peers[from]
	c, at := pr.wire.slot(slot)
	b := c.mem[at : at+int(wc.ByteLen)]
	env := match.Envelope{Context: binary.LittleEndian.Uint32(b[8:]), Source: int32(from), Tag: int32(binary.LittleEndian.Uint32(b[4:])), Type: b[15]}
	if binary.LittleEndian.Uint32(b) != uint32(eager)|uint32(from)<<8 || env.Tag < 0 || p.QP == nil {
		return false
	}
	r := pr.self.matches.Arrive(env)
	if r == nil {
		return false
	}
	pr.traffic.deliver(r.Value, env, b[eagerHeader:])
	pr.repost()
	pr.spent = spent{p, slot, true}
	return true
}

// received handles the completion of a receive, and has its slot posted anew.
func (pr *progress) received(from uint64, slot int, wc *rdma.WC) {
	c, at := pr.wire.slot(slot)
	var h header
	whole := wc.Status == rdma.WCSuccess && h.parse(c.mem[at:at+int(wc.ByteLen)])
	shared := from == nobody
	var p *peer
	if !shared {
		p = &pr.self.peers[from]
		whole = whole && h.source == uint32(from)
	} else if whole && int(h.source) < len(pr.self.peers) && pr.wire.comesFrom(&pr.self.peers[h.source], wc.QPNum) {
		p = &pr.self.peers[h.source]
	} else { // not of the rank that it says
		p, whole = pr.wire.sender(wc.QPNum), false
	}
	credit := false
	switch {
	case p == nil:
	case wc.Status != rdma.WCSuccess:
		pr.lines.fail(p, wc.Status)
	case !whole:
		pr.lines.fail(p, fmt.Errorf("it sent a message of %d bytes with a damaged header", wc.ByteLen))
	case pr.wire.target != nil && wc.QPNum == pr.wire.target.Num() && (p.Err() != nil || !pr.wire.connected(p)):
		// Dropped. The peer has been told, or has died.
	case p.QP != nil || pr.self.set.Overtaken(int(p.rank)):
		credit = pr.arrived(p, &h, c.mem[at+h.size():at+int(wc.ByteLen)])
	}
	if !shared {
		pr.repost()
		pr.spent = spent{p, slot, credit}
		return
	}
	pr.lines.broken(pr.wire.free(slot))
	if credit && p.Err() == nil {
		pr.wire.giveBack(p, 1)
	}
}

// repost posts the receive that is spent.
func (pr *progress) repost() {
	s := pr.spent
	if pr.spent.p = nil; s.p == nil || s.p.Err() != nil {
		return
	}
	if err := pr.wire.postRecv(s.p.rank, s.p.QP, s.slot); err != nil {
		pr.lines.fail(s.p, err)
	} else if s.credit {
		pr.wire.giveBack(s.p, 1)
	}
}

// arrived handles a message that a peer has sent over its queue pair. It tells whether the
// credit is the peer's again when the receive is posted anew.
func (pr *progress) arrived(p *peer, h *header, payload []byte) (credit bool) {
	switch h.kind {
	case finished:
		pr.traffic.answered(p, h.id, nil)
	case granted:
		if !pr.wire.borrow(p, h) {
			pr.lines.damaged(p)
			break
		}
		pr.traffic.answered(p, h.id, nil)
	case refused:
		pr.traffic.answered(p, h.id, ErrRefused)
	case gone:
		pr.lines.fail(p, ErrCut)
	case landed, landedSync:
		return pr.arrivedIn(p, h)
	default:
		return pr.traffic.accept(p, h, payload)
	}
	return false
}

// errStray fails a peer from which an answer came that nobody waits for.
var errStray = errors.New("it answered a message that this rank never announced")

func (pr *progress) completion(wc *rdma.WC) {
	id, mark := sendq.Split(wc.WRID)
	what, peer, index := id>>whatShift, id>>peerShift&peerMask, uint32(id&indexMask)
	if what == whatRecv {
		if !pr.takes(peer, int(index), wc) {
			pr.received(peer, int(index), wc)
		}
		return
	}
	p := &pr.self.peers[peer]
	pr.wire.flying -= p.Completed(mark)
	if len(p.todo) > 0 {
		pr.wire.work(p)
	}
	if what == whatSlot {
		pr.self.slots = append(pr.self.slots, int32(index))
	}
	if wc.Status != rdma.WCSuccess {
		pr.lines.fail(p, wc.Status)
	} else if what == whatRead {
		pr.traffic.readDone(p, index)
	} else if what == whatHelp {
		pr.wire.pieceWritten(index)
	}
}

// lookInbox takes lines out of the own inbox and tells whether there were any.
func (pr *progress) lookInbox() (came bool) {
	s := pr.lines
	for range lookMost {
		ln := &s.inbox[s.head%inboxLines]
		w := atomic.LoadUint64(&ln.word)
		lap := uint32(s.head / inboxLines)
		if w == pack(lap, free, 0, 0) {
			break
		}
		is, what, n, source := unpack(w)
		if is == lap && what == claimed && source < pr.self.size {
			if s.stuck++; s.stuck%stuckLooks != 0 || !pr.lines.isDead(source) {
				break
			}
			what = free // passed over
		}
		if is == lap && what != free && what != claimed && source < pr.self.size && source != pr.self.rank && pr.wire.meet(&pr.self.peers[source]) {
			pr.incoming(&pr.self.peers[source], what, n, ln)
		}
		// Else it was scribbled on. Release: the line was read before it is
		// free for the next lap.
		arch.StoreRelease64(&ln.word, pack(lap+1, free, 0, 0))
		s.head++
		s.stuck = 0
		came = true
	}
	return came
}

// lookAtClaims passes over a claim at the head whose owner has died, for a rank
// that has waited for a while.
func (pr *progress) lookAtClaims() {
	if pr.lines.stuck > 0 {
		pr.lines.stuck = stuckLooks - 1
		pr.lookInbox()
	}
}

// look takes lines out of the rings and the inbox and tells whether there were
// any.
func (pr *progress) look() (came bool) {
	s := pr.lines
	for _, i := range s.active {
		r := &s.given[i]
		for n := range lookMost {
			if n >= readAfter { // the peer is ahead by more than a line or two
				arch.PrefetchRead(&r.lines[(r.head+readAhead)&uint64(len(r.lines)-1)].word, 1)
			}
			ln := &r.lines[r.head&uint64(len(r.lines)-1)]
			// An acquire: what stands on the line was stored before its word.
			w := atomic.LoadUint64(&ln.word)
			if uint32(w>>32) != uint32(r.head/uint64(len(r.lines)))+1 {
				break
			}
			r.head++
			came = true
			_, what, n, _ := unpack(w)
			switch what {
			case eager:
				pr.short(r.from, n, ln)
			case lined, linedSync:
				pr.long(r, what, ln)
			default:
				pr.incoming(r.from, what, n, ln)
			}
		}
	}
	return pr.lookInbox() || came
}

// short is incoming for the most frequent case: a message on one line that a receive
// waits for.
func (pr *progress) short(p *peer, n int, ln *line) {
	if p.Err() != nil || n > lineData || int32(ln.route>>32) < 0 {
		pr.incoming(p, eager, n, ln)
		return
	}
	env := match.Envelope{Context: uint32(ln.route), Source: p.rank, Tag: int32(ln.route >> 32), Type: uint8(ln.id >> 24)}
	r := pr.self.matches.Arrive(env)
	if r == nil {
		pr.incoming(p, eager, n, ln)
		return
	}
	pr.traffic.deliver(r.Value, env, ln.data[:n])
	pr.wire.giveBack(p, 1)
}

// long handles a message of several lines of a ring, whose head is behind the first.
func (pr *progress) long(r *ring, what kind, ln *line) {
	p, length := r.from, int(ln.id>>32)
	lines := linesFor(length)
	if length <= lineData || lines > pr.lines.geometry.longest {
		pr.lines.damaged(p)
		return
	}
	pr.traffic.rest = remnant{lines: r.lines, at: r.head, bytes: length - lineData}
	r.head += uint64(lines - 1)
	if what == lined {
		what = eager
	} else {
		what = eagerSync
	}
	pr.incoming(p, what, lineData, ln)
	pr.traffic.rest.bytes = 0
}

// incoming handles a line of a peer. Nothing on it is believed.
func (pr *progress) incoming(p *peer, what kind, n int, ln *line) {
	if p.far == nil {
		return
	}
	if p.Err() != nil {
		if what == offer { // the rank that waits for the answer hears that there is none
			pr.lines.put(p, gone, 0, 0, nil)
		}
		return
	}
	var h header
	var payload []byte
	h.tag, h.context = int32(ln.route>>32), uint32(ln.route)
	h.typ, h.id = splitID(uint32(ln.id))
	h.kind = what
	slot := -1
	switch what {
	case eager, eagerSync:
		if n > lineData {
			pr.lines.damaged(p)
			return
		}
		payload = ln.data[:n]
	case slotted, slottedSync:
		length := int(ln.id >> 48)
		if slot = int(ln.id >> 32 & 0xffff); slot >= slotMax || length > slotBytes {
			pr.lines.damaged(p)
			return
		}
		if h.kind = eager; what == slottedSync {
			h.kind = eagerSync
		}
		payload = p.far.slots[slot*slotBytes:][:length]
	case announce:
		h.length = binary.NativeEndian.Uint64(ln.data[0:])
		h.address = binary.NativeEndian.Uint64(ln.data[8:])
		h.key = binary.NativeEndian.Uint32(ln.data[16:])
		h.word = binary.NativeEndian.Uint32(ln.data[20:])
		h.generation = binary.NativeEndian.Uint32(ln.data[24:])
		h.mapped = ln.data[28] != 0
		if h.length > 1<<62 || h.word >= ticketMax {
			pr.lines.damaged(p)
			return
		}
	case finished:
		pr.traffic.answered(p, h.id, nil)
		return
	case refused:
		pr.traffic.answered(p, h.id, ErrRefused)
		return
	case gone:
		pr.lines.fail(p, ErrCut)
		return
	case wantRing:
		pr.grant(p)
		return
	case grantRing:
		if int(h.id) >= pr.lines.geometry.rings || p.far.granted >= 0 {
			pr.lines.damaged(p)
			return
		}
		p.far.granted = int(h.id)
		return
	case useRing:
		pr.activate(p)
		return
	case splitOut:
		pr.traffic.help(p, h.id, ln)
		return
	case offer:
		pr.self.set.Offered(int(p.rank), ln.route, ln.id)
		return
	default:
		pr.lines.damaged(p)
		return
	}
	if h.tag < 0 {
		pr.lines.damaged(p)
		return
	}
	credit := pr.traffic.accept(p, &h, payload)
	if slot >= 0 {
		// Release: the bytes were read before the slot is free.
		arch.StoreRelease64(&p.far.states[slot], 0)
	}
	credits := pr.traffic.rest.credits()
	if !credit {
		credits-- // the lines are free all the same; one holds the sender back
	}
	if credits > 0 && p.Err() == nil {
		pr.wire.giveBack(p, credits)
	}
}

// grant gives a peer a ring, if there is one left.
func (pr *progress) grant(p *peer) {
	s := pr.lines
	for i := range s.given {
		if s.given[i].from == p {
			return
		}
	}
	if len(s.given) == s.geometry.rings {
		return
	}
	n := s.geometry.ringLines
	all := linesOf(pr.self.mem[s.geometry.ring:s.geometry.ticket])
	s.given = append(s.given, ring{lines: all[len(s.given)*n:][:n], from: p})
	pr.wire.assign(p, chore{answer: grantRing, id: uint32(len(s.given) - 1)})
}

// activate has look take lines out of a peer's ring.
func (pr *progress) activate(p *peer) {
	s := pr.lines
	for i := range s.given {
		if s.given[i].from == p {
			if !slices.Contains(s.active, i) {
				s.active = append(s.active, i)
			}
			return
		}
	}
	pr.lines.damaged(p)
}
