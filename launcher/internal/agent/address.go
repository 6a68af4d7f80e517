package agent

import (
	"net/netip"
	"strings"

	"github.com/gorun-mpi/gorun/internal/ports"
	"github.com/gorun-mpi/gorun/internal/reach"
)

// A Way is what the controller knows of how the hosts of a job reach each other.
type Way struct {
	// Apart: the hosts are several machines. Without it they are all this one, whatever
	// the other fields say.
	Apart bool
	// Interface is the name of an interface or a network in CIDR form that the user has
	// chosen; "" leaves the choice to the host.
	Interface string
	// Toward is an address of another host; "": none is known.
	Toward string
	// Ports are those of which everything that listens for other hosts takes its own.
	Ports ports.Range
	// Remote: ssh, or another remote shell, has started the agent.
	Remote bool
}

// loopback is the address of hosts that are all this machine.
var loopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// Address is the address at which the job's other hosts reach this one, and why it is
// that: the one that the user has chosen, else the one that ssh came to, as session, the value
// of SSH_CONNECTION, tells, else the one from which packets go to another host.
func (w Way) Address(session string) (a netip.Addr, why string, err error) {
	if !w.Apart {
		return loopback, "all hosts are this machine", nil
	}
	list, err := reach.Here()
	if err != nil {
		return a, "", err
	}
	if w.Interface != "" {
		a, err = reach.Named(list, "--interface", w.Interface)
		return a, "--interface " + w.Interface, err
	}
	if f := strings.Fields(session); w.Remote && len(f) == 4 {
		if a, err := netip.ParseAddr(f[2]); err == nil && reach.Useful(a.Unmap()) {
			return a.Unmap(), "ssh has come to it", nil
		}
	}
	if w.Toward != "" {
		if a, ok := reach.Toward(w.Toward); ok {
			return a, "the route to " + w.Toward + " begins there", nil
		}
	}
	first, err := reach.First(list, "--interface NAME or CIDR")
	return first.Prefix.Addr(), "the first of the interfaces, " + first.Interface, err
}
