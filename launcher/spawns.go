package launcher

import (
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/gorun-mpi/gorun/internal/topo"
	"github.com/gorun-mpi/gorun/launcher/internal/host"
	"github.com/gorun-mpi/gorun/launcher/internal/place"
)

// asked is a rank that waits for the group that it spawned.
type asked struct {
	seat  *seat
	rank  int
	tag   uint64
	codes []int // by process that was asked for, 0 for one that runs; nil: all do
}

// toldUniverse is what programs are told of the job's room; 0: nothing.
func (c *controller) toldUniverse() int {
	switch n := c.job.Universe; n {
	case 0:
		return c.universe()
	case UniverseCPUs:
		return c.cpus()
	default:
		return max(0, n)
	}
}

// universe is how many ranks the job has room for.
func (c *controller) universe() int {
	room := 0
	for _, h := range c.job.Hosts {
		room += max(1, h.Slots)
	}
	if room == 0 {
		room = c.cpus()
	}
	return max(room, c.groups[0].size())
}

// answer is for a rank that asked for something.
func (s *seat) answer(rank int, r host.Reply) {
	s.Send(host.Command{Kind: host.Answer, Rank: rank, Reply: &r})
}

// ask serves a rank what its host cannot.
func (c *controller) ask(s *seat, rank int, a *host.Ask) {
	switch {
	case a == nil || !s.has(rank):
		c.fail(&Cause{Rank: -1, Host: s.host(), Status: statusFailed, Message: fmt.Sprintf("its agent asks for rank %d and does not say for what", rank)})
	case a.Name != nil:
		answer, letters := c.hub.Name(*a.Name)
		c.post(letters)
		s.answer(rank, host.Reply{Tag: a.Tag, Name: &answer})
	case a.Spawn != nil:
		c.spawn(s, rank, a)
	}
}

// spawn makes a group of what a rank asks for. The rank is answered when all
// ranks of the group run, or when one could not be started: then none is left
// and the job goes on, since the program may know what to do without them.
func (c *controller) spawn(s *seat, rank int, a *host.Ask) {
	by := &asked{seat: s, rank: rank, tag: a.Tag}
	apps, places, err := c.plan(s, rank, by, a.Spawn)
	switch {
	case c.told:
		err = fmt.Errorf("the job ends")
	case err == nil && len(c.groups) > groupsMax:
		err = fmt.Errorf("the job has spawned %d times, which is the limit", groupsMax)
	}
	if err != nil {
		c.refuse(by, err.Error())
		return
	}
	g := newGroup(len(c.groups), apps, places)
	g.asked, g.preset, g.spawner = by, a.Spawn.Preset, c.nameOf(s.group)
	c.groups = append(c.groups, g)
	c.job.Log.Info("a rank spawns", "by", rank, "of", s.group.id, "group", g.id, "ranks", g.size(), "program", apps[0].Argv[0])
	c.spawned.Go(func() { c.runSpawned(g) })
}

// groupsMax bounds how often a job can spawn: the controller remembers how all
// ranks ended.
const groupsMax = 1 << 16

// refuse tells a rank that nothing was started.
func (c *controller) refuse(by *asked, why string) {
	c.job.Log.Warn("spawn is refused", "by", by.rank, "of", by.seat.group.id, "error", why)
	if !c.told {
		// MPI's own word for it is a number.
		c.warn(fmt.Sprintf("rank %d (host %s) asked for more ranks, and none was started: %s", by.rank, by.seat.host(), why))
	}
	by.seat.answer(by.rank, host.Reply{Tag: by.tag, Spawn: &host.Spawned{Err: why}})
}

// isUp answers the rank that spawned the group, whose ranks all run.
func (c *controller) isUp(g *group) {
	by := g.asked
	if by == nil || g.up < g.size() {
		return
	}
	g.asked = nil
	by.seat.answer(by.rank, host.Reply{Tag: by.tag, Spawn: &host.Spawned{Codes: by.codes, Group: g.id, Job: c.nameOf(g), N: g.size()}})
}

