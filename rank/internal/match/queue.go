// Package match pairs receives with messages by MPI's rules: a message belongs
// to one context (communicator), has one source and one tag; a receive names a
// context and may leave source and tag open. A receive takes the earliest
// message that fits, a message the earliest receive, so that messages of one
// source are not overtaken.
//
//	            fits a posted receive? --yes--> to that receive
//	message --> no: Keep, unexpected -----+
//	                                      | earliest that fits
//	receive --> Post -----------------yes-+--> to that message
//	            no: stands in line until a message or Cancel comes
//
// Post and Arrive are made of two steps each, Peek and Drop or Stand, First and
// Cancel or Keep, for callers that look before they take.
//
// A Queue is data only: it blocks on nothing, copies nothing, allocates nothing
// after New, and belongs to one goroutine at a time. The caller owns receives and
// messages; the queue links those that stand in line and forgets them when they
// leave it.
//
// Cost: lists by source keep the search short; each search is linear in the
// entries of that source (for an open source: of all sources) that came earlier.
package match

// Any leaves the source or the tag of a receive open.
const Any = -1

// An Envelope is what matching looks at, and the type of the data, at which it does not.
type Envelope struct {
	Context uint32
	Source  int32
	Tag     int32
	Type    uint8 // a number that sender and receiver agree on, 0: any
}

// takes tells whether a receive with envelope r fits a message with envelope m.
func (r *Envelope) takes(m *Envelope) bool {
	return r.Context == m.Context && (r.Source == Any || r.Source == m.Source) && (r.Tag == Any || r.Tag == m.Tag)
}

// A Receive is a receive that is or was posted; R is its owner's part.
type Receive[R any] struct {
	Envelope
	Value R

	order      uint64
	list       *receives[R]
	prev, next *Receive[R]
}

// Posted tells whether the receive stands in line.
func (r *Receive[R]) Posted() bool { return r.list != nil }

// A Message is a message that is or was unexpected; M is its owner's part.
type Message[M any] struct {
	Envelope
	Value M

	bySource, byTime links[M]
}

type links[M any] struct{ prev, next *Message[M] }

// receives is a list of posted receives, the earliest first.
type receives[R any] struct{ head, tail *Receive[R] }

// messages is a list of unexpected messages, the earliest first.
type messages[M any] struct{ head, tail *Message[M] }

// A Queue holds the posted receives and the unexpected messages of one rank.
type Queue[R, M any] struct {
	order  uint64
	posted []receives[R] // by source
	open   receives[R]   // of any source

	unexpected []messages[M] // by source
	all        messages[M]
}

// New makes a queue for messages of sources 0 to n-1.
func New[R, M any](n int) *Queue[R, M] {
	return &Queue[R, M]{posted: make([]receives[R], n), unexpected: make([]messages[M], n)}
}

// Post gives the earliest unexpected message that fits r, which leaves the
// queue; without one r stands in line and Post gives nil. r must not stand in
// line, and r.Source must be Any or a source of the queue.
func (q *Queue[R, M]) Post(r *Receive[R]) *Message[M] {
	if m := q.Peek(r.Envelope); m != nil {
		q.Drop(m)
		return m
	}
	q.Stand(r)
	return nil
}

// Stand stands a receive in line that no unexpected message fits.
func (q *Queue[R, M]) Stand(r *Receive[R]) {
	q.order++
	r.order = q.order
	if r.Source == Any {
		q.open.push(r)
	} else {
		q.posted[r.Source].push(r)
	}
}

// Peek is the message that Post would give, which stays where it is.
func (q *Queue[R, M]) Peek(want Envelope) *Message[M] {
	if want.Source == Any {
		for m := q.all.head; m != nil; m = m.byTime.next {
			if want.takes(&m.Envelope) {
				return m
			}
		}
		return nil
	}
	for m := q.unexpected[want.Source].head; m != nil; m = m.bySource.next {
		if want.takes(&m.Envelope) {
			return m
		}
	}
	return nil
}

// Next is the message after m that a receive would take which names the source and the tag of m,
// nil when there is none.
func (q *Queue[R, M]) Next(m *Message[M]) *Message[M] {
	for n := m.bySource.next; n != nil; n = n.bySource.next {
		if m.takes(&n.Envelope) {
			return n
		}
	}
	return nil
}

