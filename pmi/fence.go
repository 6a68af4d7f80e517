package pmi

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/gorun-mpi/gorun/internal/pack"
)

// A Store completes the fences of a job over all its hosts. Each host has one.
type Store interface {
	// Fence gives this host's contribution to the fence of an epoch, and returns the contributions
	// of all hosts, by host index. It blocks until all hosts have contributed or ctx ends, or fails
	// with an error that names the lost host. Each host calls it once per epoch, in any order, and
	// several epochs may be open. The store keeps contribution. The result must not be changed.
	Fence(ctx context.Context, epoch uint64, contribution []byte) (all [][]byte, err error)
	// Close ends running fences with an error.
	Close() error
}

// A fence is entered by all ranks of the job with the same command. What a host
// contributes is, in msgpack,
//
//	[kind, [key, value, ...], [rank, card, ...], reason]
//
// with its ranks' puts since the last fence, their cards in a fence of cards,
// and in a closing fence why there will be no more.
type fenceKind uint8

const (
	fenceNone fenceKind = iota
	fenceBarrier
	fenceCards
	fenceClosing
	fenceKinds
)

func (k fenceKind) String() string {
	return [...]string{"nothing", "barrier_in", "gorun_allgather", "closing"}[k]
}

// receiveCard begins a card: its bytes follow the line.
func (e *Engine) receiveCard(p *peer, m Message) {
	size, ok := m.Int("size")
	if !ok || size < 0 || size > CardMax {
		v, _ := m.Get("size")
		e.violate(p, ErrLimit, fmt.Sprintf("gorun_allgather size=%s, the limit is %d bytes", clip(v), CardMax))
		return
	}
	p.card, p.need, p.shown = make([]byte, 0, size), size, true
	if size == 0 {
		e.enter(p, fenceCards)
	}
}

// enter takes a rank into the fence.
func (e *Engine) enter(p *peer, kind fenceKind) {
	switch {
	case e.broken != nil:
		e.violate(p, ErrFence, fmt.Sprintf("%s: %v", kind, e.broken))
		return
	case e.inside > 0 && kind != e.kind:
		e.violate(p, ErrOrder, fmt.Sprintf("%s, but other ranks entered fence %d with %s", kind, e.epoch, e.kind))
		return
	}
	e.kind = kind
	e.inside++
	p.state = inFence
	e.tryFence(p)
}

// leave notes that a rank will enter no more fences.
func (e *Engine) leave(p *peer, why string) {
	e.countLeft(&RankError{Rank: p.rank, Kind: ErrLeft, Detail: why})
	e.tryFence(p)
}

func (e *Engine) countLeft(err *RankError) {
	if e.left++; e.leaver == nil {
		e.leaver = err
	}
}

func (e *Engine) leaverDetail(p *peer) string {
	if e.leaver != nil && e.leaver.Rank == p.rank {
		return e.leaver.Detail
	}
	return "its connection ended without finalize"
}

// tryFence emits the fence when all ranks are in. Ranks that wait for one that
// has left learn it here, and when the last has left the other hosts do.
func (e *Engine) tryFence(p *peer) {
	switch {
	case e.broken != nil || e.pending:
	case e.inside > 0 && e.left > 0:
		e.breakFences(&RankError{Rank: e.leaver.Rank, Kind: ErrLeft,
			Detail: fmt.Sprintf("%s while %s in fence %d (%s)", e.leaver.Detail, waiting(e.inside), e.epoch, e.kind)})
	case e.inside == len(e.peers) && e.inside > 0:
		e.pending = true
		e.emit(p, Fence{Epoch: e.epoch, Contribution: e.contribution()})
	case e.left == len(e.peers) && len(e.peers) < e.size && !e.closing:
		e.closing, e.pending, e.kind = true, true, fenceClosing
		e.emit(p, Fence{Epoch: e.epoch, Contribution: e.contribution(), Closing: true})
	}
}

func waiting(n int) string {
	if n == 1 {
		return "1 rank waits"
	}
	return strconv.Itoa(n) + " ranks wait"
}

// breakFences says that err is why no fence can complete any more.
func (e *Engine) breakFences(err *RankError) {
	if e.broken != nil {
		return
	}
	e.flush(e.peers[0])
	e.events = append(e.events, Violation{err.Rank, err})
	e.failFence(err)
}

// failFence answers those that wait in the fence and can be told. The answer of
// PMI-1 to barrier_in has no room for an error: MPICH's client would go on as if
// all were there. So ranks in a barrier wait on until the owner ends the job.
func (e *Engine) failFence(err error) {
	if e.broken != nil {
		return
	}
	e.broken = err
	defer e.tellHosts()
	if e.kind != fenceCards {
		return
	}
	text := []byte("cmd=gorun_allgather_result rc=-1 value=" + strings.ReplaceAll(err.Error(), "\n", " ") + "\n")
	for _, p := range e.peers {
		if p.state == inFence {
			e.events = append(e.events, Reply{p.rank, text})
		}
	}
}

// tellHosts has the other hosts learn that no fence can complete, in which their
// ranks may wait already: those here may never come to one.
func (e *Engine) tellHosts() {
	if e.closing || e.pending || len(e.peers) == e.size {
		return
	}
	e.closing, e.pending, e.kind = true, true, fenceClosing
	e.events = append(e.events, Fence{Epoch: e.epoch, Contribution: e.contribution(), Closing: true})
}

