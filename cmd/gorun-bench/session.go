package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
)

// A session runs all contenders in turn, round after round, so that what drifts
// drifts for all of them.
type session struct {
	params   *params
	log      *logrus.Logger
	errs     io.Writer
	progress *progress
	scratch  *scratch
	cpus     int

	// self is this program, for gorun's ranks; peers are the MPIs that were built.
	self  string
	peers []*peer
	limit string // the program of testdata/mpi/limit.c; "": nothing needs it, or it could not be built
	// Versions of the systems, as their ranks tell.
	versions map[string]string

	lateness time.Duration // how much longer than its quota a job may live

	jobs    []*job
	results results
	started time.Time
	rounds  int // that were made to their end
}

// A job is a contender with a number of ranks, and what it measures.
type job struct {
	*contender
	np     int
	points []point
	took   time.Duration // in the last round
	// failures without any result before; too many and the job is left out.
	fruitless int
}

func (j *job) String() string { return fmt.Sprintf("np %d, %v", j.np, j.contender) }

// prepare lists the jobs of a round: for each number of ranks the contenders in turn.
func (s *session) prepare() {
	foreign := map[string]string{}
	for _, p := range s.peers {
		foreign[p.name] = p.program
	}
	for _, np := range s.params.counts {
		contenders := s.ours()
		if s.params.applications {
			for i := range applications {
				contenders = append(contenders, applications[i].contender(s.self, s.scratch))
			}
		}
		for _, p := range s.peers {
			contenders = append(contenders, p.variants(np > s.cpus, s.params.quick, "")...)
			if p.name == mpich && slices.Contains(s.params.asyncs, progressOn) {
				contenders = append(contenders, p.variants(np > s.cpus, s.params.quick, progressOn)...)
			}
		}
		contenders = append(contenders, allocating(contenders)...)
		if s.limit != "" {
			contenders = append(contenders, limitContender(s.self, s.limit))
		}
		var points, launched []point
		for _, p := range s.params.points {
			b := find(p.benchmark)
			switch {
			case !b.runsOn(np) || p.typ == "char" && np > mostChars:
			case b.how&launches != 0:
				launched = append(launched, p)
			default:
				points = append(points, p)
			}
		}
		seen := map[string]bool{}
		for _, c := range contenders {
			c.plain, c.foreign = s.limit, foreign
			j := &job{contender: c, np: np}
			if c.run != nil {
				j.points = slices.DeleteFunc(c.points(points), func(p point) bool { return !s.measures(c, find(p.benchmark)) })
			}
			// A launch has neither memory nor binding: once a system. Each is a
			// job by itself, which fails by itself. And nothing without a size is
			// different in another memory.
			if !seen[c.system+c.engine] {
				seen[c.system+c.engine] = true
				whole := *c
				if c.system == gorun { // nor has it devices
					whole.variant, whole.devices = "", nil
				}
				for _, p := range launched {
					if c.command(find(p.benchmark), np) != nil {
						s.jobs = append(s.jobs, &job{contender: &whole, np: np, points: []point{p}})
					}
				}
			} else if c.system == gorun {
				j.points = slices.DeleteFunc(j.points, func(p point) bool { return find(p.benchmark).how&sizeless != 0 })
			}
			if len(j.points) > 0 {
				s.jobs = append(s.jobs, j)
			}
		}
	}
}

// allocating are the MPIs among contenders once more, for windows of memory that they allocate themselves.
func allocating(contenders []*contender) (list []*contender) {
	for _, c := range contenders {
		if c.system == mpich || c.system == openmpi {
			twin := *c
			twin.memory = registered
			list = append(list, &twin)
		}
	}
	return list
}

// measures tells whether a contender has a part in a benchmark: to the MPIs the kind of memory makes
// a difference in windows only.
func (s *session) measures(c *contender, b *benchmark) bool {
	if c.system == gorun {
		return true
	}
	return c.memory == b.reference(c.memory) && (b.group != onesided || slices.Contains(s.params.memories, c.memory))
}

// ours are gorun's contenders: each kind of memory by each engine, or in each mode of progress threads.
func (s *session) ours() []*contender {
	if len(s.params.engines) > 0 {
		return s.byEngines()
	}
	modes := s.params.asyncs
	if len(modes) == 0 {
		modes = []string{""}
	}
	var list []*contender
	for _, memory := range s.params.memories {
		for _, mode := range modes {
			var settings []string
			threads, daemon := mode, 0
			if mode == progressDaemon {
				threads, daemon = "off", 1
			}
			if threads != "" {
				settings = append(settings, "GORUN_ASYNC_PROGRESS="+threads)
			}
			c := gorunContender(s.self, memory, settings...)
			c.offload = daemon
			c.progress = mode
			list = append(list, s.onDevices(c))
		}
	}
	return list
}

// byEngines are gorun's contenders with --engine. The daemon reaches no ordinary memory.
func (s *session) byEngines() (list []*contender) {
	for _, memory := range s.params.memories {
		for _, name := range s.params.engines {
			if name == engineDaemon && memory != registered {
				continue
			}
			c := gorunContender(s.self, memory)
			if c.engine = name; name == engineDaemon {
				c.offload = 1
			}
			list = append(list, s.onDevices(c))
		}
	}
	return list
}

// onDevices has a contender of gorun use the devices of -d.
func (s *session) onDevices(c *contender) *contender {
	if c.devices = s.params.devices(); len(c.devices) > 0 {
		c.variant = "device " + s.params.deviceList
	}
	return c
}

// mostChars is up to how many ranks the sums of the pattern fit into a char.
const mostChars = 63

