package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gorun-mpi/gorun/launcher"
	"github.com/gorun-mpi/gorun/launcher/hostfile"
)

// hostSettings is what they say.
type hostSettings struct {
	hosts       []hostfile.Host // of -H, where it counts for the whole job
	fileHosts   []hostfile.Host // of --hostfile
	defaultFile []hostfile.Host // of --default-hostfile, which counts when nothing else names hosts
}

// hostOptions are the options that say where the hosts are and how to reach
// them.
func hostOptions() []option {
	return []option{
		{names: []string{"host", "hosts"}, short: "H", more: []string{"hostlist", "machines", "machinelist", "hosts-group"}, arity: 1, local: true,
			family: "Hosts", value: "NAME[:SLOTS],...",
			help: "hosts to run on and how many ranks each takes (default: 1); node[01-04,7] is five", set: setHosts},
		{names: []string{"hostfile", "machinefile"}, short: "f", arity: 1, family: "Hosts", value: "FILE",
			help: "the same from a file, one a line: node01 slots=8, node[02-04]:8; -H then chooses among them", set: setHostfile},
		{names: []string{"default-hostfile"}, arity: 1, family: "Hosts", value: "FILE",
			help: "a hostfile that counts where nothing else names hosts", set: setDefaultHostfile},
		{names: []string{"machine"}, arity: 1, under: hydra, family: "Hosts", value: "NAME,...|FILE",
			help: "a file of hosts (Intel MPI), or hosts (MPICH)", set: setMachine},
		{names: []string{"launcher"}, arity: 1, under: own | openMPI, family: "Hosts", value: "fork", words: []string{"fork"},
			help: "how to reach the hosts; fork: an agent process for each, on this machine", set: setLauncher},
	}
}

func setHosts(s *settings, value string) error {
	hosts, err := hostfile.List(value)
	if err != nil {
		return fmt.Errorf("%w; try -H a:2,b:2", err)
	}
	for i := range hosts {
		hosts[i].Slots = max(1, hosts[i].Slots)
	}
	if s.under == hydra {
		s.hosts = append(s.hosts, hosts...)
	} else {
		s.program.hosts = append(s.program.hosts, hosts...)
	}
	return nil
}

func (s *settings) hostsOf(name string) ([]hostfile.Host, error) {
	text, err := s.read(name)
	if err != nil {
		return nil, err
	}
	return hostfile.Parse(text, name)
}

func setHostfile(s *settings, value string) error {
	hosts, err := s.hostsOf(value)
	s.fileHosts = append(s.fileHosts, hosts...)
	return err
}

func setDefaultHostfile(s *settings, value string) error {
	// Open MPI's word for "there is none".
	if value == "none" {
		return nil
	}
	hosts, err := s.hostsOf(value)
	s.defaultFile = hosts
	return err
}

func setMachine(s *settings, value string) error {
	if s.readFile != nil && !strings.Contains(value, ",") {
		if _, err := s.readFile(value); err == nil {
			return setHostfile(s, value)
		}
	}
	return setHosts(s, value)
}

func setLauncher(s *settings, value string) error {
	if value != "fork" {
		return unfit(value, "fork, the only way there is yet to reach hosts; try --launcher fork -H a:2,b:2")
	}
	s.job.Launcher = value
	return nil
}

// finishHosts gives the job its hosts.
func (s *settings) finishHosts() error {
	if s.fileHosts == nil {
		s.fileHosts = s.defaultFile
	}
	named := slices.Clone(s.hosts)
	for _, p := range s.programs {
		named = append(named, p.hosts...)
	}
	hosts := named
	if s.fileHosts != nil {
		hosts = s.fileHosts
	}
	if named != nil && s.fileHosts != nil {
		var err error
		if hosts, err = among(s.fileHosts, named); err != nil {
			return err
		}
	}
	for _, p := range s.programs {
		if len(s.programs) > 1 && p.hosts != nil && !sameHosts(p.hosts, named) {
			return fmt.Errorf("-H: found %s for %s alone, expected the same hosts for all programs: ranks of one program cannot be kept to some hosts yet",
				p.hosts[0].Name, p.argv[0])
		}
	}
	for _, h := range hosts {
		if h.User != "" {
			s.spelling = h.User + "@" + h.Name
			s.note("only a remote shell would log in, and all hosts are reached without one")
		}
		s.job.Hosts = append(s.job.Hosts, launcher.Host{Name: h.Name, Slots: h.Slots})
	}
	return nil
}

// among are the named hosts as the file has them, in the file's order.
func among(file, named []hostfile.Host) ([]hostfile.Host, error) {
	var chosen []hostfile.Host
	for _, n := range named {
		if !slices.ContainsFunc(file, func(h hostfile.Host) bool { return h.Name == n.Name }) {
			return nil, fmt.Errorf("-H: found %q, expected hosts of the hostfile beside it: %s", n.Name, nameHosts(file))
		}
	}
	for _, h := range file {
		if slices.ContainsFunc(named, func(n hostfile.Host) bool { return h.Name == n.Name }) {
			chosen = append(chosen, h)
		}
	}
	return chosen, nil
}

func sameHosts(a, b []hostfile.Host) bool {
	names := func(hosts []hostfile.Host) map[string]bool {
		set := make(map[string]bool)
		for _, h := range hosts {
			set[h.Name] = true
		}
		return set
	}
	x, y := names(a), names(b)
	for name := range y {
		if !x[name] {
			return false
		}
	}
	return len(x) == len(y)
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

// defaultRanks is how many ranks a program gets that does not say.
func (s *settings) defaultRanks(p *program) int {
	if len(s.programs) > 1 {
		return 1
	}
	n := 0
	for _, h := range s.job.Hosts {
		n += max(1, h.Slots)
	}
	if n == 0 && s.under == openMPI && s.cpus != nil {
		n = s.cpus()
	}
	return max(n, 1)
}
