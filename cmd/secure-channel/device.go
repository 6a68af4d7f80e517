package main

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/gorun-mpi/gorun/cmd/internal/doca"
	"github.com/gorun-mpi/gorun/rdma"
	"github.com/gorun-mpi/gorun/rdma/soft"
	"github.com/gorun-mpi/gorun/rdma/verbs"
)

// findDevices looks the device and the representor up. Messages travel through memory
// or TCP, not through the device: it says which channel of this machine is meant, as in the
// original.
func (p *params) findDevices(parser *doca.Parser, emulate []string) error {
	software, err := soft.New(soft.Config{Names: emulate})
	if err != nil {
		return fmt.Errorf("the software devices %q (GORUN_EMULATE): %w", emulate, err)
	}
	defer software.Close()
	var all []rdma.Device
	var missing error
	for _, provider := range []rdma.Provider{verbs.New(verbs.Config{}), software} {
		devices, err := provider.Devices()
		if err != nil {
			missing = err
		}
		all = append(all, devices...)
	}
	device := find(all, p.pci, func(d rdma.Device) []string { return []string{d.Name(), pciOf(d)} })
	if device == nil {
		var names []string
		for _, d := range all {
			names = append(names, label(d.Name(), pciOf(d)))
		}
		reason := fmt.Sprintf("%s: no device %q; there are: %s (GORUN_EMULATE=%s makes a software device of that name)",
			saidDevice, p.pci, strings.Join(names, ", "), canonical(p.pci))
		if missing != nil {
			reason += fmt.Sprintf("; %v", missing)
		}
		return parser.Wrong("pci-addr", "%s", reason)
	}
	p.device, p.meets = (*device).Name(), (*device).Name()
	noteColon(parser, "pci-addr", p.pci)
	var reps []rdma.Representor
	if r, ok := (*device).(rdma.Represents); ok {
		if reps, err = r.Representors(); err != nil && p.rep != "" {
			return parser.Wrong("rep-pci", "cannot list the representors of %s: %v", p.device, err)
		}
	}
	if p.rep == "" {
		if len(reps) > 0 {
			p.meets = reps[0].PCI
		}
		return nil
	}
	rep := find(reps, p.rep, func(r rdma.Representor) []string { return []string{r.Name, r.PCI} })
	if rep == nil {
		names := make([]string, len(reps))
		for i, r := range reps {
			names[i] = label(r.Name, r.PCI)
		}
		there := "none"
		if len(names) > 0 {
			there = strings.Join(names, ", ")
		}
		return parser.Wrong("rep-pci", "%s: %s has no representor %q; there are: %s", saidRep, p.device, p.rep, there)
	}
	p.meets = rep.PCI
	noteColon(parser, "rep-pci", p.rep)
	return nil
}

// find gives the first of a list that bears the name, as it is or as a PCI address.
func find[T any](list []T, name string, names func(T) []string) *T {
	for _, same := range []func(string) string{func(s string) string { return s }, canonical} {
		for i := range list {
			if name != "" && slices.ContainsFunc(names(list[i]), func(n string) bool { return n != "" && same(n) == same(name) }) {
				return &list[i]
			}
		}
	}
	return nil
}

func pciOf(d rdma.Device) string {
	if p, ok := d.(rdma.Placed); ok {
		return p.PCI()
	}
	return ""
}

func label(name, pci string) string {
	if pci == "" || pci == name {
		return name
	}
	return name + " (" + pci + ")"
}

var pciAddress = regexp.MustCompile(`^([0-9a-fA-F]{4}:)?([0-9a-fA-F]{2}:[0-9a-fA-F]{2})[.:]([0-7])$`)

// canonical is how the kernel writes a PCI address: the domain may be left out, and DOCA's
// guides have a ':' where a '.' belongs. What is no address stays.
func canonical(name string) string {
	m := pciAddress.FindStringSubmatch(name)
	if m == nil {
		return name
	}
	return strings.ToLower(cmp.Or(m[1], "0000:") + m[2] + "." + m[3])
}

func noteColon(parser *doca.Parser, flag, given string) {
	if m := pciAddress.FindString(given); m != "" && given[len(given)-2] == ':' {
		parser.Note("--%s: %s is taken as %s", flag, given, canonical(given))
	}
}
