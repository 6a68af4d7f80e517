package launcher

import (
	"fmt"
	"os"
	"strings"
	"time"
)

// pulse asks the agents of a group now and then whether they are there: one that
// is stopped, or on a machine that hangs, closes no stream. What gossip thinks of
// it is no evidence: ranks that poll may starve a healthy agent for a while.
type pulse struct {
	timer *time.Timer
	every time.Duration
	last  time.Time // when they were asked
}

// pulses is how often an agent is asked before it is given up.
const pulses = 4

// feel begins it; the caller holds the controller's lock.
func (r *remotes) feel() {
	every := r.c.agentTimeout() / pulses
	r.pulse = &pulse{every: every, last: time.Now()}
	for i := range r.heard {
		r.heard[i].Store(r.pulse.last.UnixNano())
	}
	r.pulse.timer = time.AfterFunc(every, func() {
		r.c.mu.Lock()
		defer r.c.mu.Unlock()
		if !r.c.over {
			r.ask()
		}
	})
	r.c.timers = append(r.c.timers, r.pulse.timer)
}

// ask gives up the agents that have not been heard of for too long and asks the
// others.
func (r *remotes) ask() {
	p := r.pulse
	now := time.Now()
	// Did this process itself stand still, stopped or without a CPU, then there
	// may be answers that it has not read.
	slept := now.Sub(p.last) > 2*p.every
	p.last = now
	left := false
	for i, l := range r.links {
		if r.done[i] {
			continue
		}
		left = true
		if slept {
			r.heard[i].Store(now.UnixNano())
		}
		silent := now.Sub(time.Unix(0, r.heard[i].Load()))
		if silent <= r.c.agentTimeout() {
			l.Ping()
			continue
		}
		r.c.failed(&Cause{Rank: -1, Host: r.g.shares[i].Host, PID: l.PID(), Status: statusFailed,
			Message: fmt.Sprintf("its agent (pid %d%s) has not answered for %v", l.PID(), processState(l.PID()), silent.Round(100*time.Millisecond))})
		l.Kill()
	}
	if left {
		p.timer.Reset(p.every)
	}
}

// processState is what the kernel says of a process, ", T (stopped)"; "" if it
// does not.
func processState(pid int) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if state, ok := strings.CutPrefix(line, "State:"); ok {
			return ", " + strings.TrimSpace(state)
		}
	}
	return ""
}

func (c *controller) agentTimeout() time.Duration {
	if c.job.AgentTimeout > 0 {
		return c.job.AgentTimeout
	}
	return DefaultAgentTimeout
}
