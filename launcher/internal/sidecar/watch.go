package sidecar

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/gorun-mpi/gorun/internal/pmix/link"
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
	cpu     uint64        // ticks that it has used
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
	stopped  bool   // all of it, by a signal
	runnable bool   // one of its threads has a CPU or waits for one, or for a disk
	cpu      uint64 // ticks used
}

// loadOf asks the kernel; of a process that is gone it knows nothing.
func loadOf(pid int) (l load) {
	dir := fmt.Sprintf("/proc/%d", pid)
	if text, err := os.ReadFile(dir + "/stat"); err == nil {
		state, cpu := parseStat(text)
		l.stopped, l.cpu = state == 'T', cpu
	}
	threads, err := os.ReadDir(dir + "/task")
	if err != nil {
		return l
	}
	for _, t := range threads {
		text, err := os.ReadFile(dir + "/task/" + t.Name() + "/stat")
		if err != nil {
			continue
		}
		state, _ := parseStat(text)
		l.runnable = l.runnable || state == 'R' || state == 'D'
	}
	return l
}

// parseStat reads the state and the ticks of a line as /proc/PID/stat has it: the
// name, in parentheses, may hold blanks and parentheses.
func parseStat(text []byte) (state byte, cpu uint64) {
	_, rest, ok := bytes.Cut(text, []byte(") "))
	for ok {
		var more []byte
		if _, more, ok = bytes.Cut(rest, []byte(") ")); ok {
			rest = more
		}
	}
	f := strings.Fields(string(rest))
	const utime, stime = 11, 12 // of the fields behind the name
	if len(f) <= stime || len(f[0]) != 1 {
		return 0, 0
	}
	user, err := strconv.ParseUint(f[utime], 10, 64)
	system, err2 := strconv.ParseUint(f[stime], 10, 64)
	if err != nil || err2 != nil {
		return 0, 0
	}
	return f[0][0], user + system
}
