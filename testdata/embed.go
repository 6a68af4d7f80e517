// Package testdata holds those files of this folder that programs carry with
// them. The Go tool leaves the folder out of "./...".
package testdata

import "embed"

// BenchC is the benchmark of gorun-bench as an MPI program in C. It stands
// here and not in a package with it, because a package without cgo may hold no
// C file.
//
//go:embed mpi/bench.c
var BenchC []byte

// Topologies are the recorded topologies, topo/NAME.txt.
//
//go:embed topo/*.txt
var Topologies embed.FS

// LimitC is what launchers are held against, a program in C.
//
//go:embed mpi/limit.c
var LimitC []byte
