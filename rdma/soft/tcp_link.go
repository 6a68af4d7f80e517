package soft

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/gorun-mpi/gorun/rdma"
)

// The states of a link:
//
//	DIALLING -> UP -> BROKEN, or DIALLING -> BROKEN
const (
	linkDialling uint32 = iota
	linkUp
	linkBroken
)

// A link is the TCP connection with a peer. Both sides send requests and answers over it. Its bytes are read
// with network.mu held and written with mu held.
//
// Nothing that waits for the socket keeps the link from being read: two sides that read megabytes of each other would
// wait for each other. What a read asks for is taken from its memory when the socket has room, and other
// answers wait behind it (replies).
type link struct {
	n        *network
	peer     *peer    // that this side has dialled; nil: it was dialled
	from     rdma.GID // the other side
	dials    bool     // while it is dialling: this side's own connection is to become it; guarded by network.halfMu
	greets   bool     // it has, at least once, reached the other side, which may have taken it; guarded by network.halfMu
	sealed   *sealed  // nil: it is not encrypted
	state    atomic.Uint32
	unmet    atomic.Bool   // it was accepted, and nothing has come over it: see greeted
	replying atomic.Bool   // replies wait
	heard    atomic.Uint32 // grows with what moves: bytes from the other side, and its taking ours
	underWay atomic.Int32  // requests of this side that are not answered

	mu     sync.Mutex // guards writing: fd, and
	fd     int
	out    []byte       // what waits for the socket, from gone on
	gone   int          // the beginning of out that it has taken
	ack    int          // where in out the last frame begins, if it is an acknowledgement; else -1
	owed   atomic.Int32 // looks until acknowledgements are sent alone; 0: they wait no longer
	corked corked
	stirs  atomic.Bool // flush has something to do
	iov    vectors     // scratch of toSocket
	seen   uint32      // the events that watch asked for last

	// Guarded by network.mu.
	rest    []byte      // read, and not a whole frame yet, or late
	late    bool        // rest is an acknowledgement, for the next look
	request rdma.SendWR // of the frame that is executed
	landing landing
	replies []reply // from replied on: reads that are answered piece by piece, and answers to what came behind them
	replied int
	calls   map[uint32]*call // of DC, by the number of the initiator
	one     [1][]byte        // scratch
}

const (
	outMost = 256 << 10 // above that, a read's data waits
	// With as many requests unanswered, a queue pair sends another only when it has none on the way.
	underWayMost = 16 << 10
	// With more answers waiting, the other side does not keep to underWayMost, and is hung up on: of each of its
	// queue pairs one request and one call may come on top, and all may come twice, refused and sent again.
	answersMost = 16 << 20
	repliesMost = 2 * (underWayMost + 2*maxQueues)
	readSize    = landingSize + tail
	glance      = 16 << 10 // what is read at once where the frames to come are not known
	// corkPieces and corkBytes bound what one system call sends of requests.
	corkPieces = 64
	corkBytes  = 1 << 20
	shortMost  = 256 // bytes of payload that are copied behind their header, rather than named to the kernel
	// An acknowledgement waits for as many looks of the owner, for others to come with
	// it, and for requests to take it along: a program that answers a message does so at once.
	owedLooks = 3
	owedMost  = 4 << 10 // bytes of answers that wait so long
)

// corked are frames that are sent together: those of one post, or of one look.
// Payload that is not short stays where it is, with requests that are under way until it is sent.
type corked struct {
	flat  [8 << 10]byte // headers, and what is short, one behind the other
	n     int           // of flat
	vec   [][]byte
	grows bool // the last of vec ends at n
	bytes int
}

// room is the next n bytes of flat.
func (c *corked) room(n int) []byte {
	at := c.n
	c.n += n
	c.bytes += n
	if c.grows {
		last := &c.vec[len(c.vec)-1]
		*last = (*last)[:len(*last)+n]
	} else {
		c.vec, c.grows = append(c.vec, c.flat[at:c.n]), true
	}
	return c.flat[at:c.n]
}

func (c *corked) add(f *frame) { f.put((*[frameSize]byte)(c.room(frameSize))) }

