package rank

import (
	"fmt"

	"github.com/gorun-mpi/gorun/coll"
	"github.com/gorun-mpi/gorun/rank/internal/group"
)

// Undefined as the color of [Comm.Split] leaves the caller out of every new communicator.
// [Group.Rank] and [Group.Translate] return it for a process that is not in the group
// (MPI_UNDEFINED). It is no wildcard: a receive from rank Undefined is an error.
const Undefined = -32766

const worldName = "world"

// A Comm is a communicator: an ordered group of ranks with messages and collectives of its own (MPI_Comm).
// An intercommunicator has two groups, and its messages go from one to the other; see [CreateIntercomm].
type Comm struct {
	world *World
	name  string
	rank  int // in the own group
	size  int // of the own group
	inter bool

	local group.Set // the own group
	peers group.Set // which messages and roots name: the own group, or the other one
	ranks []int32   // peers.Ranks(), nil in the world's own communicator
	// members are the team's: the own group; of an intercommunicator both, the
	// one whose rank 0 is lower in the world first. base is where the own
	// group begins in it, far where peers does.
	members   group.Set
	base, far int

	// context is what tells this communicator's messages from others'. All
	// members have agreed on it, and none of them uses it again.
	context uint32
	team    *coll.Team
	// barred: all calls are refused, for the communicator is freed, in the making by Idup, or
	// ended: a rank has called Revoke, and this is which.
	barred, freed, making bool
	ended                 error
	// revoked is the first failure of a collective, or ended.
	revoked error
	// acked are the members whose failure the program knows of, by index; see AckFailed.
	acked group.Bits
	// started is how many collectives go on by themselves, programs how many of these combine by a function of the
	// program.
	started, programs int
	// children is how many communicators were made of this one, for their names.
	children int
	habits   [coll.ExScan + 1]*habits // by kind, nil before the first; see again
	spreads  *spreadHabits            // of the v forms
	recorded int                      // collectives, in the record of calls
	handler  Errhandler
	layout   *layout // nil without a topology

	sendBuffer *SendBuffer // nil: the world's

	attributes []attribute // in the order in which they were set first
}

// Rank is the caller's rank, from 0, of an intercommunicator in its own group (MPI_Comm_rank).
func (c *Comm) Rank() int { return c.rank }

// Size is the number of ranks, of an intercommunicator in the caller's group (MPI_Comm_size).
func (c *Comm) Size() int { return c.size }

// World is the world that the communicator belongs to.
func (c *Comm) World() *World { return c.world }

// Group is the group of the communicator, of an intercommunicator the caller's (MPI_Comm_group).
func (c *Comm) Group() Group { return c.world.groupOf(c.local) }

// Name is the communicator's name in errors and logs (MPI_Comm_get_name):
// "world", or the way it was made, unless SetName has set another.
func (c *Comm) Name() string { return c.name }

// SetName changes the name on this rank (MPI_Comm_set_name).
func (c *Comm) SetName(name string) { c.name = name }

// worldRank is the rank in the world of one that messages name.
func (c *Comm) worldRank(rank int) int { return c.peers.Rank(rank) }

// rankOf is by which rank messages name one of the world, -1 when by none.
func (c *Comm) rankOf(world int) int { return c.peers.Index(world) }

// The contexts of a communicator's messages: the program's, those by which
// communicators are made, and those of sends in partitions and of their introductions.
const contexts = 4

func (c *Comm) userContext() uint32   { return contexts * c.context }
func (c *Comm) makingContext() uint32 { return contexts*c.context + 1 }
func (c *Comm) introContext() uint32  { return contexts*c.context + 2 }
func (c *Comm) partContext() uint32   { return contexts*c.context + 3 }

// Context numbers. Calls that wait take them from one half: a rank is in one such call
// at a time, so that what it offers when ranks agree about a number is still true when
// they have. An [Comm.Idup] moves on inside of other calls, and takes its numbers from
// the other half. A rank can be in half a billion communicators of either, one after the
// other.
const (
	lastContext  = 1<<29 - 1
	firstStarted = lastContext + 1
	lastStarted  = 1<<30 - 2 // p2p.Control is of the next one
)

// exists is an error for no communicator at all.
func (c *Comm) exists() error {
	if c == nil || c.world == nil {
		return badClass(ClassComm, "the communicator is nil")
	}
	return nil
}

// enter begins a call on the communicator; world.leave ends it.
func (c *Comm) enter() error {
	if err := c.exists(); err != nil {
		return err
	}
	if err := c.world.enter(); err != nil {
		return err
	}
	return c.usable()
}

// enterShort is enter with [World.enterShort].
func (c *Comm) enterShort() error {
	if err := c.exists(); err != nil {
		return err
	}
	if err := c.world.enterShort(); err != nil {
		return err
	}
	return c.usable()
}

// usable leaves the world again when the communicator is barred.
func (c *Comm) usable() error {
	if c.barred {
		return c.refuse()
	}
	return nil
}

// refuse leaves the world again and says why the communicator is barred.
func (c *Comm) refuse() error {
	defer c.world.leave() // the progress thread writes the reasons
	return c.unusable()
}

// unusable is why a communicator that is barred cannot be used.
func (c *Comm) unusable() error {
	switch {
	case c.making:
		return ErrUnfinished
	case c.freed:
		return ErrFreed
	}
	return c.ended
}

// enterAnyway is enter for the calls that a revoked communicator has left.
func (c *Comm) enterAnyway() error {
	err := c.enter()
	if err != nil && c != nil && err == c.ended {
		return c.world.enter()
	}
	return err
}

// enterCollective is enter for a call of all ranks.
func (c *Comm) enterCollective() error {
	if err := c.enter(); err != nil {
		return err
	}
	if c.revoked != nil {
		defer c.world.leave()
		return revokedBy(c.revoked)
	}
	return nil
}

// revokedBy is why a revoked communicator refuses a collective.
func revokedBy(cause error) error { return fmt.Errorf("%w: %w", ErrRevoked, cause) }

// Compare compares two communicators (MPI_Comm_compare): Ident for the same
// one, Congruent for the same groups, Similar for the same members in another
// order, otherwise Unequal. It compares intercommunicators group by group.
func Compare(a, b *Comm) Comparison {
	switch {
	case a == b:
		return Ident
	case a == nil || b == nil || a.inter != b.inter:
		return Unequal
	}
	result := max(Congruent, compareSets(&a.local, &b.local))
	if a.inter {
		result = max(result, compareSets(&a.peers, &b.peers))
	}
	return result
}
