// Package prelude looks at the limits of a process before Go's runtime does, which
// ends with a page of stacks where it cannot reserve address space or start threads.
// A program imports it and is linked with
//
//	-ldflags '-E github.com/gorun-mpi/gorun/internal/prelude.enter'
//
// as make build does on amd64. Without that flag, as with go install, it does nothing.
//
// # What is too little
//
// Measured with Go 1.26.8, gorun --version under ulimit -v in steps of 25000: the
// runtime ends below 725000, and from 1150000 to 1225000, where it reserves 512 MiB
// more than it must and misses them afterwards. Some 100000 above both it still ends
// where the heap needs a second arena, in 1 of 40 runs. So whatever is below 1400000 is
// refused, the range from 900000 to 1130000 where it would run too: with a larger limit more runs, never
// less. Ranks of package rank need a little more (package shm, Needs). With 12 processes (ulimit -u), of which
// none run, gorun -np 2 runs a program with one thread.
package prelude
