package main

import (
	"cmp"
	"fmt"
	"maps"
	"strings"

	"github.com/gorun-mpi/gorun/launcher"
)

// commandLine is what parse reads: all there is to know of how gorun was called.
type commandLine struct {
	name     string   // gorun's own, as it was called
	args     []string // without the name
	environ  []string
	readFile func(name string) ([]byte, error) // for files that options name; nil: there are none
	cpus     func() int                        // of this machine, for the ranks of this process; nil: 1
}

// parse reads a command line. Its error is for the user: it names the option as
// written, what was found and what was expected.
func parse(c commandLine) (request, error) {
	if err := c.playAs(); err != nil {
		return request{}, err
	}
	s := &settings{request: request{name: c.name}, under: familyOf(c.name), environ: c.environ, readFile: c.readFile, cpus: c.cpus, program: new(program)}
	r := &reader{s: s, table: optionsUnder(s.under), given: make(map[string]bool)}
	if err := r.command(c.args); err != nil {
		return request{}, err
	}
	if s.action != runProgram {
		return s.request, nil
	}
	// What the command line said stays; then parameters of another launcher, its
	// configuration file, the environment.
	r.skip = maps.Clone(r.given)
	if err := r.follow(s.parameters, false); err != nil {
		return request{}, err
	}
	r.skip = maps.Clone(r.given)
	if err := r.configuration(); err != nil {
		return request{}, err
	}
	r.skip = maps.Clone(r.given)
	if err := r.variables(); err != nil {
		return request{}, err
	}
	if len(s.programs) == 0 {
		took := ""
		if r.ate[0] != "" && strings.Trim(r.ate[1], "0123456789") != "" { // a number is no program
			took = fmt.Sprintf(" (%s took %q as its value)", r.ate[0], r.ate[1])
		}
		return request{}, fmt.Errorf("no program: expected one after the options%s; try gorun -np 4 hostname, or gorun --help", took)
	}
	return s.finish()
}

// finish makes the job, once everything is read.
func (s *settings) finish() (request, error) {
	job := &s.job
	for _, next := range []func() error{s.finishHosts, s.finishNodes, s.finishElastic, s.chooseLauncher} {
		if err := next(); err != nil {
			return request{}, err
		}
	}
	s.finishPlace()
	s.finishOutput()
	for _, p := range s.programs {
		app, err := s.app(p)
		if err != nil {
			return request{}, err
		}
		job.Apps = append(job.Apps, app)
		s.noteEmulate(app.Env)
	}
	if len(job.Apps) == 1 {
		app := job.Apps[0]
		job.Argv, job.NP, job.Env, job.Dir, job.Path, job.Apps = app.Argv, app.NP, app.Env, app.Dir, app.Path, nil
	}
	if job.Agents.Launcher != "" && len(job.Hosts) == 0 && s.discover == "" {
		return request{}, fmt.Errorf("--launcher %s: found no hosts, expected -H beside it; try -H a:2,b:2", job.Agents.Launcher)
	}
	s.ends.or = s.under == hydra
	if s.under == openMPI {
		job.Placing.Bind = cmp.Or(job.Placing.Bind, "openmpi")
	}
	return s.request, nil
}

// app is a program as the launcher takes it.
func (s *settings) app(p *program) (launcher.App, error) {
	np, err := s.ranks(p)
	if err != nil {
		return launcher.App{}, err
	}
	return launcher.App{Argv: p.argv, NP: np, Env: s.environment(p), Dir: p.dir, Path: p.path, Hosts: p.only}, nil
}
