package rma

import (
	"errors"
	"slices"

	"github.com/gorun-mpi/gorun/rank/internal/peers"
	"github.com/gorun-mpi/gorun/rank/internal/peers/dc"
	"github.com/gorun-mpi/gorun/rdma"
)

// A link is a queue pair towards one rank. Windows share one to each rank, but for
// dynamic ones: those ask for memory that its owner may have detached meanwhile, and a
// request that is refused breaks the queue pair for whoever uses it. A link that has
// failed stays with its windows and tells its error to each of them for ever; a window
// that is made later gets a new one.
type link struct {
	rank   int
	number int // among all, for completions
	qp     rdma.QP
	// posted and done count requests for ever; a queue pair completes in order.
	posted, done uint64
	err          error
	keep         [][]byte // local memory of requests under way, by number
	connected    bool
}

// errAnew: the other side has found a link broken before this one did.
var errAnew = errors.New("requests towards this rank have failed there, and a later window has taken the queue pair")

var errClosed = errors.New("the window is closed")

// newLink makes a link, whose queue pair is in INIT.
func (e *Engine) newLink(rank int) (*link, error) {
	attr := QueueAttr(e.cfg.PD.Context().QueryDevice(), e.cfg.Size)
	attr.SendCQ, attr.RecvCQ = e.cq, e.cq
	qp, path, err := e.cfg.Peers.Half(rank, attr, access, e.in)
	if err != nil {
		return nil, err
	}
	return e.enlist(&link{rank: rank, qp: qp, connected: path}), nil
}

// access is what peers may do with memory through a link.
const access = rdma.AccessRemoteRead | rdma.AccessRemoteWrite | rdma.AccessRemoteAtomic

func (e *Engine) enlist(l *link) *link {
	l.number, l.keep = len(e.all), make([][]byte, e.depth)
	e.all = append(e.all, l)
	return l
}

// prepare makes the shared link to a rank, unless there is one that works.
func (e *Engine) prepare(rank int) (l *link, err error) {
	if err := e.open(); err != nil {
		return nil, err
	}
	if l = e.links[rank]; l == nil || l.err != nil {
		if l, err = e.newLink(rank); err != nil {
			return nil, err
		}
		e.links[rank] = l
	}
	return l, nil
}

// connect connects a link with a rank's queue pair, and gives the link to use. It may
// be connected already: when the rank had not come as far with a window that was given
// up, or when it has found the link broken. Then the windows that have it learn so.
func (e *Engine) connect(l *link, number uint32) (*link, error) {
	if l.qp.State() != rdma.StateInit {
		fresh, err := e.remake(l)
		if err != nil {
			return l, err
		}
		l = fresh
	}
	err := e.cfg.Peers.Connect(l.qp, l.rank, number)
	l.connected = err == nil
	return l, err
}

// remake makes a new link of an old one's queue pair.
func (e *Engine) remake(old *link) (*link, error) {
	if err := old.qp.Modify(rdma.QPAttr{State: rdma.StateReset}, rdma.QPStateMask); err != nil {
		return nil, err
	}
	e.fail(old, errAnew)
	e.drop(old)
	l := e.enlist(&link{rank: old.rank, qp: old.qp})
	old.qp = nil
	if e.links[l.rank] == old {
		e.links[l.rank] = l
	}
	return l, peers.Initialise(l.qp, access)
}

// drop gives up what is under way on a link whose queue pair does nothing any more.
func (e *Engine) drop(l *link) {
	for e.flying > 0 && e.Progress() {
	}
	e.flying -= int(l.posted - l.done)
	l.done = l.posted
	clear(l.keep)
}

// closeLinks gives back links that no window uses.
func (e *Engine) closeLinks(list []*link) error {
	qps := make([]rdma.QP, 0, len(list))
	for _, l := range list {
		if l.qp != nil {
			qps = append(qps, l.qp)
		}
	}
	err := dc.CloseQPs(qps)
	for _, l := range slices.Clone(list) {
		e.fail(l, errClosed)
		e.drop(l)
		l.qp = nil
		e.all[l.number] = nil
	}
	return err
}