// payload adds n bytes at off of segs, or a copy of them.
func (c *corked) payload(segs [][]byte, off, n int, copied bool) {
	for _, b := range segs {
		if n == 0 {
			break
		}
		if off >= len(b) {
			off -= len(b)
			continue
		}
		k := min(len(b)-off, n)
		if copied {
			copy(c.room(k), b[off:])
		} else {
			c.vec, c.grows = append(c.vec, b[off:off+k]), false
			c.bytes += k
		}
		off, n = 0, n-k
	}
}

// carry adds acknowledgements: behind what is short, and before what is long, behind which they would be late.
func (c *corked) carry(acks []byte) {
	long := len(c.vec) > 1
	c.grows = c.grows && !long
	copy(c.room(len(acks)), acks)
	if long {
		last := c.vec[len(c.vec)-1]
		copy(c.vec[1:], c.vec)
		c.vec[0], c.grows = last, false
	}
}

// full tells whether a frame with a lead and a short payload may not fit.
func (c *corked) full() bool {
	return c.n+2*frameSize+shortMost > len(c.flat) || c.bytes >= corkBytes || len(c.vec) >= corkPieces
}

func (c *corked) reset() {
	clear(c.vec)
	c.vec, c.n, c.grows, c.bytes = c.vec[:0], 0, false, 0
}

// A reply is an answer that waits for its turn.
type reply struct {
	f    frame
	read bool    // f is the request of a read, which is answered piece by piece as the socket takes them
	sent uint32  // bytes of its data
	word [8]byte // else the payload
}

// post adds a frame with n bytes at off of segs to those that the next uncork sends,
// and lead, unless it is nil, right before. The payload stays as it is until then. It
// is false, and nothing was done, when something waits for the socket already or the
// link is broken. guard: the payload may not be mapped any more. A hang-up goes out in any case: it makes room at the other side.
func (l *link) post(f, lead *frame, segs [][]byte, off, n int, guard bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state.Load() != linkUp {
		return false
	}
	if l.corked.full() {
		l.send()
	}
	if !l.takes() && f.kind != frameHangUp {
		return false
	}
	if lead != nil {
		l.corked.add(lead)
	}
	l.corked.add(f)
	l.corked.payload(segs, off, n, n <= shortMost && !guard)
	return true
}

// takes tells whether requests may go to the socket: nothing else waits for it but acknowledgements, or
// reads are answered, which would keep all room for themselves. Called with mu held.
func (l *link) takes() bool {
	n := l.waiting()
	return n == 0 || l.owes() && l.sealed.waiting() == 0 || l.replying.Load() && n < outMost
}

// uncork sends what post has added.
func (l *link) uncork() {
	l.mu.Lock()
	l.send()
	l.mu.Unlock()
}

// send is uncork with mu held. It keeps a copy of what the socket does not take.
func (l *link) send() {
	c := &l.corked
	if c.n == 0 {
		return
	}
	defer c.reset()
	if l.state.Load() != linkUp {
		return
	}
	if l.owes() { // acknowledgements go along
		l.owed.Store(0)
		if acks := l.out[l.gone:]; len(acks) <= len(c.flat)-c.n {
			c.carry(acks)
			l.out, l.gone = l.out[:0], 0
		} else if !l.writeOut() {
			return
		}
	}
	done := 0
	if l.waiting() == 0 {
		k, err := l.write(c.vec)
		if err != nil {
			l.breakOff()
			return
		}
		done = k
	}
	for _, b := range c.vec {
		if done >= len(b) {
			done -= len(b)
			continue
		}
		if !l.append(b[done:]) {
			l.breakOff()
			return
		}
		done = 0
	}
	l.ack = -1
	l.watch(l.waiting() > 0)
}

// waiting is how many bytes wait for the socket. Called with mu held.
func (l *link) waiting() int { return len(l.out) - l.gone + l.sealed.waiting() }

// write sends what the socket takes of bufs. Called with mu held.
func (l *link) write(bufs [][]byte) (int, error) {
	if l.sealed != nil {
		return l.sealed.write(l, bufs)
	}
	return l.toSocket(bufs)
}

