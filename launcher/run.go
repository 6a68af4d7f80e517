package launcher

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/gorun/launcher/internal/host"
	"github.com/gorun-mpi/gorun/launcher/internal/orphan"
)

// Run runs a job to its end. The error is a *JobError when the job could not
// be started; any other error is a failure of the launcher itself. A job whose
// ranks failed is no error: see the Result. When ctx ends, Run ends the job.
//
// Several goroutines may call Run at the same time. It returns when no process of the job is left: it
// kills process groups, and finds daemons by their environment, or adopts them (Job.Adopt). While it runs,
// a fork of this process, the guardian, shares its memory copy-on-write: a large program that changes much
// of its memory needs that memory twice. Run marks descriptors that this process has inherited
// close-on-exec. Other parts of the process must wait for their own children by pid, not with wait4(-1).
func Run(ctx context.Context, job Job) (Result, error) { return runFor(ctx, job, nil) }

// runFor is Run, with a handle that looks on; nil: nobody does.
func runFor(ctx context.Context, job Job, h *Handle) (Result, error) {
	if err := checkTimes(&job); err != nil {
		return Result{ExitStatus: err.ExitStatus}, err
	}
	at := attempt{limit: job.Timeout, handle: h, watch: newWatcher(&job)}
	defer at.watch.close()
	if job.Restarts.Max > 0 || job.Elastic != nil {
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
	p, jerr := check(&job)
	defer job.closePrograms()
	if jerr != nil {
		return Result{ExitStatus: jerr.ExitStatus}, jerr
	}
	if job.Adopt {
		if a, err := orphan.Adopt(); err == nil {
			defer a.End()
		} else { // a container's filter of system calls may refuse it
			job.Adopt = false
			at.watch.putWarning(fmt.Sprintf("%v: daemons that ranks leave behind are found by their environment alone, "+
				"so one that has cleared it stays; a filter of system calls that permits PR_SET_CHILD_SUBREAPER avoids this", err))
		}
	}
	if !job.oneHost() {
		// The agents live as long as the thread that started them.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
	}
	agents, cause, err := p.askMachines(ctx, &job)
	defer job.fell() // after that
	defer agents.dismiss()
	if err != nil || cause != nil {
		return stopped(cause, err)
	}
	placed, jerr := p.place(&job)
	if jerr != nil {
		return Result{ExitStatus: jerr.ExitStatus}, jerr
	}
	if job.Placing.Placed != nil {
		job.Placing.Placed(newPlacement(&job, placed))
	}
	if job.Placing.DryRun {
		return Result{}, nil
	}
	finding, cancel := context.WithCancel(ctx)
	defer cancel()
	way := sync.OnceValue(func() *routing { return findReach(finding, &job) })
	c, err := newController(&job, p, placed, agents, way, at)
	if err != nil {
		return Result{ExitStatus: statusFailed}, err
	}
	c.end.hasten = cancel
	if at.handle != nil {
		at.handle.attach(c)
	}
	if err := c.run(ctx); err != nil {
		return Result{ExitStatus: statusFailed}, err
	}
	r, err := c.result()
	if r.Cause != nil {
		if message, is := job.revoked(ctx, r.Cause); is {
			r.Cause = &Cause{Rank: -1, Status: r.ExitStatus, Message: message}
		}
	}
	return r, err
}

// stopped is the result of a job that ended before there was a controller.
func stopped(cause *Cause, err error) (Result, error) {
	r := Result{ExitStatus: statusFailed, Cause: cause}
	if cause != nil {
		r.ExitStatus = cause.Status
	}
	return r, err
}

// run runs the job's own group to its end.
func (c *controller) run(ctx context.Context) error {
	stdin, file, err := c.input.open(c.job.oneHost())
	if err != nil {
		return err
	}
	stop := c.attend(ctx)
	c.mu.Lock()
	wait, err := func() {}, errEnding
	if !c.end.told {
		wait, err = c.start(c.worlds.groups[0], stdin, file)
	}
	c.mu.Unlock()
	if err != nil {
		stop()
		if errors.Is(err, errEnding) { // result says why
			return nil
		}
		return err
	}
	if stdin == host.StdinPump {
		if err := c.input.pump(); err != nil {
			c.mu.Lock()
			c.end.fail(&Cause{Rank: -1, Status: statusFailed, Message: err.Error()})
			c.mu.Unlock()
		}
	}
	wait()
	c.spawns.running.Wait()
	stop()
	return nil
}

// start makes the sites of a group: one in this process, or an agent for each host.
// wait returns when nothing is left of it. file is what ranks of this process's host
// read as they are. The caller holds mu, which is let go while addresses are looked up. The error is errEnding when
// the job ends meanwhile.
func (c *controller) start(g *group, stdin host.Stdin, file *os.File) (wait func(), err error) {
	spec := c.spec(g)
	if !c.job.oneHost() {
		r := newRemotes(c, g)
		return r.wait, r.start(spec, stdin)
	}
	spec = g.specOf(spec, 0, nil)
	spec.Stdin = stdin
	s := &seat{group: g}
	h, err := host.New(spec, host.Config{Emit: func(e host.Event) { c.event(s, e) }, Elder: g.elder, Stdin: file, Adopted: c.job.Adopt, CPUs: c.worlds.cpus(), Log: c.job.Log})
	if err != nil {
		return nil, err
	}
	s.site = h
	g.seats = append(g.seats, s)
	return h.Run, nil
}

// startSpawned makes those of a group that a rank has asked for.
func (c *controller) startSpawned(g *group) (wait func(), err error) {
	if err := c.outlet.open(g); err != nil {
		return nil, err
	}
	return c.start(g, host.StdinNone, nil)
}

// attend watches what may end the job from outside, until stop.
func (c *controller) attend(ctx context.Context) (stop func()) {
	if c.job.Timeout > 0 {
		c.mu.Lock()
		c.clock.after(c.job.Timeout, c.survey.timeout)
		c.mu.Unlock()
	}
	unbind := context.AfterFunc(ctx, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if !c.clock.over {
			c.end.cancelled(ctx)
		}
	})
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
		c.input.stop()
		c.outlet.flush(c.end.abandon)
		close(over)
		wg.Wait()
	}
}

// signal passes a signal on.
func (c *controller) signal(s os.Signal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l, is := s.(Look); is {
		c.survey.visit(l)
	}
	sig, ok := s.(syscall.Signal)
	if !ok {
		return
	}
	c.job.Log.Info("signal", "signal", unix.SignalName(sig))
	switch sig {
	case unix.SIGCHLD, unix.SIGURG, unix.SIGPIPE:
		// Of this process's own life.
	case unix.SIGWINCH:
		if o := &c.job.Output; o.Terminal != "" && o.Screen != nil {
			if rows, cols := o.Screen(); rows > 0 && cols > 0 {
				c.worlds.tell(host.Command{Kind: host.Resize, Rows: rows, Cols: cols})
			}
		}
	case unix.SIGINT, unix.SIGTERM:
		c.end.interrupt(sig, time.Now())
	case unix.SIGTSTP:
		if c.job.Suspend != nil {
			for s := range c.worlds.seats() {
				s.passing = !s.done
			}
		}
		c.worlds.tell(host.Command{Kind: host.Pass, Signal: sig})
	default:
		c.worlds.tell(host.Command{Kind: host.Pass, Signal: sig})
	}
}

// passed notes that a host's ranks were sent TSTP, or that none are left there.
func (c *controller) passed(s *seat) {
	if !s.passing {
		return
	}
	s.passing = false
	for s := range c.worlds.seats() {
		if s.passing {
			return
		}
	}
	c.job.Suspend()
}
