package doctor

import (
	"context"
	"path"
	"strconv"
	"strings"

	"github.com/gorun-mpi/gorun/internal/topo"
)

// bound is the limit that binds first.
type bound struct {
	file      string // that says it
	max, used uint64
}

// least is the tightest limit of this process's control groups: the one with
// the least room. The second version and the first call the files differently.
func (v *View) least(controller, max2, used2, max1, used1 string) (tightest bound, limited bool) {
	for _, g := range topo.Groups(v.Root, controller) {
		maxName, usedName := max2, used2
		if !g.Unified {
			maxName, usedName = max1, used1
		}
		for dir := range g.Up {
			limit, ok := v.number(g.Mount, dir, maxName)
			// The first version's "no limit" is a page short of 2^63.
			if ok && limit < 1<<62 {
				used, _ := v.number(g.Mount, dir, usedName)
				b := bound{"/" + path.Join(g.Mount, dir, maxName), limit, used}
				if !limited || b.room() < tightest.room() {
					tightest, limited = b, true
				}
			}
		}
	}
	return tightest, limited
}

func (b bound) room() uint64 { return b.max - min(b.max, b.used) }

func groupCPU(_ context.Context, v *View) Finding {
	m := topo.Read(v.Root)
	found := "no quota"
	if m.Quota > 0 {
		found = "a quota of " + strconv.FormatFloat(m.Quota, 'g', 4, 64) + " CPUs"
	}
	if m.Allowed.Len() < len(m.CPUs) {
		found += "; CPUs " + m.Allowed.String() + " of " + count(len(m.CPUs), "CPU")
	}
	if m.Quota > 0 && float64(v.Ranks) > m.Quota {
		return note("give the container more (docker run --cpus="+strconv.Itoa(v.Ranks)+"), or start fewer ranks", "%s, for %s", found, count(v.Ranks, "rank"))
	}
	return ok("%s", found)
}

// What a rank takes of memory: a Go program some 10 MiB when it has started, an
// MPI with its buffers several times that.
const (
	memoryLeast = 10 << 20
	memoryUsual = 48 << 20
)

func groupMemory(_ context.Context, v *View) Finding {
	b, limited := v.least("memory", "memory.max", "memory.current", "memory.limit_in_bytes", "memory.usage_in_bytes")
	if !limited {
		return ok("no limit")
	}
	ranks := uint64(v.Ranks)
	fix := "echo " + strconv.FormatUint(b.used+ranks*memoryUsual*2, 10) + " >" + shellWord(b.file) + " (docker run --memory=...)"
	switch {
	case b.room() < ranks*memoryLeast:
		return problem(fix, "%s left of %s (%s), too little for %s", size(b.room()), size(b.max), b.file, count(v.Ranks, "rank"))
	case b.room() < ranks*memoryUsual:
		return note(fix, "%s left of %s (%s), little for %s", size(b.room()), size(b.max), b.file, count(v.Ranks, "rank"))
	}
	if n := v.killed(); n > 0 {
		return note(fix, "%s left of %s (%s); the kernel has killed %s in it for lack of memory", size(b.room()), size(b.max), b.file, count(n, "process"))
	}
	return ok("%s left of %s", size(b.room()), size(b.max))
}

// killed is how many processes of this one's group have been killed for want of
// memory.
func (v *View) killed() (n uint64) {
	for _, g := range topo.Groups(v.Root, "memory") {
		file := "memory.events"
		if !g.Unified {
			file = "memory.oom_control"
		}
		for line := range strings.Lines(v.text(g.Mount, g.Path, file)) {
			if text, found := strings.CutPrefix(line, "oom_kill "); found {
				kills, err := strconv.ParseUint(strings.TrimSpace(text), 10, 64)
				if err == nil {
					n += kills
				}
			}
		}
	}
	return n
}

func groupPIDs(_ context.Context, v *View) Finding {
	b, limited := v.least("pids", "pids.max", "pids.current", "pids.max", "pids.current")
	if !limited {
		return ok("no limit")
	}
	ranks := uint64(v.Ranks)
	fix := "echo " + strconv.FormatUint(b.used+max(4096, 2*ranks*threadsEach), 10) + " >" + shellWord(b.file) + " (docker run --pids-limit=...; systemd: TasksMax=)"
	switch {
	case b.room() < ranks*2:
		return problem(fix, "%d threads left of %d (%s), too few for %s", b.room(), b.max, b.file, count(v.Ranks, "rank"))
	case b.room() < ranks*threadsEach+threadsBase:
		return note(fix, "%d threads left of %d (%s); %s may need %d", b.room(), b.max, b.file, count(v.Ranks, "rank"), ranks*threadsEach+threadsBase)
	}
	return ok("%d threads left of %d", b.room(), b.max)
}

func groupOwn(_ context.Context, v *View) Finding {
	const fix = "systemd-run --user --scope -p Delegate=yes gorun ..."
	version, pure := "version 1", false
	if text := v.text("sys/fs/cgroup/cgroup.controllers"); text != "" {
		version, pure = "version 2", true
	} else if topo.UnifiedMount(v.Root) != "sys/fs/cgroup" {
		version = "versions 1 and 2"
	}
	for _, g := range topo.Groups(v.Root, "pids") {
		if !g.Unified && pure {
			continue
		}
		dir := path.Join("/", g.Mount, g.Path)
		if _, err := v.stat(dir); err != nil {
			dir = "/" + g.Mount // a container sees its own group as the root
		}
		if _, err := v.stat(dir); err != nil {
			continue
		}
		if err := v.TryGroup(dir); err != nil {
			return note(fix, "%s; no group can be made: %v (gorun needs none: it finds a job's processes by its guardian)", version, err)
		}
		return ok("%s; groups can be made in %s", version, dir)
	}
	return ok("no control groups are visible (gorun needs none)")
}
