package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gorun-mpi/gorun/internal/envvar"
	"github.com/gorun-mpi/gorun/launcher/hostfile"
)

// A batchSystem tells the jobs that it starts which hosts they have.
type batchSystem struct {
	variable string // that is set in its jobs
	hosts    func(s *settings, value string) ([]hostfile.Host, error)
}

var batchSystems = []batchSystem{
	{"SLURM_JOB_NODELIST", slurmHosts},
	{"SLURM_NTASKS", slurmTasks},
	{"PBS_NODEFILE", slotLines},
	{"LSB_DJOB_HOSTFILE", slotLines},
	{"LSB_MCPU_HOSTS", countedHosts},
	{"LSB_HOSTS", slotWords},
	{"PE_HOSTFILE", gridHosts},
	{"OAR_NODEFILE", slotLines},
}

// allocation is the hosts that a batch system has given this process, with their slots;
// none where there is none, and for a process that a launcher has started inside of one.
func (s *settings) allocation() ([]hostfile.Host, error) {
	if s.launched() {
		return nil, nil
	}
	for _, b := range batchSystems {
		value := envvar.Get(s.environ, b.variable)
		if value == "" {
			continue
		}
		hosts, err := b.hosts(s, value)
		if err == nil && len(hosts) == 0 {
			err = fmt.Errorf("found no hosts in %q, expected those of the allocation", value)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w; with -H or --hostfile gorun does not read it", b.variable, err)
		}
		return hosts, nil
	}
	return nil, nil
}

// launched tells whether a launcher has started this process.
func (s *settings) launched() bool {
	return slices.ContainsFunc([]string{"GORUN_JOB", "OMPI_MCA_ess_base_jobid", "PMIX_RANK", "PMI_RANK"}, func(name string) bool {
		_, is := envvar.Lookup(s.environ, name)
		return is
	})
}

// chooseLauncher has srun, or gridengine's qrsh, start agents where this process is in an allocation of
// theirs and the job has other machines, unless the user names another way. These are to be of the allocation.
func (s *settings) chooseLauncher() error {
	others := s.job.OtherMachines()
	for _, b := range []struct {
		launcher, variable, id, name string
		hosts                        func(value string) ([]hostfile.Host, error)
	}{
		{"slurm", "SLURM_JOB_NODELIST", "SLURM_JOB_ID", "Slurm's", hostfile.List},
		{"sge", "PE_HOSTFILE", "JOB_ID", "gridengine's", func(file string) ([]hostfile.Host, error) { return gridHosts(s, file) }},
	} {
		asked := s.job.Agents.Launcher == b.launcher
		value := envvar.Get(s.environ, b.variable)
		id := envvar.Get(s.environ, b.id)
		if !asked && (s.job.Agents.Launcher != "" || s.job.Agents.Shell != nil || s.launched()) || value == "" || id == "" || len(others) == 0 {
			continue
		}
		list, err := b.hosts(value)
		if err != nil {
			return fmt.Errorf("%s: %w; --launcher ssh does without it", b.variable, err)
		}
		for _, name := range others {
			if hostfile.Find(list, name) < 0 {
				return fmt.Errorf("host %s of -H or a hostfile is not in the allocation, %s job %s with %s; try --launcher ssh, or a host of it", name, b.name, id, value)
			}
		}
		s.job.Agents.Launcher = b.launcher
		return nil
	}
	return nil
}

// knowOwnNode has this machine be localhost where hosts have Slurm's name for it: in a container its host name may be
// another, and srun missing.
func (s *settings) knowOwnNode(lists []*[]hostfile.Host) {
	node := envvar.Get(s.environ, "SLURMD_NODENAME")
	for _, list := range lists {
		for i := range *list {
			if h := &(*list)[i]; node != "" && h.Name == node {
				h.Name = "localhost"
			}
		}
	}
}

