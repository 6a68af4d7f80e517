package soft

import (
	"fmt"

	"github.com/gorun-mpi/gorun/internal/shm"
	"github.com/gorun-mpi/gorun/rdma"
)

// Config says what a Provider stands on. The zero value is one device "soft0"
// that reaches nobody but itself.
type Config struct {
	// Names are the devices' names; none is "soft0".
	Names []string
	// Segment is the memory shared with the other ranks of this host. It
	// stays the caller's, who closes it after the Provider. Nil: a private one.
	Segment *shm.Segment
	// Rank is this provider's place in the Segment. One at a time may have it.
	Rank int
	// Host names whoever shares the Segment: two providers with equal Host
	// meet in it (which they verify), others over TCP. Without a Segment ""
	// is a name of its own.
	Host string
	// Secret is the job's secret for links over TCP, known to every provider
	// of the job. Nil: TCP only between peers of the Segment of whom the kernel keeps
	// one from the other's memory; a peer that is not in the Segment is out of reach.
	Secret []byte
	// Listen is the address for TCP links, IP:port or :port; "" is "127.0.0.1:0".
	Listen string
	// Advertise is the IP address that peers dial; "" is the one of Listen,
	// or the loopback address when Listen names none.
	Advertise string
	// DCResponders is how many dynamically connected initiators can have requests
	// under way at this provider's targets at a time, from the segment and over TCP;
	// the next gets a CNAK and waits. 0 is as many as the segment has room for, 16 at least.
	DCResponders int
	// Adversary, when not nil, makes the device misbehave as far as the rules
	// of verbs allow.
	Adversary *Adversary
}

// An Adversary delays the execution of requests until somebody polls, reorders
// queue pairs against each other, lets a payload land in pieces of any order,
// loses acknowledgements, repeats requests and pretends that no receive is
// posted: everything that real devices may do and that a device in shared
// memory never would by itself. Its choices follow from Seed.
type Adversary struct {
	Seed uint64
}

func (c *Config) validate() error {
	seen := make(map[string]bool)
	for _, n := range c.Names {
		if n == "" || seen[n] {
			return &rdma.OpError{Op: "soft.New", Detail: fmt.Sprintf("device names %q: each must be there once and not empty", c.Names), Err: rdma.ErrInvalid}
		}
		seen[n] = true
	}
	ranks := 1
	if c.Segment != nil {
		ranks = c.Segment.Ranks()
	}
	if c.Rank < 0 || c.Rank >= ranks {
		return &rdma.OpError{Op: "soft.New", Detail: fmt.Sprintf("rank %d of a segment with %d", c.Rank, ranks), Err: rdma.ErrInvalid}
	}
	if c.DCResponders < 0 {
		return &rdma.OpError{Op: "soft.New", Detail: fmt.Sprintf("%d DC responders", c.DCResponders), Err: rdma.ErrInvalid}
	}
	if c.Secret != nil && len(c.Secret) < 16 {
		return &rdma.OpError{Op: "soft.New", Detail: fmt.Sprintf("a secret of %d bytes, at least 16 are needed", len(c.Secret)), Err: rdma.ErrInvalid}
	}
	return nil
}
