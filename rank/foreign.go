package rank

import (
	"bytes"
	"fmt"
	"os"
	"strconv"

	"github.com/gorun-mpi/gorun/internal/proc"
)

// aloneVar has a process be a world of one whatever its environment says.
const aloneVar = "GORUN_ALONE"

// foreignLaunchers are those that may serve no PMI-1, by the variables in which they tell
// a process how many there are and which of them it is.
var foreignLaunchers = [...]struct{ name, size, rank, instead string }{
	{"Open MPI's launcher", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "start it with gorun, or with mpiexec.hydra or mpiexec.mpich"},
	{"IBM's jsrun", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_RANK", "start it with gorun inside of the allocation"},
	{"srun", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "start it with srun --mpi=pmi2, which serves PMI-1 too, or with gorun inside of the allocation"},
	{"a PMIx launcher", "", "PMIX_RANK", "start it with gorun"},
}

// foreign says which other launcher has started a process as one of several, and what to do;
// "": none has. Slurm's variables also stand where one process runs: in a batch script, whose
// step has one task, and in a shell of salloc.
func foreign(vars func(string) string) string {
	if v := vars(aloneVar); v != "" && v != "0" || vars("GORUN_JOB") != "" {
		return "" // of gorun's own processes somebody has taken PMI away
	}
	for _, l := range foreignLaunchers {
		size, err := strconv.Atoi(vars(l.size))
		rank, bad := strconv.Atoi(vars(l.rank))
		which := fmt.Sprintf("rank %d of %d", rank, size)
		if l.size == "" { // it does not tell how many there are
			size, err, which = rank+1, bad, fmt.Sprintf("rank %d", rank)
		}
		if err != nil || bad != nil || size < 2 || rank < 0 {
			continue
		}
		return fmt.Sprintf("%s has started this process as %s (%s=%s), but offers no PMI-1 (PMI_FD, PMI_PORT), so each process would be a world of its own; %s; %s=1 in the environment makes it a world of one",
			l.name, which, l.rank, vars(l.rank), l.instead, aloneVar)
	}
	return ""
}

// ancestorsMost bounds how far childOfRank looks.
const ancestorsMost = 32

// childOfRank tells whether a rank of another MPI has started this process, which has its
// environment from there and is no rank itself: an ancestor has an MPI library mapped. Launchers
// have libraries of Open MPI's too, but not the one that programs are linked with.
func childOfRank() bool {
	pid := os.Getppid()
	for range ancestorsMost {
		if pid <= 1 {
			return false
		}
		maps, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/maps")
		if err != nil {
			return false // another user's: no rank of this job
		}
		for _, library := range [...]string{"/libmpi.so", "/libmpich.so", "/libmpi_abi.so"} {
			if bytes.Contains(maps, []byte(library)) {
				return true
			}
		}
		stat, ok := proc.Of(pid)
		if !ok {
			return false
		}
		pid = stat.Parent
	}
	return false
}
