package launcher

import (
	"context"
	"io"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/topo"
	"github.com/gorun-mpi/gorun/launcher/internal/agent"
)

// agentPool are agents that run before the ranks are placed, by host.
type agentPool map[string]*agent.Link

// take is the agent of a host; nil when there is none yet.
func (p agentPool) take(host string) *agent.Link {
	l := p[host]
	delete(p, host)
	return l
}

// dismiss ends the agents that nobody took.
func (p agentPool) dismiss() {
	var closing sync.WaitGroup
	for _, l := range p {
		closing.Go(func() { l.Close() })
	}
	closing.Wait()
	clear(p)
}

// askMachines finds out what the machines are, where the placement needs it: it starts the
// agents and asks them, all at once. A signal that would end a job, or the end of
// ctx, ends it with that cause.
func (p *placer) askMachines(ctx context.Context, job *Job) (agentPool, *Cause, error) {
	if !job.Placing.Topology && !p.policy.NeedsMachines(p.hosts) {
		return nil, nil, nil
	}
	if job.oneHost() {
		m := topo.Here()
		for i := range p.hosts {
			p.hosts[i].Machine = &m
		}
		return nil, nil, nil
	}
	var overdue <-chan time.Time
	if job.Timeout > 0 {
		overdue = time.After(job.Timeout)
	}
	var names []string
	seen := map[string]bool{"": true}
	for _, h := range p.hosts {
		if !seen[h.Name] {
			names = append(names, h.Name)
		}
		seen[h.Name] = true
	}
	if err := job.roomForFiles(names); err != nil {
		return nil, nil, err
	}
	if err := job.plant(names); err != nil {
		return nil, nil, err
	}
	links := agentPool{}
	type answer struct {
		host      string
		machine   *topo.Machine
		err       error
		elsewhere bool // the host's relay could not start its agent, which ends
	}
	for _, name := range names {
		l, err := job.startAgent(name)
		if err != nil {
			return links, nil, job.noAgent(name, err)
		}
		links[name] = l
	}
	answers := make(chan answer, len(links))
	ask := func(name string, l *agent.Link) {
		m, err := l.Machine(startLimit, job.agentTimeout()*5/4)
		elsewhere := err != nil && job.isElsewhere(l)
		if elsewhere {
			job.goneDirect(name, l)
		}
		answers <- answer{name, m, err, elsewhere}
	}
	for name, l := range links {
		go ask(name, l)
	}
	all := len(links)
	machines := map[string]*topo.Machine{}
	stop := func(cause *Cause) (agentPool, *Cause, error) {
		for _, l := range links {
			l.Kill()
		}
		for n := len(machines); n < all; n++ {
			<-answers
		}
		return links, cause, nil
	}
	// Agents that have answered wait for the others, and end where gorun is silent.
	asking := time.NewTicker(job.agentTimeout() / questions)
	defer asking.Stop()
	for len(machines) < all {
		select {
		case <-asking.C:
			for _, l := range links {
				if l.Reached() {
					l.Ping()
				}
			}
		case a := <-answers:
			if a.elsewhere {
				if direct, err := job.startDirect(a.host); err == nil {
					links[a.host] = direct
					go ask(a.host, direct)
					continue
				}
			}
			machines[a.host] = a.machine
			if a.err != nil {
				if a.err == io.EOF {
					a.err = nil // the command has ended, and how says more
				} else {
					links[a.host].Kill()
				}
				return stop(job.lostAgent(links.take(a.host), a.host, a.err))
			}
		case s := <-job.Signals:
			if sig, ok := s.(unix.Signal); ok && (sig == unix.SIGINT || sig == unix.SIGTERM) {
				return stop(&Cause{Rank: -1, Status: statusSignal + int(sig), Signal: sig})
			}
		case <-overdue:
			return stop(overtime(job.Timeout))
		case <-ctx.Done():
			return stop(&Cause{Rank: -1, Status: statusFailed, Message: context.Cause(ctx).Error()})
		}
	}
	for i := range p.hosts {
		p.hosts[i].Machine = machines[p.hosts[i].Name]
	}
	return links, nil, nil
}
