package place

import "github.com/gorun-mpi/gorun/internal/topo"

// BindMore gives the CPUs of n processes that join the ranks of a job on a host, as
// spawned ones do: bound to the same kind of object, b as it was decided for the
// job, where the fewest of those that live are. live are the CPUs that these are
// bound to. nil: they are not bound, as where rankfiles or lists of CPUs said
// where ranks go, where the machine is not known, and where there are not CPUs
// enough.
func BindMore(m *topo.Machine, p Policy, b Bind, live []topo.Set, n int) []topo.Set {
	if m == nil || b.To != BindObject || p.Map.By == Ranks {
		return nil
	}
	all := p.cpus(m)
	kind, each := p.unit(b)
	var units []taken
	for _, s := range objectsIn(m, kind, all) {
		u := taken{cpus: s}
		for _, l := range live {
			if l.And(s).Len() > 0 {
				u.used++
			}
		}
		units = append(units, u)
	}
	if len(units) == 0 {
		return nil
	}
	cpus := make([]topo.Set, n)
	for i := range cpus {
		cpus[i] = take(units, all, each)
	}
	for _, u := range units {
		if u.used > u.cpus.Len() && !b.Overload {
			return nil
		}
	}
	return cpus
}
