package sidecar

import (
	"fmt"
	"os"
	"time"

	"github.com/gorun-mpi/gorun/internal/pmix/link"
	"github.com/gorun-mpi/gorun/internal/proc"
)

// The helper is looked at looks times in Config.Patience.
const (
	looks = 8
	// A helper that was found stopped so often, one look after the other, is given up:
	// the process that has stopped it can have it go on before.
	stoppedLooks = 3
	// A helper that works, or waits for a CPU, has busyFactor times as long.
	busyFactor = 10
)

// A clock is how long the helper has owed an answer.
type clock struct {
	last    time.Time     // when it was looked at
	owed    time.Duration // in which it owed one; time in which gorun itself stood still does not count
	idle    time.Duration // of that, in which it neither worked nor waited for a CPU
	cpu     time.Duration // that it has used
	stopped int           // looks, up to this one, that found it stopped
}

// watch is called now and then while the helper runs: it must answer.
func (s *Server) watch() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state != starting && s.state != serving {
		return
	}
	s.receive(0) // its answer may be there
	if s.state != starting && s.state != serving {
		return
	}
	w := &s.clock
	now := time.Now()
	every := s.cfg.Patience / looks
	passed := min(now.Sub(w.last), 2*every)
	w.last = now
	load := loadOf(s.pid)
	if load.stopped {
		w.stopped++
	} else {
		w.stopped = 0
	}
	busy := load.runnable || load.cpu != w.cpu
	w.cpu = load.cpu
	switch {
	case w.stopped >= stoppedLooks:
		s.fail("%s is stopped (T, as by SIGSTOP) and answers nobody; without it the ranks cannot go on", s.name())
		return
	case !s.waiting:
		s.pings++
		s.waiting = true
		w.owed, w.idle = 0, 0
		s.send(&link.Message{Kind: link.Ping, ID: s.pings})
	default:
		w.owed += passed
		if !busy {
			w.idle += passed
		}
	}
	limit := s.cfg.Patience
	if w.idle < limit {
		limit *= busyFactor
	}
	if s.waiting && w.owed >= limit {
		what := "has not answered for"
		if s.state == starting {
			what = "was not ready within"
		}
		s.fail("%s %s %v; --pmix-timeout gives it longer", s.name(), what, limit)
		return
	}
	s.timer.Reset(every)
}

// load is what a process does.
type load struct {
	stopped  bool          // all of it, by a signal
	runnable bool          // one of its threads has a CPU or waits for one, or for a disk
	cpu      time.Duration // used
}

// loadOf asks the kernel; of a process that is gone it knows nothing.
func loadOf(pid int) (l load) {
	dir := fmt.Sprintf("/proc/%d", pid)
	if s, ok := proc.Read(dir + "/stat"); ok {
		l.stopped, l.cpu = s.State == 'T', s.CPU
	}
	threads, err := os.ReadDir(dir + "/task")
	if err != nil {
		return l
	}
	for _, t := range threads {
		s, ok := proc.Read(dir + "/task/" + t.Name() + "/stat")
		l.runnable = l.runnable || ok && (s.State == 'R' || s.State == 'D')
	}
	return l
}
