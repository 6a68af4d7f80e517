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
	// Beside are the calls of which [Team.Step] has made all steps, on a progress thread or a device thread.
	Beside uint64
	// Offloaded are the calls that a daemon ran for this member, and OffloadNanoseconds is
	// how long it worked on them.
	Offloaded, OffloadNanoseconds uint64
}

// Writes is the number of RDMA writes that this would be without mapped memory.
func (c Counters) Writes() uint64 { return c.Puts + c.Signals + 2*c.Descriptors + c.Credits }

// steps are the counters of a machine's steps.
func (c *Counters) steps() [13]*uint64 {
	return [...]*uint64{&c.Puts, &c.PutBytes, &c.Gets, &c.GetBytes, &c.Signals, &c.Descriptors, &c.Credits,
		&c.Copies, &c.CopyBytes, &c.Unpacks, &c.UnpackBytes, &c.Reductions, &c.ReduceBytes}
}

// Add adds the counters of another team, or time.
func (c *Counters) Add(n Counters) {
	more := n.steps()
	for i, v := range c.steps() {
		*v += *more[i]
	}
	c.Calls += n.Calls
	c.Beside += n.Beside
	c.Offloaded += n.Offloaded
	c.OffloadNanoseconds += n.OffloadNanoseconds
}
