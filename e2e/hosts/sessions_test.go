package hosts

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testbed"
	"github.com/gorun-mpi/gorun/internal/testenv"
)

// stateOf is whether a process is stopped, and whether it leads a session.
func stateOf(t *testing.T, pid int) (stopped, leads bool) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	field := func(name string) string {
		_, rest, _ := strings.Cut(string(text), "\n"+name+":\t")
		value, _, _ := strings.Cut(rest, "\n")
		return value
	}
	return strings.HasPrefix(field("State"), "T"), field("NSpid") == field("NSsid") // as each namespace sees them
}

// Ranks of MPICH on several hosts have sessions of their own, and those of Go have none. TSTP stops both, as ^Z does, CONT
// has them go on, and the end of gorun is theirs.
func TestRanksOfMPICHLeadSessions(t *testing.T) {
	testenv.Part(t, testenv.Hosts)
	b := testbed.New(t, 2)
	for _, c := range []struct {
		name  string
		argv  []string
		leads bool
	}{
		{"MPICH", []string{compiled(t, b, "mpicc.mpich", "stay")}, true},
		{"Go", []string{filepath.Join(bin, "rank"), "idle"}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := b.Hosts[0].Command(t.Context(), append([]string{filepath.Join(bin, "gorun"), "-H", "h1,h2"}, c.argv...)...)
			if cmd.SysProcAttr == nil {
				cmd.SysProcAttr = &syscall.SysProcAttr{}
			}
			cmd.SysProcAttr.Setpgid = true // in an orphaned group, as this test's may be, TSTP does nothing
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			line := strings.Join(c.argv, " ")
			var ranks []int
			testenv.Await(t, 20*time.Second, "a rank on each host", func() bool {
				ranks = nil
				for _, h := range b.Hosts {
					for pid, is := range h.Processes() {
						if is == line {
							ranks = append(ranks, pid)
						}
					}
				}
				return len(ranks) == 2
			})
			for _, pid := range ranks {
				if _, leads := stateOf(t, pid); leads != c.leads {
					t.Errorf("rank %d leads a session: %v, want %v", pid, leads, c.leads)
				}
			}
			gorun := b.Hosts[0].First(func(line string) bool { return strings.HasPrefix(line, filepath.Join(bin, "gorun")+" ") })
			// nsenter stops with gorun, and has it go on.
			those := append(slices.Clone(ranks), gorun, cmd.Process.Pid)
			all := func(stopped bool) func() bool {
				return func() bool {
					return !slices.ContainsFunc(those, func(pid int) bool {
						is, _ := stateOf(t, pid)
						return is != stopped
					})
				}
			}
			for _, step := range []struct {
				to      int
				signal  syscall.Signal
				stopped bool
			}{{gorun, syscall.SIGTSTP, true}, {cmd.Process.Pid, syscall.SIGCONT, false}} {
				if err := syscall.Kill(step.to, step.signal); err != nil {
					t.Fatal(err)
				}
				testenv.Await(t, 20*time.Second, fmt.Sprintf("all after %v", step.signal), all(step.stopped))
			}
			if err := syscall.Kill(gorun, syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait() // by a signal
			b.Idle(leftLimit)
		})
	}
}
