package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/gorun-mpi/gorun/cmd/gorun-info/internal/doctor"
)

// showDoctor is gorun-info doctor.
func showDoctor(ctx context.Context, r *request) int {
	v := r.view()
	findings := doctor.Examine(ctx, v, r.hosts)
	for _, file := range r.programs {
		findings = append(findings, doctor.Loads(ctx, v, file))
	}
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

// writeFindings prints findings for people: problems, then notes, each with why it
// matters and what to do. verbose shows the checks that are ok too, all in their
// order.
func writeFindings(w io.Writer, findings []doctor.Finding, verbose bool) {
	counts := map[doctor.State]int{}
	for _, f := range findings {
		counts[f.State]++
	}
	ok := counted(counts[doctor.OK], "check") + " ok"
	if !verbose {
		ok += map[bool]string{true: " (-v shows it)", false: " (-v shows them)"}[counts[doctor.OK] == 1]
		findings = slices.DeleteFunc(slices.Clone(findings), func(f doctor.Finding) bool { return f.State == doctor.OK })
		slices.SortStableFunc(findings, func(a, b doctor.Finding) int { return cmp.Compare(b.State, a.State) })
	}
	name := 0
	for _, f := range findings {
		name = max(name, len(f.Name))
	}
	for _, f := range findings {
		below := strings.Repeat(" ", 7+2+name+2)
		fmt.Fprintf(w, "%-7s  %-*s  %s\n%swhy: %s\n", f.State, name, f.Name, f.Found, below, f.Why)
		if f.Fix != "" {
			fmt.Fprintf(w, "%sfix: %s\n", below, f.Fix)
		}
	}
	if len(findings) > 0 {
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "%s, %s, %s\n", ok, counted(counts[doctor.Note], "note"), counted(counts[doctor.Problem], "problem"))
}

// counted is a number of things: "1 note", "2 notes".
func counted(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}
