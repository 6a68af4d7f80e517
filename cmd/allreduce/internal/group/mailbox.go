package group

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// depth is how many operations a participant has under way at a time.
const depth = 4

// window is how far a peer's operations can be ahead of the oldest that is not done here:
// the peer starts an operation when the one depth before it is done, which is so when this
// participant has started that one, having done the one depth before that.
const window = 2 * depth

// maxFree bounds the buffers that are kept.
const maxFree = 8 * window

// A slot is the place of one payload.
type slot struct {
	from string // the participant's ID
	op   uint64
	step int
}

// A mailbox has the payloads that have come from participants before they were asked for.
type mailbox struct {
	mu      sync.Mutex
	full    map[slot][]byte
	waiting map[slot]chan []byte
	left    map[string]bool // participants that send nothing more
	low     uint64          // all operations before it are done
	done    map[uint64]bool // operations from low on that are done
	free    [][]byte
}

func newMailbox() *mailbox {
	return &mailbox{full: map[slot][]byte{}, waiting: map[slot]chan []byte{}, left: map[string]bool{}, done: map[uint64]bool{}}
}

// buffer is n bytes for a payload.
func (m *mailbox) buffer(n int) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	if last := len(m.free) - 1; last >= 0 && cap(m.free[last]) >= n {
		b := m.free[last][:n]
		m.free = m.free[:last]
		return b
	}
	return make([]byte, n)
}

// release takes a buffer back.
func (m *mailbox) release(b []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.free) < maxFree && cap(b) > 0 {
		m.free = append(m.free, b)
	}
}

// put delivers a payload. The error says why no honest participant sends it.
func (m *mailbox) put(s slot, b []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch _, twice := m.full[s]; {
	case s.op < m.low || s.op >= m.low+window || m.done[s.op]:
		return fmt.Errorf("%w: data of operation %d, while operation %d is under way", errFrame, s.op, m.low)
	case twice:
		return fmt.Errorf("%w: data of operation %d, step %d, twice", errFrame, s.op, s.step)
	}
	if w := m.waiting[s]; w != nil {
		delete(m.waiting, s)
		w <- b
		return nil
	}
	if len(m.full) > maxMembers*window {
		return fmt.Errorf("%w: too much data", errFrame)
	}
	m.full[s] = b
	return nil
}

// take waits for a payload, which belongs to the caller until release. told is called when that takes long.
func (m *mailbox) take(ctx context.Context, s slot, told func(time.Duration)) ([]byte, error) {
	m.mu.Lock()
	if b, ok := m.full[s]; ok {
		delete(m.full, s)
		m.mu.Unlock()
		return b, nil
	}
	if m.left[s.from] {
		m.mu.Unlock()
		return nil, fmt.Errorf("it ended before operation %d", s.op)
	}
	w := make(chan []byte, 1)
	m.waiting[s] = w
	m.mu.Unlock()
	b, ok, err := await(ctx, w, told)
	if err == nil && !ok {
		err = fmt.Errorf("it ended before operation %d", s.op)
	}
	return b, err
}

// patience is how long something may be awaited before that is told; then twice as long, and so on.
const patience = 5 * time.Second

// await receives from a channel, unless ctx ends; ok is false where the channel is closed. It tells
// how long it has waited.
func await[T any](ctx context.Context, from <-chan T, told func(time.Duration)) (v T, ok bool, err error) {
	for since, wait := time.Now(), patience; ; wait *= 2 {
		timer := time.NewTimer(wait)
		select {
		case v, ok = <-from:
			timer.Stop()
			return v, ok, nil
		case <-ctx.Done():
			timer.Stop()
			return v, false, context.Cause(ctx)
		case <-timer.C:
			told(time.Since(since))
		}
	}
}

// leave notes that a participant sends nothing more.
func (m *mailbox) leave(from string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.left[from] = true
	for s, w := range m.waiting {
		if s.from == from {
			delete(m.waiting, s)
			close(w)
		}
	}
}

// finish notes that an operation is done.
func (m *mailbox) finish(op uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.done[op] = true
	for m.done[m.low] {
		delete(m.done, m.low)
		m.low++
	}
}
