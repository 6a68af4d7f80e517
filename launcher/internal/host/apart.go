package host

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gorun-mpi/gorun/internal/mpilib"
)

// A rank of Open MPI that has no way to those of another host does not fail: it waits for them for ever, using its CPU, in
// the first message. Two things lead there, under any launcher, and both can be seen when the rank has joined.

// apart is why ranks that have loaded a library of Open MPI reach no other host of the job, and what mends it; "" where
// they do, as far as is seen. shown reads a file; "" where it cannot.
func (s *Spec) apart(env []string, library string, shown func(name string) string) string {
	has := func(name string) bool { return sets(env, "OMPI_MCA_"+name) }
	switch {
	case s.Hosts < 2:
		return ""
	case slices.ContainsFunc([]string{"pml", "mtl", "btl"}, has), has("opal_common_ucx_tls") && has("opal_common_ucx_devices"): // which makes UCX the first choice
		return "" // another way than by default
	case s.Address == "" || loopback(s.Address): // of --launcher fork
		if l, err := mpilib.Open(library); err != nil || l.MPI != mpilib.OpenMPI || !strings.HasPrefix(l.Version(), "6.") {
			return ""
		}
		return "these hosts are one machine, and Open MPI 6 does not connect to an address that it has itself: ranks of different hosts wait for each other for ever; " +
			"have UCX connect them: export OMPI_MCA_pml=ucx OMPI_MCA_opal_common_ucx_tls=any OMPI_MCA_opal_common_ucx_devices=any"
	}
	const name = "btl_tcp_if_include"
	value, where := "", ""
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, "OMPI_MCA_"+name+"="); ok && v != "" {
			value, where = v, "OMPI_MCA_"+name+" is "+v
		} else if home, ok := strings.CutPrefix(e, "HOME="); ok && value == "" {
			value, where = parameter(shown, filepath.Join(home, ".openmpi", "mca-params.conf"), name)
		}
	}
	prefix := filepath.Dir(filepath.Dir(library))
	for _, file := range []string{filepath.Join(prefix, "etc", "openmpi-mca-params.conf"), mpilib.DebianParameters} {
		if value == "" && (file != mpilib.DebianParameters || strings.HasPrefix(prefix, "/usr/lib")) {
			value, where = parameter(shown, file, name)
		}
	}
	if value == "" || slices.ContainsFunc(strings.Split(value, ","), func(one string) bool { return one != "lo" && !strings.HasPrefix(one, "127.") }) {
		return ""
	}
	if cards, _ := filepath.Glob("/sys/class/infiniband/*"); cards != nil {
		return "" // UCX may take one
	}
	return where + ": ranks of Open MPI reach no other host, and wait for those there for ever or fail; gorun --mca " + name + " " + networkOf(s.Address) + " has them use another network"
}

// parameter looks a parameter of Open MPI up in a file, and tells what is found there.
func parameter(shown func(name string) string, file, name string) (value, where string) {
	if value = mpilib.Parameter(shown(file), name); value != "" {
		where = file + " has " + name + " = " + value
	}
	return value, where
}

// loopback tells whether an address is this machine's alone.
func loopback(address string) bool {
	a, err := netip.ParseAddr(address)
	return err == nil && a.IsLoopback()
}

// networkOf is the network of this machine that an address is in.
func networkOf(address string) string {
	a, err := netip.ParseAddr(address)
	list, _ := net.InterfaceAddrs()
	for _, l := range list {
		if p, perr := netip.ParsePrefix(l.String()); err == nil && perr == nil && p.Contains(a) {
			return p.Masked().String()
		}
	}
	return "NETWORK" // as the others know it
}

// textOf is what a file says.
func textOf(name string) string {
	text, _ := os.ReadFile(name)
	return string(text)
}
