package wait

// A Stepper is work in small pieces, which whatever thread has time runs: the progress thread of a rank and the
// daemon of a host run started collectives by it, and a device thread of rdma/dpa whatever it is given.
//
// One thread steps at a time. Where another is at the same work, Step does nothing.
type Stepper interface {
	// Step does a piece of the work and does not wait: some 10 us of it, so that its thread has time for others.
	// It tells whether it did anything, and whether all of the work is over.
	Step() (moved, over bool)
}
