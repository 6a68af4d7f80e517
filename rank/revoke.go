package rank

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/gorun-mpi/gorun/coll"
	"github.com/gorun-mpi/gorun/rank/internal/group"
	"github.com/gorun-mpi/gorun/rank/internal/match"
	"github.com/gorun-mpi/gorun/rank/internal/p2p"
)

// Failures of processes are MPI's User Level Failure Mitigation. A call that needs a dead process fails
// with ErrProcFailed, and all others go on. A program that sees it does, in this order:
//
//	Revoke   all ranks that wait for each other on the communicator stop, so that
//	Shrink   all survivors come here, and get a communicator without the dead
//
// Agree tells all survivors the same about what each of them knows. None of these
// costs a job anything in which nobody dies: words between ranks are messages that no receive takes
// (p2p.Control), and a rank that hears none looks at the length of a slice.

// heard is such a word.
type heard struct {
	from int // in the world
	tag  int32
	data []byte
}

// news are what other ranks have told of failures.
type news struct {
	heard      []heard               // to be served
	agreements map[uint32]*agreement // by context
	early      map[uint32]int        // who has revoked the communicator of a context that is not made here yet
}

// The tags of such words. Each begins with the communicator's context, of four bytes.
const (
	tagRevoke int32 = iota
	tagAgree        // the rest is the agreement's
)

// hear keeps a word until it can be answered: the engine is in the middle of its work.
func (n *news) hear(from int, tag int32, data []byte) {
	if len(data) >= 4 {
		n.heard = append(n.heard, heard{from, tag, data})
	}
}

// say sends a word to a rank of the world, now or in a later call.
func (w *World) say(to int, tag int32, context uint32, rest []byte) {
	word := append(binary.LittleEndian.AppendUint32(make([]byte, 0, 4+len(rest)), context), rest...)
	w.messages.Notify(word, match.Envelope{Context: p2p.Control, Source: int32(w.rank), Tag: tag}, to)
}

// serve handles the words that have come. Nothing in them is believed.
func (w *World) serve() {
	words := w.news.heard
	w.news.heard = nil // what is sent here to the rank itself comes anew
	for _, h := range words {
		context := binary.LittleEndian.Uint32(h.data)
		var c *Comm // nil: none that is open
		if i := slices.IndexFunc(w.comms, func(o *Comm) bool { return o.context == context }); i >= 0 {
			c = w.comms[i]
		}
		switch {
		case context > lastStarted:
		case h.tag == tagAgree:
			w.agreeing(c, context, h)
		case h.tag != tagRevoke:
		case c != nil:
			if c.members.Index(h.from) != group.None {
				c.end(h.from)
			}
		case !w.messages.Purged(contexts * context): // to come
			if w.news.early == nil {
				w.news.early = make(map[uint32]int)
			}
			w.news.early[context] = h.from
		}
	}
}

// enrol adds a communicator that is made now. Other members had it before, and may have revoked it.
func (w *World) enrol(c *Comm) {
	w.comms = append(w.comms, c)
	if by, revoked := w.news.early[c.context]; revoked {
		delete(w.news.early, c.context)
		if c.members.Index(by) != group.None {
			c.end(by)
		}
	}
}

// Revoke ends all calls on the communicator, here and in all other ranks, with ErrRevoked (MPIX_Comm_revoke):
// those that wait now, at once, and all later ones. It does not wait for the others, who need not call it.
// [Comm.Agree], [Comm.Shrink], [Comm.Failed] and [Comm.Free] remain, and so do windows that were made of it.
func (c *Comm) Revoke() error {
	if err := c.enterAnyway(); err != nil {
		return c.fail("revoke", -1, err)
	}
	defer c.world.leave()
	if c.ended == nil {
		for index := range c.members.Size() {
			if to := c.members.Rank(index); to != c.world.rank {
				c.world.say(to, tagRevoke, c.context, nil)
			}
		}
	}
	c.end(c.world.rank)
	return nil
}

// Revoked reports whether a rank has called Revoke, as far as this one has heard (MPIX_Comm_is_revoked).
func (c *Comm) Revoked() bool {
	if c.enterAnyway() == nil { // a progress thread may hear of it now
		defer c.world.leave()
	}
	return c.ended != nil
}

// end has the communicator revoked by a rank of the world. Each member that hears of it passes it on to
// some, for the rank that revoked may have died before it had told all: to those 1, 2, 4 ... behind it, or where
// one of these has died to the next that lives. So it takes more deaths than there are such powers, all
// before their neighbours hear of them, that one member is left out.
func (c *Comm) end(by int) {
	if c.ended != nil {
		return
	}
	w, n := c.world, c.members.Size()
	who := fmt.Sprintf("rank %d of the world", by)
	if by == w.rank {
		who = "this rank"
	}
	c.ended = fmt.Errorf("%w: %s has called Revoke", ErrRevoked, who)
	c.barred = true
	if by != w.rank {
		own := c.members.Index(w.rank)
		for step := 1; step < n; step *= 2 {
			for index := (own + step) % n; index != own; index = (index + 1) % n {
				if to := c.members.Rank(index); !w.messages.Unreachable(to) {
					w.say(to, tagRevoke, c.context, nil)
					break
				}
			}
		}
	}
	for k := range uint32(contexts) {
		w.messages.Revoke(contexts*c.context + k)
	}
	if c.revoked == nil {
		c.revoked = c.ended
		c.team.Revoke("revoke", fmt.Errorf("%w: %s has called Revoke", coll.ErrRevoked, who))
	}
}

// failed are the members known to have failed, by rank in the world.
func (c *Comm) failed() (ranks []int) {
	for index := range c.members.Size() {
		a := c.world.news.agreements[c.context]
		if rank := c.members.Rank(index); c.world.messages.Unreachable(rank) || a != nil && a.machine != nil && a.machine.IsDown(index) {
			ranks = append(ranks, rank)
		}
	}
	return ranks
}

// Failed is the group of the members that this rank knows to have failed (MPIX_Comm_get_failed): their processes
// have died, or nothing reaches them. Other ranks may know of others; [Comm.Agree] makes them know the same.
// Of an intercommunicator it is of both groups.
func (c *Comm) Failed() (Group, error) {
	if err := c.enterAnyway(); err != nil {
		return Group{}, c.fail("failed", -1, err)
	}
	defer c.world.leave()
	return c.inWorld("failed", c.failed())
}

// AckFailed is Failed, and the program's word that it knows of them (MPIX_Comm_ack_failed). Receives from
// [AnySource] fail when a member has failed that this rank has not acknowledged, as the message might have been
// that member's, and so does [Comm.Agree], in all ranks.
func (c *Comm) AckFailed() (Group, error) {
	if err := c.enterAnyway(); err != nil {
		return Group{}, c.fail("ack_failed", -1, err)
	}
	defer c.world.leave()
	failed := c.failed()
	for _, rank := range failed {
		c.acked = c.acked.With(c.members.Index(rank), c.members.Size())
	}
	// Who may send what a receive takes from any source.
	c.ranks = make([]int32, 0, c.peers.Size())
	for index := range c.peers.Size() {
		if rank := c.peers.Rank(index); !c.acked.Has(c.members.Index(rank)) {
			c.ranks = append(c.ranks, int32(rank))
		}
	}
	return c.inWorld("ack_failed", failed)
}

// inWorld is a group by ranks in the world.
func (c *Comm) inWorld(op string, ranks []int) (Group, error) {
	g, err := c.world.Group().Incl(ranks)
	if err != nil {
		return Group{}, c.fail(op, -1, err)
	}
	return g, nil
}
