package agent

import (
	"sync"
	"time"
)

// Looks is how often in its limit a lease is looked at, and datagrams renew it.
const Looks = 16

// A Lease is how long one side of a job may be silent before the other takes it for lost. It is
// looked at Looks times in its limit. A look that comes late by more than one means that this process
// stood still, stopped or without a CPU, or its machine did: what has come meanwhile may
// not be read yet, so that time does not count. Goroutines may share it.
type Lease struct {
	mu     sync.Mutex
	limit  time.Duration
	heard  time.Time
	looked time.Time
	rests  bool
	waits  bool // for the first word since the greeting
	signs  bool // the other side shows by itself that it lives
}

// Begin begins it.
func (l *Lease) Begin(limit time.Duration, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.limit, l.heard, l.looked = limit, now, now
}

// Greeted begins it with a greeting, or what was heard since. The first word after that answers an order, which a network that loses
// packets may carry late: unless the other side shows by itself that it lives, it has a quarter of the limit more for that.
func (l *Lease) Greeted(limit time.Duration, at, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at.After(l.heard) {
		l.heard = at
	}
	l.limit, l.looked, l.waits = limit, now, !l.signs
}

// Sign is Renew by what the other side says of itself, many times in a lease.
func (l *Lease) Sign(now time.Time) {
	l.mu.Lock()
	l.signs = true
	l.mu.Unlock()
	l.Renew(now)
}

// Renew notes that the other side was heard.
func (l *Lease) Renew(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waits = false
	if now.After(l.heard) {
		l.heard = now
	}
}

// Rest has it count no time, until it does again.
func (l *Lease) Rest(rests bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rests = rests
}

// Over looks at it: for how long the other side has been silent, and whether that is too long.
func (l *Lease) Over(now time.Time) (silent time.Duration, over bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.limit == 0 {
		return 0, false // it has not begun
	}
	every, limit := l.limit/Looks, l.limit
	if l.waits {
		limit += limit / 4
	}
	slept := now.Sub(l.looked)
	l.looked = now
	switch {
	case l.rests:
		l.heard = now
	case slept > 2*every:
		l.heard = l.heard.Add(slept - every)
	}
	if l.heard.After(now) { // what came meanwhile was read before this look
		l.heard = now
	}
	silent = now.Sub(l.heard)
	return silent, silent+every/2 > limit
}
