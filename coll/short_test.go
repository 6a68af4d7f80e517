package coll

import (
	"sync/atomic"
	"testing"

	"github.com/gorun-mpi/gorun/internal/wait"
	"github.com/gorun-mpi/gorun/rdma"
)

// arriving is a completion queue of which one poll, as of a socket, brings a message.
type arriving struct {
	rdma.CQ
	left int // polls until then
	word uint64
}

func (a *arriving) Poll([]rdma.WC) (int, error) {
	if a.left--; a.left == 0 {
		atomic.StoreUint64(&a.word, sequenced(7))
	}
	return 0, nil
}

// A short call polls for what comes no other way, a bounded number of times, and not at all where ranks share CPUs.
func TestShortCallPolls(t *testing.T) {
	for _, c := range []struct {
		name    string
		crowded bool
		left    int
		polls   int
		comes   bool
	}{
		{"it comes", false, 5, 5, true},
		{"it comes later", false, 1000, shortPolls, false},
		{"ranks share CPUs", true, 5, 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := &arriving{left: c.left}
			team := &Team{mesh: &Mesh{cq: a}, waiter: wait.New(wait.Config{Oversubscribed: c.crowded})}
			h := team.pollFor(&a.word, 7)
			if polls := c.left - a.left; polls != c.polls || (sequenceOf(h) == 7) != c.comes {
				t.Errorf("%d polls and the message %d, want %d, and that it comes: %v", polls, sequenceOf(h), c.polls, c.comes)
			}
		})
	}
}
