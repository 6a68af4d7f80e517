package guard

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

// The test binary is also a starter that can be killed: it starts a guardian
// and the processes of its arguments, and waits.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "--starter" {
		os.Exit(starter(os.Args[2], os.Args[3:]))
	}
	os.Exit(m.Run())
}

// starter runs each script in a group of its own; those that begin with "+" are
// entered in the ledger, those with "!" carry the marker, those with "." neither. A first
// one that begins with "~" is the time of a lease, which the starter keeps, and with "^" of one that it does not.
func starter(marker string, scripts []string) int {
	var lease time.Duration
	keeps := true
	if len(scripts) > 0 && strings.ContainsAny(scripts[0][:1], "~^") {
		keeps = scripts[0][0] == '~'
		lease, _ = time.ParseDuration(scripts[0][1:])
		scripts = scripts[1:]
	}
	g, err := Start(marker, lease)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	pids := []string{strconv.Itoa(g.PID())}
	for _, s := range scripts {
		if s[0] == '=' { // a directory
			if err := g.Remove(s[1:]); err != nil {
				fmt.Println(err)
				return 1
			}
			continue
		}
		if s[0] == '#' { // a control group
			if err := g.Disband(s[1:]); err != nil {
				fmt.Println(err)
				return 1
			}
			continue
		}
		if s[0] == '-' { // files of a kind
			if err := g.RemoveUnused(s[1:]); err != nil {
				fmt.Println(err)
				return 1
			}
			continue
		}
		cmd := exec.Command("sh", "-c", s[1:])
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if s[0] == '!' {
			cmd.Env = append(os.Environ(), marker)
		}
		if err := cmd.Start(); err != nil {
			fmt.Println(err)
			return 1
		}
		pids = append(pids, strconv.Itoa(cmd.Process.Pid))
		if s[0] == '+' {
			g.Add(cmd.Process.Pid)
		}
	}
	fmt.Println(strings.Join(pids, " "))
	if lease > 0 && keeps {
		for range time.Tick(lease / 16) {
			g.Alive()
		}
	}
	for { // select {} would be a deadlock, which ends the process
		_ = unix.Pause()
	}
}

// alive tells whether a process runs; a zombie does not.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !bytes.Contains(stat, []byte(") Z "))
}

// awaitEnd waits for a process's end, whoever its parent is.
func awaitEnd(t *testing.T, pid int) {
	t.Helper()
	testenv.Await(t, 20*time.Second, fmt.Sprintf("the end of process %d", pid), func() bool { return !alive(pid) })
}

// awaitRemoved waits until a file is removed.
func awaitRemoved(t *testing.T, file string) {
	t.Helper()
	testenv.Await(t, 20*time.Second, file+" is removed", func() bool {
		_, err := os.Stat(file)
		return os.IsNotExist(err)
	})
}

func start(t *testing.T, scripts ...string) (cmd *exec.Cmd, guardian int, pids []int) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	marker := fmt.Sprintf("GUARD_TEST=%d.%d", os.Getpid(), time.Now().UnixNano())
	cmd = exec.Command(exe, append([]string{"--starter", marker}, scripts...)...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("starter: %q, %v", line, err)
	}
	for _, f := range strings.Fields(line) {
		pid, err := strconv.Atoi(f)
		if err != nil {
			t.Fatalf("starter: %q", line)
		}
		pids = append(pids, pid)
	}
	return cmd, pids[0], pids[1:]
}

func TestStarterIsKilled(t *testing.T) {
	for _, c := range []struct {
		name, script string
		dies         bool
	}{
		{"a group in the ledger", "+sleep 100", true},
		{"one that ignores signals", "+trap '' HUP INT TERM; while :; do sleep 1; done", true},
		{"one with the marker", "!exec sleep 100", true},
		{"the marker behind a large environment", "!V=$(head -c 100000 /dev/zero | tr '\\0' x); export V; exec sleep 100", true},
		{"a stranger", ".exec sleep 100", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			testenv.NoLeaks(t)
			cmd, guardian, pids := start(t, c.script)
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			cmd.Wait()
			awaitEnd(t, guardian)
			if c.dies {
				awaitEnd(t, pids[0])
			} else {
				stop(t, pids[0]) // one that was sent KILL would end instead
			}
			syscall.Kill(-pids[0], syscall.SIGKILL)
		})
	}
}

