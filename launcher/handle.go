package launcher

import (
	"context"
	"os"
	"sync"
	"time"
)

// Handle is a running or ended job. Its methods may be called from several goroutines, also after the end.
type Handle struct {
	signals chan os.Signal // what the controller takes in place of Job.Signals
	done    chan struct{}
	workers sync.WaitGroup // passes Job.Signals on
	result  Result         // once done is closed, alike err
	err     error

	stats stats
	mu    sync.Mutex
	c     *controller // of the latest start; nil: the ranks are not placed yet
}

// Start starts a job and returns while it runs. The error is a *JobError when a field of the job
// is invalid. Wait returns later errors, for example that the program does not exist. The rules
// of Run apply. The job runs to its end, whether or not Wait is called; the end of ctx ends it.
func Start(ctx context.Context, job Job) (*Handle, error) {
	seen := job
	if err := checkTimes(&seen); err != nil {
		return nil, err
	}
	if _, err := check(&seen); err != nil {
		return nil, err
	}
	h := &Handle{signals: make(chan os.Signal, 16), done: make(chan struct{})}
	if from := job.Signals; from != nil {
		h.workers.Go(func() { h.pass(from) })
	}
	job.Signals = h.signals
	h.stats.since = time.Now()
	go func() {
		h.result, h.err = runFor(ctx, job, h)
		close(h.done)
	}()
	return h, nil
}

// pass hands signals on while the job runs.
func (h *Handle) pass(from <-chan os.Signal) {
	for {
		select {
		case s, ok := <-from:
			if !ok || h.Signal(s) != nil {
				return
			}
		case <-h.done:
			return
		}
	}
}

// Wait waits for the end of the job and returns the results of Run.
func (h *Handle) Wait() (Result, error) {
	<-h.done
	h.workers.Wait()
	return h.result, h.err
}

// Done returns a channel that is closed when the job has ended.
func (h *Handle) Done() <-chan struct{} { return h.done }

// Signal passes a signal to the ranks, as Job.Signals does. It returns
// os.ErrProcessDone when the job has ended.
func (h *Handle) Signal(s os.Signal) error {
	select {
	case <-h.done:
		return os.ErrProcessDone
	default:
	}
	select {
	case h.signals <- s:
		return nil
	case <-h.done:
		return os.ErrProcessDone
	}
}

// State is the state of a rank in a running job.
type State uint8

// The states, in their order.
const (
	StateWaiting State = iota // the rank is placed but not started
	StateRunning
	StateEnded
)

// String is the name of the state.
func (s State) String() string {
	switch s {
	case StateWaiting:
		return "waiting"
	case StateRunning:
		return "running"
	}
	return "ended"
}

// RankStatus is the present state of a rank.
type RankStatus struct {
	// RankEnd has Host, Group and Rank from the beginning, PID once it runs, and
	// the rest when it has ended.
	RankEnd
	State State
}

// Ranks returns all ranks of the job by group and rank, or none before
// placement. With Restarts.Max it returns those of the latest start.
func (h *Handle) Ranks() []RankStatus {
	h.mu.Lock()
	c := h.c
	h.mu.Unlock()
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []RankStatus
	for _, g := range c.worlds.groups {
		for rank, end := range g.ranks {
			s := RankStatus{RankEnd: end}
			switch {
			case g.gone[rank]:
				s.State = StateEnded
			case end.PID > 0:
				s.State = StateRunning
			default:
				s.RankEnd = RankEnd{Group: g.id, Rank: rank, Host: g.shares[g.hostOf[rank]].Host}
			}
			list = append(list, s)
		}
	}
	return list
}

// attach makes a controller the one that the handle looks at.
func (h *Handle) attach(c *controller) {
	h.mu.Lock()
	h.c = c
	h.mu.Unlock()
	h.stats.placed(c.worlds.attempt)
}
