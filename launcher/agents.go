package launcher

import (
	"cmp"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/launcher/internal/agent"
	"github.com/gorun-mpi/gorun/launcher/internal/host"
	"github.com/gorun-mpi/gorun/launcher/internal/place"
)

// startLimit is how long an agent that is being started may not come on: see Link.Waits.
const startLimit = 30 * time.Second

// remotes are the agents of a group.
type remotes struct {
	c         *controller
	g         *group
	links     []*agent.Link
	heartbeat *heartbeat
	over      chan int // index of a host that is done, or whose agent is lost, once each

	// Guarded by the controller's mu.
	addresses []string
	needs     [][]int // whose addresses each agent wants
	missing   int     // of the addresses
	master    int     // index of the host whose address the ranks of all are told
	begun     []bool  // its ranks were told to start
	logins    []logins
	seconds   int     // of those that were started
	lost      []bool  // the stream ended before the last event
	why       []error // and was no stream of an agent

	programs []transfer  // to the hosts
	waiting  *time.Timer // calls late, then lateProgram
}

func newRemotes(c *controller, g *group) *remotes {
	n := len(g.shares)
	return &remotes{c: c, g: g, heartbeat: newHeartbeat(n), over: make(chan int, n), addresses: make([]string, n), needs: make([][]int, n), missing: n, begun: make([]bool, n), logins: make([]logins, n), lost: make([]bool, n), why: make([]error, n), programs: make([]transfer, n)}
}

// start starts all agents. The caller holds the lock, which keeps what they tell
// until all are there. It is let go while an address is looked up, when nobody knows of them.
func (r *remotes) start(spec host.Spec, stdin host.Stdin) error {
	c, g := r.c, r.g
	key := make([]byte, agent.KeySize)
	if _, err := unix.Getrandom(key, 0); err != nil {
		return os.NewSyscallError("getrandom", err)
	}
	var starts []string // hosts whose agents do not run yet
	for _, share := range g.shares {
		if c.agents[share.Host] == nil {
			starts = append(starts, share.Host)
		}
	}
	if err := c.job.roomForFiles(starts); err != nil {
		return err
	}
	if err := c.job.plant(starts); err != nil {
		return err
	}
	if slices.ContainsFunc(g.shares, func(s place.Share) bool { return c.job.remote(s.Host) }) {
		r.heartbeat.listen(c.job, key)
	}
	undo := func() {
		c.mu.Unlock()
		killAll(r.links)
		r.heartbeat.end()
		c.mu.Lock()
	}
	for _, share := range g.shares {
		l, err := c.agents.take(share.Host), error(nil)
		if l == nil {
			l, err = c.job.startAgent(share.Host)
		}
		if err != nil {
			undo()
			return c.job.noAgent(share.Host, err)
		}
		c.job.Log.Debug("agent started", "host", share.Host, "command", strings.Join(c.job.agentOf(share.Host), " "))
		r.links = append(r.links, l)
		r.heartbeat.remote = append(r.heartbeat.remote, l.Remote())
	}
	r.master, spec.HostLease = spec.Master.Host, c.job.agentTimeout()
	c.mu.Unlock()
	way := c.reach() // while remote shells log in
	c.mu.Lock()
	if c.end.told {
		undo()
		return errEnding
	}
	for i, l := range r.links {
		g.seats = append(g.seats, &seat{group: g, at: i, site: l})
	}
	for i, s := range g.seats {
		share, l := g.shares[i], r.links[i]
		var local func(setting string) bool
		if c.job.remote(share.Host) {
			local = c.job.local
		}
		spec := g.specOf(spec, i, local)
		r.preload(i, &spec)
		if c.input.readBy(s) {
			spec.Stdin = stdin
		}
		var lease time.Duration
		port := 0
		if l.Remote() {
			lease, port = c.job.agentTimeout(), r.heartbeat.port()
		}
		r.logins[i].begin = func(l *agent.Link) {
			l.Begin(spec, key, way.of(share.Host), lease, port, agent.Told{
				Address: func(a, why string, needs []int) { r.address(i, l, a, why, needs) },
				Event:   func(e host.Event) { r.event(s, l, e) },
				Lost:    func(err error) { r.lose(s, l, err) },
				Alive:   func() { r.heartbeat.heard(i) },
				Suspect: func(name string) { r.suspected(s, name) },
				Program: r.program,
				Sent:    func(n int) { r.programs[i].move(n) },
				Across:  c.across,
				Carried: func(address string) { c.carried(s, address) },
			})
		}
		r.logins[i].begin(l)
	}
	if c.job.Agents.Launcher == launcherSSH && c.job.run.stage == nil {
		c.clock.after(cmp.Or(c.job.run.secondAfter, secondAfter), r.again)
	}
	c.end.deaf = append(c.end.deaf, r.killDeaf)
	r.waiting = c.clock.after(startLimit, r.late)
	r.beginHeartbeat()
	return nil
}

