package host

import (
	"github.com/gorun-mpi/gorun/internal/pmix/link"
	"github.com/gorun-mpi/gorun/pmi"
)

// Ask is what a rank wants of its job, beyond what its host can give: one of the
// pointers.
type Ask struct {
	// Tag comes back with the answer. 0 is the PMI-1 server's; another server
	// of the host counts from 1.
	Tag   uint64         `msgpack:"t,omitempty"`
	Name  *pmi.NameQuery `msgpack:"n,omitempty"`
	Spawn *Spawn         `msgpack:"s,omitempty"`
}

// Spawn is a group of processes that a rank wants.
type Spawn struct {
	Apps   []link.App        // the environment is in addition to that of the rank that asks
	Preset map[string]string // keys of its key-value space
}

// Reply answers an Ask, with the same pointer.
type Reply struct {
	Tag   uint64          `msgpack:"t,omitempty"`
	Name  *pmi.NameAnswer `msgpack:"n,omitempty"`
	Spawn *Spawned        `msgpack:"s,omitempty"`
}

// Spawned is what came of a Spawn.
type Spawned struct {
	Err   string // why nothing was started; empty: it was
	Codes []int  // by process, 0 for one that runs; nil: all do
	Job   string // its name, Spec.Job of its hosts
}

// ask passes on what a rank wants of the PMI-1 server and of which the server
// knows nothing itself.
func (s *server) ask(e pmi.Event) {
	switch e := e.(type) {
	case pmi.Name:
		if e.Query.Op == pmi.Lookup && e.Query.Service == pmi.DaemonService {
			engine := s.engine(s.spec.local(e.Rank))
			s.apply(engine, engine.NameDone(e.Rank, s.daemon.ask()))
			return
		}
		s.emit(Event{Kind: Asked, Rank: e.Rank, Ask: &Ask{Name: &e.Query}})
	case pmi.Spawn:
		spawn := &Spawn{Apps: make([]link.App, len(e.Apps)), Preset: e.Preset}
		for i, a := range e.Apps {
			spawn.Apps[i] = link.App{Argv: append([]string{a.Program}, a.Args...), NP: a.N, Info: a.Info}
		}
		s.emit(Event{Kind: Asked, Rank: e.Rank, Ask: &Ask{Spawn: spawn}})
	}
}

// answered takes the answer for a rank that may have gone meanwhile.
func (s *server) answered(rank int, r *Reply) {
	switch {
	case s.ranks == nil || s.spec.local(rank) < 0 || s.ranks[s.spec.local(rank)].gone:
	case r.Name != nil:
		e := s.engine(s.spec.local(rank))
		s.apply(e, e.NameDone(rank, *r.Name))
	case r.Spawn != nil:
		e := s.engine(s.spec.local(rank))
		s.apply(e, e.SpawnDone(rank, pmi.SpawnAnswer{Err: r.Spawn.Err, Codes: r.Spawn.Codes, Job: spaceName(r.Spawn.Job)}))
	}
}
