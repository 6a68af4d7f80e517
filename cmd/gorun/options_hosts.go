package main

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/gorun-mpi/gorun/internal/ports"
	"github.com/gorun-mpi/gorun/launcher"
	"github.com/gorun-mpi/gorun/launcher/hostfile"
)

// hostSettings is what they say.
type hostSettings struct {
	hosts       []hostfile.Host           // of -H, where it counts for the whole job
	fileHosts   []hostfile.Host           // of --hostfile
	fileLines   []hostfile.Host           // the same, as often as they are named there
	defaultFile []hostfile.Host           // of --default-hostfile, which counts when nothing else names hosts
	nodes       struct{ least, most int } // of --nnodes; 0: as many as there are
}

// hostOptions are the options that say where the hosts are and how to reach
// them.
func hostOptions() []option {
	return []option{
		{names: []string{"host", "hosts"}, fills: "Hosts", short: "H", more: []string{"hostlist", "machines", "machinelist", "hosts-group"}, arity: 1, local: true,
			family: "Hosts", value: "NAME[:SLOTS],...",
			help: "run on these hosts, with SLOTS ranks on each (default 1; *: one per CPU); node[01-04,7] is five hosts", set: setHosts},
		{names: []string{"hostfile", "machinefile"}, fills: "Hosts", short: "f", arity: 1, family: "Hosts", value: "FILE",
			help: "read hosts from FILE, one per line: node01 slots=8, node[02-04]:8; -H then selects some of them", set: setHostfile},
		{names: []string{"nnodes"}, arity: 1, family: "Hosts", value: "N[:MOST]",
			help: "run on the first N of the hosts, as torchrun counts them; N:MOST: on at least N, and MOST at most", set: setNodes},
		{names: []string{"default-hostfile"}, fills: "Hosts", arity: 1, family: "Hosts", value: "FILE",
			help: "hostfile to use when no other option names hosts", set: setDefaultHostfile},
		{names: []string{"machine"}, fills: "Hosts", arity: 1, under: hydra, family: "Hosts", value: "NAME,...|FILE",
			help: "file of hosts (Intel MPI), or list of hosts (MPICH)", set: setMachine},
		{names: []string{"launcher"}, fills: "Agents.Launcher", arity: 1, under: own | openMPI, family: "Hosts", value: strings.Join(launcher.Launchers(), "|"), words: launcher.Launchers(),
			help: "how to reach the hosts: ssh, the default for other machines; " + byBatchSystems() + "or fork: start an agent process for each host on this machine", set: setText(func(s *settings) *string { return &s.job.Agents.Launcher },
				strings.Join(launcher.Launchers(), ", ")+"; try --launcher fork -H a:2,b:2", launcher.Launchers()...)},
		{names: []string{"rsh"}, fills: "Agents.Shell", more: []string{"bootstrap-exec", "launcher-exec"}, arity: 1, family: "Hosts", value: "COMMAND",
			help: "reach other hosts by COMMAND HOST 'exec gorun-agent' instead of ssh; it must not ask for a password", set: setWords("a command and its options; try --rsh \"ssh -o BatchMode=yes\"", func(s *settings) *[]string { return &s.job.Agents.Shell })},
		{names: []string{"rsh-args"}, arity: 1, family: "Hosts", value: "OPTIONS",
			help: "more options for ssh, srun, or --rsh's command, such as \"-o ConnectionAttempts=10\"", set: setWords("options; try --rsh-args \"-o ConnectionAttempts=10\"", func(s *settings) *[]string { return &s.job.Agents.ShellArgs })},
		{names: []string{"launch-fanout"}, fills: "Agents.AtOnce", arity: 1, family: "Hosts", value: "N",
			help: "have at most N ssh or srun on their way to hosts at a time (default 32)", set: setFanout},
		{names: []string{"launch-tree"}, arity: 1, family: "Hosts", value: "N",
			help: "from N other hosts on have ssh reach some of them, and the others from those (default 65; 0: never)", set: setTree},
		{names: []string{"launch-agent"}, arity: 1, under: own | openMPI, family: "Hosts", value: "COMMAND",
			help: "the agent's command on other hosts (default: the path of gorun-agent here)", set: setWords("a command; try --launch-agent /opt/gorun/bin/gorun-agent", func(s *settings) *[]string { return &s.job.Agents.Remote })},
		{names: []string{"stage"}, fills: "Agents.Stage", arity: 0, under: own | openMPI, family: "Hosts",
			help: "send gorun-agent to hosts that do not have it at the same path; they keep it in ~/.cache/gorun", set: setSwitch(func(s *settings, on bool) { s.job.Agents.Stage = on })},
		{names: []string{"preload-binary"}, more: []string{"s"}, arity: 0, under: own | openMPI, family: "Hosts",
			help: "send the program to each host, for this job", set: setSwitch(func(s *settings, on bool) { s.job.Agents.Preload = on })},
		{names: []string{"interface"}, more: []string{"iface"}, arity: 1, family: "Hosts", value: "NAME|CIDR",
			help: "network interface of every host that the others connect to: eth1 or 10.9.0.0/16", set: setInterface},
		{names: []string{"tcp-ports"}, fills: "Network.Ports", arity: 1, family: "Hosts", value: "FIRST-LAST",
			help: "listen for other hosts only at these ports, over TCP and UDP: gorun, its agents and ranks, those of MPICH and Open MPI too", set: setPorts},
		{names: []string{"secure"}, arity: 0, family: "Hosts",
			help: "have ranks of different hosts encrypt what they send to each other (TLS 1.3); ranks that cannot are refused", set: setSwitch(func(s *settings, on bool) { s.job.Network.Secure = on })},
	}
}

