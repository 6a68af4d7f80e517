package main

import (
	"math"
	"strconv"
	"strings"

	"github.com/gorun-mpi/gorun/launcher"
)

// pmiOptions say what MPI programs learn of their launcher, and how.
func pmiOptions() []option {
	return []option{
		{names: []string{"pmi-port"}, family: "Job",
			help: "MPICH programs connect to gorun instead of inheriting a connection, as those in scripts do", set: setSwitch(func(s *settings, on bool) { s.job.PMIPort, s.job.PMIFD = on, s.job.PMIFD && !on })},
		{names: []string{"pmi-fd"}, family: "Job",
			help: "MPICH programs inherit a connection, those in scripts too; for ranks in a network of their own", set: setSwitch(func(s *settings, on bool) { s.job.PMIFD, s.job.PMIPort = on, s.job.PMIPort && !on })},
		{names: []string{"usize"}, arity: 1, family: "Job", value: "N",
			help: "what MPI_UNIVERSE_SIZE says; SYSTEM: the CPUs, INFINITE: unknown (default: the slots)", set: setUniverse},
	}
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
