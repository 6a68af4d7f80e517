package pmi

import (
	"fmt"
	"strconv"

	"github.com/gorun-mpi/gorun/internal/envvar"
)

// Env is what a launcher tells a rank through its environment.
type Env struct {
	FD      int    // the inherited socket (PMI_FD); -1 with PMI_PORT
	Port    string // host:port of the server (PMI_PORT); "" with PMI_FD
	ID      string // identity of this process at that server (PMI_ID)
	Rank    int    // PMI_RANK; -1: the server sends it
	Size    int    // PMI_SIZE; 0: the server sends it
	Cards   bool   // GORUN_PMI=cards: the server implements gorun_allgather
	Spawned bool   // PMI_SPAWNED=1: a running program spawned this process
	// Secure tells a server that knows it, as gorun's does, that this process encrypts what it sends
	// to other hosts. The program sets it, and no variable.
	Secure bool
}

// secureKey stands in cmd=init of a client with Env.Secure.
const secureKey = "gorun_secure"

// FromEnviron reads the variables of PMI-1 from environ, which has the form of os.Environ. found
// is false if there is no PMI server. An invalid value is an error that names the variable.
func FromEnviron(environ []string) (env Env, found bool, err error) {
	get := func(name string) string { return envvar.Get(environ, name) }
	fd, rank, size, spawned := get("PMI_FD"), get("PMI_RANK"), get("PMI_SIZE"), get("PMI_SPAWNED")
	env = Env{FD: -1, Rank: -1, Port: get("PMI_PORT"), ID: get("PMI_ID"), Spawned: spawned != "" && spawned != "0", Cards: get("GORUN_PMI") == "cards"}
	if fd == "" && env.Port == "" {
		return Env{FD: -1, Rank: -1}, false, nil
	}
	if fd == "" {
		if env.ID == "" {
			return env, true, fmt.Errorf("PMI_PORT=%s is set but PMI_ID is not: the launcher must set both", env.Port)
		}
		// Rank and size are optional in this form: the server tells them.
		if rank == "" || size == "" {
			return env, true, nil
		}
	} else {
		env.Port = ""
		if env.FD, err = variable("PMI_FD", fd); err != nil {
			return env, true, err
		}
	}
	if env.Rank, err = variable("PMI_RANK", rank); err != nil {
		return env, true, err
	}
	if env.Size, err = variable("PMI_SIZE", size); err != nil {
		return env, true, err
	}
	if env.Rank >= env.Size {
		return env, true, fmt.Errorf("PMI_RANK=%d is not below PMI_SIZE=%d", env.Rank, env.Size)
	}
	return env, true, nil
}

// Environ is the environment that a server sets for a rank. FromEnviron is its inverse.
func (env Env) Environ() []string {
	var vars []string
	if env.Port != "" {
		vars = append(vars, "PMI_PORT="+env.Port, "PMI_ID="+env.ID)
	} else {
		vars = append(vars, "PMI_FD="+strconv.Itoa(env.FD))
	}
	if env.Rank >= 0 && env.Size > 0 {
		vars = append(vars, "PMI_RANK="+strconv.Itoa(env.Rank), "PMI_SIZE="+strconv.Itoa(env.Size))
	}
	if env.Spawned {
		vars = append(vars, "PMI_SPAWNED=1")
	}
	if env.Cards {
		vars = append(vars, "GORUN_PMI=cards")
	}
	return vars
}

// variable is the number in a variable that must hold one of 0 and more.
func variable(name, value string) (int, error) {
	if value == "" {
		return -1, fmt.Errorf("%s is not set, though a PMI server is: the launcher must set PMI_FD, PMI_RANK and PMI_SIZE", name)
	}
	n, err := strconv.ParseInt(value, 10, 32)
	if err != nil || n < 0 {
		return -1, fmt.Errorf("%s=%s: want a number of 0 or more", name, value)
	}
	return int(n), nil
}
