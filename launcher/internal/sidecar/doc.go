// Package sidecar is the PMIx server of a host's ranks, of one group or of several: the port that Open MPI
// programs find in their environment, and the helper program gorun-pmix that
// serves it. libpmix needs cgo, gorun is a static binary, and most jobs need
// neither: so the helper is started by the first connection of this user. Until then a
// listening socket, which the host's loop watches, is all that a job pays.
//
// # States
//
//	         a rank connects       Ready
//	waiting ----------------> starting ----> serving
//	   |                          |              |   idle without an answer for Patience,
//	   |                          |              |   stopped, end of stream, Failed
//	   | Drop                     +--------------+--------------> failed
//	   v                                         | Close
//	closed <-------------------------------------+
//
// # When the helper is given up
//
// It is looked at eight times in Patience. One that is found stopped three times in
// turn is given up; one that does nothing after Patience; one that works, or waits for
// a CPU, after ten times that.
//
// # Who owns what
//
// The helper inherits the first connection and the listening socket, accepts and
// checks the others itself and carries their bytes: the host's loop never sees them. Its messages
// (package link has the frames) come over a socket that State reads too, so that
// a process that has seen the end of a rank knows what that rank had said before.
//
// The job directory, where libpmix and Open MPI write shared memory segments and
// session directories, is the host's: it makes it before and removes it after.
//
// # What may block
//
// Add waits until the helper knows the namespace, Drain for what ranks said last; a helper that is given up ends both.
// Nothing else waits for it: Take and the others queue, in order, what a goroutine
// writes. The functions of Config and User are called with the server's lock held and must
// neither block nor call back. Close waits until the helper, which it
// kills, is gone.
//
// # Goroutines
//
// When somebody connects one looks who it is, and ends with the first one of this
// user. Then one starts the helper, on a thread of its own (whose end would kill it),
// and reads its frames; one writes; one keeps its last words. All end with Close.
//
// # Files
//
// Read server.go first, then start.go, the helper, and watch.go, which gives it up.
package sidecar
