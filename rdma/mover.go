package rdma

// A Mover is a queue pair that can execute a read or a write during the call, without a completion.
// It is an optional interface of a [QP], for devices whose initiator moves the bytes itself.
type Mover interface {
	// Move reads len(mem) bytes at addr of the peer into mem (WRRDMARead), or writes mem
	// there (WRRDMAWrite), after all requests that were posted before. It makes the same
	// checks as a posted request. If it returns true the transfer is complete, and later
	// stores become visible after it. If it returns false it may have moved a part of
	// the bytes; post the request instead, which then succeeds, or fails with a status.
	//
	// mem needs no key, and may be reused when Move has returned.
	Move(op WROpcode, mem []byte, addr uint64, rkey uint32) bool
}
