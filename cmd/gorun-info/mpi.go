package main

import (
	"cmp"
	"context"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/gorun-mpi/gorun/cmd/gorun-info/internal/doctor"
	"github.com/gorun-mpi/gorun/internal/mpilib"
)

// tryLimit is how long two ranks of all libraries may take to start and end.
const tryLimit = time.Minute

// showMPIs is gorun-info mpi.
func showMPIs(ctx context.Context, r *request) int {
	ctx, cancel := context.WithTimeout(ctx, tryLimit)
	defer cancel()
	list := r.view().TryMPIs(ctx)
	status := 0
	for _, m := range list {
		if m.Problem != "" {
			status = statusMissing
		}
	}
	if r.json {
		return max(r.encode(list), status)
	}
	if len(list) == 0 {
		fmt.Fprintln(r.out, "no MPI library was found; gorun-info doctor says how to get one")
		return status
	}
	t := tabwriter.NewWriter(r.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "MPI\tVERSION\tABI\tBY\tGORUN\tLIBRARY")
	for _, m := range list {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", cmp.Or(m.MPI, "?"), cmp.Or(m.Version, "?"), m.ABI, cmp.Or(m.Protocol, "?"), served(m), m.Library)
	}
	_ = t.Flush() // told by run, if it fails
	return status
}

// served is how two ranks of an MPI fared.
func served(m doctor.MPI) string {
	switch {
	case m.MPI == mpilib.Own:
		return "its own"
	case !m.Tried:
		return "not tried"
	case m.Problem != "":
		return "no: " + m.Problem
	}
	return "yes"
}
