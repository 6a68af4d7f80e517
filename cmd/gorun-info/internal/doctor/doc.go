// Package doctor looks at a machine and says what gorun and the MPIs can do on
// it and what stands in their way.
//
// A check is a pure function of a [View]: the machine's files as an fs.FS, its
// environment, and functions for what only a system call or a program can tell.
// [Here] is the machine that this runs on; tests make others.
//
// # States
//
// A [Finding] is OK, a Note (it works, and could be better, or will not do for
// some job), or a Problem (something fails). A Note and a Problem have a
// Fix, a command where there is one.
//
// # What blocks, and for how long
//
// All checks run at once, on goroutines that Examine waits for (hosts some 32 at
// a time), each for [Limit] at most: what programs, name servers and hosts do is bounded by the check's
// context; what sleeps in the kernel, such as a dead network file system, is
// left behind and said to be a Problem. Such a goroutine ends with the process.
//
// Nothing stays: what a trial makes (a file, a control group, a child) it
// removes.
package doctor
