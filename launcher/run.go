package launcher

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"

	"github.com/gorun-mpi/gorun/launcher/internal/host"
	"github.com/gorun-mpi/gorun/launcher/internal/orphan"
	"github.com/gorun-mpi/gorun/pmi"
)

// Run runs a job to its end. The error is a *JobError when the job could not be
// started; any other error is a failure of the launcher itself. A job whose
// ranks failed is no error: the Result tells. When ctx ends the job is ended.
//
// Run may be called several times at once. It returns when no process of the
// job is left: groups are killed, and daemons are looked for by their
// environment, or adopted (Job.Adopt). While it runs, a
// fork of this process, the guardian, shares its memory copy on write: a large
// program that changes much of it needs the room twice. It marks the
// descriptors that this process has inherited close-on-exec. The rest of
// the process may wait for its own children only, so not by wait4(-1).
func Run(ctx context.Context, job Job) (Result, error) { return runFor(ctx, job, nil) }

// runFor is Run, with a handle that looks on; nil: nobody does.
func runFor(ctx context.Context, job Job, h *Handle) (Result, error) {
	if err := checkRestarts(&job); err != nil {
		return Result{ExitStatus: err.ExitStatus}, err
	}
	at := attempt{limit: job.Timeout, handle: h, watch: newWatcher(&job)}
	defer at.watch.close()
	if job.MaxRestarts > 0 {
		return runAgain(ctx, job, at)
	}
	return run(ctx, job, at)
}

// run runs a job once.
func run(ctx context.Context, job Job, at attempt) (Result, error) {
	if at.handle != nil {
		at.handle.stats.begin()
		defer at.handle.stats.end()
	}
	w, jerr := check(&job)
	if jerr != nil {
		return Result{ExitStatus: jerr.ExitStatus}, jerr
	}
	if job.Adopt {
		a, err := orphan.Adopt()
		if err != nil {
			return Result{ExitStatus: statusFailed}, err
		}
		defer a.End()
	}
	if job.Launcher != "" {
		// The agents live as long as the thread that started them.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
	}
	crew, cause, err := w.look(ctx, &job)
	defer crew.dismiss()
	if err != nil || cause != nil {
		return stopped(cause, err)
	}
	placed, jerr := w.place(&job)
	if jerr != nil {
		return Result{ExitStatus: jerr.ExitStatus}, jerr
	}
	if job.Placed != nil {
		job.Placed(newPlacement(&job, placed))
	}
	if job.DryRun {
		return Result{}, nil
	}
	c, err := newController(&job, w, placed, crew, at)
	if err != nil {
		return Result{ExitStatus: statusFailed}, err
	}
	if at.handle != nil {
		at.handle.attach(c)
	}
	first := c.groups[0]
	if job.Launcher == "" {
		err = c.runHere(ctx, first)
	} else {
		err = c.runAgents(ctx, first)
	}
	if err != nil {
		return Result{ExitStatus: statusFailed}, err
	}
	return c.result()
}

// stopped is the result of a job that ended before there was a controller.
func stopped(cause *Cause, err error) (Result, error) {
	r := Result{ExitStatus: statusFailed, Cause: cause}
	if cause != nil {
		r.ExitStatus = cause.Status
	}
	return r, err
}

// check validates a job and fills in its defaults.
func check(job *Job) (*wish, *JobError) {
	if job.Timeout < 0 {
		return nil, bad("Timeout", job.Timeout.String(), "want 0 for none, or a time")
	}
	if job.HangTimeout < 0 {
		return nil, bad("HangTimeout", job.HangTimeout.String(), "want 0 for none, or a time")
	}
	if job.AgentTimeout < 0 {
		return nil, bad("AgentTimeout", job.AgentTimeout.String(), "want 0 for %v, or a time", DefaultAgentTimeout)
	}
	if job.PMIxTimeout < 0 {
		return nil, bad("PMIxTimeout", job.PMIxTimeout.String(), "want 0 for %v, or a time", DefaultPMIxTimeout)
	}
	if job.Grace < 0 {
		return nil, bad("Grace", job.Grace.String(), "want 0 for %v, or a time", DefaultGrace)
	}
	if job.Env == nil {
		job.Env = os.Environ()
	}
	if job.Log == nil {
		job.Log = slog.New(slog.DiscardHandler)
	}
	if err := checkApps(job); err != nil {
		return nil, err
	}
	if err := checkOutput(&job.Output); err != nil {
		return nil, err
	}
	if job.PMIPort && job.PMIFD {
		return nil, bad("PMIFD", "true", "want it or PMIPort, not both")
	}
	switch job.Launcher {
	case "":
	case "fork":
		if len(job.Agent) == 0 {
			return nil, bad("Agent", "", "launcher fork needs the command of an agent")
		}
	default:
		return nil, bad("Launcher", job.Launcher, `want "fork", or none`)
	}
	return newWish(job)
}

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
		if a.Dir == "" {
			a.Dir = job.Dir
		}
		if a.Path == "" {
			a.Path = job.Path
		}
		if job.NP += a.NP; job.NP > maxRanks {
			return bad("NP", strconv.Itoa(job.NP), "want %d ranks or fewer", maxRanks)
		}
	}
	if len(job.Apps) == 0 {
		return bad("Apps", "", "no program: want one or more")
	}
	return nil
}

