package launcher

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorun-mpi/gorun/launcher/internal/agent"
)

// heartbeat finds out which agents of a group are there: one that is stopped, or on a machine
// that hangs or is cut off, closes no stream. Whatever comes of an agent renews its lease, by
// the stream or as a datagram. A goroutine of its own sends datagrams and looks at the
// leases, without the controller's lock; a timer of the controller asks on the streams, so
// that an agent that hears of it there knows that the controller works.
type heartbeat struct {
	datagrams *agent.Datagrams // nil: no agent is on another machine
	remote    []bool           // the agents that are
	dismissed []atomic.Bool    // they are lost with their relay, and get a last word
	since     time.Time        // when the agents were given their work, or are to be as soon as they greet
	met       []bool           // they have greeted, which begins their leases; with the controller's lock
	leases    []agent.Lease    // of the agents' processes
	streams   []agent.Lease    // of what they say on their streams; with the controller's lock
	stop      chan struct{}    // nil before it begins
	running   sync.WaitGroup
	timer     *time.Timer
}

// questions is how often in a lease an agent is asked on its stream.
const questions = 4

func newHeartbeat(agents int) *heartbeat {
	return &heartbeat{dismissed: make([]atomic.Bool, agents), met: make([]bool, agents), leases: make([]agent.Lease, agents), streams: make([]agent.Lease, agents)}
}

// listen has agents of other machines send datagrams; what cannot be is done without.
func (b *heartbeat) listen(job *Job, key []byte) {
	d, err := agent.ListenDatagrams(key, len(b.leases), job.run.ports, func(at int) { b.leases[at].Sign(time.Now()) })
	if err != nil {
		job.Log.Warn("no datagrams to agents, whose streams have to do", "error", err)
		return
	}
	b.datagrams = d
}

// port is where this machine takes datagrams; 0: nowhere.
func (b *heartbeat) port() int {
	if b.datagrams == nil {
		return 0
	}
	return b.datagrams.Port()
}

// heard is told of whatever comes on a stream.
func (b *heartbeat) heard(at int) {
	now := time.Now()
	b.leases[at].Renew(now)
	b.streams[at].Renew(now)
}

// send sends an agent a datagram.
func (b *heartbeat) send(at int) {
	switch {
	case b.datagrams == nil:
	case b.dismissed[at].Load():
		b.datagrams.Dismiss(at)
	default:
		b.datagrams.Send(at)
	}
}

// dismiss has an agent end that hears of nothing else.
func (b *heartbeat) dismiss(at int) {
	b.dismissed[at].Store(true)
	b.send(at)
}

// end ends it, without the controller's lock.
func (b *heartbeat) end() {
	if b.stop != nil {
		close(b.stop)
	}
	b.running.Wait()
	for at := range b.dismissed {
		if b.dismissed[at].Load() {
			b.send(at) // once more: one may be lost
		}
	}
	if b.datagrams != nil {
		b.datagrams.Close()
	}
}

// beginHeartbeat begins it, when the agents are being started; the caller holds the controller's lock. The leases of an agent begin
// when it has greeted, whatever it does then: only a host of which nothing has come has startLimit.
func (r *remotes) beginHeartbeat() {
	b, limit := r.heartbeat, r.c.job.agentTimeout()
	b.since, b.stop = time.Now(), make(chan struct{})
	b.running.Go(func() { r.watch(limit) })
	b.timer = r.c.clock.after(limit/questions, r.ask)
}

// meet begins the leases of an agent that has greeted.
func (r *remotes) meet(at int, l *agent.Link) {
	b, now := r.heartbeat, time.Now()
	if b.met[at] || !l.Reached() {
		return
	}
	greeted := now.Add(-l.Waits())
	if greeted.Before(b.since) { // it has waited for its work
		greeted = b.since
	}
	b.met[at] = true
	b.leases[at].Greeted(r.c.job.agentTimeout(), greeted, now)
	b.streams[at].Greeted(streamLimit(r.c.job.agentTimeout()), greeted, now)
}

