package launcher

import (
	"context"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/gorun-mpi/gorun/launcher/hostfile"
)

// srunOptions start one process on a host of the allocation, beside whatever runs there, with
// all of the host's CPUs that the allocation has. srun's own variables come after options.
var srunOptions = []string{"--overlap", "--nodes=1", "--ntasks=1", "--ntasks-per-node=1", "--mpi=none", "--cpu-bind=none", "--export=ALL", "--unbuffered", "--quiet"}

// srun is the command that starts a command on a host of the allocation.
func (job *Job) srun(host string) []string {
	return slices.Concat([]string{"srun"}, srunOptions, job.RemoteArgs, []string{"--nodelist=" + job.node(host)})
}

// node is the name that the allocation has for a host, the only one by which srun knows it.
func (job *Job) node(host string) string {
	list, err := hostfile.List(job.variable("SLURM_JOB_NODELIST"))
	if at := hostfile.Find(list, host); err == nil && at >= 0 {
		return list[at].Name
	}
	return host
}

// slurmLimit is how long Slurm may take to say what has become of an allocation.
const slurmLimit = 2 * time.Second

// revoked tells whether Slurm has ended the allocation that this process is in, which ends whatever runs
// there by signals. It asks Slurm only of causes that come of that, and keeps silent where Slurm does.
func (job *Job) revoked(ctx context.Context, c *Cause) (message string, is bool) {
	byKill := func(s syscall.Signal) bool { return s == syscall.SIGTERM || s == syscall.SIGKILL }
	if !c.lost && !byKill(c.Signal) && !byKill(syscall.Signal(c.Status-statusSignal)) {
		return "", false
	}
	id := job.variable("SLURM_JOB_ID")
	if id == "" {
		return "", false
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), slurmLimit)
	defer cancel()
	for {
		ask := exec.CommandContext(ctx, "squeue", "--noheader", "--states=all", "--jobs="+id, "--format=%T %r")
		ask.Env = job.environ
		text, err := ask.Output()
		// Slurm's signal is for all processes of a batch step, and may end this one too.
		if ctx.Err() == nil && ask.ProcessState != nil && ask.ProcessState.Sys().(syscall.WaitStatus).Signaled() {
			continue
		}
		return allocationEnd(id, string(text), err)
	}
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

// variable is one of this process's environment; "": it is not set.
func (job *Job) variable(name string) string {
	for _, entry := range job.environ {
		if value, ok := strings.CutPrefix(entry, name+"="); ok {
			return value
		}
	}
	return ""
}
