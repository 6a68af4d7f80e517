package launcher

import (
	"errors"
	"fmt"
	"runtime"
	"sync"

	"github.com/gorun-mpi/gorun/launcher/internal/host"
)

// spawns are the groups that running ranks ask for. Guarded by the controller's mu;
// each group has a goroutine, which ends with it.
type spawns struct {
	mu     *sync.Mutex // the controller's
	worlds *worlds
	end    *ending
	watch  *watcher
	start  func(*group) (wait func(), err error) // wait returns when nothing is left of the group

	running sync.WaitGroup
}

// asked is a rank that waits for the group that it spawned.
type asked struct {
	seat  *seat
	rank  int
	tag   uint64
	codes []int // by process that was asked for, 0 for one that runs; nil: all do
}

// spawn makes a group of what a rank asks for. The rank is answered when all
// ranks of the group run, or when one could not be started: then none is left
// and the job goes on, since the program may know what to do without them.
func (p *spawns) spawn(s *seat, rank int, a *host.Ask) {
	by := &asked{seat: s, rank: rank, tag: a.Tag}
	apps, shares, err := p.worlds.plan(s, rank, by, a.Spawn)
	switch {
	case p.end.told:
		err = errEnding
	case err == nil && len(p.worlds.groups) > groupsMax:
		err = fmt.Errorf("the job has spawned %d times, which is the limit", groupsMax)
	}
	if err != nil {
		p.refuse(by, err.Error())
		return
	}
	g := newGroup(len(p.worlds.groups), apps, shares)
	g.asked, g.preset, g.spawner = by, a.Spawn.Preset, p.worlds.nameOf(s.group)
	release := func() {}
	if h, here := p.worlds.groups[0].seats[0].site.(*host.Host); here {
		g.elder, release = h, h.Hold()
	}
	p.worlds.groups = append(p.worlds.groups, g)
	p.worlds.job.Log.Info("a rank spawns", "by", rank, "of", s.group.id, "group", g.id, "ranks", g.size(), "program", apps[0].Argv[0])
	p.running.Go(func() {
		defer release()
		p.run(g)
	})
}

// groupsMax bounds how often a job can spawn: the controller remembers how all
// ranks ended.
const groupsMax = 1 << 16

var errEnding = errors.New("the job ends")

// refuse tells a rank that nothing was started.
func (p *spawns) refuse(by *asked, why string) {
	p.worlds.job.Log.Warn("spawn is refused", "by", by.rank, "of", by.seat.group.id, "error", why)
	if !p.end.told {
		// MPI's own word for it is a number.
		p.watch.putWarning(fmt.Sprintf("rank %d (host %s) asked for more ranks, and none was started: %s", by.rank, by.seat.host(), why))
	}
	by.seat.answer(by.rank, host.Reply{Tag: by.tag, Spawn: &host.Spawned{Err: why}})
}

// isUp answers the rank that spawned the group, whose ranks all run.
func (p *spawns) isUp(g *group) {
	by := g.asked
	if by == nil || g.up < g.size() {
		return
	}
	g.asked = nil
	by.seat.answer(by.rank, host.Reply{Tag: by.tag, Spawn: &host.Spawned{Codes: by.codes, Job: p.worlds.nameOf(g)}})
}

// isNot gives up a group that is not up yet; false when it is.
func (p *spawns) isNot(g *group, why string) bool {
	by := g.asked
	if by == nil {
		return false
	}
	g.asked, g.off = nil, true
	for _, s := range g.seats {
		s.Send(host.Command{Kind: host.Kill})
	}
	p.refuse(by, why)
	return true
}

// run runs a group from its start to its end, without mu.
func (p *spawns) run(g *group) {
	// Agents live as long as the thread that started them.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	p.mu.Lock()
	defer p.mu.Unlock()
	wait, err := func() {}, errEnding
	if !p.end.told {
		wait, err = p.start(g)
	}
	if err != nil {
		p.isNot(g, err.Error())
		return
	}
	p.mu.Unlock()
	wait()
	p.mu.Lock()
	p.isNot(g, errEnding.Error()) // where ranks were told to end before all were there
}
