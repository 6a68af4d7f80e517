package dc

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gorun-mpi/gorun/rank/internal/peers/wireup"
	"github.com/gorun-mpi/gorun/rdma"
)

const (
	// initiatorsMax is how many initiators there are at most: they are made when all others are
	// taken.
	initiatorsMax = 8
	// initiatorDepth is the send queue of an initiator.
	initiatorDepth = 64
	// batch is how many requests are posted at once.
	batch = 16
	// parkFirst is how long a path waits first whose receiver has no receives; it doubles
	// up to parkMost.
	parkFirst, parkMost = time.Millisecond, 16 * time.Millisecond
)

// Config describes a Pool.
type Config struct {
	PD   rdma.PD
	Port wireup.Port
	// Inline is the longest inline data of a request.
	Inline int
	// Find tells where a peer is. It is asked once for each, under the pool's lock.
	Find func(peer int) (rdma.AV, wireup.Target, error)
}

// A Pool is the initiators of a rank and the paths over them.
type Pool struct {
	cfg    Config
	inline int
	busy   atomic.Int32 // requests outstanding, and initiators that are to be made anew

	mu           sync.Mutex // guards what follows, and all paths, initiators and rings
	cq           rdma.CQ
	initiators   []*initiator
	line         []*Path // that wait for an initiator, in order
	parked       []*Path
	destinations map[int]destination
	paths        map[*Path]struct{}
	spare        *request
	turns        uint64
	err          error // no initiator works any more
	wcs          [batch]rdma.WC
	wrs          [batch]rdma.SendWR
}

// A destination is what requests to a peer are addressed with.
type destination struct {
	ah     rdma.AH
	target wireup.Target
}

// A initiator is an initiator. Counts are of its life.
type initiator struct {
	qp     rdma.QP
	index  int
	path   *Path       // whose requests it has, nil: it is idle, or broken
	last   destination // what it is connected with
	used   uint64
	posted uint32
	done   uint32
	broken bool // in ERR: made anew when all its completions have come
	dead   bool // and that has failed
}

// A request is one of a path that is not complete.
type request struct {
	wr     rdma.SendWR
	sge    [1]rdma.SGE
	inline []byte
	asked  bool // its completion is wanted
	id     uint64
	next   *request
}

// New makes a pool, which holds no queue pair before a path needs it.
func New(cfg Config) (*Pool, error) {
	attr := cfg.Port.Attr
	p := &Pool{cfg: cfg, inline: min(cfg.Inline, attr.MaxInlineData), destinations: make(map[int]destination), paths: make(map[*Path]struct{})}
	cq, err := cfg.PD.Context().CreateCQ(initiatorsMax * initiatorDepth)
	if err != nil {
		return nil, fmt.Errorf("dynamic connections: %w", err)
	}
	p.cq = cq
	return p, nil
}

// Queues are the initiators that the pool has made.
func (p *Pool) Queues() (qps []rdma.QP) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.initiators {
		qps = append(qps, l.qp)
	}
	return qps
}

// initAttr is how an initiator is made.
func (p *Pool) initAttr() rdma.QPInitAttr {
	return rdma.QPInitAttr{SendCQ: p.cq, Type: rdma.DCI, Cap: rdma.QPCap{MaxSendWR: initiatorDepth, MaxSendSGE: 1, MaxInlineData: p.inline}}
}

// Most is how many queue pairs a rank has at most that uses dynamic connections: these
// initiators and its target.
const Most = initiatorsMax + 1

// Close closes the initiators. All paths are closed before.
func (p *Pool) Close() error {
	errs := []error{rdma.CloseQPs(p.Queues())}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, to := range p.destinations {
		errs = append(errs, to.ah.Close())
	}
	p.initiators, p.destinations = nil, make(map[int]destination)
	p.busy.Store(0)
	if p.cq != nil {
		errs = append(errs, p.cq.Close())
		p.cq = nil
	}
	return errors.Join(errs...)
}

// Advance moves on what is under way, without waiting. It costs a load when nothing is.
func (p *Pool) Advance() {
	if p.busy.Load() == 0 {
		return
	}
	p.mu.Lock()
	p.advance()
	p.mu.Unlock()
}

