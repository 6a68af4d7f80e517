package launcher

import (
	"fmt"
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
func TestRankRunsSeveralProgramsInARow(t *testing.T) {
	for name, script := range map[string]string{
		"two":    `P init put=K=1 barrier get=K finalize && P init none=K put=K=2 barrier get=K finalize && echo well`,
		"cards":  `P init cards=1000 finalize && P init cards=3000 barrier finalize && P init cards=0 finalize && echo well`,
		"many":   `for i in 1 2 3 4 5 6 7 8; do P init put=K=$i barrier get=K finalize || exit 9; done; echo well`,
		"failed": `P init barrier finalize exit=9; P init barrier finalize && echo well`,
		// Rank 0 is in its first program while the others are in their second.
		"apart": `P init barrier @0 await=second finalize && P init @1 touch=second barrier finalize && echo well`,
		// A child of a program that speaks PMI is no next one.
		"helper": `P init barrier helper barrier finalize && P init helper barrier finalize && echo well`,
		"idle":   `P init finalize && true && P init finalize && P init barrier finalize && echo well`,
	} {
		for _, way := range waysOf(name) {
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
func TestJobFailsWhenARankSkipsAProgram(t *testing.T) {
	const first = `P init barrier finalize && `
	for name, c := range map[string]struct {
		script string
		hosts  int
		rank   int
		text   string
	}{
		"one":    {first + `{ test $PMI_RANK = 0 || P init barrier finalize; }`, 0, 0, "its process ended after MPI program 1, before init of program 2"},
		"agents": {first + `{ test $PMI_RANK = 3 || P init barrier finalize; }`, 2, 3, "its process ended after MPI program 1, before init of program 2"},
		"third":  {first + first + `{ test $PMI_RANK = 1 || P init barrier finalize; }`, 0, 1, "after MPI program 2, before init of program 3"},
		"a host": {first + `{ test $PMI_RANK -ge 2 || P init barrier finalize; }`, 2, 0, "host 1 takes part in no more fences: rank 2: its process ended after MPI program 1"},
		// Nobody waits for rank 2, which would be a cause, too, while its shell is slow to begin its second program.
		"unready":   {`test $PMI_RANK = 2 || P init await=never; P init exit=0; P init barrier finalize`, 0, 2, "began an MPI program after one that ended without MPI_Finalize"},
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
func TestRanksInheritASocketOrConnectToThePort(t *testing.T) {
	testenv.NoLeaks(t)
	job := Job{Apps: []App{
		{NP: 1, Argv: roleArgv(t, "pmi", "env=PMI_FD", "env=PMI_PORT", "init", "barrier", "finalize")},
		{NP: 1, Argv: inARow(t, "P init barrier finalize && echo fd $PMI_FD")},
	}}
	for _, fd := range []string{"", " 3"} {
		job.Hosting.PMIFD = fd != ""
		r, stdout, stderr, err := runJob(t, job)
		if err != nil || r.ExitStatus != 0 || !strings.Contains(stdout, "PMI_FD=3\nPMI_PORT=\n") || !strings.Contains(stdout, "fd"+fd+"\n") {
			t.Errorf("got %+v, cause %v, %v, %q, %q", r, r.Cause, err, stdout, stderr)
		}
	}
	job.Hosting.PMIPort = true
	if _, err := Run(t.Context(), job); err == nil || !strings.Contains(err.Error(), "not both") {
		t.Errorf("port and fd: got %v", err)
	}
}

// A host on which nobody connects to a port tells the others too that its ranks will
// be in no other world.
func TestProgramsInARowOnOneHostOnly(t *testing.T) {
	testenv.NoLeaks(t)
	job := Job{
		Apps: []App{
			{NP: 2, Argv: inARow(t, "P init barrier finalize && P init barrier finalize"), Hosts: []string{"a"}},
			{NP: 2, Argv: roleArgv(t, "pmi", "init", "barrier", "finalize"), Hosts: []string{"b"}},
		},
		Agents: Agents{Launcher: "fork", Command: roleArgv(t, "agent")}, Hosts: []Host{{Name: "a", Slots: 2}, {Name: "b", Slots: 2}},
	}
	r, stdout, stderr, err := runJob(t, job)
	const want = "host 1 takes part in no more fences: rank 2: its process ended after MPI program 1"
	if err != nil || r.Cause == nil || !strings.Contains(r.Cause.String(), want) {
		t.Errorf("got %+v, cause %v, %v, %q, %q, want %s", r, r.Cause, err, stdout, stderr, want)
	}
}

// A program that begins beside another of its rank is not let in, which is told
// once, and is the job's failure if it is strict.
func TestSecondProgramAtOnceIsRefused(t *testing.T) {
	for _, strict := range []bool{false, true} {
		for _, way := range ways {
			t.Run(fmt.Sprintf("strict %v %s", strict, way.name), func(t *testing.T) {
				testenv.NoLeaks(t)
				var warned []string
				job := Job{Argv: inARow(t, "P init helper helper barrier finalize"), NP: 2, StrictPMI: strict, Warn: func(text string) { warned = append(warned, text) }}
				overAgents(t, &job, way.hosts)
				r, stdout, stderr, err := runJob(t, job)
				if strict {
					if err != nil || r.Cause == nil || !strings.Contains(r.Cause.String(), "began an MPI program while another") {
						t.Errorf("got %+v, cause %v, %v, %q, %q", r, r.Cause, err, stdout, stderr)
					}
					return
				}
				if err != nil || r.ExitStatus != 0 || len(warned) != 1 || !strings.Contains(warned[0], "began an MPI program while another") {
					t.Errorf("got %+v, cause %v, %v, %q, %q, warnings %q", r, r.Cause, err, stdout, stderr, warned)
				}
			})
		}
	}
}

// Another user's process is not let in, which is told, and fails no job. Only root
// can be another user; the user of the test may connect and say nothing.
func TestOtherUsersProcessIsRefused(t *testing.T) {
	testenv.Need(t, "bash")
	for as, warnings := range map[string]int{"": 0, "setpriv --reuid 65534 --clear-groups ": 1} {
		if as != "" && os.Getuid() != 0 {
			continue
		}
		t.Run(as, func(t *testing.T) {
			testenv.NoLeaks(t)
			var warned []string
			job := Job{NP: 1, StrictPMI: true, Warn: func(text string) { warned = append(warned, text) },
				Argv: sh("cd / && " + as + `bash -c 'exec 5<>/dev/tcp/127.0.0.1/${PMI_PORT#*:}; test $0 = 0 || cat <&5' ` + fmt.Sprint(warnings) + "; echo well")}
			r, stdout, stderr, err := runJob(t, job)
			if err != nil || r.ExitStatus != 0 || stdout != "well\n" || len(warned) != warnings || warnings > 0 && !strings.Contains(warned[0], "a process of user 65534 ") {
				t.Errorf("got %+v, cause %v, %v, %q, %q, warnings %q", r, r.Cause, err, stdout, stderr, warned)
			}
		})
	}
}

// A second program that finds an inherited socket shut is told what helps.
func TestSecondProgramFindsTheSocketShut(t *testing.T) {
	testenv.NoLeaks(t)
	r, _, stderr, err := runJob(t, Job{NP: 1, Argv: roleArgv(t, "pmi", "init", "finalize", "exit=141")})
	if err != nil || r.Cause == nil || !strings.Contains(r.Cause.String(), "--pmi-port") {
		t.Errorf("got %+v, cause %v, %v, %q", r, r.Cause, err, stderr)
	}
}

// A child that has inherited the socket and finalizes, as one of fork does that ends by exit under MPICH, is not the rank.
func TestChildThatFinalizesIsNotTheRank(t *testing.T) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			testenv.NoLeaks(t)
			job := Job{Argv: roleArgv(t, "pmi", "init", "barrier", "@1", "child", "barrier", "finalize"), NP: 2}
			overAgents(t, &job, way.hosts)
			r, stdout, stderr, err := runJob(t, job)
			if err != nil || r.ExitStatus != 0 || r.Cause != nil || r.Note != "" {
				t.Errorf("got %+v, cause %v, %v, %q, %q", r, r.Cause, err, stdout, stderr)
			}
			job.Argv = roleArgv(t, "pmi", "init", "barrier", "@1", "child", "@0", "finalize")
			r, _, stderr, err = runJob(t, job)
			if err != nil || r.ExitStatus != 0 || !strings.Contains(r.Note, "rank 1 ") || !strings.Contains(r.Note, "without MPI_Finalize") {
				t.Errorf("without its own: got %+v, cause %v, %v, %q", r, r.Cause, err, stderr)
			}
		})
	}
}

// A program of MPICH that ends by _exit behind MPI_Finalize has sent no finalize, which MPICH since 4.2 does when it exits.
func TestExitBehindFinalizeOfMPICH(t *testing.T) {
	const begin = `P map=libmpich.so.12.6.2 init put=K$PMI_RANK=1 barrier get=K$PMI_RANK `
	for name, c := range map[string]struct {
		script string
		np     int
		noted  bool
	}{
		"behind":               {begin + `barrier exit=0`, 2, false},
		"before":               {begin + `exit=0`, 2, true},
		"alone, behind":        {`P map=libmpich.so.12.6.2 init barrier exit=0`, 1, false},
		"alone, before":        {`P map=libmpich.so.12.6.2 init none=K exit=0`, 1, true},
		"no MPICH":             {`P init put=K$PMI_RANK=1 barrier get=K$PMI_RANK barrier exit=0`, 2, true},
		"another program then": {begin + `barrier exit=0; ` + begin + `barrier exit=0`, 2, false},
		"its shell goes on":    {begin + `exit=0; sleep 0.6`, 2, true}, // longer than a failure is suspected
		"behind, too":          {begin + `barrier exit=0; sleep 0.6`, 2, false},
		"it does more":         {begin + `barrier get=K$PMI_RANK exit=0`, 2, true},
		"in the fence":         {begin + `@0 put=Z$PMI_RANK=1 barrier exit=0`, 2, true},
	} {
		t.Run(name, func(t *testing.T) {
			testenv.NoLeaks(t)
			r, stdout, stderr, err := runJob(t, Job{Argv: inARow(t, c.script), NP: c.np})
			if err != nil || r.ExitStatus != 0 || r.Cause != nil || strings.Contains(r.Note, "without MPI_Finalize") != c.noted {
				t.Errorf("got %+v, cause %v, %v, %q, %q", r, r.Cause, err, stdout, stderr)
			}
		})
	}
}
