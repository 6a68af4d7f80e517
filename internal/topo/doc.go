// Package topo tells what of the machine this process may use.
//
// It reads files of the kernel and keeps nothing: each call looks again, takes
// some ten microseconds and cannot block. A file that is missing or makes no
// sense limits nothing, since that is how a machine without control groups
// looks. CPUs counts whole CPUs that can be busy at the same time, because it
// decides whether ranks may spin while they wait.
package topo