func TestGuardianBlocksSignalsAndClosesDescriptors(t *testing.T) {
	testenv.NoLeaks(t)
	cmd, guardian, _ := start(t)
	defer cmd.Wait()
	defer cmd.Process.Kill()
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGURG, syscall.SIGPROF, syscall.SIGSEGV} {
		if err := syscall.Kill(guardian, s); err != nil {
			t.Fatal(err)
		}
	}
	proc := fmt.Sprintf("/proc/%d/", guardian)
	// It may not have come to the end of its preparations.
	var fds []os.DirEntry
	var name []byte
	var cwd string
	defer func() {
		if t.Failed() {
			t.Logf("it has %d descriptors, name %q, directory %s", len(fds), name, cwd)
		}
	}()
	testenv.Await(t, 5*time.Second, "2 descriptors at most (the pipe, and a socket to the second), name gorun-guardian, directory /proc", func() bool {
		var err error
		if fds, err = os.ReadDir(proc + "fd"); err != nil {
			t.Fatalf("a signal ended it: %v", err)
		}
		name, _ = os.ReadFile(proc + "comm")
		cwd, _ = os.Readlink(proc + "cwd")
		return len(fds) <= 2 && string(name) == "gorun-guardian\n" && cwd == "/proc"
	})
	// In a session of its own: sixth field of stat, and leader of it.
	stat, err := os.ReadFile(proc + "stat")
	if err != nil {
		t.Fatal(err)
	}
	if f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])); f[3] != strconv.Itoa(guardian) {
		t.Errorf("session: got %s, want %d", f[3], guardian)
	}
}

func TestReleaseKillsNobody(t *testing.T) {
	testenv.NoLeaks(t)
	marker := fmt.Sprintf("GUARD_TEST=%d.release", os.Getpid())
	for range 50 {
		g, err := Start(marker, 0)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("sleep", "100")
		cmd.Env = []string{marker}
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		g.Add(cmd.Process.Pid)
		g.Release()
		if err := g.Wait(); err != nil {
			t.Errorf("Wait: %v", err)
		}
		if alive(g.PID()) {
			t.Errorf("the guardian lives after Wait")
		}
		if !alive(cmd.Process.Pid) {
			t.Errorf("a process died though its guardian had been released")
		}
		cmd.Process.Kill()
		cmd.Wait()
	}
}

func TestStartRefusesMarkers(t *testing.T) {
	testenv.NoLeaks(t)
	for _, marker := range []string{"", strings.Repeat("x", maxMarker+1)} {
		if g, err := Start(marker, 0); err == nil {
			g.Wait()
			t.Errorf("marker of %d bytes: got no error", len(marker))
		}
	}
	g, err := Start("A="+strings.Repeat("x", maxMarker-2), 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
}

func TestSearch(t *testing.T) {
	l, err := newLedger("A=marker")
	if err != nil {
		t.Fatal(err)
	}
	defer l.free()
	for _, c := range []struct {
		name, environ string
		want          bool
	}{
		{"nothing", "", false},
		{"alone", "A=marker\x00", true},
		{"behind another", "B=1\x00A=marker\x00C=2\x00", true},
		{"longer", "A=marker2\x00", false},
		{"shorter", "A=marke\x00", false},
		{"end of another", "BA=marker\x00", false},
		{"not ended", "A=marker", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := copy(l.environ[:], c.environ)
			if got := l.search(uintptr(n)); got != c.want {
				t.Errorf("search %q: got %v, want %v", c.environ, got, c.want)
			}
		})
	}
}

func BenchmarkGuardian(b *testing.B) {
	for b.Loop() {
		g, err := Start("GUARD_TEST=bench", 0)
		if err != nil {
			b.Fatal(err)
		}
		g.Release()
		if err := g.Wait(); err != nil {
			b.Fatal(err)
		}
	}
}

