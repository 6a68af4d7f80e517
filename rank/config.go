package rank

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/gorun-mpi/gorun/coll"
	"github.com/gorun-mpi/gorun/internal/envvar"
	"github.com/gorun-mpi/gorun/internal/ports"
	"github.com/gorun-mpi/gorun/pmi"
	"github.com/gorun-mpi/gorun/rdma"
	"github.com/gorun-mpi/gorun/rdma/soft"
)

// Config says how a rank joins its job. The zero value holds the defaults.
type Config struct {
	// Environment is what the launcher told the rank; nil reads the
	// environment of the process with [FromEnviron].
	Environment *Environment
	// Providers are the providers of devices beside the software devices, which always exist.
	Providers []rdma.Provider
	// Devices names the device for all communication. With two names the lower
	// half of the ranks uses the first. Empty: the first software device. With Offload it is one of the
	// software, whose memory ranks of a host map all the same: the daemon reaches no other.
	Devices []string
	// Verbs has all data go through the device as RDMA, as when Devices names it. Otherwise
	// ranks that share memory also use loads and stores. If all ranks of a world of up to 16
	// set Verbs, Init connects its collectives, instead of their first communication.
	Verbs bool
	// Tuning selects the algorithms of collectives and the sizes at which protocols change. nil reads
	// the file that the environment names, else the built-in table. It is the same on all ranks.
	Tuning *coll.Table
	// QPMemory is the memory in bytes that the queue pairs of a host may take. If one queue
	// pair to each peer for messages, collectives and windows each could take more, ranks use
	// dynamically connected queue pairs instead, if the device has them. 0 is the
	// environment's value, else 256 MiB; -1 permits none at all. It is the same on all ranks.
	QPMemory int64
	// Verbose has rank 0 report the algorithm and the protocol of its collectives and
	// messages, with the reason, at the first use of each: to Log, or to standard error
	// if Log is nil. The environment may ask for the same, always on standard error.
	Verbose bool
	// Progress says whether a thread of this rank moves started operations while the program
	// computes. The zero value is the environment's, else auto. It need not be the same on all ranks.
	Progress Progress
	// Deferred leaves started collectives, however short, to the progress thread, or with ProgressOff to whoever calls
	// [Request.Step]: neither their start nor Wait takes a step of them. Other calls of the rank do, as ever. It
	// serves programs that need to know who runs their collectives, and excludes Concurrent.
	Deferred bool
	// Concurrent permits calls of several goroutines at the same time (MPI_THREAD_MULTIPLE). The package
	// documentation has the limits. A message takes some 50 ns more. It need not be the same on all ranks.
	Concurrent bool
	// Turn, with Concurrent, is the program's: it guards what the goroutines share beside the rank, and whoever calls has locked it.
	// A call that waits lets others have it. nil: the rank has one of its own.
	Turn *Turn
	// Offload asks gorun for the daemon of gorun --offload, of one thread, on each host of several ranks where the command line
	// has asked for none. Init fails under another launcher. The rank then waits for the daemon however long it takes; where only
	// the command line has asked, a rank that is in a call takes back what the daemon has not begun within 20 us.
	Offload bool
	// OffloadFrom is the length in bytes from which started collectives of registered memory are the
	// daemon's where the host has one (gorun --offload). 0 is 256 KiB; 1 is all but those of no bytes, -1 is all.
	OffloadFrom int
	// Secure encrypts what goes to other hosts, where the environment asks for it (gorun --secure). It is
	// [github.com/gorun-mpi/gorun/rdma/soft/softtls.Handshake], which is not built in because of its size. Without
	// it Init fails there.
	Secure soft.Handshake
	// Waiting is told of each wait of this rank that lasts 5 s, again when it has lasted three times as long, and so on. It is called on
	// the rank's goroutine, within the call that waits, and makes no calls.
	Waiting func(Wait)
	// Log gets one line, without a newline, for each event of start-up and each
	// failure. nil logs nothing. It is called on the goroutine of the rank.
	Log func(line string)

	// longWait is the time of Waiting; 0: 5 s.
	longWait time.Duration
	// adversary is the seed of the software device's adversarial mode; 0 is plain.
	adversary uint64
	// place is where the rank is, when Run knows.
	place *place
}

