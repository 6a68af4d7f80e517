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

// A BatchSystem is one whose own command starts agents in its jobs, instead of ssh.
type BatchSystem struct {
	Launcher   string // its word for [Agents.Launcher]
	Command    string // that starts the agents
	Allocation string // a job of it, as "an allocation of Slurm"

	variables []string // that its jobs have, the job's number first
	submit    string   // a command that starts gorun in such a job

	start func(job *Job, host string, argv []string) []string // the command that starts another on a host; argv is quoted where a shell reads it
	try   func(job *Job, host string, argv []string) string   // the same for a user to type

	ask   func(id string) []string // the command that says what has become of a job; nil: there is none
	kills []syscall.Signal         // by which it ends what runs there
	end   func(id, text string, err error) (message string, is bool)
}

var batchSystems = []BatchSystem{slurm, gridengine}

// BatchSystems are all that [Agents.Launcher] can name.
func BatchSystems() []BatchSystem { return slices.Clone(batchSystems) }

// theSystem is the batch system that is it; nil: none is.
func theSystem(is func(BatchSystem) bool) *BatchSystem {
	if at := slices.IndexFunc(batchSystems, is); at >= 0 {
		return &batchSystems[at]
	}
	return nil
}

// launchedBy is the batch system whose command starts agents; nil: none does.
func (job *Job) launchedBy() *BatchSystem {
	return theSystem(func(b BatchSystem) bool { return b.Launcher == job.Agents.Launcher })
}

// isAround tells whether this process is in one of its jobs.
func (b BatchSystem) isAround(job *Job) bool {
	return !slices.ContainsFunc(b.variables, func(name string) bool { return envvar.Get(job.run.environ, name) == "" })
}

// revoked tells whether the batch system has ended the allocation that this process is in, which ends whatever runs
// there by signals. It asks only of causes that come of that, and keeps silent where the batch system does.
func (job *Job) revoked(ctx context.Context, c *Cause) (message string, is bool) {
	b := theSystem(func(b BatchSystem) bool { return b.isAround(job) })
	byKill := func(s syscall.Signal) bool { return slices.Contains(b.kills, s) }
	if b == nil || b.ask == nil || !c.lost && !byKill(c.Signal) && !byKill(syscall.Signal(c.Status-statusSignal)) {
		return "", false
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), batchLimit)
	defer cancel()
	id := envvar.Get(job.run.environ, b.variables[0])
	for argv := b.ask(id); ; {
		ask := exec.CommandContext(ctx, argv[0], argv[1:]...)
		ask.Env = job.run.environ
		text, err := ask.Output()
		// The signal is for all processes of a batch step, and may end this one too.
		if ctx.Err() == nil && ask.ProcessState != nil && ask.ProcessState.Sys().(syscall.WaitStatus).Signaled() {
			continue
		}
		return b.end(id, string(text), err)
	}
}
