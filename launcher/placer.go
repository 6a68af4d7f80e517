package launcher

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/topo"
	"github.com/gorun-mpi/gorun/launcher/internal/agent"
	"github.com/gorun-mpi/gorun/launcher/internal/place"
)

// wish is where a job wants its ranks, before the machines are known.
type wish struct {
	hosts  []place.Host
	apps   []place.App
	policy place.Policy
	cpus   func() int // topo.CPUs of this machine, looked up once
}

// newWish reads a job's words.
func newWish(job *Job) (*wish, *JobError) {
	w := &wish{cpus: sync.OnceValue(topo.CPUs)}
	p := &w.policy
	var err error
	if p.Map, err = place.ParseMap(job.Map); err != nil {
		return nil, bad("Map", job.Map, "%w", err)
	}
	if p.Rank, err = place.ParseRank(job.Rank); err != nil {
		return nil, bad("Rank", job.Rank, "%w", err)
	}
	if p.Bind, err = place.ParseBind(job.Bind); err != nil {
		return nil, bad("Bind", job.Bind, "%w", err)
	}
	if job.RankFile != "" {
		if job.Map == "" {
			p.Map.By = place.Ranks
		}
		if p.Map.By != place.Ranks {
			return nil, bad("RankFile", "", "a rankfile says where every rank goes: it does not go with the mapping %s", job.Map)
		}
		if p.File, err = place.ParseRankFile(job.RankFile); err != nil {
			return nil, bad("RankFile", "", "%w", err)
		}
	}
	if job.CPUs != "" {
		if p.CPUs, err = topo.ParseSet(job.CPUs); err != nil || p.CPUs.Len() == 0 {
			return nil, bad("CPUs", job.CPUs, "want CPU numbers, as 0-3,8")
		}
	}
	if p.Bind.Listed {
		if job.CPUs == "" {
			return nil, bad("Bind", job.Bind, "found no list of CPUs, expected one; try --cpu-list 0-3 beside it")
		}
		if err := p.Bind.Order(job.CPUs); err != nil {
			return nil, bad("CPUs", job.CPUs, "%w", err)
		}
	}
	if p.PerHost = job.PerHost; p.PerHost < 0 || p.PerHost > maxRanks {
		return nil, bad("PerHost", strconv.Itoa(job.PerHost), "want 1 rank or more, or 0 for as many as there are slots")
	}
	if job.NoOversubscribe {
		p.Map.Over = place.No
	}
	if jerr := w.findHosts(job); jerr != nil {
		return nil, jerr
	}
	for i := range job.Apps {
		a := place.App{NP: job.Apps[i].NP}
		for _, name := range job.Apps[i].Hosts {
			a.Hosts = append(a.Hosts, w.named(job, name))
		}
		w.apps = append(w.apps, a)
	}
	return w, nil
}

// ownNames are names of this machine beside its own.
var ownNames = [...]string{"localhost", "127.0.0.1", "::1"}

func isOwn(name, own string) bool {
	for _, n := range ownNames {
		if name == n {
			return true
		}
	}
	return name == own
}

// findHosts are the hosts of a job. Without agents, several names of this
// machine are one host.
func (w *wish) findHosts(job *Job) *JobError {
	own := ownName()
	if len(job.Hosts) == 0 {
		w.hosts = []place.Host{{Name: own, Slots: w.cpus(), Free: true, Here: true}}
		// Rankfiles name hosts that need no other list.
		for i := range w.policy.File {
			if l := &w.policy.File[i]; isOwn(l.Host, own) {
				l.Host = own
			}
		}
		return nil
	}
	for _, h := range job.Hosts {
		here := isOwn(h.Name, own)
		if job.Launcher == "" && h.Name != "" && !here {
			return bad("Hosts", h.Name, "it is not this machine (%s), and other machines cannot be reached yet; the launcher fork runs an agent for each named host on this machine", own)
		}
		name := h.Name
		if job.Launcher == "" && name != "" {
			name = own
		}
		w.hosts = append(w.hosts, place.Host{Name: name, Slots: max(h.Slots, -1), Max: h.Max, Here: here})
	}
	for i := range w.policy.File {
		l := &w.policy.File[i]
		l.Host = w.named(job, l.Host)
	}
	return nil
}

// named is a host's name as the job's list has it.
func (w *wish) named(job *Job, name string) string {
	if own := ownName(); job.Launcher == "" && isOwn(name, own) {
		return own
	}
	return name
}

