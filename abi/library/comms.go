//go:build cgo && linux

package main

import (
	"hash/fnv"

	"github.com/gorun-mpi/gorun/rank"
)

// A comm is MPI_Comm. Its errors go to its handler, not to package rank's.
type comm struct {
	*rank.Comm
	owner
	named    bool // MPI's own
	weighted bool // a graph's edges have weights, also where there are none
	hints    *info
	session  *session // it stems from
	buffer   *buffer  // its own, once attached
	attributes
}

var (
	comms       = newTable[*comm](kindComm)
	world, self *comm // nil outside of Init and Finalize
	root        *comm // the world for what has no communicator, and where there are sessions alone; C has no handle of it
)

func commOf(h uintptr) *comm {
	switch h {
	case c_COMM_WORLD:
		return world
	case c_COMM_SELF:
		return self
	}
	if c := comms.find(h); c != nil {
		return *c
	}
	return nil
}

// predefine makes MPI_COMM_WORLD and MPI_COMM_SELF.
func predefine(w *rank.World) {
	world = &comm{Comm: w.Comm(), owner: owner{handle: c_COMM_WORLD, handler: fatal}, named: true}
	self = &comm{Comm: w.Self(), owner: owner{handle: c_COMM_SELF, handler: fatal}, named: true}
	world.SetName("MPI_COMM_WORLD")
	self.SetName("MPI_COMM_SELF")
	tell(c_COMM_WORLD, world.Rank(), world.Size())
	tell(c_COMM_SELF, 0, 1)
}

// base is the communicator of what belongs to none.
func base() *comm {
	if world != nil {
		return world
	}
	return root
}

// enterComm makes a communicator C's; a nil one is MPI_COMM_NULL. It has the error handler of the one that it is made from.
func (f *frame) enterComm(to ptr, from *comm, c *rank.Comm, err error) error {
	switch {
	case err != nil:
		return err
	case c == nil:
		f.putHandle(to, c_COMM_NULL)
		return nil
	}
	h, slot := comms.enter()
	fresh := &comm{Comm: c, owner: owner{handle: h}}
	fresh.setHandler(from.handler)
	fresh.of(from.session)
	c.SetName("")
	*slot = fresh
	tell(h, c.Rank(), c.Size())
	f.putHandle(to, h)
	return nil
}

// of has a communicator stem from a session, whose buffer is its own.
func (c *comm) of(s *session) {
	if c.session = s; s != nil {
		c.SetSendBuffer(s.sendBuffer())
	}
}

func mpiCommRank(f *frame, c *comm, to ptr) error {
	f.put(to, c.Rank())
	return nil
}

func mpiCommSize(f *frame, c *comm, to ptr) error {
	f.put(to, c.Size())
	return nil
}

func mpiCommRemoteSize(f *frame, c *comm, to ptr) error {
	if !c.IsInter() {
		return errIntra
	}
	f.put(to, c.RemoteSize())
	return nil
}

var (
	errIntra = wrong(c_ERR_COMM, "the communicator is no intercommunicator")
	errInter = wrong(c_ERR_COMM, "the communicator is an intercommunicator")
)

func mpiCommTestInter(f *frame, c *comm, to ptr) error {
	f.putBool(to, c.IsInter())
	return nil
}

func mpiCommGroup(f *frame, c *comm, to ptr) error { return f.putGroup(to, c.session, c.Group(), nil) }

func mpiCommRemoteGroup(f *frame, c *comm, to ptr) error {
	if !c.IsInter() {
		return errIntra
	}
	return f.putGroup(to, c.session, c.RemoteGroup(), nil)
}

func mpiCommCompare(f *frame, a, b *comm, to ptr) error {
	f.put(to, comparisons[rank.Compare(a.Comm, b.Comm)])
	return nil
}

// duplicate is MPI_Comm_dup; attributes are copied first, since a function that fails makes no communicator anywhere.
func (f *frame) duplicate(c *comm, hints *info, to ptr) error {
	if to == nil {
		return errNull
	}
	f.putHandle(to, c_COMM_NULL)
	var copies attributes
	if err := c.copyTo(&copies, c.handle); err != nil {
		return err
	}
	d, err := c.Dup(never)
	if err = f.enterComm(to, c, d, err); err != nil {
		return err
	}
	fresh := commOf(f.handleAt(to))
	fresh.attributes, fresh.hints, fresh.weighted = copies, hints, c.weighted
	return nil
}

func mpiCommDup(f *frame, c *comm, to ptr) error { return f.duplicate(c, c.hints.copy(), to) }

