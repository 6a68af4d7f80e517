package wireup

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// A Hub is the exchange between ranks that are goroutines of one process.
type Hub struct {
	size int

	mu    sync.Mutex
	round *round
}

// A round is one all-gather: it is over when full is closed.
type round struct {
	cards [][]byte
	there int
	full  chan struct{}
}

// NewHub makes the hub of so many ranks.
func NewHub(size int) *Hub {
	h := &Hub{size: size}
	h.round = h.next()
	return h
}

func (h *Hub) next() *round { return &round{cards: make([][]byte, h.size), full: make(chan struct{})} }

// Member is the exchange of one rank.
func (h *Hub) Member(rank int) Exchange { return member{h, rank} }

type member struct {
	hub  *Hub
	rank int
}

func (m member) AllGather(ctx context.Context, card []byte) ([][]byte, error) {
	r, err := m.enter(card)
	if err != nil {
		return nil, err
	}
	select {
	case <-r.full:
		return slices.Clone(r.cards), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// enter takes part in the round that is gathering.
func (m member) enter(card []byte) (*round, error) {
	h := m.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.round
	if r.cards[m.rank] != nil {
		return nil, fmt.Errorf("rank %d has already joined the exchange", m.rank)
	}
	r.cards[m.rank] = append(make([]byte, 0, len(card)), card...)
	if r.there++; r.there == h.size {
		h.round = h.next()
		close(r.full)
	}
	return r, nil
}

func (m member) BarrierServing(ctx context.Context, serve func() (time.Duration, error)) error {
	return Serving(ctx, m.Barrier, serve)
}

func (m member) Barrier(ctx context.Context) error {
	_, err := m.AllGather(ctx, nil)
	return err
}