func ownName() string {
	name, err := os.Hostname()
	if err != nil || name == "" {
		name = "localhost"
	}
	return name
}

// place places the ranks; the machines are known.
func (w *wish) place(job *Job) (*place.Result, *JobError) {
	placed, err := place.Place(w.hosts, w.apps, w.policy)
	if err != nil {
		field, value := "NP", strconv.Itoa(job.NP)
		pe, _ := errors.AsType[*place.Error](err) // it always is one
		switch {
		case pe.Bind && job.Bind != "":
			field, value = "Bind", job.Bind
		case job.RankFile != "":
			field, value = "RankFile", ""
		case job.Map != "" && !pe.Slots:
			field, value = "Map", job.Map
		case len(job.Hosts) > 0:
			field, value = "Hosts", listHosts(job.Hosts)
		}
		return nil, bad(field, value, "%w", err)
	}
	job.NP = 0
	for i, n := range placed.NPs {
		job.Apps[i].NP = n
		job.NP += n
	}
	if job.NP > maxRanks {
		return nil, bad("NP", strconv.Itoa(job.NP), "want %d ranks or fewer", maxRanks)
	}
	for _, o := range placed.Over {
		job.Log.Info(fmt.Sprintf("oversubscribed: %v", o))
	}
	return placed, nil
}

func listHosts(hosts []Host) string {
	s := ""
	for i, h := range hosts {
		if i == 4 {
			return s + ",..."
		}
		if i > 0 {
			s += ","
		}
		s += h.Name + ":" + strconv.Itoa(max(1, h.Slots))
	}
	return s
}

// crew are agents that run before the ranks are placed, by host.
type crew map[string]*agent.Link

// take is the agent of a host; nil when there is none yet.
func (w crew) take(host string) *agent.Link {
	l := w[host]
	delete(w, host)
	return l
}

// dismiss ends the agents that nobody took.
func (w crew) dismiss() {
	var closing sync.WaitGroup
	for _, l := range w {
		closing.Go(func() { l.Close() })
	}
	closing.Wait()
	clear(w)
}

// look finds out what the machines are, where the wish needs it: it starts the
// agents and asks them, all at once. A signal that would end a job, or the end of
// ctx, ends it with that cause.
func (w *wish) look(ctx context.Context, job *Job) (crew, *Cause, error) {
	if !job.Topology && !w.policy.NeedsMachines(w.hosts) {
		return nil, nil, nil
	}
	if job.Launcher == "" {
		m := topo.Here()
		for i := range w.hosts {
			w.hosts[i].Machine = &m
		}
		return nil, nil, nil
	}
	limit := startLimit
	if job.Timeout > 0 {
		limit = min(limit, job.Timeout)
	}
	links := crew{}
	type answer struct {
		host    string
		machine *topo.Machine
		err     error
	}
	for _, h := range w.hosts {
		if h.Name == "" || links[h.Name] != nil {
			continue
		}
		l, err := agent.Start(job.Agent, job.Env, h.Name)
		if err != nil {
			return links, nil, &JobError{Field: "Agent", Value: job.Agent[0], ExitStatus: statusFailed, Err: fmt.Errorf("host %s: %w", h.Name, err)}
		}
		links[h.Name] = l
	}
	answers := make(chan answer, len(links))
	for name, l := range links {
		go func() {
			m, err := l.Machine(limit)
			answers <- answer{name, m, err}
		}()
	}
	machines := map[string]*topo.Machine{}
	stop := func(cause *Cause) (crew, *Cause, error) {
		for _, l := range links {
			l.Kill()
		}
		for n := len(machines); n < len(links); n++ {
			<-answers
		}
		return links, cause, nil
	}
	for len(machines) < len(links) {
		select {
		case a := <-answers:
			machines[a.host] = a.machine
			if a.err != nil {
				return stop(&Cause{Rank: -1, Host: a.host, Status: statusFailed, Message: a.err.Error()})
			}
		case s := <-job.Signals:
			if sig, ok := s.(unix.Signal); ok && (sig == unix.SIGINT || sig == unix.SIGTERM) {
				return stop(&Cause{Rank: -1, Status: statusSignal + int(sig), Signal: sig})
			}
		case <-ctx.Done():
			return stop(&Cause{Rank: -1, Status: statusFailed, Message: context.Cause(ctx).Error()})
		}
	}
	for i := range w.hosts {
		w.hosts[i].Machine = machines[w.hosts[i].Name]
	}
	return links, nil, nil
}
