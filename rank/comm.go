package rank

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/gorun-mpi/gorun/coll"
	"github.com/gorun-mpi/gorun/rank/internal/p2p"
)

// Undefined as a color leaves the caller out of every new communicator (MPI_UNDEFINED).
const Undefined = -1

const worldName = "world"

// A Comm is a communicator: an ordered group of ranks whose messages and
// collectives are apart from every other communicator's (MPI_Comm).
type Comm struct {
	world *World
	name  string
	rank  int
	size  int
	// ranks are the members' ranks in the world, nil in the world's own.
	ranks []int32
	// inverse is the opposite: sorted by rank in the world.
	inverse []inverse
	// context is what tells this communicator's messages from others'. It is
	// agreed on by all members, and never used again by any of them.
	context uint32
	team    *coll.Team
	freed   bool
	// revoked is the first failure of a collective.
	revoked error
	// children is how many communicators were made of this one, for their names.
	children int
}

type inverse struct{ world, rank int32 }

// Rank is the caller's rank, from 0 (MPI_Comm_rank).
func (c *Comm) Rank() int { return c.rank }

// Size is the number of ranks (MPI_Comm_size).
func (c *Comm) Size() int { return c.size }

// World is the world that the communicator is part of.
func (c *Comm) World() *World { return c.world }

// Name is "world", or how the communicator was made of it, for messages.
func (c *Comm) Name() string { return c.name }

// worldRank is the rank in the world of one in the communicator.
func (c *Comm) worldRank(rank int) int {
	if c.ranks == nil {
		return rank
	}
	return int(c.ranks[rank])
}

// rankOf is the rank in the communicator of one in the world, -1 when it is not
// a member.
func (c *Comm) rankOf(world int) int {
	if c.ranks == nil {
		return world
	}
	i, found := slices.BinarySearchFunc(c.inverse, int32(world), func(e inverse, w int32) int { return int(e.world - w) })
	if !found {
		return -1
	}
	return int(c.inverse[i].rank)
}

// contexts of a communicator's messages: the program's, and those of the
// collectives that are made of messages.
func (c *Comm) userContext() uint32  { return 2 * c.context }
func (c *Comm) innerContext() uint32 { return 2*c.context + 1 }

// enter begins a call on the communicator; world.leave ends it.
func (c *Comm) enter() error {
	if err := c.world.enter(); err != nil {
		return err
	}
	if c.freed {
		c.world.leave()
		return ErrFreed
	}
	return nil
}

// enterCollective is enter for a call of all ranks.
func (c *Comm) enterCollective() error {
	if err := c.enter(); err != nil {
		return err
	}
	if c.revoked != nil {
		c.world.leave()
		return fmt.Errorf("%w: %w", ErrRevoked, c.revoked)
	}
	return nil
}

// fail makes an *Error of what went wrong. peer is a rank of the communicator,
// -1 when nobody in particular; the error may know better.
func (c *Comm) fail(op string, peer int, err error) error {
	e := &Error{Op: op, Comm: c.name, Rank: c.rank, Host: c.world.Host(), Peer: peer, Err: err}
	if pe, ok := errors.AsType[*p2p.PeerError](err); ok {
		if e.Peer = c.rankOf(pe.Peer); e.Peer >= 0 && err == error(pe) {
			e.Err = pe.Err
		}
	}
	if te, ok := errors.AsType[*p2p.TruncateError](err); ok {
		e.Err = &TruncateError{Message: te.Message, Buffer: te.Buffer}
	}
	if e.Peer >= 0 {
		e.PeerHost = c.world.HostOf(c.worldRank(e.Peer))
	}
	return e
}

