package e2e

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

// An option is a system call that gorun uses where the kernel has it and permits it.
type option struct {
	call    testenv.Call
	name    string
	since   string // Linux
	use     string
	instead string
	job     string // one that makes the call
	note    string // that gorun gives where it is refused
}

// options are those calls, in the order of docs/launching.md.
var options = []option{
	{testenv.Call{Number: unix.SYS_CLOSE_RANGE}, "close_range", "5.9", "close descriptors that gorun was given",
		"one by one", "shell", ""},
	{testenv.Call{Number: unix.SYS_PIDFD_OPEN}, "pidfd_open", "5.3", "notice that a guardian, or a rank's peer, has ended",
		"looks at it from time to time", "shell", ""},
	{testenv.Call{Number: unix.SYS_CLONE3}, "clone3", "5.7", "start ranks in the job's control group",
		"outside: a daemon that has cleared its environment outlives a `kill -9` of gorun. A program of glibc needs it to be missing (ENOSYS): where a filter forbids it (EPERM) glibc starts no thread", "shell", ""},
	{testenv.Call{Number: unix.SYS_FACCESSAT2}, "faccessat2", "5.8", "find programs in `PATH`",
		"their mode", "hosts", ""},
	{testenv.Call{Number: unix.SYS_PIDFD_GETFD}, "pidfd_getfd", "5.6", "bound the silence of ssh while it logs in",
		"asks the host by a connection of its own to the same port", "ssh", ""},
	{testenv.Call{Number: unix.SYS_TIMER_CREATE}, "timer_create", "2.6", "continue an agent that somebody has stopped before it has ranks",
		"it stays until it is continued", "hosts", ""},
	{testenv.Adopting, "prctl(PR_SET_CHILD_SUBREAPER)", "3.4", "find the daemons that ranks leave",
		"those that have cleared their environment stay, as the note says", "shell", "adopt orphans: prctl: "},
	{testenv.Call{Number: unix.SYS_MEMFD_CREATE}, "memfd_create", "3.17", "memory that Go ranks of one host share",
		"TCP between them, as the note says; no `--offload`", "shell", "memfd_create: "},
	{testenv.Call{Number: unix.SYS_PROCESS_VM_READV}, "process_vm_readv", "3.2", "long data in ordinary memory of Go ranks",
		"TCP. Open MPI's programs complain of it themselves, under any launcher", "ranks", ""},
	{testenv.Call{Number: unix.SYS_PROCESS_VM_WRITEV}, "process_vm_writev", "3.2", "the same",
		"TCP", "ranks", ""},
	{testenv.Traced, "prctl(PR_SET_PTRACER)", "3.4", "the same, where Yama restricts it",
		"TCP where it does", "ranks", ""},
	{testenv.Call{Number: unix.SYS_MEMBARRIER}, "membarrier", "4.16", "cheap sleeps of Go ranks",
		"fences", "ranks", ""},
	{testenv.Call{Number: unix.SYS_SCHED_SETAFFINITY}, "sched_setaffinity", "2.6", "Go ranks begin on CPUs of their own",
		"where the kernel puts them; `--bind-to` ends the job with the reason", "ranks", ""},
	{testenv.Call{Number: unix.SYS_MADVISE, Arg: 2, Mask: ^uint32(0), Value: unix.MADV_DONTDUMP}, "madvise(MADV_DONTDUMP)", "3.4", "small core files",
		"they hold what ranks share", "shell", ""},
	{testenv.Call{Number: unix.SYS_MADVISE, Arg: 2, Mask: ^uint32(0), Value: unix.MADV_REMOVE}, "madvise(MADV_REMOVE)", "2.6", "give memory of a device back",
		"kept until the rank ends", "hosts", ""},
	{testenv.Call{Number: unix.SYS_FALLOCATE}, "fallocate", "2.6", "give room of a long line on disk back",
		"kept until gorun ends", "long lines", ""},
	{testenv.Call{Number: unix.SYS_SPLICE}, "splice", "2.6", "carry what Open MPI's ranks and gorun-pmix say",
		"read and write", "openmpi", ""},
}

// longLine is more than gorun keeps of a line in memory.
const longLine = 2 << 20

// refusedJobs are small jobs, and their output with the lines in order.
var refusedJobs = map[string]struct {
	argv []string
	want string
}{
	"shell":      {[]string{"-np", "2", "sh", "-c", "echo rank $PMI_RANK of $PMI_SIZE"}, "rank 0 of 2\nrank 1 of 2\n"},
	"ranks":      {[]string{"-np", "2", "window", "halo"}, "120 cells, 200 steps\n"},
	"hosts":      {[]string{"--launcher", "fork", "-H", "a:1,b:1", "window", "halo"}, "120 cells, 200 steps\n"},
	"ssh":        {[]string{"--launcher", "ssh", "--rsh", loginName, "-H", "a:1,b:1", "echo", "here"}, "here\nhere\n"},
	"long lines": {[]string{"-np", "1", "sh", "-c", "head -c " + fmt.Sprint(longLine) + " /dev/zero | tr '\\0' x"}, strings.Repeat("x", longLine)},
	"openmpi":    {[]string{"-np", "2", "allreduce-openmpi"}, "25 allreduces on 2 ranks are right\n"},
}

const (
	// refusedVariable makes this program one that executes its arguments where the calls of options are refused:
	// the error's number, and the place in options, or "new".
	refusedVariable = "GORUN_E2E_REFUSED"
	// loginName is the name by which this program is a remote shell. With its variable it never logs in.
	loginName  = "gorun-e2e-login"
	loginHangs = "GORUN_E2E_LOGIN_HANGS"
)

