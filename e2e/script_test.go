package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/testenv"
)

// TestScripts runs what needs nothing but gorun and a2a.
func TestScripts(t *testing.T) {
	runScripts(t, "scripts", nil)
}

// TestLargeJobs runs scripts of hundreds of ranks one after the other: beside them a
// rank of another script gets less than a hundredth of a CPU, and its limits of time
// would say nothing.
func TestLargeJobs(t *testing.T) {
	testenv.Part(t, testenv.Large)
	runScripts(t, filepath.Join("scripts", "large"), nil)
}

// TestTimedScripts runs scripts of ends that come after a time, in which something else
// must have happened.
func TestTimedScripts(t *testing.T) {
	testenv.Part(t, testenv.Timed)
	runScripts(t, filepath.Join("scripts", "timed"), nil)
}

// TestMPICH runs MPI programs under gorun, and a2a under MPICH's launcher. The
// programs of testdata/mpi are compiled into $MPI. A Python program has a stand-in for
// mpi4py, which Debian builds with Open MPI.
func TestMPICH(t *testing.T) {
	testenv.Part(t, testenv.Peers)
	compiler := testenv.Need(t, "mpicc.mpich")
	testenv.Need(t, "mpiexec.mpich")
	dir := t.TempDir()
	for _, name := range []string{"hello", "allreduce", "wait", "place"} {
		source := filepath.Join("..", "testdata", "mpi", name+".c")
		if out, err := exec.Command(compiler, "-O1", "-Wall", "-o", filepath.Join(dir, name), source).CombinedOutput(); err != nil {
			t.Fatalf("mpicc.mpich %s: %v\n%s", source, err, out)
		}
	}
	// MPICH's own PMI client is in its static library only.
	library := filepath.Join(libdir(t, compiler), "libmpich.a")
	dynamic := filepath.Join("..", "testdata", "mpi", "dynamic.c")
	if out, err := exec.Command(compiler, "-O1", "-Wall", "-o", filepath.Join(dir, "dynamic"), dynamic, library).CombinedOutput(); err != nil {
		t.Fatalf("mpicc.mpich %s: %v\n%s", dynamic, err, out)
	}
	runScripts(t, filepath.Join("scripts", "mpich"), map[string]string{"MPI": dir})
}

// TestPMI2 runs a program of Slurm's PMI-2 library, compiled into $PMI2. MPICH speaks
// the same from 4.2 on: MPIR_CVAR_PMI_VERSION=2.
func TestPMI2(t *testing.T) {
	testenv.Part(t, testenv.Peers)
	dir := t.TempDir()
	args := []string{"-O1", "-Wall", "-o", filepath.Join(dir, "pmi2"), filepath.Join("..", "testdata", "mpi", "pmi2.c"), "-lpmi2"}
	if out, err := exec.Command(testenv.Need(t, "gcc"), args...).CombinedOutput(); err != nil {
		testenv.Unsupported(t, fmt.Sprintf("needs libpmi2-0-dev: gcc %s: %v\n%s", args, err, out))
	}
	runScripts(t, filepath.Join("scripts", "pmi2"), map[string]string{"PMI2": dir})
}

// libdir is where a compiler finds its MPI library.
func libdir(t *testing.T, compiler string) string {
	out, err := exec.Command(compiler, "-link_info").Output()
	if err != nil {
		t.Fatalf("%s -link_info: %v", compiler, err)
	}
	for _, word := range strings.Fields(string(out)) {
		if dir, ok := strings.CutPrefix(word, "-L"); ok {
			return dir
		}
	}
	t.Fatalf("%s -link_info names no directory: %s", compiler, out)
	return ""
}

// TestOpenMPI runs programs of Open MPI under gorun, compiled into $OMPI, and the
// same ones of MPICH, in $MPI, beside them.
func TestOpenMPI(t *testing.T) {
	testenv.Part(t, testenv.Peers)
	vars := map[string]string{}
	for name, compiler := range map[string]string{"OMPI": "mpicc.openmpi", "MPI": "mpicc.mpich"} {
		compiler = testenv.Need(t, compiler)
		dir := t.TempDir()
		for _, program := range []string{"hello", "allreduce", "ring", "split", "wait", "spawn", "hints", "stay", "place", "names"} {
			source := filepath.Join("..", "testdata", "mpi", program+".c")
			if out, err := exec.Command(compiler, "-O1", "-Wall", "-o", filepath.Join(dir, program), source).CombinedOutput(); err != nil {
				t.Fatalf("%s %s: %v\n%s", compiler, source, err, out)
			}
		}
		vars[name] = dir
	}
	// A client of PMIx without an MPI, with Open MPI's programs.
	args := []string{"-O1", "-Wall", "-o", filepath.Join(vars["OMPI"], "pmix"), filepath.Join("..", "testdata", "mpi", "pmix.c")}
	for _, arch := range []string{"x86_64", "aarch64"} {
		dir := "/usr/lib/" + arch + "-linux-gnu/pmix2"
		args = append(args, "-I"+dir+"/include", "-L"+dir+"/lib", "-Wl,-rpath,"+dir+"/lib")
	}
	if out, err := exec.Command(testenv.Need(t, "gcc"), append(args, "-lpmix")...).CombinedOutput(); err != nil {
		testenv.Unsupported(t, fmt.Sprintf("needs libpmix-dev: gcc %s: %v\n%s", args, err, out))
	}
	needMpi4py(t)
	if out, err := exec.Command("gorun-info", "pmi").CombinedOutput(); err != nil {
		testenv.Unsupported(t, fmt.Sprintf("needs libpmix: %s", out))
	}
	// Hosts of --launcher fork are one machine. The component of Open MPI 5.0.7 that asks the
	// kernel for a route finds none from an address to itself; this one asks for none.
	vars["OMPI_MCA_reachable"] = "weighted"
	// 6.0 does not connect to an address that it has itself, which may be that of a bridge
	// on each of two hosts. UCX does.
	if strings.HasPrefix(testenv.Version(t, launchers["openmpi"]), "6.") {
		vars["OMPI_MCA_pml"], vars["OMPI_MCA_opal_common_ucx_tls"], vars["OMPI_MCA_opal_common_ucx_devices"] = "ucx", "any", "any"
	}
	runScripts(t, filepath.Join("scripts", "openmpi"), vars)
}

