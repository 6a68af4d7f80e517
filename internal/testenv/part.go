package testenv

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// The parts of `make test-all`. A test that belongs to one calls Part. Tests that
// belong to none are those of `make test`: they need nothing but Go, are cheap, and
// must never fail on a correct gorun, however slow or busy the machine is.
const (
	Peers   = "peers"   // programs and launchers of MPICH, Open MPI and mpi4py, Slurm's PMI-2 library
	Tools   = "tools"   // other programs: shells, groff, a browser; the Go toolchain as a user calls it
	Hosts   = "hosts"   // several hosts, by ssh
	Batch   = "batch"   // Slurm and gridengine
	Large   = "large"   // hundreds of ranks, a thousand jobs
	Faults  = "faults"  // random faults, floods, and deaths at random moments
	Timed   = "timed"   // what holds a bound of time, and can only be told by a clock
	Results = "results" // make results and gorun-bench, which take figures
	Apps    = "apps"    // applications of Debian, in a root of their own
	Dist    = "dist"    // make dist, and what it made, installed in a root of its own
)

// partsVariable names the parts whose tests run, with commas between; "all" is each.
const partsVariable = "TEST_PARTS"

// Chosen tells whether tests of one of some parts run.
func Chosen(parts ...string) bool {
	return slices.ContainsFunc(strings.Split(os.Getenv(partsVariable), ","), func(chosen string) bool {
		return chosen == "all" || slices.Contains(parts, chosen)
	})
}

// Part skips a test of a part of `make test-all` that is not to run.
func Part(t testing.TB, part string) {
	t.Helper()
	if !Chosen(part) {
		t.Skipf("skipped: not in make test; to run it: make test-%s", part)
	}
}

// Fewer is how many of a kind a test makes: all, or few with -short.
func Fewer[T any](all, few T) T {
	if testing.Short() {
		return few
	}
	return all
}
