package host

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/gorun-mpi/gorun/internal/shm"
	"github.com/gorun-mpi/gorun/internal/topo"
	"github.com/gorun-mpi/gorun/launcher/internal/sidecar"
	"github.com/gorun-mpi/gorun/pmi"
)

// Marker is the entry in the environment of every process of a job on one host
// by which that host's guardian knows them. Several hosts of a job may be one
// machine, so the host is in it. The job is in its name, so that a job inside a
// job carries the markers of both: its own guardian carries the outer one, and
// dies with whatever the outer guardian finds, so that must be everything.
func Marker(spec *Spec) string {
	return "GORUN_GUARD_" + spec.Job + "_" + strconv.Itoa(spec.Index) + "=1"
}

// ours are the variables that a host sets, and those that an outer launcher may
// have left in the environment, which would lead a rank to the wrong server.
var ours = map[string]bool{
	"GORUN_JOB": true, "GORUN_HOST": true, "GORUN_ADDRESS": true, "GORUN_HOST_INDEX": true, "GORUN_LOCAL_RANK": true, "GORUN_LOCAL_SIZE": true,
	"GORUN_RESTART_COUNT": true, "GORUN_CONTINUOUS": true, "GORUN_HOST_LEASE": true, "GORUN_DETOUR": true, dirVar: true, profileVar: true, "GORUN_SET": true, "GORUN_SEGMENT": true, "GORUN_CPUS": true, "GORUN_CPU_RANKS": true, "GORUN_EMULATE": true, "GORUN_OFFLOAD": true, "GORUN_SECURE": true, "GORUN_PMI": true,
	asyncCPUVar:       true,
	"MPI_LOCALRANKID": true, "MPI_LOCALNRANKS": true, "HYDI_CONTROL_FD": true,
	"OMPI_COMMAND": true, "OMPI_ARGV": true, "OMPI_FILE_LOCATION": true,
	"OMPI_UNIVERSE_SIZE": true, "OMPI_NUM_APP_CTX": true, "OMPI_APP_CTX_NUM_PROCS": true, "OMPI_FIRST_RANKS": true, "OMPI_MCA_orte_local_daemon_uri": true,
}

// outer are the beginnings of names that are all an outer launcher's.
var outer = [...]string{"PMI_", "PMIX_", "OMPI_COMM_WORLD_"}

// outerParameters are those that Open MPI's launcher (4.1, 5.0, 6.0) sets for its
// ranks among the parameters of Open MPI, which users set too: outside its ranks they
// are theirs. Left as they are they would keep ranks from yielding, and their files
// out of the job's directory.
var outerParameters = map[string]bool{
	"cpu_type": true, "ess": true, "ess_base_jobid": true, "ess_base_vpid": true, "initial_wdir": true, "mca_base_component_path": true, "mpi_oversubscribe": true,
	"num_procs": true, "num_restarts": true, "orte_app_num": true, "orte_bound_at_launch": true, "orte_ess_node_rank": true, "orte_ess_num_procs": true, "orte_hnp_uri": true,
	"orte_jobfam_session_dir": true, "orte_launch": true, "orte_num_nodes": true, "orte_precondition_transports": true,
	"orte_tmpdir_base": true, "orte_top_session_dir": true, "pmix": true, "PREFIXES": true, "rmaps_base_oversubscribe": true, "shmem_RUNTIME_QUERY_hint": true,
}

// outerInside are others of a launcher whose names users give too, as container images do
// OMPI_VERSION, by the variable that is in the environment of that launcher's ranks alone.
var outerInside = map[string]string{
	"OMPI_VERSION": openMPIRank, "OMPI_TOOL_NAME": openMPIRank, "OMPI_LIBDIR_LOC": openMPIRank, "OMPI_WORLD_SIZE": openMPIRank, "OMPI_WORLD_LOCAL_SIZE": openMPIRank,
	"OPAL_USER_PARAMS_GIVEN": openMPIRank, "OPAL_SYS_PARAMS_GIVEN": openMPIRank, "PRTE_LAUNCHED": openMPIRank, "PRTE_SHARED_FS": openMPIRank,
	"PMIX_MCA_mca_base_component_path": openMPIRank,
	"MPIR_CVAR_CH3_INTERFACE_HOSTNAME": hydraRank, // the name of its own host
}

const openMPIRank, hydraRank = "OMPI_COMM_WORLD_RANK", "HYDI_CONTROL_FD"

