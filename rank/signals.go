package rank

import (
	"context"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gorun-mpi/gorun/internal/endsignal"
)

const (
	// notice is how long the end of Main's context may stay unseen.
	notice = 500 * time.Millisecond
	// tellTime is how long a rank whose failure only follows from others' waits to be told to
	// end: peers learn faster of each other than from the launcher.
	tellTime = 250 * time.Millisecond
)

// signals ends Main's context at SIGINT and SIGTERM.
type signals struct {
	come  chan os.Signal
	first os.Signal     // once told is closed
	told  chan struct{} // closed when the context has ended
	over  chan struct{}
	seen  *seenContext
	end   context.CancelCauseFunc
}

// watchSignals takes SIGINT and SIGTERM from here on, unless the parent has them ignored.
func watchSignals() (context.Context, *signals) {
	ctx, end := context.WithCancelCause(context.Background())
	s := &signals{come: make(chan os.Signal, 2), told: make(chan struct{}), over: make(chan struct{}), seen: &seenContext{Context: ctx}, end: end}
	list := []os.Signal{syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGINT) {
		list = append(list, syscall.SIGINT)
	}
	signal.Notify(s.come, list...)
	go s.watch()
	return s.seen, s
}

// watch lives until stop, or ends the process.
func (s *signals) watch() {
	select {
	case s.first = <-s.come:
	case <-s.over:
		return
	}
	s.end(endsignal.Received(s.first.(syscall.Signal)))
	close(s.told)
	first, late := time.Now(), time.NewTimer(notice)
	for {
		select {
		case next := <-s.come:
			if endsignal.Second(next, time.Since(first)) {
				endsignal.Die(next.(syscall.Signal))
			}
		case <-late.C:
			if !s.seen.seen.Load() {
				endsignal.Die(s.first.(syscall.Signal))
			}
		case <-s.over:
			return
		}
	}
}

// dieSoon ends the process by the signal that has ended the context, if there is one or
// comes soon.
func (s *signals) dieSoon() {
	select {
	case <-s.told:
		endsignal.Die(s.first.(syscall.Signal))
	case <-time.After(tellTime):
	}
}

func (s *signals) stop() {
	signal.Stop(s.come)
	close(s.over)
	s.end(nil)
}

// A seenContext knows whether somebody has looked at its end, or waits for it.
type seenContext struct {
	context.Context
	seen atomic.Bool
}

func (c *seenContext) Done() <-chan struct{} {
	c.seen.Store(true)
	return c.Context.Done()
}

func (c *seenContext) Err() error {
	err := c.Context.Err()
	if err != nil {
		c.seen.Store(true)
	}
	return err
}
