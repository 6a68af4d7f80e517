package coll

// Counters count what the collectives of a team have done since it was made.
type Counters struct {
	Calls uint64 // successful calls
	// Puts are writes of payload to peers: into a slot, or into memory that the peer has
	// exposed. Each is one RDMA write (several above 1 GiB), or a copy into mapped memory.
	Puts, PutBytes uint64
	// Gets are reads of memory that peers have exposed. Each is one RDMA
	// read (several above 1 GiB), or a copy from mapped memory.
	Gets, GetBytes uint64
	// Signals are message headers, after a put or alone. Each is an RDMA
	// write of 8 bytes, or a store. Headers of descriptors are not counted.
	Signals uint64
	// Descriptors are messages that expose memory. Each consists of two RDMA writes.
	Descriptors uint64
	// Credits are RDMA writes of 8 bytes that return slots to the sender.
	Credits uint64
	// Copies are copies between the caller's operands, of its own block.
	Copies, CopyBytes uint64
	// Unpacks are copies from a slot.
	Unpacks, UnpackBytes uint64
	// Reductions are combinations of two vectors.
	Reductions, ReduceBytes uint64
}

// Writes is the number of RDMA writes that this would be without mapped memory.
func (c Counters) Writes() uint64 { return c.Puts + c.Signals + 2*c.Descriptors + c.Credits }
