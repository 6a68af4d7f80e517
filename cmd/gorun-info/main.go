// Gorun-info tells what this machine offers to gorun's jobs, and what is missing.
//
//	gorun-info pmi [--json]
//
// pmi: which MPI programs gorun can start here, that is, which of the protocols
// by which ranks meet their launcher. PMI-1 is built in. PMIx, Open MPI's, needs
// the helper gorun-pmix beside gorun, built with cgo, and libpmix.
//
// # Exit status
//
// 0: everything is there. 1: something is missing, and the last column says what
// to do. 2: a wrong command line.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/gorun-mpi/gorun/internal/version"
)

const (
	statusMissing = 1
	statusUsage   = 2
)

const usage = `usage: gorun-info pmi [--json]
  pmi      which MPI programs gorun can start here
  --json   for programs
`

func main() { os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr)) }

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	asJSON := false
	args = slices.DeleteFunc(slices.Clone(args), func(a string) bool {
		if a == "--json" {
			asJSON = true
		}
		return a == "--json"
	})
	switch {
	case len(args) == 1 && (args[0] == "--help" || args[0] == "-h"):
		fmt.Fprint(stdout, usage)
		return 0
	case len(args) == 1 && (args[0] == "--version" || args[0] == "-V"):
		fmt.Fprintln(stdout, version.Line("gorun-info"))
		return 0
	case len(args) == 1 && args[0] == "pmi":
	default:
		fmt.Fprintf(stderr, "gorun-info: found %q, expected pmi\n%s", args, usage)
		return statusUsage
	}
	report := lookForPMI(ctx, beside())
	if asJSON {
		e := json.NewEncoder(stdout)
		e.SetIndent("", "  ")
		if err := e.Encode(report); err != nil {
			fmt.Fprintf(stderr, "gorun-info: %v\n", err)
			return statusMissing
		}
	} else {
		report.table(stdout)
	}
	if !report.PMIx.OK {
		return statusMissing
	}
	return 0
}

// beside is the directory of this program, where gorun and its helper are.
func beside() string {
	self, err := os.Executable()
	if err != nil {
		return "."
	}
	return filepath.Dir(self)
}
