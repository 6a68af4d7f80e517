package rank

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/gorun-mpi/gorun/coll"
	"github.com/gorun-mpi/gorun/rank/internal/group"
	"github.com/gorun-mpi/gorun/rank/internal/match"
	"github.com/gorun-mpi/gorun/rank/internal/p2p"
)

// CreateIntercomm makes an intercommunicator of two groups that have no rank in common
// (MPI_Intercomm_create). All ranks of both groups call it. local is a communicator of
// the caller's group, and localLeader is a rank of it, the same on all ranks. The two
// leaders communicate through peer, with tag; remoteLeader is the rank in peer of the
// other leader. On other ranks peer and remoteLeader are ignored, and peer may be nil.
//
// On an intercommunicator Rank, Size and Group concern the caller's
// group. Peers and roots are ranks of the other group.
func CreateIntercomm(ctx context.Context, local *Comm, localLeader int, peer *Comm, remoteLeader, tag int) (*Comm, error) {
	const op = "intercomm_create"
	if err := local.enterCollective(); err != nil {
		return nil, local.fail(op, -1, err)
	}
	w := local.world
	defer w.leave()
	if err := w.makings.begin(false); err != nil {
		return nil, local.fail(op, -1, err)
	}
	defer w.makings.end()
	if local.inter {
		return nil, local.fail(op, -1, badClass(ClassComm, "the local communicator is an intercommunicator"))
	}
	// A leader out of range is one that nobody is: all choose, and all refuse.
	choices, err := local.choose(ctx, choice{color: int64(localLeader), refused: localLeader < 0 || localLeader >= local.size})
	if err != nil {
		return nil, local.failCollective(op, err)
	}
	own := choice{}
	for i := range choices {
		switch {
		case localLeader < 0 || localLeader >= local.size:
			return nil, local.fail(op, -1, badClass(ClassRank, "local leader %d in a communicator of %d ranks", localLeader, local.size))
		case choices[i].refused:
			return nil, local.fail(op, i, errRefused)
		case choices[i].color != int64(localLeader):
			return nil, local.fail(op, i, badArgument("the local leader is %d on this rank, but %d on the other", localLeader, choices[i].color))
		}
		own.context, own.concurrent = max(own.context, choices[i].context), own.concurrent || choices[i].concurrent
	}
	b := bridge{local, localLeader, peer, remoteLeader, tag}
	remote, theirs, err := b.meet(ctx, own)
	if err != nil {
		return nil, b.fail(op, err)
	}
	number, err := w.makings.agree(w.turns, making{ofGroups, fingerprintOf(&local.local, remote)}, []choice{own, theirs}, func(vote uint64) (uint64, error) { return b.vote(ctx, vote) })
	if err != nil {
		return nil, b.fail(op, err)
	}
	d := local.child(fmt.Sprintf("%s.inter(tag %d)", local.name, tag), number, local.local, remote)
	if err := w.enlist(ctx, d, d.introduceByMessages); err != nil {
		return nil, local.revoke(op, local.fail(op, -1, err))
	}
	return d, nil
}

// fingerprintOf is one of two groups, which both groups see alike.
func fingerprintOf(a, b *group.Set) uint64 { return fingerprint(a) ^ fingerprint(b) }

// A bridge is what leads from a communicator to another group: its leader talks with the leader there.
type bridge struct {
	of           *Comm
	leader       int
	peer         *Comm // the leader's
	remoteLeader int   // there
	tag          int
}

// fail is the error of the call, by what has failed: a collective of the own group revokes it.
func (b *bridge) fail(op string, err error) error {
	if ce, ok := errors.AsType[*coll.Error](err); ok {
		return b.of.failCollective(op, ce)
	}
	return b.of.fail(op, -1, err)
}

// tell has all of the own group have what the leader has, or hear that it has failed, which leaves block zero.
func (b *bridge) tell(ctx context.Context, block []byte, failure error) error {
	if failure != nil && ctx.Err() != nil {
		// The others are told all the same.
		short, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewellTime)
		defer cancel()
		ctx = short
	}
	if err := b.of.team.Run(ctx, &coll.Args{Kind: coll.Bcast, Recv: coll.Buffer{Mem: block}, Bytes: len(block), Root: b.leader}); err != nil {
		return errors.Join(failure, err)
	}
	if failure == nil && binary.NativeEndian.Uint64(block) == 0 {
		failure = &p2p.PeerError{Peer: b.of.local.Rank(b.leader), Err: errors.New("it is the local leader, and could not reach the other group")}
	}
	return failure
}

