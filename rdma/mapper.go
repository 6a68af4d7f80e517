package rdma

// A Mapper is a Context that can map memory of peers into this process, if the two share memory. It is
// an optional interface of a [Context], for programs that prefer loads and stores to work requests.
type Mapper interface {
	// Peer returns the memory of the context at gid, whose endpoint must be known
	// (Endpointer). It fails with ErrNotSupported if the two share no memory.
	Peer(gid GID) (PeerMemory, error)
}

// A Witness is a Context that can detect that a peer has ended, while it
// tries to reach that peer. It is an optional interface of a [Context].
type Witness interface {
	// Gone reports whether the context at gid is known to have ended. false
	// may also mean that it was not tried.
	Gone(gid GID) bool
}

// A Mourner is a Context that takes its program's word for the end of a peer: a launcher may know of it long before
// anything shows on the network. It is an optional interface of a [Context].
type Mourner interface {
	// Mourn says that the context at gid has ended. Requests on their way there fail soon, as if nobody
	// answered, and so do later ones; requests to others need not wait for them.
	Mourn(gid GID)
}

// PeerMemory is the registered memory of a peer as this process maps it.
// Several goroutines may use it, until its context is closed.
type PeerMemory interface {
	// Map returns length bytes at addr of the peer's region rkey. It makes the checks of a request:
	// the key is valid, the range is in the region, and the region permits access (AccessRemoteRead,
	// AccessRemoteWrite). It fails with ErrNotSupported if the region is not in shared memory.
	// Deregistration does not wait for users of these bytes: the program agrees with the region's
	// owner when to stop using them. Later they may belong to another region, but access never faults.
	Map(addr uint64, rkey uint32, length int, access Access) ([]byte, error)
	// Notify ends the peer's Sleep (Sleeper), if it sleeps or is about to; otherwise it
	// costs a load. After waking, the peer sees everything that was stored before the call.
	Notify()
}
