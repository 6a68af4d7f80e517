package wireup

import (
	"context"
	"fmt"
	"slices"
	"sync"
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

func (h *Hub) next() *round {
	return &round{cards: make([][]byte, h.size), full: make(chan struct{})}
}

// Member is the exchange of one rank.
func (h *Hub) Member(rank int) Exchange { return member{h, rank} }

type member struct {
	hub  *Hub
	rank int
}

func (m member) AllGather(ctx context.Context, card []byte) ([][]byte, error) {
	h := m.hub
	h.mu.Lock()
	r := h.round
	if r.cards[m.rank] != nil {
		h.mu.Unlock()
		return nil, fmt.Errorf("rank %d is in the exchange already", m.rank)
	}
	r.cards[m.rank] = append(make([]byte, 0, len(card)), card...)
	if r.there++; r.there == h.size {
		h.round = h.next()
		close(r.full)
	}
	h.mu.Unlock()
	select {
	case <-r.full:
		return slices.Clone(r.cards), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (m member) Barrier(ctx context.Context) error {
	_, err := m.AllGather(ctx, nil)
	return err
}
