package launcher

import (
	"slices"

	"github.com/gorun-mpi/gorun/launcher/internal/host"
	"github.com/gorun-mpi/gorun/pmi"
)

// How many events of a rank's calls travel: of all ranks, of one, and of each at least.
const profileAll, profileMost, profileLeast = 200_000, 8192, 256

// spec is what all hosts of a group have in common.
func (c *controller) spec(g *group) host.Spec {
	apps := make([]host.AppSpec, len(g.apps))
	for i, a := range g.apps {
		apps[i] = host.AppSpec{Argv: a.Argv, Env: a.Env, Dir: a.Dir, Path: a.Path, NP: a.NP}
	}
	out := &c.job.Output
	mapping := pmi.Mapping(g.hostOf)
	if len(mapping) > pmi.ValLenMax {
		mapping = "" // no rank can be told it, and each host would be sent it
	}
	spec := host.Spec{
		Job:     c.worlds.nameOf(g),
		Group:   g.id,
		Hosts:   len(g.shares),
		Flat:    !c.job.oneHost() && len(c.worlds.groups[0].shares) == 1, // of all groups, as ranks of two that merge must agree
		NP:      g.size(),
		Apps:    apps,
		Mapping: mapping,
		Hosting: c.job.Hosting,
		Secure:  c.job.Network.Secure,
		Attempt: c.worlds.attempt,

		Continuous: c.job.Continuous,
		Hang:       c.job.HangTimeout,
		// An abort would end the ranks that go on.
		PythonAbort: !c.job.NoPythonAbort && !c.job.Continuous,
		Grace:       c.job.grace(),

		Master: host.MasterSpec{Address: "127.0.0.1", Port: g.masterPort(c.job.run.ports), Host: g.hostOf[0]}, // unless the hosts are apart
		Ports:  c.job.run.ports,

		PMIx: c.requests.space(g),

		Universe: c.worlds.universeTold(),
		Preset:   g.preset,
		Spawner:  g.spawner,

		Reader:   c.job.StdinRank,
		Output:   host.OutputSpec{Merge: out.Merge, Stamp: c.outlet.style().Stamped() || c.job.Lines != nil, Prompt: out.Prompt, Alone: out.PromptAlone, Raw: out.Raw},
		Terminal: out.terminal(),
		Sample:   c.job.Sample,
	}
	if c.job.Profile {
		spec.Profile = max(profileLeast, min(profileMost, profileAll/g.size()))
	}
	return spec
}

// specOf is the spec of one share.
func (g *group) specOf(spec host.Spec, at int, local func(setting string) bool) host.Spec {
	s := g.shares[at]
	spec.Host, spec.Index = s.Host, at
	if spec.PMIx != nil {
		space := *spec.PMIx
		space.Node = at
		spec.PMIx = &space
	}
	spec.Ranks = make([]host.RankSpec, len(s.Ranks))
	runs := make([]bool, len(spec.Apps))
	for i, rank := range s.Ranks {
		app := g.appOf[rank]
		spec.Ranks[i] = host.RankSpec{Rank: rank, App: app}
		if s.CPUs != nil {
			spec.Ranks[i].CPUs = s.CPUs[i].List()
		}
		runs[app] = true
	}
	// What no rank of the host runs need not travel there.
	spec.Apps = slices.Clone(spec.Apps)
	for i := range spec.Apps {
		if !runs[i] {
			spec.Apps[i] = host.AppSpec{NP: spec.Apps[i].NP}
		} else if local != nil {
			spec.Apps[i].Env = slices.DeleteFunc(slices.Clone(spec.Apps[i].Env), local)
		}
	}
	return spec
}
