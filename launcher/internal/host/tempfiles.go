package host

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// MPIs make files where all jobs of a machine make theirs, open them in one
// another's processes and remove them some milliseconds later: a process that is killed
// between leaves them for ever. What can be told so makes them in the job
// directory. For the rest, ranks that are about to be signalled are looked at:
// which of such files they have open or mapped, which is the only thing that says
// whose they are. What of those is still there when the ranks are gone is removed.
//
// Those of a rank that ends in whatever other way are missed, unless another rank
// has them too, or their library always forgets them.

// Beginnings of the names of such files, and the library that makes them.
var tempPrefixes = [...]string{
	"/dev/shm/ucx_shm_posix_", // UCX, where UCX_POSIX_DIR did not reach it
	"/dev/shm/mpich_shar_tmp", // MPICH, which has no setting for it
	"/tmp/mpich_shar_tmp",     // where there is no /dev/shm
	"/dev/shm/vader_segment.", // Open MPI 4, where its settings did not
	"/dev/shm/sm_segment.",    // Open MPI 5
	"/dev/shm/open_mpi.",      // Open MPI with OMPI_MCA_shmem=posix
}

// tempFilesTime bounds a look: signals wait for it.
const tempFilesTime = 50 * time.Millisecond

// fileID is a file, whatever it is called.
type fileID struct{ device, inode uint64 }

// tempFiles are files of ranks in directories that other jobs use too.
type tempFiles struct{ files map[string]fileID }

// look notes what the ranks have open.
func (l *tempFiles) look(pids []int) {
	end := time.Now().Add(tempFilesTime)
	for _, pid := range pids {
		if time.Now().After(end) {
			return
		}
		l.lookAt(pid, looksDepth)
	}
}

// lookAt notes what a process and those below it have open.
func (l *tempFiles) lookAt(pid, depth int) {
	proc := "/proc/" + strconv.Itoa(pid)
	for _, path := range openFiles(proc) {
		l.add(path)
	}
	if depth == 1 {
		return
	}
	for _, child := range childrenOf(pid) {
		l.lookAt(child, depth-1)
	}
}

// openFiles are those of tempPrefixes that a process has open or mapped.
func openFiles(proc string) (paths []string) {
	fds, _ := os.ReadDir(proc + "/fd")
	for _, fd := range fds {
		if path, err := os.Readlink(proc + "/fd/" + fd.Name()); err == nil && isShared(path) {
			paths = append(paths, path)
		}
	}
	maps, _ := os.ReadFile(proc + "/maps")
	for line := range bytes.Lines(maps) {
		if at := bytes.IndexByte(line, '/'); at >= 0 {
			if path := string(bytes.TrimSuffix(line[at:], []byte("\n"))); isShared(path) {
				paths = append(paths, path)
			}
		}
	}
	return paths
}

// isShared tells whether a path as /proc shows it is such a file, and not removed.
func isShared(path string) bool {
	return slices.ContainsFunc(tempPrefixes[:], func(prefix string) bool {
		return strings.HasPrefix(path, prefix) && !strings.HasSuffix(path, " (deleted)")
	})
}

func (l *tempFiles) add(path string) {
	if _, known := l.files[path]; known {
		return
	}
	id, ok := ownFile(path)
	if !ok {
		return
	}
	if l.files == nil {
		l.files = make(map[string]fileID)
	}
	l.files[path] = id
}

// ownFile identifies a file of this user.
func ownFile(path string) (fileID, bool) {
	var st syscall.Stat_t
	if syscall.Lstat(path, &st) != nil || int(st.Uid) != os.Geteuid() || st.Mode&syscall.S_IFMT != syscall.S_IFREG {
		return fileID{}, false
	}
	return fileID{st.Dev, st.Ino}, true
}

// remove removes what is left of all that was seen, when the ranks are gone.
func (l *tempFiles) remove(log func(format string, args ...any)) {
	for path, id := range l.files {
		if now, ok := ownFile(path); ok && now == id {
			if err := os.Remove(path); err != nil {
				log("left by a rank: %v", err)
			}
		}
	}
}

// forgotten is the beginning of names that Open MPI 5.0.7, with OMPI_MCA_shmem=posix, leaves also where its ranks end well,
// and under its own launcher.
const forgotten = "open_mpi."

// removeForgotten removes such files of this user that are no older than the host and that nobody has open or mapped.
func removeForgotten(dir string, begun syscall.Timespec, log func(format string, args ...any)) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), forgotten) {
			continue
		}
		path := filepath.Join(dir, e.Name())
		if err := removeUnused(path, begun); err != nil {
			log("left by a rank: %s: %v", path, err)
		}
	}
}

// removeUnused removes a file unless somebody has it: the kernel leases it to nobody then.
func removeUnused(path string, begun syscall.Timespec) error {
	id, ok := ownFile(path)
	if !ok {
		return nil
	}
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	var st syscall.Stat_t
	if err := syscall.Fstat(fd, &st); err != nil || (fileID{st.Dev, st.Ino}) != id || st.Ctim.Nano() < begun.Nano() {
		return err
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		if err == unix.EAGAIN {
			return nil
		}
		return err
	}
	return os.Remove(path)
}

// lookBeforeSignal notes the temporary files of the ranks that live. They are stopped, so
// that they make no more: KILL or CONT must follow.
func (e *ending) lookBeforeSignal() {
	var pids []int
	for i, r := range e.up() {
		if !r.gone {
			pids = append(pids, r.pid)
			e.signalGroup(i, syscall.SIGSTOP)
		}
	}
	e.temp.look(pids)
}
