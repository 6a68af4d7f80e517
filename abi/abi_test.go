//go:build linux

package abi_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gorun-mpi/gorun/internal/mpilib"
	"github.com/gorun-mpi/gorun/internal/testenv"
	_ "github.com/gorun-mpi/gorun/launcher" // what is built below is of these, too: go test is to see when they change
	_ "github.com/gorun-mpi/gorun/rank"
)

// built has gorun and its agent, gorun-cc, the library and the programs of testdata, made once for all tests.
var built testenv.Made

func TestMain(m *testing.M) {
	status := m.Run()
	built.Remove()
	os.Exit(status)
}

func build(t testing.TB) string {
	t.Helper()
	testenv.Need(t, "gcc")
	// go test looks for changes in what a test opens, and not in what a command that it runs does.
	for _, dir := range []string{"library", "shim", "mpich", "include", "testdata", "../internal/cgoloader"} {
		_, _ = os.ReadDir(dir)
	}
	return built.In(t, func(dir string) error {
		errs := []error{testenv.Build("../scripts/build-abi", dir), testenv.Build("go", "build", "-o", dir+"/", "../cmd/gorun", "../cmd/gorun-agent")}
		for _, program := range []string{"cases", "files", "sessions", "threads"} {
			errs = append(errs, testenv.Build(dir+"/gorun-cc", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-Wno-stringop-overread", "-pthread", "-o", dir+"/"+program, "testdata/"+program+".c"))
		}
		return errors.Join(errs...)
	})
}

// run runs cases in a job of n ranks. Options of gorun come first, then what cases are to do.
func run(t testing.TB, n int, args ...string) (out string, status int) {
	t.Helper()
	var options []string
	if len(args) > 1 {
		options, args = args[:2], args[2:]
	}
	return runProgram(t, n, options, append([]string{"cases"}, args...))
}

// runProgram runs one of the programs, with its arguments.
func runProgram(t testing.TB, n int, options, program []string) (out string, status int) {
	t.Helper()
	dir := build(t)
	words := append([]string{"-np", fmt.Sprint(n)}, options...)
	words = append(append(words, dir+"/"+program[0]), program[1:]...)
	cmd := exec.CommandContext(testenv.Deadline(t, time.Minute), dir+"/gorun", words...)
	text, err := cmd.CombinedOutput()
	if _, ended := err.(*exec.ExitError); err != nil && !ended {
		t.Fatal(err)
	}
	return string(text), cmd.ProcessState.ExitCode()
}

// TestCases runs all cases of testdata/cases.c in one job of each size: what is checked is in there.
func TestCases(t *testing.T) {
	for _, n := range []int{1, 2, 4} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			out, status := run(t, n)
			if status != 0 || !strings.Contains(out, "\nall cases hold\n") {
				t.Errorf("status %d\n%s", status, out)
			}
		})
	}
}

// TestFiles runs the cases of testdata/files.c, also with an agent for each of two hosts, between which ranks share no memory.
func TestFiles(t *testing.T) {
	for _, c := range []struct {
		name    string
		n       int
		options []string
	}{
		{"1", 1, nil}, {"2", 2, nil}, {"4", 4, nil}, {"two hosts", 4, []string{"--launcher", "fork", "--host", "a:2,b:2"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, status := runProgram(t, c.n, c.options, []string{"files", t.TempDir()})
			if status != 0 || !strings.Contains(out, "\nall cases hold\n") {
				t.Errorf("status %d\n%s", status, out)
			}
		})
	}
}

// TestThreads runs the cases of testdata/threads.c, whose threads call at the same time: ranks share memory, or are on two hosts, or on one CPU.
func TestThreads(t *testing.T) {
	for _, c := range []struct {
		name    string
		n       int
		options []string
	}{
		{"1", 1, nil}, {"2", 2, nil}, {"3", 3, nil}, {"two hosts", 2, []string{"--launcher", "fork", "--host", "a:1,b:1"}}, {"progress thread", 2, []string{"-x", "GORUN_ASYNC_PROGRESS=on"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, status := runProgram(t, c.n, c.options, []string{"threads"})
			if status != 0 || !strings.Contains(out, "\nall cases hold\n") {
				t.Errorf("status %d\n%s", status, out)
			}
		})
	}
}

