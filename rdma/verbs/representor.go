//go:build cgo

package verbs

import (
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"

	"github.com/gorun-mpi/gorun/rdma"
)

var (
	_ rdma.Placed     = (*device)(nil)
	_ rdma.Represents = (*device)(nil)
)

// PCI is where the kernel says that the device is.
func (d *device) PCI() string { return pciOf(os.DirFS("/sys"), d.name) }

// Representors are the network interfaces of the device that the kernel names as ports of
// functions. It does not know their addresses on the host.
func (d *device) Representors() ([]rdma.Representor, error) {
	return representorsOf(os.DirFS("/sys"), d.name)
}

func pciOf(sys fs.FS, name string) string {
	link, err := fs.ReadLink(sys, path.Join("class/infiniband", name, "device"))
	if at := path.Base(link); err == nil && pciAddress.MatchString(at) {
		return at
	}
	return "" // a software device of the kernel's, or one behind another bus
}

var pciAddress = regexp.MustCompile(`^[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`)

// functionPort is the phys_port_name of a representor: of the host's physical function, a
// virtual or a sub-function, on a DPU with the controller's number before it. An uplink
// is "p0".
var functionPort = regexp.MustCompile(`^(c\d+)?pf\d+(hpf|vf\d+|sf\d+)?$`)

func representorsOf(sys fs.FS, name string) ([]rdma.Representor, error) {
	dir := path.Join("class/infiniband", name, "device/net")
	entries, err := fs.ReadDir(sys, dir)
	if err != nil {
		if os.IsNotExist(err) {
			return nil, nil
		}
		return nil, err
	}
	var list []rdma.Representor
	for _, e := range entries {
		port, err := fs.ReadFile(sys, path.Join(dir, e.Name(), "phys_port_name"))
		if err == nil && functionPort.MatchString(strings.TrimSpace(string(port))) {
			list = append(list, rdma.Representor{Name: e.Name()})
		}
	}
	return list, nil
}
