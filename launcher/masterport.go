package launcher

import (
	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/launcher/internal/host"
)

// master is where processes that meet by themselves may do so, as MASTER_ADDR
// and MASTER_PORT tell them: the address of rank 0's host, and a port that is
// free there now. Nobody holds the port until rank 0 takes it, as under torchrun.
// All hosts that can be reached are this machine.
func (g *group) master() (address string, port int) {
	for _, app := range g.apps {
		if !host.UserSets(app.Env, "MASTER_PORT") {
			return "127.0.0.1", freePort()
		}
	}
	return "127.0.0.1", 0
}

// freePort is a port of this machine that nobody uses; 0 if that cannot be found
// out.
func freePort() int {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, &unix.SockaddrInet4{}); err != nil {
		return 0
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		return 0
	}
	if in4, ok := name.(*unix.SockaddrInet4); ok {
		return in4.Port
	}
	return 0
}