// read fills b with what has come; 0 is nothing yet. Called with network.mu held.
func (l *link) read(b []byte) (k int, end bool) {
	if l.sealed != nil {
		return l.sealed.read(l, b)
	}
	return l.fromSocket(b)
}

// append adds bytes that wait. It is false when their memory is not mapped any more.
func (l *link) append(b []byte) bool { return guarded(l.grow(len(b)), b) }

// grow is append, for the caller to fill in. What has gone makes room when that is the larger half,
// so that each byte moves once at most.
func (l *link) grow(n int) []byte {
	if l.gone > 0 && l.gone >= len(l.out)/2 {
		l.out = l.out[:copy(l.out, l.out[l.gone:])]
		l.gone, l.ack = 0, -1
	}
	l.out = slices.Grow(l.out, n)[:len(l.out)+n]
	return l.out[len(l.out)-n:]
}

// queue adds an answer, to be sent by the next flush, or a look or two later if it is an
// acknowledgement, which takes the place of the one before it. n bytes of payload are
// filled in by load, which may find that it cannot: then nothing is added.
func (l *link) queue(f *frame, n int, load func([]byte) bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	ack := f.kind == frameAck
	if ack && l.acknowledges(f) {
		f.put((*[frameSize]byte)(l.out[l.ack:]))
		return true
	}
	had, idle := len(l.out)-l.gone, l.waiting() == 0
	b := l.grow(frameSize + n)
	f.put((*[frameSize]byte)(b))
	if n > 0 && !load(b[frameSize:]) {
		l.out = l.out[:l.gone+had]
		return false
	}
	switch {
	case !ack:
		l.ack = -1
		l.owed.Store(0)
	default:
		if l.ack = len(l.out) - frameSize; idle {
			l.owed.Store(owedLooks)
		}
	}
	if !l.owes() {
		l.stirs.Store(true)
	}
	if l.waiting() > answersMost {
		l.breakOff()
	}
	return true
}

// answer is queue for a payload of at most 8 bytes. Where reads are being answered it waits behind them.
// Called with network.mu held.
func (l *link) answer(f *frame, payload []byte) {
	if l.replied == len(l.replies) {
		l.queue(f, len(payload), func(to []byte) bool { copy(to, payload); return true })
		return
	}
	if last := &l.replies[len(l.replies)-1]; f.kind == frameAck && !last.read && merges(&last.f, f) {
		last.f = *f
		return
	}
	r := reply{f: *f}
	copy(r.word[:], payload)
	l.wait(&r)
}

// wait adds a reply.
func (l *link) wait(r *reply) {
	l.replies = append(l.replies, *r)
	l.replying.Store(true)
	l.stirs.Store(true)
	if len(l.replies)-l.replied > repliesMost {
		l.mu.Lock()
		l.breakOff()
		l.mu.Unlock()
	}
}

// replyDone takes the first reply out.
func (l *link) replyDone() {
	if l.replied++; l.replied == len(l.replies) {
		l.replies, l.replied = l.replies[:0], 0
		l.replying.Store(false)
	} else if l.replied > 64 && l.replied > len(l.replies)/2 {
		l.replies, l.replied = l.replies[:copy(l.replies, l.replies[l.replied:])], 0
	}
}

// merges tells whether the acknowledgement f stands for was, too.
func merges(was, f *frame) bool {
	return was.kind == frameAck && was.to == f.to && was.from == f.from && was.life == f.life
}

// acknowledges tells whether the last frame that waits acknowledges an earlier request of
// the same requester. Called with mu held.
func (l *link) acknowledges(f *frame) bool {
	if l.ack < l.gone || l.ack+frameSize != len(l.out) {
		return false
	}
	was, err := parseFrame(l.out[l.ack:])
	return err == nil && merges(&was, f)
}

// age is the beginning of a look: it flushes, and tells whether nothing is owed.
func (l *link) age(all bool) bool {
	l.mu.Lock()
	if l.owes() {
		l.owed.Add(-1)
	}
	l.mu.Unlock()
	l.flush(all)
	return !l.owes()
}

// owes tells whether acknowledgements wait for another look.
func (l *link) owes() bool { return l.owed.Load() > 0 }

