package launcher

import (
	"fmt"
	"strings"
	"syscall"
)

// Result is how a job ended.
type Result struct {
	// ExitStatus is what a launcher command should exit with: 0 when all ranks
	// ended well, else that of the first failure; 128+N for signal N, 124 for a
	// timeout, 127 for a program not found and 126 for one that cannot be run.
	ExitStatus int
	// Cause is the first failure; nil when there was none.
	Cause *Cause
	// Ranks are the ends of all ranks that were started, by group and rank.
	Ranks []RankEnd
}

// RankEnd is how one rank ended.
type RankEnd struct {
	// Group is 0 for the ranks of the job as it was started. Ranks that running
	// ones spawned are in groups of their own, numbered in the order of the
	// spawns.
	Group  int
	Rank   int // in its group, from 0
	Host   string
	PID    int
	Status int            // exit status; 128+N for signal N
	Signal syscall.Signal // that ended it; 0: it exited
	// Told is set when the launcher had told the rank to end, because of a
	// failure elsewhere, a signal or the timeout.
	Told bool
}

// Cause is why a job did not end well. Only the first failure of a job is its
// cause; ranks that die of its consequences are not.
type Cause struct {
	// Rank is the rank that failed; -1 when it was no rank but a host, the
	// timeout, a signal to the launcher or its output.
	Rank    int
	Group   int // of that rank, as in RankEnd
	Host    string
	Program string
	PID     int
	Status  int            // what ExitStatus became
	Signal  syscall.Signal // that ended the rank or was sent to the launcher
	Aborted bool           // the rank called MPI_Abort, or an equal of it
	Message string         // what else is known
	Stderr  []string       // the last lines of the rank's standard error
}

// Quiet tells that the user knows the cause already and the line of String
// would be in the way: the reader of the output has gone.
func (c *Cause) Quiet() bool { return c.Rank < 0 && c.Signal == syscall.SIGPIPE }

// same tells whether two causes are of one rank.
func (c *Cause) same(d *Cause) bool { return c.Group == d.Group && c.Rank == d.Rank }

// String is the cause in one line.
func (c *Cause) String() string {
	var b strings.Builder
	b.WriteString("gorun: ")
	switch {
	case c.Rank >= 0:
		b.WriteString("rank ")
		if c.Group > 0 {
			fmt.Fprintf(&b, "%d of spawn %d", c.Rank, c.Group)
		} else {
			fmt.Fprintf(&b, "%d", c.Rank)
		}
		fmt.Fprintf(&b, " (host %s, %s", c.Host, c.Program)
		if c.PID > 0 {
			fmt.Fprintf(&b, ", pid %d", c.PID)
		}
		b.WriteString("): ")
		b.WriteString(c.how())
	case c.Host != "":
		fmt.Fprintf(&b, "host %s: %s", c.Host, c.Message)
	case c.Signal != 0:
		fmt.Fprintf(&b, "ended by signal %d (%s)", int(c.Signal), signalName(c.Signal))
		if c.Message != "" {
			b.WriteString(": " + c.Message)
		}
	default:
		b.WriteString(c.Message)
	}
	return b.String()
}

// how is the end of a rank in words.
func (c *Cause) how() string {
	how := c.Message
	switch {
	case c.Aborted:
		how = fmt.Sprintf("aborted the job with status %d", c.Status)
	case c.Signal != 0:
		how = fmt.Sprintf("killed by signal %d (%s)", int(c.Signal), signalName(c.Signal))
	case c.Message == "":
		return fmt.Sprintf("exited with status %d", c.Status)
	default:
		return how
	}
	if c.Message != "" {
		how += ": " + c.Message
	}
	return how
}

// signalName is what a signal is called in English.
func signalName(s syscall.Signal) string {
	return s.String()
}
