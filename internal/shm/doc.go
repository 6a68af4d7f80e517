// Package shm is the memory that the ranks of one host share: the job segment.
//
// # Design
//
// A [Segment] is one sparse memfd per host and job. It holds a header, one
// rank entry of six cache lines for each local rank, perhaps one bit for each rank of the
// job, which says that it has died on another host, and one arena for each
// local rank, whose content is its user's business:
//
//	0            128                128+384*ranks           header size (pages)
//	+------------+-----+-----+- - -+---------+---------+----------+----------+- -
//	| magic,     | rank| rank|     | marks   | padding | arena 0  | arena 1  |
//	| geometry   | 0   | 1   |     |         |         |          |          |
//	+------------+-----+-----+- - -+---------+---------+----------+----------+- -
//
// Making: the launcher calls [Create] (or one rank does, under a foreign
// launcher); the others inherit the descriptor ([Open]) or open it
// through /proc ([OpenPeer]). [NewLocal] is the same thing for ranks that are
// goroutines of one process, without a file.
//
// Ownership: a Segment owns its descriptor and its mappings. The file is mapped
// as a whole when an arena is first asked for: pages and page tables are made for
// what is touched, so they grow with the peers one talks to. Slices from [Segment.Arena] and the [Bell]s end with
// [Segment.Close]. Pages belong to the file: they go when the last process that
// has it open or mapped is gone, however it died, and nothing is left on disk.
//
// Trust: the ranks of a job trust each other with their data, not with their
// lives. Open believes nothing in the header that it has not compared with the
// size of the file, which is sealed against shrinking; afterwards a Segment
// never reads its geometry from shared memory again. A rank that scribbles over
// a rank entry can wake others for nothing, or let them sleep for 100 ms; a mark has those of its
// host take a rank for dead.
//
// Liveness: the launcher calls [Segment.SetDead] when a process has ended and
// before its PID can be used again, and [Segment.SetDeadElsewhere] when it has heard of the
// end of processes on other hosts. Once dead, a rank stays dead.
//
// Blocking: [Bell.Sleep], for at most 100 ms, and [Segment.Close], for as
// long as the registration described at coverage takes (10 ms). Everything else
// takes microseconds. All methods may be called from several goroutines at
// once, except that a Bell has one owner that prepares and sleeps.
package shm
