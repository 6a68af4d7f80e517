package launcher

import (
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/gorun-mpi/gorun/launcher/profile"
)

// Result says how a job ended.
type Result struct {
	// ExitStatus is the exit status for a launcher command: 0 when all ranks succeeded, be it
	// without MPI_Finalize where none waited for another, else the status of the first failure; 128+N for signal N, 124 for a timeout, 127
	// for a program that was not found, and 126 for one that cannot be executed.
	ExitStatus int
	// Cause is the first failure; nil: none.
	Cause *Cause
	// Note is a remark about the job: that ranks of one that has succeeded have ended without MPI_Finalize, or that something
	// that a rank had started still held its output after a rank had failed, and was killed. "": there is none.
	Note string
	// Unfinished: the output in Job.Stderr ends within a line, so that a message there begins with a newline. It is also about
	// Job.Stdout if that is the same file.
	Unfinished bool
	// States says what the ranks were doing at the timeout, with
	// Job.ReportState or Job.StackTraces, by group and rank.
	States []RankState
	// Restarts is the number of restarts; all other fields describe the last start.
	Restarts int
	// Ranks says how each started rank ended, by group and rank.
	Ranks []RankEnd
	// Profile has the calls of the ranks that have recorded them, by group and rank, with Job.Profile. Package
	// launcher/profile says what they mean.
	Profile []profile.Rank
}

// RankState says what a rank is doing, or was at the job's timeout.
type RankState struct {
	Group, Rank int
	Host        string
	Lines       []string // one for each of its processes, and one for its PMI state
	// CPU is the time that its processes have used, RSS the memory that they have, in bytes.
	CPU time.Duration
	RSS int64
	// Calls is how many calls of MPI it has made, with Job.Profile.
	Calls uint64
}

// who names the rank.
func (s *RankState) who() string {
	if s.Group > 0 {
		return fmt.Sprintf("rank %d of spawn %d (host %s)", s.Rank, s.Group, s.Host)
	}
	return fmt.Sprintf("rank %d (host %s)", s.Rank, s.Host)
}

// String has a line for each of Lines.
func (s RankState) String() string {
	var b strings.Builder
	for i, line := range s.Lines {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(s.who() + ": " + line)
	}
	return b.String()
}

// RankEnd says how a rank ended.
type RankEnd struct {
	// Group is 0 for the ranks of the job itself. Spawned ranks are in
	// groups that are numbered in the order of the spawns.
	Group  int
	Rank   int // in its group, from 0
	Host   string
	PID    int
	Status int            // exit status; 128+N for signal N
	Signal syscall.Signal // the signal that ended it; 0: it exited
	// Told: the launcher had told the rank to end because of a failure elsewhere, a signal or the timeout.
	Told bool
}

// Cause is the first failure of a job. Ranks that fail as a consequence of it are not reported as causes.
type Cause struct {
	// Rank is the rank that failed; -1 when the cause is a host, the
	// timeout, a signal to the launcher, or its output.
	Rank    int
	Group   int // the group of that rank, as in RankEnd
	Host    string
	Program string
	PID     int
	Status  int            // the value of Result.ExitStatus
	Signal  syscall.Signal // the signal that ended the rank, or that was sent to the launcher
	Aborted bool           // the rank called MPI_Abort or an equivalent
	Core    bool           // the kernel dumped the rank's memory
	// CoreFile is the location of the dump if it could be found out: a file
	// on Host, or "|" and the program there that receives dumps (core(5)).
	CoreFile string
	Message  string // further facts as text
	// Reason is the error of a crashed Go or Python program, from its report on standard
	// error: "panic: index out of range", "ValueError: no such mesh". "": unknown.
	Reason string
	// Stderr are the last lines of the rank's standard error, at most five;
	// for a crash report, the lines with the location.
	Stderr []string
	// Shown: these lines are easy to find in Job.Stderr, because they are its last ones,
	// because it is a regular file, or because they are the crash report of Reason.
	Shown bool

	lost      bool // the host's agent or its PMIx helper has ended, and not by this process's hand, or the host cannot go on
	elsewhere bool // host.Event.Elsewhere, or openMPILost
	needless  bool // of a rank whose connection has ended: no other one has waited for it
}

// Quiet reports whether the line of String is unnecessary: the reader of the job's output has closed it.
func (c *Cause) Quiet() bool { return c.Rank < 0 && c.Signal == syscall.SIGPIPE }

// same tells whether two causes are of one rank.
func (c *Cause) same(d *Cause) bool { return c.Group == d.Group && c.Rank == d.Rank }

// text is String without the name of gorun.
func (c *Cause) text() string { return strings.TrimPrefix(c.String(), "gorun: ") }

// String is the cause as one line.
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
		how = fmt.Sprintf("exited with status %d", c.Status)
	default:
		return how
	}
	if c.Core {
		how += ", core dumped"
		if helper, ok := strings.CutPrefix(c.CoreFile, "|"); ok {
			how += " to " + helper
		} else if c.CoreFile != "" {
			how += ": " + c.CoreFile
		}
	}
	if c.Message != "" {
		how += ": " + c.Message
	}
	if c.Reason != "" && !strings.Contains(c.Message, c.Reason) {
		how += ": " + c.Reason
	}
	return how
}

// Others is a line about ranks that failed beside the cause. It is "" if
// all others succeeded, or ended as they were told.
func (r *Result) Others() string {
	if r.Cause == nil {
		return ""
	}
	told, killed := 0, 0
	var by []RankEnd // themselves
	for _, e := range r.Ranks {
		switch {
		case e.Group == r.Cause.Group && e.Rank == r.Cause.Rank:
		case e.Told:
			told++
			if e.Signal == syscall.SIGKILL {
				killed++
			}
		case e.Status != 0:
			by = append(by, e)
		}
	}
	var parts []string
	switch {
	case killed > 0:
		parts = append(parts, fmt.Sprintf("%s told to end, %d of which had to be killed", r.others(told), killed))
	case told > 0 && len(by) > 0:
		parts = append(parts, r.others(told)+" told to end")
	}
	for i, e := range by {
		if i == othersMax {
			parts = append(parts, fmt.Sprintf("so did %d more", len(by)-i))
			break
		}
		parts = append(parts, e.String()+" by itself")
	}
	return strings.Join(parts, "; ")
}

// othersMax is how many ranks Others names.
const othersMax = 3

func (r *Result) others(n int) string {
	switch {
	case r.Cause.Rank < 0 && n == 1:
		return "1 rank was"
	case r.Cause.Rank < 0:
		return fmt.Sprintf("%d ranks were", n)
	case n == 1:
		return "1 other was"
	}
	return fmt.Sprintf("%d others were", n)
}

// String says how the rank ended: "rank 2 exited with status 1".
func (e RankEnd) String() string {
	who := fmt.Sprintf("rank %d", e.Rank)
	if e.Group > 0 {
		who += fmt.Sprintf(" of spawn %d", e.Group)
	}
	if e.Signal != 0 {
		return fmt.Sprintf("%s was killed by signal %d (%s)", who, int(e.Signal), signalName(e.Signal))
	}
	return fmt.Sprintf("%s exited with status %d", who, e.Status)
}

// signalName is what a signal is called in English.
func signalName(s syscall.Signal) string { return s.String() }
