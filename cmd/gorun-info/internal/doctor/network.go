package doctor

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

func loopback(ctx context.Context, v *View) Finding {
	if err := v.TryLoopback(ctx); err != nil {
		return problem("ip link set lo up", "no connection over 127.0.0.1: %v", err)
	}
	return ok("works")
}

// slow is how long a name may take to be looked up.
const slow = time.Second

func hostname(ctx context.Context, v *View) Finding {
	name, err := v.Hostname()
	if err != nil || name == "" {
		return problem("hostname NAME", "this host has no name (%v)", err)
	}
	fix := fmt.Sprintf("echo %s >>/etc/hosts", shellWord(v.address()+" "+name))
	start := v.Now()
	addrs, err := v.Resolve(ctx, name)
	took := v.Now().Sub(start)
	if err != nil || len(addrs) == 0 {
		return problem(fix, "%s has no address: %v", name, err)
	}
	var texts []string
	own, outside := false, false
	interfaces, _ := v.Interfaces() // without them no address is known to be wrong
	for _, a := range addrs {
		a = a.Unmap().WithZone("")
		if text := a.String(); !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
		outside = outside || !a.IsLoopback()
		own = own || a.IsLoopback() || len(interfaces) == 0 || slices.ContainsFunc(interfaces, func(i Interface) bool { return slices.Contains(i.Addrs, a) })
	}
	found := name + " is " + strings.Join(texts, ", ")
	switch names, err := v.Reverse(ctx, addrs[0].Unmap()); { // /etc/hosts has no mapped addresses
	case err != nil || len(names) == 0:
		found += ", which has no reverse name"
	default:
		found += ", reverse name " + strings.TrimSuffix(names[0], ".")
	}
	switch {
	case !own:
		return problem(fix, "%s: no interface of this host has that address", found)
	case took > slow:
		return note(fix, "%s; it took %.1f s to find out", found, took.Seconds())
	case !outside && v.address() != "127.0.0.1":
		return note(fix, "%s: other hosts would connect to themselves by this name", found)
	}
	return ok("%s", found)
}

// address is the one by which other hosts reach this one, as far as one can
// tell: the first that is neither loopback nor a bridge's.
func (v *View) address() string {
	interfaces, err := v.Interfaces()
	if err == nil {
		for _, i := range interfaces {
			for _, a := range i.Addrs {
				if bridge(i.Name) == "" && a.Is4() && !a.IsLoopback() && !a.IsLinkLocalUnicast() {
					return a.String()
				}
			}
		}
	}
	return "127.0.0.1"
}

// bridge tells whose an interface is that leads to no other host, "" when it is
// none of those.
func bridge(name string) string {
	for _, b := range [...]struct{ prefix, whose string }{
		{"docker", "Docker"}, {"br-", "Docker"}, {"virbr", "libvirt"}, {"lxcbr", "LXC"}, {"lxdbr", "LXD"}, {"incusbr", "Incus"}, {"podman", "Podman"},
		{"cni", "CNI"}, {"flannel", "flannel"}, {"cali", "Calico"}, {"weave", "Weave"}, {"cilium", "Cilium"}, {"vboxnet", "VirtualBox"}, {"vmnet", "VMware"}, {"veth", "a container"},
	} {
		if strings.HasPrefix(name, b.prefix) {
			return b.whose
		}
	}
	return ""
}

func interfaces(_ context.Context, v *View) Finding {
	list, err := v.Interfaces()
	if err != nil {
		return note("ip address", "they cannot be listed: %v", err)
	}
	var found, wrong, good []string
	for _, i := range list {
		var addrs []string
		for _, a := range i.Addrs {
			if !a.IsLinkLocalUnicast() {
				addrs = append(addrs, a.String())
			}
		}
		if len(addrs) == 0 {
			continue
		}
		text := i.Name + " " + strings.Join(addrs, " ")
		switch whose := bridge(i.Name); {
		case whose != "":
			wrong = append(wrong, i.Name)
			text += " (" + whose + "'s)"
		case slices.ContainsFunc(i.Addrs, netip.Addr.IsLoopback):
		default:
			good = append(good, i.Name)
		}
		found = append(found, text)
	}
	all := strings.Join(found, "; ")
	switch {
	case len(found) == 0:
		return problem("ip link set lo up", "no interface has an address")
	case wrong != nil && good != nil:
		exclude := "lo," + strings.Join(wrong, ",")
		return note(fmt.Sprintf("export UCX_NET_DEVICES=%s OMPI_MCA_btl_tcp_if_exclude=%s OMPI_MCA_oob_tcp_if_exclude=%s", strings.Join(good, ","), exclude, exclude), "%s", all)
	case good == nil:
		return ok("%s; no other host can be reached", all)
	}
	return ok("%s", all)
}
