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
	"syscall"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/testenv"
	"github.com/gorun-mpi/gorun/launcher"
	"github.com/gorun-mpi/gorun/launcher/hosting"
	"github.com/gorun-mpi/gorun/launcher/profile"
)

// artefacts is where built puts things, and which are there; TestMain removes it.
var artefacts struct {
	dir   string
	there map[string]bool
}

// built is what programs of other MPIs need: scripts of this name put it into a directory, once.
func built(tb testing.TB, scripts ...string) (dir string) {
	tb.Helper()
	testenv.Need(tb, "gcc")
	if artefacts.dir == "" {
		var err error
		if artefacts.dir, err = os.MkdirTemp("", "profile-test-"); err != nil {
			tb.Fatal(err)
		}
		artefacts.there = make(map[string]bool)
	}
	dir = artefacts.dir
	for _, name := range scripts {
		if artefacts.there[name] {
			continue
		}
		cmd := exec.Command("../../scripts/"+name, dir)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			tb.Fatalf("%s: %v\n%s", name, err, out)
		}
		artefacts.there[name] = true
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
		Hosting: hosting.Settings{PMIx: filepath.Join(dir, "gorun-pmix"), ProfileLibrary: filepath.Join(dir, "profile", "libgorun-profile.so")}}
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

// While a job runs it is seen in which call a rank of another MPI is.
func TestLookAtRanksInC(t *testing.T) {
	eachMPI(t, "faults.c", func(t *testing.T, dir, program string) {
		var out bytes.Buffer
		h, err := launcher.Start(t.Context(), foreign(dir, &out, program, "stays"))
		if err != nil {
			t.Fatal(err)
		}
		testenv.Await(t, time.Minute, "ranks 1 to 3 in MPI_Barrier", func() bool {
			answer := make(chan []launcher.RankState, 1)
			if err := h.Signal(launcher.Look(answer)); err != nil {
				t.Fatal(err)
			}
			var states []launcher.RankState
			select {
			case states = <-answer:
			case <-time.After(testenv.Limit(time.Second)): // the ranks are not started yet
			}
			n := 0
			for _, s := range states {
				last := s.Lines[len(s.Lines)-1]
				if s.Rank > 0 && (strings.HasPrefix(last, "MPI: it is in Barrier, since ") || strings.HasPrefix(last, "MPI: it waits in barrier ")) && s.Calls > 0 {
					n++
				}
			}
			return n == 3
		})
		if err := h.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		if result, err := h.Wait(); err != nil || result.ExitStatus != 143 {
			t.Errorf("%+v, %v\n%s", result.Cause, err, out.String())
		}
	})
}

// However a message comes, it is received where it was sent to. What gorun has ranks load is not left to what they start.
func TestWaysOfMessages(t *testing.T) {
	eachMPI(t, "ways.c", func(t *testing.T, dir, program string) {
		var out bytes.Buffer
		r := finished(t, foreign(dir, &out, program), &out)
		type traffic struct{ n, bytes uint64 }
		sent, got := make(map[[2]int]traffic), make(map[[2]int]traffic)
		for i := range r.Ranks {
			for _, p := range r.Ranks[i].Peers {
				sent[[2]int{i, p.Rank}] = traffic{p.Sent, p.SentBytes}
				got[[2]int{p.Rank, i}] = traffic{p.Got, p.GotBytes}
			}
		}
		for from := range 4 {
			for to := range 4 {
				pair := [2]int{from, to}
				want := traffic{12, uint64(8*(24-from) + 3*3 + 5)}
				switch {
				case from == to:
					want = traffic{}
				case to == (from+1)%4:
					want = traffic{want.n + 2, want.bytes + 2*7}
					if to > from {
						want = traffic{want.n + 1, want.bytes + 7}
					}
				}
				if from/2 == to/2 && from != to { // the halves' ranks of one number
					want = traffic{want.n + 1, want.bytes + 9}
				}
				if got[pair] != want {
					t.Errorf("rank %d has received %+v from rank %d, want %+v", to, got[pair], from, want)
				}
				if to == (from+1)%4 {
					want.bytes += 4 // MPI_Put
				}
				if sent[pair] != want {
					t.Errorf("rank %d has sent %+v to rank %d, want %+v", from, sent[pair], to, want)
				}
			}
		}
		j := foreign(dir, &out, program, "libm.so.6")
		j.Env = append(j.Env, "LD_PRELOAD=libm.so.6")
		finished(t, j, &out)
	})
}

