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
	if err := w.beginMaking(); err != nil {
		return nil, local.fail(op, -1, err)
	}
	defer w.endMaking()
	if local.inter {
		return nil, local.fail(op, -1, badClass(ClassComm, "the local communicator is an intercommunicator"))
	}
	// A leader out of range is one that nobody is: all choose, and all refuse.
	choices, err := local.choose(ctx, choice{color: int64(localLeader), context: w.context, refused: localLeader < 0 || localLeader >= local.size})
	if err != nil {
		return nil, local.failCollective(op, err)
	}
	for i := range choices {
		switch {
		case localLeader < 0 || localLeader >= local.size:
			return nil, local.fail(op, -1, badClass(ClassRank, "local leader %d in a communicator of %d ranks", localLeader, local.size))
		case choices[i].refused:
			return nil, local.fail(op, i, errRefused)
		case choices[i].color != int64(localLeader):
			return nil, local.fail(op, i, badArgument("the local leader is %d on this rank, but %d on the other", localLeader, choices[i].color))
		}
	}
	number, err := w.agree(choices)
	if err != nil {
		return nil, local.fail(op, -1, err)
	}
	remote, number, err := local.meetGroup(ctx, localLeader, peer, remoteLeader, tag, number)
	if err != nil {
		if ce, ok := errors.AsType[*coll.Error](err); ok {
			return nil, local.failCollective(op, ce)
		}
		return nil, local.fail(op, -1, err)
	}
	w.context = max(w.context, number+1)
	d := local.child(fmt.Sprintf("%s.inter(tag %d)", local.name, tag), number, local.local, remote)
	if err := w.enlist(ctx, d, d.introduceByMessages); err != nil {
		return nil, local.revoke(op, local.fail(op, -1, err))
	}
	return d, nil
}

// meetGroup has the leaders tell each other their groups, and everybody what they
// learned: the other group, and the context, which is at least number.
func (c *Comm) meetGroup(ctx context.Context, leader int, peer *Comm, remoteLeader, tag int, number uint32) (*group.Set, uint32, error) {
	var ranks []byte
	var failure error
	getIntro := make([]byte, groupIntro)
	if c.rank == leader {
		if number, ranks, failure = c.lead(ctx, peer, remoteLeader, tag, number); failure == nil {
			binary.NativeEndian.PutUint32(getIntro, number)
			binary.NativeEndian.PutUint32(getIntro[4:], uint32(len(ranks)/4))
		}
		if failure != nil && ctx.Err() != nil {
			// The others are told all the same.
			short, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewellTime)
			defer cancel()
			ctx = short
		}
	}
	if err := c.team.Run(ctx, &coll.Args{Kind: coll.Bcast, Recv: coll.Buffer{Mem: getIntro}, Bytes: len(getIntro), Root: leader}); err != nil {
		return nil, 0, errors.Join(failure, err)
	}
	if failure != nil {
		return nil, 0, failure
	}
	n := int(binary.NativeEndian.Uint32(getIntro[4:]))
	if n == 0 {
		return nil, 0, &p2p.PeerError{Peer: c.local.Rank(leader), Err: errors.New("it is the local leader, and could not reach the other group")}
	}
	if c.rank != leader {
		ranks = make([]byte, 4*n)
	}
	if err := c.team.Run(ctx, &coll.Args{Kind: coll.Bcast, Recv: coll.Buffer{Mem: ranks}, Bytes: len(ranks), Root: leader}); err != nil {
		return nil, 0, err
	}
	list := make([]int32, n)
	for i := range list {
		list[i] = int32(binary.NativeEndian.Uint32(ranks[4*i:]))
		if list[i] < 0 || int(list[i]) >= c.world.size {
			return nil, 0, badClass(ClassGroup, "the other group has rank %d, but the world has %d ranks", list[i], c.world.size)
		}
	}
	remote, err := group.New(list)
	if err == nil && !group.Disjoint(&c.local, &remote) {
		err = errors.New("a rank is in both groups")
	}
	if err != nil {
		return nil, 0, badClass(ClassGroup, "%v", err)
	}
	return &remote, binary.NativeEndian.Uint32(getIntro), nil
}

// farewellTime bounds how long a leader that gives up tells its group so.
const farewellTime = 250 * time.Millisecond

// groupIntro is the length of a group's introduction: context and size.
const groupIntro = 8

// lead is the leader's talk with the other one: the context that is good for both
// and the other group's ranks in the world.
func (c *Comm) lead(ctx context.Context, peer *Comm, remoteLeader, tag int, number uint32) (uint32, []byte, error) {
	w := c.world
	switch {
	case peer == nil || peer.world != w:
		return 0, nil, badClass(ClassComm, "the leader's peer communicator is nil or of another world")
	case peer.barred:
		return 0, nil, fmt.Errorf("the peer communicator: %w", peer.unusable())
	}
	env, to, err := peer.envelope(peer.makingContext(), remoteLeader, tag, false)
	switch {
	case err != nil:
		return 0, nil, err
	case remoteLeader == ProcNull:
		return 0, nil, badClass(ClassRank, "the remote leader is ProcNull")
	}
	if c.local.Index(to) != group.None {
		return 0, nil, badClass(ClassRank, "the remote leader, rank %d of %s, is in the local group", remoteLeader, peer.name)
	}
	want := match.Envelope{Context: env.Context, Source: int32(to), Tag: env.Tag}
	exchange := func(send, recv []byte) error {
		_, err := w.messages.Exchange(ctx, &p2p.Sending{Buf: send, Envelope: env, Peer: to}, &p2p.Receiving{Buf: recv, Want: want})
		return err
	}
	mine, theirs := make([]byte, groupIntro), make([]byte, groupIntro)
	binary.NativeEndian.PutUint32(mine, number)
	binary.NativeEndian.PutUint32(mine[4:], uint32(c.size))
	if err := exchange(mine, theirs); err != nil {
		return 0, nil, err
	}
	number = max(number, binary.NativeEndian.Uint32(theirs))
	n := binary.NativeEndian.Uint32(theirs[4:])
	if n == 0 || int64(n) > int64(w.size) || number > lastContext {
		return 0, nil, fmt.Errorf("rank %d of %s sent an invalid answer: a group of %d ranks, context %d", remoteLeader, peer.name, n, number)
	}
	own, ranks := make([]byte, 4*c.size), make([]byte, 4*n)
	for index := range c.size {
		binary.NativeEndian.PutUint32(own[4*index:], uint32(c.local.Rank(index)))
	}
	if err := exchange(own, ranks); err != nil {
		return 0, nil, err
	}
	return number, ranks, nil
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
	if err := w.beginMaking(); err != nil {
		return nil, c.fail(op, -1, err)
	}
	defer w.endMaking()
	if !c.inter {
		return nil, c.fail(op, -1, badClass(ClassComm, "not an intercommunicator"))
	}
	color := int64(0)
	if high {
		color = 1
	}
	choices, err := c.choose(ctx, choice{color: color, context: w.context})
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
	number, err := w.agree(choices)
	if err != nil {
		return nil, c.fail(op, -1, err)
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
