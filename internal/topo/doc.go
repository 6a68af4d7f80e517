// Package topo tells what of the machine this process may use: a [Machine] is
// its hardware threads and the cores, caches, NUMA nodes and packages that they
// belong to, with the CPUs that affinity and cpuset allow and the quota that
// control groups set.
//
// Everything is read from the kernel's files, through an fs.FS, so that a
// recorded tree of such files (testdata/topo) stands for a machine that is not
// here. A [Machine] is a value that travels in msgpack. The package keeps
// nothing, each call looks again and cannot block: [CPUs] takes some ten
// microseconds, [Read] some tens for each core. A file that is missing or makes
// no sense limits nothing and groups nothing, since that is how machines without
// control groups, and containers without sysfs, look. [CPUs] counts whole CPUs
// that can be busy at the same time, because it decides whether ranks may spin
// while they wait.
//
// # Why not hwloc
//
// hwloc is a C library: cgo would end the static binary, costs every start 1.3
// ms, and loading a full topology is known to take seconds on large machines
// (PCI, OpenCL and the like), of which placement needs nothing. The Go packages
// that read the same files (ghw, cpuid, prometheus/procfs) know caches, NUMA
// nodes or affinity each in part, none a tree of them from a recorded tree, so
// the two hundred lines stand here. Objects are numbered as hwloc numbers them
// (its logical indices), because that is what users read in lstopo.
package topo
