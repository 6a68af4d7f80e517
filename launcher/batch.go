package launcher

import (
	"context"
	"os/exec"
	"slices"
	"syscall"
	"time"

	"github.com/gorun-mpi/gorun/internal/envvar"
)

// batchLimit is how long a batch system may take to say what has become of an allocation.
const batchLimit = 2 * time.Second

// asks is how a batch system is asked what has become of an allocation.
type asks struct {
	argv  []string
	kills []syscall.Signal // by which it ends what runs there
	end   func(id, text string, err error) (message string, is bool)
}

// batch is the allocation that this process is in, by the batch system's number; "": none that can be asked.
func (job *Job) batch() (id string, a asks) {
	if id = envvar.Get(job.run.environ, "SLURM_JOB_ID"); id != "" {
		return id, asks{[]string{"squeue", "--noheader", "--states=all", "--jobs=" + id, "--format=%T %r"}, []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL}, allocationEnd}
	}
	if id = envvar.Get(job.run.environ, "JOB_ID"); id != "" && envvar.Get(job.run.environ, "PE_HOSTFILE") != "" {
		// Jobs of qsub -notify are told of it by SIGUSR2, of a limit by SIGUSR1.
		return id, asks{[]string{"qstat"}, []syscall.Signal{syscall.SIGUSR2, syscall.SIGUSR1, syscall.SIGTERM, syscall.SIGKILL}, gridEnd}
	}
	return "", a
}

// revoked tells whether the batch system has ended the allocation that this process is in, which ends whatever runs
// there by signals. It asks only of causes that come of that, and keeps silent where the batch system does.
func (job *Job) revoked(ctx context.Context, c *Cause) (message string, is bool) {
	id, a := job.batch()
	byKill := func(s syscall.Signal) bool { return slices.Contains(a.kills, s) }
	if id == "" || !c.lost && !byKill(c.Signal) && !byKill(syscall.Signal(c.Status-statusSignal)) {
		return "", false
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), batchLimit)
	defer cancel()
	for {
		ask := exec.CommandContext(ctx, a.argv[0], a.argv[1:]...)
		ask.Env = job.run.environ
		text, err := ask.Output()
		// The signal is for all processes of a batch step, and may end this one too.
		if ctx.Err() == nil && ask.ProcessState != nil && ask.ProcessState.Sys().(syscall.WaitStatus).Signaled() {
			continue
		}
		return a.end(id, string(text), err)
	}
}
