package rdma

// A Mapper is a context that can hand memory of peers out as memory of this
// process, where the two share some. It is an optional ability of a Context,
// for programs that would rather load and store than post and poll.
type Mapper interface {
	// Peer gives the view of the context at gid, whose endpoint is known
	// (Endpointer). It fails with ErrNotSupported where no memory is shared.
	Peer(gid GID) (PeerMemory, error)
}

// A Witness is a context that finds out by itself when a peer has gone for good, while
// it tries to reach it. It is an optional ability of a Context.
type Witness interface {
	// Gone tells whether the context at gid is known to be no more; false may mean
	// that nobody has tried.
	Gone(gid GID) bool
}

// PeerMemory is the registered memory of one peer, as this process sees it. It
// may be used by several goroutines, and until its context is closed.
type PeerMemory interface {
	// Map gives the length bytes at addr of the peer's region rkey, after the
	// checks of a request: a live key, the range, the right that access names
	// (AccessRemoteRead, AccessRemoteWrite). It fails with ErrNotSupported
	// when the region is not in shared memory. Deregistration does not wait
	// for those who use the bytes: they end their use by agreement with the
	// region's owner. Later the bytes may be another region's, but reading
	// or writing them never faults.
	Map(addr uint64, rkey uint32, length int, access Access) ([]byte, error)
	// Notify ends the peer's Sleep (Sleeper), if it sleeps or is about to,
	// and costs a load when it does not. The peer sees all that was stored
	// before the call when it wakes.
	Notify()
}
