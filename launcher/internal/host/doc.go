// Package host runs the ranks of one host: it starts them, serves PMI to them,
// moves what they read and write, waits for them, and leaves nothing of them
// behind. It decides nothing about the job: what happened goes to the
// controller as [Event]s, what to do about it comes back as [Command]s. The
// controller is in the same process, or behind an agent's stream; Spec, Event
// and Command are plain data, so that both look alike.
//
// # States
//
//	          all ranks        all ranks            output closed
//	          started          have ended           or cut: see linger
//	starting ---------> running ---------> draining ------------> done
//	                      | End, Kill
//	                      v
//	                    ending: the signal now, TERM after half the grace, KILL after it
//
// # What dies when
//
// Each rank leads a process group, and one linked with MPICH a session on hosts apart
// (Config.Lead). The threads that start ranks live as long as
// the job, and the kernel kills the ranks with them (PDEATHSIG). The
// guardian (package guard) kills their groups, and what left them, when the
// whole process dies. At the end of the job on this host the groups are killed,
// so that nothing that a rank left in the background outlives it; what has left
// its group, a daemon, is the affair of package orphan. A rank's end
// is its process's end and never that of a pipe, which a grandchild may hold: the pipe's end is that of the rank's output.
// Ranks are only reaped when all have ended: until then no process and no group
// can get the number of one, so that signals and peers' process_vm calls cannot
// meet a stranger.
//
// A host whose controller is gone keeps its guardian to the last: the death signal
// may come to this process at any moment.
//
// # Memory and descriptors
//
// The host owns the shared segment, and for each rank a socket, two pipes and a
// pidfd, all gone when Run returns. A rank inherits descriptors 0, 1 and 2, its
// PMI socket as 3, unless it is to connect to a port, and the segment as 4, and
// nothing else.
//
// # What may block
//
// Run is one loop with no other wait than epoll, on the locked thread that has started the ranks, or beside that: see poller. Emit is
// called on it and must not block. Send may be called from any goroutine and
// does not block. Window bounds the part of a stream that the controller has
// not yet taken: beyond it the loop stops reading the pipes of that stream, and the
// ranks that write wait. The end of a fence between hosts comes as a letter, for which no goroutine waits.
// The second thread that starts ranks, where there are many, ends before Run returns.
//
// # Files
//
// Read spec.go first, what a host is told and tells, then host.go, the life of a Host. The
// rest in this order:
//
//	base.go                          what all parts of a Host know
//	loop.go, poll.go, mailbox.go     the loop, how it sleeps, and how other goroutines reach it
//	starter.go                       starts ranks: lookup.go, mpi.go, bind.go, terminal.go
//	env.go, sharedvars.go, python.go their environment
//	pmi.go, worlds.go, port.go       their PMI server; ask.go what it passes on, pmixserver.go that of PMIx
//	pipes.go, linefile.go, input.go  what they write and read
//	ending.go, linger.go             how they end, and what they have started
//	crash.go, core.go                what is known of a crash
//	directory.go, tempfiles.go, cgroup.go   what is removed then
//	state.go, sample.go, stall.go, singleton.go   what they are doing
package host
