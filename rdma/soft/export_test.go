package soft

import "github.com/gorun-mpi/gorun/rdma"

// Idle lets the time pass in which a context's idle dynamic connections end: the test is their clock.
func Idle(c rdma.Context) {
	w := &c.(*context).p.work
	w.lull()
	w.lull()
}

// LoseDoorbells has an Adversary lose the next n rings of a context's doorbells, and then none until one has come.
func LoseDoorbells(c rdma.Context, n int) { c.(*context).p.work.chaos.choose(true, n) }

// ReadRecords has it look at doorbell records by itself again.
func ReadRecords(c rdma.Context) { c.(*context).p.work.chaos.choose(false, 0) }

func (h *chaos) choose(bus bool, lose int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.bus, h.lose = bus, lose
}
