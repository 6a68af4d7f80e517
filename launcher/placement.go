package launcher

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gorun-mpi/gorun/internal/topo"
	"github.com/gorun-mpi/gorun/launcher/internal/place"
)

// Placement says on which hosts and CPUs the ranks of a job run.
type Placement struct {
	Hosts []PlacedHost // including those without ranks
	Ranks []PlacedRank // by rank
	// Oversubscribed are the names of hosts with more ranks than their
	// explicit slots, unless Placing.Map permits it explicitly.
	Oversubscribed []string
}

// PlacedHost is a host of a job.
type PlacedHost struct {
	Name  string
	Slots int
	Max   int // 0: no limit
	Ranks []int

	machine *topo.Machine // nil: nobody has looked
}

// PlacedRank is a rank of a job.
type PlacedRank struct {
	Rank    int
	App     int // index of its program in Job.Apps
	Program string
	Host    int   // index in Placement.Hosts
	Local   int   // number among the ranks of the host
	CPUs    []int // CPUs that the rank is bound to; none: it is not bound
}

func newPlacement(job *Job, r *place.Result) Placement {
	var p Placement
	at := map[string]int{}
	for i, h := range r.Hosts {
		at[h.Name] = i
		p.Hosts = append(p.Hosts, PlacedHost{Name: h.Name, Slots: h.Slots, Max: h.Max, machine: h.Machine})
	}
	local := map[int]int{}
	for _, s := range r.Shares {
		p.Hosts[at[s.Host]].Ranks = s.Ranks
		for i, rank := range s.Ranks {
			local[rank] = i
		}
	}
	for rank, pr := range r.Ranks {
		p.Ranks = append(p.Ranks, PlacedRank{Rank: rank, App: pr.App, Program: job.Apps[pr.App].Argv[0], Host: at[r.Shares[pr.Host].Host], Local: local[rank], CPUs: pr.CPUs.List()})
	}
	if m, err := place.ParseMap(job.Placing.Map); err != nil || m.Over != place.Yes {
		for _, o := range r.Over {
			if !o.Free {
				p.Oversubscribed = append(p.Oversubscribed, o.String())
			}
		}
	}
	return p
}

// Allocation lists the hosts and their slots, one per line.
func (p *Placement) Allocation() string {
	var b strings.Builder
	for _, h := range p.Hosts {
		limit := "none"
		if h.Max > 0 {
			limit = fmt.Sprint(h.Max)
		}
		fmt.Fprintf(&b, "host %s: slots=%d max_slots=%s ranks=%d\n", h.Name, h.Slots, limit, len(h.Ranks))
	}
	return b.String()
}

// Map lists the ranks by host: a line for each host and for each rank.
func (p *Placement) Map() string {
	var b strings.Builder
	for _, h := range p.Hosts {
		if len(h.Ranks) == 0 {
			continue
		}
		fmt.Fprintf(&b, "host %s: slots=%d ranks=%d\n", h.Name, h.Slots, len(h.Ranks))
		for _, rank := range h.Ranks {
			r := &p.Ranks[rank]
			fmt.Fprintf(&b, "  rank %d: app=%d local=%d cpus=%s program=%s\n", rank, r.App, r.Local, cpuList(r.CPUs), r.Program)
		}
	}
	return b.String()
}

// cpuList is CPUs in a word.
func cpuList(cpus []int) string {
	if len(cpus) == 0 {
		return "all"
	}
	return topo.SetOf(cpus...).String()
}

// Bindings has a line for each rank: the object that it is bound to, and a picture of
// the host's CPUs, with brackets around packages and a slash between cores. B is a
// hardware thread that the rank may use, and ~ one that no rank of the job may use.
func (p *Placement) Bindings() string {
	var b strings.Builder
	for i := range p.Ranks {
		b.WriteString(p.Binding(i) + "\n")
	}
	return b.String()
}

// Binding is the line of Bindings for one rank.
func (p *Placement) Binding(rank int) string {
	r := &p.Ranks[rank]
	h := &p.Hosts[r.Host]
	if len(r.CPUs) == 0 {
		return fmt.Sprintf("rank %d on host %s is not bound", rank, h.Name)
	}
	set := topo.SetOf(r.CPUs...)
	if h.machine == nil {
		return fmt.Sprintf("rank %d on host %s bound to CPUs %v", rank, h.Name, set)
	}
	return fmt.Sprintf("rank %d on host %s bound to %s, CPUs %v: %s", rank, h.Name, cores(h.machine, set), set, picture(h.machine, set))
}

// cores names the cores of a set: "package 0[core 0-1]".
func cores(m *topo.Machine, set topo.Set) string {
	type at struct{ pkg, core int32 }
	var list []at
	for _, c := range m.CPUs {
		if a := (at{c.In[topo.Package], c.In[topo.Core]}); set.Has(c.Number) && !slices.Contains(list, a) {
			list = append(list, a)
		}
	}
	var words []string
	for i := 0; i < len(list); {
		var s topo.Set
		pkg := list[i].pkg
		for ; i < len(list) && list[i].pkg == pkg; i++ {
			s.Add(int(list[i].core))
		}
		words = append(words, fmt.Sprintf("package %d[core %v]", pkg, s))
	}
	return strings.Join(words, ", ")
}

// picture draws the CPUs of a machine.
func picture(m *topo.Machine, set topo.Set) string {
	var b strings.Builder
	pkg, core := int32(-1), int32(-1)
	for _, c := range m.CPUs {
		switch {
		case c.In[topo.Package] != pkg:
			if pkg >= 0 {
				b.WriteByte(']')
			}
			b.WriteByte('[')
		case c.In[topo.Core] != core:
			b.WriteByte('/')
		}
		pkg, core = c.In[topo.Package], c.In[topo.Core]
		switch {
		case set.Has(c.Number):
			b.WriteByte('B')
		case m.Allowed.Has(c.Number):
			b.WriteByte('.')
		default:
			b.WriteByte('~')
		}
	}
	b.WriteByte(']')
	return b.String()
}

// Topology describes the hosts: a line with the numbers of objects, and a tree of the
// larger objects with their CPUs. It needs Placing.Topology or a placement by objects.
func (p *Placement) Topology() string {
	var b strings.Builder
	for _, h := range p.Hosts {
		m := h.machine
		if m == nil {
			fmt.Fprintf(&b, "host %s: not known\n", h.Name)
			continue
		}
		var counts []string
		for k := topo.Whole; k > 0; k-- {
			if n := len(m.Objects(k - 1)); n > 0 {
				counts = append(counts, fmt.Sprintf("%d %v", n, k-1))
			}
		}
		fmt.Fprintf(&b, "host %s: %s\n", h.Name, strings.Join(counts, ", "))
		quota := "none"
		if m.Quota > 0 {
			quota = fmt.Sprintf("%.4g CPUs", m.Quota)
		}
		fmt.Fprintf(&b, "  allowed CPUs %v of %d, quota %s, usable at once %d\n", m.Allowed, len(m.CPUs), quota, m.Usable())
		var small topo.Set
		for _, c := range m.CPUs {
			if c.Small {
				small.Add(c.Number)
			}
		}
		if small.Len() > 0 {
			fmt.Fprintf(&b, "  efficient cores: CPUs %v\n", small)
		}
		for _, k := range [...]topo.Kind{topo.Package, topo.NUMA, topo.L3, topo.Core} {
			for _, o := range m.Objects(k) {
				fmt.Fprintf(&b, "  %v %d: CPUs %v\n", k, o.Index, o.CPUs)
			}
		}
	}
	return b.String()
}
