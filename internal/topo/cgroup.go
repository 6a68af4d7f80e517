package topo

import (
	"path"
	"runtime"
	"strconv"
	"strings"
	"syscall"
)

// CPUs is how many CPUs this process can keep busy at once: those of its
// affinity when it started, or fewer under a quota of its control groups. A
// quota of 1.5 CPUs counts as 1: two busy threads would be throttled.
func CPUs() int {
	n := runtime.NumCPU()
	if q := quota("/"); q > 0 && q < float64(n) {
		n = max(1, int(q))
	}
	return n
}

// OOMKills is how many processes the kernel has killed for want of memory in
// this process's control group, as far as that is known.
func OOMKills() int { return oomKills("/") }

// group is a control group of this process and the mount that shows it.
type group struct {
	mount, path string
	unified     bool
}

// groups are the control groups of this process that may hold the controller:
// of the unified hierarchy, of the old one, or both on a hybrid system.
func groups(root, controller string) []group {
	var list []group
	for line := range strings.Lines(readFile(path.Join(root, "proc/self/cgroup"))) {
		// hierarchy:controllers:path, with no controllers for the unified one.
		id, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, p, ok := strings.Cut(rest, ":")
		switch {
		case !ok:
		case id == "0" && controllers == "":
			list = append(list, group{path.Join(root, "sys/fs/cgroup"), p, true})
		default:
			for c := range strings.SplitSeq(controllers, ",") {
				if c == controller {
					list = append(list, group{path.Join(root, "sys/fs/cgroup", controller), p, false})
				}
			}
		}
	}
	return list
}

// quota is the least CPU bandwidth that any control group above this process
// allows, in CPUs; 0 when none limits it. A container that does not see its
// own path finds its limit at the mount's root, which the walk ends with.
func quota(root string) float64 {
	least := 0.0
	for _, g := range groups(root, "cpu") {
		for dir := path.Clean("/" + g.path); ; dir = path.Dir(dir) {
			var q float64
			if g.unified {
				q = ratio(read(g.mount, dir, "cpu.max"), "")
			} else {
				q = ratio(read(g.mount, dir, "cpu.cfs_quota_us"), read(g.mount, dir, "cpu.cfs_period_us"))
			}
			if q > 0 && (least == 0 || q < least) {
				least = q
			}
			if dir == "/" {
				break
			}
		}
	}
	return least
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

func oomKills(root string) int {
	for _, g := range groups(root, "memory") {
		file := "memory.events"
		if !g.unified {
			file = "memory.oom_control"
		}
		for line := range strings.Lines(read(g.mount, g.path, file)) {
			if count, ok := strings.CutPrefix(line, "oom_kill "); ok {
				n, _ := strconv.Atoi(strings.TrimSpace(count))
				return n
			}
		}
	}
	return 0
}

// read is a file of a control group without the blanks around it, "" when there is none.
func read(elem ...string) string { return strings.TrimSpace(readFile(path.Join(elem...))) }

// readFile reads one of the kernel's small files, "" when it cannot. Not by
// package os, whose first open file starts the runtime's network poller: a
// launcher of short programs would notice.
func readFile(name string) string {
	fd, err := syscall.Open(name, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer syscall.Close(fd)
	var text []byte
	buf := make([]byte, 4<<10)
	for {
		switch n, err := syscall.Read(fd, buf); {
		case err == syscall.EINTR:
		case err != nil || n <= 0:
			return string(text)
		default:
			text = append(text, buf[:n]...)
		}
	}
}