// environment is Config.Environment, or what the process was started with: this
// is where the package reads the environment.
func (cfg *Config) environment() (Environment, error) {
	if cfg.Environment != nil {
		return *cfg.Environment, nil
	}
	return FromEnviron(os.Environ())
}

// withProgress is the configuration with the progress of the process's environment, where
// it has none.
func (cfg Config) withProgress() (Config, error) {
	var err error
	if cfg.Progress == 0 {
		cfg.Progress, err = progressIn(os.Environ())
	}
	return cfg, err
}

// progressIn is what the variables of gorun and of the MPIs say, of which the first counts.
func progressIn(environ []string) (Progress, error) {
	for _, name := range []string{"GORUN_ASYNC_PROGRESS", "MPICH_ASYNC_PROGRESS", "I_MPI_ASYNC_PROGRESS"} {
		if value := envvar.Get(environ, name); value != "" {
			p, err := ParseProgress(value)
			if err != nil {
				err = fmt.Errorf("%s=%s: %w", name, value, err)
			}
			return p, err
		}
	}
	return 0, nil
}

// tuning is Config.Tuning, or the table in the file that the environment names,
// nil if it names none.
func (cfg *Config) tuning(env *Environment) (*coll.Table, error) {
	if cfg.Tuning != nil || env.Tuning == "" {
		return cfg.Tuning, nil
	}
	data, err := os.ReadFile(env.Tuning)
	if err != nil {
		return nil, fmt.Errorf("GORUN_TUNING: %w", err)
	}
	table, err := coll.ParseTable(data)
	if err != nil {
		return nil, fmt.Errorf("GORUN_TUNING=%s: %w", env.Tuning, err)
	}
	return table, nil
}

// Progress says whether a rank has a progress thread, which moves started collectives, messages
// and windows while the program computes or sleeps. A started operation of 64 KiB or more is then
// the thread's from the first byte on; the call that starts it moves no data. With ranks as
// goroutines ([Run]) the thread is a goroutine. It calls no function of the program.
type Progress uint8

const (
	ProgressOff  Progress = iota + 1 // operations move while the rank is in a call
	ProgressOn                       // the rank has the thread, from its first request or window on
	ProgressAuto                     // as ProgressOn if there are two CPUs for each rank of the host, else ProgressOff
)

// progressNames are the values of GORUN_ASYNC_PROGRESS; MPICH's and Intel MPI's variables
// take the numbers.
var progressNames = map[string]Progress{"off": ProgressOff, "0": ProgressOff, "no": ProgressOff, "false": ProgressOff, "disable": ProgressOff,
	"on": ProgressOn, "1": ProgressOn, "yes": ProgressOn, "true": ProgressOn, "enable": ProgressOn, "auto": ProgressAuto}

// ParseProgress reads off, on or auto. 0, no, false and disable mean off, and 1, yes, true and enable mean on.
func ParseProgress(text string) (Progress, error) {
	p, known := progressNames[strings.ToLower(text)]
	if !known {
		return 0, errors.New("expected off, on or auto")
	}
	return p, nil
}

// String is off, on, auto, or empty for the zero value.
func (p Progress) String() string { return [...]string{"", "off", "on", "auto"}[p&3] }

