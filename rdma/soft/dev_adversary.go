package soft

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorun-mpi/gorun/rdma"
)

// chaos makes an Adversary's choices. Without one it is never asked.
type chaos struct {
	mu  sync.Mutex // guards what follows
	rng *rand.Rand

	// bus, of a test that chooses which rings are lost: as many as lose says, and then one comes. Until then the device looks
	// at no record by itself. Without, chance decides.
	bus  bool
	lose int

	down bool // the port is; no request is executed
}

// part is what an adversary has done of a request.
type part struct {
	pieces uint8 // placed ahead of the request itself
	lost   uint8 // acknowledgements lost
	rnr    uint8 // receives pretended missing
}

// lossOneIn: one in so many unreliable messages gets lost.
const lossOneIn = 8

// ringLostOneIn: one in so many rings gets lost. Where one was, the device looks at the record one time in lookOneIn.
const ringLostOneIn, lookOneIn = 8, 4

// lostOneIn: one in so many requests is lost for ever with Losses. flapOneIn: before one in so many the port goes down, with Flaps.
const lostOneIn, flapOneIn = 100, 200

// flapLasts is how long a port is down: longer than a program that looks for the event without a wait needs.
const flapLasts = 20 * time.Millisecond

const (
	mostPieces = 4
	mostLost   = 2
	mostRNR    = 3
)

func (h *chaos) init(cfg Config) {
	if cfg.Adversary != nil {
		h.rng = rand.New(rand.NewPCG(cfg.Adversary.Seed, uint64(cfg.Rank)))
	}
}

// below gives a number in [0, n).
func (h *chaos) below(n int) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.rng.IntN(n)
}

// shuffle puts queue pairs into any order: only the requests of one of them
// are ordered.
func (h *chaos) shuffle(qs []*queuePair) {
	if h.rng == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.rng.Shuffle(len(qs), func(i, j int) { qs[i], qs[j] = qs[j], qs[i] })
}

// ring is a ring of a queue pair's doorbell on its way to the device. Called with the queue pair's mu held.
func (h *chaos) ring(q *queuePair) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.bus && h.lose > 0:
		h.lose--
		return
	case h.bus:
		h.bus = false
	case h.rng.IntN(ringLostOneIn) == 0:
		return
	}
	q.sq.rung = q.sq.posted
}

// unseen tells whether the device does not know of a request. Called with the queue pair's mu held.
func (h *chaos) unseen(q *queuePair, e *request) bool {
	if int32(e.seq-q.sq.rung) <= 0 {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.bus || h.rng.IntN(lookOneIn) != 0 {
		return true
	}
	q.sq.rung = q.sq.posted
	return false
}

// let decides whether the head of a queue pair's backlog is executed now, and
// may do a part of it. Called with the queue pair's mu held.
func (h *chaos) let(q *queuePair, e *request) bool {
	if h.unseen(q, e) || h.flap(q.p) {
		return false
	}
	switch h.below(4) {
	case 0: // delayed
		return false
	case 1: // some bytes are ahead of the others
		if e.part.pieces < mostPieces && e.part.lost == 0 {
			e.part.pieces++
			h.piece(q, &e.wr)
			return false
		}
	case 2: // no receive, or so it seems
		if e.part.rnr < mostRNR && q.attr.RNRRetry > 0 && e.wr.Opcode.Operation().Received != 0 && e.part.lost == 0 {
			e.part.rnr++
			q.sq.counters.RNRRetries++
			return false
		}
	}
	return true
}

// loseAck decides whether the requester of an executed request never hears of
// it, and repeats it.
func (h *chaos) loseAck(q *queuePair, e *request) bool {
	if e.part.lost >= mostLost || q.attr.RetryCnt == 0 || h.below(4) != 0 {
		return false
	}
	e.part.lost++
	q.sq.counters.AckRetries++
	return true
}

// lost decides whether a request that is about to be executed is never answered.
func (h *chaos) lost(q *queuePair) bool {
	return q.p.cfg.Adversary.Losses && !q.unreliable && h.below(lostOneIn) == 0
}

// flap decides whether the port goes down now. It tells whether it is.
func (h *chaos) flap(p *Provider) bool {
	if !p.cfg.Adversary.Flaps {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.down && h.rng.IntN(flapOneIn) == 0 {
		h.down = true
		p.tellPort(rdma.EventPortErr)
		time.AfterFunc(flapLasts, func() {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.down = false
			p.tellPort(rdma.EventPortActive)
		})
	}
	return h.down
}

// portState is what QueryPort says.
func (h *chaos) portState() rdma.PortState {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.down {
		return rdma.PortDown
	}
	return rdma.PortActive
}

// piece places a random piece of a write's payload, when the write is one that
// will succeed. Words that may be flags stay one store.
func (h *chaos) piece(q *queuePair, wr *rdma.SendWR) {
	o := wr.Opcode.Operation()
	if o.Moves != rdma.MovesToMemory {
		return
	}
	dci := q.init.Type == rdma.DCI
	if dci && (q.dc.dial(wr) != accepted || q.dc.held == nil) || q.remote == nil {
		return
	}
	segs, total, guard, ok := q.scratch.mem.gather(q.pd, wr)
	if !ok || guard || q.scratch.mem.laid || total <= 8 {
		return
	}
	s, c := q.peer, q.remote
	q.mark(s.markOf(wr.RKey))
	defer q.own.unmark(q.turn)
	var a answer
	st := rdma.WCSuccess
	if dci {
		a, st = q.dc.reaches()
	} else {
		a = admit(c, q.attr.DestQPNum, q.dest, q.psn)
	}
	if a != accepted || st != rdma.WCSuccess || !permits(atomic.LoadUint32(&c.rights), o) {
		return
	}
	var sp span
	if !q.open(&sp, wr.RKey, wr.RemoteAddr, total, o.Access) {
		return
	}
	pick := h.below(len(segs))
	off := 0
	for _, b := range segs[:pick] {
		off += len(b)
	}
	b := segs[pick]
	from := h.below(len(b))
	to := from + 1 + h.below(len(b)-from)
	_ = sp.store(off+from, b[from:to], false) // the real execution reports what is wrong
}
