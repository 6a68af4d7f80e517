package host

import (
	"bufio"
	"math"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/shm"
	"github.com/gorun-mpi/gorun/internal/testenv"
)

// TestLeaves looks at processes that are on their way out, and at others.
func TestLeaves(t *testing.T) {
	testenv.NoLeaks(t)
	for _, c := range []struct {
		name, script string
		tells        bool // by a line when it is there; else it ends or stops
		want         way
	}{
		{"sleeps", "echo; exec sleep 100", true, stays},
		{"runs", "echo; while :; do :; done", true, stays},
		{"runs since its child has ended", "sh -c :; echo; while :; do :; done", true, mayLeave},
		{"has a child that sleeps", "sh -c 'echo; exec sleep 100'; exit", true, stays},
		{"has ended", ":", false, leaves},
		{"has a child that was killed, and has yet to see it", "sh -c 'kill -STOP $PPID; until grep -q ^State:.T /proc/$PPID/status; do :; done; kill -9 $$'; exit", false, mayLeave},
	} {
		cmd := exec.Command("sh", "-c", c.script)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if !c.tells {
			// Until it has ended, or stopped and its child, who has the pipe too,
			// has ended: then waitid returns.
			var info unix.Siginfo
			if err := unix.Waitid(unix.P_PID, cmd.Process.Pid, &info, unix.WEXITED|unix.WSTOPPED|unix.WNOWAIT, nil); err != nil {
				t.Fatal(err)
			}
			deadline := testenv.Deadline(t, 30*time.Second)
			for wayOf(cmd.Process.Pid, 2) != c.want && deadline.Err() == nil {
			}
		} else if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		if got := wayOf(cmd.Process.Pid, looksDepth); got != c.want {
			t.Errorf("a process that %s: got %v, want %v", c.name, got, c.want)
		}
		if err := unix.Kill(-cmd.Process.Pid, unix.SIGKILL); err != nil {
			t.Error(err)
		}
		_ = cmd.Wait()
	}
}

func TestKillPending(t *testing.T) {
	for text, want := range map[string]bool{
		"Name:\ta\nSigPnd:\t0000000000000100\nShdPnd:\t0000000000000000\n": true,
		"Name:\ta\nSigPnd:\t0000000000004100\nShdPnd:\t0000000000004000\n": true,
		"Name:\ta\nSigPnd:\t0000000000004000\nShdPnd:\t0000000000000100\n": false,
		"Name:\ta\nSigPnd:\t0000000000000000\nShdPnd:\t0000000000000000\n": false,
		"Name:\tSigPnd:\t0000000000000100\n":                               false,
		"":                                                                 false,
	} {
		if got := killPending(text); got != want {
			t.Errorf("%q: got %v, want %v", text, got, want)
		}
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil || !strings.Contains(string(status), "\nSigPnd:\t") {
		t.Errorf("this kernel writes no SigPnd (%v): %s", err, status)
	}
}

// A host marks ranks of other hosts alone, where the job goes on: it knows of its own, and what is no rank has no mark.
func TestMournMarksRanksOfOtherHosts(t *testing.T) {
	for _, c := range []struct {
		continuous   bool
		hosts, marks int
	}{{true, 2, 4}, {true, 1, 0}, {false, 2, 0}} {
		h := assemble(Spec{NP: 4, Hosts: c.hosts, Continuous: c.continuous, Ranks: []RankSpec{{Rank: 1}, {Rank: 2}}}, Config{})
		g := h.spec.geometry(math.MaxUint64)
		if g.World != c.marks {
			t.Errorf("%+v: %d marks", c, g.World)
		}
		var err error
		if h.segment, err = shm.NewLocal(g); err != nil {
			t.Fatal(err)
		}
		h.obey(Command{Kind: Mourn, Ranks: []int{3, 2, -1, 4, 1 << 40}})
		for rank := range 5 {
			if got, want := h.segment.DeadElsewhere(rank), rank == 3 && c.marks > 0; got != want {
				t.Errorf("%+v: rank %d is dead elsewhere: %v, want %v", c, rank, got, want)
			}
		}
		if h.segment.Dead(0) || h.segment.Dead(1) {
			t.Errorf("%+v: a rank of this host is dead", c)
		}
		if err := h.segment.Close(); err != nil {
			t.Error(err)
		}
	}
}
