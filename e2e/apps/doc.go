// Package apps runs applications of Debian, built with Open MPI or MPICH, in a root of
// Debian trixie (scripts/apps): each by its MPI's own launcher and by gorun, with 2 and 4 ranks.
// Both have to give the same status and the same output, whole, on as many ranks, and
// gorun leaves nothing behind.
//
// An application is a file in testdata, a txtar archive: lines of a key and its value, then
// the files of the directory in which it runs.
//
//	name: LAMMPS                    as people call it
//	field: molecular dynamics       what it is for
//	packages: lammps                of Debian; the page has the version of the first
//	mpi: openmpi                    or mpich: the library that it is built with
//	first: gfortran hello.f90       a command before, without a launcher
//	run: lmp -in melt.in            what the launchers start; a line of a shell
//	np: 3 4                         other numbers of ranks than 2 and 4
//	ranks: on (\d+) procs           the group, at its greatest, is the number of ranks, or named others, of all but one; without
//	                                a group, each rank has a match
//	result: (?m)^ +50 .*            what is to be in the output, the result
//	varies: \d+\.\d+ seconds        what may differ from run to run, anywhere; repeated as needed
//	unlike: status,output REASON    what may differ under gorun, and why that is not gorun's fault
package apps