// killAll ends agents together: each takes up to 100 ms, where a process that the remote shell leaves behind holds its standard error.
func killAll(links []*agent.Link) {
	var closing sync.WaitGroup
	for _, l := range links {
		l.Kill()
		closing.Go(func() { l.Close() })
	}
	closing.Wait()
}

// address takes the address of an agent's gossip member. Its ranks start when the first one's host is there, too; the last
// address has the agents meet. Ranks that wait for their program, or that ranks have spawned, and those of hosts that are all this
// machine, start when all hosts are there.
func (r *remotes) address(at int, l *agent.Link, a, why string, needs []int) {
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	if r.addresses[at] != "" {
		return
	}
	if r.take(at, l); l != r.links[at] {
		return
	}
	if why, n := r.links[at].Staged(); why != "" {
		r.c.job.Log.Info("the agent's program was sent", "host", r.g.shares[at].Host, "bytes", n, "because", map[string]string{"new": "it has none", "changed": "that in the cache had changed"}[why])
	}
	if line := r.links[at].Stray(); line != "" {
		r.c.job.Log.Info("something writes to standard output before the agent, as a login script may", "host", r.g.shares[at].Host, "line", line)
	}
	r.c.job.Log.Info("host ready", "host", r.g.shares[at].Host, "address", a, "because", why)
	r.addresses[at], r.needs[at] = a, needs
	r.g.seats[at].address, _, _ = net.SplitHostPort(a)
	r.c.watch.put(Change{Kind: AgentReady, Group: r.g.id, Rank: -1, Host: r.g.shares[at].Host})
	r.missing--
	if first := r.addresses[r.master]; !r.c.end.told && first != "" && (r.missing == 0 || r.c.job.apart() && r.c.job.run.preload == nil && r.g.id == 0) {
		for i, a := range r.addresses {
			if a != "" && !r.begun[i] {
				r.begun[i] = true
				r.links[i].StartRanks(first)
				r.meet(i, r.links[i])
			}
		}
	}
	if r.missing > 0 || r.c.end.told {
		return
	}
	// Not all addresses to all: that is hosts squared, 2 GB from this process for 10,000.
	for i, l := range r.links {
		peers := make(map[int]string, len(r.needs[i]))
		for _, host := range r.needs[i] {
			if host >= 0 && host < len(r.addresses) {
				peers[host] = r.addresses[host]
			}
		}
		l.Peers(peers)
	}
	if c := r.c; c.job.run.preload != nil && r.g.id == 0 {
		for i := range r.programs {
			r.programs[i].move(0)
		}
		r.waiting = c.clock.after(startLimit, r.lateProgram)
	}
}

// late ends a job whose agents do not all come on.
func (r *remotes) late() {
	if r.missing == 0 || r.c.end.told || r.g.off {
		return
	}
	var names []string
	instead := ""
	next := startLimit
	for i, a := range r.addresses {
		if a != "" {
			continue
		}
		if left := startLimit - r.waits(i); left > 0 {
			next = min(next, left)
			continue
		}
		if names = append(names, r.g.shares[i].Host); len(names) == 1 {
			instead = r.links[i].Late()
			if r.links[i].Remote() {
				instead += "; try " + r.c.job.tryAgent(names[0])
			}
		}
	}
	if names == nil {
		r.waiting.Reset(next)
		return
	}
	for i, a := range r.addresses {
		if a == "" {
			r.killAt(i)
		}
	}
	r.c.end.fail(&Cause{Rank: -1, Host: strings.Join(names, ", "), Status: statusFailed, Message: fmt.Sprintf("no answer from the agent within %v%s", startLimit, instead)})
}

