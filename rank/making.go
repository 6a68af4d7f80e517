package rank

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"slices"

	"github.com/gorun-mpi/gorun/coll"
)

// ErrContexts says that a rank has been in so many communicators that no
// number is left to tell the messages of another one apart.
var ErrContexts = errors.New("all 2^29 context numbers are used up")

// A making is a call that makes a communicator, while it asks for a number: what all its members call it. Of two that
// have a common member one comes first.
type making struct {
	context uint32 // of the communicator that it is made of, or ofGroups
	which   uint64 // of several at once of that one
}

// makings are those of a rank.
type makings struct {
	calls       int      // under way; -1: one that is alone
	asking      []making // of them, those that ask for a number
	next        uint32   // the next communicator's context, unless a member has used it
	nextStarted uint32   // that of an Idup; it may grow in any call that waits
}

// ofGroups stands for no communicator: two groups meet.
const ofGroups = math.MaxUint32

func (m making) before(o making) bool {
	return m.context < o.context || m.context == o.context && m.which < o.which
}

// A vote is what a member answers in one round: the next number that it has not used, and whether it takes the one that
// is asked for.
func vote(next uint32, yes bool) uint64 {
	word := uint64(next) << 1
	if yes {
		word |= 1
	}
	return word
}

// together is the votes of two as one: the highest number, and whether both say yes.
func together(a, b uint64) uint64 { return max(a, b)&^1 | a&b&1 }

// begin begins a call that makes a communicator or a window, and end ends it. alone: beside no other one.
func (s *makings) begin(alone bool) error {
	switch {
	case s.calls < 0 || alone && s.calls > 0:
		return ErrConcurrent
	case alone:
		s.calls = -1
	default:
		s.calls++
	}
	return nil
}

func (s *makings) end() { s.calls = max(s.calls, 1) - 1 }

// agree is the context of a new communicator: the lowest that no member has
// used. As every rank's number only grows, and all members of a communicator go
// beyond its number, no rank is ever in two of the same number, and no late
// message can be taken for one of another communicator.
//
// Where a member may make several at once, another of them may have taken the number meanwhile. So all vote, by ask, which gives
// the votes of all together:
//
//	number, the highest of the next ones --vote--> all take it: over
//	            ^------------------------------------| one does not
//
// A member takes a number that it has not used, unless it asks for one for a making that comes before this one. So the
// first of those that ask gets its number, at the latest in the second round in which all its members do.
func (s *makings) agree(turns *turns, m making, choices []choice, ask func(vote uint64) (uint64, error)) (uint32, error) {
	number, votes := uint32(0), false // not s.next, which may have grown meanwhile; see giveUp
	for i := range choices {
		number = max(number, choices[i].context)
		votes = votes || choices[i].concurrent
	}
	if !votes && number <= lastContext {
		s.next = max(s.next, number+1)
		return number, nil
	}
	asking := &s.asking
	*asking = append(*asking, m)
	defer func() {
		i := slices.Index(*asking, m)
		*asking = slices.Delete(*asking, i, i+1)
	}()
	for number <= lastContext {
		yes := number >= s.next && !slices.ContainsFunc(*asking, func(o making) bool { return o.before(m) })
		if yes {
			s.next = number + 1
		}
		all, err := ask(vote(s.next, yes))
		if err != nil || all&1 != 0 {
			return number, err
		}
		number = uint32(all >> 1)
		turns.pass() // to the one that comes first: all votes may have been there
	}
	return 0, ErrContexts
}

// failNumber is what a call fails with that has no number to give.
func (c *Comm) failNumber(op string, err error) error {
	if err == ErrContexts { // on all ranks
		return c.fail(op, -1, err)
	}
	return c.failCollective(op, err)
}

// voteAll gathers votes of all members.
func (c *Comm) voteAll(ctx context.Context, own uint64) (uint64, error) {
	all := make([]byte, 8*c.members.Size())
	binary.NativeEndian.PutUint64(all[8*(c.base+c.rank):], own)
	if err := c.team.Run(ctx, &coll.Args{Kind: coll.AllGather, Recv: coll.Buffer{Mem: all}, Bytes: 8}); err != nil {
		return 0, err
	}
	return counted(all), nil
}

// counted is votes together, of one member or more.
func counted(all []byte) uint64 {
	sum := uint64(1)
	for ; len(all) > 0; all = all[8:] {
		sum = together(sum, binary.NativeEndian.Uint64(all))
	}
	return sum
}
