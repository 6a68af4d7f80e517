// Package hosting has what every host of a job does for its ranks. A launcher.Job holds these
// settings, and each host, an agent on another machine too, gets them as they are.
package hosting

import (
	"errors"
	"strconv"
	"time"
)

// Settings are the same on all hosts. Programs and libraries are named by their paths there.
type Settings struct {
	// MPI is the MPI that programs of the standard ABI (libmpi_abi.so.1) load, on all hosts:
	// gorun, mpich, openmpi, or the path of a library or of its directory. "": the loader's choice.
	MPI string
	// PMIPort makes all ranks connect to their PMI server (PMI_PORT) instead of inheriting a connection (PMI_FD). It is for MPI
	// programs that close inherited descriptors, or that run another MPI program after them. Programs that are neither linked
	// with MPI nor written in Go, such as a shell or Python, connect in any case.
	PMIPort bool
	// PMIFD makes all ranks inherit a connection, whatever their program is. It is for ranks that enter another network namespace
	// or change their user. Only the first MPI program that a rank runs can use it.
	PMIFD bool
	// PMIx is the path of gorun-pmix, the helper program that serves programs of Open MPI. It need not exist if no such program
	// runs. "": these programs find no PMIx server, and each rank is a world of its own.
	PMIx string
	// PMIxTimeout is the time after which gorun-pmix has failed if it neither answers nor
	// uses or waits for a CPU. A busy one has ten times as long. 0: launcher.DefaultPMIxTimeout.
	PMIxTimeout time.Duration

	// Emulate are the names of the software RDMA devices in the ranks: those of package rank, and of programs that are linked with libibverbs.
	Emulate []string
	// AsyncProgress says whether ranks that are Go programs have a progress thread, which moves started
	// operations while the program computes: off, on, or auto, which is on where each rank has two CPUs
	// or is bound and a core is spare. Empty: what the environment of the ranks says, else auto.
	AsyncProgress string
	// Offload is the number of threads of a daemon on each host that is started before the ranks and
	// steps their started collectives, of 256 KiB and more in registered memory, while the ranks that
	// are Go programs compute. 0: there is none. More threads than the host has CPUs are an error.
	Offload int
	// OffloadProgram is the path of gorun-offload, the daemon's program. Empty: it is
	// in the directory of the program that starts the host's ranks.
	OffloadProgram string
	// ProfileLibrary is the path of libgorun-profile.so, which programs of other MPIs load to record their calls. Empty: it is where
	// make build or make install puts it, as seen from the program that starts the host's ranks.
	ProfileLibrary string
}

// Check says which field has a value that means nothing, and why.
func (s *Settings) Check() (field, value string, err error) {
	switch s.AsyncProgress {
	case "", "off", "on", "auto":
	default:
		return "AsyncProgress", s.AsyncProgress, errors.New("want off, on, auto, or none")
	}
	switch {
	case s.Offload < 0:
		return "Offload", strconv.Itoa(s.Offload), errors.New("want a number of threads, or 0 for no daemon")
	case s.PMIPort && s.PMIFD:
		return "PMIFD", "true", errors.New("want it or PMIPort, not both")
	}
	return "", "", nil
}