// Scrub returns an environment without what a launcher set in it for its ranks.
// Of two settings of a name the later one stays.
func Scrub(environ []string) []string {
	set := settings(environ)
	inside := map[string]bool{openMPIRank: sets(environ, openMPIRank), hydraRank: sets(environ, hydraRank)}
	last := make(map[string]int, len(environ))
	clean := make([]string, 0, len(environ))
	for _, entry := range environ {
		name, value, ok := strings.Cut(entry, "=")
		if !ok || name == "" || foreign(name) || set[entry] || outerDirectory(name, value) {
			continue
		}
		if name == "PYTHONPATH" && strings.Contains(value, "/"+directoryPrefix) {
			if value = withoutHook(value); value == "" {
				continue
			}
			entry = pythonPath + value
		}
		if name == "LD_PRELOAD" && strings.Contains(value, "/"+ProfileLibrary) {
			if value = withoutRecorder(value); value == "" {
				continue
			}
			entry = ldPreload + value
		}
		if key, ok := strings.CutPrefix(name, "OMPI_MCA_"); inside[outerInside[name]] || inside[openMPIRank] && ok && outerParameters[key] {
			continue
		}
		if i, seen := last[name]; seen {
			clean[i] = entry
			continue
		}
		last[name] = len(clean)
		clean = append(clean, entry)
	}
	return clean
}

