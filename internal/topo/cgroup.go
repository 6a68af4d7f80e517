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

// group is a control group of this process and the mount that shows it.
type group struct {
	mount, path string
	unified     bool
}

// groups are the control groups of this process that may hold the controller:
// of the unified hierarchy, of the old one, or both on a hybrid system.
func groups(root fs.FS, controller string) []group {
	var list []group
	for line := range strings.Lines(readFile(root, "proc/self/cgroup")) {
		// hierarchy:controllers:path, with no controllers for the unified one.
		id, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, p, ok := strings.Cut(rest, ":")
		switch {
		case !ok:
		case id == "0" && controllers == "":
			list = append(list, group{"sys/fs/cgroup", p, true})
		default:
			for c := range strings.SplitSeq(controllers, ",") {
				if c == controller {
					list = append(list, group{path.Join("sys/fs/cgroup", controller), p, false})
				}
			}
		}
	}
	return list
}

// quota is the least CPU bandwidth that any control group above this process
// allows, in CPUs; 0 when none limits it. A container that does not see its
// own path finds its limit at the mount's root, which the walk ends with. at names that group.
func quota(root fs.FS) (least float64, at string) {
	for _, g := range groups(root, "cpu") {
		for dir := path.Clean("/" + g.path); ; dir = path.Dir(dir) {
			var q float64
			if g.unified {
				q = ratio(read(root, g.mount, dir, "cpu.max"), "")
			} else {
				q = ratio(read(root, g.mount, dir, "cpu.cfs_quota_us"), read(root, g.mount, dir, "cpu.cfs_period_us"))
			}
			if q > 0 && (least == 0 || q < least) {
				least, at = q, path.Join(g.mount, dir)
				if dir == "/" && !g.unified {
					at = path.Join(g.mount, g.path) // a container's, whose namespace may be the machine's
				}
			}
			if dir == "/" {
				break
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
	for _, g := range groups(root, "memory") {
		file := "memory.events"
		if !g.unified {
			file = "memory.oom_control"
		}
		// A container that does not see its own path is the mount's root.
		for _, dir := range []string{g.path, "/"} {
			for line := range strings.Lines(read(root, g.mount, dir, file)) {
				if count, ok := strings.CutPrefix(line, "oom_kill "); ok {
					n, _ := strconv.Atoi(strings.TrimSpace(count))
					return n
				}
			}
		}
	}
	return 0
}