// meet has the leaders tell each other their groups and what they chose, and everybody what they learned.
func (b *bridge) meet(ctx context.Context, own choice) (*group.Set, choice, error) {
	var ranks []byte
	var failure error
	intro := make([]byte, groupIntro)
	if b.of.rank == b.leader {
		if ranks, failure = b.lead(ctx, own, intro); failure != nil {
			clear(intro)
		}
	}
	if err := b.tell(ctx, intro, failure); err != nil {
		return nil, choice{}, err
	}
	theirs, n := getGroup(intro)
	if b.of.rank != b.leader {
		ranks = make([]byte, 4*n)
	}
	if err := b.of.team.Run(ctx, &coll.Args{Kind: coll.Bcast, Recv: coll.Buffer{Mem: ranks}, Bytes: len(ranks), Root: b.leader}); err != nil {
		return nil, choice{}, err
	}
	list := make([]int32, n)
	for i := range list {
		list[i] = int32(binary.NativeEndian.Uint32(ranks[4*i:]))
		if list[i] < 0 || int(list[i]) >= b.of.world.size {
			return nil, choice{}, badClass(ClassGroup, "the other group has rank %d, but the world has %d ranks", list[i], b.of.world.size)
		}
	}
	remote, err := group.New(list)
	if err == nil && !group.Disjoint(&b.of.local, &remote) {
		err = errors.New("a rank is in both groups")
	}
	if err != nil {
		return nil, choice{}, badClass(ClassGroup, "%v", err)
	}
	return &remote, theirs, nil
}

// vote gathers votes of both groups.
func (b *bridge) vote(ctx context.Context, own uint64) (uint64, error) {
	all, err := b.of.voteAll(ctx, own)
	if err != nil {
		return 0, err
	}
	var failure error
	word := make([]byte, 8) // zero is no vote: the first number of a world is taken
	if b.of.rank == b.leader {
		var exchange func(send, recv []byte) error
		if exchange, failure = b.open(ctx); failure == nil {
			failure = exchange(binary.NativeEndian.AppendUint64(nil, all), word)
		}
		if failure == nil {
			binary.NativeEndian.PutUint64(word, together(all, binary.NativeEndian.Uint64(word)))
		} else {
			clear(word)
		}
	}
	err = b.tell(ctx, word, failure)
	return binary.NativeEndian.Uint64(word), err
}

// farewellTime bounds how long a leader that gives up tells its group so.
const farewellTime = 250 * time.Millisecond

// groupIntro is the length of a group's introduction: its context and its size, of 32 bits each, and whether its ranks may make others meanwhile.
const groupIntro = 9

func putGroup(into []byte, own choice, size int) {
	binary.NativeEndian.PutUint32(into, own.context)
	binary.NativeEndian.PutUint32(into[4:], uint32(size))
	if own.concurrent {
		into[8] = 1
	}
}

func getGroup(from []byte) (theirs choice, size int) {
	return choice{context: binary.NativeEndian.Uint32(from), concurrent: from[8] != 0}, int(binary.NativeEndian.Uint32(from[4:]))
}

// open gives the leader's way to the other one.
func (b *bridge) open(ctx context.Context) (exchange func(send, recv []byte) error, err error) {
	w := b.of.world
	switch {
	case b.peer == nil || b.peer.world != w:
		return nil, badClass(ClassComm, "the leader's peer communicator is nil or of another world")
	case b.peer.barred:
		return nil, fmt.Errorf("the peer communicator: %w", b.peer.unusable())
	}
	env, to, err := b.peer.envelope(b.peer.makingContext(), b.remoteLeader, b.tag, false)
	switch {
	case err != nil:
		return nil, err
	case b.remoteLeader == ProcNull:
		return nil, badClass(ClassRank, "the remote leader is ProcNull")
	case b.of.local.Index(to) != group.None:
		return nil, badClass(ClassRank, "the remote leader, rank %d of %s, is in the local group", b.remoteLeader, b.peer.name)
	}
	want := match.Envelope{Context: env.Context, Source: int32(to), Tag: env.Tag}
	return func(send, recv []byte) error {
		_, err := w.messages.Exchange(ctx, &p2p.Sending{Buf: send, Envelope: env, Peer: to}, &p2p.Receiving{Buf: recv, Want: want})
		return err
	}, nil
}

