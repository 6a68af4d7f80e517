package main

import (
	"fmt"
	"io"
	"time"

	"golang.org/x/sys/unix"
)

// A progress tells how far a session is: one line that is written over on a
// terminal, a line a job elsewhere, nothing when w is nil.
type progress struct {
	w        io.Writer
	terminal bool
	width    func() int // of the terminal, 0 for unknown; may be nil
	under    io.Writer  // of the messages of others

	jobs    []*job
	runs    int
	guess   map[*job]time.Duration // for jobs that have not run
	begun   time.Time              // of the current job
	current *job
	round   int
	drawn   time.Time
}

// isTerminal tells whether a descriptor is a terminal.
func isTerminal(fd uintptr) bool {
	_, err := unix.IoctlGetTermios(int(fd), unix.TCGETS)
	return err == nil
}

// terminalWidth is how many columns a terminal has, 0 where it does not tell.
func terminalWidth(fd uintptr) int {
	size, err := unix.IoctlGetWinsize(int(fd), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(size.Col)
}

// plan tells what the session will do.
func (p *progress) plan(jobs []*job, params *params) {
	p.jobs, p.runs, p.guess = jobs, params.runs, map[*job]time.Duration{}
	for _, j := range jobs {
		p.guess[j] = 300*time.Millisecond + time.Duration(len(j.points))*(params.budget*13/10+5*time.Millisecond)
	}
}

// redraw is how often the line on a terminal changes.
const redraw = 100 * time.Millisecond

// at tells that a job has come to a point.
func (p *progress) at(round int, j *job, pt point) {
	now := time.Now()
	begins := j != p.current || round != p.round
	if begins {
		p.current, p.round, p.begun = j, round, now
	}
	switch {
	case p.w == nil:
	case p.terminal && (begins || now.Sub(p.drawn) >= redraw):
		p.drawn = now
		line := fmt.Sprintf("round %d of %d, %v: %v, %v left", round+1, p.runs, j, pt, span(p.left(now)))
		if p.width != nil && p.width() > 1 { // a line that is broken cannot be written over
			line = line[:min(len(line), p.width()-1)]
		}
		fmt.Fprint(p.w, "\r\x1b[K"+line)
	case !p.terminal && begins:
		fmt.Fprintf(p.w, "round %d of %d, %v, %v left\n", round+1, p.runs, j, span(p.left(now)))
	}
}

// say tells how far a session without jobs is.
func (p *progress) say(text string) {
	switch {
	case p.w == nil:
	case p.terminal:
		fmt.Fprint(p.w, "\r\x1b[K"+text)
	default:
		fmt.Fprintln(p.w, text)
	}
}

// left is the estimated time until the session ends: each job takes what it
// took in the last round, or what was planned for it.
func (p *progress) left(now time.Time) time.Duration {
	var sum time.Duration
	before := true
	for _, j := range p.jobs {
		each := j.took
		switch {
		case j.fruitless >= mostFruitless: // it does not run any more
			each = 0
		case each == 0:
			each = p.guess[j]
		}
		rounds := p.runs - p.round - 1
		switch {
		case j == p.current:
			before = false
			sum += max(0, each-now.Sub(p.begun))
		case !before:
			rounds++
		}
		sum += time.Duration(rounds) * each
	}
	return sum
}

// span is a time for people, in whole seconds.
func span(d time.Duration) string { return d.Round(time.Second).String() }

// Write writes what others have to say, where the line on a terminal was.
func (p *progress) Write(b []byte) (int, error) {
	p.clear()
	return p.under.Write(b)
}

// clear takes the line away.
func (p *progress) clear() {
	if p.w != nil && p.terminal {
		fmt.Fprint(p.w, "\r\x1b[K")
	}
}
