package doctor

import (
	"context"
	"fmt"
	"math"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gorun-mpi/gorun/launcher/hostfile"
)

// connect is how long ssh may take to reach a host.
const connect = 5 * time.Second

// skewed is by how much the clocks of hosts may differ before it is told.
const skewed = time.Second

// host are the findings about a host that was named: its address, ssh, and over
// it the agent and the clock. agent is its file, if it is of our version.
func (v *View) host(ctx context.Context, h hostfile.Host) (list []Finding, agent string) {
	name := "host " + h.Name
	address := v.hostAddress(ctx, h.Name)
	address.Name, address.Why = name, "ssh connects to this address, where its configuration names no other"
	login := login(h)
	start := v.Now()
	stdout, stderr, err := v.Run(ctx, v.sshCommand(login)...)
	end := v.Now()
	ssh := Finding{Name: name + " ssh", State: OK, Why: "launchers start agents on other hosts by ssh, without a password"}
	answered := strings.Contains(stdout, "gorun-info ")
	if !answered {
		ssh.State = Problem
		ssh.Found, ssh.Fix = refusal(login, h.Name, stderr, err)
		return []Finding{address, ssh}, ""
	}
	ssh.Found = fmt.Sprintf("works, in %.1f s", end.Sub(start).Seconds())
	its, agent := v.hostAgent(name, login, stdout)
	return []Finding{address, ssh, its, hostClock(name, login, stdout, start, end)}, agent
}

// login is what ssh calls a host.
func login(h hostfile.Host) string {
	if h.User != "" {
		return h.User + "@" + h.Name
	}
	return h.Name
}

func (v *View) hostAddress(ctx context.Context, name string) Finding {
	addrs, err := v.Resolve(ctx, name)
	if err != nil || len(addrs) == 0 {
		// ssh may know it by a Host of its own configuration.
		return note("echo 'ADDRESS "+name+"' >>/etc/hosts", "no address: %v", err)
	}
	var texts []string
	for i, a := range addrs {
		addrs[i] = a.Unmap()
		if text := addrs[i].String(); !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	all := strings.Join(texts, ", ")
	own, _ := v.Hostname()
	if slices.ContainsFunc(addrs, netip.Addr.IsLoopback) && name != "localhost" && name != own && !isAddress(name) {
		return problem("sed -i 's/.*\\<"+name+"\\>/# &/' /etc/hosts, and give it its own address", "%s, which is this host", all)
	}
	return ok("%s", all)
}

func isAddress(name string) bool {
	_, err := netip.ParseAddr(name)
	return err == nil
}

// sshCommand asks a host for its clock and its agent, in words that every
// login shell hands on.
func (v *View) sshCommand(login string) []string {
	agent := shellWord(path.Join(v.Beside, "gorun-agent"))
	script := "echo gorun-info $(date +%s.%N 2>/dev/null || date +%s); " +
		"for a in gorun-agent " + agent + "; do p=$(command -v $a) && echo agent $p && $p --version </dev/null && break; done"
	return append(slices.Clone(ssh), "-T", "-n", "--", login, "sh -c "+shellWord(script))
}

// ssh asks nothing, and gives up in time.
var ssh = []string{"ssh", "-o", "BatchMode=yes", "-o", fmt.Sprintf("ConnectTimeout=%d", int(connect/time.Second)), "-o", "ClearAllForwardings=yes"}

// refusal is why ssh did not come through, and what to do.
func refusal(login, name, stderr string, err error) (found, fix string) {
	last := ""
	for line := range strings.Lines(stderr) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "Warning: Permanently added") {
			last = line
		}
	}
	if last == "" && err != nil {
		last = err.Error()
	}
	has := func(text string) bool { return strings.Contains(stderr, text) }
	switch {
	case has("IDENTIFICATION HAS CHANGED"):
		return "its key is not the one in known_hosts", "find out why, then: ssh-keygen -R " + name + " && ssh " + login + " true"
	case has("Host key verification failed"):
		return "its key is not in known_hosts", "ssh " + login + " true (compare the key, say yes); or ssh-keyscan " + name + " >>~/.ssh/known_hosts"
	case has("Permission denied"):
		return "no key of this user's is accepted: " + last, "ssh-copy-id " + login + " (ssh-keygen first, if there is no key)"
	case has("Could not resolve"), has("Name or service not known"):
		return "ssh does not know the name: " + last, "echo 'ADDRESS " + name + "' >>/etc/hosts"
	case has("Connection refused"):
		return "nothing listens there: " + last, "on " + name + ": systemctl enable --now ssh"
	case has("timed out"), has("No route to host"), has("Network is unreachable"):
		return "it cannot be reached: " + last, "ping " + name + "; look at its firewall, port 22"
	case has("executable file not found") || err != nil && strings.Contains(err.Error(), "executable file not found"):
		return "ssh is not installed", "apt-get install openssh-client"
	}
	return last, "ssh -v " + login + " true"
}

func (v *View) hostAgent(name, login, stdout string) (f Finding, agent string) {
	f = Finding{Name: name + " agent", Why: "the agent runs the ranks of its host, and must be of the same version"}
	file, version := "", ""
	for line := range strings.Lines(stdout) {
		line = strings.TrimSpace(line)
		if p, found := strings.CutPrefix(line, "agent "); found {
			file = p
		} else if file != "" && strings.Contains(line, "gorun-agent of gorun ") {
			version = Spoken(line)
		}
	}
	copyIt := "scp " + shellWord(path.Join(v.Beside, "gorun-agent")) + " " + login + ":/usr/local/bin/"
	switch {
	case file == "":
		f.State, f.Found, f.Fix = Note, "none in PATH, and none in "+v.Beside, copyIt
	case version != v.Version:
		f.State, f.Found, f.Fix = Problem, fmt.Sprintf("%s is %q, and gorun-info is %q", file, version, v.Version), copyIt
	default:
		f.State, f.Found, agent = OK, file+", "+version, file
	}
	return f, agent
}

// hostClock holds a host's clock against ours. The host read it between start
// and end.
func hostClock(name, login, stdout string, start, end time.Time) Finding {
	f := Finding{Name: name + " clock", State: OK, Why: "make and the output of several hosts compare times of different clocks"}
	var text string
	for line := range strings.Lines(stdout) {
		if rest, found := strings.CutPrefix(line, "gorun-info "); found {
			text = strings.TrimSpace(rest)
		}
	}
	whole, fraction, _ := strings.Cut(text, ".")
	if fraction == "" || strings.Trim(fraction, "0123456789") != "" {
		// A date without nanoseconds has cut them off.
		text, start = whole, start.Add(-time.Second)
	}
	seconds, err := strconv.ParseFloat(text, 64)
	if err != nil {
		f.State, f.Found, f.Fix = Note, fmt.Sprintf("%q is no time", text), "ssh "+login+" date"
		return f
	}
	there := time.UnixMicro(int64(math.Round(seconds * 1e6)))
	switch {
	case there.Before(start.Add(-skewed)):
		f.State, f.Found = Note, fmt.Sprintf("%.1f s behind", start.Sub(there).Seconds())
	case there.After(end.Add(skewed)):
		f.State, f.Found = Note, fmt.Sprintf("%.1f s ahead", there.Sub(end).Seconds())
	default:
		f.Found = fmt.Sprintf("the same within %.1f s", max(end.Sub(start), skewed).Seconds())
		return f
	}
	f.Fix = "ssh " + login + " systemctl enable --now chrony"
	return f
}