func mpiCommDupWithInfo(f *frame, c *comm, hints *info, to ptr) error {
	return f.duplicate(c, hints.known(commHints), to)
}

func (f *frame) startDuplicate(c *comm, hints *info, to, request ptr) error {
	if to == nil || request == nil {
		return errNull
	}
	var copies attributes
	if err := c.copyTo(&copies, c.handle); err != nil {
		return err
	}
	d, q, err := c.Idup()
	if err != nil {
		return err
	}
	if err := f.enterComm(to, c, d, nil); err != nil {
		return err
	}
	fresh := commOf(f.handleAt(to))
	fresh.attributes, fresh.hints, fresh.weighted = copies, hints, c.weighted
	return f.to(request, c).started(q, nil)
}

func mpiCommIdup(f *frame, c *comm, to, request ptr) error {
	return f.startDuplicate(c, c.hints.copy(), to, request)
}

func mpiCommIdupWithInfo(f *frame, c *comm, hints *info, to, request ptr) error {
	return f.startDuplicate(c, hints.known(commHints), to, request)
}

func mpiCommSplit(f *frame, c *comm, color, key int, to ptr) error {
	if to == nil {
		return errNull
	}
	if color == c_UNDEFINED {
		color = rank.Undefined
	} else if color < 0 {
		return wrong(c_ERR_ARG, "the color is %d: expected 0 or more, or MPI_UNDEFINED", color)
	}
	d, err := c.Split(never, color, key)
	return f.enterComm(to, c, d, err)
}

func mpiCommSplitType(f *frame, c *comm, kind, key int, hints *info, to ptr) error {
	if to == nil {
		return errNull
	}
	if guided := kind == c_COMM_TYPE_HW_GUIDED || kind == c_COMM_TYPE_RESOURCE_GUIDED; guided && hints.value("mpi_hw_resource_type") == "mpi_shared_memory" {
		kind = c_COMM_TYPE_SHARED
	}
	switch kind {
	case c_COMM_TYPE_SHARED:
		d, err := c.SplitType(never, rank.TypeShared, key)
		return f.enterComm(to, c, d, err)
	case c_UNDEFINED:
		d, err := c.SplitType(never, rank.SplitKind(rank.Undefined), key)
		return f.enterComm(to, c, d, err)
	case c_COMM_TYPE_HW_UNGUIDED, c_COMM_TYPE_HW_GUIDED, c_COMM_TYPE_RESOURCE_GUIDED:
		d, err := c.Split(never, rank.Undefined, key) // no other resource is told of: no rank has a communicator
		return f.enterComm(to, c, d, err)
	}
	return wrong(c_ERR_ARG, "no kind of split has the number %d", kind)
}

func mpiCommCreate(f *frame, c *comm, g *groupOf, to ptr) error {
	if to == nil {
		return errNull
	}
	d, err := c.Create(never, g.Group)
	return f.enterComm(to, c, d, err)
}

func mpiCommCreateGroup(f *frame, c *comm, g *groupOf, tag int, to ptr) error {
	if to == nil {
		return errNull
	}
	if f.tag(tag, false); f.err != nil {
		return f.err
	}
	if g.Rank() < 0 {
		return f.enterComm(to, c, nil, nil)
	}
	d, err := c.CreateGroup(never, g.Group, tag)
	return f.enterComm(to, c, d, err)
}

// end frees a communicator that is not MPI's own.
func (f *frame) end(at ptr, disconnect bool) error {
	h := f.handleAt(at)
	c := commOf(h)
	if c == nil {
		return badHandle(c_ERR_COMM, "communicator", h)
	}
	f.on = &c.owner
	if c.named {
		return wrong(c_ERR_COMM, "%s cannot be freed", c.Name())
	}
	if err := c.deleteAll(h); err != nil {
		return err
	}
	var err error
	switch {
	case disconnect:
		err = c.Disconnect(never)
	case c.pending > 0:
		c.last = c.Leave
	default:
		err = c.Leave()
	}
	untell(h)
	comms.leave(h)
	f.putHandle(at, c_COMM_NULL)
	c.handler.uses--
	c.handler.drop()
	return err
}

func mpiCommFree(f *frame, at ptr) error       { return f.end(at, false) }
func mpiCommDisconnect(f *frame, at ptr) error { return f.end(at, true) }

func mpiCommSetName(_ *frame, c *comm, name ptr) error {
	if name == nil {
		return errNull
	}
	s := text(name)
	c.SetName(s[:min(len(s), c_MAX_OBJECT_NAME-1)])
	return nil
}

