package rank

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/gorun-mpi/gorun/coll"
	"github.com/gorun-mpi/gorun/rank/internal/group"
	"github.com/gorun-mpi/gorun/rank/internal/p2p"
)

// Dup makes a communicator with the same groups, topology and error handler (MPI_Comm_dup). Attributes
// are copied as their keyvals say. All ranks call it; on an intercommunicator, all ranks of both groups.
func (c *Comm) Dup(ctx context.Context) (*Comm, error) {
	d, err := c.derive(ctx, "dup", choice{}, nil)
	if err != nil {
		return nil, err
	}
	d.layout = c.layout
	if err := c.copyAttributes(d); err != nil {
		// The others have it, and learn that this rank does not.
		err = errors.Join(err, d.deleteAttributes())
		_ = d.revoke("dup", err)
		d.release()
		return nil, c.fail("dup", -1, err)
	}
	return d, nil
}

// Split makes one communicator for each color, of the ranks that give it, ordered by key and then by rank
// (MPI_Comm_split). All ranks call it. With color [Undefined] the result is nil. On an intercommunicator
// the ranks with one color in both groups make an intercommunicator, or nil if one group has none.
func (c *Comm) Split(ctx context.Context, color, key int) (*Comm, error) {
	var bad error
	if color < 0 && color != Undefined {
		bad = badArgument("color %d: expected 0 or more, or Undefined", color)
	}
	return c.derive(ctx, "split", choice{color: int64(color), key: int64(key)}, bad)
}

// A SplitKind says what the ranks of a communicator made by [Comm.SplitType] share.
type SplitKind int

// The kinds. A rank that gives [Undefined] instead gets no communicator.
const (
	TypeShared SplitKind = iota + 1 // memory (MPI_COMM_TYPE_SHARED), which shared windows need
	TypeHost                        // the host's name, with or without shared memory
)

// SplitType is Split by what ranks share (MPI_Comm_split_type). All
// ranks call it, with the same kind or [Undefined].
func (c *Comm) SplitType(ctx context.Context, kind SplitKind, key int) (*Comm, error) {
	color, bad := Undefined, error(nil)
	switch {
	case kind == TypeShared || kind == TypeHost:
		if c.exists() == nil {
			color = c.companion(kind)
		}
	case kind != Undefined:
		bad = badArgument("split kind %d: expected TypeShared, TypeHost or Undefined", int(kind))
	}
	own := choice{color: int64(color), key: int64(key)}
	if kind != Undefined {
		own.alike = hashed(hashInit, []int{int(kind)})
	}
	return c.derive(ctx, "split", own, bad)
}

// companion is the lowest world rank of the own group with which the caller
// shares what kind says.
func (c *Comm) companion(kind SplitKind) int {
	w := c.world
	own := w.peers.Card(w.rank)
	lowest := w.rank
	for index := range c.size {
		rank := c.local.Rank(index)
		card := w.peers.Card(rank)
		// A place without a name is a segment of one rank.
		shares := card.Place == own.Place && own.Place != ""
		if kind == TypeHost {
			shares = card.Host == own.Host
		}
		if shares {
			lowest = min(lowest, rank)
		}
	}
	return lowest
}

// Create makes a communicator of a group of ranks of c (MPI_Comm_create). All ranks of c call it, and the
// members of g give the same group. Groups without common members make one communicator each. A rank that
// is in no group gives the empty group, or a group that it is not in, and gets nil. On an intercommunicator
// the result is an intercommunicator of the groups that the two sides give, or nil if one of them is empty.
func (c *Comm) Create(ctx context.Context, g Group) (*Comm, error) {
	if err := c.exists(); err != nil {
		return nil, c.fail("create", -1, err)
	}
	own := choice{color: Undefined}
	bad := c.within(g)
	if index := g.set.Index(c.world.rank); index != group.None && bad == nil {
		own = choice{color: int64(g.set.Rank(0)), key: int64(index), group: fingerprint(&g.set)}
		if c.inter {
			own.color = 0
		}
	}
	return c.derive(ctx, "create", own, bad)
}

// within tells whether all members of g are in the own group.
func (c *Comm) within(g Group) error {
	for index := range g.set.Size() {
		if rank := g.set.Rank(index); c.local.Index(rank) == group.None {
			return badClass(ClassGroup, "rank %d of the group (rank %d of the world) is not in the communicator", index, rank)
		}
	}
	return nil
}

// A choice is what a rank says when all make new communicators.
type choice struct {
	color, key int64
	context    uint32 // the next one that the rank has not used
	group      uint64 // what must come out, as a fingerprint; 0: anything
	alike      uint64 // a hash of what all that give it must give alike; 0: nothing
	balance    uint64 // is 0 in the sum of all
	refused    bool   // its arguments are wrong, so nobody gets anything
	concurrent bool   // the rank may make others at the same time
}

const choiceLen = 48

// introLen is the room for a team's intro when intros are exchanged.
const introLen = 256