// watch sends datagrams, and gives up agents that are silent.
func (r *remotes) watch(limit time.Duration) {
	b := r.heartbeat
	tick := time.NewTicker(limit / agent.Looks)
	defer tick.Stop()
	given := make([]bool, len(b.leases))
	for {
		for i := range b.leases {
			b.send(i)
			if !given[i] && r.silent(i, time.Now()) {
				given[i] = r.giveUp(i)
			}
		}
		select {
		case <-b.stop:
			return
		case <-tick.C:
		}
	}
}

// silent tells whether an agent's lease is over, without the controller's lock. An agent that sends
// no datagrams has only its answers, and while something holds that lock nobody asks it, and
// nobody may read what it says: its lease is not looked at then, so that this time does not count.
func (r *remotes) silent(at int, now time.Time) bool {
	if r.heartbeat.datagrams == nil || !r.heartbeat.remote[at] {
		if !r.c.mu.TryLock() {
			return false
		}
		defer r.c.mu.Unlock()
	}
	_, over := r.heartbeat.leases[at].Over(now)
	return over
}

// giveUp ends a job whose agent at a host is lost, without the controller's lock. It is false
// where the agent was heard while this waited for the lock, or the wait was long.
func (r *remotes) giveUp(at int) bool {
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	silent, over := r.heartbeat.leases[at].Over(time.Now())
	if over && !r.c.clock.over {
		r.giveUpLocked(at, "has not answered for "+rounded(silent))
	}
	return over
}

func (r *remotes) giveUpLocked(at int, how string) {
	if r.g.seats[at].done {
		return
	}
	l := r.links[at]
	if l.OfRelay() {
		how += fmt.Sprintf("; its host is the relay (pid %d there) of others", l.Relay().Login().PID())
	}
	r.c.end.failed(&Cause{Rank: -1, Host: r.g.shares[at].Host, PID: l.PID(), Status: statusFailed, lost: true,
		Message: fmt.Sprintf("its agent (pid %d%s) %s", l.PID(), processState(l), how)})
	r.c.mournHost(r.g.seats[at])
	if l.OfRelay() {
		l.Relay().Kill() // which would not hear of it either
	}
	l.Abandon()
}

// ask asks all agents on their streams: also those that are done, for other hosts may need
// what their ranks have put. An agent whose stream carries nothing, or whose host does
// nothing, is given up, though it lives.
func (r *remotes) ask() {
	now, every := time.Now(), r.c.job.agentTimeout()/questions
	left := false
	for i, l := range r.links {
		if spare := r.logins[i].spare; spare != nil && spare.Reached() && !r.logins[i].over {
			spare.Ping()
			r.meet(i, spare)
		}
		if r.meet(i, l); !r.heartbeat.met[i] {
			left = true
			continue
		}
		l.Ping()
		if r.g.seats[i].done {
			continue
		}
		left = true
		limit := streamLimit(r.c.job.agentTimeout())
		if silent, over := r.heartbeat.streams[i].Over(now); over {
			r.giveUpLocked(i, "lives, but its stream has brought nothing for "+rounded(silent))
		} else if idle := time.Duration(l.Idle()) * every; idle > limit {
			r.giveUpLocked(i, "answers, but has done nothing for "+rounded(idle))
		}
	}
	if left {
		r.heartbeat.timer.Reset(every)
	}
}

// suspected is told by an agent that another host does not answer it. That is no evidence: ranks
// that poll may starve a healthy agent for a while. The host is asked at once.
func (r *remotes) suspected(by *seat, name string) {
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	r.c.job.Log.Info("a host does not answer another one, and is asked", "host", name, "by", by.host())
	for i, l := range r.links {
		if r.g.shares[i].Host == name {
			l.Ping()
		}
	}
}

func streamLimit(lease time.Duration) time.Duration { return max(agent.StreamLimit, 2*lease) }

func rounded(d time.Duration) string { return d.Round(100 * time.Millisecond).String() }

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
	if job.Agents.Timeout > 0 {
		return job.Agents.Timeout
	}
	return DefaultAgentTimeout
}