// slurmHosts are the nodes of a Slurm job, with the tasks that it has on each, or CPUs.
func slurmHosts(s *settings, value string) ([]hostfile.Host, error) {
	hosts, err := hostfile.List(value)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"SLURM_TASKS_PER_NODE", "SLURM_NTASKS", "SLURM_JOB_CPUS_PER_NODE"} {
		text := envvar.Get(s.environ, name)
		if text == "" {
			continue
		}
		if name == "SLURM_NTASKS" {
			if hosts, err = spread(hosts, text); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			return hosts, nil
		}
		slots, err := slurmCounts(text)
		if err != nil || len(slots) != len(hosts) {
			return nil, fmt.Errorf("%s: found %q, expected numbers for the %d nodes of %s, such as 4(x2),3", name, text, len(hosts), value)
		}
		for i := range hosts {
			hosts[i].Slots = slots[i]
		}
		break
	}
	return hosts, nil
}

// slurmTasks is this machine, for a job of which Slurm says the number of tasks alone.
func slurmTasks(_ *settings, value string) ([]hostfile.Host, error) {
	return spread([]hostfile.Host{{Name: "localhost"}}, value)
}

// spread gives hosts as many slots as Slurm has tasks for them; the first have one more where they
// are not as many on each, and a host without any is left out.
func spread(hosts []hostfile.Host, tasks string) ([]hostfile.Host, error) {
	n, err := strconv.Atoi(tasks)
	if err != nil || n < 1 {
		return nil, fmt.Errorf("found %q, expected a number of at least 1", tasks)
	}
	for i := range hosts {
		if hosts[i].Slots = n / len(hosts); i < n%len(hosts) {
			hosts[i].Slots++
		}
	}
	return hosts[:min(len(hosts), n)], nil
}

// slurmCounts reads "4(x2),3" as 4, 4, 3.
func slurmCounts(text string) (list []int, err error) {
	for item := range strings.SplitSeq(text, ",") {
		number, times, repeated := strings.Cut(item, "(x")
		n, err := strconv.Atoi(number)
		k := 1
		if err == nil && repeated {
			inner, closed := strings.CutSuffix(times, ")")
			if k, err = strconv.Atoi(inner); !closed {
				k = 0
			}
		}
		if err != nil || n < 1 || k < 1 || len(list)+k > 1<<16 {
			return nil, fmt.Errorf("found %q", item)
		}
		list = append(list, slices.Repeat([]int{n}, k)...)
	}
	return list, nil
}

// slotLines are the hosts of a file with a line for each slot.
func slotLines(s *settings, name string) ([]hostfile.Host, error) {
	text, err := s.read(name)
	if err != nil {
		return nil, err
	}
	var hosts []hostfile.Host
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) > 0 {
			hosts = append(hosts, hostfile.Host{Name: f[0], Slots: 1})
		}
	}
	return merge(hosts, add), nil
}

// slotWords are hosts in a list with a word for each slot.
func slotWords(_ *settings, value string) ([]hostfile.Host, error) {
	var hosts []hostfile.Host
	for name := range strings.FieldsSeq(value) {
		hosts = append(hosts, hostfile.Host{Name: name, Slots: 1})
	}
	return merge(hosts, add), nil
}

// countedHosts are hosts in a list, each with its number of slots behind it.
func countedHosts(_ *settings, value string) ([]hostfile.Host, error) {
	words := strings.Fields(value)
	var hosts []hostfile.Host
	for pair := range slices.Chunk(words, 2) {
		n, err := strconv.Atoi(pair[len(pair)-1])
		if err != nil || n < 1 || len(pair) < 2 {
			return nil, fmt.Errorf("found %q, expected hosts and numbers of slots, such as \"n1 4 n2 3\"", value)
		}
		hosts = append(hosts, hostfile.Host{Name: pair[0], Slots: n})
	}
	return merge(hosts, add), nil
}

// gridHosts are those of a gridengine's file: host, slots, queue, processors.
func gridHosts(s *settings, name string) ([]hostfile.Host, error) {
	text, err := s.read(name)
	if err != nil {
		return nil, err
	}
	var hosts []hostfile.Host
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) == 0 {
			continue
		}
		n := 0
		if len(f) > 1 {
			n, _ = strconv.Atoi(f[1])
		}
		if n < 1 {
			return nil, fmt.Errorf("%s: found %q, expected a host and its number of slots", name, strings.TrimSpace(line))
		}
		hosts = append(hosts, hostfile.Host{Name: f[0], Slots: n})
	}
	return merge(hosts, add), nil
}
