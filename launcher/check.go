package launcher

import (
	"cmp"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/gorun-mpi/gorun/internal/ports"
	"github.com/gorun-mpi/gorun/internal/reach"
	"github.com/gorun-mpi/gorun/internal/shm"
	"github.com/gorun-mpi/gorun/launcher/internal/agent"
)

// check validates a job and fills in its defaults.
func check(job *Job) (*placer, *JobError) {
	job.run.environ = os.Environ()
	job.run.self = reach.This()
	if job.Env == nil {
		job.Env = job.run.environ
	}
	job.Log = cmp.Or(job.Log, slog.New(slog.DiscardHandler))
	if err := checkApps(job); err != nil {
		return nil, err
	}
	if err := checkOutput(&job.Output); err != nil {
		return nil, err
	}
	if field, value, err := job.Hosting.Check(); err != nil {
		return nil, bad("Hosting."+field, value, "%w", err)
	}
	if err := job.findLauncher(); err != nil {
		return nil, err
	}
	if job.apart() {
		job.sendDir()
	}
	var err error
	if job.run.ports, err = ports.Parse(job.Network.Ports); err != nil {
		return nil, &JobError{Field: "Network.Ports", Value: job.Network.Ports, ExitStatus: statusFailed, Err: err}
	}
	if err := job.readStage(); err != nil {
		return nil, err
	}
	if err := job.openPrograms(); err != nil {
		return nil, err
	}
	if job.Agents.AtOnce < 0 {
		return nil, bad("Agents.AtOnce", strconv.Itoa(job.Agents.AtOnce), "want a number of remote shells, or 0 for %d", remoteAtOnce)
	}
	job.run.gate = agent.NewGate(cmp.Or(job.Agents.AtOnce, remoteAtOnce))
	return newPlacer(job)
}

// remoteAtOnce is what Agents.AtOnce is by default.
const remoteAtOnce = 32

// checkTimes validates what a job says of times, restarts and hosts that come and go.
func checkTimes(job *Job) *JobError {
	for _, c := range [...]struct {
		field     string
		set, none time.Duration // none: what 0 stands for
	}{
		{"Timeout", job.Timeout, 0}, {"HangTimeout", job.HangTimeout, 0}, {"Grace", job.Grace, DefaultGrace}, {"Restarts.Pause", job.Restarts.Pause, DefaultRestartPause},
		{"Agents.Timeout", job.Agents.Timeout, DefaultAgentTimeout}, {"Hosting.PMIxTimeout", job.Hosting.PMIxTimeout, DefaultPMIxTimeout},
	} {
		switch {
		case c.set < 0 && c.none > 0:
			return bad(c.field, c.set.String(), "want 0 for %v, or a time", c.none)
		case c.set < 0:
			return bad(c.field, c.set.String(), "want 0 for none, or a time")
		}
	}
	if job.Agents.Timeout > 0 && job.Agents.Timeout < leastAgentTimeout {
		return bad("Agents.Timeout", job.Agents.Timeout.String(), "want 0 for %v, or %v or more", DefaultAgentTimeout, leastAgentTimeout)
	}
	if job.Restarts.Max < 0 {
		return bad("Restarts.Max", strconv.Itoa(job.Restarts.Max), "want 0 for none, or a number")
	}
	if job.Elastic != nil {
		return checkElastic(job)
	}
	return nil
}

// leastAgentTimeout is the shortest Agents.Timeout: a lease is looked at agent.Looks times in it.
const leastAgentTimeout = 100 * time.Millisecond

// checkApps validates the programs of a job and makes its only one a list of one.
func checkApps(job *Job) *JobError {
	if job.Apps == nil {
		job.Apps = []App{{Argv: job.Argv, NP: job.NP, Env: job.Env, Dir: job.Dir, Path: job.Path}}
	} else {
		if len(job.Argv) > 0 || job.NP != 0 {
			return bad("Apps", "", "want either Apps, or Argv and NP")
		}
		job.Apps = slices.Clone(job.Apps)
	}
	job.NP = 0
	for i := range job.Apps {
		a := &job.Apps[i]
		switch {
		case a.NP < 0:
			return bad("NP", strconv.Itoa(a.NP), "want 1 rank or more, or 0 for all slots")
		case len(a.Argv) == 0:
			return bad("Argv", "", "no program: want a program and its arguments")
		}
		if a.Env == nil {
			a.Env = job.Env
		}
		a.Dir = cmp.Or(a.Dir, job.Dir)
		a.Path = cmp.Or(a.Path, job.Path)
		if job.NP += a.NP; job.NP > maxRanks {
			return bad("NP", strconv.Itoa(job.NP), "want %d ranks or fewer", maxRanks)
		}
	}
	if len(job.Apps) == 0 {
		return bad("Apps", "", "no program: want one or more")
	}
	return nil
}

// maxRanks is a guard against what nobody means: a rank's number has 24 bits in the headers of messages and in the marks of a
// segment, but each rank holds what all others tell of themselves. maxRanksOfHost is what a segment has room for.
const (
	maxRanks       = 1 << 20
	maxRanksOfHost = shm.MaxRanks
)

// bad is what is wrong with a field of a job.
func bad(field, value, format string, args ...any) *JobError {
	return &JobError{Field: field, Value: value, ExitStatus: statusFailed, Err: fmt.Errorf(format, args...)}
}
