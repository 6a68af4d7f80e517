package main

import (
	"context"
	"fmt"
	"runtime/debug"
	"strings"
	"text/tabwriter"

	"github.com/gorun-mpi/gorun/cmd/gorun-info/internal/doctor"
	"github.com/gorun-mpi/gorun/internal/topo"
	"github.com/gorun-mpi/gorun/internal/version"
)

// overview is what gorun-info without a command tells.
type overview struct {
	Version   string    `json:"version"`
	Build     []string  `json:"build"`
	Programs  string    `json:"programs"` // where they are
	Providers []string  `json:"providers"`
	PMI       pmiReport `json:"pmi"`
	MPIs      []string  `json:"mpis"`
	Machine   string    `json:"machine"`
	Settings  []setting `json:"settings"`
}

func showOverview(ctx context.Context, r *request) int {
	ctx, cancel := context.WithTimeout(ctx, doctor.Limit)
	defer cancel()
	m := topo.Here()
	o := overview{
		Version:   version.Line("gorun"),
		Build:     build(),
		Programs:  beside(),
		Providers: []string{"soft (RDMA devices in software, on every machine)", r.verbsHere(ctx)},
		PMI:       lookForPMI(ctx, beside()),
		MPIs:      r.view().MPIs(ctx),
		Machine:   doctor.Machine(&m),
		Settings:  currentSettings(r.environ),
	}
	if r.json {
		return r.encode(o)
	}
	t := tabwriter.NewWriter(r.out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "version\t%s\n", o.Version)
	fmt.Fprintf(t, "build\t%s\n", strings.Join(o.Build, ", "))
	fmt.Fprintf(t, "programs\t%s\n", o.Programs)
	fmt.Fprintf(t, "providers\t%s\n", strings.Join(o.Providers, ", "))
	fmt.Fprintf(t, "PMI-1\tbuilt in, for MPICH and its relatives\n")
	if p := o.PMI.PMIx; p.OK {
		fmt.Fprintf(t, "PMIx\tlibpmix %s, for Open MPI\n", p.Version)
	} else {
		fmt.Fprintf(t, "PMIx\tno: %s\n", p.Problem)
	}
	mpis := o.MPIs
	if len(mpis) == 0 {
		mpis = []string{"none"}
	}
	fmt.Fprintf(t, "MPIs\t%s\n", strings.Join(mpis, ", "))
	fmt.Fprintf(t, "machine\t%s\n", o.Machine)
	_ = t.Flush() // told by run, if it fails
	fmt.Fprintln(r.out)
	writeSettings(r.out, o.Settings)
	fmt.Fprintln(r.out, "\ngorun-info doctor finds what would keep jobs from running here.")
	return 0
}

// verbsHere tells whether there are devices of libibverbs.
func (r *request) verbsHere(ctx context.Context) string {
	v := r.view()
	if n, _ := inTime(ctx, func() int { n, _ := v.Verbs(); return n }); n > 0 {
		return fmt.Sprintf("verbs (%d of libibverbs)", n)
	}
	return "no verbs (gorun-info devices says why)"
}

// build is how this program was built, as far as it matters.
func build() []string {
	list := []string{"static"}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return []string{"not known"}
	}
	for _, s := range info.Settings {
		switch {
		case s.Key == "CGO_ENABLED" && s.Value == "1":
			list[0] = "with cgo"
		case s.Key == "-race" && s.Value == "true", s.Key == "-trimpath" && s.Value == "true":
			list = append(list, s.Key)
		case s.Key == "vcs.time":
			list = append(list, "of "+s.Value)
		case strings.HasPrefix(s.Key, "GOAMD64"), strings.HasPrefix(s.Key, "GOARM64"):
			list = append(list, s.Key+"="+s.Value)
		}
	}
	return list
}