// lead is the leader's talk with the other one: the other group's introduction, and its ranks in the world.
func (b *bridge) lead(ctx context.Context, own choice, intro []byte) ([]byte, error) {
	exchange, err := b.open(ctx)
	if err != nil {
		return nil, err
	}
	mine := make([]byte, groupIntro)
	putGroup(mine, own, b.of.size)
	if err := exchange(mine, intro); err != nil {
		return nil, err
	}
	theirs, n := getGroup(intro)
	if n == 0 || n > b.of.world.size || theirs.context > lastContext {
		return nil, fmt.Errorf("rank %d of %s sent an invalid answer: a group of %d ranks, context %d", b.remoteLeader, b.peer.name, n, theirs.context)
	}
	ranks := make([]byte, 4*b.of.size)
	for index := range b.of.size {
		binary.NativeEndian.PutUint32(ranks[4*index:], uint32(b.of.local.Rank(index)))
	}
	other := make([]byte, 4*n)
	return other, exchange(ranks, other)
}

// IsInter reports whether c is an intercommunicator (MPI_Comm_test_inter).
func (c *Comm) IsInter() bool { return c.inter }

// RemoteSize is the size of the other group of an intercommunicator
// (MPI_Comm_remote_size), and 0 for other communicators.
func (c *Comm) RemoteSize() int {
	if !c.inter {
		return 0
	}
	return c.peers.Size()
}

// RemoteGroup is the other group of an intercommunicator
// (MPI_Comm_remote_group). It is empty for other communicators.
func (c *Comm) RemoteGroup() Group {
	if !c.inter {
		return c.world.groupOf(group.Set{})
	}
	return c.world.groupOf(c.peers)
}

// localMember and remoteMember are a rank of the own group, and one that messages
// name, as members of the team.
func (c *Comm) localMember(rank int) int  { return c.base + rank }
func (c *Comm) remoteMember(rank int) int { return c.far + rank }

// Merge makes an ordinary communicator of both groups (MPI_Intercomm_merge). All ranks of both groups call
// it, and all ranks of a group give the same value. The ranks of the group that gives high as false come
// first. If both groups give the same value, the group whose rank 0 is lower in the world comes first.
func (c *Comm) Merge(ctx context.Context, high bool) (*Comm, error) {
	const op = "merge"
	if err := c.enterCollective(); err != nil {
		return nil, c.fail(op, -1, err)
	}
	w := c.world
	defer w.leave()
	if err := w.makings.begin(false); err != nil {
		return nil, c.fail(op, -1, err)
	}
	defer w.makings.end()
	if !c.inter {
		return nil, c.fail(op, -1, badClass(ClassComm, "not an intercommunicator"))
	}
	color := int64(0)
	if high {
		color = 1
	}
	choices, err := c.choose(ctx, choice{color: color})
	if err != nil {
		return nil, c.failCollective(op, err)
	}
	first := max(c.base, c.far) // of the second group among the members
	for i := range choices {
		begin := 0
		if i >= first {
			begin = first
		}
		if choices[i].color != choices[begin].color {
			return nil, c.fail(op, c.rankOf(c.members.Rank(i)), badArgument("the ranks of one group gave different values of high"))
		}
	}
	number, err := w.makings.agree(w.turns, making{context: c.context}, choices, func(vote uint64) (uint64, error) { return c.voteAll(ctx, vote) })
	if err != nil {
		return nil, c.failNumber(op, err)
	}
	both := c.members
	if choices[0].color > choices[first].color {
		if c.base == 0 {
			both = group.Union(&c.peers, &c.local)
		} else {
			both = group.Union(&c.local, &c.peers)
		}
	}
	c.children++
	d := c.child(fmt.Sprintf("%s.%s%d", c.name, op, c.children), number, both, nil)
	if err := w.enlist(ctx, d, func(ctx context.Context, intro []byte) ([][]byte, error) { return c.introduce(ctx, d, intro) }); err != nil {
		return nil, c.failCollective(op, err)
	}
	return d, nil
}
