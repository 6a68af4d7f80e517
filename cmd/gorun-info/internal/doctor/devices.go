package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/gorun-mpi/gorun/rdma/verbs"
)

// rdmaDevices are those that the kernel shows.
func (v *View) rdmaDevices() []string {
	entries, err := fs.ReadDir(v.Root, "sys/class/infiniband")
	if err != nil {
		return nil
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// library is a shared library in one of the usual directories, "" when there is
// none.
func (v *View) library(name string) string {
	for _, dir := range [...]string{"usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib/riscv64-linux-gnu", "usr/lib/powerpc64le-linux-gnu",
		"usr/lib64", "usr/lib", "lib64", "lib", "usr/local/lib64", "usr/local/lib"} {
		if _, err := v.stat(path.Join(dir, name)); err == nil {
			return "/" + path.Join(dir, name)
		}
	}
	return ""
}

const makeRXE = "modprobe rdma_rxe; rdma link add rxe0 type rxe netdev eth0"

func devices(_ context.Context, v *View) Finding {
	names := v.rdmaDevices()
	loaded := v.modules("ib_uverbs", "rdma_ucm", "mlx5_ib", "mlx4_ib", "irdma", "bnxt_re", "efa", "hfi1", "rdma_rxe", "siw")
	if len(names) == 0 {
		const soft = "gorun's ranks use the software device (soft0, or as --emulate names it)"
		if slices.Contains(loaded, "rdma_rxe") || v.module("rdma_rxe") {
			return ok("no RDMA device (%s makes one of a network card); %s", makeRXE, soft)
		}
		return ok("no RDMA device; %s", soft)
	}
	var found []string
	up := false
	for _, name := range names {
		ports, err := fs.ReadDir(v.Root, path.Join("sys/class/infiniband", name, "ports"))
		if err != nil {
			found = append(found, name+" (no port)")
			continue
		}
		for _, p := range ports {
			dir := path.Join("sys/class/infiniband", name, "ports", p.Name())
			_, state, _ := strings.Cut(v.text(dir, "state"), ": ")
			up = up || state == "ACTIVE"
			found = append(found, strings.TrimSuffix(name+" port "+p.Name()+" "+strings.ToLower(state)+", "+v.text(dir, "link_layer"), ", "))
		}
	}
	all := strings.Join(found, "; ")
	if loaded != nil {
		all += " (modules " + strings.Join(loaded, ", ") + ")"
	}
	gaps := v.Gaps()
	for _, g := range gaps {
		if !g.ours {
			return problem(g.Fix, "%s; %s", all, g.Reason)
		}
	}
	switch {
	case !up:
		return note("ibstat; rdma link", "%s: no port is active", all)
	case len(gaps) > 0:
		return note(gaps[0].Fix, "%s, for MPIs; gorun's programs cannot use it: %s", all, gaps[0].Reason)
	}
	return ok("%s; without -d gorun's ranks use the software device (soft0, or as --emulate names it)", all)
}

// A Gap is something for want of which programs do not reach an RDMA device of
// libibverbs, with what mends it.
type Gap struct {
	Reason string `json:"reason"`
	Fix    string `json:"fix"`

	ours bool // MPIs' programs do not want it
}

// Gaps are what is missing on this machine, in the order in which it is mended.
func (v *View) Gaps() []Gap {
	var gaps []Gap
	known, err := v.Verbs()
	switch {
	case errors.Is(err, verbs.ErrNoCgo):
		gaps = append(gaps, Gap{verbs.ErrNoCgo.Error(), "apt-get install gcc libc6-dev && make build", true})
	case errors.Is(err, verbs.ErrNoLibrary):
		gaps = append(gaps, v.noLibrary(err.Error()))
	case err != nil && !errors.Is(err, verbs.ErrNoKernel): // which is looked at below
		gaps = append(gaps, Gap{Reason: err.Error(), Fix: "ibv_devinfo; dmesg | grep -i -e infiniband -e rdma"})
	}
	if len(gaps) > 0 && gaps[0].ours && v.library(verbs.DefaultLibrary) == "" {
		gaps = append(gaps, v.noLibrary("no "+verbs.DefaultLibrary))
	}
	gaps = append(gaps, v.noDevice()...)
	if there := len(v.rdmaDevices()); len(gaps) == 0 && known < there {
		gaps = append(gaps, Gap{Reason: fmt.Sprintf("libibverbs shows %d of %d devices: it lacks a driver, or a node in /dev/infiniband", known, there),
			Fix: "apt-get install ibverbs-providers; ls -l /dev/infiniband /sys/class/infiniband_verbs/*/device"})
	}
	return gaps
}

func (v *View) noLibrary(reason string) Gap {
	return Gap{Reason: reason, Fix: "apt-get install libibverbs1 ibverbs-providers"}
}

// noDevice is what the kernel lacks: a device, or a way to it.
func (v *View) noDevice() []Gap {
	if len(v.rdmaDevices()) == 0 {
		if v.modules("rdma_rxe") != nil || v.module("rdma_rxe") {
			return []Gap{{Reason: "no RDMA device", Fix: makeRXE}}
		}
		return []Gap{{Reason: "no RDMA device, and the kernel has no rdma_rxe, which makes one of any network card",
			Fix: "apt-get install linux-image-amd64 (the kernels for clouds lack it); scripts/rxe run PROGRAM, in gorun's sources, runs one in a virtual machine with two devices"}}
	}
	nodes, err := fs.Glob(v.Root, "dev/infiniband/uverbs*")
	if err != nil || len(nodes) == 0 {
		return []Gap{{Reason: "no /dev/infiniband/uverbs*", Fix: "modprobe ib_uverbs (in a container: docker run --device=/dev/infiniband)"}}
	}
	for _, name := range nodes {
		if err := v.TryOpen("/" + name); err != nil {
			return []Gap{{Reason: fmt.Sprintf("no permission to use the devices: %v", err),
				Fix: "chmod 0666 /dev/infiniband/uverbs* (for good: a rule of udev; docker run --device=/dev/infiniband)"}}
		}
	}
	return nil
}

// modules are those of names that the kernel has loaded.
func (v *View) modules(names ...string) []string {
	var loaded []string
	for line := range strings.Lines(v.text("proc/modules")) {
		if name, _, _ := strings.Cut(line, " "); slices.Contains(names, name) {
			loaded = append(loaded, name)
		}
	}
	slices.Sort(loaded)
	return loaded
}

// module tells whether the running kernel has a module that could be loaded.
func (v *View) module(name string) bool {
	return strings.Contains(v.text("lib/modules", v.text("proc/sys/kernel/osrelease"), "modules.dep"), "/"+name+".ko")
}
