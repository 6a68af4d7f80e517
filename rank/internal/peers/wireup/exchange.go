package wireup

import (
	"context"
	"time"
)

// An Exchange carries cards between the ranks before they are connected.
// *pmi.Client is one.
type Exchange interface {
	// AllGather gives every rank the card of each, by rank. The cards belong to
	// the caller.
	AllGather(ctx context.Context, card []byte) ([][]byte, error)
	// Barrier returns when all ranks have called it.
	Barrier(ctx context.Context) error
	// BarrierServing is Barrier for a rank that others may need while it waits: serve
	// is called now and then, again after the time that it returns. Its error ends
	// the call, and the exchange for this rank.
	BarrierServing(ctx context.Context, serve func() (next time.Duration, err error)) error
}

// Alone is the exchange of a world of one.
type Alone struct{}

// AllGather gives the card back.
func (Alone) AllGather(_ context.Context, card []byte) ([][]byte, error) { return [][]byte{card}, nil }

// Barrier returns at once.
func (Alone) Barrier(context.Context) error { return nil }

// BarrierServing returns at once.
func (Alone) BarrierServing(context.Context, func() (time.Duration, error)) error { return nil }

// serveFirst is when a barrier serves first.
const serveFirst = time.Millisecond

// Serving makes a BarrierServing of a barrier.
func Serving(ctx context.Context, barrier func(context.Context) error, serve func() (next time.Duration, err error)) error {
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	var met error
	done := make(chan struct{})
	go func() {
		defer close(done)
		met = barrier(within)
	}()
	timer := time.NewTimer(serveFirst)
	defer timer.Stop()
	for {
		select {
		case <-done:
			return met
		case <-timer.C:
			next, err := serve()
			if err != nil {
				cancel()
				<-done
				return err
			}
			timer.Reset(next)
		}
	}
}
