package hosts

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testbed"
	"github.com/gorun-mpi/gorun/internal/testenv"
)

// A survival is a job of three hosts with a rank on each, of which rank 1 dies, in whatever way.
type survival struct {
	cmd    *exec.Cmd // gorun; ranks is behind its options
	dir    string
	call   string // that ranks 0 and 2 wait in
	status int
	strike func()
}

// ranks is what the ranks of a survival run.
func ranks(call string) []string { return []string{filepath.Join(bin, "rank"), "survive", call} }

// heardLimit is how long survivors may take to go on behind the verdict. It takes some 10 ms where a process that
// wakes gets a CPU, which is not so beside whatever else CI's machine does. The log has what it took.
func heardLimit() time.Duration {
	if *all {
		return time.Second
	}
	return 10 * time.Second
}

// play plays it, and wants the survivors to have heard of the death from gorun, and gone on.
func (s *survival) play(t *testing.T) {
	t.Helper()
	for _, name := range []string{"struck", "up.0", "up.1", "up.2"} {
		_ = os.Remove(filepath.Join(s.dir, name))
	}
	complaints, err := os.Create(filepath.Join(t.TempDir(), "complaints"))
	if err != nil {
		t.Fatal(err)
	}
	defer complaints.Close()
	says := func() string {
		text, _ := os.ReadFile(complaints.Name())
		return string(text)
	}
	var out bytes.Buffer
	s.cmd.Stdout, s.cmd.Stderr, s.cmd.WaitDelay = &out, complaints, time.Second
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	testenv.Await(t, time.Minute, "ranks on all hosts", func() bool {
		up, _ := filepath.Glob(filepath.Join(s.dir, "up.*"))
		return len(up) == 3
	})
	struck := time.Now()
	s.strike()
	var verdict time.Time
	testenv.Await(t, 20*time.Second, "gorun's verdict", func() (ok bool) {
		verdict, ok = given(says(), struck)
		return ok
	})
	took := verdict.Sub(struck)
	if s.call == "late recv" {
		verdict = time.Now() // they wait for this file, and then for rank 1
	}
	if err := os.WriteFile(filepath.Join(s.dir, "struck"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	_ = s.cmd.Wait()
	ended, text := time.Now(), says()
	if got := s.cmd.ProcessState.ExitCode(); got != s.status {
		t.Errorf("status %d, want %d", got, s.status)
	}
	said := regexp.MustCompile(`(?m)^rank [02]: 2 survivors, failed (\d+), shrunk (\d+): `).FindAllStringSubmatch(out.String(), -1)
	if len(said) != 2 {
		t.Fatalf("not two survivors\n%s%s", &out, text)
	}
	var failed, shrunk []time.Duration
	for _, s := range said {
		for i, list := range []*[]time.Duration{&failed, &shrunk} {
			var at int64
			_, _ = fmt.Sscan(s[1+i], &at)
			*list = append(*list, time.Unix(0, at).Sub(verdict))
		}
	}
	t.Logf("verdict after %v, calls failed %v and Shrink was over %v behind it, the job %v behind that",
		took.Round(time.Millisecond), failed, shrunk, ended.Sub(verdict.Add(slices.Max(shrunk))).Round(time.Millisecond))
	if most := slices.Max(shrunk); most > heardLimit() {
		t.Errorf("the survivors have gone on %v after the verdict, want %v at most\n%s%s", most, heardLimit(), &out, text)
	}
	// In a first receive nothing else can tell so soon, but the other survivor, which has heard it and has revoked.
	told, revoked := strings.Count(out.String(), "the process has died, or its host is lost"), strings.Count(out.String(), "has called Revoke")
	if strings.Contains(s.call, "recv") && (told == 0 || told+revoked != len(said)) {
		t.Errorf("gorun's word is not what the calls have ended with\n%s", &out)
	}
}

// given is when gorun has given up a rank or a host, of what it says with -v.
func given(text string, struck time.Time) (at time.Time, ok bool) {
	m := regexp.MustCompile(`(?m)^\[(\d\d:\d\d:\d\d):(\d{6})\].* a failure, and the job goes on`).FindStringSubmatch(text)
	if m == nil {
		return at, false
	}
	clock, err := time.Parse("15:04:05.000000", m[1]+"."+m[2])
	if err != nil {
		return at, false
	}
	at = time.Date(struck.Year(), struck.Month(), struck.Day(), clock.Hour(), clock.Minute(), clock.Second(), clock.Nanosecond(), time.Local)
	if at.Before(struck.Add(-time.Hour)) { // midnight has passed
		at = at.Add(24 * time.Hour)
	}
	return at, true
}

// Ranks hear at once that gorun has given up a rank of another host, or that host, in whatever call they wait, and go on
// by Shrink. Without that word they would find out by their connections: after many seconds where a host is cut off, or
// never, if they have none.
func TestSurvivorsHearAtOnce(t *testing.T) {
	testenv.Part(t, testenv.Hosts)
	b := testbed.New(t, 3)
	victim := b.Hosts[1]
	signal := func(part string, sig syscall.Signal) func() {
		return func() {
			pid := victim.First(func(line string) bool {
				return strings.Contains(line, part) && !strings.HasPrefix(line, "sh -c cd")
			})
			if err := syscall.Kill(pid, sig); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, f := range []struct {
		name   string
		calls  []string // of which CI plays two
		status int
		strike func()
	}{
		{"kill -9 of a rank", []string{"recv", "late recv", "busy", "allreduce", "send"}, 137, signal(bin+"/rank", syscall.SIGKILL)},
		{"kill -9 of an agent", []string{"agree", "recv from any"}, 1, signal("gorun-agent", syscall.SIGKILL)},
		{"link down for ever", []string{"busy", "shrink", "allreduce", "recv", "send", "agree", "recv from any", "late recv"}, 1, func() { victim.Link(false) }},
	} {
		for i, call := range f.calls {
			if i > 1 && !*all {
				continue
			}
			t.Run(f.name+", in "+call, func(t *testing.T) {
				defer victim.Link(true)
				argv := append([]string{filepath.Join(bin, "gorun"), "-v", "--enable-recovery", "-H", "h1,h2,h3"}, ranks(call)...)
				s := survival{cmd: b.Hosts[0].Command(testenv.Deadline(t, 90*time.Second), argv...), dir: b.Dir, call: call, status: f.status, strike: f.strike}
				s.play(t)
				b.Idle(leftLimit) // also the host that is cut off
				for _, h := range b.Hosts {
					if left := h.Files(); left != nil {
						t.Errorf("left on %s: %v", h.Name, left)
					}
				}
			})
		}
	}
}

// The same with agents of this machine, which needs no rights.
func TestSurvivorsOfForkedAgentsHearAtOnce(t *testing.T) {
	testenv.Part(t, testenv.Hosts)
	for _, f := range []struct {
		name   string
		calls  []string
		status int
		of     int // of up.1's pids
	}{
		{"kill -9 of a rank", []string{"recv", "late recv", "busy", "allreduce", "send", "agree", "shrink", "recv from any"}, 137, 0},
		{"kill -9 of an agent", []string{"recv", "agree"}, 1, 1},
	} {
		for _, call := range f.calls {
			t.Run(f.name+", in "+call, func(t *testing.T) {
				dir := t.TempDir()
				cmd := exec.CommandContext(testenv.Deadline(t, 90*time.Second), filepath.Join(bin, "gorun"),
					append([]string{"-v", "--enable-recovery", "--launcher", "fork", "-H", "a,b,c"}, ranks(call)...)...)
				cmd.Dir = dir
				s := survival{cmd: cmd, dir: dir, call: call, status: f.status, strike: func() {
					var pids [2]int
					text, err := os.ReadFile(filepath.Join(dir, "up.1"))
					if err == nil {
						_, err = fmt.Sscan(string(text), &pids[0], &pids[1])
					}
					if err == nil {
						err = syscall.Kill(pids[f.of], syscall.SIGKILL)
					}
					if err != nil {
						t.Fatal(err)
					}
				}}
				s.play(t)
			})
		}
	}
}
