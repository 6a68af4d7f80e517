package launcher

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gorun-mpi/gorun/internal/topo"
	"github.com/gorun-mpi/gorun/launcher/internal/host"
	"github.com/gorun-mpi/gorun/launcher/internal/place"
)

// plan says what is to run where. The processes of a spawn inherit from the
// program of the rank that asks.
func (w *worlds) plan(s *seat, rank int, by *asked, spawn *host.Spawn) ([]App, []place.Share, error) {
	parent := s.group.apps[s.group.appOf[rank]]
	var apps []App
	var codes []int
	var hosts []string // by rank
	missing := false
	free := w.free()
	for _, a := range spawn.Apps {
		if len(a.Argv) == 0 || a.Argv[0] == "" {
			return nil, nil, fmt.Errorf("spawn without a program")
		}
		if a.NP < 1 || len(hosts)+a.NP > spawnMax {
			return nil, nil, fmt.Errorf("spawn of %d processes of %s, want 1 to %d in all", a.NP, a.Argv[0], spawnMax)
		}
		info, err := readInfo(a.Info, a.NP)
		if err != nil {
			return nil, nil, fmt.Errorf("spawn of %s: %w", a.Argv[0], err)
		}
		app := App{Argv: a.Argv, NP: info.n, Env: slices.Concat(parent.Env, a.Env, info.env), Dir: parent.Dir, Path: parent.Path}
		if info.path != "" {
			app.Path = info.path
		}
		if info.dir != "" {
			app.Dir = info.dir
			if !filepath.IsAbs(info.dir) {
				app.Dir = filepath.Join(parent.Dir, info.dir)
			}
		}
		on, err := free.take(info)
		if err != nil {
			return nil, nil, fmt.Errorf("spawn of %s: %w", a.Argv[0], err)
		}
		hosts = append(hosts, on...)
		for i := range a.NP {
			code := 0
			if i >= info.n {
				code, missing = 1, true
			}
			codes = append(codes, code)
		}
		apps = append(apps, app)
	}
	if len(apps) == 0 {
		return nil, nil, fmt.Errorf("spawn without a program")
	}
	if missing {
		by.codes = codes
	}
	var shares []place.Share
	for rank, name := range hosts {
		at := slices.IndexFunc(shares, func(s place.Share) bool { return s.Host == name })
		if at < 0 {
			at, shares = len(shares), append(shares, place.Share{Host: name})
		}
		shares[at].Ranks = append(shares[at].Ranks, rank)
	}
	for i := range shares {
		shares[i].CPUs = w.spawnedCPUs(&shares[i])
	}
	return apps, shares, nil
}

// spawnedCPUs binds the ranks that come to a host as those that live there are.
func (w *worlds) spawnedCPUs(share *place.Share) []topo.Set {
	at := slices.IndexFunc(w.placed.Hosts, func(h place.Host) bool { return h.Name == share.Host })
	if at < 0 {
		return nil
	}
	var live []topo.Set
	for _, g := range w.groups {
		for _, s := range g.shares {
			if s.Host != share.Host || s.CPUs == nil {
				continue
			}
			for i, rank := range s.Ranks {
				if !g.gone[rank] {
					live = append(live, s.CPUs[i])
				}
			}
		}
	}
	return place.BindMore(w.placed.Hosts[at].Machine, w.policy, w.placed.Bind, live, len(share.Ranks))
}

// spawnMax bounds the processes of one spawn.
const spawnMax = 1 << 16

// room is what hosts of a job have left, in the order of the job.
type room struct {
	names []string
	slots []int // that no rank has; below 0 where there are more ranks than slots
	alias func(name string) string
}

// free looks at what the ranks that live leave of the job's hosts. Without
// agents all is one host, under whatever name.
func (w *worlds) free() *room {
	r := &room{alias: w.job.hostName}
	if w.job.oneHost() {
		own := w.groups[0].shares[0].Host
		r.names, r.slots = []string{own}, []int{w.universe()}
		r.alias = func(name string) string {
			if w.job.here().Is(name) || slices.ContainsFunc(w.job.Hosts, func(h Host) bool { return h.Name == name }) {
				return own
			}
			return name
		}
	} else {
		for _, h := range w.job.Hosts {
			name := w.job.hostName(h.Name)
			at := slices.Index(r.names, name)
			if at < 0 {
				at, r.names, r.slots = len(r.names), append(r.names, name), append(r.slots, 0)
			}
			r.slots[at] += max(1, h.Slots)
		}
		if len(r.names) == 0 {
			r.names, r.slots = []string{w.groups[0].shares[0].Host}, []int{w.universe()}
		}
	}
	for _, g := range w.groups {
		for rank, at := range g.hostOf {
			if name := g.shares[at].Host; !g.gone[rank] {
				if i := slices.Index(r.names, name); i >= 0 {
					r.slots[i]--
				}
			}
		}
	}
	return r
}

// take places the ranks of a program on the hosts that it names, on all if it names
// none: on free slots in the hosts' order while there are some, then one on each
// host in turn; or so many on each as it asks for.
func (r *room) take(in info) (on []string, err error) {
	n, names := in.n, in.hosts
	var at []int
	for _, name := range names {
		i := slices.Index(r.names, r.alias(name))
		if i < 0 {
			return nil, fmt.Errorf("host %s: it is not among the job's hosts (%s)", name, strings.Join(r.names, ", "))
		}
		if !slices.Contains(at, i) {
			at = append(at, i)
		}
	}
	if names == nil {
		for i := range r.names {
			at = append(at, i)
		}
	}
	put := func(i int) {
		r.slots[i]--
		on = append(on, r.names[i])
	}
	if in.each > 0 {
		if in.only && n > in.each*len(at) {
			return nil, fmt.Errorf("found %d processes, expected at most %d for each of %d hosts", n, in.each, len(at))
		}
		for k := 0; len(on) < n; k++ {
			for range min(in.each, n-len(on)) {
				put(at[k%len(at)])
			}
		}
		return on, nil
	}
	for _, i := range at {
		for r.slots[i] > 0 && len(on) < n {
			put(i)
		}
	}
	for k := 0; len(on) < n; k++ {
		put(at[k%len(at)])
	}
	return on, nil
}