// What is left in the job directory goes with the starter, whatever it is, and
// what is linked to stays.
func TestDirectoryIsRemovedWithTheStarter(t *testing.T) {
	testenv.NoLeaks(t)
	top := t.TempDir()
	dir, kept := filepath.Join(top, "job"), filepath.Join(top, "kept")
	if err := os.MkdirAll(kept, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(kept, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, sub := range []string{"a/b/c/d/e", "a/x", "many", ".hidden/..dots"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 2000 { // more than the guardian reads at once
		if err := os.WriteFile(filepath.Join(dir, "many", fmt.Sprintf("file-with-a-name-%d", i)), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(kept, filepath.Join(dir, "a", "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(kept, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	cmd, guardian, _ := start(t, "="+dir)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	awaitEnd(t, guardian)
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the directory stays: %v", err)
	}
	if _, err := os.Stat(filepath.Join(kept, "file")); err != nil {
		t.Errorf("what a link led to: %v", err)
	}
}

func TestRemoveRefusesDirectories(t *testing.T) {
	testenv.NoLeaks(t)
	g, err := Start("A=refused", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Wait()
	for _, dir := range []string{"", "/", "relative", "/tmp/../etc", "/" + strings.Repeat("x", maxDir)} {
		if err := g.Remove(dir); err == nil {
			t.Errorf("%.20q: got no error", dir)
		}
	}
}

// Files like those of the job go if nobody has them and they are of its time.
func TestUnusedFilesAreRemoved(t *testing.T) {
	testenv.NoLeaks(t)
	dir, err := os.MkdirTemp("/dev/shm", "gorun-guard-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	write := func(name string) *os.File {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Truncate(4096); err != nil {
			t.Fatal(err)
		}
		return f
	}
	write("mpi_old").Close()
	// A later time of the clock that files have.
	for begun := now(); now() == begun; {
		runtime.Gosched()
	}
	cmd, guardian, _ := start(t, "-"+dir+"/mpi_")
	for i := range 1000 { // more than the guardian reads at once
		write(fmt.Sprint("mpi_left_by_a_rank_that_has_died_", i)).Close()
	}
	write("mpx_another").Close()
	open := write("mpi_open")
	defer open.Close()
	file := write("mpi_mapped")
	mapped, err := syscall.Mmap(int(file.Fd()), 0, 4096, syscall.PROT_READ, syscall.MAP_SHARED)
	file.Close()
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Munmap(mapped)
	target := write("target")
	target.Close()
	if err := os.Symlink(target.Name(), filepath.Join(dir, "mpi_link")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "mpi_fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "mpi_dir"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	awaitEnd(t, guardian)
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, e := range entries {
		left = append(left, e.Name())
	}
	if want := []string{"mpi_dir", "mpi_fifo", "mpi_link", "mpi_mapped", "mpi_old", "mpi_open", "mpx_another", "target"}; !slices.Equal(left, want) {
		t.Errorf("left: %.200q, want %q", left, want)
	}
}

func TestRemoveUnusedRefuses(t *testing.T) {
	testenv.NoLeaks(t)
	g, err := Start("A=refused", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Wait()
	for _, prefixes := range [][]string{{""}, {"mpi_"}, {"/dev/shm/"}, {"/" + strings.Repeat("x", 100)}, {"/" + strings.Repeat("x", 100) + "/y"}, slices.Repeat([]string{"/a/b"}, maxLeftovers+1)} {
		if err := g.RemoveUnused(prefixes...); err == nil {
			t.Errorf("%q: no error", prefixes)
		}
	}
}

// A starter that keeps its lease lives. The lease is one that a busy machine lets it keep.
func TestStarterThatKeepsItsLeaseLives(t *testing.T) {
	testenv.Part(t, testenv.Timed)
	const lease = 4 * time.Second
	cmd, guardian, pids := start(t, "~"+lease.String(), "+exec sleep 1000")
	kept := time.Now()
	testenv.Await(t, 60*time.Second, "more than a lease", func() bool { return time.Since(kept) > lease+lease/2 })
	if !alive(cmd.Process.Pid) || !alive(pids[0]) {
		t.Error("a starter that keeps its lease was killed")
	}
	_ = cmd.Process.Kill()
	_, _ = cmd.Process.Wait()
	awaitEnd(t, pids[0])
	awaitEnd(t, guardian)
}

// A starter that is stopped is killed when its lease is over, and what it has started
// with it.
func TestStoppedStarterIsKilledWhenItsLeaseIsOver(t *testing.T) {
	testenv.Part(t, testenv.Timed)
	const lease = time.Second
	cmd, guardian, pids := start(t, "~"+lease.String(), "+exec sleep 1000")
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	stopped := time.Now()
	awaitEnd(t, pids[0])
	if took := time.Since(stopped); took < lease/2 {
		t.Errorf("killed after %v, before its lease was over", took)
	}
	awaitEnd(t, guardian)
	if state, err := cmd.Process.Wait(); err != nil || state.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("the starter ended with %v, %v; want KILL", state, err)
	}
}

// A starter that is not stopped, and gets no CPU to keep its lease, has several; one that hangs is killed then.
func TestStarterThatHangsIsKilledAfterSomeLeases(t *testing.T) {
	testenv.Part(t, testenv.Timed)
	const lease = 250 * time.Millisecond
	begun := time.Now()
	cmd, guardian, pids := start(t, "^"+lease.String(), "+exec sleep 1000")
	awaitEnd(t, pids[0])
	if took := time.Since(begun); took < hangLeases*lease/2 {
		t.Errorf("killed after %v, want %d leases of %v", took, hangLeases, lease)
	}
	awaitEnd(t, guardian)
	if state, err := cmd.Process.Wait(); err != nil || state.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("the starter ended with %v, %v; want KILL", state, err)
	}
}
