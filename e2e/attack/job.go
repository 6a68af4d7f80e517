package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// How long a job may take, and what it leaves may take to go. They are for machines
// that are busy with other things.
const (
	jobLimit  = 90 * time.Second
	goneLimit = 40 * time.Second
	lookEvery = 5 * time.Millisecond
)

// job is a gorun that runs.
type job struct {
	cmd    *exec.Cmd
	marker string
	dir    string // where its job directories are, and its programs may write
	group  string // its control group; "": it has none
	out    bytes.Buffer
	err    bytes.Buffer
	ended  chan struct{}
}

// start starts gorun with arguments.
func (b *bench) start(name string, args ...string) (*job, error) {
	j := &job{marker: fmt.Sprintf("GORUN_ATTACK=%d-%s-%d", os.Getpid(), name, time.Now().UnixNano()), ended: make(chan struct{})}
	j.dir = filepath.Join(b.dir, name)
	if err := os.MkdirAll(filepath.Join(j.dir, "jobs"), 0o700); err != nil {
		return nil, err
	}
	j.cmd = exec.Command(filepath.Join(b.bin, "gorun"), args...)
	j.cmd.Dir = j.dir
	j.cmd.Env = append(b.env[:len(b.env):len(b.env)], j.marker, "GORUN_DIR="+filepath.Join(j.dir, "jobs"))
	j.cmd.Stdout, j.cmd.Stderr = &j.out, &j.err
	j.cmd.WaitDelay = goneLimit // for who has its pipes and should not live
	j.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if b.group != "" {
		if j.group = makeGroup(b.group, name); j.group == "" {
			return nil, fmt.Errorf("no control group below %s", b.group)
		}
		f, err := os.Open(j.group)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		j.cmd.SysProcAttr.UseCgroupFD, j.cmd.SysProcAttr.CgroupFD = true, int(f.Fd())
	}
	if err := j.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(j.ended)
		_ = j.cmd.Wait()
	}()
	return j, nil
}

// finish waits for gorun's end, and that nothing is left. status is as a shell has it.
func (j *job) finish() (status int, err error) {
	limit := time.NewTimer(jobLimit)
	defer limit.Stop()
	select {
	case <-j.ended:
	case <-limit.C:
		err = fmt.Errorf("gorun does not end within %v; its processes: %s", jobLimit, j.names())
		_ = j.cmd.Process.Kill()
		<-j.ended
	}
	state := j.cmd.ProcessState
	if status = state.ExitCode(); status < 0 {
		status = 128 + int(state.Sys().(syscall.WaitStatus).Signal())
	}
	if left := j.left(); left != nil {
		err = errors.Join(err, left)
	}
	if err == nil {
		err = os.RemoveAll(j.dir)
	}
	return status, err
}

// left waits until nothing is left of the job, and tells what is.
func (j *job) left() error {
	var err error
	for end := time.Now().Add(goneLimit); ; time.Sleep(lookEvery) {
		if err = j.look(); err == nil {
			return nil
		}
		if time.Now().After(end) {
			break
		}
	}
	for end := time.Now().Add(goneLimit); j.look() != nil && time.Now().Before(end); time.Sleep(lookEvery) {
		for _, pid := range j.processes() {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		removeGroups(j.group)
		_ = os.RemoveAll(filepath.Join(j.dir, "jobs"))
		_ = os.Mkdir(filepath.Join(j.dir, "jobs"), 0o700)
	}
	return fmt.Errorf("left behind after %v: %w", goneLimit, err)
}

// look tells what is left of the job now.
func (j *job) look() error {
	var errs []error
	if names := j.names(); names != "" {
		errs = append(errs, errors.New("processes "+names))
	}
	entries, err := os.ReadDir(filepath.Join(j.dir, "jobs"))
	if err != nil {
		errs = append(errs, err)
	}
	for _, e := range entries {
		errs = append(errs, fmt.Errorf("job directory %s", e.Name()))
	}
	if j.group != "" && errs == nil {
		err := emptyGroup(j.group)
		if err == nil {
			err = os.Remove(j.group)
		}
		if err != nil {
			return err
		}
		j.group = ""
	}
	return errors.Join(errs...)
}

// processes are those of the job that live: of its control group, and all with its
// marker.
func (j *job) processes() []int {
	seen := map[int]bool{}
	var pids []int
	add := func(pid int) {
		if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil && !bytes.Contains(stat, []byte(") Z ")) && !seen[pid] {
			seen[pid] = true
			pids = append(pids, pid)
		}
	}
	if j.group != "" {
		// Only processes of the user who runs this can leave it.
		_ = filepath.WalkDir(j.group, func(dir string, d os.DirEntry, err error) error {
			if err != nil || !d.IsDir() {
				return nil // it may go while it is looked at
			}
			text, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
			for _, f := range strings.Fields(string(text)) {
				if pid, err := strconv.Atoi(f); err == nil {
					add(pid)
				}
			}
			return nil
		})
		return pids
	}
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, file := range files {
		env, err := os.ReadFile(file)
		if err == nil && bytes.Contains(append([]byte{0}, env...), []byte("\x00"+j.marker+"\x00")) {
			if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil {
				add(pid)
			}
		}
	}
	return pids
}

// names are the job's processes, for people.
func (j *job) names() string {
	var list []string
	for _, pid := range j.processes() {
		list = append(list, fmt.Sprintf("%d (%s)", pid, role(pid)))
	}
	return strings.Join(list, ", ")
}

// role is what a process is in its job: gorun, guardian, agent, pmix, or rank for
// all else.
func role(pid int) string {
	comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	switch name := strings.TrimSpace(string(comm)); name {
	case "gorun", "gorun-agent", "gorun-guardian", "gorun-pmix":
		return name
	}
	return "rank"
}

// ownGroup is this process's control group in the unified hierarchy; "" if it cannot
// be seen.
func ownGroup() string {
	text, _ := os.ReadFile("/proc/self/cgroup")
	_, path, ok := strings.Cut("\n"+string(text), "\n0::")
	path, _, _ = strings.Cut(path, "\n")
	if !ok {
		return ""
	}
	for _, mount := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		if _, err := os.Stat(filepath.Join(mount, path, "cgroup.procs")); err == nil {
			return filepath.Join(mount, path)
		}
	}
	return ""
}

// makeGroup makes a control group below another; "" if it cannot.
func makeGroup(parent, name string) string {
	dir := filepath.Join(parent, name)
	if parent == "" || os.Mkdir(dir, 0o755) != nil {
		return ""
	}
	if _, err := os.Stat(filepath.Join(dir, "cgroup.kill")); err != nil {
		_ = os.Remove(dir)
		return ""
	}
	return dir
}

// emptyGroup tells of groups that are left below one.
func emptyGroup(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			return fmt.Errorf("control group %s", filepath.Join(dir, e.Name()))
		}
	}
	return nil
}

// removeGroups removes those below a control group.
func removeGroups(dir string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if e.IsDir() {
			removeGroups(filepath.Join(dir, e.Name()))
			_ = os.Remove(filepath.Join(dir, e.Name()))
		}
	}
}