// killDeaf ends agents that should long have told of the end of their ranks:
// they are stopped, or hang. One that waits for output to be read has told.
func (r *remotes) killDeaf() {
	for i, share := range r.g.shares {
		if r.g.seats[i].done {
			continue
		}
		started, left := 0, 0
		for _, rank := range share.Ranks {
			if r.g.ranks[rank].PID > 0 {
				started++
				if !r.g.gone[rank] {
					left++
				}
			}
		}
		if started == 0 || left > 0 {
			r.c.job.Log.Warn("the agent does not answer and is killed", "host", share.Host)
			r.links[i].Abandon()
		}
	}
}

func (r *remotes) event(s *seat, l *agent.Link, e host.Event) {
	if r.isOther(s.at, l, e.Kind == host.Done) {
		return
	}
	if e.Kind == host.Done {
		r.finished(s, false)
		return
	}
	r.c.event(s, e)
}

// lose is the end of an agent's stream, regular or not.
func (r *remotes) lose(s *seat, l *agent.Link, err error) {
	if r.isOther(s.at, l, true) {
		return
	}
	if r.c.job.isElsewhere(l) {
		go r.goDirect(s, l) // wait does, for the host is not over
		return
	}
	if err != nil {
		r.c.job.Log.Warn("agent's stream", "host", s.host(), "error", err)
		r.c.mu.Lock()
		r.why[s.at] = err
		r.c.mu.Unlock()
		l.Kill()
	}
	r.finished(s, true)
}

func (r *remotes) finished(s *seat, lost bool) {
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	if s.done {
		return
	}
	if r.lost[s.at] = lost; lost {
		r.c.mournHost(s)
	}
	r.c.done(s)
	r.over <- s.at
}

// wait returns when no host has anything left, and no agent is left.
func (r *remotes) wait() {
	var closing sync.WaitGroup
	abandon := r.c.end.abandon
	for left := len(r.links); left > 0; {
		select {
		case at := <-r.over:
			left--
			r.c.mu.Lock()
			lost := r.lost[at]
			r.c.mu.Unlock()
			if lost {
				closing.Go(func() { r.mourn(at) })
			}
		case <-abandon:
			// Long after they were told to end: some agent does not answer.
			abandon = nil
			r.c.mu.Lock()
			for i, l := range r.links {
				if !r.g.seats[i].done {
					l.Abandon()
				}
			}
			r.c.mu.Unlock()
		}
	}
	closing.Wait()
	for i, l := range r.links {
		if !r.lost[i] {
			closing.Go(func() { l.Close() })
		}
	}
	for _, login := range r.logins {
		if login.spare != nil {
			login.spare.Kill()
			closing.Go(func() { login.spare.Close() })
		}
	}
	closing.Wait()
	r.heartbeat.end()
}

// mourn tells why an agent is lost. A group whose hosts are not all there cannot begin.
func (r *remotes) mourn(at int) {
	s := r.g.seats[at]
	cause := r.c.job.lostAgent(r.links[at], s.host(), r.why[at])
	if r.links[at].LostRelay() {
		r.heartbeat.dismiss(at)
	}
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	if r.addresses[at] == "" {
		ended := r.c.end.start != nil && !cause.lost // its remote shell, for there is nothing to start
		if !ended && !r.g.off && !r.c.spawns.isNot(r.g, "host "+s.host()+": "+cause.Message) {
			r.c.end.fail(cause)
		}
		return
	}
	r.c.lost(s, cause)
	for i, l := range r.links {
		if i != at && !r.g.seats[i].done {
			l.Lose(s.host(), cause.Message)
		}
	}
}
