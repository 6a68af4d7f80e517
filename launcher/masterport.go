package launcher

import (
	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/internal/ports"
	"github.com/gorun-mpi/gorun/launcher/internal/host"
)

// masterPort is where processes that meet by themselves may do so, as MASTER_PORT tells
// them: a port of rank 0's host that is free now, 0 if it cannot be found or the user names
// one. A port of another machine is free there if it is here, most probably. Nobody holds the port until rank 0 takes it, as under torchrun.
func (g *group) masterPort(among ports.Range) int {
	for _, app := range g.apps {
		if !host.UserSets(app.Env, "MASTER_PORT") {
			return freePort(among)
		}
	}
	return 0
}

// freePort is a port of this machine that nobody uses, one of those given; 0 if that cannot be found out.
func freePort(among ports.Range) int {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0
	}
	defer unix.Close(fd)
	if among.Bind(func(port int) error { return unix.Bind(fd, &unix.SockaddrInet4{Port: port}) }) != nil {
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
