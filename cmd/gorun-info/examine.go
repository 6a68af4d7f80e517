package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/gorun-mpi/gorun/cmd/gorun-info/internal/doctor"
)

// showDoctor is gorun-info doctor.
func showDoctor(ctx context.Context, r *request) int {
	findings := doctor.Examine(ctx, r.view(), r.hosts)
	if ctx.Err() != nil {
		return statusInterrupted
	}
	if r.json {
		// An object a line, one a check.
		e := json.NewEncoder(r.out)
		e.SetEscapeHTML(false)
		for _, f := range findings {
			if err := e.Encode(f); err != nil {
				return statusMissing // told by run
			}
		}
	} else {
		writeFindings(r.out, findings, r.verbose)
	}
	for _, f := range findings {
		if f.State == doctor.Problem {
			return statusMissing
		}
	}
	return 0
}

// writeFindings prints findings for people: a line each, and below what is not
// well why it matters and what to do.
func writeFindings(w io.Writer, findings []doctor.Finding, verbose bool) {
	name := 0
	counts := map[doctor.State]int{}
	for _, f := range findings {
		name = max(name, len(f.Name))
		counts[f.State]++
	}
	for _, f := range findings {
		fmt.Fprintf(w, "%-7s  %-*s  %s\n", f.State, name, f.Name, f.Found)
		below := strings.Repeat(" ", 7+2+name+2)
		if f.State != doctor.OK || verbose {
			fmt.Fprintf(w, "%swhy: %s\n", below, f.Why)
		}
		if f.Fix != "" {
			fmt.Fprintf(w, "%sfix: %s\n", below, f.Fix)
		}
	}
	fmt.Fprintf(w, "\n%d ok, %d of note, %d a problem\n", counts[doctor.OK], counts[doctor.Note], counts[doctor.Problem])
}
