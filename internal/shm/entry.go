package shm

// A rankEntry is what the segment itself keeps for each rank, shared by all
// processes. Its first two cache lines are apart because they are written at
// different times by different processes:
//
//	  0        4        8      12                         64       68      72     80     128
//	  +--------+--------+---------------------------------+--------+-------+------+------+
//	  | bell   | beside | used |         unused           | dead   | alarm | beat |unused|
//	  +--------+--------+---------------------------------+--------+-------+------+------+
//	owner: 0 to 1 when it is about to sleep             launcher: 0 to 1, once,
//	any peer: 1 to 0 when it rings                      after the process has ended
//	every publisher reads it after its stores           read while waiting for the rank
//
// Beside is the word of a second thread of the owner, which the same peers ring: neither
// of the two takes the other's wake-up. On the same cache line it costs them nothing.
// Used and beat are for the numbers of a daemon: 1 once it was given something to do; its
// thread, and a count that changes while it is well, which the launcher reads.
// The alarm is a second bell, for the owner's device rather than for its program:
// few ring it, and a process that sleeps on it is not the one that sleeps on the bell.
// Behind them is the record of what the owner waits for (waiting.go): the owner writes it
// when it has slept for a while, and the launcher reads it when a user asks.
// All accesses are sync/atomic.
type rankEntry struct {
	bell   uint32
	beside uint32
	used   uint32
	_      [52]byte
	dead   uint32

	alarm uint32
	beat  uint64
	_     [48]byte

	wait [waitWords]uint64
}

const entrySize = 128 + 8*waitWords
