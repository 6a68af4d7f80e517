package doctor

import (
	"context"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/gorun-mpi/gorun/internal/meet"
	"github.com/gorun-mpi/gorun/internal/ports"
)

// A guest is a host that can take part in a meeting: its agent is of our version.
type guest struct {
	name, login string
	agent       string // its file there
}

// pairs has this machine and the guests call each other, and finds which pairs do not reach each other.
func (v *View) pairs(ctx context.Context, guests []guest) []Finding {
	if len(guests) == 0 {
		return nil
	}
	of, err := v.ports()
	if err != nil {
		return []Finding{{Name: "pairs", State: Problem, Found: err.Error(), Fix: "gorun-info doctor --tcp-ports 40000-40100, with gorun --tcp-ports of the same"}}
	}
	// This machine takes part, unless it is a guest already.
	own, _ := v.Hostname()
	if here := path.Join(v.Beside, "gorun-agent"); v.executable(here) && !slices.ContainsFunc(guests, func(g guest) bool { return v.IsOwn(g.name) }) {
		guests = append([]guest{{own, "", here}}, guests...)
	}
	toward := ""
	for _, g := range guests {
		if addrs, err := v.Resolve(ctx, g.name); toward == "" && g.login != "" && err == nil && len(addrs) > 0 {
			toward = addrs[0].Unmap().String()
		}
	}
	programs := make([]*Program, len(guests))
	streams := make([]meet.Stream, len(guests))
	orders := make([]meet.Order, len(guests))
	for i, g := range guests {
		argv := []string{g.agent, "--meet"}
		if g.login != "" {
			argv = append(slices.Clone(ssh), "-T", "--", g.login, "exec "+shellWord(g.agent)+" --meet")
		}
		p, err := v.Start(ctx, argv...)
		if err != nil {
			return []Finding{{Name: "pairs", State: Problem, Found: fmt.Sprintf("%s: %v", argv[0], err), Fix: "apt-get install openssh-client"}}
		}
		programs[i], streams[i] = p, p.Stream
		orders[i] = meet.Order{Interface: v.variable("GORUN_INTERFACE"), Toward: toward, Remote: g.login != "", Ports: of}
	}
	hosts := meet.All(ctx, streams, orders)
	var list []Finding
	for i, g := range guests {
		stderr, err := programs[i].Wait()
		list = append(list, met(g, hosts[i], stderr, err))
	}
	return append(list, calls(guests, hosts, of)...)
}

// ports are those at which a job's hosts listen: of the command line, else of the environment, as gorun reads it.
func (v *View) ports() (ports.Range, error) {
	if v.Ports.Len() > 0 {
		return v.Ports, nil
	}
	for _, name := range []string{"GORUN_TCP_PORTS", "MPIEXEC_PORT_RANGE"} {
		text := v.variable(name)
		if text == "" || name == "MPIEXEC_PORT_RANGE" && text == "0:0" { // any
			continue
		}
		of, err := ports.Parse(text)
		if err != nil {
			err = fmt.Errorf("%s: %w", name, err)
		}
		return of, err
	}
	return ports.Range{}, nil
}

// met is the finding about one host of a meeting.
func met(g guest, h meet.Host, stderr string, ended error) Finding {
	f := Finding{Name: "host " + g.name + " address", State: OK, Why: "the agents and ranks of a job's other hosts connect to this address"}
	switch {
	case h.Err != nil:
		found := h.Err.Error()
		if lines := strings.Split(strings.TrimSpace(stderr), "\n"); lines[0] != "" {
			found = lines[len(lines)-1]
		} else if ended != nil {
			found += " (" + ended.Error() + ")"
		}
		f.State, f.Found, f.Fix = Problem, "its agent does not meet the others: "+found, strings.TrimSpace("ssh -v "+g.login)+" "+g.agent+" --meet </dev/null"
	case len(h.Own) > 0 && g.login != "" && !slices.ContainsFunc(h.Own, notLoopback):
		f.State, f.Found = Note, fmt.Sprintf("%s, for gorun; it calls itself %s, which is %s there: other MPIs' ranks would connect to themselves", h.Address, h.Host, strings.Join(h.Own, ", "))
		f.Fix = fmt.Sprintf("on %s: sed -i 's/.*\\<%s\\>/%s %s/' /etc/hosts", g.name, h.Host, h.Address, h.Host)
	default:
		f.Found = h.Address + ", " + h.Why
	}
	return f
}

func notLoopback(text string) bool {
	a, err := netip.ParseAddr(text)
	return err == nil && !a.IsLoopback()
}

// calls are the findings about the pairs of hosts, which listened at ports of a range.
func calls(guests []guest, hosts []meet.Host, of ports.Range) (list []Finding) {
	made, slowest := 0, time.Duration(0)
	for i, a := range hosts {
		for j, b := range hosts {
			if i == j || a.Err != nil || b.Err != nil {
				continue
			}
			there, back := a.Calls[j], b.Calls[i]
			made++
			slowest = max(slowest, there.Took)
			switch {
			case there.TCP != "" && back.TCP != "" && i > j:
				// The other direction has told it.
			case there.TCP != "":
				how := guests[j].name + " reaches " + guests[i].name
				if back.TCP != "" {
					how = guests[j].name + " to " + guests[i].name + ": " + back.TCP
				}
				list = append(list, Finding{Name: guests[i].name + " to " + guests[j].name, State: Problem, Why: "ranks of every host connect to those of every other one",
					Found: fmt.Sprintf("TCP to %s: %s; %s", b.Address, there.TCP, how), Fix: letIn("tcp", guests[j].name, a.Address, of)})
			case there.UDP != "":
				list = append(list, Finding{Name: guests[i].name + " to " + guests[j].name, State: Note, Why: "a host that shows by datagrams that it lives is not taken for lost on a busy network",
					Found: fmt.Sprintf("UDP to %s: %s; TCP works", b.Address, there.UDP), Fix: letIn("udp", guests[j].name, a.Address, of)})
			}
		}
	}
	if made > 0 && list == nil {
		at := ""
		if of.Len() > 0 {
			at = fmt.Sprintf(" at the ports %v", of)
		}
		list = append(list, Finding{Name: "pairs", State: OK, Why: "ranks of every host connect to those of every other one",
			Found: fmt.Sprintf("%d hosts call each other by TCP and UDP%s, and all answer; the slowest connection took %.1f ms", len(hosts), at, slowest.Seconds()*1e3)})
	}
	return list
}

// letIn is how a host's firewall is seen, and told to let another one's calls in.
func letIn(protocol, host, from string, to ports.Range) string {
	family := "ip"
	if strings.Contains(from, ":") {
		family = "ip6"
	}
	what, which := "meta l4proto "+protocol, " (gorun takes free ports, of net.ipv4.ip_local_port_range, or those of --tcp-ports 40000-40100)"
	if to.Len() > 0 {
		what, which = fmt.Sprintf("%s dport %v", protocol, to), ""
	}
	return fmt.Sprintf("on %s: nft list ruleset; then let in, before what drops it: %s saddr %s %s accept%s", host, family, from, what, which)
}
