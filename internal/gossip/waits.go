package gossip

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// A wait is a fence of this host that has not ended, and who is told when it does.
type wait struct {
	v     *fence
	then  func(all [][]byte, err error)
	due   time.Time // when to ask for what may have been lost
	pause time.Duration
}

// Pauses between the questions of a host that waits in a fence.
const (
	probeFirst = 200 * time.Millisecond
	probeMost  = time.Second
)

// Begin enters a fence, and does not wait for its end, of which then is told, once: of what all hosts have contributed, by
// host index, or of an error. The node keeps contribution, the result is read only. then must not block. It
// may be called before Begin returns, and on goroutines that serve the connections.
//
// No goroutine waits for a fence, because to wake one costs more than what it would do.
func (n *Node) Begin(epoch uint64, contribution []byte, then func(all [][]byte, err error)) {
	if err := n.begin(epoch, contribution, then); err != nil {
		then(nil, err)
	}
}

func (n *Node) begin(epoch uint64, contribution []byte, then func(all [][]byte, err error)) error {
	if len(contribution) > partMax*partsMax {
		return fmt.Errorf("fence %d: a contribution of %d bytes, the limit is %d", epoch, len(contribution), partMax*partsMax)
	}
	n.mu.Lock()
	defer n.leave()
	if n.stopped {
		return ErrClosed
	}
	if n.addrs == nil {
		return fmt.Errorf("fence %d before Join", epoch)
	}
	v, ok := n.fences.contribute(epoch, contribution)
	if !ok {
		return fmt.Errorf("fence %d: host %s contributes twice", epoch, n.cfg.Host)
	}
	n.waits[epoch] = &wait{v, then, time.Now().Add(probeFirst), probeFirst}
	if !n.probes {
		n.probes = true
		n.prober.Reset(probeFirst)
	}
	return nil
}

// Fence is pmi.Store's. When ctx ends, the error names the hosts that are late,
// as far as this one can know: those below it in the tree.
func (n *Node) Fence(ctx context.Context, epoch uint64, contribution []byte) ([][]byte, error) {
	var all [][]byte
	var failed error
	done := make(chan struct{})
	err := n.begin(epoch, contribution, func(a [][]byte, err error) {
		all, failed = a, err
		close(done)
	})
	if err != nil {
		return nil, err
	}
	select {
	case <-done:
	case <-ctx.Done():
		n.mu.Lock()
		w := n.waits[epoch]
		if w == nil { // it has ended now
			n.mu.Unlock()
			<-done
			break
		}
		late := n.lateLocked(w.v)
		n.giveUp(w)
		n.mu.Unlock()
		return nil, fmt.Errorf("fence %d: waiting for %s: %w", epoch, late, ctx.Err())
	}
	return all, failed
}

// giveUp forgets who waits for a fence. mu is held.
func (n *Node) giveUp(w *wait) {
	delete(n.waits, w.v.epoch)
	n.fences.release(w.v)
}

// leave gives up mu after a use of the fences: it has sent what they want sent, and tells of those that have ended.
func (n *Node) leave() {
	n.sendLocked()
	var ended []*wait
	for _, w := range n.waits {
		if w.v.ended() || n.stopped {
			ended = append(ended, w)
			n.giveUp(w)
		}
	}
	n.mu.Unlock()
	for _, w := range ended {
		switch {
		case w.v.all != nil:
			w.then(w.v.all, nil)
		case w.v.err != nil:
			w.then(nil, fmt.Errorf("fence %d: %w", w.v.epoch, w.v.err))
		default:
			w.then(nil, fmt.Errorf("fence %d: %w", w.v.epoch, ErrClosed))
		}
	}
}

// probe asks for what may have been lost, where a fence has waited for long. One timer serves all fences, and
// is set again while there are some.
func (n *Node) probe() {
	n.mu.Lock()
	defer n.leave()
	if n.probes = !n.stopped && len(n.waits) > 0; !n.probes {
		return
	}
	now := time.Now()
	next := now.Add(probeMost)
	for _, w := range n.waits {
		if !w.due.After(now) {
			n.fences.probe(w.v)
			w.pause = min(2*w.pause, probeMost)
			w.due = now.Add(w.pause)
		}
		if w.due.Before(next) {
			next = w.due
		}
	}
	n.prober.Reset(next.Sub(now))
}

// lateLocked names the nodes that a fence waits for.
func (n *Node) lateLocked(v *fence) string {
	missing := n.fences.missing(v)
	if len(missing) == 0 && n.cfg.Index > 0 {
		parent := n.fences.parent()
		beyond := "hosts beyond " + n.nameLocked(parent)
		if err := n.branches[parent].trouble(); err != nil {
			beyond += fmt.Sprintf(", to which there is no connection (%v)", err)
		}
		return beyond
	}
	names := make([]string, len(missing))
	for i, h := range missing {
		names[i] = n.nameLocked(h)
	}
	return strings.Join(names, ", ")
}