// advance takes completions in and gives free initiators to those that wait.
func (p *Pool) advance() {
	if p.cq == nil {
		return
	}
	for {
		n, err := p.cq.Poll(p.wcs[:])
		for i := range n {
			p.complete(&p.wcs[i])
		}
		if err != nil {
			p.give(fmt.Errorf("completion queue of the initiators: %w", err))
			return
		}
		if n < len(p.wcs) {
			break
		}
	}
	if len(p.parked) > 0 {
		p.unpark(time.Now())
	}
	p.dispatch()
}

// complete handles a completion of an initiator: of the request with that count, and of all before.
func (p *Pool) complete(wc *rdma.WC) {
	l := p.initiators[wc.WRID>>32]
	at := uint32(wc.WRID)
	if l.broken {
		l.done = at
		p.remake(l)
		return
	}
	path := l.path
	if wc.Status == rdma.WCSuccess {
		path.wait = 0
		p.retire(l, at)
		p.pass(l)
		return
	}
	p.retire(l, at-1)
	l.done = at
	l.broken, l.path, path.initiator = true, nil, nil
	p.busy.Add(1)
	if wc.Status == rdma.WCRNRRetryExcErr {
		path.next = path.head
		p.park(path)
	} else {
		p.fail(path, wc.Status)
	}
	p.remake(l)
}

// retire ends the requests of an initiator up to a count.
func (p *Pool) retire(l *initiator, upTo uint32) {
	for l.done != upTo {
		l.done++
		r := l.path.pop()
		if r.asked {
			l.path.cq.push(rdma.WC{WRID: r.id, Status: rdma.WCSuccess, QPNum: l.path.Num()})
		}
		p.recycle(r)
	}
}

// pass goes on with an initiator whose requests may be complete.
func (p *Pool) pass(l *initiator) {
	path := l.path
	if l.done != l.posted {
		p.send(path)
		return
	}
	if path.next != nil && len(p.line) == 0 {
		p.send(path)
		return
	}
	l.path, path.initiator = nil, nil
	if path.next != nil {
		p.queue(path)
	}
}

// queue puts a path at the end of the line.
func (p *Pool) queue(path *Path) {
	path.queued = true
	p.line = append(p.line, path)
}

// dispatch gives initiators to those in line.
func (p *Pool) dispatch() {
	for len(p.line) > 0 {
		path := p.line[0]
		l := p.initiator(path.to)
		if l == nil {
			if p.err != nil {
				p.give(p.err)
			}
			return
		}
		n := copy(p.line, p.line[1:])
		p.line[n] = nil
		p.line = p.line[:n]
		path.queued = false
		p.take(path, l)
	}
}

// take puts a path on an initiator.
func (p *Pool) take(path *Path, l *initiator) {
	p.turns++
	l.path, l.last, l.used, path.initiator = path, path.to, p.turns, l
	p.send(path)
}

// initiator is an idle initiator, the one that is connected with the destination, or was used longest ago;
// nil: there is none.
func (p *Pool) initiator(to destination) *initiator {
	var found *initiator
	working := 0
	for _, l := range p.initiators {
		if l.dead {
			continue
		}
		working++
		if l.path != nil || l.broken {
			continue
		}
		if l.last == to {
			return l
		}
		if found == nil || l.used < found.used {
			found = l
		}
	}
	if len(p.initiators) == initiatorsMax || found != nil && found.last == (destination{}) {
		if working == 0 {
			p.err = errNoInitiator
		}
		return found
	}
	// A connection of its own for each peer, as long as there are that few.
	l, err := p.newInitiator()
	if err != nil {
		if working == 0 {
			p.err = err
		}
		return found
	}
	return l
}

var errNoInitiator = errors.New("no initiator works any more")

func (p *Pool) newInitiator() (*initiator, error) {
	qp, err := p.cfg.PD.CreateQP(p.initAttr())
	if err != nil {
		return nil, err
	}
	if err := wireup.Initiate(qp, p.cfg.Port); err != nil {
		return nil, errors.Join(err, qp.Close())
	}
	l := &initiator{qp: qp, index: len(p.initiators)}
	p.initiators = append(p.initiators, l)
	return l, nil
}

// remake makes a broken initiator anew when nothing of its earlier life is to come.
func (p *Pool) remake(l *initiator) {
	if l.done != l.posted {
		return
	}
	p.busy.Add(-1)
	l.broken, l.last = false, destination{}
	err := l.qp.Modify(rdma.QPAttr{State: rdma.StateReset}, rdma.QPStateMask)
	if err == nil {
		err = wireup.Initiate(l.qp, p.cfg.Port)
	}
	l.dead = err != nil
}

