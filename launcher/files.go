package launcher

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// An agent takes three open files of this process: its standard streams. A remote shell takes three more while it is under way,
// of which there are as many as the job's gate has places.
const (
	filesOfAgent = 3
	filesSpare   = 16 // for what else the job opens, and the start of an agent
)

// roomForFiles tells when the limit of open files will not do for the agents of some hosts more. Go has raised the soft
// limit to the hard one.
func (job *Job) roomForFiles(hosts []string) error {
	var limit unix.Rlimit
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil || unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil {
		return nil // the kernel will say so
	}
	shells := 0
	for _, h := range hosts {
		if job.remote(h) {
			shells++
		}
	}
	agents := len(hosts)
	if blocks := job.blocks(hosts); blocks != nil { // whose relays have them, and this process those
		agents += len(blocks) - shells
		shells = len(blocks)
	}
	need := uint64(len(open) + filesOfAgent*(agents+min(shells, cap(job.run.gate))) + filesSpare)
	if need <= limit.Cur {
		return nil
	}
	return fmt.Errorf("found a limit of %d open files (RLIMIT_NOFILE; ulimit -Hn shows it), expected %d or more for the agents of %d hosts; try ulimit -n %d as root, or fewer hosts", limit.Cur, need, len(hosts), need)
}
