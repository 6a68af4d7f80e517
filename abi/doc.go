//go:generate go run ./internal/gen

// Package abi holds the tests of libmpi_abi.so.1: gorun's own MPI for C programs, by the standard ABI of MPI 5.0.
//
//	functions.txt, constants.txt   the tables that all else follows from; mpich.txt has the constants of MPICH's ABI
//	internal/gen                   writes include/mpi.h, the entries.c of shim, mpich and profile, library/calls.go and the table in docs/c.md
//	shim/                          libmpi_abi.so.1, in C: each function as words, and the few that need no Go
//	mpich/                         libmpich.so.12, in C: MPICH's ABI taken into the standard one, for programs that were built with it
//	library/                       libgorun-mpi.so, in Go: handles, conversions and error classes over package rank
//	profile/                       libgorun-profile.so, in C: the functions whose calls gorun --profile records, in programs of any MPI
//	gorun-cc                       a C compiler with all this, installed beside gorun
//
// The C side loads the library when a program first calls a function that needs it (internal/cgoloader). scripts/build-abi builds all.
package abi
