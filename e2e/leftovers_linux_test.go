package e2e

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

// apartVariable names the directory with the programs to a process of this test that has a /tmp, a /dev/shm and
// System V memory of its own: what is there, jobs have made.
const apartVariable = "GORUN_E2E_APART"

// leftoverKinds are the kinds of files that MPIs, their launchers and libraries leave, and gorun's own.
var leftoverKinds = []string{
	"/tmp/prterun.", "/tmp/ompi.", "/tmp/pmix-", "/tmp/hydra_hwloc_xmlfile_", "/tmp/hwloc", "/tmp/mpich_shar_tmp",
	"/dev/shm/sm_segment.", "/dev/shm/vader_segment.", "/dev/shm/open_mpi.", "/dev/shm/osc_", "/dev/shm/ucx_shm_posix_", "/dev/shm/mpich_shar_tmp", "/dev/shm/gorun-job-",
}

const systemV = "System V segments"

// TestJobsLeaveNothing counts by kind what jobs leave that end well, of which a rank is killed, or gorun.
func TestJobsLeaveNothing(t *testing.T) {
	testenv.Part(t, testenv.Peers)
	if dir := os.Getenv(apartVariable); dir != "" {
		countLeftovers(t, dir)
		return
	}
	dir := t.TempDir()
	for _, mpi := range []string{"openmpi", "mpich"} {
		compiler := testenv.Need(t, "mpicc."+mpi)
		for _, program := range []string{"allreduce", "wait"} {
			source := filepath.Join("..", "testdata", "mpi", program+".c")
			if out, err := exec.Command(compiler, "-O1", "-o", filepath.Join(dir, program+"-"+mpi), source).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
		}
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(testenv.Deadline(t, 3*time.Minute), exe, "-test.run=^TestJobsLeaveNothing$", "-test.v")
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "TMPDIR=") }), apartVariable+"="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWIPC}
	if os.Getuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	out, err := cmd.CombinedOutput()
	if cmd.Process == nil {
		testenv.Unsupported(t, fmt.Sprintf("needs namespaces: %v", err))
	}
	if err != nil || !bytes.Contains(out, []byte("--- PASS: TestJobsLeaveNothing/")) {
		t.Errorf("%v\n%s", err, out)
	}
}

