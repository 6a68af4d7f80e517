package soft

import (
	"fmt"
	"sync/atomic"

	"github.com/gorun-mpi/gorun/internal/shm"
	"github.com/gorun-mpi/gorun/rdma"
)

// A Visitor maps the registered memory of a segment's ranks for a process that is none of
// them: a daemon that acts for ranks. It has no arena, and thus no device, but makes the same
// checks as a peer's [rdma.Mapper]. Several goroutines may use it, until the segment is closed.
type Visitor struct{ p *Provider }

// Visit is a visitor of a segment, which the caller owns and closes after the last use.
func Visit(segment *shm.Segment) (*Visitor, error) {
	l, err := layoutFor(segment.ArenaSize())
	if err != nil {
		return nil, &rdma.OpError{Op: "soft.Visit", Detail: err.Error(), Err: rdma.ErrInvalid}
	}
	return &Visitor{&Provider{segment: segment, layout: l}}, nil
}

// Peer is the memory of the rank with a number in the segment. It fails with ErrInvalid if that
// rank has no provider, which may be because it has none yet.
func (v *Visitor) Peer(rank int) (rdma.PeerMemory, error) {
	fail := func(detail string, err error) (rdma.PeerMemory, error) {
		return nil, &rdma.OpError{Op: "peer", Detail: fmt.Sprintf("rank %d of the segment: %s", rank, detail), Err: err}
	}
	arena, err := v.p.segment.Arena(rank)
	if err != nil {
		return fail(err.Error(), rdma.ErrInvalid)
	}
	if h := at[arenaHeader](arena, 0); h == nil || atomic.LoadUint64(&h.magic) != arenaMagic {
		return fail("it has no software device", rdma.ErrInvalid)
	}
	s := &peer{p: v.p, rank: rank, pidfd: -1}
	s.attach(arena)
	return s, nil
}

// Number is the peer's number in the segment that both share.
func (s *peer) Number() int { return s.rank }
