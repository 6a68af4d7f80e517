package launcher

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/gorun-mpi/gorun/launcher/internal/agent"
)

// heartbeat asks the agents of a group now and then whether they are there: one that
// is stopped, or on a machine that hangs, closes no stream. What gossip thinks of
// it is no evidence: ranks that poll may starve a healthy agent for a while.
type heartbeat struct {
	timer *time.Timer
	every time.Duration
	last  time.Time // when they were asked
}

// heartbeats is how often an agent is asked before it is given up.
const heartbeats = 4

// beginHeartbeat begins it; the caller holds the controller's lock.
func (r *remotes) beginHeartbeat() {
	every := r.c.job.agentTimeout() / heartbeats
	r.heartbeat = &heartbeat{every: every, last: time.Now()}
	for i := range r.heard {
		r.heard[i].Store(r.heartbeat.last.UnixNano())
	}
	r.heartbeat.timer = r.c.clock.after(every, r.ask)
}

// ask gives up the agents that have not been heard of for too long and asks the
// others.
func (r *remotes) ask() {
	p := r.heartbeat
	now := time.Now()
	// Did this process itself stand still, stopped or without a CPU, then there
	// may be answers that it has not read.
	slept := now.Sub(p.last) > 2*p.every
	p.last = now
	left := false
	for i, l := range r.links {
		if r.g.seats[i].done {
			l.Ping() // other hosts may need what its ranks have put
			continue
		}
		left = true
		if slept {
			r.heard[i].Store(now.UnixNano())
		}
		silent := now.Sub(time.Unix(0, r.heard[i].Load()))
		if silent <= r.c.job.agentTimeout() {
			l.Ping()
			continue
		}
		r.c.end.failed(&Cause{Rank: -1, Host: r.g.shares[i].Host, PID: l.PID(), Status: statusFailed,
			Message: fmt.Sprintf("its agent (pid %d%s) has not answered for %v", l.PID(), processState(l), silent.Round(100*time.Millisecond))})
		l.Kill()
	}
	if left {
		p.timer.Reset(p.every)
	}
}

// processState is what the kernel says of an agent, ", T (stopped)"; "" if it does not.
func processState(l *agent.Link) string {
	if l.Remote() {
		return " there"
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", l.PID()))
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

func (job *Job) agentTimeout() time.Duration {
	if job.AgentTimeout > 0 {
		return job.AgentTimeout
	}
	return DefaultAgentTimeout
}