// countLeftovers runs the jobs, in namespaces of its own.
func countLeftovers(t *testing.T, dir string) {
	gorun, err := exec.LookPath("gorun")
	if err != nil {
		t.Fatal(err)
	}
	hide(t, []string{"/tmp", "/dev/shm"}, []string{dir, filepath.Dir(gorun)})
	for _, j := range []struct {
		name, mpi string
		options   []string
		env       string
		seen      string // kinds of which there is one while the job runs: the count sees it
	}{
		{"openmpi", "openmpi", nil, "", "/dev/shm/gorun-job-"},
		{"openmpi, System V", "openmpi", nil, "OMPI_MCA_shmem=sysv", systemV},
		{"openmpi, POSIX", "openmpi", nil, "OMPI_MCA_shmem=posix", "/dev/shm/open_mpi."},
		{"openmpi, other directories", "openmpi", nil, "OMPI_MCA_btl_vader_backing_directory=/dev/shm", "/dev/shm/vader_segment. /dev/shm/sm_segment."},
		{"openmpi, hosts", "openmpi", []string{"--launcher", "fork", "-H", "a:1,b:1"}, "", "/dev/shm/gorun-job-"},
		{"mpich", "mpich", nil, "", systemV},
		{"mpich, POSIX", "mpich", nil, "UCX_TLS=posix,self", "/dev/shm/gorun-job-"},
		{"mpich, other directories", "mpich", nil, "UCX_POSIX_DIR=/dev/shm", "/dev/shm/gorun-job-"},
		{"mpich, hosts", "mpich", []string{"--launcher", "fork", "-H", "a:1,b:1"}, "", systemV},
	} {
		for _, end := range []string{"well", "KILL to a rank", "TERM to gorun", "KILL to gorun"} {
			t.Run(j.name+"/"+end, func(t *testing.T) {
				before := leftovers() // of a job whose leftovers another run has told of
				work, err := os.MkdirTemp(dir, "job-")
				if err != nil {
					t.Fatal(err)
				}
				s := &script{marker: "GORUN_E2E=" + filepath.Base(work)}
				program := []string{filepath.Join(dir, "allreduce-"+j.mpi)}
				if end != "well" {
					program = []string{"sh", "-c", `echo $$ >pid.$PMI_RANK; exec "$0" ready.$PMI_RANK`, filepath.Join(dir, "wait-"+j.mpi)}
				}
				cmd := exec.CommandContext(testenv.Deadline(t, time.Minute), gorun, slices.Concat(j.options, []string{"-np", "2"}, program)...)
				cmd.Dir, cmd.Env = work, append(os.Environ(), s.marker, "OMPI_MCA_reachable=weighted", j.env)
				var out bytes.Buffer
				cmd.Stdout, cmd.Stderr = &out, &out
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				if end != "well" {
					for rank := range 2 {
						testenv.Await(t, awaitLimit, "rank is ready", func() bool {
							_, err := os.Stat(filepath.Join(work, "ready."+strconv.Itoa(rank)))
							return err == nil
						})
					}
					during, seen := leftovers(), func(kind string) bool { return j.seen == kind || slices.Contains(strings.Fields(j.seen), kind) }
					if !slices.ContainsFunc(slices.Collect(maps.Keys(during)), seen) {
						t.Errorf("while the job runs there is none of %s, but %v", j.seen, during)
					}
				}
				switch end {
				case "KILL to a rank":
					text, err := os.ReadFile(filepath.Join(work, "pid.1"))
					pid, _ := strconv.Atoi(strings.TrimSpace(string(text)))
					if err != nil || pid <= 1 || unix.Kill(pid, unix.SIGKILL) != nil {
						t.Errorf("kill rank 1: %q, %v", text, err)
					}
				case "TERM to gorun":
					err = cmd.Process.Signal(unix.SIGTERM)
				case "KILL to gorun":
					err = cmd.Process.Kill()
				}
				ended := cmd.Wait()
				if err != nil || (ended == nil) != (end == "well") {
					t.Errorf("%v, and the job ended with %v\n%s", err, ended, &out)
				}
				if err := s.gone(); err != nil { // guardians too
					t.Error(err)
				}
				if after := leftovers(); !maps.EqualFunc(after, before, slices.Equal) {
					t.Errorf("left: %v, before the job there were: %v\n%s", after, before, &out)
				}
			})
		}
	}
}

// hide makes some directories empty, but for others below them that stay.
func hide(t *testing.T, empty, stay []string) {
	check := func(err error) {
		if err != nil {
			t.Helper()
			t.Fatal(err)
		}
	}
	check(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	open := make([]int, len(stay))
	for i, dir := range stay {
		fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		check(err)
		open[i] = fd
	}
	for _, dir := range empty {
		check(unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=1777"))
	}
	for i, dir := range stay {
		check(os.MkdirAll(dir, 0o755))
		check(unix.Mount("/proc/self/fd/"+strconv.Itoa(open[i]), dir, "", unix.MS_BIND, ""))
		check(unix.Close(open[i]))
	}
}

// leftovers are what is in /tmp, in /dev/shm and in System V memory, by kind.
func leftovers() map[string][]string {
	found := map[string][]string{}
	for _, pattern := range []string{"/tmp/*", "/dev/shm/*"} {
		paths, _ := filepath.Glob(pattern)
		for _, path := range paths {
			kind := "others"
			if i := slices.IndexFunc(leftoverKinds, func(k string) bool { return strings.HasPrefix(path, k) }); i >= 0 {
				kind = leftoverKinds[i]
			}
			found[kind] = append(found[kind], path)
		}
	}
	for _, kind := range []string{"shm", "sem", "msg"} {
		text, _ := os.ReadFile("/proc/sysvipc/" + kind)
		for i, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
			if i > 0 { // below the names of the columns
				found[systemV] = append(found[systemV], kind+" "+strings.TrimSpace(line))
			}
		}
	}
	return found
}