// derive makes new communicators of the ranks that give the same color: an
// all-gather of choices, from which everyone works out the groups, and one of
// the new teams' intros. bad is what is wrong with the caller's arguments: all
// others hear of it.
func (c *Comm) derive(ctx context.Context, op string, own choice, bad error) (*Comm, error) {
	if err := c.enterCollective(); err != nil {
		return nil, c.fail(op, -1, err)
	}
	defer c.world.leave()
	if err := c.world.makings.begin(false); err != nil {
		return nil, c.fail(op, -1, err)
	}
	defer c.world.makings.end()
	return c.deriveInside(ctx, op, own, bad)
}

// deriveInside is derive inside of a call that makes communicators.
func (c *Comm) deriveInside(ctx context.Context, op string, own choice, bad error) (*Comm, error) {
	own.refused = bad != nil
	choices, err := c.choose(ctx, own)
	switch {
	case err != nil:
		return nil, c.failCollective(op, err)
	case bad != nil:
		return nil, c.fail(op, -1, bad)
	}
	if i, err := c.judge(choices); err != nil {
		peer := -1
		if i >= 0 {
			peer = c.rankOf(c.members.Rank(i))
		}
		return nil, c.fail(op, peer, err)
	}
	number, err := c.world.makings.agree(c.world.turns, making{context: c.context}, choices, func(word uint64) (uint64, error) { return c.voteAll(ctx, word) })
	if err != nil {
		return nil, c.failNumber(op, err)
	}
	c.children++
	var d *Comm
	if own.color != Undefined {
		local := c.chosen(choices, own.color, &c.local, c.base)
		remote := (*group.Set)(nil)
		if c.inter {
			r := c.chosen(choices, own.color, &c.peers, c.far)
			remote = &r
		}
		if remote == nil || remote.Size() > 0 {
			d = c.child(fmt.Sprintf("%s.%s%d", c.name, op, c.children), number, local, remote)
			d.layout = unevenLayout(choices)
			if op == "split" {
				d.name += fmt.Sprintf("[%d]", own.color)
			}
		}
	}
	if err := c.world.enlist(ctx, d, func(ctx context.Context, intro []byte) ([][]byte, error) { return c.introduce(ctx, d, intro) }); err != nil {
		return nil, c.failCollective(op, err)
	}
	return d, nil
}

// errRefused is what a call fails with because a peer's arguments were wrong.
var errRefused = fmt.Errorf("%w: the arguments of another rank are wrong, see the error of that rank", ErrArgument)

// choose gathers the choices of all members. It adds what is of the rank.
func (c *Comm) choose(ctx context.Context, own choice) ([]choice, error) {
	n := c.members.Size()
	all := make([]byte, n*choiceLen)
	mine := all[(c.base+c.rank)*choiceLen:]
	binary.NativeEndian.PutUint64(mine[0:], uint64(own.color))
	binary.NativeEndian.PutUint64(mine[8:], uint64(own.key))
	binary.NativeEndian.PutUint32(mine[16:], c.world.makings.next)
	if own.refused {
		mine[20] = 1
	}
	if c.world.turns != nil {
		mine[21] = 1
	}
	binary.NativeEndian.PutUint64(mine[24:], own.group)
	binary.NativeEndian.PutUint64(mine[32:], own.alike)
	binary.NativeEndian.PutUint64(mine[40:], own.balance)
	if err := c.team.Run(ctx, &coll.Args{Kind: coll.AllGather, Recv: coll.Buffer{Mem: all}, Bytes: choiceLen}); err != nil {
		return nil, err
	}
	choices := make([]choice, n)
	for i := range choices {
		b := all[i*choiceLen:]
		choices[i] = choice{
			color:   int64(binary.NativeEndian.Uint64(b[0:])),
			key:     int64(binary.NativeEndian.Uint64(b[8:])),
			context: binary.NativeEndian.Uint32(b[16:]),
			refused: b[20] != 0, concurrent: b[21] != 0,
			group:   binary.NativeEndian.Uint64(b[24:]),
			alike:   binary.NativeEndian.Uint64(b[32:]),
			balance: binary.NativeEndian.Uint64(b[40:]),
		}
	}
	return choices, nil
}

// chosen are those of a group that gave the color, by key; base is where the group
// begins among the members. Groups of different colors share a context: no rank
// is in two of them.
func (c *Comm) chosen(choices []choice, color int64, of *group.Set, base int) group.Set {
	var indices []int // in the group
	for index := range of.Size() {
		if choices[base+index].color == color {
			indices = append(indices, index)
		}
	}
	slices.SortStableFunc(indices, func(a, b int) int {
		switch ka, kb := choices[base+a].key, choices[base+b].key; {
		case ka < kb:
			return -1
		case ka > kb:
			return 1
		}
		return 0
	})
	if len(indices) == of.Size() && slices.IsSorted(indices) {
		return *of // the same, in the same memory
	}
	s, err := of.Incl(indices)
	if err != nil {
		panic("rank: " + err.Error())
	}
	return s
}

