package host

import (
	"slices"
	"strconv"
	"strings"

	"github.com/gorun-mpi/gorun/internal/envvar"
)

// sharedVars are the variables that gorun sets and that users set too. What the
// user has set stays as it is. Those that follow torchrun are by which the processes
// of a Python training script, and others, find each other: RANK, WORLD_SIZE and so on.
//
// Their names are so common that a job inside a job could not tell the outer
// launcher's from the user's. GORUN_SET lists what was set here, with the values:
// Scrub takes out what still has them.
type sharedVars struct {
	common      []string // settings, the same for all ranks of the host
	rank, local bool     // whether RANK and LOCAL_RANK are to be set
	procs       bool     // and GOMAXPROCS
}

// pmiVersion has MPICH 5 take part by PMI-1. By itself it gives up where it finds the
// variables of PMI-1 and those of PMIx: "Auto-detection of PMI version failed".
// Others take PMI-1 where there is any, and so does this one.
const pmiVersion = "MPIR_CVAR_PMI_VERSION"

// ompiLevels is by which Open MPI's collectives make levels of hosts. They make none where there is one. With agents a spawned group has a
// PMIx server of its own, so its ranks and those that spawned it do not learn that they share a host (libpmix 5.0.7, _cnct in
// src/server/pmix_server.c, tells those of one server alone). Component han then makes communicators within a merged one, and
// Open MPI 5.0.7 dies in MPI_Finalize where there is more than one (ompi_dpm_dyn_finalize in ompi/dpm/dpm.c sends when TCP
// connects no more).
const ompiLevels = "OMPI_MCA_coll_han_priority"

func newSharedVars(spec *Spec, user []string, oneArena bool) sharedVars {
	taken := make(map[string]bool)
	for _, entry := range user {
		name, _, _ := strings.Cut(entry, "=")
		switch name {
		case "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", goProcs, mallocArenas:
			taken[name] = true
		case pmiVersion, "MPIR_PARAM_PMI_VERSION", "MPICH_PMI_VERSION": // three names of one
			taken[pmiVersion] = true
		case ch3Ports, "MPICH_CH3_PORT_RANGE", "MPICH_PORT_RANGE", "MPIR_CVAR_PORT_RANGE", "MPIR_PARAM_CH3_PORT_RANGE", "MPIR_PARAM_PORT_RANGE":
			taken[ch3Ports] = true
		case ompiLevels, "OMPI_MCA_coll":
			taken[ompiLevels] = true
		case goPorts, ucxPorts, fiFirst, fiLast, ompiFirst + "v4", ompiCount + "v4", ompiFirst + "v6", ompiCount + "v6":
			taken[name] = true
		}
	}
	m := sharedVars{rank: !taken["RANK"], local: !taken["LOCAL_RANK"], procs: !taken[goProcs]}
	set := func(name, value string) {
		if !taken[name] && value != "" {
			m.common = append(m.common, name+"="+value)
		}
	}
	set(pmiVersion, "1")
	if spec.Flat {
		set(ompiLevels, "-1")
	}
	if oneArena {
		set(mallocArenas, "1")
	}
	set("WORLD_SIZE", strconv.Itoa(spec.NP))
	set("LOCAL_WORLD_SIZE", strconv.Itoa(len(spec.Ranks)))
	set("MASTER_ADDR", spec.Master.Address)
	if spec.Master.Port != 0 {
		set("MASTER_PORT", strconv.Itoa(spec.Master.Port))
	}
	if r := spec.Ports; r.Len() > 0 {
		first, last, count := strconv.Itoa(r.First), strconv.Itoa(r.Last), strconv.Itoa(r.Len())
		set(goPorts, r.String())
		set(ch3Ports, first+":"+last)
		set(ucxPorts, r.String())
		set(fiFirst, first)
		set(fiLast, last)
		for _, version := range [...]string{"v4", "v6"} {
			set(ompiFirst+version, first)
			set(ompiCount+version, count)
		}
	}
	return m
}

// How ranks are told of ports at which they may listen: Go ranks, MPICH over ch3, over UCX and over libfabric, and Open MPI.
const (
	goPorts   = "GORUN_TCP_PORTS"
	ch3Ports  = "MPIR_CVAR_CH3_PORT_RANGE"
	ucxPorts  = "UCX_TCP_PORT_RANGE"
	fiFirst   = "FI_TCP_PORT_LOW_RANGE"
	fiLast    = "FI_TCP_PORT_HIGH_RANGE"
	ompiFirst = "OMPI_MCA_btl_tcp_port_min_"
	ompiCount = "OMPI_MCA_btl_tcp_port_range_"
)

// append adds the variables of a rank; crowded: it has little of a CPU.
func (m *sharedVars) append(env []string, rank, local string, crowded bool) []string {
	n := len(env)
	env = append(env, m.common...)
	if m.rank {
		env = append(env, "RANK="+rank)
	}
	if m.local {
		env = append(env, "LOCAL_RANK="+local)
	}
	if crowded && m.procs {
		env = append(env, goProcs+"=1")
	}
	return append(env, "GORUN_SET="+strings.Join(env[n:], " "))
}

// UserSets tells whether a variable has a value, and not one that an outer gorun
// gave it.
func UserSets(environ []string, name string) bool {
	set := settings(environ)
	return slices.ContainsFunc(environ, func(entry string) bool {
		value, ok := strings.CutPrefix(entry, name+"=")
		return ok && value != "" && !set[entry]
	})
}

// settings are the entries that an outer gorun says it has set.
func settings(environ []string) map[string]bool {
	set := make(map[string]bool)
	for setting := range strings.FieldsSeq(envvar.Get(environ, "GORUN_SET")) {
		set[setting] = true
	}
	return set
}