// maxRanks is more than any machine can hold, and what a segment has room for.
const maxRanks = 1 << 16

// bad is what is wrong with a field of a job.
func bad(field, value, format string, args ...any) *JobError {
	return &JobError{Field: field, Value: value, ExitStatus: statusFailed, Err: fmt.Errorf(format, args...)}
}

// spec is what all hosts of a group have in common.
func (c *controller) spec(g *group) host.Spec {
	apps := make([]host.AppSpec, len(g.apps))
	for i, a := range g.apps {
		apps[i] = host.AppSpec{Argv: a.Argv, Env: a.Env, Dir: a.Dir, Path: a.Path, NP: a.NP}
	}
	master, port := c.master(g)
	out := &c.job.Output
	spec := host.Spec{
		Job:     c.nameOf(g),
		Group:   g.id,
		Hosts:   len(g.shares),
		NP:      g.size(),
		Apps:    apps,
		Mapping: pmi.Mapping(g.hostOf),
		Emulate: c.job.Emulate,
		PMIPort: c.job.PMIPort,
		PMIFD:   c.job.PMIFD,
		Attempt: c.attempt,

		Continuous: c.job.Continuous,
		Hang:       c.job.HangTimeout,
		// An abort would end the ranks that go on.
		PythonAbort: !c.job.NoPythonAbort && !c.job.Continuous,
		Grace:       c.grace(),

		Master:     master,
		MasterPort: port,

		PMIx:        c.space(g),
		Helper:      c.job.PMIx,
		PMIxTimeout: c.job.PMIxTimeout,

		Universe: c.toldUniverse(),
		Preset:   g.preset,
		Spawner:  g.spawner,

		Reader: c.job.StdinRank,
		Merge:  out.Merge,
		Stamp:  c.outlet.style().Stamped() || c.job.Lines != nil,
		Prompt: out.Prompt,
		Sample: c.job.Sample,
	}
	out.terminal(&spec)
	return spec
}

// of is the spec of one share.
func (c *controller) of(g *group, spec host.Spec, at int) host.Spec {
	s := g.shares[at]
	spec.Host, spec.Index = s.Host, at
	if spec.PMIx != nil {
		space := *spec.PMIx
		space.Node = at
		spec.PMIx = &space
	}
	spec.Ranks = make([]host.RankSpec, len(s.Ranks))
	runs := make([]bool, len(spec.Apps))
	for i, rank := range s.Ranks {
		app := g.appOf[rank]
		spec.Ranks[i] = host.RankSpec{Rank: rank, App: app}
		if s.CPUs != nil {
			spec.Ranks[i].CPUs = s.CPUs[i].List()
		}
		runs[app] = true
	}
	// What no rank of the host runs need not travel there.
	spec.Apps = slices.Clone(spec.Apps)
	for i := range spec.Apps {
		if !runs[i] {
			spec.Apps[i] = host.AppSpec{NP: spec.Apps[i].NP}
		}
	}
	return spec
}

// runHere runs the job from this process.
func (c *controller) runHere(ctx context.Context, g *group) error {
	spec := c.of(g, c.spec(g), 0)
	var stdin *os.File
	var err error
	if spec.Stdin, stdin, err = c.openStdin(true); err != nil {
		return err
	}
	h, err := c.sitHere(g, spec, stdin)
	if err != nil {
		return err
	}
	if spec.Stdin == host.StdinPump {
		if err := c.pump(); err != nil {
			h.Close()
			return err
		}
	}
	stop := c.attend(ctx)
	h.Run()
	c.spawned.Wait()
	stop()
	return nil
}

// sitHere makes the seat of a group on this machine, without an agent.
func (c *controller) sitHere(g *group, spec host.Spec, stdin *os.File) (*host.Host, error) {
	s := &seat{group: g}
	h, err := host.New(spec, host.Config{Emit: func(e host.Event) { c.event(s, e) }, Stdin: stdin, Adopted: c.job.Adopt, CPUs: c.cpus(), Log: c.job.Log})
	if err != nil {
		return nil, err
	}
	s.site = h
	g.seats = append(g.seats, s)
	return h, nil
}

// attend watches what may end the job from outside, until stop.
func (c *controller) attend(ctx context.Context) (stop func()) {
	if c.job.Timeout > 0 {
		c.mu.Lock()
		c.after(c.job.Timeout, c.timeout)
		c.mu.Unlock()
	}
	unbind := context.AfterFunc(ctx, func() { c.cancel(ctx) })
	over := make(chan struct{})
	var wg sync.WaitGroup
	if c.job.Signals != nil {
		wg.Go(func() {
			for {
				select {
				case s, ok := <-c.job.Signals:
					if !ok {
						return
					}
					c.signal(s)
				case <-over:
					return
				}
			}
		})
	}
	return func() {
		unbind()
		c.unpump()
		c.flush()
		close(over)
		wg.Wait()
	}
}
