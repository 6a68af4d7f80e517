package rdma

import "sync"

// A DCTarget is the destination of dynamically connected requests.
type DCTarget struct {
	AH  AH
	Num uint32 // the target's queue pair number
	Key uint64 // its access key
}

// A DCIPool shares a few initiators among many targets. An initiator must connect again at each change
// of its target. Therefore the requests of a target go through the initiator that served it last, unless
// that has served another target since. A new target gets the initiator that was used longest ago.
//
// Requests of one target that went through different initiators are not ordered
// among each other. All methods may be called from several goroutines at once.
type DCIPool struct {
	mu         sync.Mutex // guards what follows, and the order of posts
	initiators []dci
	turns      uint64
}

// A dci is an initiator with its last target.
type dci struct {
	qp   QP
	last DCTarget
	used uint64 // the turn of its last request, 0 for none
}

// NewDCIPool makes a pool of at least one initiator, each in state RTS. The caller owns and closes them.
func NewDCIPool(initiators ...QP) *DCIPool {
	if len(initiators) == 0 {
		panic("rdma: a DCIPool of no initiators")
	}
	p := new(DCIPool)
	for _, qp := range initiators {
		p.initiators = append(p.initiators, dci{qp: qp})
	}
	return p
}

// PostSend sets the target in the requests, posts them through an initiator and
// returns that initiator, whose number is in the completions. n and err are those of
// [QP].PostSend. If the initiator's queue is full, PostSend does not try another one.
func (p *DCIPool) PostSend(to DCTarget, wrs []SendWR) (qp QP, n int, err error) {
	for i := range wrs {
		wrs[i].AH, wrs[i].RemoteQPN, wrs[i].DCAccessKey = to.AH, to.Num, to.Key
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.choose(to)
	n, err = l.qp.PostSend(wrs)
	if n > 0 {
		p.turns++
		l.last, l.used = to, p.turns
	}
	return l.qp, n, err
}

// choose chooses the initiator. Called with mu held.
func (p *DCIPool) choose(to DCTarget) *dci {
	oldest := &p.initiators[0]
	for i := range p.initiators {
		l := &p.initiators[i]
		if l.used > 0 && l.last == to {
			return l
		}
		if l.used < oldest.used {
			oldest = l
		}
	}
	return oldest
}
