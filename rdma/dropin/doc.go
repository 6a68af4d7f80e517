// Package dropin says how trouble is asked for, and holds the tests of a libibverbs.so.1 that has software devices, and of a librdmacm.so.1 over it, so that
// any verbs program runs without hardware: cmd/gorun-verbs puts them in front of the system's.
//
//	shim/      libibverbs.so.1, in C: objects as libibverbs lays them out, its functions, an empty poll
//	cm/        librdmacm.so.1, in C: connections over sockets of the machine; of libibverbs it uses what programs do
//	paths/     libgorun-verbs-paths.so, in C, preloaded: /dev/infiniband/uverbsN for programs that look there
//	library/   libgorun-verbs.so, in Go: handles and conversions over package soft; no type of libibverbs
//	meet/      how processes of one user find each other
//
// internal/cgoloader brings Go's runtime into the process when a program first asks for devices.
// The shim turns each call into one of library/calls.h. Data moves in package soft alone. The build (scripts/build-dropin)
// needs a C compiler and no header of libibverbs: the shim shares abi.h with package verbs.
package dropin