// flush writes what waits, but for acknowledgements that may wait for another look;
// all: these too.
func (l *link) flush(all bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.send()
	if l.state.Load() != linkUp {
		return
	}
	if l.waiting() > 0 && (all || !l.owes() || l.waiting() >= owedMost) {
		l.owed.Store(0)
		if !l.writeOut() {
			return
		}
	}
	l.watch(l.waiting() > 0 && !l.owes()) // a readout may have ended without a word
}

// writeOut writes what the socket takes of what waits. It is false when the link has broken. Called with mu held.
func (l *link) writeOut() bool {
	one := [1][]byte{l.out[l.gone:]}
	k, err := l.write(one[:])
	if err != nil {
		l.breakOff()
		return false
	}
	if k > 0 {
		l.heard.Add(1)
	}
	if l.gone += k; l.gone == len(l.out) {
		l.out, l.gone, l.ack = l.out[:0], 0, -1
	} else if l.gone > l.ack {
		l.ack = -1
	}
	return true
}

// meet notes that the other side has the link, too, and so will act on what goes over it.
func (l *link) meet() {
	if !l.unmet.Load() {
		return
	}
	l.unmet.Store(false) // before it is up: what is sent from then on is not sent again
	if l.state.CompareAndSwap(linkDialling, linkUp) {
		l.n.p.self.bell.Ring() // the goroutine that waits for the link may be asleep
	}
}

// breakOff marks the link for network.look to drop, which a look at the
// socket, shut down now, makes it do. Called with mu held.
func (l *link) breakOff() {
	l.state.Store(linkBroken)
	l.shutdown()
}

// full tells whether answers wait that the other side does not take.
func (l *link) full() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.waiting() > outMost
}

// receive reads what has come and acts on it. Called with network.mu held.
// all: nothing is kept for another look.
func (l *link) receive(all bool) {
	n := l.n
	if n.buf == nil {
		n.buf = make([]byte, readSize)
	}
	for range 8 { // then the other links have their turn
		var have, k, room int
		var end bool
		if l.landing.active {
			k, room, end = l.readOnto()
		} else {
			if room = glance; len(l.rest) > 0 || l.sealed != nil {
				have, room = copy(n.buf, l.rest), readSize // the rest of a frame that does not land
			}
			room -= have
			if k, end = l.read(n.buf[have : have+room]); k == 0 && !end {
				return
			}
		}
		l.rest = l.rest[:0]
		if end {
			l.state.Store(linkBroken)
			return
		}
		if k > 0 {
			l.heard.Add(1)
			l.meet()
		}
		if !l.digest(n.buf[:have+l.touchDown(k)], all) {
			l.state.Store(linkBroken)
			return
		}
		if k < room || l.late {
			return
		}
	}
}

// digest acts on whole frames and keeps what is left. It is false when the
// other side does not keep to the protocol. all: it keeps no whole frame.
func (l *link) digest(b []byte, all bool) bool {
	for len(b) >= frameSize {
		if n := l.take(b); n > 0 {
			if b = b[n:]; l.later(b, all) {
				break
			}
			continue
		}
		f, err := parseFrame(b)
		if err != nil {
			return false
		}
		end := frameSize + int(f.length)
		if len(b) < end {
			if l.land(&f, b[frameSize:]) {
				b = nil
			}
			break
		}
		payload := b[frameSize:end:end]
		switch f.kind {
		case frameRequest:
			l.serve(&f, payload)
		case frameMessage:
			l.message(&f, payload)
		case frameDatagram:
			l.datagram(&f, payload)
		case frameCall:
			l.called(&f)
		case frameHangUp:
			l.hungUp(&f)
		default:
			l.answered(&f, payload)
		}
		b = b[end:]
	}
	l.rest = append(l.rest[:0], b...)
	return true
}

// resume sends what waits for its turn, as much as the socket takes. Called with network.mu held.
func (l *link) resume() {
	for l.replied < len(l.replies) {
		if r := &l.replies[l.replied]; r.read {
			if !l.readOn(r) {
				return
			}
			continue
		}
		r := l.replies[l.replied]
		l.queue(&r.f, int(r.f.length), func(to []byte) bool { copy(to, r.word[:]); return true })
		l.replyDone()
	}
}