func mpiCommGetName(f *frame, h uintptr, to, length ptr) error {
	c := commOf(h)
	if h == c_COMM_NULL {
		f.putText(to, length, c_MAX_OBJECT_NAME, "MPI_COMM_NULL")
		return nil
	}
	if c == nil {
		return badHandle(c_ERR_COMM, "communicator", h)
	}
	f.on = &c.owner
	f.putText(to, length, c_MAX_OBJECT_NAME, c.Name())
	return nil
}

func mpiCommSetInfo(_ *frame, c *comm, hints *info) error {
	c.hints = hints.known(commHints)
	return nil
}

func mpiCommGetInfo(f *frame, c *comm, to ptr) error {
	f.putInfo(to, c.hints.copy())
	return nil
}

func mpiCommGetParent(f *frame, to ptr) error {
	f.putHandle(to, c_COMM_NULL)
	return nil
}

func mpiIntercommCreate(f *frame, local *comm, leader int, peerAt uintptr, remote, tag int, to ptr) error {
	f.on = &local.owner
	switch {
	case to == nil:
		return errNull
	case local.IsInter():
		return errInter
	case leader < 0 || leader >= local.Size():
		return wrong(c_ERR_RANK, "the local leader is %d in a communicator of %d ranks", leader, local.Size())
	}
	var peer *rank.Comm
	if local.Rank() == leader {
		c := commOf(peerAt)
		if c == nil {
			return badHandle(c_ERR_COMM, "communicator", peerAt)
		}
		if f.tag(tag, false); f.err != nil {
			return f.err
		}
		peer = c.Comm
	}
	d, err := rank.CreateIntercomm(never, local.Comm, leader, peer, remote, tag)
	return f.enterComm(to, local, d, err)
}

func mpiIntercommMerge(f *frame, c *comm, high int, to ptr) error {
	if !c.IsInter() {
		return errIntra
	}
	d, err := c.Merge(never, high != 0)
	return f.enterComm(to, c, d, err)
}

// tagOf makes a tag of the string that tells the communicators apart that are made at once of the same groups.
func tagOf(at ptr) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(text(at)))
	return int(h.Sum32() % (rank.MaxTag + 1))
}

// enterHandled is enterComm for a communicator that is made of groups, and has an error handler of its own.
func (f *frame) enterHandled(to ptr, of *session, e *errhandler, c *rank.Comm, err error) error {
	if err = f.enterComm(to, root, c, err); err == nil && c != nil {
		fresh := commOf(f.handleAt(to))
		fresh.setHandler(e)
		fresh.of(of)
	}
	return err
}

// handledBy has the errors of a call that makes a communicator and is told its handler.
func handledBy(e *errhandler) *owner { return &owner{handle: c_COMM_NULL, handler: e} }

func mpiCommCreateFromGroup(f *frame, g *groupOf, tag ptr, _ *info, e *errhandler, to ptr) error {
	f.on = handledBy(e)
	if to == nil {
		return errNull
	}
	d, err := root.CreateGroup(never, g.Group, tagOf(tag))
	return f.enterHandled(to, g.session, e, d, err)
}

// mpiIntercommCreateFromGroups makes a communicator of the own group first, whose leader meets the other one's in the world.
func mpiIntercommCreateFromGroups(f *frame, mine *groupOf, leader int, others *groupOf, otherLeader int, tag ptr, _ *info, e *errhandler, to ptr) error {
	f.on = handledBy(e)
	switch {
	case to == nil:
		return errNull
	case mine.Rank() < 0:
		return wrong(c_ERR_GROUP, "this rank is not in the local group")
	case leader < 0 || leader >= mine.Size():
		return wrong(c_ERR_RANK, "the local leader is %d in a group of %d ranks", leader, mine.Size())
	case otherLeader < 0 || otherLeader >= others.Size():
		return wrong(c_ERR_RANK, "the remote leader is %d in a group of %d ranks", otherLeader, others.Size())
	}
	far, err := others.Translate([]int{otherLeader}, root.Group())
	if err != nil {
		return err
	}
	local, err := root.CreateGroup(never, mine.Group, tagOf(tag))
	if err != nil {
		return err
	}
	d, err := rank.CreateIntercomm(never, local, leader, root.Comm, far[0], tagOf(tag))
	if left := local.Leave(); err == nil {
		err = left
	}
	return f.enterHandled(to, mine.session, e, d, err)
}
