package place

import (
	"fmt"
	"slices"

	"github.com/gorun-mpi/gorun/internal/topo"
)

// bind gives CPUs to the processes, and returns what it has decided to bind to.
func (d *dealer) bind() (Bind, error) {
	b := d.decide()
	implied := (d.p.Bind.To == BindDefault || d.p.Bind.To == DefaultOpenMPI) && d.p.Map.PE == 0 && d.p.Map.By != Ranks && d.p.Map.By != Listed
	if b.To == BindNone && d.p.Map.PE == 0 && d.p.Map.By != Ranks {
		return d.unbound()
	}
	for i := range d.hosts {
		if err := d.bindHost(i, b); err != nil {
			if implied {
				// Nobody has asked for it, and there are not CPUs enough.
				for k := range d.procs {
					d.procs[k].cpus = nil
				}
				return d.unbound()
			}
			return b, err
		}
	}
	return b, nil
}

// unbound leaves ranks all CPUs, of those that the user has named.
func (d *dealer) unbound() (Bind, error) {
	if d.p.CPUs == nil {
		return Bind{To: BindNone}, nil
	}
	b := Bind{To: BindObject, Kind: topo.Whole, Overload: true}
	for i := range d.hosts {
		if err := d.bindHost(i, b); err != nil {
			return b, err
		}
	}
	return b, nil
}

// decide is what to bind to where nothing was said.
func (d *dealer) decide() Bind {
	b, m := d.p.Bind, d.p.Map
	if b.To != BindDefault && b.To != DefaultOpenMPI {
		return b
	}
	switch {
	case m.By == Listed:
		return Bind{To: BindLists}
	case m.PE > 0:
		return Bind{To: BindObject, Kind: topo.Core}
	case m.By == Objects, m.By == PPR && m.Kind != topo.Whole:
		return Bind{To: BindObject, Kind: m.Kind, Overload: b.Overload || m.Over == Yes}
	case b.To == DefaultOpenMPI && m.By != Ranks && d.whole():
		kind := topo.Core
		if len(d.procs) > 2 {
			kind = topo.NUMA
			for _, h := range d.hosts {
				if h.used > 0 && len(h.Machine.Objects(kind)) == 0 {
					kind = topo.Package
				}
			}
		}
		return Bind{To: BindObject, Kind: kind}
	}
	return Bind{To: BindNone}
}

// whole tells whether the hosts may be used wholly, and have a CPU for each rank.
func (d *dealer) whole() bool {
	return !slices.ContainsFunc(d.hosts, func(b *bin) bool {
		return b.used > 0 && (b.Machine == nil || b.Machine.Restricted() || b.used > b.Machine.Usable() || b.used > b.Slots)
	})
}

// taken counts the ranks of an object.
type taken struct {
	cpus topo.Set
	used int
}

// bindHost binds the processes of a host.
func (d *dealer) bindHost(host int, b Bind) error {
	h := d.hosts[host]
	var mine []*proc
	for i := range d.procs {
		if d.procs[i].host == host {
			mine = append(mine, &d.procs[i])
		}
	}
	if len(mine) == 0 {
		return nil
	}
	switch {
	case d.p.Map.By == Ranks:
		return d.bindLines(h, mine)
	case b.To == BindLists:
		return d.bindLists(h, b, mine)
	}
	all := d.p.cpus(h.Machine)
	if all.Len() == 0 {
		return fmt.Errorf("host %s: none of the CPUs asked for may be used; those are %s", h.Name, h.Machine.Allowed)
	}
	if d.p.Map.PE > 0 && b.To == BindNone {
		return nil
	}
	kind, n := d.p.unit(b)
	var units []taken
	for _, s := range objectsIn(h.Machine, kind, all) {
		units = append(units, taken{cpus: s})
	}
	if len(units) == 0 {
		if b.IfSupported {
			return nil
		}
		return fmt.Errorf("host %s shows no %s; it has %s", h.Name, kind, shows(h.Machine))
	}
	for _, p := range mine {
		base := all
		if p.object >= 0 && h.objects[p.object].cpus != nil {
			base = h.objects[p.object].cpus
		}
		p.cpus = take(units, base, n)
	}
	if b.Overload {
		return nil
	}
	for _, u := range units {
		if u.used > u.cpus.Len() {
			return fmt.Errorf("host %s: %d ranks would be bound to a %s of %s (%s); start fewer, or write --bind-to %s:overload-allowed or --bind-to none",
				h.Name, u.used, kind, plural(u.cpus.Len(), "CPU"), u.cpus, kind)
		}
	}
	return nil
}

func plural(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %ss", n, word)
}

// take is the CPUs of the n objects with the fewest ranks that lie in base, or
// of the one that holds base.
func take(units []taken, base topo.Set, n int) topo.Set {
	var in []*taken
	for i := range units {
		if units[i].cpus.And(base).Len() > 0 {
			in = append(in, &units[i])
		}
	}
	// Stable: of equals the first, so that neighbours stay together.
	slices.SortStableFunc(in, func(a, b *taken) int { return a.used - b.used })
	var cpus topo.Set
	for _, u := range in[:min(n, len(in))] {
		u.used++
		cpus = cpus.Or(u.cpus)
	}
	return cpus
}

// unit is the kind of objects that ranks are bound to, and to how many each is.
func (p Policy) unit(b Bind) (topo.Kind, int) {
	switch {
	case p.Map.PE == 0:
		return b.Kind, max(1, b.Count)
	case p.Map.Threads || b.Kind == topo.Thread && b.To == BindObject:
		return topo.Thread, p.Map.PE
	}
	return topo.Core, p.Map.PE
}

// bindLists gives the ranks of a host the CPUs of the user's list in turn.
func (d *dealer) bindLists(h *bin, b Bind, mine []*proc) error {
	lists := b.Lists
	if b.To == BindLists && b.Lists == nil {
		for _, c := range d.p.cpus(h.Machine).List() {
			lists = append(lists, topo.SetOf(c))
		}
	}
	if d.p.Map.By == Listed {
		lists = []topo.Set{d.p.Map.CPUs}
		if d.p.Map.Ordered {
			lists = nil
			for _, c := range d.p.Map.CPUs.List() {
				lists = append(lists, topo.SetOf(c))
			}
		}
	}
	for i, p := range mine {
		s := lists[i%len(lists)]
		if may := d.p.cpus(h.Machine); !may.Contains(s) {
			return fmt.Errorf("host %s: CPUs %s may not be used; those that may are %s", h.Name, s, may)
		}
		p.cpus = s
	}
	return nil
}

// bindLines binds ranks as a rankfile says.
func (d *dealer) bindLines(h *bin, mine []*proc) error {
	for _, p := range mine {
		if p.line.Slots == "" || d.p.Bind.To == BindNone {
			continue
		}
		s, err := slots(h.Machine, p.line.Slots, d.p.Map.Threads)
		if err != nil {
			return fmt.Errorf("rankfile, rank %d on %s: %w", p.line.Rank, h.Name, err)
		}
		usable := s.And(d.p.cpus(h.Machine))
		if usable.Len() == 0 {
			return fmt.Errorf("rankfile, rank %d on %s: CPUs %s may not be used; those that may are %s", p.line.Rank, h.Name, s, d.p.cpus(h.Machine))
		}
		p.cpus = usable
	}
	return nil
}