// First is the earliest posted receive that fits a message, nil when there is
// none. It stays where it is: Cancel takes it out.
func (q *Queue[R, M]) First(m Envelope) *Receive[R] {
	r := q.posted[m.Source].first(&m)
	if q.open.head == nil {
		return r
	}
	if o := q.open.first(&m); o != nil && (r == nil || o.order < r.order) {
		return o
	}
	return r
}

// Arrive gives the earliest posted receive that fits a message, which leaves the
// queue; nil when there is none: then the message is to be kept.
func (q *Queue[R, M]) Arrive(m Envelope) *Receive[R] {
	r := q.First(m)
	if r != nil {
		r.list.remove(r)
	}
	return r
}

// Keep stands a message that no posted receive fits in line.
func (q *Queue[R, M]) Keep(m *Message[M]) {
	m.byTime = links[M]{prev: q.all.tail}
	if q.all.tail == nil {
		q.all.head = m
	} else {
		q.all.tail.byTime.next = m
	}
	q.all.tail = m
	l := &q.unexpected[m.Source]
	m.bySource = links[M]{prev: l.tail}
	if l.tail == nil {
		l.head = m
	} else {
		l.tail.bySource.next = m
	}
	l.tail = m
}

// Drop takes a message that stands in line out of it.
func (q *Queue[R, M]) Drop(m *Message[M]) {
	prev, next := m.byTime.prev, m.byTime.next
	if prev == nil {
		q.all.head = next
	} else {
		prev.byTime.next = next
	}
	if next == nil {
		q.all.tail = prev
	} else {
		next.byTime.prev = prev
	}
	l := &q.unexpected[m.Source]
	prev, next = m.bySource.prev, m.bySource.next
	if prev == nil {
		l.head = next
	} else {
		prev.bySource.next = next
	}
	if next == nil {
		l.tail = prev
	} else {
		next.bySource.prev = prev
	}
	m.byTime, m.bySource = links[M]{}, links[M]{}
}

// Cancel takes a posted receive out of line; false when it stands in none.
func (q *Queue[R, M]) Cancel(r *Receive[R]) bool {
	if r.list == nil {
		return false
	}
	r.list.remove(r)
	return true
}

// Awaits tells whether a receive that names the source stands in line.
func (q *Queue[R, M]) Awaits(source int) bool { return q.posted[source].head != nil }

// Posted calls f for the posted receives that name a source, or, for Any, that
// leave it open, earliest first. f may cancel the receive that it is called for.
func (q *Queue[R, M]) Posted(source int32, f func(*Receive[R])) {
	l := &q.open
	if source != Any {
		l = &q.posted[source]
	}
	for r := l.head; r != nil; {
		next := r.next
		f(r)
		r = next
	}
}

// Purge takes the unexpected messages of a context out, earliest first.
func (q *Queue[R, M]) Purge(context uint32, gone func(*Message[M])) {
	q.purge(func(m *Message[M]) bool { return m.Context == context }, gone)
}

// PurgeAll takes all unexpected messages out, earliest first.
func (q *Queue[R, M]) PurgeAll(gone func(*Message[M])) {
	q.purge(func(*Message[M]) bool { return true }, gone)
}

func (q *Queue[R, M]) purge(which func(*Message[M]) bool, gone func(*Message[M])) {
	for m := q.all.head; m != nil; {
		next := m.byTime.next
		if which(m) {
			q.Drop(m)
			gone(m)
		}
		m = next
	}
}

func (l *receives[R]) first(m *Envelope) *Receive[R] {
	for r := l.head; r != nil; r = r.next {
		if r.takes(m) {
			return r
		}
	}
	return nil
}

func (l *receives[R]) push(r *Receive[R]) {
	r.list, r.prev, r.next = l, l.tail, nil
	if l.tail == nil {
		l.head = r
	} else {
		l.tail.next = r
	}
	l.tail = r
}

func (l *receives[R]) remove(r *Receive[R]) {
	if r.prev == nil {
		l.head = r.next
	} else {
		r.prev.next = r.next
	}
	if r.next == nil {
		l.tail = r.prev
	} else {
		r.next.prev = r.prev
	}
	r.list, r.prev, r.next = nil, nil, nil
}