// send posts requests of a path as far as its initiator has room.
func (p *Pool) send(path *Path) {
	l := path.initiator
	if len(p.line) > 0 && l.posted != l.done {
		return // when these are complete it is the turn of others
	}
	for path.next != nil {
		room := min(initiatorDepth-int(l.posted-l.done), batch)
		if room == 0 {
			return
		}
		n := 0
		for r := path.next; r != nil && n < room; r = r.next {
			w := &p.wrs[n]
			*w = r.wr
			n++
			w.WRID = uint64(l.index)<<32 | uint64(l.posted+uint32(n))
		}
		p.wrs[n-1].Flags |= rdma.SendSignaled
		took, err := l.qp.PostSend(p.wrs[:n])
		for range took {
			path.next = path.next.next
		}
		l.posted += uint32(took)
		clear(p.wrs[:n])
		if err != nil {
			// A request that the device refuses: nothing of the path goes on.
			p.stop(path, rdma.WCLocQPOpErr)
			return
		}
	}
}

// stop fails a path and takes it off its initiator: nothing of it is executed afterwards.
func (p *Pool) stop(path *Path, status rdma.WCStatus) {
	if l := path.initiator; l != nil {
		l.path, path.initiator = nil, nil
		if l.posted != l.done {
			l.broken = true
			p.busy.Add(1)
			// An error means that it is in ERR or gone.
			_ = l.qp.Modify(rdma.QPAttr{State: rdma.StateErr}, rdma.QPStateMask)
		}
	}
	p.fail(path, status)
}

// fail ends all requests of a path: the first with the status, the others flushed. It is on
// no initiator.
func (p *Pool) fail(path *Path, status rdma.WCStatus) {
	path.failed = true
	if path.queued {
		path.queued = false
		p.line = without(p.line, path)
		p.parked = without(p.parked, path)
	}
	for path.head != nil {
		r := path.pop()
		path.cq.push(rdma.WC{WRID: r.id, Status: status, QPNum: path.Num()})
		p.recycle(r)
		status = rdma.WCWRFlushErr
	}
}

// give gives up: no path works any more.
func (p *Pool) give(err error) {
	p.err = err
	for path := range p.paths {
		path.initiator = nil
		p.fail(path, rdma.WCFatalErr)
	}
}

func without(list []*Path, path *Path) []*Path {
	for i, q := range list {
		if q == path {
			return append(list[:i], list[i+1:]...)
		}
	}
	return list
}

// park has a path wait for its receiver.
func (p *Pool) park(path *Path) {
	path.wait = min(max(2*path.wait, parkFirst), parkMost)
	path.again = time.Now().Add(path.wait)
	path.queued = true
	p.parked = append(p.parked, path)
}

// unpark puts those whose time is over into the line.
func (p *Pool) unpark(now time.Time) {
	kept := p.parked[:0]
	for _, path := range p.parked {
		if now.Before(path.again) {
			kept = append(kept, path)
		} else {
			p.line = append(p.line, path)
		}
	}
	clear(p.parked[len(kept):])
	p.parked = kept
}

// record copies a request.
func (p *Pool) record(wr *rdma.SendWR, to destination) *request {
	r := p.spare
	if r == nil {
		r = new(request)
	} else {
		p.spare = r.next
	}
	p.busy.Add(1)
	r.wr, r.id, r.asked, r.next = *wr, wr.WRID, wr.Flags&rdma.SendSignaled != 0, nil
	r.wr.Flags &^= rdma.SendSignaled
	if wr.Flags&rdma.SendInline != 0 {
		r.inline = append(r.inline[:0], wr.Inline...)
		r.wr.Inline = r.inline
	}
	if len(wr.SGL) > 0 {
		r.sge[0] = wr.SGL[0]
		r.wr.SGL = r.sge[:]
	}
	r.wr.AH, r.wr.RemoteQPN, r.wr.DCAccessKey = to.ah, to.target.Number, to.target.Key
	return r
}

func (p *Pool) recycle(r *request) {
	p.busy.Add(-1)
	r.wr = rdma.SendWR{}
	r.next = p.spare
	p.spare = r
}