// TestSessions runs sessions of testdata/sessions.c without MPI_Init and beside it. The rank is in its job until the process ends.
func TestSessions(t *testing.T) {
	for _, n := range []int{1, 3} {
		for _, how := range []string{"alone", "beside"} {
			t.Run(fmt.Sprintf("%s %d", how, n), func(t *testing.T) {
				out, status := runProgram(t, n, nil, []string{"sessions", how})
				if status != 0 || strings.Count(out, ": all cases hold\n") != n {
					t.Errorf("status %d\n%s", status, out)
				}
			})
		}
	}
	for _, c := range []struct {
		name   string
		status int
		says   string
	}{
		{"over", 16, "MPI_Session_init: this process has left its job in MPI_Finalize"},
		{"fatal", 13, "MPI_Group_from_session_pset: rank 0: no set of processes has the name \"x\""},
		{"world", 5, "MPI_Barrier: rank 0: the communicator is a null handle"},
		{"closed", 16, "MPI_Group_size: rank 0: it was called while no session is open"},
		{"status", 3, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, status := runProgram(t, 1, nil, []string{"sessions", c.name})
			if status != c.status || !strings.Contains(out, c.says) || strings.Contains(out, "goroutine ") {
				t.Errorf("status %d, want %d; no %q in or a Go trace:\n%s", status, c.status, c.says, out)
			}
		})
	}
}

// TestChosen: gorun leads a program of the ABI to its own library by name, through a link elsewhere.
func TestChosen(t *testing.T) {
	out, status := run(t, 2, "--mpi", "gorun")
	if status != 0 || !strings.Contains(out, "\nall cases hold\n") {
		t.Errorf("status %d\n%s", status, out)
	}
}

// ofMPICH builds the programs of testdata as MPICH's compilers do, and links those in C with gorun's library: MPICH 4.0 lacks what some of them call.
func ofMPICH(t *testing.T) {
	t.Helper()
	mpicc := testenv.Need(t, "mpicc.mpich")
	dir := build(t)
	for _, program := range []string{"cases", "files", "sessions", "threads"} {
		object := filepath.Join(t.TempDir(), program+".o")
		for _, args := range [][]string{
			{mpicc, "-O1", "-pthread", "-w", "-Wno-implicit-function-declaration", "-Wno-int-conversion", "-c", "-o", object, "testdata/" + program + ".c"},
			{"gcc", "-pthread", "-o", dir + "/mpich-" + program, object, "-L" + dir + "/abi", "-l:libmpich.so.12"},
		} {
			if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
				t.Fatalf("%q: %v\n%s", args, err, out)
			}
		}
	}
}

// TestMPICH: what holds for programs of the standard ABI holds for those of MPICH's, which --mpi leads to gorun's library.
func TestMPICH(t *testing.T) {
	ofMPICH(t)
	host := strings.Repeat(strings.Repeat("a", 60)+".", 3) + "b:2" // longer than MPICH has room for
	for _, c := range []struct {
		n       int
		program []string
		options []string
	}{
		{1, []string{"mpich-cases"}, nil},
		{2, []string{"mpich-cases"}, []string{"--launcher", "fork", "--host", host}},
		{2, []string{"mpich-files", t.TempDir()}, nil},
		{2, []string{"mpich-sessions", "beside"}, nil},
		{2, []string{"mpich-threads"}, nil},
	} {
		t.Run(fmt.Sprint(c.program[0], c.n), func(t *testing.T) {
			out, status := runProgram(t, c.n, append(c.options, "--mpi", "gorun"), c.program)
			if status != 0 || !strings.Contains(out, "all cases hold\n") {
				t.Errorf("status %d\n%s", status, out)
			}
		})
	}
}

// TestFortran: MPICH's library for Fortran takes what it needs from gorun's, in programs of mpif.h, of mpi and of mpi_f08.
func TestFortran(t *testing.T) {
	testenv.Need(t, "gfortran")
	compiler := testenv.Need(t, "mpif90.mpich")
	for _, module := range []string{"mpi", "mpi_f08"} {
		t.Run(module, func(t *testing.T) {
			program := filepath.Join(build(t), "fortran-"+module)
			source := "testdata/" + module + ".f90"
			if out, err := exec.Command(compiler, "-w", "-J", t.TempDir(), "-o", program, source).CombinedOutput(); err != nil {
				t.Fatalf("%s: %v\n%s", source, err, out)
			}
			out, status := runProgram(t, 2, []string{"--mpi", "gorun"}, []string{filepath.Base(program)})
			if status != 0 || strings.Count(out, "all cases hold\n") != 2 {
				t.Errorf("status %d\n%s", status, out)
			}
		})
	}
}

