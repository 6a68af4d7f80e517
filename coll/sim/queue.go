package sim

// An event is something that happens at a time.
type event struct {
	at     Time
	tie    uint64 // orders what happens at the same time
	seq    uint32 // and of that what one rank sends another
	kind   kind
	what   what
	credit uint16
	to     int32 // the member that it happens to
	from   int32 // the peer that sent it, as that member sees it
	n      int
	load   *load
}

type kind uint8

const (
	land    kind = iota // all bytes are there
	head                // the first byte is at the host's port
	request             // the request of a get is at the owner's host
	resume              // the member goes on
)

// what is sent.
type what uint8

const (
	message what = iota // the channel's next one
	credit              // a credit word
	write               // of memory, unnoticed
	answer              // to a get
)

// tie orders events of one time by the distance that they come over, and not by the number of
// hosts: so members that stand for others see what those would see. Events of
// different hosts at the same time do not touch each other.
func (f *fabric) tie(k kind, to, from int32) uint64 {
	hosts, per := int32(f.cfg.Hosts), int32(f.cfg.PerHost)
	distance := (f.host(to) - f.host(from) + hosts) % hosts
	return uint64(k)<<60 | uint64(distance)<<40 | uint64(from%per)<<20 | uint64(to%per)
}

// schedule has what a member sent a peer happen there.
func (f *fabric) schedule(from, peer int32, at Time, e event) {
	e.at = at
	e.to, e.from = f.meet(from, peer)
	e.tie = f.tie(e.kind, e.to, e.from)
	f.queue.push(e)
}

// A queue is a heap of events.
type queue struct {
	heap []event
	seq  uint32
}

func (e *event) before(o *event) bool {
	if e.at != o.at {
		return e.at < o.at
	}
	if e.tie != o.tie {
		return e.tie < o.tie
	}
	return int32(e.seq-o.seq) < 0
}

// before tells whether an event is due at t or before.
func (q *queue) before(t Time) bool { return len(q.heap) > 0 && q.heap[0].at <= t }

func (q *queue) push(e event) {
	q.seq++
	e.seq = q.seq
	q.heap = append(q.heap, e)
	h, i := q.heap, len(q.heap)-1
	for i > 0 {
		up := (i - 1) / 4
		if !e.before(&h[up]) {
			break
		}
		h[i] = h[up]
		i = up
	}
	h[i] = e
}

func (q *queue) pop() event {
	h := q.heap
	top, last := h[0], h[len(h)-1]
	h[len(h)-1] = event{}
	h = h[:len(h)-1]
	q.heap = h
	if len(h) == 0 {
		return top
	}
	i := 0
	for {
		least := 4*i + 1
		if least >= len(h) {
			break
		}
		for c := least + 1; c < min(4*i+5, len(h)); c++ {
			if h[c].before(&h[least]) {
				least = c
			}
		}
		if !h[least].before(&last) {
			break
		}
		h[i] = h[least]
		i = least
	}
	h[i] = last
	return top
}