// byBatchSystems says of each batch system how --launcher reaches hosts by it.
func byBatchSystems() (text string) {
	for _, b := range launcher.BatchSystems() {
		text += fmt.Sprintf("%s: %s, the default in %s; ", b.Launcher, b.Command, b.Allocation)
	}
	return text
}

func setHosts(s *settings, value string) error {
	hosts, err := hostfile.List(value)
	if err != nil {
		return fmt.Errorf("%w; try -H a:2,b:2", err)
	}
	for i := range hosts {
		// Each time that a host is named is a slot.
		hosts[i].Slots = cmp.Or(hosts[i].Slots, 1)
	}
	if s.under == hydra {
		s.where.hosts = append(s.where.hosts, hosts...)
	} else {
		s.program.hosts = append(s.program.hosts, hosts...)
	}
	return nil
}

func setHostfile(s *settings, value string) error {
	text, err := s.read(value) // once: it may be a pipe
	if err != nil {
		return err
	}
	return s.addHostfile(text, value)
}

func (s *settings) addHostfile(text, name string) error {
	hosts, err := hostfile.Parse(text, name)
	if err != nil {
		return err
	}
	s.where.fileHosts = append(s.where.fileHosts, hosts...)
	lines, err := hostfile.Lines(text, name)
	s.where.fileLines = append(s.where.fileLines, lines...)
	return err
}

func setDefaultHostfile(s *settings, value string) error {
	// Open MPI's word for "there is none".
	if value == "none" {
		return nil
	}
	text, err := s.read(value)
	if err != nil {
		return err
	}
	s.where.defaultFile, err = hostfile.Parse(text, value)
	return err
}

func setMachine(s *settings, value string) error {
	if !strings.Contains(value, ",") {
		if text, err := s.read(value); err == nil {
			return s.addHostfile(text, value)
		}
	}
	return setHosts(s, value)
}

