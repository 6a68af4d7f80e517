package launcher

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/gorun-mpi/gorun/launcher/internal/agent"
)

// launchTree is what Agents.Tree is by default: one more than two turns of logins.
const launchTree = 65

// A tree has hosts log in to each other: gorun reaches the first host of each block, the relay's, by the remote shell, and the
// relay, gorun-agent --relay, starts the agents of its block. So the logins of 1,000 hosts take two turns
// rather than 32, and most of their CPU time is that of the relays' hosts.
//
//	gorun ──ssh── relay on a ──┬─ child ─ agent of a
//	      │                    ├── ssh ── agent of b
//	      │                    └── ssh ── agent of c
//	      └──ssh── relay on d ──┬─ child ─ agent of d
//	                            └── ...
//
// A host that its relay cannot log in to is logged in to from here ([remotes.goDirect]).
type tree map[string]*agent.Relay // by host

// relays are a tree as a Job has it, which others compare: it holds no errors.
type relays interface {
	of(host string) *agent.Relay // nil: the host has none
	hosts(of *agent.Relay) (n int)
	close() // ends the relays
}

var _ relays = tree(nil)

func (t tree) of(host string) *agent.Relay { return t[host] }

func (t tree) hosts(of *agent.Relay) (n int) {
	for _, relay := range t {
		if relay == of {
			n++
		}
	}
	return n
}

func (t tree) close() {
	var closing sync.WaitGroup
	for host, relay := range t {
		if relay.Host() == host {
			closing.Go(func() { relay.Close() })
		}
	}
	closing.Wait()
}

// blocks are the blocks of hosts that are to start, in order; nil: there is no tree. The others would go with a host that dies, so a job
// that may go on without one has none.
func (job *Job) blocks(hosts []string) [][]string {
	if job.Agents.Tree < 0 || job.Agents.Launcher != launcherSSH || job.Agents.Stage || job.Continuous || job.Restarts.Max > 0 || job.Elastic != nil || job.run.tree != nil {
		return nil
	}
	var others []string
	for _, h := range hosts {
		if job.remote(h) {
			others = append(others, h)
		}
	}
	if len(others) < max(2, cmp.Or(job.Agents.Tree, launchTree)) {
		return nil
	}
	n := min(int(math.Ceil(math.Sqrt(float64(len(others))))), cap(job.run.gate))
	return slices.Collect(slices.Chunk(others, (len(others)+n-1)/n))
}

// plant starts the relays of a job, where hosts are to start for which there is a tree.
func (job *Job) plant(hosts []string) error {
	blocks := job.blocks(hosts)
	if blocks == nil {
		return nil
	}
	t := tree{}
	job.run.tree = t
	for _, block := range blocks {
		command := slices.Concat(job.remoteAgent(), []string{"--relay", strconv.Itoa(cap(job.run.gate)), job.agentTimeout().String()})
		argv := slices.Concat(job.shell(), []string{job.login(block[0]), "exec " + quote(command)})
		relay, err := agent.StartRelay(argv, coreless(job.run.environ), block[0], &agent.Shell{Gate: job.run.gate, Again: job.again(block[0]), Silence: job.agentTimeout()})
		if err != nil {
			return job.noAgent(block[0], err)
		}
		job.Log.Debug("relay started", "host", block[0], "hosts", len(block))
		for _, h := range block {
			t[h] = relay
		}
	}
	return nil
}

// fell ends the relays.
func (job *Job) fell() {
	if job.run.tree != nil {
		job.run.tree.close()
	}
}

// relayed starts the agent of a host by its relay; nil: it has none.
func (job *Job) relayed(host string) *agent.Link {
	if job.run.tree == nil {
		return nil
	}
	relay := job.run.tree.of(host)
	if relay == nil {
		return nil
	}
	argv := job.agentOf(host)
	if relay.Host() == host {
		argv = job.remoteAgent()
	}
	return relay.Start(argv, host)
}

// isElsewhere, without the controller's lock, tells whether a host whose agent has ended before it was there is to be logged in to from here: its relay could not
// do so, or there is none. Where the remote shell has not reached the relay's own host, or has lost it, it would not do so once more.
func (job *Job) isElsewhere(l *agent.Link) bool {
	if l.Relay() == nil || l.Reached() || l.Killed() {
		return false
	}
	up, failed := l.Relay().IsUp()
	return failed != nil || !l.OfRelay() || up && !l.Relay().IsGone() || !l.Relay().Refused()
}

// goneDirect tells of a host that is logged in to from here.
func (job *Job) goneDirect(host string, l *agent.Link) {
	l.Kill() // it may say what no agent says, and stay
	how, complaints := l.Close()
	if l.LostRelay() {
		how = "it is not there"
	}
	job.Log.Info("the host is logged in to from here, and not by its relay", "host", host, "relay", l.Relay().Host(), "relay's login", how, "said", last(complaints))
}

// last is the last line of some; "": there is none.
func last(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	return lines[len(lines)-1]
}

// lostRelay is the cause that an agent is lost with its relay.
func (job *Job) lostRelay(relay *agent.Relay) *Cause {
	l := relay.Login()
	how, complaints := relay.Close()
	message := fmt.Sprintf("the relay there (pid %d), which has started the agents of %d hosts, is lost: %s %s", l.PID(), job.run.tree.hosts(relay), job.shell()[0], how)
	if said := last(complaints); said != "" {
		message += ": " + said
	}
	return &Cause{Rank: -1, Host: relay.Host(), PID: l.PID(), Status: statusFailed, Message: message, Stderr: complaints, lost: !l.Killed()}
}

// goDirect logs in to a host from here whose relay could not.
func (r *remotes) goDirect(s *seat, l *agent.Link) {
	host := s.host()
	r.c.job.goneDirect(host, l)
	r.c.mu.Lock()
	var direct *agent.Link
	if !r.c.end.told && !r.g.off && r.links[s.at] == l {
		if d, err := r.c.job.startDirect(host); err == nil {
			direct = d
			r.links[s.at], s.site = d, d
			r.logins[s.at].begin(d)
		}
	}
	r.c.mu.Unlock()
	if direct == nil {
		r.finished(s, true)
	}
}

// passRelay has hosts wait no longer for a relay that does not come.
func (r *remotes) passRelay(l *agent.Link, waits time.Duration) {
	relay := l.Relay()
	if relay == nil || !l.OfRelay() || !relay.Pass() {
		return
	}
	r.c.job.Log.Info("nothing has come of a relay, whose hosts are logged in to from here", "relay", relay.Host(), "after", rounded(waits))
}
