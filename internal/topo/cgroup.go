package topo

import (
	"io/fs"
	"path"
	"runtime"
	"strconv"
	"strings"
)

// CPUs is how many CPUs this process can keep busy at once: those of its
// affinity when it started, or fewer under a quota of its control groups. A
// quota of 1.5 CPUs counts as 1: two busy threads would be throttled.
func CPUs() int {
	n := runtime.NumCPU()
	if q, _ := quota(kernel{}); q > 0 && q < float64(n) {
		n = max(1, int(q))
	}
	return n
}

// Allowed are the CPUs that this thread may run on; empty where that is not known.
func Allowed() Set { return affinity(kernel{}) }

// Limit names the control group whose quota bounds what this process can use more than its number
// of CPUs does; "": none. Processes with the same name of it, the same kernel and the same namespace
// of control groups share that quota.
func Limit() string { return limit(kernel{}, runtime.NumCPU()) }

func limit(root fs.FS, cpus int) string {
	q, at := quota(root)
	if q == 0 || q >= float64(cpus) {
		return ""
	}
	return at
}

// OOMKills is how many processes the kernel has killed for want of memory in
// this process's control group, as far as that is known.
func OOMKills() int { return oomKills(kernel{}) }

// A Group is a control group of this process, as a directory below the root of a file system.
type Group struct {
	Mount, Path string
	Unified     bool // of the second version
}

// Groups are the control groups of this process that may hold a controller: of the unified
// hierarchy, of the old one, or both on a hybrid system.
func Groups(root fs.FS, controller string) []Group {
	var list []Group
	for line := range strings.Lines(readFile(root, "proc/self/cgroup")) {
		// hierarchy:controllers:path, with no controllers for the unified one.
		id, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, p, ok := strings.Cut(rest, ":")
		switch {
		case !ok:
		case id == "0" && controllers == "":
			list = append(list, Group{UnifiedMount(root), p, true})
		default:
			for c := range strings.SplitSeq(controllers, ",") {
				if c == controller {
					list = append(list, Group{path.Join(oldMount, controller), p, false})
				}
			}
		}
	}
	return list
}

// oldMount has a directory for each controller of the first version, or is the second's.
const oldMount = "sys/fs/cgroup"

// UnifiedMount is where the second version is: on a hybrid system below the first.
func UnifiedMount(root fs.FS) string {
	const hybrid = oldMount + "/unified"
	if _, err := fs.Stat(root, hybrid+"/cgroup.procs"); err == nil {
		return hybrid
	}
	return oldMount
}

// Up are a group's directories, from its own to that of the mount, in which a container finds
// its own limits.
func (g Group) Up(yield func(dir string) bool) {
	for dir := path.Clean("/" + g.Path); yield(dir) && dir != "/"; dir = path.Dir(dir) {
	}
}

// quota is the least CPU bandwidth that any control group above this process
// allows, in CPUs; 0 when none limits it. at names that group.
func quota(root fs.FS) (least float64, at string) {
	for _, g := range Groups(root, "cpu") {
		for dir := range g.Up {
			var q float64
			if g.Unified {
				q = ratio(read(root, g.Mount, dir, "cpu.max"), "")
			} else {
				q = ratio(read(root, g.Mount, dir, "cpu.cfs_quota_us"), read(root, g.Mount, dir, "cpu.cfs_period_us"))
			}
			if q > 0 && (least == 0 || q < least) {
				least, at = q, path.Join(g.Mount, dir)
				if dir == "/" && !g.Unified {
					at = path.Join(g.Mount, g.Path) // a container's, whose namespace may be the machine's
				}
			}
		}
	}
	return least, at
}

// ratio reads "QUOTA PERIOD", or the two apart; "max" and -1 are no limit.
func ratio(quota, period string) float64 {
	if period == "" {
		quota, period, _ = strings.Cut(quota, " ")
	}
	q, err1 := strconv.ParseFloat(quota, 64)
	p, err2 := strconv.ParseFloat(period, 64)
	if err1 != nil || err2 != nil || q <= 0 || p <= 0 {
		return 0
	}
	return q / p
}

func oomKills(root fs.FS) int {
	for _, g := range Groups(root, "memory") {
		file := "memory.events"
		if !g.Unified {
			file = "memory.oom_control"
		}
		// A container that does not see its own path is the mount's root.
		for _, dir := range []string{g.Path, "/"} {
			for line := range strings.Lines(read(root, g.Mount, dir, file)) {
				if count, ok := strings.CutPrefix(line, "oom_kill "); ok {
					n, _ := strconv.Atoi(strings.TrimSpace(count))
					return n
				}
			}
		}
	}
	return 0
}