// judge finds out whether the choices fit together: an error and the member that
// it is about, -1 for nobody in particular.
func (c *Comm) judge(choices []choice) (member int, err error) {
	alike := choices[c.base+c.rank].alike
	for i := range choices {
		if choices[i].refused {
			return i, errRefused
		}
		if alike == 0 {
			alike = choices[i].alike
		}
	}
	for i := range choices {
		if choices[i].alike != 0 && choices[i].alike != alike {
			return i, badArgument("its arguments differ from those of another rank")
		}
	}
	if i := c.disagreeing(choices); i >= 0 {
		return i, badClass(ClassGroup, "not all ranks of its group gave the same group")
	}
	return -1, nil
}

// disagreeing is a member whose group is not what comes out of the choices, -1
// when there is none.
func (c *Comm) disagreeing(choices []choice) int {
	type part struct {
		color int64
		base  int
	}
	come := make(map[part]uint64) // fingerprints
	for i := range choices {
		if choices[i].group == 0 {
			continue
		}
		of, base := &c.local, c.base
		if c.inter && c.local.Index(c.members.Rank(i)) == group.None {
			of, base = &c.peers, c.far
		}
		key := part{choices[i].color, base}
		if _, known := come[key]; !known {
			s := c.chosen(choices, key.color, of, base)
			come[key] = fingerprint(&s)
		}
		if come[key] != choices[i].group {
			return i
		}
	}
	return -1
}

// child is a communicator made of c, without its team. remote is nil, or the
// other group of an intercommunicator.
func (c *Comm) child(name string, number uint32, local group.Set, remote *group.Set) *Comm {
	d := &Comm{world: c.world, name: name, rank: local.Index(c.world.rank), size: local.Size(),
		local: local, peers: local, members: local, context: number, handler: c.handler}
	if remote != nil {
		d.inter, d.peers = true, *remote
		if local.Rank(0) < remote.Rank(0) {
			d.members, d.far = group.Union(&local, remote), local.Size()
		} else {
			d.members, d.base = group.Union(remote, &local), remote.Size()
		}
	}
	d.ranks = d.peers.Ranks()
	return d
}

// enlist makes the team of a new communicator, which is nil where the rank is in
// none. meet exchanges the intros of teams, nil for a rank that has none, and gives those
// of d by member. It is called once, whatever happens, as others wait for it.
func (w *World) enlist(ctx context.Context, d *Comm, meet func(ctx context.Context, intro []byte) ([][]byte, error)) error {
	met := false
	var err error
	if d != nil {
		d.team, err = coll.NewTeam(ctx, w.teamConfig(d, func(ctx context.Context, intro []byte) ([][]byte, error) {
			met = true
			intros, err := meet(ctx, intro)
			if err != nil {
				return nil, err
			}
			for i, intro := range intros {
				if intro == nil {
					return nil, &p2p.PeerError{Peer: d.members.Rank(i), Err: errors.New("it could not make the communicator")}
				}
			}
			return intros, nil
		}))
	}
	if !met {
		if _, meeting := meet(ctx, nil); err == nil {
			err = meeting
		}
	}
	if err != nil {
		if d != nil {
			if d.team != nil {
				_ = d.team.Close() // which is of no use alone; err says why
			}
			d.purge()
			d.unhear()
		}
		return err
	}
	if d != nil {
		w.enrol(d)
	}
	return nil
}

// introduce gathers the intros of new teams from all members of c, and gives those
// of the members of d.
func (c *Comm) introduce(ctx context.Context, d *Comm, intro []byte) ([][]byte, error) {
	all := make([]byte, c.members.Size()*introLen)
	if err := putIntro(all[(c.base+c.rank)*introLen:][:introLen], intro); err != nil {
		return nil, err
	}
	if err := c.team.Run(ctx, &coll.Args{Kind: coll.AllGather, Recv: coll.Buffer{Mem: all}, Bytes: introLen}); err != nil {
		return nil, err
	}
	if d == nil {
		return nil, nil
	}
	intros := make([][]byte, d.members.Size())
	for i := range intros {
		intros[i] = getIntro(all[c.members.Index(d.members.Rank(i))*introLen:][:introLen])
	}
	return intros, nil
}

// putIntro writes an intro behind its length; nil has none.
func putIntro(into, intro []byte) error {
	if len(intro) > introLen-2 {
		return fmt.Errorf("the address of a team has %d bytes, expected at most %d", len(intro), introLen-2)
	}
	binary.NativeEndian.PutUint16(into, uint16(len(intro)))
	copy(into[2:], intro)
	return nil
}

// getIntro reads what putIntro wrote, nil when there is no intro.
func getIntro(b []byte) []byte {
	n := int(binary.NativeEndian.Uint16(b))
	if n == 0 || n > introLen-2 {
		return nil
	}
	return b[2 : 2+n]
}
