package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"time"
)

// A point is one thing to measure: what and how large, but not on what.
type point struct {
	benchmark string
	typ       string // "byte", or the type of a reduction's elements
	bytes     int    // of the vector, the block or the message
}

func (p point) String() string { return fmt.Sprintf("%s %s", p.benchmark, sizeName(p.bytes)) }

// A plan is what one job measures. Workers in Go and in C read it from a file,
// whose form stands at the head of testdata/mpi/bench.c.
type plan struct {
	points     []point
	limit      time.Duration // no rank lives longer
	quota      time.Duration // no point is begun later
	budget     time.Duration // for a point
	warmup     int           // calls, -1: a tenth of the budget
	iterations int           // calls, 0: as many as the budget allows
	separate   bool          // a barrier before each collective
	memory     string        // of gorun's ranks
	devices    []string      // of gorun's ranks; none: theirs to choose
	engine     string        // that runs the collectives of gorun's ranks; "": the ranks, in the environment's mode of progress
	sleeps     bool          // the work beside non-blocking calls is a sleep
}

func (p *plan) write(w io.Writer) error {
	b := bufio.NewWriter(w)
	separate := 0
	if p.separate {
		separate = 1
	}
	fmt.Fprintf(b, "limit %d\nquota %.3f\nseparate %d\n", int((p.limit+time.Second-1)/time.Second), p.quota.Seconds(), separate)
	if p.memory != "" {
		fmt.Fprintf(b, "memory %s\n", p.memory)
	}
	for _, name := range p.devices {
		fmt.Fprintf(b, "device %s\n", name)
	}
	if p.engine != "" {
		fmt.Fprintf(b, "engine %s\n", p.engine)
	}
	if p.sleeps {
		fmt.Fprintln(b, "sleeps 1")
	}
	for i, pt := range p.points {
		fmt.Fprintf(b, "point %d %s %s %d %d %d %d\n", i, pt.benchmark, pt.typ, pt.bytes, p.budget.Microseconds(), p.warmup, p.iterations)
	}
	return b.Flush()
}

// readPlan reads what write wrote.
func readPlan(r io.Reader) (*plan, error) {
	p := &plan{}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		word, rest, _ := strings.Cut(lines.Text(), " ")
		var err error
		switch word {
		case "limit":
			_, err = fmt.Sscan(rest, (*seconds)(&p.limit))
		case "quota":
			_, err = fmt.Sscan(rest, (*seconds)(&p.quota))
		case "separate":
			p.separate = rest == "1"
		case "memory":
			p.memory = rest
		case "device":
			p.devices = append(p.devices, rest)
		case "engine":
			p.engine = rest
		case "sleeps":
			p.sleeps = rest == "1"
		case "point":
			var pt point
			var index, budget int
			_, err = fmt.Sscan(rest, &index, &pt.benchmark, &pt.typ, &pt.bytes, &budget, &p.warmup, &p.iterations)
			if err == nil && index != len(p.points) {
				err = fmt.Errorf("found point %d, expected %d", index, len(p.points))
			}
			p.budget = time.Duration(budget) * time.Microsecond
			p.points = append(p.points, pt)
		default:
			err = fmt.Errorf("unknown word")
		}
		if err != nil {
			return nil, fmt.Errorf("plan: line %q: %w", lines.Text(), err)
		}
	}
	return p, lines.Err()
}

// loadPlan reads a plan's file.
func loadPlan(name string) (*plan, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readPlan(f)
}

// seconds scans a duration that is written in seconds.
type seconds time.Duration

func (s *seconds) Scan(state fmt.ScanState, _ rune) error {
	var f float64
	if _, err := fmt.Fscan(state, &f); err != nil {
		return err
	}
	*s = seconds(f * float64(time.Second))
	return nil
}

// A sample is what one run gave for a point: microseconds a call, or a message.
type sample struct {
	wrong              bool // the result was not what was sent; no times then
	batch, count       int  // calls in a sample, samples
	p10, p50, p90, p99 float64
	// Of the non-blocking calls only: the work between start and wait, all of
	// it together, the same work alone, and the blocking call.
	compute, total, alone, comm float64
	overlapped                  bool
	daemon                      float64 // what the daemon worked on a call of a rank; 0: it ran none
	explanation                 string
	executed                    uint64 // calls that the plan's engine ran, of all ranks
}

