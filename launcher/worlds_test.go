package launcher

import (
	"os"
	"strings"
	"testing"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

// inARow is a shell script as the program of a rank: "P STEP..." in it is a
// program that plays rolePMI.
func inARow(t testing.TB, script string) []string {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return append(sh(`P() { "$0" --role pmi "$@"; }; cd `+t.TempDir()+"; "+script), exe)
}

// A script may run several MPI programs, one after the other. What one of them
// does in its fences and its key-value space is nothing to the next.
func TestProgramsInARow(t *testing.T) {
	for name, script := range map[string]string{
		"two":    `P init put=K=1 barrier get=K finalize && P init none=K put=K=2 barrier get=K finalize && echo well`,
		"cards":  `P init cards=1000 finalize && P init cards=3000 barrier finalize && P init cards=0 finalize && echo well`,
		"many":   `for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do P init put=K=$i barrier get=K finalize || exit 9; done; echo well`,
		"failed": `P init barrier finalize exit=9; P init barrier finalize && echo well`,
		// Rank 0 is in its first program while the others are in their second.
		"apart": `P init barrier @0 await=second finalize && P init @1 touch=second barrier finalize && echo well`,
		// A child of a program that speaks PMI is no next one.
		"helper": `P init barrier helper barrier finalize && P init helper barrier finalize && echo well`,
		"idle":   `P init finalize && true && P init finalize && P init barrier finalize && echo well`,
	} {
		for _, way := range ways {
			t.Run(name+" "+way.name, func(t *testing.T) {
				testenv.NoLeaks(t)
				job := Job{Argv: inARow(t, script), NP: 4}
				overAgents(t, &job, way.hosts)
				r, stdout, stderr, err := runJob(t, job)
				if err != nil || r.ExitStatus != 0 || strings.Count(stdout, "well\n") != job.NP {
					t.Errorf("got %+v, cause %v, %v, %q, %q", r, r.Cause, err, stdout, stderr)
				}
			})
		}
	}
}

// Whoever does not go on with the others is named, in bounded time.
func TestProgramsLeftOut(t *testing.T) {
	const first = `P init barrier finalize && `
	for name, c := range map[string]struct {
		script string
		hosts  int
		rank   int
		text   string
	}{
		"one":       {first + `{ test $PMI_RANK = 0 || P init barrier finalize; }`, 0, 0, "its process ended after MPI program 1, before init of program 2"},
		"agents":    {first + `{ test $PMI_RANK = 3 || P init barrier finalize; }`, 2, 3, "its process ended after MPI program 1, before init of program 2"},
		"third":     {first + first + `{ test $PMI_RANK = 1 || P init barrier finalize; }`, 0, 1, "after MPI program 2, before init of program 3"},
		"a host":    {first + `{ test $PMI_RANK -ge 2 || P init barrier finalize; }`, 2, 0, "host 1 takes part in no more fences: rank 2: its process ended after MPI program 1"},
		"unready":   {`{ test $PMI_RANK != 2 || P init exit=0; }; P init barrier finalize`, 0, 2, "began an MPI program after one that ended without MPI_Finalize"},
		"no second": {first + `test $PMI_RANK = 0 && exit 5; P init barrier finalize`, 0, 0, "exited with status 5"},
	} {
		t.Run(name, func(t *testing.T) {
			testenv.NoLeaks(t)
			job := Job{Argv: inARow(t, c.script), NP: 4}
			overAgents(t, &job, c.hosts)
			r, stdout, stderr, err := runJob(t, job)
			if err != nil || r.ExitStatus == 0 || r.Cause == nil || r.Cause.Rank != c.rank || !strings.Contains(r.Cause.String(), c.text) {
				t.Errorf("got %+v, cause %v, %v, %q, %q, want rank %d: %s", r, r.Cause, err, stdout, stderr, c.rank, c.text)
			}
		})
	}
}

// Programs that speak PMI themselves inherit a socket, others are told of a port.
func TestWhoConnects(t *testing.T) {
	testenv.NoLeaks(t)
	job := Job{Apps: []App{
		{NP: 1, Argv: roleArgv(t, "pmi", "env=PMI_FD", "env=PMI_PORT", "init", "barrier", "finalize")},
		{NP: 1, Argv: inARow(t, "P init barrier finalize && echo fd $PMI_FD")},
	}}
	r, stdout, stderr, err := runJob(t, job)
	if err != nil || r.ExitStatus != 0 || !strings.Contains(stdout, "PMI_FD=3\nPMI_PORT=\n") || !strings.Contains(stdout, "fd\n") {
		t.Errorf("got %+v, cause %v, %v, %q, %q", r, r.Cause, err, stdout, stderr)
	}
}

// A second program that finds an inherited socket shut is told what helps.
func TestShutSocket(t *testing.T) {
	testenv.NoLeaks(t)
	r, _, stderr, err := runJob(t, Job{NP: 1, Argv: roleArgv(t, "pmi", "init", "finalize", "exit=141")})
	if err != nil || r.Cause == nil || !strings.Contains(r.Cause.String(), "--pmi-port") {
		t.Errorf("got %+v, cause %v, %v, %q", r, r.Cause, err, stderr)
	}
}
