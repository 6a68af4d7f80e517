package host

import (
	"fmt"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/proc"
	"github.com/gorun-mpi/gorun/internal/testenv"
)

func TestReportsOfCrashes(t *testing.T) {
	for _, c := range []struct{ text, pid, signal string }{
		{"[vm:12345] *** Process received signal ***\n[vm:12345] Signal: Segmentation fault (11)\n", "12345", "11"},
		{"[node-1.cluster:00042] *** Process received signal ***\n[node-1.cluster:00042] Signal: Aborted (6)\n", "00042", "6"},
		{"[vm:14937:0:14937] Caught signal 11 (Segmentation fault: address not mapped to object at address 0x7fb62b704e67)\n", "14937", "11"},
		{"[vm:14937:1:14940] Caught signal 7 (Bus error: invalid address alignment)\n", "14937", "7"},
		{"[vm:12345] Caught signal at last\n", "", ""},
		{"Process received signal: none\n", "", ""},
	} {
		pid, signal := "", ""
		if found := report.FindStringSubmatch(c.text); found != nil {
			pid = found[1]
		}
		if found := reportSignal.FindStringSubmatch(c.text); found != nil {
			signal = found[1]
		}
		if pid != c.pid || signal != c.signal {
			t.Errorf("%q: got %q, %q, want %q, %q", c.text, pid, signal, c.pid, c.signal)
		}
	}
}

// A process behind its report is ended when nothing of it has moved for crashQuiet, and
// time in which it is stopped does not count.
func TestHungCrashIsEnded(t *testing.T) {
	child := exec.Command("sleep", "1000")
	child.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	pid := child.Process.Pid
	defer unix.Kill(pid, unix.SIGKILL)
	state := func(want byte) {
		t.Helper()
		testenv.Await(t, 20*time.Second, fmt.Sprintf("the process is in state %c", want), func() bool {
			p, ok := proc.Of(pid)
			return ok && p.State == want
		})
	}
	state('S')
	start := time.Now()
	p, _ := proc.Of(pid)
	h := assemble(Spec{}, Config{})
	h.ranks = []rank{{up: true, pid: pid, crash: crash{pid: pid, signal: unix.SIGBUS, cpu: p.CPU, quiet: start}}}
	r := &h.ranks[0]
	look := func(after time.Duration, killed bool) {
		t.Helper()
		h.watcher.crashLook = start
		h.watcher.crashesOnTime(start.Add(after))
		if r.crash.killed != killed {
			t.Errorf("after %v: killed %v, want %v", after, r.crash.killed, killed)
		}
	}
	look(crashQuiet-time.Millisecond, false)
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	state('T')
	look(2*crashQuiet, false)
	if err := unix.Kill(pid, unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	state('S')
	look(3*crashQuiet-time.Millisecond, false)
	look(3*crashQuiet, true)
	_ = child.Wait()
	how, why := r.crashed(end{over: true, status: 137, signal: unix.SIGKILL})
	if how.status != 128+int(unix.SIGBUS) || how.signal != unix.SIGBUS || why == "" {
		t.Errorf("got %+v, %q", how, why)
	}
	if how, why := r.crashed(end{over: true, status: 139, signal: unix.SIGSEGV}); how.status != 139 || why != "" {
		t.Errorf("one that ended by itself: got %+v, %q", how, why)
	}
}