func init() {
	if filepath.Base(os.Args[0]) == loginName {
		logIn()
	}
	how := os.Getenv(refusedVariable)
	if how == "" {
		return
	}
	var errno unix.Errno
	var which string
	var at int
	_, err := fmt.Sscan(how, &errno, &which)
	switch {
	case err != nil:
	case which == "new":
		err = testenv.RefuseNew(errno)
	default:
		if _, err = fmt.Sscan(which, &at); err == nil {
			err = testenv.Refuse(errno, options[at].call)
		}
	}
	if err == nil {
		_ = os.Unsetenv(refusedVariable)
		_ = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})
		err = unix.Exec(os.Args[1], os.Args[1:], os.Environ())
	}
	fmt.Fprintln(os.Stderr, how, os.Args, err)
	os.Exit(98)
}

// logIn is a remote shell of this machine, with a connection as ssh has one: HOST COMMAND.
func logIn() {
	_, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err == nil && os.Getenv(loginHangs) != "" {
		_, _ = io.Copy(io.Discard, os.Stdin) // until gorun dies
		os.Exit(97)
	}
	if err == nil {
		err = unix.Exec("/bin/sh", []string{"sh", "-c", strings.Join(os.Args[2:], " ")}, os.Environ())
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(98)
}

// refusing runs a job of refusedJobs where a system call is refused, and gives its output with the lines in order.
func refusing(t *testing.T, job, errno, which string) (out, errs string, err error) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	gorun, err := exec.LookPath("gorun")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	s := &script{marker: fmt.Sprintf("GORUN_E2E=%d-%s", os.Getpid(), filepath.Base(dir)), tmp: dir}
	cmd := exec.CommandContext(testenv.Deadline(t, time.Minute), exe, append([]string{gorun}, refusedJobs[job].argv...)...)
	cmd.Env = append(os.Environ(), refusedVariable+"="+errno+" "+which, s.marker, "TMPDIR="+dir)
	if errno == "0" {
		cmd.Env = append(cmd.Env, loginHangs+"=1")
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	if gone := s.gone(); gone != nil {
		t.Error(gone)
	}
	lines := strings.SplitAfter(stdout.String(), "\n")
	slices.Sort(lines)
	return strings.Join(lines, ""), stderr.String(), err
}

// makeRefusedJobs puts what the jobs need into the PATH.
func makeRefusedJobs(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Symlink(exe, filepath.Join(dir, loginName)); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+string(filepath.ListSeparator)+os.Getenv("PATH"))
	if testenv.Chosen(testenv.Peers) {
		source := filepath.Join("..", "testdata", "mpi", "allreduce.c")
		if out, err := exec.Command(testenv.Need(t, "mpicc.openmpi"), "-O1", "-o", filepath.Join(dir, "allreduce-openmpi"), source).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
}

// jobsOf are the jobs with which an option is tried.
func jobsOf(o option) []string {
	jobs := []string{"shell", "ranks", o.job}
	slices.Sort(jobs)
	return slices.DeleteFunc(slices.Compact(jobs), func(job string) bool { return job == "openmpi" && !testenv.Chosen(testenv.Peers) })
}

// A job has the same output and status where a filter refuses a system call that gorun can do without, or the kernel
// lacks it; and all that came with Linux 5.1 and later. Where something is lost, gorun says so once.
func TestJobsWhereCallsAreRefused(t *testing.T) {
	makeRefusedJobs(t)
	try := func(name, which, note string, jobs ...string) {
		for _, errno := range []unix.Errno{unix.EPERM, unix.ENOSYS} {
			for _, job := range jobs {
				t.Run(name+"/"+unix.ErrnoName(errno)+"/"+job, func(t *testing.T) {
					out, errs, err := refusing(t, job, fmt.Sprint(int(errno)), which)
					if err != nil || out != refusedJobs[job].want {
						t.Errorf("%v, output %.500q, want %.500q", err, out, refusedJobs[job].want)
					}
					if n := strings.Count(errs, "\n"); n > 1 || (n == 1) != (note != "") || !strings.Contains(errs, note) {
						t.Errorf("standard error is %q, want one note with %q, or nothing if that is empty", errs, note)
					}
				})
			}
		}
	}
	for i, o := range options {
		try(o.name, fmt.Sprint(i), o.note, jobsOf(o)...)
	}
	try("new", "new", "", "shell", "ranks", "hosts", "ssh", "long lines")
}

// The job of each option makes its call: where that kills who calls, the job fails.
func TestJobsMakeTheCalls(t *testing.T) {
	makeRefusedJobs(t)
	for i, o := range options {
		if !slices.Contains(jobsOf(o), o.job) || o.name == "sched_setaffinity" && runtime.NumCPU() < 2 {
			continue
		}
		t.Run(o.name, func(t *testing.T) {
			if out, _ := exec.Command("gorun", "-np", "1", "cat", "/proc/self/cgroup").Output(); o.name == "clone3" && !bytes.Contains(out, []byte("/gorun-job-")) {
				testenv.Unsupported(t, "gorun may make no control group here, as root may")
			}
			// A rank may have done its work before what is set up beside it.
			testenv.Await(t, 20*time.Second, "job "+o.job+" calls "+o.name, func() bool {
				out, _, err := refusing(t, o.job, "0", fmt.Sprint(i))
				return err != nil || out != refusedJobs[o.job].want
			})
		})
	}
}

func TestTableOfCalls(t *testing.T) {
	text := "| system call | Linux | what for | where it is refused or missing |\n|---|---|---|---|\n"
	for _, o := range options {
		text += fmt.Sprintf("| %s | %s | %s | %s |\n", o.name, o.since, o.use, o.instead)
	}
	testenv.Page(t, filepath.Join("..", "docs", "launching.md"), "calls", text, *update)
}