// overlap is that of OSU in per cent: the time saved by that of the non-blocking call
// alone, the work being what it took beside the call.
func (s *sample) overlap() float64 { return saved(s.total-s.compute, s.p50) }

// honest is the time saved by that of the blocking call. The work is what it takes alone:
// a call that slows it down saves nothing by that.
func (s *sample) honest() float64 { return saved(s.total-s.alone, s.comm) }

func saved(left, all float64) float64 { return min(100, max(0, 100*(1-left/all))) }

// validate finds numbers that are no times.
func (s *sample) validate() error {
	if s.batch < 1 || s.count < 1 {
		return errors.New("expected one call or more")
	}
	for _, us := range []float64{s.p10, s.p50, s.p90, s.p99} {
		if !(us > 0 && us < math.MaxFloat32) {
			return errors.New("expected times above 0")
		}
	}
	for _, v := range []float64{s.compute, s.total, s.alone, s.comm} {
		if !(v >= 0 && v < math.MaxFloat32) || s.overlapped && v == 0 {
			return errors.New("expected times of the overlap above 0")
		}
	}
	if !(s.daemon >= 0 && s.daemon < math.MaxFloat32) {
		return errors.New("expected a daemon's time of 0 or more")
	}
	return nil
}

func (s sample) String() string {
	text := fmt.Sprintf("%d %d %.6f %.6f %.6f %.6f", s.batch, s.count, s.p10, s.p50, s.p90, s.p99)
	if s.overlapped {
		text += fmt.Sprintf(" %.6f %.6f %.6f %.6f", s.compute, s.total, s.alone, s.comm)
	}
	if s.daemon > 0 {
		text += fmt.Sprintf(" %.6f", s.daemon)
	}
	return text
}

// An answer takes the lines that rank 0 of a job prints.
type answer struct {
	points  int // of the plan
	version string
	samples map[int]sample // by index in the plan
	ended   bool
	report  func(index int) // called for each point, may be nil
}

// line takes one line. Lines that are no answer, of a library perhaps, are left
// out of it.
func (a *answer) line(text string) error {
	word, rest, _ := strings.Cut(text, " ")
	if word != "point" && word != "wrong" && word != "chosen" && word != "executed" {
		switch word {
		case "version":
			a.version = rest
		case "end":
			a.ended = true
		}
		return nil
	}
	number, rest, _ := strings.Cut(rest, " ")
	var index int
	if _, err := fmt.Sscan(number, &index); err != nil {
		return fmt.Errorf("answer: line %q: %w", text, err)
	}
	if index < 0 || index >= a.points {
		return fmt.Errorf("answer: line %q: the plan has points 0 to %d", text, a.points-1)
	}
	s := a.samples[index]
	switch word {
	case "chosen":
		s.explanation = rest
	case "executed":
		if _, err := fmt.Sscan(rest, &s.executed); err != nil {
			return fmt.Errorf("answer: line %q: %w", text, err)
		}
	case "wrong":
		s.wrong = true
	case "point":
		n, err := fmt.Sscan(rest, &s.batch, &s.count, &s.p10, &s.p50, &s.p90, &s.p99, &s.compute, &s.total, &s.alone, &s.comm, &s.daemon)
		if n != 11 && n != 10 && n != 6 {
			return fmt.Errorf("answer: line %q: %w", text, err)
		}
		s.overlapped = n >= 10
		if err := s.validate(); err != nil {
			return fmt.Errorf("answer: line %q: %w", text, err)
		}
	}
	a.samples[index] = s
	if (word == "point" || word == "wrong") && a.report != nil {
		a.report(index)
	}
	return nil
}

// lines feeds what is written to it to an answer, line by line. Of a line that is
// too long for an answer only the beginning counts.
type lines struct {
	take func(string) error
	rest []byte
	err  error
}

const longestLine = 4 << 10

func (l *lines) Write(b []byte) (int, error) {
	n := len(b)
	for {
		line, after, whole := bytes.Cut(b, []byte("\n"))
		l.rest = append(l.rest, line[:min(len(line), longestLine-len(l.rest))]...)
		if !whole {
			return n, nil
		}
		if err := l.take(string(l.rest)); err != nil && l.err == nil {
			l.err = err
		}
		l.rest, b = l.rest[:0], after
	}
}
