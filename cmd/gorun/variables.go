package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/gorun-mpi/gorun/internal/envvar"
)

// variable is a variable of the environment that stands for an option.
type variable struct {
	name   string
	option string // "" when it stands for none
	under  family // kinds of launcher that follow it; 0: all
	help   string
	value  func(string) (value string, set bool) // of the option; nil: the variable's
	unless []string                              // other options that win, too
}

// variables are those that gorun follows, or takes note of, in its own
// environment. An option that was given wins.
func variables() []variable {
	return []variable{
		{name: "GORUN_AS", help: "mpirun, mpiexec or gorun: same as --as"},
		{name: "MPIEXEC_TIMEOUT", option: "timeout", help: "time limit of the job in seconds", value: aboveZero},
		{name: "I_MPI_MPIEXEC_TIMEOUT", option: "timeout", help: "the same", value: aboveZero},
		{name: "I_MPI_JOB_TIMEOUT", option: "timeout", help: "the same", value: aboveZero},
		{name: "HYDRA_HOST_FILE", option: "default-hostfile", help: "a hostfile"},
		{name: "I_MPI_HYDRA_HOST_FILE", option: "default-hostfile", help: "the same"},
		{name: "GORUN_INTERFACE", option: "interface", help: "same as --interface; Go ranks under other launchers follow it too"},
		{name: "GORUN_SECURE", option: "secure", help: "1: same as --secure; Go ranks under other launchers follow it too", value: unlessOff},
		{name: "GORUN_TCP_PORTS", option: "tcp-ports", help: "same as --tcp-ports; Go ranks under other launchers follow it too"},
		{name: "MPIEXEC_PORT_RANGE", option: "tcp-ports", help: "FIRST:LAST, same as --tcp-ports", value: unlessZero},
		{name: "HYDRA_IFACE", option: "interface", help: "same as --interface"},
		{name: "HYDRA_LAUNCHER_EXEC", option: "rsh", help: "same as --rsh"},
		{name: "HYDRA_LAUNCH_EXTRA_ARGS", option: "rsh-args", help: "same as --rsh-args, as Kubernetes' mpi-operator sets it"},
		{name: "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS", option: "rsh-args", help: "the same", value: notSlurms},
		{name: "SLURM_JOB_NODELIST, SLURM_TASKS_PER_NODE, SLURM_NTASKS, PBS_NODEFILE, LSB_DJOB_HOSTFILE, LSB_MCPU_HOSTS, LSB_HOSTS, PE_HOSTFILE, OAR_NODEFILE",
			help: "the hosts and slots of a batch job, when nothing else names hosts"},
		{name: "SLURMD_NODENAME", help: "Slurm's name for this machine, where its host name is another, as in a container"},
		{name: "I_MPI_HYDRA_HOSTS_GROUP", option: "host", help: "hosts, same as -H", unless: []string{"hostfile"}},
		{name: "HYDRA_ENV", option: "genvall", help: "all or none: which variables gorun passes on", value: when("all"), unless: []string{"genvnone", "genvlist"}},
		{name: "HYDRA_ENV", option: "genvnone", value: when("none"), unless: []string{"genvall", "genvlist"}},
		{name: "HYDRA_BINDING", option: "bind-to", help: "same as --bind-to"},
		{name: "HYDRA_MAPPING", option: "map-by", help: "same as --map-by"},
		{name: "HYDRA_TOPO_DEBUG", option: "report-bindings", help: "1: same as --report-bindings", value: on},
		{name: "I_MPI_PERHOST", option: "ppn", help: "same as -ppn", value: aboveZero},
		{name: "HYDRA_DEBUG", option: "verbose", under: hydra, help: "1: same as -v; only under the name mpiexec", value: on},
		{name: "I_MPI_HYDRA_DEBUG", option: "verbose", under: hydra, help: "the same", value: on},
		{name: "HYDRA_CONFIG_FILE", under: hydra, help: "file with options, one or more per line (default ~/.mpiexec.hydra.conf); only under the name mpiexec"},
		{name: "OMPI_MCA_*, PRTE_MCA_*", help: "same as --mca: gorun passes them on, and follows those of the launcher that it has an option for"},
		{name: "MASTER_ADDR, MASTER_PORT, RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE",
			help: "gorun sets them for the ranks, as torchrun does, unless they are set already; it chooses a free port"},
		{name: "HYDRA_RMK, HYDRA_LAUNCHER, HYDRA_DEMUX, HYDRA_TOPOLIB, HYDRA_HOSTNAME_PROPAGATION",
			help: "no effect, like the options of the same names"},
		{name: "GORUN_EMULATE", help: "no effect on gorun's ranks, and a note says so: use --emulate"},
		{name: "GORUN_ASYNC_PROGRESS", option: "async-progress", help: "off, on or auto: same as --async-progress", value: offOnAuto},
		{name: "MPICH_ASYNC_PROGRESS", option: "async-progress", help: "0 or 1: same as --async-progress off or on", value: offOnAuto},
		{name: "I_MPI_ASYNC_PROGRESS", option: "async-progress", help: "the same", value: offOnAuto},
		{name: "GORUN_QP_MEMORY", help: "memory limit for the queue pairs of a host (default 256M); ranks that could need more use dynamic connections; 0: always"},
		{name: "GORUN_TUNING", help: "file that selects the algorithm of each collective; gorun-bench --tune writes it and the ranks read it"},
	}
}

