package launcher

import (
	"errors"
	"fmt"
	"os"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

// Several programs are one job: one world, each with its own arguments,
// environment and directory, and the number of the program as PMI tells it.
func TestSeveralPrograms(t *testing.T) {
	report := func(name string) []string {
		return sh(`echo ` + name + ` $PMI_RANK/$PMI_SIZE $WHO $(pwd) "$OMPI_NUM_APP_CTX|$OMPI_APP_CTX_NUM_PROCS|$OMPI_FIRST_RANKS"`)
	}
	path := "PATH=" + os.Getenv("PATH")
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			testenv.NoLeaks(t)
			job := Job{
				Env: []string{path, "WHO=all"},
				Dir: "/",
				Apps: []App{
					{Argv: report("one"), NP: 1},
					{Argv: report("two"), NP: 2, Env: []string{path, "WHO=two"}, Dir: "/tmp"},
					{Argv: report("three"), NP: 1, Dir: "/dev"},
				},
			}
			job.NP = 4
			overAgents(t, &job, way.hosts)
			job.NP = 0
			r, stdout, stderr, err := runJob(t, job)
			if err != nil || r.ExitStatus != 0 {
				t.Fatalf("got %+v, %v, %q", r, err, stderr)
			}
			lines := strings.Split(strings.TrimSpace(stdout), "\n")
			sort.Strings(lines)
			want := []string{
				"one 0/4 all / 3|1 2 1|0 1 3",
				"three 3/4 all /dev 3|1 2 1|0 1 3",
				"two 1/4 two /tmp 3|1 2 1|0 1 3",
				"two 2/4 two /tmp 3|1 2 1|0 1 3",
			}
			if fmt.Sprint(lines) != fmt.Sprint(want) {
				t.Errorf("got %q, want %q", lines, want)
			}
		})
	}
}

func TestAppNumbers(t *testing.T) {
	ask := append(roleArgv(t, "pmi"), "init", "appnum", "barrier", "finalize")
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			testenv.NoLeaks(t)
			job := Job{NP: 4}
			overAgents(t, &job, way.hosts)
			job.NP, job.Apps = 0, []App{{Argv: ask, NP: 3}, {Argv: ask, NP: 1}}
			r, stdout, stderr, err := runJob(t, job)
			if err != nil || r.ExitStatus != 0 {
				t.Fatalf("got %+v, %v, %q", r, err, stderr)
			}
			lines := strings.Split(strings.TrimSpace(stdout), "\n")
			sort.Strings(lines)
			if got := strings.Join(lines, ", "); got != "0: appnum 0, 1: appnum 0, 2: appnum 0, 3: appnum 1" {
				t.Errorf("got %s", got)
			}
		})
	}
}

// The cause names the program of the rank that failed.
func TestCauseNamesTheProgramThatFailed(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			testenv.NoLeaks(t)
			job := Job{NP: 3, Grace: 400 * time.Millisecond}
			overAgents(t, &job, way.hosts)
			job.NP, job.Apps = 0, []App{{Argv: []string{"sleep", "100"}, NP: 2}, {Argv: sh("exit 9"), NP: 1}}
			r, _, stderr, err := runJob(t, job)
			if err != nil || r.ExitStatus != 9 || r.Cause == nil || r.Cause.Rank != 2 || r.Cause.Program != "sh" {
				t.Fatalf("got %+v, cause %+v, %v, %q", r, r.Cause, err, stderr)
			}
		})
	}
}

func TestRunRefusesBadApps(t *testing.T) {
	one := App{Argv: sh("true"), NP: 1}
	for _, c := range []struct {
		name        string
		job         Job
		field, text string
	}{
		{"both forms", Job{Argv: sh("true"), NP: 1, Apps: []App{one}}, "Apps", "either"},
		{"a number of ranks beside", Job{NP: 2, Apps: []App{one}}, "Apps", "either"},
		{"none", Job{Apps: []App{}}, "Apps", "one or more"},
		{"two without a number of ranks", Job{Apps: []App{{Argv: sh("true")}, {Argv: sh("true")}}}, "NP", "one program only"},
		{"one with fewer than none", Job{Apps: []App{one, {Argv: sh("true"), NP: -1}}}, "NP", "-1"},
		{"one without a program", Job{Apps: []App{one, {NP: 1}}}, "Argv", "no program"},
		{"one is not there", Job{Apps: []App{one, {Argv: []string{"./no-such-file"}, NP: 1}}}, "Argv", "no such program"},
		{"one has no directory", Job{Apps: []App{one, {Argv: sh("true"), NP: 1, Dir: "/no/such"}}}, "Dir", "/no/such"},
		{"too many in all", Job{Apps: []App{{Argv: sh("true"), NP: 1 << 19}, {Argv: sh("true"), NP: 1<<19 + 1}}}, "NP", "or fewer"},
	} {
		t.Run(c.name, func(t *testing.T) {
			testenv.NoLeaks(t)
			_, stdout, stderr, err := runJob(t, c.job)
			var je *JobError
			if !errors.As(err, &je) || je.Field != c.field || !strings.Contains(err.Error(), c.text) {
				t.Errorf("got %v, want field %s with %q; wrote %q, %q", err, c.field, c.text, stdout, stderr)
			}
		})
	}
}
