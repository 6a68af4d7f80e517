package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/gorun-mpi/gorun/cmd/gorun-info/internal/doctor"
	"github.com/gorun-mpi/gorun/rdma"
	"github.com/gorun-mpi/gorun/rdma/soft"
	"github.com/gorun-mpi/gorun/rdma/verbs"
)

// deviceRepresentors are those of one device, as gorun-info devices --representors tells them.
type deviceRepresentors struct {
	Device       string            `json:"device"`
	Provider     string            `json:"provider"`
	PCI          string            `json:"pci_address"` // "": not known
	Problem      string            `json:"problem"`
	Representors []representorFact `json:"representors"`
}

type representorFact struct {
	Name string `json:"name"`
	PCI  string `json:"pci_address"` // on the host; "": not known
}

// showRepresentors is gorun-info devices --representors, for what doca_caps --list-rep-dev
// tells.
func showRepresentors(ctx context.Context, r *request) int {
	names := currentEmulate(r)
	software, err := soft.New(soft.Config{Names: names})
	if err != nil {
		fmt.Fprintf(r.err, "gorun-info: the software devices %q (--emulate, GORUN_EMULATE): %v\n", names, err)
		return statusUsage
	}
	defer software.Close()
	list := []deviceRepresentors{}
	for _, p := range []rdma.Provider{software, verbs.New(verbs.Config{})} {
		found, ok := inTime(ctx, func() []deviceRepresentors { return representors(p) })
		if !ok {
			found = []deviceRepresentors{{Provider: p.Name(), Problem: fmt.Sprintf("no answer within %v", doctor.Limit), Representors: []representorFact{}}}
		}
		list = append(list, found...)
	}
	if ctx.Err() != nil {
		return statusInterrupted
	}
	if r.json {
		return r.encode(list)
	}
	printRepresentors(r.out, list)
	return 0
}

// representors asks the devices of a provider. One without libibverbs has none.
func representors(p rdma.Provider) []deviceRepresentors {
	devices, _ := p.Devices()
	list := []deviceRepresentors{}
	for _, d := range devices {
		of := deviceRepresentors{Device: d.Name(), Provider: p.Name(), Representors: []representorFact{}}
		if placed, ok := d.(rdma.Placed); ok {
			of.PCI = placed.PCI()
		}
		if has, ok := d.(rdma.Represents); ok {
			reps, err := has.Representors()
			if err != nil {
				of.Problem = err.Error()
			}
			for _, rep := range reps {
				of.Representors = append(of.Representors, representorFact(rep))
			}
		}
		list = append(list, of)
	}
	return list
}

func printRepresentors(w io.Writer, list []deviceRepresentors) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "DEVICE\tPROVIDER\tPCI ADDRESS\tREPRESENTOR\tITS PCI ADDRESS")
	for _, d := range list {
		left := fmt.Sprintf("%s\t%s\t%s", d.Device, d.Provider, cmp.Or(d.PCI, "-"))
		for _, rep := range d.Representors {
			fmt.Fprintf(t, "%s\t%s\t%s\n", left, rep.Name, cmp.Or(rep.PCI, "-"))
		}
		if len(d.Representors) == 0 {
			fmt.Fprintf(t, "%s\t%s\t-\n", left, cmp.Or(d.Problem, "none"))
		}
	}
	_ = t.Flush() // told by run, if it fails
}
