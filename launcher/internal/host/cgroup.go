package host

import (
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// cgroup is a control group for the ranks of a host and all that they start, in the
// unified hierarchy, below that of this process. It holds processes that have left
// their group and session and cleared their environment, and ends them at one
// stroke. It has no controllers, so it limits nothing and counts nothing.
//
// It is there only where this process may make one: as root, or in a group that was
// delegated to its user. A group with a limit of its own has none made below it,
// since runtimes look for limits in their own group only.
type cgroup struct {
	dir string
	fd  int // of dir; -1: there is none
}

// unifiedMounts are where the unified hierarchy may be; the second is that of
// systems that have the old ones too.
var unifiedMounts = [...]string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"}

// limitFiles are what runtimes read, and how a file begins that says nothing.
var limitFiles = [...]struct{ name, none string }{{"cpu.max", "max"}, {"memory.max", "max"}}

// openGroup makes the control group, if it can be had.
func (l *leftovers) openGroup() {
	own := ownGroup()
	if own == "" {
		return
	}
	for _, limit := range limitFiles {
		if text, err := os.ReadFile(own + "/" + limit.name); err == nil && !strings.HasPrefix(string(text), limit.none) {
			return
		}
	}
	dir := filepath.Join(own, filepath.Base(l.dir))
	if err := l.guard.Disband(dir); err != nil {
		l.log("%v", err)
		return
	}
	if err := unix.Mkdir(dir, 0o755); err != nil {
		l.log("control group: %v", &os.PathError{Op: "mkdir", Path: dir, Err: err})
		return
	}
	l.cgroup.dir = dir
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	// Kernels before 5.14 cannot kill it.
	if err != nil || unix.Access(dir+"/cgroup.kill", unix.W_OK) != nil {
		l.log("control group %s: it cannot be used", dir)
		closeFD(&fd)
		l.removeGroup()
		return
	}
	l.cgroup.fd = fd
}

// ownGroup is this process's control group in the unified hierarchy, if one can be
// made below it; else "".
func ownGroup() string {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return ""
	}
	_, path, ok := strings.Cut("\n"+string(text), "\n0::")
	path, _, _ = strings.Cut(path, "\n")
	if !ok || strings.Contains(path, "..") {
		return ""
	}
	for _, mount := range unifiedMounts {
		own := filepath.Join(mount, path)
		if unix.Access(own, unix.W_OK) == nil && unix.Access(own+"/cgroup.procs", unix.W_OK) == nil {
			return own
		}
	}
	return ""
}

// removeEmptyGroup removes the control group, unless somebody is in it.
func (l *leftovers) removeEmptyGroup() bool {
	g := &l.cgroup
	if g.dir != "" && unix.Rmdir(g.dir) != nil {
		return false
	}
	g.dir = ""
	closeFD(&g.fd)
	return true
}

// groupLimit bounds how long a control group's processes may take to die.
const groupLimit = 2 * time.Second

// removeGroup kills whatever is in the control group and removes it; all ranks have
// ended.
func (l *leftovers) removeGroup() {
	g := &l.cgroup
	if g.dir == "" {
		return
	}
	for end := time.Now().Add(groupLimit); ; time.Sleep(time.Millisecond) {
		err := removeGroups(g.dir)
		if err == nil {
			break
		}
		if time.Now().After(end) {
			l.log("control group: %v", err)
			break
		}
		// It is empty, or about to be.
		_ = os.WriteFile(g.dir+"/cgroup.kill", []byte("1"), 0)
	}
	closeFD(&g.fd)
	g.dir = ""
}

// removeGroups removes a control group and those below it, which a job in the job
// may have left.
func removeGroups(dir string) error {
	err := unix.Rmdir(dir)
	if err != unix.EBUSY {
		if err == unix.ENOENT {
			return nil
		}
		return err
	}
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if e.IsDir() {
			_ = removeGroups(filepath.Join(dir, e.Name()))
		}
	}
	return unix.Rmdir(dir)
}
