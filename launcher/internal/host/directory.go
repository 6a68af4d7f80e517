package host

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// directoryPrefix begins the name of every job directory.
const directoryPrefix = "gorun-job-"

// memoryDirectory is where POSIX shared memory is.
const memoryDirectory = "/dev/shm"

// dirVar tells ranks of the job directory.
const dirVar = "GORUN_DIR"

// directory is where MPIs and libpmix may leave files: shared memory, if the
// machine has a place for it, since segments are among them. That of a job in a
// job is in the outer one's, whose guardian may kill the inner one.
func directory(spec *Spec) string {
	name := directoryPrefix + spec.Job + "-" + strconv.Itoa(spec.Index)
	base, tmp, outer := memoryDirectory, "/tmp", ""
	for _, e := range spec.users() {
		switch key, value, _ := strings.Cut(e, "="); {
		case !filepath.IsAbs(value) || len(value) > maxOuter:
		case key == "TMPDIR":
			tmp = filepath.Clean(value)
		case key == dirVar:
			outer = filepath.Clean(value)
		}
	}
	switch {
	case outer != "" && unix.Access(outer, unix.W_OK|unix.X_OK) == nil:
		base = outer
	case unix.Access(base, unix.W_OK|unix.X_OK) != nil, spec.preloads() && runsNone(base):
		base = tmp
	}
	return filepath.Join(base, name)
}

// maxOuter bounds the paths that a job directory may be in.
const maxOuter = 300

// leftovers is what the host takes away in the end, if the guardian does not.
type leftovers struct {
	*base
	laid   []string // what was put into the job directory, which is removed without a look
	cgroup cgroup
}

// makeDirectory makes the job directory, which the guardian removes too. It costs
// 10 us with its removal, so it is made for every job. Where it cannot be made
// nobody is sent there, and the PMIx server, which needs it, says why.
func (l *leftovers) makeDirectory() error {
	l.dir = directory(&l.spec)
	if err := l.guard.Remove(l.dir); err != nil {
		return err
	}
	if err := os.MkdirAll(l.dir, 0o700); err != nil {
		l.log("job directory: %v", err)
		return nil
	}
	l.rankDir, l.filesDir = l.dir, l.dir
	if os.Geteuid() == 0 {
		l.share()
	}
	return nil
}

// share has a place in the job directory where users make files whom ranks of root become, by setpriv or by themselves:
// in what is root's alone they could not, though in /dev/shm they could. They cannot list it, nor remove others' files.
func (l *leftovers) share() {
	dir := filepath.Join(l.dir, "shared")
	err := os.Mkdir(dir, 0o700)
	if err == nil {
		err = errors.Join(unix.Chmod(dir, unix.S_ISVTX|0o733), unix.Chmod(l.dir, 0o711)) // whatever the umask is
	}
	if err != nil {
		l.log("job directory: %v", err)
		return
	}
	l.filesDir, l.laid = dir, append(l.laid, dir)
}

// removeDirectory is called when no rank is left.
func (l *leftovers) removeDirectory() {
	if l.dir == "" || l.removeEmpty() {
		return
	}
	if err := os.RemoveAll(l.dir); err != nil {
		l.log("job directory: %v", err)
	}
}

// removeEmpty removes the job directory, unless something of ranks is in it.
func (l *leftovers) removeEmpty() bool {
	for _, name := range slices.Backward(l.laid) {
		_ = os.Remove(name)
	}
	l.laid = nil
	err := unix.Rmdir(l.dir)
	return err == nil || err == unix.ENOENT
}

// outerDirectory tells whether a setting leads into the directory of another job,
// in which this one runs.
func outerDirectory(name, value string) bool {
	return (name == ucxDirectory || strings.HasPrefix(name, "OMPI_MCA_")) && strings.Contains(value, "/"+directoryPrefix)
}

// ucxDirectory is where UCX, which MPICH and Open MPI may use, makes its segments.
const ucxDirectory = "UCX_POSIX_DIR"

// directorySettings send MPIs to the job directory, or to files in it: UCX, and Open MPI (4 and 5). Users may
// override each. There are none without a directory.
func directorySettings(dir, files string, users []string) []string {
	if dir == "" {
		return nil
	}
	settings := []string{
		"OMPI_MCA_btl_vader_backing_directory=" + files,
		"OMPI_MCA_btl_sm_backing_directory=" + files,
		"OMPI_MCA_osc_sm_backing_directory=" + files,
		"OMPI_MCA_osc_rdma_backing_directory=" + files,
		"OMPI_MCA_orte_tmpdir_base=" + dir,
	}
	if strings.HasPrefix(dir, memoryDirectory+"/") {
		settings = append(settings, ucxDirectory+"="+files) // it would be slow on a disk
	}
	free := settings[:0]
	for _, s := range settings {
		name, _, _ := strings.Cut(s, "=")
		if !sets(users, name) {
			free = append(free, s)
		}
	}
	return free
}

// otherRoot tells whether a program runs another where this directory is not to be seen,
// in a container or below another root. An MPI that is sent there complains, and does
// without shared memory. What a script runs cannot be known.
func otherRoot(argv []string, dir string) bool {
	for i, word := range argv {
		switch filepath.Base(word) {
		case "chroot":
			for _, root := range argv[i+1:] { // the first word that is no option
				if !strings.HasPrefix(root, "-") {
					return unix.Access(filepath.Join(root, dir), unix.W_OK|unix.X_OK) != nil
				}
			}
		case "unshare":
			return slices.ContainsFunc(argv[i+1:], func(o string) bool { return strings.HasPrefix(o, "-R") || strings.HasPrefix(o, "--root") })
		case "bwrap", "podman", "docker", "nerdctl", "systemd-nspawn", "enroot", "ch-run":
			return !slices.ContainsFunc(argv[i+1:], func(o string) bool { return strings.Contains(o, memoryDirectory) })
		case "apptainer", "singularity": // which show /dev/shm, unless they are told not to
			return slices.ContainsFunc(argv[i+1:], func(o string) bool { return slices.Contains([]string{"-c", "-C", "--contain", "--containall"}, o) })
		}
	}
	return false
}

// sets tells whether an environment has a variable with a value.
func sets(env []string, name string) bool {
	return slices.ContainsFunc(env, func(e string) bool {
		value, ok := strings.CutPrefix(e, name+"=")
		return ok && value != ""
	})
}

// watchGuard has the loop see the guardian's end.
func (l *leftovers) watchGuard() {
	if fd := l.guard.FD(); fd >= 0 {
		if err := l.watch(fd, unix.EPOLLIN, sourceGuard, 0); err != nil {
			l.log("guardian: %v", err)
		}
	}
}

// guardEnded replaces a guardian that somebody has killed.
func (l *leftovers) guardEnded() {
	if l.guard == nil || l.guard.Released() {
		return
	}
	l.log("the guardian (pid %d) has ended and is replaced", l.guard.PID())
	if err := l.guard.Replace(); err != nil {
		l.log("%v", err)
		return
	}
	l.watchGuard()
}
