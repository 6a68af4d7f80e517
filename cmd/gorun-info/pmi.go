package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os/exec"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/gorun-mpi/gorun/internal/pmix/link"
)

// probeLimit is how long the helper may take to find libpmix.
const probeLimit = 10 * time.Second

// pmiReport is what `gorun-info pmi --json` prints.
type pmiReport struct {
	PMI1 protocol `json:"pmi1"`
	PMIx pmixPart `json:"pmix"`
}

type protocol struct {
	OK  bool   `json:"ok"`
	Why string `json:"why,omitempty"` // it is not
}

type pmixPart struct {
	protocol
	Helper string `json:"helper"` // gorun-pmix
	link.Probe
}

// lookForPMI asks the helper in dir what it can do.
func lookForPMI(ctx context.Context, dir string) pmiReport {
	r := pmiReport{PMI1: protocol{OK: true}}
	p := &r.PMIx
	p.Helper = filepath.Join(dir, "gorun-pmix")
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	out, err := exec.CommandContext(ctx, p.Helper, "--probe").Output()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		p.Problem = p.Helper + " does not exist: build it with make build, or CGO_ENABLED=1 go install ./cmd/gorun-pmix, and put it beside gorun"
	case ctx.Err() != nil:
		p.Problem = fmt.Sprintf("%s --probe does not answer within %v", p.Helper, probeLimit)
	case err != nil:
		p.Problem = fmt.Sprintf("%s --probe: %v", p.Helper, err)
	default:
		if err := json.Unmarshal(out, &p.Probe); err != nil {
			p.Problem = fmt.Sprintf("%s --probe prints %q: it is not of this gorun", p.Helper, out)
		}
	}
	p.OK = p.Problem == ""
	return r
}

// table prints the report for people.
func (r *pmiReport) table(w io.Writer) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "PROTOCOL\tPROGRAMS\tHERE\tHOW")
	if r.PMI1.OK {
		fmt.Fprintln(t, "PMI-1\tMPICH and its relatives, gorun's own\tyes\tbuilt in")
	} else {
		fmt.Fprintf(t, "PMI-1\tMPICH and its relatives, gorun's own\tno\t%s\n", r.PMI1.Why)
	}
	if p := &r.PMIx; p.OK {
		fmt.Fprintf(t, "PMIx\tOpen MPI\tyes\tlibpmix %s (%s)\n", p.Version, p.Library)
	} else {
		fmt.Fprintf(t, "PMIx\tOpen MPI\tno\t%s\n", p.Problem)
	}
	_ = t.Flush() // told by run, if it fails
}