// finishHosts gives the job its hosts, and each program those that it is kept to.
func (s *settings) finishHosts() error {
	if s.where.fileHosts == nil && !s.namesHosts() && s.discover == "" {
		s.where.fileHosts = s.where.defaultFile
		if s.where.fileHosts == nil {
			given, err := s.allocation()
			if err != nil {
				return err
			}
			s.where.fileHosts = given
		}
	}
	lists := []*[]hostfile.Host{&s.where.hosts}
	for _, p := range s.programs {
		lists = append(lists, &p.hosts)
	}
	for _, list := range lists {
		if err := s.resolve(*list); err != nil {
			return err
		}
	}
	s.knowOwnNode(append(lists, &s.where.fileHosts, &s.where.fileLines))
	// Hosts that one program names hold for it, those of the only one for the job.
	var apart bool
	if s.sequence() && len(s.programs) == 1 && (s.where.fileLines != nil || s.where.fileHosts == nil) {
		// The list as it stands, with a rank for each time that a host is named.
		list := append(slices.Clone(s.where.hosts), s.programs[0].hosts...)
		if list == nil {
			list = s.where.fileLines
		}
		for _, h := range list {
			s.job.Hosts = append(s.job.Hosts, launcher.Host{Name: h.Name, Slots: h.Slots, Max: h.Max, User: h.User})
		}
		return nil
	}
	named := merge(s.where.hosts, add)
	for _, p := range s.programs {
		if p.hosts = merge(p.hosts, add); p.hosts != nil {
			apart = len(s.programs) > 1
			named = merge(append(named, p.hosts...), most)
		}
	}
	hosts := named
	if s.where.fileHosts != nil {
		hosts = merge(s.where.fileHosts, add)
		for _, n := range named {
			if !slices.ContainsFunc(hosts, sameName(n)) {
				return fmt.Errorf("-H: found %q, expected hosts of the hostfile beside it: %s", n.Name, nameHosts(hosts))
			}
		}
		if named != nil && !apart {
			hosts = among(hosts, named)
		}
	}
	for _, p := range s.programs {
		for _, h := range p.hosts {
			if apart {
				p.only = append(p.only, h.Name)
			}
		}
	}
	for _, h := range hosts {
		if h.Slots == 0 {
			h.Slots = -1 // the launcher's word for one a CPU
			if s.under == hydra {
				h.Slots = 1
			}
			if h.Max > 0 && h.Slots < 0 {
				h.Slots = h.Max
			}
		}
		s.job.Hosts = append(s.job.Hosts, launcher.Host{Name: h.Name, Slots: h.Slots, Max: h.Max, User: h.User})
	}
	return nil
}

// namesHosts tells whether -H names a host by its own name.
func (s *settings) namesHosts() bool {
	own := func(h hostfile.Host) bool { return !relative(h.Name) }
	return slices.ContainsFunc(s.where.hosts, own) || slices.ContainsFunc(s.programs, func(p *program) bool { return slices.ContainsFunc(p.hosts, own) })
}

// relative tells whether a host is named by its place among those there are, +nN,
// as Open MPI has it.
func relative(name string) bool {
	n, ok := strings.CutPrefix(strings.ToLower(name), "+n")
	return ok && n != "" && strings.Trim(n, "0123456789") == ""
}

// resolve gives hosts that are named by their place their own names: of the
// hostfile, or without one of this machine, which is then the only host there is.
func (s *settings) resolve(hosts []hostfile.Host) error {
	from, where := merge(s.where.fileHosts, add), "the hosts of the hostfile"
	if from == nil {
		from, where = []hostfile.Host{{Name: "localhost"}}, "without a hostfile only +n0, this machine"
	}
	for i, h := range hosts {
		if !relative(h.Name) {
			continue
		}
		n, err := strconv.Atoi(h.Name[len("+n"):])
		if err != nil || n >= len(from) {
			return fmt.Errorf("-H: found %q, expected %s: +n0 to +n%d", h.Name, where, len(from)-1)
		}
		hosts[i].Name = from[n].Name
	}
	return nil
}

// merge names each host once, at its first place, with slots by fold.
func merge(hosts []hostfile.Host, fold func(a, b int) int) []hostfile.Host {
	var merged []hostfile.Host
	at := make(map[string]int, len(hosts))
	for _, h := range hosts {
		i, seen := at[h.Name]
		if !seen {
			at[h.Name] = len(merged)
			merged = append(merged, h)
			continue
		}
		have := &merged[i]
		have.Slots = fold(have.Slots, h.Slots)
		have.Max = fold(have.Max, h.Max)
		have.User = cmp.Or(h.User, have.User)
	}
	return merged
}

// A host that has a slot for each CPU once keeps them.
func add(a, b int) int {
	if a == hostfile.Auto || b == hostfile.Auto {
		return hostfile.Auto
	}
	return a + b
}

func most(a, b int) int {
	if a == hostfile.Auto || b == hostfile.Auto {
		return hostfile.Auto
	}
	return max(a, b)
}

