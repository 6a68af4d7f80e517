package profile_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/launcher"
	"github.com/gorun-mpi/gorun/launcher/profile"
)

// built is what programs of other MPIs need: scripts of this name put it into a directory.
func built(tb testing.TB, scripts ...string) (dir string) {
	tb.Helper()
	testenv.Need(tb, "gcc")
	dir = tb.TempDir()
	for _, name := range scripts {
		cmd := exec.Command("../../scripts/"+name, dir)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			tb.Fatalf("%s: %v\n%s", name, err, out)
		}
	}
	return dir
}

// compile makes a program of a file of testdata.
func compile(tb testing.TB, compiler, source string) (program string) {
	tb.Helper()
	program = filepath.Join(tb.TempDir(), "program")
	if out, err := exec.Command(compiler, "-g", "-O1", "-o", program, filepath.Join("testdata", source)).CombinedOutput(); err != nil {
		tb.Fatalf("%s %s: %v\n%s", compiler, source, err, out)
	}
	return program
}

// foreign is a job of a program of another MPI.
func foreign(dir string, out *bytes.Buffer, argv ...string) launcher.Job {
	return launcher.Job{NP: 4, Argv: argv, Env: os.Environ(), Stdout: out, Stderr: out, Profile: true, Timeout: testenv.Limit(time.Minute),
		PMIx: filepath.Join(dir, "gorun-pmix"), ProfileLibrary: filepath.Join(dir, "profile", "libgorun-profile.so")}
}

// eachMPI runs a test for each of the MPIs for C that are here.
func eachMPI(t *testing.T, source string, test func(t *testing.T, dir, program string)) {
	testenv.Part(t, testenv.Peers)
	dir := built(t, "build-profile", "build-pmix", "build-abi")
	for _, compiler := range []string{"mpicc.mpich", "mpicc.openmpi", filepath.Join(dir, "gorun-cc")} {
		t.Run(filepath.Base(compiler), func(t *testing.T) { test(t, dir, compile(t, testenv.Need(t, compiler), source)) })
	}
}

// The first line names what is wrong with a program in C, as it does with one in Go.
func TestFaultsInCAreNamed(t *testing.T) {
	unit := strconv.Itoa(int(testenv.Limit(10 * time.Millisecond).Microseconds()))
	eachMPI(t, "faults.c", func(t *testing.T, dir, program string) {
		for fault, want := range named("faults.c") {
			t.Run(fault, func(t *testing.T) {
				var out bytes.Buffer
				checkSummary(t, finished(t, foreign(dir, &out, program, fault, unit), &out), want)
			})
		}
	})
}

// A rank of a program in C that is killed has left its last calls, and the one that it was in.
func TestKilledRanksInC(t *testing.T) {
	eachMPI(t, "faults.c", func(t *testing.T, dir, program string) {
		var out bytes.Buffer
		result, err := launcher.Run(context.Background(), foreign(dir, &out, program, "killed"))
		if err != nil || result.Cause == nil || result.Cause.Rank != 0 || len(result.Profile) != 4 {
			t.Fatalf("%v, %+v, %d records\n%s", err, result.Cause, len(result.Profile), out.String())
		}
		r := &result.Profile[0]
		if r.Finalized || r.Current < 0 || r.Calls[r.Current].Op != "Allreduce" || !strings.HasPrefix(r.Calls[r.Current].At(), "faults.c:") {
			t.Errorf("%+v, want one that is in Allreduce", r)
		}
		if want := (profile.Peer{Rank: 1, Sent: 1, SentBytes: 4, Got: 1, GotBytes: 4}); !slices.Contains(r.Peers, want) {
			t.Errorf("peers %+v, want %+v", r.Peers, want)
		}
	})
}
