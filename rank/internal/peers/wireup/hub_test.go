package wireup

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
)

func TestHub(t *testing.T) {
	const size, rounds = 5, 50
	h := NewHub(size)
	var ranks sync.WaitGroup
	for rank := range size {
		ranks.Go(func() {
			m := h.Member(rank)
			for round := range rounds {
				cards, err := m.AllGather(t.Context(), fmt.Appendf(nil, "%d/%d", rank, round))
				if err != nil {
					t.Error(err)
					return
				}
				for r, card := range cards {
					if got, want := string(card), fmt.Sprintf("%d/%d", r, round); got != want {
						t.Errorf("rank %d round %d: card %q, want %q", rank, round, got, want)
					}
				}
				if err := m.Barrier(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	ranks.Wait()
}

func TestHubContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	m := NewHub(2).Member(0)
	if err := m.Barrier(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("alone in a barrier: %v, want %v", err, context.Canceled)
	}
	if err := m.Barrier(t.Context()); err == nil {
		t.Error("a rank that is in a barrier already enters it again")
	}
}
