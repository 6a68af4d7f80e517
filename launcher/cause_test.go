package launcher

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/launcher/internal/host"
	"github.com/gorun-mpi/gorun/launcher/internal/place"
)

// TestCauseExplains has one failure known before another that may have caused it.
func TestCauseExplains(t *testing.T) {
	exit := Cause{Rank: 1, Host: "b", Status: 1}
	abort := Cause{Rank: 1, Host: "b", Status: 1, Aborted: true}
	signal := func(rank int, s syscall.Signal) Cause {
		return Cause{Rank: rank, Host: "a", Status: statusSignal + int(s), Signal: s}
	}
	shell := Cause{Rank: 0, Host: "a", Status: 137}
	lost := Cause{Rank: -1, Host: "a", Status: 1, lost: true}
	helper := Cause{Rank: -1, Host: "b", Status: 1, lost: true}
	timeout := Cause{Rank: -1, Status: statusTimeout}
	fence := Cause{Rank: 2, Host: "b", Status: 1, elsewhere: true}
	socket := Cause{Rank: 3, Host: "c", Status: openMPILost, Aborted: true, elsewhere: true}
	for _, c := range []struct {
		name   string
		first  Cause
		second Cause
		want   bool
	}{
		{"exit, then a kill", exit, signal(0, syscall.SIGKILL), true},
		{"exit, then a fault", exit, signal(0, syscall.SIGSEGV), true},
		{"exit, then abort(3)", exit, signal(0, syscall.SIGABRT), true},
		{"exit, then a shell whose program was killed", exit, shell, true},
		{"exit, then the loss of a host", exit, lost, true},
		{"exit, then the death of its host's PMIx helper", exit, helper, true},
		{"exit, then another", exit, Cause{Rank: 0, Host: "a", Status: 2}, false},
		{"exit, then SIGPIPE", exit, signal(0, syscall.SIGPIPE), false},
		{"exit, then MPI_Abort", exit, Cause{Rank: 0, Host: "a", Status: 2, Aborted: true}, false},
		{"exit, then the timeout", exit, timeout, false},
		{"MPI_Abort, then a kill", abort, signal(0, syscall.SIGKILL), true},
		{"MPI_Abort with 137, then an exit", Cause{Rank: 1, Host: "b", Status: 137, Aborted: true}, exit, false},
		{"MPI_Abort, then the kill of that rank", abort, signal(1, syscall.SIGKILL), false},
		{"a kill, then an exit", signal(0, syscall.SIGKILL), exit, false},
		{"a kill, then another", signal(0, syscall.SIGKILL), signal(1, syscall.SIGKILL), false},
		{"a kill, then the loss of a host", signal(1, syscall.SIGKILL), lost, false},
		{"abort(3), then a kill", signal(1, syscall.SIGABRT), signal(0, syscall.SIGKILL), true},
		{"a fence that another host broke, then an exit", fence, exit, true},
		{"exit, then a fence that another host broke", exit, fence, false},
		{"Open MPI has lost a connection, then an exit", socket, exit, true},
		{"Open MPI has lost a connection, then MPI_Abort", socket, abort, true},
		{"exit, then Open MPI loses a connection", exit, socket, false},
		{"the timeout, then a kill", timeout, signal(0, syscall.SIGKILL), false},
	} {
		if got := c.second.explains(&c.first); got != c.want {
			t.Errorf("%s: the second explains the first: got %v, want %v", c.name, got, c.want)
		}
	}
}

// A rank that has left with status 0 is why others exit and abort then, and not why they are killed.
func TestALeaverExplainsOthers(t *testing.T) {
	leaver := Cause{Rank: 1, Host: "b", Status: 1, Message: "exited with status 0"}
	for _, c := range []struct {
		name   string
		second Cause
		want   int // rank of the job's cause
	}{
		{"another exits", Cause{Rank: 0, Status: 3}, 1},
		{"another aborts", Cause{Rank: 0, Status: 3, Aborted: true}, 1},
		{"a fence fails for it", Cause{Rank: 1, Status: 1, Message: "pmi"}, 1},
		{"another is killed", Cause{Rank: 0, Status: 137, Signal: syscall.SIGKILL}, 0},
		{"the timeout", Cause{Rank: -1, Status: statusTimeout}, -1},
	} {
		job := &Job{Log: slog.New(slog.DiscardHandler)}
		e := ending{job: job, clock: &clock{}, worlds: &worlds{}, hasten: func() {}}
		first := leaver
		e.left(&first)
		if e.cause != nil || e.told {
			t.Errorf("%s: the job ends before", c.name)
		}
		e.fail(&c.second)
		if e.away.Stop(); e.cause == nil || e.cause.Rank != c.want || c.want == 1 && e.cause.Message != first.Message {
			t.Errorf("%s: got %v, want rank %d", c.name, e.cause, c.want)
		}
	}
}