// TestBench runs gorun-bench, alone and beside the MPIs.
func TestBench(t *testing.T) {
	testenv.Part(t, testenv.Results)
	for _, tool := range []string{"mpicc.mpich", "mpiexec.mpich", "mpicc.openmpi", "mpirun.openmpi"} {
		testenv.Need(t, tool)
	}
	runScripts(t, filepath.Join("scripts", "bench"), nil)
}

// TestMounts runs jobs that see other mounts than this test.
func TestMounts(t *testing.T) {
	if out, err := exec.Command(testenv.Need(t, "unshare"), "-rm", "true").CombinedOutput(); err != nil {
		testenv.Unsupported(t, fmt.Sprintf("needs mount namespaces: unshare -rm true: %v: %s", err, out))
	}
	runScripts(t, filepath.Join("scripts", "mounts"), nil)
}

// runScripts runs the scripts of a directory of testdata, with vars in their environment.
func runScripts(t *testing.T, dir string, vars map[string]string) {
	before := shared()
	t.Cleanup(func() {
		// The scripts have ended by now, and all their processes. Those of others may
		// come and go there.
		var left []string
		if !testenv.Holds(5*time.Second, func() bool {
			left = slices.DeleteFunc(shared(), func(name string) bool { return slices.Contains(before, name) || inUse(name) })
			return len(left) == 0
		}) {
			t.Errorf("left in /dev/shm: %q", left)
		}
	})
	testscript.Run(t, testscript.Params{
		Dir:                 ownPorts(t, filepath.Join("..", "testdata", dir)),
		WorkdirRoot:         t.TempDir(), // testscript's own stays behind when -run picks some scripts
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Condition:           func(c string) (bool, error) { return isPeer(t, c) },
		Setup: func(env *testscript.Env) error {
			marker := fmt.Sprintf("GORUN_E2E=%d-%s", os.Getpid(), filepath.Base(env.WorkDir))
			env.Vars = append(env.Vars, marker)
			for name, value := range vars {
				env.Setenv(name, value)
			}
			s := &script{marker: marker, tmp: filepath.Join(env.WorkDir, ".tmp"), started: map[string]*process{}}
			env.Values[scriptKey{}] = s
			env.Defer(func() {
				if err := s.finish(); err != nil {
					env.T().Fatal(err)
				}
			})
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": cmdExits, "start": cmdStart, "signal": cmdSignal, "ends": cmdEnds,
			"await": cmdAwait, "gone": cmdGone, "matrices": cmdMatrices, "results": cmdResults,
			"says": cmdSays, "rows": cmdRows,
		},
	})
}

// inUse tells whether a process that lives has a file mapped, or names it in its
// environment, as ranks do their job's directory.
func inUse(name string) bool {
	for _, pattern := range []string{"/proc/[0-9]*/maps", "/proc/[0-9]*/environ"} {
		files, _ := filepath.Glob(pattern)
		for _, file := range files {
			if text, err := os.ReadFile(file); err == nil && bytes.Contains(text, []byte(name)) {
				return true
			}
		}
	}
	return false
}

// shared are the names in /dev/shm that are this user's: whether another one's are in use cannot be seen.
func shared() []string {
	names, _ := filepath.Glob("/dev/shm/*")
	return slices.DeleteFunc(names, func(name string) bool {
		var st unix.Stat_t
		return unix.Lstat(name, &st) != nil || int(st.Uid) != os.Geteuid()
	})
}

// mpi4pyPython is the Python that Debian's package of mpi4py is for.
const mpi4pyPython = "/usr/bin/python3"

func needMpi4py(t *testing.T) {
	t.Helper()
	if out, err := exec.Command(mpi4pyPython, "-c", "import mpi4py").CombinedOutput(); err != nil {
		testenv.Unsupported(t, fmt.Sprintf("needs python3-mpi4py: %v: %s", err, out))
	}
}
