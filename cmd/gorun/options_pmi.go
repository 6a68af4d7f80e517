package main

import (
	"math"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/gorun-mpi/gorun/launcher"
)

// pmiOptions say what MPI programs learn of their launcher, and how.
func pmiOptions() []option {
	return []option{
		{names: []string{"mpi"}, fills: "Hosting.MPI", arity: 1, family: "Job", value: "NAME",
			help: "programs of the standard ABI (libmpi_abi.so.1) load this MPI: gorun (its own, which programs of MPICH load too), mpich, openmpi, or the path of a library or of its directory", set: setMPI},
		{names: []string{"pmi-port"}, family: "Job",
			help: "MPICH programs connect to a TCP port of gorun (default: only those in scripts do; others inherit a connection)", set: setSwitch(func(s *settings, on bool) {
				s.job.Hosting.PMIPort, s.job.Hosting.PMIFD = on, s.job.Hosting.PMIFD && !on
			})},
		{names: []string{"pmi-fd"}, family: "Job",
			help: "MPICH programs inherit a connection to gorun, in scripts too; for ranks in their own network namespace", set: setSwitch(func(s *settings, on bool) {
				s.job.Hosting.PMIFD, s.job.Hosting.PMIPort = on, s.job.Hosting.PMIPort && !on
			})},
		{names: []string{"usize"}, arity: 1, family: "Job", value: "N",
			help: "value of MPI_UNIVERSE_SIZE; SYSTEM: number of CPUs, INFINITE: unknown (default: number of slots)", set: setUniverse},
	}
}

// setMPI names a library. That each rank is a world of its own is what the other launchers
// make of a library that is not theirs: here it is no warning.
func setMPI(s *settings, value string) error {
	const expected = "gorun, mpich, openmpi, or the path of a library or of its directory"
	switch name, _, _ := strings.Cut(value, "_"); name {
	case "":
		return unfit(value, expected+"; try --mpi mpich")
	case "pmi2", "pmix", "none", "list", "cray":
		return unfit(value, expected+"; as srun's it is not needed: gorun serves PMI-1, PMI-2 and PMIx")
	}
	if s.job.Hosting.MPI = value; strings.Contains(value, "/") {
		path, err := filepath.Abs(value)
		if err != nil {
			return err
		}
		s.job.Hosting.MPI = path
	}
	s.job.StrictPMI = true
	return nil
}

// setUniverse takes a number, or Hydra's words.
func setUniverse(s *settings, value string) error {
	switch strings.ToUpper(value) {
	case "SYSTEM":
		s.job.Universe = launcher.UniverseCPUs
		return nil
	case "INFINITE":
		s.job.Universe = launcher.UniverseUnknown
		return nil
	}
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 || n > math.MaxInt32 {
		return unfit(value, "a number of ranks, SYSTEM or INFINITE; try -usize 16")
	}
	s.job.Universe = n
	return nil
}