func sameName(a hostfile.Host) func(hostfile.Host) bool {
	return func(b hostfile.Host) bool { return a.Name == b.Name }
}

// among are the hosts that are named, in the file's order, with the slots that
// they are named with: one is what a name without a number has, and says nothing.
func among(file, named []hostfile.Host) []hostfile.Host {
	var chosen []hostfile.Host
	for _, h := range file {
		if i := slices.IndexFunc(named, sameName(h)); i >= 0 {
			if named[i].Slots > 1 {
				h.Slots = named[i].Slots
			}
			h.User = cmp.Or(named[i].User, h.User)
			chosen = append(chosen, h)
		}
	}
	return chosen
}

func setNodes(s *settings, value string) error {
	first, last, both := strings.Cut(value, ":")
	if !both {
		last = first
	}
	least, err := strconv.ParseUint(first, 10, 16)
	most, err2 := strconv.ParseUint(last, 10, 16)
	if err != nil || err2 != nil || least < 1 || most < least {
		return unfit(value, "a number of hosts, or the least and the greatest; try --nnodes 2")
	}
	s.where.nodes.least, s.where.nodes.most = int(least), int(most)
	return nil
}

// finishNodes keeps as many of the hosts as --nnodes says.
func (s *settings) finishNodes() error {
	switch have := max(len(s.job.Hosts), 1); {
	case s.where.nodes.least == 0:
		return nil
	case s.discover != "":
		return errors.New("--nnodes: found --discover-hosts beside it, whose hosts come and go; try --elastic 2:8 alone")
	case have < s.where.nodes.least:
		return fmt.Errorf("--nnodes: found %d of %d hosts; name them by -H node1,node2 or --hostfile FILE, or run in an allocation of a batch system", have, s.where.nodes.least)
	}
	s.job.Hosts = s.job.Hosts[:min(len(s.job.Hosts), s.where.nodes.most)]
	return nil
}

func nameHosts(hosts []hostfile.Host) string {
	var names []string
	for i, h := range hosts {
		if i == 8 {
			names = append(names, "...")
			break
		}
		names = append(names, h.Name)
	}
	return strings.Join(names, ", ")
}

// defaultRanks is how many ranks a program gets that does not say; 0 leaves it
// to the launcher, which takes all slots.
func (s *settings) defaultRanks() int {
	switch {
	case len(s.programs) > 1:
		return 1
	case len(s.job.Hosts) == 0 && (s.under == openMPI || slices.Contains(s.place.modifiers, "hwtcpus")) && s.cpus != nil && s.job.Placing.PerHost == 0:
		return s.cpus()
	}
	return 0
}

// setWords takes a command whose words blanks part.
func setWords(expected string, of func(s *settings) *[]string) func(s *settings, value string) error {
	return func(s *settings, value string) error {
		words := strings.Fields(value)
		if len(words) == 0 {
			return unfit(value, expected)
		}
		*of(s) = words
		return nil
	}
}

func setFanout(s *settings, value string) error {
	n, err := strconv.ParseUint(value, 10, 16)
	if err != nil || n == 0 {
		return unfit(value, "a number of hosts; try --launch-fanout 64")
	}
	s.job.Agents.AtOnce = int(n)
	return nil
}

func setTree(s *settings, value string) error {
	n, err := strconv.ParseUint(value, 10, 16)
	if err != nil {
		return unfit(value, "a number of hosts, or 0 for no tree; try --launch-tree 65")
	}
	if s.job.Agents.Tree = int(n); n == 0 {
		s.job.Agents.Tree = -1
	}
	return nil
}

func setPorts(s *settings, value string) error {
	r, err := ports.Parse(value)
	if err != nil || r.Len() == 0 {
		return unfit(value, "two ports, the first and the last; try --tcp-ports 40000-40100")
	}
	s.job.Network.Ports = r.String()
	return nil
}

func setInterface(s *settings, value string) error {
	if _, err := netip.ParsePrefix(value); value == "" || strings.Contains(value, "/") && err != nil {
		return unfit(value, "the name of an interface, or a network; try --interface eth1 or --interface 10.9.0.0/16")
	}
	s.job.Network.Interface = value
	return nil
}