// TestSymbolsOfMPICH: MPICH's own library offers no function of MPI that gorun's for its programs does not.
func TestSymbolsOfMPICH(t *testing.T) {
	ours := symbols(t, filepath.Join(build(t), "abi", "libmpich.so.12"))
	for name, kind := range ours {
		if !strings.HasPrefix(strings.TrimPrefix(name, "P"), "MPI") {
			t.Errorf("the library offers %s too", name)
		}
		if strings.HasPrefix(name, "MPI_") && kind == "W" && ours["P"+name] != "T" {
			t.Errorf("%s is weak; P%s is %q, want T", name, name, ours["P"+name])
		}
	}
	for _, l := range mpilib.List(mpilib.Directories(nil)) {
		if l.MPI != mpilib.MPICH || l.Soname != "libmpich.so.12" {
			continue
		}
		for name := range symbols(t, l.Path) {
			if plain := strings.TrimPrefix(name, "P"); strings.HasPrefix(plain, "MPI_") && ours[name] == "" {
				t.Errorf("%s has %s, gorun's library does not", l.Path, name)
			}
		}
	}
}

// symbols are the letters of nm of what a library offers.
func symbols(t *testing.T, library string) map[string]string {
	t.Helper()
	out, err := exec.Command(testenv.Need(t, "nm"), "-D", "--defined-only", library).Output()
	if err != nil {
		t.Fatal(err)
	}
	list := map[string]string{}
	for line := range strings.Lines(string(out)) {
		if f := strings.Fields(line); len(f) == 3 {
			list[f[2]] = f[1]
		}
	}
	return list
}

// TestSteady: calls allocate nothing, or Go's collector would run.
func TestSteady(t *testing.T) {
	t.Setenv("GODEBUG", "gctrace=1")
	out, status := run(t, 2, "--mpi", "gorun", "steady")
	if n := strings.Count(out, "\ngc "); status != 0 || n > 2 {
		t.Errorf("status %d; the collector ran %d times, want 2 at most, at the start:\n%s", status, n, out)
	}
}

// TestCompiler is what gorun-cc says.
func TestCompiler(t *testing.T) {
	dir := build(t)
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--show", "-c", "a.c"}, "gcc -I" + dir + "/abi -c a.c\n"},
		{[]string{"--show", "a.c"}, "gcc -I" + dir + "/abi a.c -L" + dir + "/abi -Wl,--enable-new-dtags -Wl,-rpath," + dir + "/abi -l:libmpi_abi.so.1\n"},
		{[]string{"-static", "a.c"}, "gorun-cc: -static: Go's runtime is loaded at run time, which a static program cannot do; link dynamically\n"},
	} {
		cmd := exec.Command(dir+"/gorun-cc", c.args...)
		cmd.Env = append(os.Environ(), "CC=gcc")
		out, _ := cmd.CombinedOutput()
		if string(out) != c.want {
			t.Errorf("gorun-cc %q: %q, want %q", c.args, out, c.want)
		}
	}
}

// TestEnds has cases that end the job: how, and what they say.
func TestEnds(t *testing.T) {
	for _, c := range []struct {
		name   string
		status int
		says   string
	}{
		{"missing", 55, "MPI_Close_port: rank 0: it is not there yet in gorun's libmpi_abi.so.1"},
		{"before", 16, "MPI_Barrier: it was called before MPI_Init"},
		{"after", 16, "MPI_Barrier: it was called after MPI_Finalize"},
		{"later", 16, "MPI_Comm_rank: it was called after MPI_Finalize"},
		{"twice", 16, "MPI_Init: rank 0: MPI is initialized already"},
		{"fatal", 6, "MPI_Send: rank 0 "},
		{"abort", 7, "MPI_Abort"},
		{"segfault", 139, "signal 11"},
		{"signals", 3, "200 signals"},
		{"handler", 9, "exited with status 9"},
		{"fork", 5, "a child of fork cannot call MPI"},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, status := run(t, 1, c.name)
			if status != c.status || !strings.Contains(out, c.says) || strings.Contains(out, "goroutine ") {
				t.Errorf("status %d, want %d; no %q in or a Go trace:\n%s", status, c.status, c.says, out)
			}
		})
	}
}

// TestEntries: every function is there under both names, the one that a tool may replace weak.
func TestEntries(t *testing.T) {
	symbols := symbols(t, filepath.Join(build(t), "abi", "libmpi_abi.so.1"))
	table, err := os.ReadFile("functions.txt")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(table)) {
		f := strings.Fields(line)
		if line[0] == '#' {
			continue
		}
		names := []string{f[0]}
		if f[2] == "_c" {
			names = append(names, f[0]+"_c")
		}
		for _, name := range names {
			n++
			if symbols["MPI_"+name] != "W" || symbols["PMPI_"+name] != "T" {
				t.Errorf("MPI_%s is %q, want W; PMPI_%s is %q, want T", name, symbols["MPI_"+name], name, symbols["PMPI_"+name])
			}
		}
	}
	if n != 664 {
		t.Errorf("%d functions, want 664", n)
	}
	for name := range symbols {
		if !strings.HasPrefix(name, "MPI_") && !strings.HasPrefix(name, "PMPI_") {
			t.Errorf("the library offers %s too", name)
		}
	}
}
