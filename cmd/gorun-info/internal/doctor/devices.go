package doctor

import (
	"context"
	"io/fs"
	"path"
	"slices"
	"strings"
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

func devices(_ context.Context, v *View) Finding {
	const soft = "gorun's ranks use the software device (soft0, or as --emulate names it)"
	names := v.rdmaDevices()
	loaded := v.modules("ib_uverbs", "rdma_ucm", "mlx5_ib", "mlx4_ib", "irdma", "bnxt_re", "efa", "hfi1", "rdma_rxe", "siw")
	if len(names) == 0 {
		if slices.Contains(loaded, "rdma_rxe") || v.module("rdma_rxe") {
			return ok("no RDMA device (rdma link add rxe0 type rxe netdev eth0 makes one of a network card); %s", soft)
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
	verbs, err := fs.Glob(v.Root, "dev/infiniband/uverbs*")
	if err != nil || len(verbs) == 0 {
		return problem("modprobe ib_uverbs", "%s, and no /dev/infiniband/uverbs*", all)
	}
	for _, name := range verbs {
		if err := v.TryOpen("/" + name); err != nil {
			return problem("chmod 0666 /dev/infiniband/uverbs* (for good: a rule of udev; docker run --device=/dev/infiniband)", "%s, but it may not be used: %v", all, err)
		}
	}
	switch {
	case v.library("libibverbs.so.1") == "":
		return problem("apt-get install libibverbs1 ibverbs-providers", "%s, and no libibverbs.so.1", all)
	case !up:
		return note("ibstat; rdma link", "%s: no port is active", all)
	}
	return ok("%s, for MPIs; %s", all, soft)
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
