package main

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/gorun-mpi/gorun/internal/envvar"
)

// setting is an environment variable of gorun's own.
type setting struct {
	Name    string `json:"name"`
	Default string `json:"default"` // "" where gorun sets it
	Help    string `json:"help"`
	SetBy   string `json:"set_by"`
	Value   string `json:"value"` // here and now
}

// Who sets a variable.
const (
	byUser  = "you"
	byGorun = "gorun, for its ranks"
	byBench = "gorun-bench, for what it starts"
)

// settings are all variables named GORUN_*. A test holds them to the code that
// reads them.
func settings() []setting {
	return []setting{
		{"GORUN_TUNING", "the built-in table", "file that selects the algorithm of each collective; gorun-bench --tune writes one", byUser, ""},
		{"GORUN_VERBOSE", "0", "1: rank 0 prints on standard error which transports messages and collectives use; gorun -v sets it", byUser, ""},
		{"GORUN_ASYNC_PROGRESS", "auto", "on: a thread of each rank moves started collectives, messages and windows while the program computes; auto: where each rank has two CPUs, or a core of its own for the thread; MPICH_ASYNC_PROGRESS and I_MPI_ASYNC_PROGRESS mean the same", byUser, ""},
		{"GORUN_QP_MEMORY", "256M", "memory limit for the queue pairs of a host; ranks that could need more use dynamic connections (DC), which need few queue pairs; 0: always", byUser, ""},
		{"GORUN_AS", "the name that it was called as", "mpirun, mpiexec or gorun: which launcher gorun plays where they differ, as gorun --as", byUser, ""},
		{"GORUN_CHANNEL", "none", "name of the channel of secure-channel, unless --name is given", byUser, ""},
		{"GORUN_EMULATE", "soft0", "names of the software RDMA devices, separated by commas; gorun --emulate sets it, and you may under other launchers", byUser, ""},
		{"GORUN_VERBS_DEVICES", "soft0", "names of the devices that programs under gorun-verbs have, separated by commas; gorun-verbs --device sets it", byUser, ""},
		{"GORUN_VERBS_ADVERSE", "none", "trouble on purpose for programs under gorun-verbs, SEED[,limits][,link][,errors]; gorun-verbs --adverse sets it", byUser, ""},
		{"GORUN_VERBS_CHECK", "off", "report, or abort: programs under gorun-verbs hear what cards punish; gorun-verbs --check sets it", byUser, ""},
		{"GORUN_VERBS_KEY", "none", "file with the key by which programs under gorun-verbs reach those on other hosts; gorun-verbs --key sets it", byUser, ""},
		{"GORUN_VERBS_INTERFACE", "the first that others may reach", "network interface that other hosts connect to, by its name or network; gorun-verbs --interface sets it", byUser, ""},
		{"GORUN_VERBS_TCP_PORTS", "any", "TCP ports at which programs under gorun-verbs listen for other hosts, as FIRST-LAST; gorun-verbs --tcp-ports sets it", byUser, ""},
		{"GORUN_VERBS_FABRIC", "none", "only programs under gorun-verbs with the same name here reach each other; gorun-verbs --fabric sets it", byUser, ""},
		{"GORUN_INTERFACE", "found out", "network between hosts, by an interface's name or in CIDR form, as gorun --interface; ranks under other launchers follow it too", byUser, ""},
		{"GORUN_TCP_PORTS", "any", "ports at which ranks listen for other hosts, as 40000-40100, as gorun --tcp-ports; ranks under other launchers follow it too", byUser, ""},
		{"GORUN_SECURE", "0", "1: ranks of different hosts encrypt what they send to each other, by TLS 1.3; gorun --secure sets it, and you may under other launchers", byUser, ""},
		{"GORUN_ALONE", "0", "1: a process that a launcher with an unknown protocol has started is a world of one rank", byUser, ""},
		{"GORUN_JOB", "", "the job's identity", byGorun, ""},
		{"GORUN_HOST", "", "the host's name in the job", byGorun, ""},
		{"GORUN_ADDRESS", "", "the address at which the job's other hosts reach this one", byGorun, ""},
		{"GORUN_HOST_INDEX", "", "the host's number in the job, from 0", byGorun, ""},
		{"GORUN_LOCAL_RANK", "", "the rank's number among those of its host, from 0", byGorun, ""},
		{"GORUN_LOCAL_SIZE", "", "the ranks on its host", byGorun, ""},
		{"GORUN_DIR", "", "the job's directory, which gorun removes with all files that the MPIs leave in it", byGorun, ""},
		{"GORUN_SEGMENT", "", "the descriptor of the memory that the ranks of a host share", byGorun, ""},
		{"GORUN_CPUS", "", "the CPUs that the rank may use", byGorun, ""},
		{"GORUN_CPU_RANKS", "", "the number of ranks that share these CPUs", byGorun, ""},
		{"GORUN_ASYNC_CPU", "", "the CPU of the rank's progress thread, a core that no rank has", byGorun, ""},
		{"GORUN_OFFLOAD", "", "the threads of the host's daemon that steps started collectives (--offload)", byGorun, ""},
		{"GORUN_PMI", "", "cards: the launcher knows gorun's own commands besides those of PMI-1", byGorun, ""},
		{"GORUN_SET", "", "which of RANK, MASTER_ADDR and the like gorun has set, and to what", byGorun, ""},
		{"GORUN_RESTART_COUNT", "", "the number of restarts of the job so far (--max-restarts)", byGorun, ""},
		{"GORUN_PROFILE", "", "the file in which the rank records its calls (--profile)", byGorun, ""},
		{"GORUN_CONTINUOUS", "", "1: the job goes on when a rank fails (--continuous)", byGorun, ""},
		{"GORUN_DETOUR", "", "where ranks ask for connections that this host cannot make itself", byGorun, ""},
		{"GORUN_HOST_LEASE", "", "how long a host may be silent before gorun takes it for lost (--agent-timeout); the ranks themselves wait four times as long, and 60 s at least", byGorun, ""},
		{"GORUN_GUARD_JOB_HOST", "", "1: mark by which a job's guardian recognizes its processes", byGorun, ""},
		{"GORUN_BENCH_JOB", "", "mark by which gorun-bench recognizes the processes of the MPIs", byBench, ""},
	}
}

// showSettings is gorun-info settings.
func showSettings(_ context.Context, r *request) int {
	list := currentSettings(r.environ)
	if r.json {
		return r.encode(list)
	}
	writeSettings(r.out, list)
	return 0
}

func currentSettings(environ []string) []setting {
	list := settings()
	for i := range list {
		list[i].Value = envvar.Get(environ, list[i].Name)
	}
	return list
}

func writeSettings(w io.Writer, list []setting) {
	by := ""
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, s := range list {
		if s.SetBy != by {
			by = s.SetBy
			fmt.Fprintf(t, "Set by %s:\n", by)
		}
		help := s.Help
		if s.Default != "" {
			help += " (default: " + s.Default + ")"
		}
		if s.Value != "" {
			help += "; here: " + s.Value
		}
		fmt.Fprintf(t, "  %s\t%s\n", s.Name, help)
	}
	_ = t.Flush() // told by run, if it fails
}
