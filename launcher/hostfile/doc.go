// Package hostfile reads where ranks may run: lists of hosts as they stand on
// the command lines of mpirun and mpiexec, and files of hosts as both families
// of launchers write them.
//
// It is pure: it gets text and gives hosts, looks nothing up and keeps nothing.
//
// # A list
//
//	a:2,b,node[01-04,7]:8,[fe80::1]:2,user@c
//
// A name may have a number of slots behind a colon. Brackets behind a name are
// a range of numbers, written out with as many digits as the lower end has, as
// Slurm and Intel MPI have it. A name in brackets is an IPv6 address.
//
// # A file
//
//	# one host a line
//	node01 slots=8 max_slots=16      Open MPI
//	node[02-09]:8                    Hydra
//	user@node10 slots=4
//	node11 user=me
//	^node05                          not this one
//
// Comments begin with "#" or "//". Slots that several lines give a host add
// up; a host that is listed n times without slots has n. Words that Open MPI
// accepts and does nothing with (boards, sockets, cores) are skipped.
//
// # Files
//
// Read name.go first, the names of a list, then file.go.
package hostfile