func foreign(name string) bool {
	switch name[0] {
	case 'G', 'H', 'M', 'O', 'P':
	default:
		return false
	}
	if strings.HasPrefix(name, "PMIX_MCA_") {
		return false // a user's parameter
	}
	if ours[name] {
		return true
	}
	return slices.ContainsFunc(outer[:], func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// environment gives each rank its own. The entries that all ranks of the host
// share that run the same program are made once.
type environment struct {
	spec    *Spec
	ports   []string     // where the PMI server listens, by program; "": its ranks inherit a socket
	common  [][]string   // by program; nil where no rank of the host runs it
	shared  []sharedVars // by program
	sharing []cpuSharing // by local rank
	async   []int        // the CPU of a progress thread, by local rank; none: -1, or the slice is nil
	calm    []bool       // by program: its environment says nothing of how Open MPI waits
	records string       // the directory of the ranks' records of their calls; "": they make none
}

// surroundings are what the ranks of a host are told of it, beside what stands in the spec.
type surroundings struct {
	cpus            int    // 0: the machine's
	segment         bool   // ranks inherit one
	dir, files      string // as base.rankDir and base.filesDir
	server          *sidecar.Server
	ports           []string // as in environment
	python, library string   // what goes before PYTHONPATH and LD_LIBRARY_PATH; "": nothing
	recorder        string   // what goes before LD_PRELOAD; "": nothing
	verbs           string   // what goes before LD_LIBRARY_PATH of programs of libibverbs; "": nothing
	alone, cgo      []bool   // as in Host
	linked          []bool   // by program: with libibverbs
}

func newEnvironment(spec *Spec, in surroundings) *environment {
	in.cpus = cmp.Or(in.cpus, topo.CPUs())
	size, local := strconv.Itoa(spec.NP), strconv.Itoa(len(spec.Ranks))
	host := []string{
		Marker(spec),
		"GORUN_JOB=" + spec.Job,
		"GORUN_HOST=" + spec.Host,
		"GORUN_HOST_INDEX=" + strconv.Itoa(spec.Index),
		"GORUN_LOCAL_SIZE=" + local,
		"OMPI_COMM_WORLD_SIZE=" + size,
		"OMPI_COMM_WORLD_LOCAL_SIZE=" + local,
		"OMPI_UNIVERSE_SIZE=" + strconv.Itoa(max(spec.NP, spec.Universe)),
		"MPI_LOCALNRANKS=" + local,
	}
	if spec.Address != "" {
		host = append(host, "GORUN_ADDRESS="+spec.Address)
	}
	if spec.Detour != "" {
		host = append(host, "GORUN_DETOUR="+spec.Detour)
	}
	if spec.Attempt > 0 {
		host = append(host, "GORUN_RESTART_COUNT="+strconv.Itoa(spec.Attempt-1))
	}
	if spec.Continuous {
		host = append(host, "GORUN_CONTINUOUS=1")
	}
	if spec.HostLease > 0 {
		host = append(host, "GORUN_HOST_LEASE="+spec.HostLease.String())
	}
	if in.dir != "" {
		host = append(host, dirVar+"="+in.dir)
	}
	if in.segment {
		host = append(host, "GORUN_SEGMENT="+strconv.Itoa(segmentFD))
	}
	if len(spec.Hosting.Emulate) > 0 {
		host = append(host, "GORUN_EMULATE="+strings.Join(spec.Hosting.Emulate, ","))
	}
	if spec.Hosting.Offload > 0 {
		host = append(host, "GORUN_OFFLOAD="+strconv.Itoa(spec.Hosting.Offload))
	}
	if spec.Secure {
		host = append(host, "GORUN_SECURE=1")
	}
	if spec.Hosting.AsyncProgress != "" {
		host = append(host, asyncVar+"="+spec.Hosting.AsyncProgress)
	}
	host = append(host, programVars(spec.Apps)...)
	host = append(host, pmixVars(spec, in.server)...)
	e := &environment{spec: spec, ports: in.ports, common: make([][]string, len(spec.Apps)), shared: make([]sharedVars, len(spec.Apps)), sharing: cpuSharings(spec.Ranks, in.cpus), calm: make([]bool, len(spec.Apps))}
	if spec.Profile > 0 {
		e.records = in.files
	}
	for _, r := range spec.Ranks {
		if e.common[r.App] == nil {
			user := Scrub(spec.Apps[r.App].Env)
			if in.python != "" && !in.alone[r.App] {
				user = before(user, pythonPath, in.python)
			}
			seen := in.dir
			if otherRoot(spec.Apps[r.App].Argv, in.dir) {
				seen = ""
			}
			if in.library != "" {
				user = before(user, libraryPath, in.library)
			}
			if in.verbs != "" && in.linked[r.App] {
				user = verbsSettings(spec, user, in.verbs)
			}
			if in.recorder != "" && seen != "" {
				user = before(user, ldPreload, in.recorder)
			}
			e.common[r.App] = slices.Concat(host, commandVars(spec.Apps[r.App].Argv), directorySettings(seen, in.files, user), user)
			e.shared[r.App] = newSharedVars(spec, user, in.cgo[r.App] && shm.Limit() != math.MaxUint64)
			e.calm[r.App] = !slices.ContainsFunc(user, func(entry string) bool {
				return strings.HasPrefix(entry, ompiOver) || strings.HasPrefix(entry, ompiYield)
			})
		}
	}
	return e
}

// programVars is what Open MPI tells every rank of the programs of its job.
func programVars(apps []AppSpec) []string {
	counts, firsts := make([]string, len(apps)), make([]string, len(apps))
	first := 0
	for i, a := range apps {
		counts[i], firsts[i] = strconv.Itoa(a.NP), strconv.Itoa(first)
		first += a.NP
	}
	return []string{
		"OMPI_NUM_APP_CTX=" + strconv.Itoa(len(apps)),
		"OMPI_APP_CTX_NUM_PROCS=" + strings.Join(counts, " "),
		"OMPI_FIRST_RANKS=" + strings.Join(firsts, " "),
	}
}

// commandVars are what MPI_INFO_ENV says of the command in Open MPI.
func commandVars(argv []string) []string {
	vars := []string{"OMPI_COMMAND=" + argv[0]}
	if len(argv) > 1 {
		vars = append(vars, "OMPI_ARGV="+strings.Join(argv[1:], " "))
	}
	return vars
}

// What makes Open MPI's ranks yield their CPU while they wait: the first is what
// its own launcher says of ranks that outnumber slots.
const (
	ompiOver  = "OMPI_MCA_mpi_oversubscribe="
	ompiYield = "OMPI_MCA_mpi_yield_when_idle="
)

// goProcs is how many threads run the goroutines of a Go program. Ranks that have little of a CPU get one:
// where a second processor is idle, the runtime looks every 20 us whether it could take over from the first, some
// 60 times for each sleep of the rank. With 300 ranks on 2 CPUs that was a third of all system calls.
const (
	goProcs     = "GOMAXPROCS"
	goProcsFrom = 8 // ranks a CPU, more than which get one
)

// mallocArenas is how many arenas glibc's malloc makes. Each reserves 64 MiB, and a Go program that was built with cgo
// would have one for each thread: under a limit of address space nothing was left for the ranks' memory.
const mallocArenas = "MALLOC_ARENA_MAX"

// of is the environment of a rank.
func (e *environment) of(local int) []string {
	r := &e.spec.Ranks[local]
	rank, index := strconv.Itoa(r.Rank), strconv.Itoa(local)
	common := e.common[r.App]
	env := make([]string, len(common), len(common)+24)
	copy(env, common)
	sharing := e.sharing[local]
	env = e.shared[r.App].append(env, rank, index, sharing.ranks > goProcsFrom*sharing.cpus)
	env = append(env,
		"GORUN_LOCAL_RANK="+index,
		"OMPI_COMM_WORLD_RANK="+rank,
		"OMPI_COMM_WORLD_LOCAL_RANK="+index,
		"OMPI_COMM_WORLD_NODE_RANK="+index,
		"MPI_LOCALRANKID="+index,
		"GORUN_CPUS="+strconv.Itoa(sharing.cpus),
		"GORUN_CPU_RANKS="+strconv.Itoa(sharing.ranks))
	if e.spec.PMIx != nil {
		env = append(env, "PMIX_RANK="+rank)
	}
	if e.async != nil && e.async[local] >= 0 {
		env = append(env, asyncCPUVar+"="+strconv.Itoa(e.async[local]))
	}
	if sharing.ranks > sharing.cpus && e.calm[r.App] {
		env = append(env, ompiOver+"1", ompiYield+"1")
	}
	if e.records != "" {
		env = append(env, profileVar+"="+recordIn(e.records, local))
	}
	server := pmi.Env{FD: pmiFD, Rank: r.Rank, Size: e.spec.NP, Cards: true, Spawned: e.spec.Group > 0}
	if port := e.ports[r.App]; port != "" {
		server.FD, server.Port, server.ID = -1, port, rank
	}
	return append(env, server.Environ()...)
}
