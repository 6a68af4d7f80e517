package rdma

// A Mover is a queue pair that can execute a read or a write while its caller
// waits, without a completion. It is an optional ability of a QP, where the
// initiator moves the bytes itself.
type Mover interface {
	// Move reads len(mem) bytes from addr at the peer into mem (WRRDMARead), or
	// writes mem there (WRRDMAWrite), behind everything that was posted before.
	// It makes the checks of a request. When it returns true the bytes are where
	// they belong, and stores that follow are visible after them. When it
	// returns false it may have moved a part: posted as a request, the same does
	// it or fails with a status.
	//
	// mem needs no key. It may be used again when Move has returned.
	Move(op WROpcode, mem []byte, addr uint64, rkey uint32) bool
}
