package rank

import (
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"

	"github.com/gorun-mpi/gorun/coll"
	"github.com/gorun-mpi/gorun/pmi"
	"github.com/gorun-mpi/gorun/rdma"
)

// Config says how a rank joins its job. The zero value is the default.
type Config struct {
	// Environment is the place in the job; nil reads the process's own
	// environment with [FromEnviron].
	Environment *Environment
	// Providers bring devices beyond the software ones, which are always there.
	Providers []rdma.Provider
	// Devices names the device to use for everything; with two names the
	// lower half of the ranks uses the first. Empty: the first software device.
	Devices []string
	// Verbs has all data go through the device as RDMA, as when Devices names
	// it. Otherwise ranks that share memory also load and store there. The ranks of a
	// world of up to 16 begin to connect in Init then, and not when they first
	// communicate.
	Verbs bool
	// Tuning selects the algorithms of collectives and the lengths that their
	// protocols change at; nil reads the file that the environment names, or is
	// the table that is built in. All ranks have the same.
	Tuning *coll.Table
	// QPMemory is the budget of a host for queue pairs, in bytes: when its ranks could come
	// to take more with one to each peer for messages, collectives and windows each, they talk
	// over dynamic connections instead, where the device has them. 0 is what the environment
	// says, else 256 MiB; -1 is none at all. All ranks have the same.
	QPMemory int64
	// Verbose has rank 0 tell which algorithm and protocol its collectives and
	// messages take, and why, each at its first use: to Log, or on standard
	// error where Log is nil. The environment may ask for it too, on standard
	// error whatever Log is.
	Verbose bool
	// Log gets a line about each fact of the start-up and of failures, without
	// a newline; nil is silent. It is called on the goroutine of the rank.
	Log func(line string)

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

// An Environment is what a launcher tells a rank. It is public for programs that need
// the launcher's answers before Init, or without it, as the device names in pingpong.
type Environment struct {
	// PMI is the launcher's PMI server, nil when there is none: a world of one.
	PMI *pmi.Env
	// Gorun tells that gorun is the launcher, so that the fields below are set.
	Gorun     bool
	Job       string // the job's identity (GORUN_JOB)
	Host      string // the host's name in the job (GORUN_HOST)
	HostIndex int    // counted from 0 (GORUN_HOST_INDEX)
	LocalRank int    // among the ranks of the host (GORUN_LOCAL_RANK)
	LocalSize int    // ranks on the host (GORUN_LOCAL_SIZE)
	SegmentFD int    // the job's shared segment, inherited; -1: none (GORUN_SEGMENT)
	// CPUs is how many CPUs this rank shares with how many ranks, itself included
	// (GORUN_CPUS, GORUN_CPU_RANKS); 0: not known, and all of the host.
	CPUs, CPURanks int
	// Emulate names the software devices; empty: soft0 (GORUN_EMULATE).
	Emulate []string
	// Tuning is the file with the table that selects collectives' algorithms;
	// empty: the built-in one (GORUN_TUNING).
	Tuning string
	// QPMemory is Config.QPMemory (GORUN_QP_MEMORY, where 0 is none at all); 0: not set.
	QPMemory int64
	// Verbose is Config.Verbose (GORUN_VERBOSE=1, which gorun -v sets).
	Verbose bool
	// Foreign says why a process without PMI must not be a world of one: another launcher has
	// started it as one of several, and what to do. "": nothing speaks against it.
	Foreign string
	// Continuous tells that the job goes on when a rank fails (GORUN_CONTINUOUS=1, which
	// gorun --continuous sets).
	Continuous bool
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
		return 0, errors.New("want a number of bytes, as 4096, 64K, 256M or 2G")
	}
	return n << shift, nil
}

// FromEnviron reads what a launcher left in environ, as os.Environ gives it.
// A variable that makes no sense is an error that names it.
func FromEnviron(environ []string) (Environment, error) {
	env := Environment{SegmentFD: -1, LocalSize: 1}
	server, found, err := pmi.FromEnviron(environ)
	if err != nil {
		return env, err
	}
	if found {
		env.PMI = &server
	} else {
		env.Foreign = foreign(func(name string) string {
			for _, entry := range environ {
				if value, ok := strings.CutPrefix(entry, name+"="); ok && name != "" {
					return value
				}
			}
			return ""
		})
	}
	vars := make(map[string]string)
	for _, entry := range environ {
		if name, value, ok := strings.Cut(entry, "="); ok && strings.HasPrefix(name, "GORUN_") {
			vars[name] = value
		}
	}
	for name := range strings.SplitSeq(vars["GORUN_EMULATE"], ",") {
		if name != "" {
			env.Emulate = append(env.Emulate, name)
		}
	}
	env.Tuning = vars["GORUN_TUNING"]
	if value := vars["GORUN_VERBOSE"]; value != "" {
		if env.Verbose, err = strconv.ParseBool(value); err != nil {
			return env, fmt.Errorf("GORUN_VERBOSE=%s: want 1 or 0", value)
		}
	}
	if value := vars["GORUN_QP_MEMORY"]; value != "" {
		if env.QPMemory, err = parseMemory(value); err != nil {
			return env, fmt.Errorf("GORUN_QP_MEMORY=%s: %w", value, err)
		}
		if env.QPMemory == 0 {
			env.QPMemory = -1
		}
	}
	env.Job, env.Gorun = vars["GORUN_JOB"]
	if !env.Gorun || !found {
		env.Gorun = false
		return env, nil
	}
	env.Continuous = vars["GORUN_CONTINUOUS"] == "1"
	env.Host = vars["GORUN_HOST"]
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
	} {
		value, set := vars[v.name]
		if !set {
			continue
		}
		n, err := strconv.Atoi(value)
		if err != nil || n < v.least {
			return env, fmt.Errorf("%s=%s: want a number of %d or more", v.name, value, v.least)
		}
		*v.into = n
	}
	if env.LocalRank >= env.LocalSize {
		return env, fmt.Errorf("GORUN_LOCAL_RANK=%d is not below GORUN_LOCAL_SIZE=%d", env.LocalRank, env.LocalSize)
	}
	return env, nil
}