// Calls of Fortran and Python have lines of theirs.
func TestLinesOfFortranAndPython(t *testing.T) {
	testenv.Part(t, testenv.Peers)
	dir := built(t, "build-profile", "build-pmix")
	late := func(t *testing.T, place string, argv ...string) {
		t.Helper()
		var out bytes.Buffer
		j := foreign(dir, &out, argv...)
		j.NP = 3
		r := finished(t, j, &out)
		if !slices.ContainsFunc(r.Waits, func(w profile.Wait) bool { return w.For == 1 && w.At == place }) {
			t.Errorf("nobody waits for rank 1 in %s: %+v", place, r.Waits)
		}
	}
	source, err := os.ReadFile("testdata/late.f90")
	if err != nil {
		t.Fatal(err)
	}
	for _, compiler := range []string{"mpif90.mpich", "mpif90.openmpi"} {
		for _, module := range []string{"mpi", "mpi_f08"} {
			t.Run(compiler+" "+module, func(t *testing.T) {
				program := filepath.Join(t.TempDir(), "program")
				file := program + ".f90"
				if err := os.WriteFile(file, bytes.Replace(source, []byte("MODULE"), []byte(module), 1), 0o600); err != nil {
					t.Fatal(err)
				}
				if out, err := exec.Command(testenv.Need(t, compiler), "-g", "-J"+t.TempDir(), "-o", program, file).CombinedOutput(); err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
				late(t, "program.f90:12", program)
			})
		}
	}
	t.Run("mpi4py", func(t *testing.T) {
		python := "/usr/bin/python3" // Debian's, for which Debian has mpi4py
		if err := exec.Command(python, "-c", "import mpi4py").Run(); err != nil {
			testenv.Unsupported(t, "mpi4py: "+err.Error())
		}
		late(t, "late.py:11", python, "testdata/late.py", strconv.FormatFloat(testenv.Limit(20*time.Millisecond).Seconds(), 'f', -1, 64))
	})
}

// BenchmarkCostInC is what Irecv, Send and Wait of a message of 8 bytes to itself take with and without a profile, in turns: the medians and middle halves, in nanoseconds.
func BenchmarkCostInC(b *testing.B) {
	dir := built(b, "build-profile", "build-pmix")
	for _, compiler := range []string{"mpicc.mpich", "mpicc.openmpi"} {
		b.Run(compiler, func(b *testing.B) {
			program := compile(b, testenv.Need(b, compiler), "faults.c")
			var took [2][]int
			for b.Loop() {
				for with := range took {
					var out bytes.Buffer
					j := foreign(dir, &out, program, "cost")
					j.NP, j.Profile = 1, with == 1
					result, err := launcher.Run(context.Background(), j)
					n, bad := strconv.Atoi(strings.TrimSpace(out.String()))
					if err != nil || result.ExitStatus != 0 || bad != nil {
						b.Fatalf("%v, %+v, %s", err, result.Cause, out.String())
					}
					took[with] = append(took[with], n)
				}
			}
			for with, name := range [2]string{"without", "with"} {
				all := took[with]
				slices.Sort(all)
				b.ReportMetric(float64(all[len(all)/2]), "ns-"+name)
				b.ReportMetric(float64(all[len(all)/4]), "q1-"+name)
				b.ReportMetric(float64(all[len(all)*3/4]), "q3-"+name)
			}
		})
	}
}
