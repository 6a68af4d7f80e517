package launcher

import (
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gorun-mpi/gorun/launcher/internal/host"
)

// program is one of a job's that hosts get from here.
type program struct {
	file *os.File
	spec *host.Preload
}

// openPrograms opens the programs that are to be sent to hosts, which only agents can take.
func (job *Job) openPrograms() *JobError {
	if !job.Agents.Preload || job.oneHost() || job.Placing.DryRun {
		return nil
	}
	for i := range job.Apps {
		a := &job.Apps[i]
		path, status, err := host.FindHere(&host.AppSpec{Argv: a.Argv, Env: a.Env, Dir: a.Dir, Path: a.Path})
		if err != nil {
			return &JobError{Field: "Argv", Value: a.Argv[0], ExitStatus: status, Err: fmt.Errorf("--preload-binary: %w", err)}
		}
		p := program{}
		if p.file, err = os.Open(path); err == nil {
			job.run.preload = append(job.run.preload, p)
			p.spec, err = host.PreloadOf(p.file)
		}
		if err != nil {
			return &JobError{Field: "Argv", Value: a.Argv[0], ExitStatus: statusFailed, Err: fmt.Errorf("--preload-binary: %w", err)}
		}
		job.run.preload[i] = p
	}
	return nil
}

func (job *Job) closePrograms() {
	for _, p := range job.run.preload {
		_ = p.file.Close() // it was only read
	}
}

// A transfer is how far a host has come with the programs that it gets.
type transfer struct {
	due, sent atomic.Int64 // bytes
	moved     atomic.Int64 // when the last ones went
}

// move notes that bytes have gone.
func (t *transfer) move(n int) {
	t.sent.Add(int64(n))
	t.moved.Store(time.Now().UnixNano())
}

// waits is for how long none have, and how many are to go.
func (t *transfer) waits() (since time.Duration, left int64) {
	return time.Since(time.Unix(0, t.moved.Load())), t.due.Load() - t.sent.Load()
}

// preload has a host of the job's own group get the programs that its ranks run.
func (r *remotes) preload(at int, spec *host.Spec) {
	if r.g.id > 0 {
		return
	}
	seen := map[host.Preload]bool{}
	for i, p := range r.c.job.run.preload {
		if spec.Apps[i].Argv == nil {
			continue // no rank there runs it
		}
		spec.Apps[i].Preload = p.spec
		if !seen[*p.spec] {
			r.programs[at].due.Add(p.spec.Size)
		}
		seen[*p.spec] = true
	}
}

// program reads what a host wants of a program, without the controller's lock.
func (r *remotes) program(app int, offset int64, into []byte) (int, error) {
	if app < 0 || app >= len(r.c.job.run.preload) {
		return 0, fmt.Errorf("found program %d, expected one of %d", app, len(r.c.job.run.preload))
	}
	return r.c.job.run.preload[app].file.ReadAt(into, offset)
}

// lateProgram ends a job whose programs do not come on to some hosts.
func (r *remotes) lateProgram() {
	if r.c.end.told {
		return
	}
	var names []string
	far := ""
	next, sends := startLimit, false
	for i := range r.programs {
		t := &r.programs[i]
		since, left := t.waits()
		if left <= 0 || r.g.seats[i].done {
			continue
		}
		sends = true
		if wait := startLimit - since; wait > 0 {
			next = min(next, wait)
			continue
		}
		if names = append(names, r.g.shares[i].Host); len(names) == 1 {
			far = fmt.Sprintf("%d of %d bytes", t.sent.Load(), t.due.Load())
		}
	}
	switch {
	case names == nil && sends:
		r.waiting.Reset(next)
	case names != nil:
		r.c.end.fail(&Cause{Rank: -1, Host: strings.Join(names, ", "), Status: statusFailed, Message: fmt.Sprintf("--preload-binary: nothing of the program has gone for %v, %s before; have each host find it by its path, or send a smaller one (strip)", startLimit, far)})
	}
}
