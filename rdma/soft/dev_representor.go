package soft

import (
	"fmt"

	"github.com/gorun-mpi/gorun/rdma"
)

var (
	_ rdma.Placed     = (*device)(nil)
	_ rdma.Represents = (*device)(nil)
)

// PCI is the device's name where that is a PCI address.
func (d *device) PCI() string {
	var domain, bus, slot, function uint
	n, err := fmt.Sscanf(d.name, "%04x:%02x:%02x.%1o", &domain, &bus, &slot, &function)
	if pci := fmt.Sprintf("%04x:%02x:%02x.%o", domain, bus, slot, function); err == nil && n == 4 && pci == d.name {
		return pci
	}
	return ""
}

// Representors: a software device has one. It stands for no function of any bus; its
// address is the one that DOCA's guides have for their host's, so that their command lines
// run as they are, and the next ones for further devices.
func (d *device) Representors() ([]rdma.Representor, error) {
	for i, name := range d.p.names {
		if name == d.name {
			return []rdma.Representor{{Name: d.name + "-host", PCI: fmt.Sprintf("0000:18:%02x.%d", i/8%32, i%8)}}, nil
		}
	}
	return nil, nil
}
