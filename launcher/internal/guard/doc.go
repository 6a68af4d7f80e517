// Package guard keeps a process, the guardian, that ends the ranks of a host
// when the process that started them dies without having done so, kill -9
// included.
//
// # What dies when
//
// The guardian is a child of the starter, in a session of its own, with every
// signal blocked that can be. It holds the reading end of a pipe whose only
// writing end is the starter's: end of file on it is the starter's death, in
// whatever way it came. Then the guardian kills the process groups that stand
// in the ledger, and after that every process whose environment holds the job's
// marker. The second pass reaches what the first cannot: a process that made
// itself a group or session of its own, and what a rank started in the moment
// between its own start and its entry in the ledger. Where there is a control group
// (Disband) all that is in it goes too, whatever it has done to its group, session
// and environment; without one a process that has left its group and cleared its
// environment escapes, as does one that runs as another user.
//
// Then it removes the job's files: its directory, and of the files that MPIs make
// in directories of all jobs those that nobody uses.
//
// A starter that ends in order calls Release before the pipe closes, and the
// guardian goes without a look at anything. One that knows that it may be killed
// at any moment calls Strike instead, which leaves no moment without a guardian.
//
// A starter on a machine that nobody may reach any more can have a lease: the guardian
// kills it, and then does its work, when it has not called Alive for so long and is stopped, or
// for several times as long: it is in a loop, for one that only has no CPU gets some by then.
//
// # Two of them
//
// A guardian may be killed or stopped as well, and its starter with it. So a job
// that lives for 5 ms has a second one, a fork of the first:
//
//	starter ==pipe==> first <==socket pair==> second
//	   |                ^                        |
//	   +----------------+-------- pipe ----------+
//
// The first works when the pipe ends. The second then has it continue, waits for its
// end, which the socket tells, and does what is not done. While the starter lives, a
// first that has died is replaced by the starter (FD, Replace) and a second by the
// first; the second of a first that was replaced goes. When the starter and both
// guardians are killed at once, processes that the kernel does not end with the
// starter stay.
//
// # Memory
//
// The ledger is memory that both processes map. The starter stores groups and
// the mark of release with atomic stores; the guardian loads them after it has
// read end of file, so it sees whatever the starter stored before it died: the
// closing of the pipe by the kernel comes after, and stores of a process that
// has stopped running are in the memory that the other reads.
//
// # Blocking
//
// Start, Add and Replace do not block. Wait blocks until the guardian has gone, which
// after Release is a matter of microseconds. One that was stopped is continued, and
// one that does not go within 2 seconds, 10 after Strike, is killed.
//
// # Limits
//
// Linux only.
//
// # Files
//
// Read guard.go first, the side of the host, then guardian_unsafe.go, the process, and
// leftover_unsafe.go, the files that it removes.
package guard
