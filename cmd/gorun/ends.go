package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/gorun-mpi/gorun/launcher"
)

// report says why a job did not end well: the first cause in a line, the last
// lines of that rank's standard error unless they were shown, and how other ranks
// ended if that is worth a word. No text stands there twice. With --quiet the line is all.
func report(result launcher.Result, quiet bool, errOut io.Writer) {
	c := result.Cause
	if result.Note != "" && !quiet {
		defer fmt.Fprintf(errOut, "gorun: note: %s\n", result.Note)
	}
	if c == nil || c.Quiet() {
		return
	}
	line := *c
	if n := len(c.Stderr); n > 0 && c.Shown && c.Aborted && strings.HasSuffix(c.Stderr[n-1], c.Message) {
		line.Message = "" // the rank has written it itself
	}
	fmt.Fprintln(errOut, &line)
	if quiet {
		return
	}
	lines := slices.DeleteFunc(slices.Clone(c.Stderr), func(line string) bool {
		return c.Message != "" && strings.HasSuffix(line, c.Message) || c.Reason != "" && strings.HasSuffix(line, c.Reason) ||
			c.Rank < 0 && strings.Contains(c.Message, line) // of a remote shell
	})
	if len(lines) > 0 && !c.Shown {
		whose := fmt.Sprintf("rank %d", c.Rank)
		if c.Rank < 0 {
			whose = "its agent"
		}
		fmt.Fprintf(errOut, "gorun: %s's last lines on standard error:\n", whose)
		for _, line := range lines {
			fmt.Fprintf(errOut, "gorun: | %s\n", line)
		}
	}
	for _, s := range result.States {
		for line := range strings.SplitSeq(s.String(), "\n") {
			fmt.Fprintf(errOut, "gorun: %s\n", line)
		}
	}
	if others := result.Others(); others != "" {
		fmt.Fprintf(errOut, "gorun: %s\n", others)
	}
}

// ownLines writes lines of gorun's own, from the start of a line on.
type ownLines struct {
	w          io.Writer
	unfinished bool // what the ranks have written there ends within a line
}

func (o *ownLines) Write(p []byte) (int, error) {
	if o.unfinished {
		o.unfinished = false
		if _, err := io.WriteString(o.w, "\n"); err != nil {
			return 0, err
		}
	}
	return o.w.Write(p)
}

// status is what gorun exits with, and says what was asked for about the ends.
func (e ends) status(result launcher.Result, errOut io.Writer) int {
	if e.everyStatus {
		var b strings.Builder
		for _, r := range result.Ranks {
			b.WriteByte(' ')
			b.WriteString(strconv.Itoa(r.Status))
		}
		fmt.Fprintf(errOut, "gorun: exit statuses by rank:%s\n", b.String())
	}
	c := result.Cause
	if !e.or || c == nil || c.Rank < 0 || c.Aborted {
		// The timeout, a signal to gorun, MPI_Abort: nobody differs about these.
		return result.ExitStatus
	}
	or := 0
	for _, r := range result.Ranks {
		switch {
		case r.Told:
			// gorun ended it. Of the ranks that Hydra kills it counts those whose
			// end it still sees: MPICH 4.0.2 with a rank that aborts (6) gave 6 and
			// 6|9, with one that exits with 2 before MPI_Finalize 2 and 9.
		case r.Signal != 0:
			or |= int(r.Signal)
		default:
			or |= r.Status
		}
	}
	if or == 0 {
		return result.ExitStatus // a rank left without a word, with status 0
	}
	return or & 0xff
}

// writePID writes gorun's process number where --report-pid says.
func writePID(where string, std stdio) error {
	line := strconv.Itoa(os.Getpid()) + "\n"
	var err error
	switch where {
	case "":
	case "-":
		_, err = io.WriteString(std.out, line)
	case "+":
		_, err = io.WriteString(std.err, line)
	default:
		err = os.WriteFile(where, []byte(line), 0o644)
	}
	return err
}

// Open MPI 6's statuses of a command line that it does not understand, of a hostfile without hosts, and of ranks that find no place.
const (
	recentUsage    = 29
	recentHostfile = 66
	recentUnmapped = 77
)

// usage is the status of a command line that is wrong.
func (c commandLine) usage(err error) int {
	_ = c.playAs() // if that is what is wrong, gorun plays nobody
	return statusAs(c.name, statusUsage, err)
}

// statusAs is a status that gorun gives, as scripts know it that call gorun by a name.
func statusAs(name string, status int, err error) int {
	if !isRecent(name) || status != statusUsage {
		return status
	}
	if bad, ok := errors.AsType[*launcher.JobError](err); ok && slices.Contains([]string{"NP", "Hosts", "Placing.Map", "Placing.PerHost", "Placing.Bind"}, bad.Field) {
		return recentUnmapped
	}
	if refused, ok := errors.AsType[*refusal](err); ok && slices.Contains([]string{"hostfile", "machinefile", "default-hostfile"}, strings.TrimLeft(refused.spelling, "-")) {
		return recentHostfile
	}
	return recentUsage
}