// Open MPI aborts where a connection has ended, which may be known before the end of the process at its other end, and its exit before
// its abort.
func TestAnAbortOfOpenMPIThatLostAConnection(t *testing.T) {
	for _, c := range []struct {
		name   string
		abort  int  // with that status
		pmix   bool // by PMIx
		status int  // of another rank's end, known after it; 0: without MPI_Finalize
		want   int  // rank of the job's cause
	}{
		{"another has exited", openMPILost, true, 3, 1},
		{"another has left", openMPILost, true, 0, 1},
		{"the program's own abort", 7, true, 3, 0},
		{"one of a program of PMI", openMPILost, false, 3, 0},
	} {
		g := &group{apps: []App{{Argv: []string{"p"}}}, shares: []place.Share{{Host: "a"}}, hostOf: []int{0, 0}, appOf: []int{0, 0}, ranks: make([]RankEnd, 2)}
		if c.pmix {
			g.joins = newJoins(2)
			g.joins.connected(0)
		}
		for how, first := range map[string]func(*ending, *seat, host.Event){
			"abort": (*ending).aborted,
			"exit":  func(e *ending, s *seat, ev host.Event) { e.failed(s.failure(ev)) },
		} {
			e := ending{job: &Job{Log: slog.New(slog.DiscardHandler)}, clock: &clock{}, worlds: &worlds{}, hasten: func() {}}
			first(&e, &seat{group: g}, host.Event{Rank: 0, Status: c.abort, Joined: true})
			if c.status == 0 {
				e.left(&Cause{Rank: 1, Status: 1})
			} else {
				e.fail(&Cause{Rank: 1, Status: c.status})
			}
			if e.cause.Rank != c.want {
				t.Errorf("%s, known by its %s: got %v, want that of rank %d", c.name, how, e.cause, c.want)
			}
		}
	}
}

// TestCauseWhenAReportComesLate has a rank die on a host whose agent is stopped, and goes on
// when the exit of a rank of the other host, which has seen it die, is known and the
// stopped agent is told to end its ranks.
func TestCauseWhenAReportComesLate(t *testing.T) {
	for _, c := range []struct {
		name, die string
		status    int
		signal    syscall.Signal
	}{
		{"signal", "kill -9 $$", 137, syscall.SIGKILL},
		{"shell", "sh -c 'kill -9 $$'; exit 137", 137, 0},
	} {
		for _, continuous := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s,continuous=%v", c.name, continuous), func(t *testing.T) {
				testenv.NoLeaks(t)
				dir := t.TempDir()
				script := "if [ $PMI_RANK = 0 ]; then kill -STOP $PPID; echo $$ $PPID >victim; mv victim dies; " + c.die + "; fi; " +
					`until [ -e dies ]; do :; done; read p agent <dies; until grep -sq '^State:.Z' /proc/$p/status; do :; done; exit 1`
				job := Job{NP: 2, Dir: dir, Argv: sh(script), Continuous: continuous}
				overAgents(t, &job, 2)
				job.Watch = func(ch Change) {
					if ch.Kind != RankEnded || ch.Rank != 1 {
						return
					}
					text, err := os.ReadFile(filepath.Join(dir, "dies"))
					var rank, agent int
					if err == nil {
						_, err = fmt.Sscan(string(text), &rank, &agent)
					}
					if err == nil {
						err = syscall.Kill(agent, syscall.SIGCONT)
					}
					if err != nil {
						t.Error(err)
					}
				}
				r, _, stderr, err := runJob(t, job)
				if err != nil || r.Cause == nil || r.Cause.Rank != 0 || r.ExitStatus != c.status || r.Cause.Signal != c.signal {
					t.Errorf("got status %d, cause %v, error %v; %q", r.ExitStatus, r.Cause, err, stderr)
				}
			})
		}
	}
}

// TestContinuousEndsWhenRanksWaitForAnEndedOne has a rank die on one host while those of the
// other wait for it in a fence, and the third of its host computes.
func TestContinuousEndsWhenRanksWaitForAnEndedOne(t *testing.T) {
	testenv.NoLeaks(t)
	job := Job{NP: 4, Continuous: true,
		Argv: roleArgv(t, "pmi", "init", "barrier", "@0", "kill=9", "@1", "sleep=1000000", "barrier", "finalize")}
	overAgents(t, &job, 2)
	start := time.Now()
	r, _, stderr, err := runJob(t, job)
	if err != nil || r.Cause == nil || r.Cause.Rank != 0 || r.ExitStatus != 137 {
		t.Errorf("got status %d, cause %v, error %v; %q", r.ExitStatus, r.Cause, err, stderr)
	}
	if took := time.Since(start); took > testenv.Limit(20*time.Second) {
		t.Errorf("it took %v", took)
	}
}
