package agent

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
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
	// Remote: a remote shell has started the agent.
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
	if w.Interface != "" {
		return w.chosen()
	}
	if f := strings.Fields(session); w.Remote && len(f) == 4 {
		if a, err := netip.ParseAddr(f[2]); err == nil && useful(a.Unmap()) {
			return a.Unmap(), "ssh has come to it", nil
		}
	}
	if w.Toward != "" {
		// Connecting a datagram socket sends nothing: the kernel looks up the route.
		if c, err := net.Dial("udp", net.JoinHostPort(w.Toward, "9")); err == nil {
			at, _ := netip.ParseAddrPort(c.LocalAddr().String())
			c.Close()
			if a := at.Addr().Unmap(); useful(a) {
				return a, "the route to " + w.Toward + " begins there", nil
			}
		}
	}
	list, err := addresses()
	if err != nil {
		return a, "", err
	}
	for _, x := range list {
		if useful(x.prefix.Addr()) && !inner(x.name) {
			return x.prefix.Addr(), "the first of the interfaces, " + x.name, nil
		}
	}
	return a, "", fmt.Errorf("no interface has an address that other hosts reach; found %s, expected --interface NAME or CIDR", describe(list))
}

// chosen is the address of the interface or network that the user names, whatever it is.
func (w Way) chosen() (a netip.Addr, why string, err error) {
	list, err := addresses()
	if err != nil {
		return a, "", err
	}
	network, notNetwork := netip.ParsePrefix(w.Interface)
	for _, x := range list {
		a := x.prefix.Addr()
		if notNetwork == nil && network.Contains(a) || x.name == w.Interface && !a.IsLinkLocalUnicast() {
			return a, "--interface " + w.Interface, nil
		}
	}
	return a, "", fmt.Errorf("--interface %s: no interface here has that name or an address in that network; found %s", w.Interface, describe(list))
}

// useful tells whether another host can reach an address that this one has.
func useful(a netip.Addr) bool { return a.IsGlobalUnicast() && a.Zone() == "" }

// inner tells whether an interface leads to what runs inside this machine.
func inner(name string) bool {
	return slices.ContainsFunc([]string{"lo", "docker", "virbr", "veth", "br-", "cni", "podman"}, func(p string) bool { return strings.HasPrefix(name, p) })
}

// An address of an interface that is up.
type interfaceAddress struct {
	name   string
	prefix netip.Prefix
}

func addresses() (list []interfaceAddress, err error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list the network interfaces: %w", err)
	}
	for _, i := range all {
		if i.Flags&net.FlagUp == 0 {
			continue
		}
		its, err := i.Addrs()
		if err != nil {
			continue // it has just gone
		}
		for _, a := range its {
			if p, err := netip.ParsePrefix(a.String()); err == nil {
				list = append(list, interfaceAddress{i.Name, p})
			}
		}
	}
	return list, nil
}

func describe(list []interfaceAddress) string {
	var text []string
	for _, x := range list {
		text = append(text, x.name+" "+x.prefix.String())
	}
	if text == nil {
		return "no interface that is up"
	}
	return strings.Join(text, ", ")
}
