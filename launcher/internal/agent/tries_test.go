package agent

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/internal/version"
	"github.com/gorun-mpi/gorun/launcher/internal/host"
)

// shell starts a script as the remote shell of a link.
func shell(t *testing.T, script string, again Again) *Link {
	t.Helper()
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	l, err := Start([]string{"sh", "-c", script}, os.Environ(), "h", &Shell{Again: again})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// A remote shell that ends is started again, and the last one reads what was written at first.
func TestStartAgainReadsTheInput(t *testing.T) {
	testenv.NoLeaks(t)
	count := filepath.Join(t.TempDir(), "count")
	var heard []string
	l := shell(t, `echo x >>`+count+`; if [ $(wc -l <`+count+`) -lt 3 ]; then echo no $(wc -l <`+count+`) >&2; exit 255; fi; head -c 5 | wc -c >&2; exit 7`, func(tries int, said []string) (time.Duration, bool) {
		heard = append(heard, strings.Join(said, "|"))
		return 0, tries < 3
	})
	if err := l.out.put(order{Ping: true}); err != nil {
		t.Fatal(err)
	}
	_, _ = pipes{l}.Read(make([]byte, 1)) // its end
	how, said := l.Close()
	if how != "exited with status 7" || len(heard) != 3 || heard[0] != "no 1" || heard[1] != "no 2" || len(said) != 1 || said[0] != "5" {
		t.Errorf("heard %q, at last %q, %q; want the complaint of each, status 7 and 5 bytes of the order", heard, how, said)
	}
}

// Close and Kill end the pause between two tries.
func TestCloseBetweenTries(t *testing.T) {
	testenv.NoLeaks(t)
	for _, kill := range []bool{false, true} {
		judged := make(chan struct{})
		l := shell(t, "exit 255", func(int, []string) (time.Duration, bool) {
			close(judged)
			return time.Hour, true
		})
		<-judged
		if kill {
			l.Kill()
		}
		if how, _ := l.Close(); how != "was not started again" && how != "exited with status 255" {
			t.Errorf("kill %v: %s", kill, how)
		}
	}
}

// A remote shell whose turn has not come is not late, and is not started when it need not be.
func TestNoShellWithoutAPlace(t *testing.T) {
	testenv.NoLeaks(t)
	gate := NewGate(1)
	gate <- struct{}{}
	l, err := Start([]string{"sh", "-c", "echo started >&2"}, os.Environ(), "h", &Shell{Gate: gate})
	if err != nil {
		t.Fatal(err)
	}
	if l.Waits() != 0 || l.origin.process() != 0 {
		t.Errorf("it waits for %v, process %d; want neither", l.Waits(), l.origin.process())
	}
	l.Send(host.Command{Kind: host.End})
	if how, said := l.Close(); how != "was not started" || len(said) != 0 || len(gate) != 1 {
		t.Errorf("it %s, said %q, and %d places are taken; want that it was not started, and 1", how, said, len(gate))
	}
}

// A remote shell has no descriptors here before its turn, six while it is under way, and three when the agent is there.
func TestDescriptorsOfAShell(t *testing.T) {
	testenv.NoLeaks(t)
	open := func() (n int) {
		list, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range list {
			if to, _ := os.Readlink("/proc/self/fd/" + e.Name()); strings.HasPrefix(to, "pipe:") {
				n++
			}
		}
		return n
	}
	before := open()
	gate := NewGate(1)
	gate <- struct{}{}
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := Start([]string{"sh", "-c", `read x <` + fifo + `; printf '\000gorun-agent ` + version.Number + " " + streamVersion + ` 1\n'; exec cat >&2`}, os.Environ(), "h", &Shell{Gate: gate})
	if err != nil {
		t.Fatal(err)
	}
	if n := open() - before; n != 0 {
		t.Errorf("before its turn it has %d descriptors, want none", n)
	}
	<-gate
	testenv.Await(t, time.Minute, "the shell to run", func() bool { return l.origin.process() != 0 })
	if n := open() - before; n != 6 {
		t.Errorf("under way it has %d descriptors, want 6", n)
	}
	if err := os.WriteFile(fifo, []byte("go\n"), 0); err != nil {
		t.Fatal(err)
	}
	if err := l.greet(); err != nil {
		t.Fatal(err)
	}
	if n := open() - before; n != 3 {
		t.Errorf("with its agent it has %d descriptors, want 3", n)
	}
	if how, _ := l.Close(); how != "exited with status 0" {
		t.Errorf("it %s, want status 0: its input has ended", how)
	}
	if n := open() - before; n != 0 {
		t.Errorf("closed it has %d descriptors, want none", n)
	}
}

// Kill ends a remote shell that hangs, which is not judged.
func TestKillIsTheLastTry(t *testing.T) {
	testenv.NoLeaks(t)
	l := shell(t, "exec sleep 1000", func(int, []string) (time.Duration, bool) {
		t.Error("judged")
		return 0, true
	})
	testenv.Await(t, time.Minute, "the shell to run", func() bool { return l.Waits() > 0 })
	l.Kill()
	if how, _ := l.Close(); !strings.Contains(how, "signal 9") {
		t.Error(how)
	}
}

// A start that hangs, as on a file system that does not answer, holds up nobody who ends the host; what comes of it is killed.
func TestKillWhileTheStartHangs(t *testing.T) {
	testenv.NoLeaks(t)
	begun, release := make(chan struct{}), make(chan struct{})
	tr := newTries(nil)
	tr.start = func() (int, error) {
		close(begun)
		<-release
		sleep, err := exec.LookPath("sleep")
		if err != nil {
			return 0, err
		}
		return launch(sleep, []string{"sleep", "1000"}, nil, [3]int{0, 1, 2}, false)
	}
	killed := make(chan struct{})
	go func() {
		<-begun
		tr.signal(unix.SIGKILL)
		close(killed)
	}()
	late := time.AfterFunc(testenv.Limit(10*time.Second), func() {
		t.Error("kill waits for the start")
		close(release)
	})
	go func() {
		<-killed
		if late.Stop() {
			close(release)
		}
	}()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if !tr.next() {
		t.Fatal(tr.failed)
	}
	awaitEnd(tr.process())
	if status := tr.reap(); status.Signal() != unix.SIGKILL {
		t.Errorf("it ended with %v", status)
	}
	<-killed
}

// A remote shell that has not reached its host is asked to end, as srun has a step to end, and killed if it does not.
func TestSendAsksARemoteShellToEnd(t *testing.T) {
	for how, script := range map[string]string{
		"exited with status 3":            `trap 'kill $!; exit 3' TERM; sleep 1000 & echo >'%s'; wait`,
		"was killed by signal 9 (killed)": `trap '' TERM; echo >'%s'; exec sleep 1000`,
	} {
		t.Run(how, func(t *testing.T) {
			testenv.NoLeaks(t)
			file := filepath.Join(t.TempDir(), "ready")
			l := shell(t, fmt.Sprintf(script, file), func(int, []string) (time.Duration, bool) {
				t.Error("judged")
				return 0, true
			})
			testenv.Await(t, time.Minute, "the shell to be ready", func() bool { _, err := os.Stat(file); return err == nil && l.origin.process() > 0 })
			l.Send(host.Command{Kind: host.End})
			awaitEnd(l.origin.process())
			if got, _ := l.Close(); got != how {
				t.Errorf("it %s, want that it %s", got, how)
			}
		})
	}
}

// A remote shell has a session of its own: no terminal to ask on, and its own share of the CPUs.
func TestASessionOfItsOwn(t *testing.T) {
	l, err := Start([]string{"sh", "-c", "cut -d' ' -f1,6 /proc/$$/stat >&2"}, os.Environ(), "h", &Shell{})
	if err != nil {
		t.Fatal(err)
	}
	// Its end is the end of its output.
	if _, err := l.Machine(10*time.Second, 10*time.Second); err == nil {
		t.Error("a shell without an agent has answered")
	}
	_, complaints := l.Close()
	if f := strings.Fields(strings.Join(complaints, " ")); len(f) != 2 || f[0] != f[1] {
		t.Errorf("process and session are %q", f)
	}
}
