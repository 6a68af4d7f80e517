package rank

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/gorun-mpi/gorun/coll"
	"github.com/gorun-mpi/gorun/rank/internal/p2p"
)

// Idup starts a Dup (MPI_Comm_idup). The communicator may be used after the request has
// completed; before that, calls on it fail with [ErrUnfinished]. Attributes are copied
// by this call. If that or anything else fails on some rank, the request reports it on
// all ranks. All ranks call it, in the same order among their collectives on c.
func (c *Comm) Idup() (*Comm, Request, error) {
	const op = "idup"
	if err := c.exists(); err != nil {
		return nil, Request{}, c.fail(op, -1, err)
	}
	c.children++
	remote := &c.peers
	if !c.inter {
		remote = nil
	}
	d := c.child(fmt.Sprintf("%s.%s%d", c.name, op, c.children), 0, c.local, remote)
	d.layout, d.making, d.barred = c.layout, true, true
	// Callbacks may use the world; an error of theirs is of this rank alone, and the
	// others are not kept waiting.
	copied := c.copyAttributes(d)
	if err := c.enterCollective(); err != nil {
		return nil, Request{}, c.fail(op, -1, errors.Join(err, copied, d.deleteAttributes()))
	}
	defer c.world.leave()
	p := &duplication{from: c, made: d, child: c.children, failed: copied}
	if err := p.begin(); err != nil {
		return nil, Request{}, c.failCollective(op, err)
	}
	return d, c.world.newRequest(c, op).started(p), nil
}

// A duplication makes a communicator little by little.
//
//	intros    the members' intros of the new team, gathered on the old communicator
//	votes     on the highest context that members named as their next one in the round before, as in World.agree; in the first round none
//	over
//
// Only the first step takes its turn among the old communicator's collectives, on all
// ranks alike. The votes are calls of the new team, which nobody else uses yet.
//
// Several may be under way, and meet in another order on each rank. The one that comes
// first by the old communicator's number and its count of children does so on all
// ranks; while it asks for a number its members give none to others, so that it gets the
// next that it tries, and all get one in the end.
type duplication struct {
	from, made *Comm
	child      int    // of from, the how many-th
	met        bool   // the intros are gathered
	all        []byte // what is gathered
	pending    *coll.Pending
	by         *Comm // whose team gathers
	number     uint32
	failed     error // why this rank has no intro
	err        error // of a gathering, or of the lack of a member's intro
	broken     bool  // the old communicator is
	over       bool
}

var _ pending = (*duplication)(nil)
var _ advancer = (*duplication)(nil)

// begin prepares the new team and starts the first step. Whatever fails but the start,
// all others hear of it, as there is no intro then.
func (p *duplication) begin() error {
	w, d := p.from.world, p.made
	p.all = make([]byte, d.members.Size()*introLen)
	own := p.all[(d.base+d.rank)*introLen:][:introLen]
	team, intro, err := coll.PrepareTeam(w.teamConfig(d, nil))
	if err == nil {
		d.team = team
		if intro == nil {
			intro = []byte{0} // of a team of one, which nobody reads
		}
		if p.failed == nil {
			err = putIntro(own, intro)
		}
	}
	if p.failed == nil {
		p.failed = err
	}
	if err := p.gather(p.from, introLen); err != nil {
		return errors.Join(err, p.discard())
	}
	w.traffic.add(p)
	return nil
}

// gather starts an all-gather of blocks.
func (p *duplication) gather(by *Comm, block int) (err error) {
	p.pending, err = by.team.Start(&coll.Args{Kind: coll.AllGather, Recv: coll.Buffer{Mem: p.all}, Bytes: block})
	if err != nil {
		return err
	}
	p.by = by
	if by.started++; by.started == 1 {
		by.world.traffic.add(by.team)
	}
	return nil
}

// Progress goes from one step to the next.
func (p *duplication) Progress() (advanced bool) {
	for !p.over {
		done, err := p.pending.Done()
		if !done {
			return advanced
		}
		advanced, p.pending = true, nil
		if p.by.started--; p.by.started == 0 {
			p.by.world.traffic.remove(p.by.team)
		}
		if err == nil {
			err = p.next()
		} else {
			p.broken = !p.met
		}
		if err != nil {
			p.err, p.over = err, true
		}
	}
	p.from.world.traffic.remove(p)
	return advanced
}

// next takes what was gathered, and starts the next step.
func (p *duplication) next() error {
	d := p.made
	w := d.world
	if !p.met {
		p.met = true
		intros := make([][]byte, d.members.Size())
		for i := range intros {
			if intros[i] = getIntro(p.all[i*introLen:][:introLen]); intros[i] == nil {
				return &p2p.PeerError{Peer: d.members.Rank(i), Err: errors.New("it could not make the communicator")}
			}
		}
		if err := d.team.Join(intros); err != nil {
			d.team = nil
			return err
		}
		p.all = make([]byte, 8*d.members.Size())
	} else {
		all := counted(p.all)
		if all&1 != 0 {
			p.over = true
			d.context = p.number
			w.enrol(d) // also when nobody asks
			return nil
		}
		if p.number = uint32(all >> 1); p.number > lastStarted {
			return ErrContexts
		}
	}
	yes := p.number >= w.makings.nextStarted && p.first()
	if yes {
		w.makings.nextStarted = p.number + 1
	}
	binary.NativeEndian.PutUint64(p.all[8*(d.base+d.rank):], vote(w.makings.nextStarted, yes))
	return p.gather(d, 8)
}

// first tells whether no duplication comes before this one that asks for numbers too.
func (p *duplication) first() bool {
	for _, a := range p.from.world.traffic.active {
		o, ok := a.(*duplication)
		if ok && o != p && o.met && !o.over &&
			(o.from.context < p.from.context || o.from == p.from && o.child < p.child) {
			return false
		}
	}
	return true
}

func (p *duplication) done() bool { return p.over }

func (p *duplication) finish(st *Status) error {
	*st = emptyStatus
	c, d := p.from, p.made
	d.making = false
	if p.err == nil {
		d.barred = d.ended != nil
		return nil
	}
	d.freed = true
	if p.failed != nil {
		p.err = p.failed // why the others have failed too
	}
	if err := p.discard(); err != nil {
		p.err = errors.Join(p.err, err)
	}
	if !p.broken {
		return c.fail("idup", -1, p.err) // the old communicator is as it was
	}
	return c.failCollective("idup", p.err)
}

// discard gives back what there is of a communicator that nobody will have. The error
// is the attributes' callbacks'.
func (p *duplication) discard() error {
	d := p.made
	if d.team != nil {
		_ = d.team.Close() // it is of no use; the error is told
		d.world.past.Add(d.team.Counters())
		d.team = nil
	}
	return d.deleteAttributes()
}

// cancel does nothing: the others need this rank.
func (p *duplication) cancel() {}

func (p *duplication) start() error { return badClass(ClassRequest, "the request is not persistent") }
func (p *duplication) free()        {}