// An Environment is what a launcher tells a rank. It is public for programs that need
// it before Init or without Init, such as pingpong, which reads the device names.
type Environment struct {
	// PMI is how to reach the launcher's PMI server; nil: there is none, and the rank is a world of one.
	PMI *pmi.Env
	// Gorun reports that the launcher is gorun, so that the fields below are set.
	Gorun   bool
	Job     string // the job's identity (GORUN_JOB)
	Host    string // the host's name in the job (GORUN_HOST)
	Address string // at which the job's other hosts reach this one; "": this machine only (GORUN_ADDRESS)
	Detour  string // the address of its agent, which carries connections that this host cannot make itself; "": none does (GORUN_DETOUR)
	// Interface is the network interface, by its name or its network in CIDR form, at which ranks
	// of other hosts reach this one under another launcher than gorun, whose Address says more;
	// "": Init finds one (GORUN_INTERFACE).
	Interface string
	// Ports are the TCP ports of which the rank takes one to listen, as "40000-40100"; "": any (GORUN_TCP_PORTS).
	Ports string

	HostIndex int // counted from 0 (GORUN_HOST_INDEX)
	LocalRank int // this rank's number among the ranks of the host (GORUN_LOCAL_RANK)
	LocalSize int // the number of ranks on the host (GORUN_LOCAL_SIZE)
	SegmentFD int // the inherited descriptor of the job's shared segment; -1: none (GORUN_SEGMENT)
	// CPUs is the number of CPUs that this rank shares, and CPURanks the number of ranks that share them,
	// including this one (GORUN_CPUS, GORUN_CPU_RANKS). 0: unknown, all CPUs of the host are assumed.
	CPUs, CPURanks int
	// Emulate names the software devices; empty: soft0 (GORUN_EMULATE).
	Emulate []string
	// Tuning is the file with the table that selects the algorithms of
	// collectives; empty: the built-in table (GORUN_TUNING).
	Tuning string
	// QPMemory is Config.QPMemory; 0: not set. GORUN_QP_MEMORY=0 permits none at all, as Config's -1.
	QPMemory int64
	// Verbose is Config.Verbose (GORUN_VERBOSE=1, which gorun -v sets).
	Verbose bool
	// Progress is Config.Progress (GORUN_ASYNC_PROGRESS=off, on or auto, else MPICH_ASYNC_PROGRESS
	// or I_MPI_ASYNC_PROGRESS, where 1 is on and 0 is off).
	Progress Progress
	// ProgressPinned has the progress thread run on ProgressCPU, by the kernel's numbers: a CPU that
	// the launcher keeps for it (GORUN_ASYNC_CPU). Else it runs where the rank may.
	ProgressPinned bool
	ProgressCPU    int
	// Offload is the number of threads of the host's daemon that steps started collectives; 0: there
	// is none (GORUN_OFFLOAD, which gorun --offload sets).
	Offload int
	// Foreign is set if another launcher has started the process as one of several, but serves no
	// PMI-1. It says which launcher, and what to do. Init then fails instead of making a world of one.
	Foreign string
	// Secure has ranks of different hosts encrypt what they send to each other, by [Config].Secure
	// (GORUN_SECURE=1, which gorun --secure sets).
	Secure bool
	// HostLease is how long a host may be silent before the launcher takes it for lost and says so; 0: the launcher does not
	// decide about hosts (GORUN_HOST_LEASE, which gorun sets where ranks run on several).
	HostLease time.Duration
	// Continuous: the job goes on when a rank fails (GORUN_CONTINUOUS=1, which gorun --continuous sets).
	Continuous bool
	// Profile is the file in which the rank records its calls; "": it does not (GORUN_PROFILE, which gorun --profile sets).
	Profile string
}

// Server is PMI, which is not nil, as [pmi.DialContext] takes it: a launcher other than gorun is not told of
// Secure, which it does not know.
func (e *Environment) Server() pmi.Env {
	server := *e.PMI
	server.Secure = e.Gorun && e.Secure
	return server
}

// silence is how long ranks let another host be silent before they give it up by themselves: twice as long as the launcher
// takes for any verdict, where it decides about hosts. They do so when the host lives, but their connection carries nothing. 0: no
// launcher decides.
func (e *Environment) silence() time.Duration {
	if e.HostLease == 0 {
		return 0
	}
	return max(time.Minute, 4*e.HostLease)
}