// run measures until all rounds are done, the session's time is over, or ctx
// ends: what was measured then stays.
func (s *session) run(ctx context.Context) error {
	s.started = time.Now()
	s.progress.plan(s.jobs, s.params)
	for round := range s.params.runs {
		begun := time.Now()
		for _, j := range s.jobs {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if s.late(0) {
				s.log.Warnf("the %v of this session ended in round %d of %d", s.params.deadline, round+1, s.params.runs)
				return nil
			}
			if err := s.job(ctx, round, j); err != nil {
				return err
			}
		}
		s.rounds++
		if round+1 < s.params.runs && s.late(time.Since(begun)) {
			s.log.Infof("%d of %d rounds were made: another would take longer than the %v of this session", round+1, s.params.runs, s.params.deadline)
			break
		}
	}
	return nil
}

// late tells whether the session's time will be over after what takes so long.
func (s *session) late(more time.Duration) bool {
	return s.params.deadline > 0 && time.Since(s.started)+more > s.params.deadline
}

// job runs a job once. A job that fails is tried once more, for a peer may hang,
// with the point at which it failed behind all others, whose results that gives;
// then its round has no result of what is left. A session with a deadline has no
// time to wait twice for one that hangs; none waits for one again and again that
// has never given anything.
func (s *session) job(ctx context.Context, round int, j *job) error {
	if j.fruitless >= mostFruitless {
		return nil
	}
	// What was measured least often comes first: a slow job's quota ends early.
	slices.SortStableFunc(j.points, func(a, b point) int {
		return s.results.count(j, a) - s.results.count(j, b)
	})
	begun := time.Now()
	defer func() { j.took = time.Since(begun) }()
	for try := range 2 {
		culprit, err := s.attempt(ctx, round, j)
		if err == nil || ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if !slices.ContainsFunc(j.points, func(p point) bool { return s.results.count(j, p) > 0 }) {
			j.fruitless++
		}
		if i := slices.Index(j.points, culprit); i >= 0 {
			j.points = append(slices.Delete(j.points, i, i+1), culprit)
		}
		hung := errors.Is(err, errTooLong)
		if try == 0 && !s.late(0) && !(hung && s.params.deadline > 0) {
			s.log.Warnf("%v: %v; tried again", j, err)
			continue
		}
		s.log.Errorf("%v: failed in round %d: %v", j, round+1, err)
		s.results.fail(j, err)
		if j.fruitless >= mostFruitless && round+1 < s.params.runs {
			s.log.Warnf("%v: left out of the other rounds: it has given nothing", j)
		}
		break
	}
	return nil
}

// attempt measures what a job has not measured in a round. culprit is the point at which
// it failed.
func (s *session) attempt(ctx context.Context, round int, j *job) (culprit point, err error) {
	var measured []point
	for _, p := range j.points {
		if find(p.benchmark).how&launches == 0 {
			measured = append(measured, p)
			continue
		}
		if s.results.has(j, p, round) {
			continue
		}
		s.progress.at(round, j, p)
		if err := s.launches(ctx, round, j, p); err != nil {
			return p, err
		}
	}
	measured = slices.DeleteFunc(measured, func(p point) bool { return s.results.has(j, p, round) })
	if len(measured) == 0 {
		return point{}, nil
	}
	quota := s.params.quotaOf(len(measured))
	p := &plan{points: measured, limit: quota + s.lateness, quota: quota, budget: s.params.budget, warmup: s.params.warmup,
		iterations: s.params.iterations, separate: !s.params.backToBack, memory: j.memory, sleeps: s.params.compute == computeSleep}
	if j.system == gorun {
		p.devices, p.engine = j.devices, j.engine
	}
	name := filepath.Join(s.scratch.dir, "plan")
	if err := writePlan(name, p); err != nil {
		return point{}, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, p.limit, fmt.Errorf("%w %v", errTooLong, p.limit))
	defer cancel()
	a := &answer{points: len(measured), samples: map[int]sample{}}
	a.report = func(i int) {
		s.results.add(j, measured[i], round, a.samples[i])
		s.progress.at(round, j, measured[i])
	}
	s.progress.at(round, j, measured[0])
	var said tail
	out := &lines{take: a.line}
	err = j.run(ctx, j.np, name, out, &said)
	for i, p := range measured { // they are measured in this order
		if _, ok := a.samples[i]; !ok {
			culprit = p
			break
		}
	}
	if a.version != "" {
		s.versions[j.system] = numberIn.FindString(a.version)
	}
	if s.params.verbose || err == nil {
		_, _ = said.WriteTo(s.errs) // a report that nobody takes
	}
	switch {
	case err != nil && ctx.Err() == nil && said.Len() > 0:
		return culprit, fmt.Errorf("%w: %s", err, strings.TrimSpace(said.String()))
	case err != nil:
		return culprit, err
	case out.err != nil:
		return culprit, out.err
	case !a.ended:
		return culprit, fmt.Errorf("ended without a last word, after %d of %d results", len(a.samples), len(measured))
	}
	return point{}, nil
}

// mostFruitless failures without any result are enough.
const mostFruitless = 2

// errTooLong is of a job that was ended for its time was over.
var errTooLong = errors.New("did not end within")

// numberIn is the number in what an MPI says its version is.
var numberIn = regexp.MustCompile(`[0-9]+\.[0-9]\S*[^\s,]`)

func writePlan(name string, p *plan) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := p.write(f); err != nil {
		return err
	}
	return f.Close()
}

// tail keeps the beginning of what is written, as much as a message may hold.
type tail struct{ strings.Builder }

func (t *tail) Write(b []byte) (int, error) {
	const most = 2 << 10
	t.Builder.Write(b[:min(len(b), max(0, most-t.Len()))])
	return len(b), nil
}

func (t *tail) WriteTo(w io.Writer) (int64, error) {
	n, err := io.WriteString(w, t.String())
	return int64(n), err
}
