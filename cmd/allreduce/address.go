package main

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// parseAddresses reads a list of HOST[:PORT]; those without a port get the given one. links
// names the interfaces that have link-local addresses. An address given twice counts once.
func parseAddresses(list string, port int, links func() []string) ([]string, error) {
	var all []string
	for entry := range strings.SplitSeq(list, ",") {
		address, err := parseAddress(strings.TrimSpace(entry), port, links)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(all, address) {
			all = append(all, address)
		}
	}
	return all, nil
}

func parseAddress(entry string, port int, links func() []string) (string, error) {
	wrong := func(format string, args ...any) (string, error) {
		return "", fmt.Errorf("found the address %q, expected HOST:PORT, or [IPV6]:PORT: %s", entry, fmt.Sprintf(format, args...))
	}
	host, given := entry, ""
	switch {
	case strings.HasPrefix(entry, "["):
		inside, rest, ok := strings.Cut(entry[1:], "]")
		if !ok || rest != "" && !strings.HasPrefix(rest, ":") {
			return wrong("behind [ follow an address of IPv6, ], and a port")
		}
		if ip, err := netip.ParseAddr(inside); err != nil || !ip.Is6() {
			return wrong("%q is no address of IPv6", inside)
		}
		host, given = inside, strings.TrimPrefix(rest, ":")
		if rest == ":" {
			return wrong("no port behind the :")
		}
	case strings.Count(entry, ":") == 1:
		host, given, _ = strings.Cut(entry, ":")
		if given == "" {
			return wrong("no port behind the :")
		}
	case strings.Count(entry, ":") > 1:
		if ip, err := netip.ParseAddr(entry); err != nil || !ip.Is6() {
			return wrong("it has several colons and is no address of IPv6")
		}
	}
	if host == "" {
		return wrong("no host")
	}
	if given != "" {
		n, err := strconv.ParseUint(given, 10, 16)
		if err != nil {
			return wrong("the port %q is no number up to 65535", given)
		}
		port = int(n)
	}
	if port == 0 {
		return wrong("it has no port, and -p/--port gives none")
	}
	if ip, err := netip.ParseAddr(host); err == nil && ip.Is6() && ip.IsLinkLocalUnicast() {
		names := links()
		if ip.Zone() == "" {
			example := "IFACE"
			if len(names) > 0 {
				example = names[0]
			}
			return "", fmt.Errorf("found the link-local address %q without an interface, expected [%s%%%s]:%d; interfaces: %s", entry, host, example, port, listOr(names, "none has link-local addresses"))
		}
		if _, err := net.InterfaceByName(ip.Zone()); err != nil {
			return "", fmt.Errorf("found the address %q, but there is no interface %q; interfaces: %s", entry, ip.Zone(), listOr(names, "none has link-local addresses"))
		}
	}
	return net.JoinHostPort(host, strconv.Itoa(port)), nil
}

func listOr(names []string, none string) string {
	if len(names) == 0 {
		return none
	}
	return strings.Join(names, ", ")
}

// linkLocals are the interfaces of this host that have link-local addresses of IPv6.
func linkLocals() []string {
	var names []string
	all, _ := net.Interfaces()
	for _, i := range all {
		addresses, _ := i.Addrs()
		if slices.ContainsFunc(addresses, func(a net.Addr) bool {
			n, ok := a.(*net.IPNet)
			return ok && n.IP.To4() == nil && n.IP.IsLinkLocalUnicast()
		}) {
			names = append(names, i.Name)
		}
	}
	return names
}
