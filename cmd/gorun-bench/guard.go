package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// The guard is this program once more, in a session of its own, so that no key
// on the terminal reaches it. It waits on a pipe for the end of the command, in
// whatever way that comes, ends what is left of the MPIs' jobs and removes
// the session's directories. gorun's jobs have a guardian of their own.

// guardWord makes the command a guard: --guard MARKER DIRECTORY...
const guardWord = "--guard"

// markerName names the variable by which the processes of a session's jobs are
// known, whatever became of the one that started them.
const markerName = "GORUN_BENCH_JOB"

// A scratch is where a session keeps what it needs while it runs, with the
// guard that removes it.
type scratch struct {
	dir    string // plans, builds, and temporary files of the MPIs
	memory string // a directory in shared memory for the MPIs' segments, "" if there is none
	marker string // of the session's processes: NAME=value
	guard  *exec.Cmd
	pipe   io.Closer
}

// newScratch makes the directories and starts their guard, which is self.
func newScratch(self string) (*scratch, error) {
	s := &scratch{marker: fmt.Sprintf("%s=%d-%d", markerName, os.Getpid(), time.Now().UnixNano())}
	var err error
	if s.dir, err = os.MkdirTemp("", "gorun-bench-"); err != nil {
		return nil, err
	}
	// Open MPI's own choice for its segments is this file system: any other
	// would not be fair. Where it cannot be written to, it finds that out too.
	s.memory, _ = os.MkdirTemp("/dev/shm", "gorun-bench-")
	s.guard = exec.Command(self, append([]string{guardWord, s.marker}, s.directories()...)...)
	s.guard.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	pipe, err := s.guard.StdinPipe()
	if err == nil {
		err = s.guard.Start()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start what cleans up after this command: %w", err), s.remove())
	}
	s.pipe = pipe
	return s, nil
}

func (s *scratch) directories() []string {
	if s.memory == "" {
		return []string{s.dir}
	}
	return []string{s.dir, s.memory}
}

func (s *scratch) remove() error {
	var errs []error
	for _, d := range s.directories() {
		errs = append(errs, os.RemoveAll(d))
	}
	return errors.Join(errs...)
}

// close leaves the cleaning to the guard and waits for it. A guard that somebody
// killed is no trouble: what counts is that the directories are gone.
func (s *scratch) close() error {
	s.pipe.Close()
	_ = s.guard.Wait()
	return s.remove()
}

// environ is the environment of the MPIs' jobs: known by the marker, and what
// they leave in files lies in the session's directories. Open MPI leaves its
// segments behind when it is killed.
func (s *scratch) environ() []string {
	env := append(os.Environ(), s.marker, "TMPDIR="+s.dir)
	if s.memory != "" {
		for _, component := range []string{"btl_vader", "btl_sm", "osc_sm", "osc_rdma"} {
			env = append(env, "OMPI_MCA_"+component+"_backing_directory="+s.memory)
		}
	}
	return env
}

// runGuard is the program of the guard.
func runGuard(marker string, directories []string, in io.Reader) int {
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	_, _ = io.Copy(io.Discard, in) // ends with whoever holds the other end
	sweep(marker)
	for _, d := range directories {
		if os.RemoveAll(d) != nil {
			return statusFailed
		}
	}
	return 0
}

// sweep kills the processes that carry the marker in their environment.
func sweep(marker string) {
	for range 100 { // one that forks meanwhile is found in the next pass
		found := false
		dirs, _ := filepath.Glob("/proc/[0-9]*/environ")
		for _, file := range dirs {
			environ, err := os.ReadFile(file)
			if err != nil || !strings.Contains("\x00"+string(environ), "\x00"+marker+"\x00") {
				continue
			}
			if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil {
				found = syscall.Kill(pid, syscall.SIGKILL) == nil || found
			}
		}
		if !found {
			return
		}
	}
}