// isNot gives up a group that is not up yet; false when it is.
func (c *controller) isNot(g *group, why string) bool {
	by := g.asked
	if by == nil {
		return false
	}
	g.asked, g.off = nil, true
	for _, s := range g.seats {
		s.Send(host.Command{Kind: host.Kill})
	}
	c.refuse(by, why)
	return true
}

// nameOf is the random name of a group.
func (c *controller) nameOf(g *group) string {
	if g.id == 0 {
		return c.name
	}
	return c.name + "_" + strconv.Itoa(g.id)
}

// runSpawned runs a group from its start to its end.
func (c *controller) runSpawned(g *group) {
	// Agents live as long as the thread that started them.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	wait, err := c.startSpawned(g)
	if err == nil {
		wait()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.isNot(g, err.Error())
	}
	// Ranks that were told to end before all were there.
	c.isNot(g, "the job ends")
}

// startSpawned makes the sites of a group, unless the job is ending; wait
// returns when nothing is left of it.
func (c *controller) startSpawned(g *group) (wait func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.told {
		return nil, fmt.Errorf("the job ends")
	}
	if err := c.openOutput(g); err != nil {
		return nil, err
	}
	if c.job.Launcher == "" {
		h, err := c.sitHere(g, c.of(g, c.spec(g), 0), nil)
		if err != nil {
			return nil, err
		}
		return h.Run, nil
	}
	r := newRemotes(c, g)
	if err := r.start(c.spec(g), host.StdinNone); err != nil {
		return nil, err
	}
	return r.wait, nil
}

// plan says what is to run where. The processes of a spawn inherit from the
// program of the rank that asks.
func (c *controller) plan(s *seat, rank int, by *asked, spawn *host.Spawn) ([]App, []place.Share, error) {
	parent := s.group.apps[s.group.appOf[rank]]
	var apps []App
	var codes []int
	var hosts []string // by rank
	missing := false
	free := c.free()
	for _, a := range spawn.Apps {
		if len(a.Argv) == 0 || a.Argv[0] == "" {
			return nil, nil, fmt.Errorf("spawn of no program")
		}
		if a.N < 1 || len(hosts)+a.N > spawnMax {
			return nil, nil, fmt.Errorf("spawn of %d processes of %s, want 1 to %d in all", a.N, a.Argv[0], spawnMax)
		}
		info, err := readInfo(a.Info, a.N)
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
		for i := range a.N {
			code := 0
			if i >= info.n {
				code, missing = 1, true
			}
			codes = append(codes, code)
		}
		apps = append(apps, app)
	}
	if len(apps) == 0 {
		return nil, nil, fmt.Errorf("spawn of no program")
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
		shares[i].CPUs = c.spawnedCPUs(&shares[i])
	}
	return apps, shares, nil
}

// spawnedCPUs binds the ranks that come to a host as those that live there are.
func (c *controller) spawnedCPUs(share *place.Share) []topo.Set {
	at := slices.IndexFunc(c.placed.Hosts, func(h place.Host) bool { return h.Name == share.Host })
	if at < 0 {
		return nil
	}
	var live []topo.Set
	for _, g := range c.groups {
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
	return place.More(c.placed.Hosts[at].Machine, c.policy, c.placed.Bind, live, len(share.Ranks))
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
func (c *controller) free() *room {
	r := &room{alias: func(name string) string { return name }}
	if c.job.Launcher == "" {
		own := c.groups[0].shares[0].Host
		r.names, r.slots = []string{own}, []int{c.universe()}
		known := []string{"localhost", "127.0.0.1", "::1"}
		for _, h := range c.job.Hosts {
			known = append(known, h.Name)
		}
		r.alias = func(name string) string {
			if slices.Contains(known, name) {
				return own
			}
			return name
		}
	} else {
		for _, h := range c.job.Hosts {
			at := slices.Index(r.names, h.Name)
			if at < 0 {
				at, r.names, r.slots = len(r.names), append(r.names, h.Name), append(r.slots, 0)
			}
			r.slots[at] += max(1, h.Slots)
		}
		if len(r.names) == 0 {
			r.names, r.slots = []string{c.groups[0].shares[0].Host}, []int{c.universe()}
		}
	}
	for _, g := range c.groups {
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
			return nil, fmt.Errorf("%d processes, %d for each of %d hosts", n, in.each, len(at))
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