// failCollective is fail for an error of the collectives: unless it was a
// mistake of the call itself, the communicator is revoked by it.
func (c *Comm) failCollective(op string, err error) error {
	peer := -1
	if ce, ok := errors.AsType[*coll.Error](err); ok {
		peer, err = ce.Peer, ce.Err
	}
	switch {
	case errors.Is(err, coll.ErrArgument):
		return c.fail(op, peer, err)
	case errors.Is(err, coll.ErrBusy):
		return c.fail(op, peer, ErrConcurrent)
	case errors.Is(err, coll.ErrPeerDead):
		err = ErrPeerDied
		if peer >= 0 {
			if why := c.world.messages.Check(c.worldRank(peer)); why != nil {
				if pe, ok := errors.AsType[*p2p.PeerError](why); ok {
					err = pe.Err
				}
			}
		}
	case errors.Is(err, coll.ErrRevoked):
		err = fmt.Errorf("%w: %w", ErrRevoked, err)
	}
	return c.revoke(op, c.fail(op, peer, err))
}

// revoke takes down that a collective failed here, and tells the other ranks,
// who may not know, and would wait for this one in their next.
func (c *Comm) revoke(op string, err error) error {
	if c.revoked == nil {
		c.revoked = err
		c.team.Revoke(op, err)
	}
	return err
}

// Dup makes a communicator of the same ranks (MPI_Comm_dup). All ranks call it.
func (c *Comm) Dup(ctx context.Context) (*Comm, error) {
	d, err := c.derive(ctx, "dup", 0, c.rank)
	if err != nil {
		return nil, err
	}
	return d, nil
}

// Split makes a communicator of each set of ranks that give the same color,
// ordered by key and then by rank (MPI_Comm_split). All ranks call it; with
// color Undefined the communicator is nil.
func (c *Comm) Split(ctx context.Context, color, key int) (*Comm, error) {
	if color < 0 && color != Undefined {
		return nil, c.fail("split", -1, badArgument("color %d: 0 or more, or Undefined", color))
	}
	return c.derive(ctx, "split", color, key)
}

// A choice is what a rank says in a split.
type choice struct {
	color, key int64
	context    uint32 // the next one that the rank has not used
}

const choiceLen = 24

// introLen is the room for a team's card in the second exchange of a split.
const introLen = 256

// derive makes new communicators: an all-gather of choices, from which everyone
// works out the groups, and one of the new teams' cards.
func (c *Comm) derive(ctx context.Context, op string, color, key int) (*Comm, error) {
	if err := c.enterCollective(); err != nil {
		return nil, c.fail(op, -1, err)
	}
	defer c.world.leave()
	choices, err := c.choose(ctx, choice{color: int64(color), key: int64(key), context: c.world.context})
	if err != nil {
		return nil, c.failCollective(op, err)
	}
	d := c.group(op, choices)
	var intro []byte
	exchange := func(ctx context.Context, mine []byte) ([][]byte, error) {
		intro = mine
		all, err := c.introduce(ctx, mine)
		if err != nil || d == nil {
			return nil, err
		}
		cards := make([][]byte, d.size)
		for i := range cards {
			cards[i] = all[c.rankOf(d.worldRank(i))]
			if cards[i] == nil {
				return nil, &coll.Error{Op: op, Rank: c.rank, Peer: c.rankOf(d.worldRank(i)), Err: errors.New("it could not make the communicator")}
			}
		}
		return cards, nil
	}
	if d != nil {
		d.team, err = coll.NewTeam(ctx, c.world.teamConfig(d, exchange))
	}
	if intro == nil {
		// This rank is in no new communicator, alone in its own, or could not
		// make it; the others exchange cards all the same.
		if _, meeting := c.introduce(ctx, nil); err == nil {
			err = meeting
		}
	}
	if err != nil {
		if d != nil && d.team != nil {
			_ = d.team.Close() // which is of no use alone; err says why
		}
		return nil, c.failCollective(op, err)
	}
	if d == nil {
		return nil, nil
	}
	c.world.comms = append(c.world.comms, d)
	return d, nil
}

