package rma

import (
	"errors"
	"slices"

	"github.com/gorun-mpi/gorun/internal/sendq"
	"github.com/gorun-mpi/gorun/rank/internal/peers"
	"github.com/gorun-mpi/gorun/rank/internal/peers/dc"
	"github.com/gorun-mpi/gorun/rdma"
)

// A target is a rank that requests go to, with the queue pair towards it. Windows share one
// to each rank, but for dynamic ones: those ask for memory that its owner may have detached
// meanwhile, and a request that is refused breaks the queue pair for all that use it. A
// target that has failed stays with its windows and tells its error to each of them for
// ever; a window that is made later gets a new one.
type target struct {
	sendq.Queue // each request is signalled
	rank        int
	number      int      // among all, for completions
	keep        [][]byte // local memory of requests under way, by number
	connected   bool
}

// errAnew: the other side has found a queue pair broken before this one did.
var errAnew = errors.New("earlier requests to this rank failed, and a later window has replaced the queue pair")

var errClosed = errors.New("the window is closed")

// newTarget makes a target, whose queue pair is in INIT.
func (e *Engine) newTarget(rank int) (*target, error) {
	attr := QueueAttr(e.cfg.PD.Context().QueryDevice(), e.cfg.Size)
	attr.SendCQ, attr.RecvCQ = e.cq, e.cq
	qp, path, err := e.cfg.Peers.Half(rank, attr, access, e.in)
	if err != nil {
		return nil, err
	}
	return e.enlist(rank, qp, path), nil
}

// access is what peers may do with memory through a queue pair.
const access = rdma.AccessRemoteRead | rdma.AccessRemoteWrite | rdma.AccessRemoteAtomic

func (e *Engine) enlist(rank int, qp rdma.QP, connected bool) *target {
	t := &target{rank: rank, number: len(e.all), keep: make([][]byte, e.depth), connected: connected}
	t.Open(qp, e.depth)
	e.all = append(e.all, t)
	return t
}

// prepare makes the shared target of a rank, unless there is one that works.
func (e *Engine) prepare(rank int) (t *target, err error) {
	if err := e.open(); err != nil {
		return nil, err
	}
	if t = e.targets[rank]; t == nil || t.Err() != nil {
		if t, err = e.newTarget(rank); err != nil {
			return nil, err
		}
		e.targets[rank] = t
	}
	return t, nil
}

// connect connects a target with the rank's queue pair, and gives the target to use. It may
// be connected already: when the rank had not come as far with a window that was given
// up, or when it has found the queue pair broken. Then the windows that have it learn so.
func (e *Engine) connect(t *target, number uint32) (*target, error) {
	if t.QP.State() != rdma.StateInit {
		fresh, err := e.remake(t)
		if err != nil {
			return t, err
		}
		t = fresh
	}
	err := e.cfg.Peers.Connect(t.QP, t.rank, number)
	t.connected = err == nil
	return t, err
}

// remake makes a new target of an old one's queue pair.
func (e *Engine) remake(old *target) (*target, error) {
	if err := old.QP.Modify(rdma.QPAttr{State: rdma.StateReset}, rdma.QPStateMask); err != nil {
		return nil, err
	}
	e.drop(old, errAnew)
	t := e.enlist(old.rank, old.QP, false)
	old.QP = nil
	if e.targets[t.rank] == old {
		e.targets[t.rank] = t
	}
	return t, peers.Initialise(t.QP, access)
}

// drop fails a target whose queue pair does nothing any more, and gives up what is under way.
func (e *Engine) drop(t *target, err error) {
	t.Fail(err)
	for e.flying > 0 && e.Progress() {
	}
	e.flying -= t.Drop()
	clear(t.keep)
}

// closeTargets gives back the queue pairs of targets that no window uses.
func (e *Engine) closeTargets(list []*target) error {
	qps := make([]rdma.QP, 0, len(list))
	for _, t := range list {
		if t.QP != nil {
			qps = append(qps, t.QP)
		}
	}
	err := dc.CloseQPs(qps)
	for _, t := range slices.Clone(list) {
		e.drop(t, errClosed)
		t.QP = nil
		e.all[t.number] = nil
	}
	return err
}
