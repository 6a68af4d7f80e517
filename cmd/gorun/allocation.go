package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gorun-mpi/gorun/launcher/hostfile"
)

// A batchSystem tells the jobs that it starts which hosts they have.
type batchSystem struct {
	variable string // that is set in its jobs
	hosts    func(s *settings, value string) ([]hostfile.Host, error)
}

var batchSystems = []batchSystem{
	{"SLURM_JOB_NODELIST", slurmHosts},
	{"PBS_NODEFILE", slotLines},
	{"LSB_DJOB_HOSTFILE", slotLines},
	{"PE_HOSTFILE", gridHosts},
}

// allocation is the hosts that a batch system has given this process, with their slots;
// none where there is none, and for a process that a launcher has started inside of one.
func (s *settings) allocation() ([]hostfile.Host, error) {
	for _, outer := range []string{"GORUN_JOB", "OMPI_MCA_ess_base_jobid", "PMIX_RANK", "PMI_RANK"} {
		if _, inside := lookup(s.environ, outer); inside {
			return nil, nil
		}
	}
	for _, b := range batchSystems {
		value, _ := lookup(s.environ, b.variable)
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

// slurmHosts are the nodes of a Slurm job, with the tasks that it has on each, or CPUs.
func slurmHosts(s *settings, value string) ([]hostfile.Host, error) {
	hosts, err := hostfile.List(value)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"SLURM_TASKS_PER_NODE", "SLURM_JOB_CPUS_PER_NODE"} {
		text, _ := lookup(s.environ, name)
		if text == "" {
			continue
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

// slurmCounts reads "4(x2),3" as 4, 4, 3.
func slurmCounts(text string) (list []int, err error) {
	for item := range strings.SplitSeq(text, ",") {
		number, times, repeated := strings.Cut(item, "(x")
		n, err := strconv.Atoi(number)
		k := 1
		if err == nil && repeated {
			k, err = strconv.Atoi(strings.TrimSuffix(times, ")"))
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
