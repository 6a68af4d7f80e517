package coll

// Counters count what a team's collectives did since it was made.
type Counters struct {
	Calls uint64 // that succeeded
	// Puts are the writes of payload to peers: into a slot or into memory that
	// was exposed. Every one is one RDMA write (more beyond 1 GiB), or a copy
	// into mapped memory.
	Puts, PutBytes uint64
	// Gets are the reads of peers' exposed memory. Every one is one RDMA read
	// (more beyond 1 GiB), or a copy out of mapped memory.
	Gets, GetBytes uint64
	// Signals are the headers that follow a put or go alone, each an 8-byte
	// RDMA write or a store. A descriptor's is not among them.
	Signals uint64
	// Descriptors are messages that expose memory, each of two RDMA writes.
	Descriptors uint64
	// Credits are 8-byte RDMA writes that give slots back.
	Credits uint64
	// Copies are those between the caller's own operands: an own block.
	Copies, CopyBytes uint64
	// Unpacks are copies out of a slot.
	Unpacks, UnpackBytes uint64
	// Reductions are combinations of two vectors.
	Reductions, ReduceBytes uint64
}

// Writes is how many RDMA writes all that made, if no memory was mapped.
func (c Counters) Writes() uint64 { return c.Puts + c.Signals + 2*c.Descriptors + c.Credits }