// parseMemory reads a number of bytes: 4096, 64K, 256MiB, 2g.
func parseMemory(text string) (int64, error) {
	number := strings.TrimSuffix(strings.TrimSuffix(strings.ToLower(text), "b"), "i")
	shift := 0
	if n := len(number); n > 0 {
		if at := strings.IndexByte("kmgt", number[n-1]); at >= 0 {
			number, shift = number[:n-1], 10*(at+1)
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64>>shift || shift == 0 && strings.HasSuffix(strings.ToLower(text), "i") {
		return 0, errors.New("expected a number of bytes, such as 4096, 64K, 256M or 2G")
	}
	return n << shift, nil
}

// interfaceVar names the network between hosts.
const interfaceVar = "GORUN_INTERFACE"

// FromEnviron reads the launcher's variables in environ, which has the form
// of [os.Environ]. An invalid value is an error that names the variable.
func FromEnviron(environ []string) (Environment, error) {
	env := Environment{SegmentFD: -1, LocalSize: 1}
	server, found, err := pmi.FromEnviron(environ)
	if err != nil {
		return env, err
	}
	if found {
		env.PMI = &server
	} else {
		env.Foreign = foreign(func(name string) string { return envvar.Get(environ, name) })
	}
	vars := make(map[string]string)
	for _, entry := range environ {
		if name, value, ok := strings.Cut(entry, "="); ok && strings.HasPrefix(name, "GORUN_") {
			vars[name] = value
		}
	}
	if env.Progress, err = progressIn(environ); err != nil {
		return env, err
	}
	for name := range strings.SplitSeq(vars["GORUN_EMULATE"], ",") {
		if name != "" {
			env.Emulate = append(env.Emulate, name)
		}
	}
	env.Tuning, env.Interface, env.Ports = vars["GORUN_TUNING"], vars[interfaceVar], vars["GORUN_TCP_PORTS"]
	if _, err := ports.Parse(env.Ports); err != nil {
		return env, fmt.Errorf("GORUN_TCP_PORTS: %w", err)
	}
	if value := vars["GORUN_VERBOSE"]; value != "" {
		if env.Verbose, err = strconv.ParseBool(value); err != nil {
			return env, fmt.Errorf("GORUN_VERBOSE=%s: expected 1 or 0", value)
		}
	}
	if value := vars["GORUN_SECURE"]; value != "" {
		if env.Secure, err = strconv.ParseBool(value); err != nil {
			return env, fmt.Errorf("GORUN_SECURE=%s: expected 1 or 0", value)
		}
	}
	if value := vars["GORUN_QP_MEMORY"]; value != "" {
		if env.QPMemory, err = parseMemory(value); err != nil {
			return env, fmt.Errorf("GORUN_QP_MEMORY=%s: %w", value, err)
		}
		env.QPMemory = cmp.Or(env.QPMemory, -1)
	}
	env.Job, env.Gorun = vars["GORUN_JOB"]
	if !env.Gorun || !found {
		env.Gorun = false
		return env, nil
	}
	env.Continuous = vars["GORUN_CONTINUOUS"] == "1"
	if value := vars["GORUN_HOST_LEASE"]; value != "" {
		if env.HostLease, err = time.ParseDuration(value); err != nil || env.HostLease <= 0 {
			return env, fmt.Errorf("GORUN_HOST_LEASE=%s: expected a time such as 4s", value)
		}
	}
	env.Profile = vars["GORUN_PROFILE"]
	env.Host, env.Address, env.Detour = vars["GORUN_HOST"], vars["GORUN_ADDRESS"], vars["GORUN_DETOUR"]
	for _, v := range []struct {
		name  string
		into  *int
		least int
	}{
		{"GORUN_HOST_INDEX", &env.HostIndex, 0},
		{"GORUN_LOCAL_RANK", &env.LocalRank, 0},
		{"GORUN_LOCAL_SIZE", &env.LocalSize, 1},
		{"GORUN_SEGMENT", &env.SegmentFD, 0},
		{"GORUN_CPUS", &env.CPUs, 1},
		{"GORUN_CPU_RANKS", &env.CPURanks, 1},
		{"GORUN_ASYNC_CPU", &env.ProgressCPU, 0},
		{"GORUN_OFFLOAD", &env.Offload, 1},
	} {
		value, set := vars[v.name]
		if !set {
			continue
		}
		n, err := strconv.Atoi(value)
		if err != nil || n < v.least {
			return env, fmt.Errorf("%s=%s: expected a number of at least %d", v.name, value, v.least)
		}
		*v.into = n
	}
	_, env.ProgressPinned = vars["GORUN_ASYNC_CPU"]
	if env.LocalRank >= env.LocalSize {
		return env, fmt.Errorf("GORUN_LOCAL_RANK=%d is not below GORUN_LOCAL_SIZE=%d", env.LocalRank, env.LocalSize)
	}
	return env, nil
}