// when is the value of a switch that a variable of that value turns on.
func when(word string) func(string) (string, bool) {
	return func(value string) (string, bool) { return "", value == word }
}

// on is the value of a switch that a true variable turns on.
func on(value string) (string, bool) {
	switch strings.ToLower(value) {
	case "1", "yes", "true", "on", "enable":
		return "", true
	}
	return "", false
}

// unlessOff is the value of a switch that protects: a word that is misspelt must not turn it off.
func unlessOff(value string) (string, bool) {
	switch strings.ToLower(value) {
	case "0", "no", "false", "off", "disable":
		return "", false
	}
	return "", true
}

// offOnAuto has the MPIs' words for off and on, too. Others are the option's to refuse.
func offOnAuto(value string) (string, bool) {
	if _, is := on(value); is {
		return "on", true
	}
	switch strings.ToLower(value) {
	case "0", "no", "false", "off", "disable":
		return "off", true
	}
	return strings.ToLower(value), true
}

// notSlurms leaves out what Slurm puts there in each allocation since 23.11: an option of the srun that
// Intel MPI starts, which ssh does not know and the srun of gorun does not need.
func notSlurms(value string) (string, bool) {
	words := slices.DeleteFunc(strings.Fields(value), func(word string) bool { return word == "--external-launcher" })
	return strings.Join(words, " "), len(words) > 0
}

// aboveZero passes a number on that means something.
// unlessZero leaves out ports that stand for any.
func unlessZero(value string) (string, bool) { return value, value != "0:0" }

func aboveZero(value string) (string, bool) {
	n, err := strconv.Atoi(value)
	return value, err != nil || n > 0
}

// variables sets what the environment says and the command line does not.
func (r *reader) variables() error {
	for _, v := range variables() {
		if v.option == "" || v.under != 0 && v.under&r.s.under == 0 {
			continue
		}
		value, ok := envvar.Lookup(r.s.environ, v.name)
		o := longOption(r.table, v.option)
		if !ok || value == "" || o == nil || r.given[v.option] || slices.ContainsFunc(v.unless, func(name string) bool { return r.given[name] }) {
			continue
		}
		if v.value != nil {
			if value, ok = v.value(value); !ok {
				continue
			}
		}
		if o.arity == 0 && value != "" {
			continue
		}
		if o.local {
			r.s.program = r.s.programs[0]
		}
		if err := r.set(o, v.name, value); err != nil {
			return err
		}
	}
	if list, ok := envvar.Lookup(r.s.environ, "OMPI_MCA_mca_base_env_list"); ok && list != "" {
		r.s.spelling = "OMPI_MCA_mca_base_env_list"
		if err := r.s.setParameter("OMPI_MCA_", "mca_base_env_list", list); err != nil {
			return &refusal{r.s.spelling, err}
		}
	}
	var parameters []parameter
	_, inside := envvar.Lookup(r.s.environ, "OMPI_MCA_ess_base_jobid") // in a rank of Open MPI's launcher they say how that was called
	for _, entry := range r.s.environ {
		name, value, _ := strings.Cut(entry, "=")
		for _, prefix := range []string{"OMPI_MCA_", "PRTE_MCA_"} {
			if key, ok := strings.CutPrefix(name, prefix); ok && !inside && value != "" && standsFor(key) != nil {
				parameters = append(parameters, parameter{key, value, name})
			}
		}
	}
	r.skip = maps.Clone(r.given)
	return r.follow(parameters, true)
}

// configuration reads Hydra's file of options, when gorun was called as Hydra.
func (r *reader) configuration() error {
	if r.s.under != hydra || r.s.readFile == nil {
		return nil
	}
	// Variables that it sets are added to those of the command line, which win.
	delete(r.skip, "genv")
	said := r.s.jobEnv
	r.s.jobEnv = nil
	defer func() { r.s.jobEnv = append(r.s.jobEnv, said...) }()
	if name, ok := envvar.Lookup(r.s.environ, "HYDRA_CONFIG_FILE"); ok && name != "" {
		return r.readLines("HYDRA_CONFIG_FILE", name)
	}
	home, ok := envvar.Lookup(r.s.environ, "HOME")
	if !ok || home == "" {
		return nil
	}
	name := filepath.Join(home, ".mpiexec.hydra.conf")
	if _, err := r.s.readFile(name); os.IsNotExist(err) {
		return nil
	}
	return r.readLines("~/.mpiexec.hydra.conf", name)
}
