// Package reach finds the address at which other hosts reach this one, and tells which names are its own: gorun, its
// agents and ranks under other launchers ask it.
package reach

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// An Address is one of an interface that is up, with its network.
type Address struct {
	Interface string
	Prefix    netip.Prefix
}

// Here is this machine's addresses, in the kernel's order.
func Here() (list []Address, err error) {
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
				list = append(list, Address{i.Name, p})
			}
		}
	}
	return list, nil
}

// Outer is what of a list may lead other hosts here.
func Outer(list []Address) []Address {
	return slices.DeleteFunc(slices.Clone(list), func(a Address) bool { return !Useful(a.Prefix.Addr()) || inner(a.Interface) })
}

// Useful tells whether another host can reach an address that this one has.
func Useful(a netip.Addr) bool { return a.IsGlobalUnicast() && a.Zone() == "" }

// inner tells whether an interface leads to what runs inside this machine.
func inner(name string) bool {
	return slices.ContainsFunc([]string{"lo", "docker", "virbr", "veth", "br-", "cni", "podman"}, func(p string) bool { return strings.HasPrefix(name, p) })
}

// Named is the address of the interface, or in the network in CIDR form, that the user names,
// whatever it is. setting is where, for the error.
func Named(list []Address, setting, choice string) (netip.Addr, error) {
	network, notNetwork := netip.ParsePrefix(choice)
	for _, x := range list {
		a := x.Prefix.Addr()
		if notNetwork == nil && network.Contains(a) || x.Interface == choice && !a.IsLinkLocalUnicast() {
			return a, nil
		}
	}
	return netip.Addr{}, fmt.Errorf("%s %s: no interface here has that name or an address in that network; found %s", setting, choice, describe(list))
}

// Toward is the address from which packets go to another one; false: from none that others
// can reach. Nothing is sent.
func Toward(other string) (netip.Addr, bool) {
	// Connecting a datagram socket has the kernel look up the route.
	c, err := net.Dial("udp", net.JoinHostPort(other, "9"))
	if err != nil {
		return netip.Addr{}, false
	}
	at, _ := netip.ParseAddrPort(c.LocalAddr().String())
	c.Close()
	a := at.Addr().Unmap()
	return a, Useful(a)
}

// First is the first address that may lead other hosts here. setting is how the user may name
// another, for the error.
func First(list []Address, setting string) (Address, error) {
	if outer := Outer(list); len(outer) > 0 {
		return outer[0], nil
	}
	return Address{}, fmt.Errorf("no interface has an address that other hosts reach; found %s, expected %s", describe(list), setting)
}

// Shared is the address of own that lies in a network with most of the other hosts, the first
// of several, and with how many; 0: there is none. An address that another host has too, as
// that of a virtual machine's own network, leads to neither.
func Shared(own []netip.Prefix, others [][]netip.Prefix) (best netip.Addr, hosts int) {
	for _, p := range own {
		n := 0
		for _, list := range others {
			if slices.ContainsFunc(list, func(q netip.Prefix) bool { return q.Addr() == p.Addr() }) {
				n = 0
				break
			}
			if slices.ContainsFunc(list, func(q netip.Prefix) bool { return p.Masked() == q.Masked() }) {
				n++
			}
		}
		if n > hosts {
			best, hosts = p.Addr(), n
		}
	}
	return best, hosts
}

func describe(list []Address) string {
	var text []string
	for _, x := range list {
		text = append(text, x.Interface+" "+x.Prefix.String())
	}
	if text == nil {
		return "no interface that is up"
	}
	return strings.Join(text, ", ")
}