// contribution is this host's, see [fenceKind].
func (e *Engine) contribution() []byte {
	w := pack.NewWriter(64 + e.store.pendingBytes + e.cardBytes())
	w.Array(4)
	w.Uint(uint64(e.kind))
	e.store.packPending(w)
	if e.kind == fenceCards {
		w.Array(2 * len(e.peers))
		for _, p := range e.peers {
			w.Uint(uint64(p.rank))
			w.Bin(p.card)
			p.card = nil
		}
	} else {
		w.Array(0)
	}
	reason := ""
	if e.kind == fenceClosing {
		if reason = fmt.Sprint(e.broken); e.leaver != nil {
			reason = fmt.Sprintf("rank %d: %s", e.leaver.Rank, e.leaver.Detail)
		}
	}
	w.String(reason)
	return w.Bytes()
}

func (e *Engine) cardBytes() int {
	n := 0
	for _, p := range e.peers {
		n += len(p.card) + 16
	}
	return n
}

// FenceDone completes the fence of an epoch with the contributions of all hosts, in any
// order. A damaged contribution, or hosts that are in different operations, are a violation.
func (e *Engine) FenceDone(epoch uint64, all [][]byte) []Event {
	if !e.pending || epoch != e.epoch {
		return nil // of a fence that was given up
	}
	if e.broken != nil {
		return nil
	}
	if err := e.merge(all); err != nil {
		return e.FenceFailed(epoch, err)
	}
	reply := []byte("cmd=barrier_out\n")
	if e.kind == fenceCards {
		reply = e.cards(all)
	}
	kind := e.kind
	e.epoch++
	e.pending, e.inside, e.kind = false, 0, fenceNone
	if kind == fenceClosing {
		return nil
	}
	for _, p := range e.peers {
		if p.state == inFence {
			p.state = up
			p.wire.fenced(e, p, reply)
		}
	}
	for _, p := range e.peers {
		p.wire.freed(e, p)
		e.flush(p)
	}
	return e.take(e.peers[0])
}

// FenceFailed ends the fence of an epoch. err is the reason, and should
// name a host. If ranks wait in the fence, that is a violation.
func (e *Engine) FenceFailed(epoch uint64, err error) []Event {
	if !e.pending || epoch != e.epoch || e.broken != nil {
		return nil
	}
	if e.kind == fenceClosing {
		e.broken = err
		return nil
	}
	e.breakFences(&RankError{Rank: e.peers[0].rank, Kind: ErrFence, Detail: fmt.Sprintf("fence %d (%s): %v", epoch, e.kind, err), Cause: err})
	return e.take(e.peers[0])
}

// merge makes what all hosts put visible, after checking everything: either
// all of a fence arrives or nothing.
func (e *Engine) merge(all [][]byte) error {
	seen := make([]bool, e.size)
	ranks := 0
	for host, c := range all {
		r := pack.NewReader(c)
		if r.Array() != 4 {
			r.Fail()
		}
		kind := fenceKind(r.Below(uint64(fenceKinds)))
		for n := r.Array(); n > 0 && r.Err() == nil; n-- {
			r.Bin()
		}
		n := r.Array()
		for ; n > 0 && r.Err() == nil; n -= 2 {
			rank := r.Below(uint64(e.size))
			card := r.Bin()
			if r.Err() != nil || seen[rank] || len(card) > CardMax {
				r.Fail()
				break
			}
			seen[rank] = true
			ranks++
		}
		reason := r.String()
		if err := r.End(); err != nil {
			return fmt.Errorf("host %d: contribution of %d bytes: %w", host, len(c), err)
		}
		switch {
		case kind == e.kind:
		case kind == fenceClosing:
			return fmt.Errorf("host %d takes part in no more fences: %s", host, reason)
		case e.kind == fenceClosing:
			return fmt.Errorf("host %d waits in %s, but the ranks here have left", host, kind)
		default:
			return fmt.Errorf("host %d entered with %s, this one with %s", host, kind, e.kind)
		}
	}
	if e.kind == fenceCards && ranks != e.size {
		return fmt.Errorf("cards of %d ranks, want %d", ranks, e.size)
	}
	e.store.merge(all)
	return nil
}

// cards is the answer to gorun_allgather: a line, and an array of all cards by
// rank. All readers share it.
func (e *Engine) cards(all [][]byte) []byte {
	byRank := make([][]byte, e.size)
	size := 5
	for _, c := range all {
		r := pack.NewReader(c)
		r.Array()
		r.Uint()
		for n := r.Array(); n > 0; n-- {
			r.Bin()
		}
		for n := r.Array(); n > 0; n -= 2 {
			rank := r.Below(uint64(e.size))
			byRank[rank] = r.Bin()
			size += len(byRank[rank]) + 5
		}
	}
	w := pack.NewWriter(size)
	w.Array(len(byRank))
	for _, card := range byRank {
		w.Bin(card)
	}
	body := w.Bytes()
	head := "cmd=gorun_allgather_result rc=0 size=" + strconv.Itoa(len(body)) + "\n"
	return append(append(make([]byte, 0, len(head)+len(body)), head...), body...)
}
