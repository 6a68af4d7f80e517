package soft

import "github.com/gorun-mpi/gorun/rdma"

// Idle lets the time pass in which a context's idle dynamic connections end: the test is their clock.
func Idle(c rdma.Context) {
	w := &c.(*context).p.work
	w.lull()
	w.lull()
}
