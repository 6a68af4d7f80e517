package rank

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/gorun-mpi/gorun/rank/internal/group"
	"github.com/gorun-mpi/gorun/rank/internal/match"
	"github.com/gorun-mpi/gorun/rank/internal/p2p"
)

// CreateGroup makes a communicator of a group of ranks of c (MPI_Comm_create_group). Only the
// members call it, with the same group and tag. Calls for groups that have a common member are told
// apart by their tags, or else by their order. A rank that is not in the group gets nil at once.
func (c *Comm) CreateGroup(ctx context.Context, g Group, tag int) (*Comm, error) {
	const op = "create_group"
	if err := c.enterCollective(); err != nil {
		return nil, c.fail(op, -1, err)
	}
	defer c.world.leave()
	if err := c.world.makings.begin(false); err != nil {
		return nil, c.fail(op, -1, err)
	}
	defer c.world.makings.end()
	err := c.within(g)
	switch {
	case c.inter:
		err = badClass(ClassComm, "the communicator is an intercommunicator: expected one with a single group")
	case tag < 0 || tag > MaxTag:
		err = badClass(ClassTag, "tag %d: expected 0 to %d", tag, MaxTag)
	}
	if err != nil {
		return nil, c.fail(op, -1, err)
	}
	w := c.world
	if g.set.Index(w.rank) == group.None {
		return nil, nil
	}
	// The next context of every member, whether it may make others at the same time, and which group it thinks of.
	const blockLen = 16
	mine := make([]byte, blockLen)
	binary.NativeEndian.PutUint32(mine, w.makings.next)
	if w.turns != nil {
		mine[4] = 1
	}
	binary.NativeEndian.PutUint64(mine[8:], fingerprint(&g.set))
	// Sorted: a rank that thinks of another order meets the others, and learns it.
	meeting := g.set.Sorted()
	all, err := w.gatherFrom(ctx, &meeting, c.makingContext(), tag, mine)
	if err != nil {
		return nil, c.revoke(op, c.fail(op, -1, err))
	}
	choices := make([]choice, g.set.Size())
	for i := range choices {
		b := all[i*blockLen:]
		choices[i].context, choices[i].concurrent = binary.NativeEndian.Uint32(b), b[4] != 0
		if theirs := binary.NativeEndian.Uint64(b[8:]); theirs != binary.NativeEndian.Uint64(mine[8:]) && err == nil {
			err = c.fail(op, c.rankOf(meeting.Rank(i)), badClass(ClassGroup, "it gave another group"))
		}
	}
	if err != nil {
		return nil, err
	}
	number, err := w.makings.agree(w.turns, making{c.context, 1 + uint64(tag)}, choices, func(own uint64) (uint64, error) {
		all, err := w.gatherFrom(ctx, &meeting, c.makingContext(), tag, binary.NativeEndian.AppendUint64(nil, own))
		return counted(all), err
	})
	if err != nil {
		return nil, c.failNumber(op, err)
	}
	d := c.child(fmt.Sprintf("%s.group(tag %d)", c.name, tag), number, g.set, nil)
	if err := w.enlist(ctx, d, d.introduceByMessages); err != nil {
		return nil, c.revoke(op, c.fail(op, -1, err))
	}
	return d, nil
}

// fingerprint is a hash of the members in their order, never 0.
func fingerprint(s *group.Set) uint64 {
	h := hashInit
	for index := range s.Size() {
		h = hash(h, s.Rank(index))
	}
	return h | 1
}

// hash takes one more number into a hash (FNV-1a, of whole words).
func hash(h uint64, n int) uint64 {
	h = (h ^ uint64(n)) * 1099511628211
	return h ^ h>>29
}

const hashInit = uint64(14695981039346656037)

// hashed takes a list into a hash, and its length.
func hashed(h uint64, list []int) uint64 {
	h = hash(h, len(list))
	for _, n := range list {
		h = hash(h, n)
	}
	return h
}

// introduceByMessages exchanges the intros of c's team among its members, where
// no team of all of them exists yet. The context is new, so nothing else can be
// taken for an intro.
func (c *Comm) introduceByMessages(ctx context.Context, intro []byte) ([][]byte, error) {
	mine := make([]byte, introLen)
	if err := putIntro(mine, intro); err != nil {
		return nil, err
	}
	all, err := c.world.gatherFrom(ctx, &c.members, c.makingContext(), 0, mine)
	if err != nil {
		return nil, err
	}
	intros := make([][]byte, c.members.Size())
	for i := range intros {
		intros[i] = getIntro(all[i*introLen:][:introLen])
	}
	return intros, nil
}

// errTold is what gatherFrom fails with where another member has failed.
var errTold = errors.New("it was told that another rank failed")

// gatherFrom gathers a block of every member of a set, by index, by messages
// alone. Blocks have the same length everywhere.
//
// It is Bruck's all-gather: in step k everybody sends the blocks it has, its own
// and those of the next 2^k-1 members, to the member 2^k before it. Cost:
// log2(n) steps, n-1 blocks. Each pair of members exchanges at most one message
// in each direction, so one context and tag do. A member that fails goes on with
// empty messages, which tell the others, as they reach all in the remaining steps.
// One whose context has ended leaves them to its later calls: it waits for nothing,
// and the others are told however long the messages take to leave.
func (w *World) gatherFrom(ctx context.Context, s *group.Set, context uint32, tag int, mine []byte) ([]byte, error) {
	n, block, index := s.Size(), len(mine), s.Index(w.rank)
	blocks := make([]byte, n*block) // from the own index on
	copy(blocks, mine)
	var failure error
	for have := 1; have < n; have *= 2 {
		count := min(have, n-have)
		to, from := s.Rank((index+n-have)%n), s.Rank((index+have)%n)
		send, recv := blocks[:count*block], blocks[have*block:][:count*block]
		if failure != nil {
			send = nil
		}
		env := match.Envelope{Context: context, Source: int32(w.rank), Tag: int32(tag)}
		want := match.Envelope{Context: context, Source: int32(from), Tag: int32(tag)}
		if ctx.Err() != nil {
			w.messages.Notify(nil, env, to)
			continue
		}
		sent, st, err := w.messages.Swap(ctx, &p2p.Sending{Buf: send, Envelope: env, Peer: to}, &p2p.Receiving{Buf: recv, Want: want})
		if !sent {
			w.messages.Notify(nil, env, to)
		}
		if err == nil && st.Bytes != len(recv) {
			err = &p2p.PeerError{Peer: from, Err: errTold}
		}
		if failure == nil {
			failure = err
		}
	}
	if failure == nil {
		failure = ctx.Err() // of a member that came with a context that had ended
	}
	if failure != nil && n > 1 {
		return nil, failure
	}
	all := make([]byte, 0, n*block)
	all = append(all, blocks[(n-index)%n*block:]...)
	return append(all, blocks[:(n-index)%n*block]...), nil
}
