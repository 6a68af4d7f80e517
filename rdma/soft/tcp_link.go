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

// A link is one TCP connection. Requests of the side that dialled go one way,
// answers the other. Its bytes are read with network.mu held and written with
// mu held.
type link struct {
	n     *network
	peer  *peer    // where requests go; nil on the listener's side
	from  rdma.GID // the other side
	state atomic.Uint32
	heard atomic.Uint32 // grows with each sign of life: bytes from the other side, and its taking ours

	mu   sync.Mutex // guards writing: fd, and
	fd   int
	out  []byte // what the socket did not take
	deaf bool   // nothing is read until out is shorter
	vec  [][]byte
	head [frameSize]byte
	lead [frameSize]byte
	seen uint32 // the events that watch asked for last

	// Guarded by network.mu.
	rest    []byte      // read, and not a whole frame yet
	request rdma.SendWR // of the frame that is executed
	reading readout
	calls   map[uint32]*call // of DC, by the number of the initiator
	one     [1][]byte        // scratch
}

const (
	outMost  = 256 << 10 // above that, requests wait
	deafFrom = 1 << 20   // above that, the other side is not read from
	readSize = 256 << 10
)

// A readout is a read request that is being answered, piece by piece as the
// socket takes them.
type readout struct {
	active bool
	f      frame // the request
	sent   uint32
}

// post sends a frame with n bytes at off of segs, now or when the socket takes
// it, and lead, unless it is nil, right before. It is false, and nothing was done,
// when too much waits already or the link is broken. A hang-up goes out in any
// case: it makes room at the other side.
func (l *link) post(f, lead *frame, segs [][]byte, off, n int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state.Load() != linkUp {
		return false
	}
	if len(l.out) > outMost && f.kind != frameHangUp {
		return false
	}
	l.vec = l.vec[:0]
	if lead != nil {
		lead.put(&l.lead)
		l.vec = append(l.vec, l.lead[:])
	}
	f.put(&l.head)
	l.vec = append(l.vec, l.head[:])
	for _, b := range segs {
		if n == 0 {
			break
		}
		if off >= len(b) {
			off -= len(b)
			continue
		}
		k := min(len(b)-off, n)
		l.vec = append(l.vec, b[off:off+k])
		off, n = 0, n-k
	}
	done := 0
	if len(l.out) == 0 {
		k, err := l.write(l.vec)
		if err != nil {
			l.breakOff()
			return true
		}
		done = k
	}
	left := len(l.out)
	for _, b := range l.vec {
		if done >= len(b) {
			done -= len(b)
			continue
		}
		l.out = append(l.out, b[done:]...)
		done = 0
	}
	if left == 0 && len(l.out) > 0 {
		l.watch(true)
	}
	clear(l.vec)
	return true
}

// queue adds an answer, to be sent by the next flush. n bytes of payload are
// filled in by load, which may find that it cannot: then nothing is added.
func (l *link) queue(f *frame, n int, load func([]byte) bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	f.put(&l.head)
	had := len(l.out)
	l.out = append(l.out, l.head[:]...)
	if n > 0 {
		l.out = slices.Grow(l.out, n)[:len(l.out)+n]
		if !load(l.out[len(l.out)-n:]) {
			l.out = l.out[:had]
			return false
		}
	}
	if len(l.out) > deafFrom {
		l.deaf = true
	}
	return true
}

// flush writes what waits.
func (l *link) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state.Load() != linkUp || len(l.out) == 0 {
		return
	}
	l.vec = append(l.vec[:0], l.out)
	k, err := l.write(l.vec)
	clear(l.vec)
	if err != nil {
		l.breakOff()
		return
	}
	if k > 0 {
		l.heard.Add(1)
	}
	l.out = l.out[:copy(l.out, l.out[k:])]
	if l.deaf && len(l.out) <= outMost {
		l.deaf = false
	}
	l.watch(len(l.out) > 0)
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
	return len(l.out) > outMost
}

// paused tells whether nothing is read until the other side takes answers. Only
// the listener's side pauses, and it writes with network.mu held.
func (l *link) paused() bool { return l.deaf || l.reading.active }

// receive reads what has come and acts on it. Called with network.mu held.
func (l *link) receive() {
	n := l.n
	if n.buf == nil {
		n.buf = make([]byte, readSize)
	}
	for range 4 { // then the other links have their turn
		if l.paused() {
			return
		}
		have := copy(n.buf, l.rest)
		l.rest = l.rest[:0]
		k, end := l.read(n.buf[have:])
		if end {
			l.state.Store(linkBroken)
			return
		}
		if k > 0 {
			l.heard.Add(1)
		}
		if !l.digest(n.buf[:have+k]) {
			l.state.Store(linkBroken)
			return
		}
		if have+k < len(n.buf) {
			return
		}
	}
}

// digest acts on whole frames and keeps what is left. It is false when the
// other side does not keep to the protocol.
func (l *link) digest(b []byte) bool {
	for len(b) >= frameSize && !l.reading.active {
		f, err := parseFrame(b)
		if err != nil {
			return false
		}
		end := frameSize + int(f.length)
		if len(b) < end {
			break
		}
		payload := b[frameSize:end:end]
		if l.peer == nil {
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
				return false
			}
		} else {
			switch f.kind {
			case frameRequest, frameMessage, frameDatagram, frameCall, frameHangUp:
				return false
			}
			l.answered(&f, payload)
		}
		b = b[end:]
	}
	l.rest = append(l.rest[:0], b...)
	return true
}

// resume goes on with a read that is being answered, and then with what came
// behind it. Called with network.mu held.
func (l *link) resume() {
	for l.reading.active {
		if !l.readOn() {
			return
		}
		if l.reading.active {
			continue
		}
		rest := append([]byte(nil), l.rest...)
		if !l.digest(rest) {
			l.state.Store(linkBroken)
			return
		}
	}
}
