package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/gorun-mpi/gorun/launcher"
)

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
		case r.Told: // it ended because of another
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
