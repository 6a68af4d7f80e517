package launcher

import (
	"slices"
	"strings"
	"syscall"

	"github.com/gorun-mpi/gorun/internal/envvar"
	"github.com/gorun-mpi/gorun/launcher/hostfile"
)

var slurm = BatchSystem{
	Launcher: "slurm", Command: "srun", Allocation: "an allocation of Slurm",
	variables: []string{"SLURM_JOB_ID"}, submit: "salloc --nodes=2 gorun ./program",
	start: func(job *Job, host string, argv []string) []string { return slices.Concat(job.srun(host), argv) },
	try: func(job *Job, host string, argv []string) string {
		return strings.Join(slices.Concat([]string{"srun", "--overlap", "--nodes=1", "--ntasks=1"}, job.Agents.ShellArgs, []string{"--nodelist=" + host}, argv), " ")
	},
	ask: func(id string) []string {
		return []string{"squeue", "--noheader", "--states=all", "--jobs=" + id, "--format=%T %r"}
	},
	kills: []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL}, end: allocationEnd,
}

// srunOptions start one process on a host of the allocation, beside whatever runs there, with
// all of the host's CPUs that the allocation has. srun's own variables come after options.
var srunOptions = []string{"--overlap", "--nodes=1", "--ntasks=1", "--ntasks-per-node=1", "--mpi=none", "--cpu-bind=none", "--export=ALL", "--unbuffered", "--quiet"}

// srun is the command that starts a command on a host of the allocation.
func (job *Job) srun(host string) []string {
	return slices.Concat([]string{"srun"}, srunOptions, job.Agents.ShellArgs, []string{"--nodelist=" + job.node(host)})
}

// node is the name that the allocation has for a host, the only one by which srun knows it.
func (job *Job) node(host string) string {
	list, err := hostfile.List(envvar.Get(job.run.environ, "SLURM_JOB_NODELIST"))
	if at := hostfile.Find(list, host); err == nil && at >= 0 {
		return list[at].Name
	}
	return host
}

// allocationEnd reads what squeue says of a job: its state, and Slurm's reason for it.
func allocationEnd(id, text string, err error) (message string, is bool) {
	f := strings.Fields(text)
	if err != nil || len(f) == 0 {
		return "", false
	}
	switch f[0] {
	case "RUNNING", "SUSPENDED", "CONFIGURING", "SIGNALING", "STAGE_OUT", "STOPPED", "RESIZING":
		return "", false
	}
	message = "the allocation was cancelled (Slurm's job " + id
	if len(f) > 1 && f[1] != "None" {
		message += ": " + f[1]
	}
	return message + ")", true
}
