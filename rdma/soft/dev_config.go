package soft

import (
	"cmp"
	"fmt"
	"time"

	"github.com/gorun-mpi/gorun/internal/ports"
	"github.com/gorun-mpi/gorun/internal/shm"
	"github.com/gorun-mpi/gorun/rdma"
)

// Config configures a Provider. The zero value is one device "soft0" that can reach only itself.
type Config struct {
	// Names are the names of the devices; nil: "soft0".
	Names []string
	// Segment is the memory shared with the other ranks of this host. The
	// caller owns it, and closes it after the Provider. nil: a private one.
	Segment *shm.Segment
	// Rank is this provider's number in the Segment. Only one provider at a time may have it.
	Rank int
	// Host identifies the Segment: providers with equal Host connect through
	// it (and verify that), others over TCP. "" without a Segment is unique.
	Host string
	// Numbers, if not zero, shares out the numbers of queue pairs: no two providers with different Blocks have one in common.
	Numbers Numbers
	// Secret is the job's secret for TCP connections; all providers of the job have the same. nil: TCP only
	// between peers of the Segment that may not read each other's memory; other peers cannot be reached.
	Secret []byte
	// Secure encrypts the connections that Secret is for; nil: they are not encrypted. Either all providers
	// of the job have one, or none: see package softtls.
	Secure Handshake
	// Listen is the address for TCP connections, IP:port or :port; "" is "127.0.0.1:0".
	Listen string
	// Ports are the TCP ports of which it takes one where Listen names none, as "40000-40100"; "": any.
	Ports string
	// Advertise is the IP address that peers connect to; "" is that of
	// Listen, or the loopback address if Listen has none.
	Advertise string
	// Located has the GIDs say where the provider listens: peers that are all Located need no endpoint of one in another Segment,
	// and give AddEndpoint nil. It needs a Secret and an IPv4 address.
	Located bool
	// Unreached, if not nil, is told of each peer to which no connection could be made, and why, by a goroutine of its own; requests that
	// wait for it tell a timeout.
	Unreached func(peer rdma.GID, err error)
	// Detour is the address of a process of this machine that carries connections which this host cannot make itself, as gorun's agents do; "": none.
	Detour string
	// Silence is how long a peer's host may acknowledge nothing over TCP before the peer is taken for lost: by [rdma.Witness], on
	// idle connections, while one is made (20 s at least), and by requests whose queue pair has a timeout that is shorter with
	// its retries. 0 is 8 s, and for requests what their queue pair says. A longer one is for programs whose launcher decides
	// which hosts are lost, see [rdma.Mourner].
	Silence time.Duration
	// DCResponders is the number of dynamically connected initiators that can have requests
	// under way at this provider's targets at a time, from the segment and over TCP. Another
	// one gets a CNAK and waits. 0 is as many as the segment has room for, at least 16.
	DCResponders int
	// DCIdle is after how long the connection of a dynamically connected initiator that has nothing under way ends, or at twice
	// that time: the next request connects again. 0 is 10 s, and less is never.
	DCIdle time.Duration
	// Adversary, if not nil, makes the device misbehave within the rules of verbs.
	Adversary *Adversary
}

// Numbers are one block out of Blocks equal ones, at most 256, of the numbers that a queue pair may have.
type Numbers struct{ Block, Blocks int }

// next is the generation of a queue pair's number after last; 0 is before the first.
func (n Numbers) next(last uint16) uint16 {
	const all = 1 << (24 - queueBits)
	blocks := max(n.Blocks, 1)
	first, span := n.Block*(all/blocks), all/blocks
	if first == 0 {
		first, span = 1, span-1 // numbers below 1 << queueBits have a meaning in InfiniBand
	}
	return uint16(first + (max(int(last), first-1)-first+1)%span)
}

// An Adversary makes the device as unpredictable as real devices may be: it delays
// the execution of requests until a poll, reorders queue pairs against each other,
// stores payload in pieces in any order, loses doorbells and acknowledgements, repeats requests
// and pretends that no receive is posted. Seed determines its choices. A correct program gives the same
// under it; Losses and Flaps are trouble that it has to do something about.
type Adversary struct {
	Seed uint64
	// Losses: now and then a request of a reliable queue pair to a peer in the segment is never answered, and completes with WCRetryExcErr.
	Losses bool
	// Flaps: now and then the port is down for a while: EventPortErr, PortDown, EventPortActive. Requests wait, and none fails.
	Flaps bool
}

// silence is Silence, or its default.
func (c *Config) silence() time.Duration { return cmp.Or(c.Silence, goneAfter) }

func (c *Config) validate() error {
	seen := make(map[string]bool)
	for _, n := range c.Names {
		if n == "" || seen[n] {
			return &rdma.OpError{Op: "soft.New", Detail: fmt.Sprintf("found device names %q, expected names that differ and are not empty", c.Names), Err: rdma.ErrInvalid}
		}
		seen[n] = true
	}
	ranks := 1
	if c.Segment != nil {
		ranks = c.Segment.Ranks()
	}
	if c.Rank < 0 || c.Rank >= ranks {
		return &rdma.OpError{Op: "soft.New", Detail: fmt.Sprintf("found rank %d, expected 0 or more and less than the segment's %d ranks", c.Rank, ranks), Err: rdma.ErrInvalid}
	}
	if n := c.Numbers; n.Blocks < 0 || n.Blocks > 256 || n.Block < 0 || n.Block >= max(n.Blocks, 1) {
		return &rdma.OpError{Op: "soft.New", Detail: fmt.Sprintf("found block %d of %d of queue pair numbers, expected one of at most 256", n.Block, n.Blocks), Err: rdma.ErrInvalid}
	}
	if c.Silence < 0 {
		return &rdma.OpError{Op: "soft.New", Detail: fmt.Sprintf("found a silence of %v, expected 0 (the default) or more", c.Silence), Err: rdma.ErrInvalid}
	}
	if _, err := ports.Parse(c.Ports); err != nil {
		return &rdma.OpError{Op: "soft.New", Detail: err.Error(), Err: rdma.ErrInvalid}
	}
	if c.DCResponders < 0 {
		return &rdma.OpError{Op: "soft.New", Detail: fmt.Sprintf("found %d DC responders, expected 0 (the default) or more", c.DCResponders), Err: rdma.ErrInvalid}
	}
	if c.Secret != nil && len(c.Secret) < 16 {
		return &rdma.OpError{Op: "soft.New", Detail: fmt.Sprintf("found a secret of %d bytes, expected at least 16", len(c.Secret)), Err: rdma.ErrInvalid}
	}
	if c.Located && c.Secret == nil {
		return &rdma.OpError{Op: "soft.New", Detail: "found Located without a Secret, expected both: peers find each other over TCP", Err: rdma.ErrInvalid}
	}
	return nil
}