// choose gathers everybody's choice.
func (c *Comm) choose(ctx context.Context, own choice) ([]choice, error) {
	all := make([]byte, c.size*choiceLen)
	mine := all[c.rank*choiceLen:]
	binary.NativeEndian.PutUint64(mine[0:], uint64(own.color))
	binary.NativeEndian.PutUint64(mine[8:], uint64(own.key))
	binary.NativeEndian.PutUint32(mine[16:], own.context)
	if err := c.team.AllGather(ctx, coll.Buffer{}, coll.Buffer{Mem: all}, choiceLen); err != nil {
		return nil, err
	}
	choices := make([]choice, c.size)
	for i := range choices {
		b := all[i*choiceLen:]
		choices[i] = choice{
			color:   int64(binary.NativeEndian.Uint64(b[0:])),
			key:     int64(binary.NativeEndian.Uint64(b[8:])),
			context: binary.NativeEndian.Uint32(b[16:]),
		}
	}
	return choices, nil
}

// group works out the communicator that the choices put this rank in, nil when
// in none. Groups of different colors share a context: no rank is in two of them.
func (c *Comm) group(op string, choices []choice) *Comm {
	context := uint32(0)
	for i := range choices {
		context = max(context, choices[i].context)
	}
	c.world.context = context + 1
	c.children++
	own := choices[c.rank]
	if own.color == Undefined {
		return nil
	}
	var members []int // ranks in c
	for i := range choices {
		if choices[i].color == own.color {
			members = append(members, i)
		}
	}
	slices.SortStableFunc(members, func(a, b int) int {
		switch {
		case choices[a].key < choices[b].key:
			return -1
		case choices[a].key > choices[b].key:
			return 1
		}
		return 0
	})
	d := &Comm{world: c.world, name: fmt.Sprintf("%s.%s%d", c.name, op, c.children), size: len(members), context: context,
		ranks: make([]int32, len(members)), inverse: make([]inverse, len(members))}
	if op == "split" {
		d.name += fmt.Sprintf("[%d]", own.color)
	}
	for i, r := range members {
		if r == c.rank {
			d.rank = i
		}
		world := int32(c.worldRank(r))
		d.ranks[i], d.inverse[i] = world, inverse{world, int32(i)}
	}
	slices.SortFunc(d.inverse, func(a, b inverse) int { return int(a.world - b.world) })
	return d
}

// introduce gathers the cards of new teams by rank in c; nil for a rank without.
func (c *Comm) introduce(ctx context.Context, card []byte) ([][]byte, error) {
	if len(card) > introLen-2 {
		return nil, fmt.Errorf("a team's card has %d bytes, and there is room for %d", len(card), introLen-2)
	}
	all := make([]byte, c.size*introLen)
	mine := all[c.rank*introLen:]
	binary.NativeEndian.PutUint16(mine, uint16(len(card)))
	copy(mine[2:introLen], card)
	if err := c.team.AllGather(ctx, coll.Buffer{}, coll.Buffer{Mem: all}, introLen); err != nil {
		return nil, err
	}
	cards := make([][]byte, c.size)
	for i := range cards {
		b := all[i*introLen : (i+1)*introLen]
		if n := int(binary.NativeEndian.Uint16(b)); n > 0 && n <= introLen-2 {
			cards[i] = b[2 : 2+n]
		}
	}
	return cards, nil
}

// Free gives the communicator back (MPI_Comm_free). All ranks call it, when all
// their calls on it have returned. The world's own is freed by Finalize.
func (c *Comm) Free(ctx context.Context) error {
	w := c.world
	if c == w.comm {
		return c.fail("free", -1, badArgument("the world's communicator is freed by Finalize"))
	}
	if err := c.enter(); err != nil {
		return c.fail("free", -1, err)
	}
	defer w.leave()
	c.freed = true
	var err error
	if c.revoked == nil {
		err = c.team.Free(ctx)
	} else {
		err = c.team.Close()
	}
	w.messages.Purge(c.userContext())
	w.messages.Purge(c.innerContext())
	add(&w.past, c.team.Counters())
	w.comms = slices.DeleteFunc(w.comms, func(o *Comm) bool { return o == c })
	if err != nil {
		return c.failCollective("free", err)
	}
	return nil
}
