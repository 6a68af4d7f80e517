package launcher

import (
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/gorun-mpi/gorun/internal/topo"
	"github.com/gorun-mpi/gorun/launcher/internal/place"
)

// placer places the ranks of a job: it has the hosts, the programs and the policy.
type placer struct {
	hosts  []place.Host
	apps   []place.App
	policy place.Policy
	cpus   func() int // topo.CPUs of this machine, looked up once
}

// newPlacer reads a job's words.
func newPlacer(job *Job) (*placer, *JobError) {
	l := &placer{cpus: sync.OnceValue(topo.CPUs)}
	p := &l.policy
	var err error
	if p.Map, err = place.ParseMap(job.Placing.Map); err != nil {
		return nil, bad("Placing.Map", job.Placing.Map, "%w", err)
	}
	if p.Rank, err = place.ParseRank(job.Placing.Rank); err != nil {
		return nil, bad("Placing.Rank", job.Placing.Rank, "%w", err)
	}
	if p.Bind, err = place.ParseBind(job.Placing.Bind); err != nil {
		return nil, bad("Placing.Bind", job.Placing.Bind, "%w", err)
	}
	if job.Placing.RankFile != "" {
		if job.Placing.Map == "" {
			p.Map.By = place.Ranks
		}
		if p.Map.By != place.Ranks {
			return nil, bad("Placing.RankFile", "", "a rankfile places every rank: it cannot be combined with the mapping %s", job.Placing.Map)
		}
		if p.File, err = place.ParseRankFile(job.Placing.RankFile); err != nil {
			return nil, bad("Placing.RankFile", "", "%w", err)
		}
	}
	if job.Placing.CPUs != "" {
		if p.CPUs, err = topo.ParseSet(job.Placing.CPUs); err != nil || p.CPUs.Len() == 0 {
			return nil, bad("Placing.CPUs", job.Placing.CPUs, "want CPU numbers, as 0-3,8")
		}
	}
	if p.Bind.Listed {
		if job.Placing.CPUs == "" {
			return nil, bad("Placing.Bind", job.Placing.Bind, "found no list of CPUs, expected one; try --cpu-list 0-3 beside it")
		}
		if err := p.Bind.Order(job.Placing.CPUs); err != nil {
			return nil, bad("Placing.CPUs", job.Placing.CPUs, "%w", err)
		}
	}
	if p.PerHost = job.Placing.PerHost; p.PerHost < 0 || p.PerHost > maxRanksOfHost {
		return nil, bad("Placing.PerHost", strconv.Itoa(job.Placing.PerHost), "want 1 rank or more, or 0 for as many as there are slots")
	}
	if job.Placing.NoOversubscribe {
		p.Map.Over = place.No
	}
	l.findHosts(job)
	for i := range job.Apps {
		a := place.App{NP: job.Apps[i].NP}
		for _, name := range job.Apps[i].Hosts {
			a.Hosts = append(a.Hosts, job.hostName(name))
		}
		l.apps = append(l.apps, a)
	}
	return l, nil
}

// findHosts are the hosts of a job. But for the launcher fork, several names of this
// machine are one host.
func (p *placer) findHosts(job *Job) {
	self := job.here()
	if len(job.Hosts) == 0 {
		p.hosts = []place.Host{{Name: self.Name, Slots: p.cpus(), Free: true, Here: true}}
		// Rankfiles name hosts that need no other list.
		for i := range p.policy.File {
			if line := &p.policy.File[i]; self.Is(line.Host) {
				line.Host = self.Name
			}
		}
		return
	}
	for _, h := range job.Hosts {
		here := self.Is(h.Name)
		p.hosts = append(p.hosts, place.Host{Name: job.hostName(h.Name), Slots: max(h.Slots, -1), Max: h.Max, Here: here})
	}
	for i := range p.policy.File {
		line := &p.policy.File[i]
		line.Host = job.hostName(line.Host)
	}
}

// portsBeside are the ports that a host needs beside those of its ranks: its agent's two and, on this machine, the controller's.
const portsBeside = 3

// place places the ranks; the machines are known.
func (p *placer) place(job *Job) (*place.Result, *JobError) {
	placed, err := place.Place(p.hosts, p.apps, p.policy)
	if err != nil {
		field, value := "NP", strconv.Itoa(job.NP)
		pe, _ := errors.AsType[*place.Error](err) // it always is one
		switch {
		case pe.Bind && job.Placing.Bind != "":
			field, value = "Placing.Bind", job.Placing.Bind
		case job.Placing.RankFile != "":
			field, value = "Placing.RankFile", ""
		case job.Placing.Map != "" && !pe.Slots:
			field, value = "Placing.Map", job.Placing.Map
		case len(job.Hosts) > 0:
			field, value = "Hosts", listHosts(job.Hosts)
		}
		return nil, bad(field, value, "%w", err)
	}
	for _, share := range placed.Shares {
		if need := len(share.Ranks) + portsBeside; job.apart() && job.run.ports.Len() > 0 && job.run.ports.Len() < need {
			return nil, bad("Network.Ports", job.Network.Ports, "found %d ports, and host %s needs %d: one for each rank and %d for gorun; try %d-%d",
				job.run.ports.Len(), share.Host, need, portsBeside, job.run.ports.First, min(job.run.ports.First+max(2*need, 100), 65535))
		}
	}
	job.NP = 0
	for i, n := range placed.NPs {
		job.Apps[i].NP = n
		job.NP += n
	}
	if job.NP > maxRanks {
		return nil, bad("NP", strconv.Itoa(job.NP), "want %d ranks or fewer", maxRanks)
	}
	for _, s := range placed.Shares {
		if len(s.Ranks) > maxRanksOfHost {
			return nil, bad("NP", strconv.Itoa(job.NP), "host %s would have %d ranks, want %d or fewer on a host", s.Host, len(s.Ranks), maxRanksOfHost)
		}
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
