// Package meet is how processes of one user find each other without a launcher, for the software devices of
// programs that know nothing of gorun.
//
// The members of a fabric share one segment (package shm), a memfd. Its last arena is the directory: a record for each
// place, which is the arena of the same number. Nothing lies in a file system: the kernel frees all of it with the last member,
// however that died.
//
// A member makes itself known by a socket with an abstract name, which nobody ever talks to:
//
//	@gorun-verbs/UID/FABRIC/PID.FD
//
// FD is the member's descriptor of the segment. A process that joins reads the names in /proc/net/unix and opens
// the first segment that it may open through /proc/PID/fd: that of a process of the same user. While it does so, it holds
// the name @gorun-verbs/UID/FABRIC/lock, so the first two members do not make a segment each. Processes in other
// network or PID namespaces do not meet.
//
// A member never gets a place that a living member may know from a predecessor: such a member could still
// write through what it knows. Places are many (Places), and one is used again when all members that saw it die are gone.
// That makes them an end: a fabric with one process that never ends serves Places others.
package meet
