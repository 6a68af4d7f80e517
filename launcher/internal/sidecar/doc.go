// Package sidecar is the PMIx server of a host's ranks: the port that Open MPI
// programs find in their environment, and the helper program gorun-pmix that
// serves it. libpmix needs cgo, gorun is a static binary, and most jobs need
// neither: so the helper is started by the first connection. Until then a
// listening socket, which the host's loop watches, is all that a job pays.
//
// # States
//
//	         a rank connects       Ready
//	waiting ----------------> starting ----> serving
//	   |                          |              |   no frame within Patience, end of
//	   |                          |              |   stream, Failed
//	   | Drop                     +--------------+--------------> failed
//	   v                                         | Close
//	closed <-------------------------------------+
//
// # Who owns what
//
// The helper inherits the listening socket, accepts and checks the connections
// itself and carries their bytes: the host's loop never sees them. What it tells
// (package link has the frames) comes over a socket that State reads too, so that
// whoever has seen the end of a rank knows what that rank had said before.
//
// The job directory, where libpmix and Open MPI write shared memory segments and
// session directories, is the host's: it makes it before and removes it after.
//
// # What may block
//
// Nothing waits for the helper: Take and Add queue, in order, what a goroutine
// writes. The functions of Config are called with the server's lock held and must
// neither block nor call back. Close waits until the helper, which it
// kills, is gone.
//
// # Goroutines
//
// With the first connection one starts the helper, on a thread of its own
// (whose end would kill it), and reads its frames; one writes; one keeps its last
// words. All end with Close.
package sidecar
