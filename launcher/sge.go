package launcher

import (
	"slices"
	"strings"
	"syscall"
)

var gridengine = BatchSystem{
	Launcher: "sge", Command: "qrsh -inherit", Allocation: "a parallel job of gridengine",
	variables: []string{"JOB_ID", "PE_HOSTFILE"}, submit: "qsub -b y -pe NAME 4 gorun ./program",
	start: func(job *Job, host string, argv []string) []string {
		return append(job.qrsh(host), "exec "+quote(argv))
	},
	try: func(job *Job, host string, argv []string) string {
		return strings.Join(append(job.qrsh(host), argv...), " ") + ", or --launcher ssh"
	},
	ask: func(string) []string { return []string{"qstat"} },
	// Jobs of qsub -notify are told of their end by SIGUSR2, of a limit by SIGUSR1.
	kills: []syscall.Signal{syscall.SIGUSR2, syscall.SIGUSR1, syscall.SIGTERM, syscall.SIGKILL}, end: gridEnd,
}

// qrsh is the command that starts a command of a shell on a host of a gridengine's job.
func (job *Job) qrsh(host string) []string {
	return slices.Concat([]string{"qrsh", "-inherit"}, job.Agents.ShellArgs, []string{host})
}

// gridEnd reads the state of a job in what qstat says of all: job, priority, name, user, state. A job that is being
// deleted is listed until nothing is left of it.
func gridEnd(id, text string, err error) (message string, is bool) {
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); err == nil && len(f) > 4 && f[0] == id && strings.Contains(f[4], "d") {
			return "the allocation was cancelled (gridengine's job " + id + ")", true
		}
	}
	return "", false
}
